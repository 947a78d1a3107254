/*
 * A process's part of the directory in sim_store.h: its maps, its home, and the messages that it sends.
 */
#include "config.h"

#include "sim_store.h"

#include <stddef.h>
#include <string.h>

unsigned index_of(const proc_t *p)
{
    return (unsigned)(p - sim.procs);
}

static bool has_lease(const proc_t *p)
{
    return (broken == BREAK_NO_LEASE) ? sim_lives(p) && (p->views.state == KVCL_VIEWS_MEMBER)
                                      : kvcl_views_has_lease(&p->views, sim_clock(p));
}

bool is_excluded(const proc_t *p)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *q = &sim.procs[i];

        if (sim_is_member(q) && (q->views.view.number > p->views.view.number) &&
            !kvcl_view_has(&q->views.view, p->slot, p->incarnation)) {
            return true;
        }
    }
    return p->views.state == KVCL_VIEWS_OUT;
}

/* ---- messages ---- */

mail_t *post(const proc_t *from, uint32_t slot, kind_t kind)
{
    static mail_t nowhere;
    unsigned      to, i;

    for (to = 0; to < sim.n_procs; ++to) { /* the process that this view has in the slot */
        if (sim_lives(&sim.procs[to]) &&
            kvcl_view_has(&from->views.view, slot, sim.procs[to].incarnation) && (sim.procs[to].slot == slot)) {
            break;
        }
    }
    for (i = 0; (i < n_mails) && (mails[i].at != 0); ++i) {
    }
    if ((to < sim.n_procs) && (store_on_post != NULL) && !from->dead) {
        store_on_post(index_of(from), to);
    }
    if ((to == sim.n_procs) || (i == MAILS) || from->dead) {
        return &nowhere;
    }
    n_mails = (i < n_mails) ? n_mails : i + 1;
    memset(&mails[i], 0, sizeof(mails[i]));
    mails[i].at   = sim.now + 50000 + sim_below(3 * MS);
    mails[i].from = index_of(from);
    mails[i].to   = to;
    mails[i].kind = kind;
    return &mails[i];
}

void answer(const proc_t *p, const mail_t *mail, kind_t kind, kvcl_status_t status)
{
    mail_t *back = post(p, sim.procs[mail->from].slot, kind);

    back->id     = mail->id;
    back->key    = mail->key;
    back->status = status;
}

/* ---- maps ---- */

static const kvcl_shard_map_t *old_of(const part_t *part)
{
    return part->moving ? &part->old : NULL;
}

kvcl_moves_maps_t maps_of(const part_t *part)
{
    return (kvcl_moves_maps_t){.map = &part->map, .old = old_of(part), .also = part->has_also ? &part->also : NULL};
}

static void adopt(part_t *part)
{
    kvcl_home_adopt(&part->home, &part->map, old_of(part), (part->moving && part->has_also) ? &part->also : NULL,
                    part->incs, sim.n_slots);
}

static bool is_foreign(void *arg, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    return !kvcl_home_keeps(arg, key, loc);
}

static void settle(proc_t *p)
{
    part_t *part = &parts[index_of(p)];

    n_come       += (part->stage == COMES);
    part->stage   = OPEN;
    if (!part->has_also) {
        part->also = part->old;
    }
    part->has_also = true;
    part->moving   = false;
    part->fresh   = 0;
    adopt(part);
    part->sweep_at = sim.now + (sim_below(SWEEP_MS) * MS);
    n_moved       += 1;
}

/* What shards that have moved have left is dropped by and by. */
void sweep(proc_t *p)
{
    part_t *part = &parts[index_of(p)];

    if ((part->sweep_at != 0) && (sim.now >= part->sweep_at)) {
        part->sweep_at = 0;
        (void)kvcl_dir_table_remove_if(&part->table, is_foreign, &part->home);
    }
}

void tell(proc_t *p, uint32_t slot, bool asks)
{
    const part_t *part = &parts[index_of(p)];
    mail_t       *mail = post(p, slot, MAIL_MOVED);

    mail->id   = part->moves.id;
    mail->step = (!part->moving || part->switched) ? 2 : part->listed ? 1 : 0; /* steps that it has made */
    mail->n    = asks ? 1 : 0;
}

void say(proc_t *p, kvcl_moves_step_t step)
{
    part_t   *part = &parts[index_of(p)];
    uint32_t slot;

    kvcl_moves_say(&part->moves, p->slot, part->moves.id, step);
    for (slot = 0; slot < sim.n_slots; ++slot) {
        if ((slot != p->slot) && (part->ranks[slot].incarnation != 0)) {
            tell(p, slot, false);
        }
    }
}

/* Who did not know a rank yet has not heard it. */
void say_again(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    uint32_t slot;

    if (!part->moving || (sim.now < part->say_at)) {
        return;
    }
    part->say_at = sim.now + (SAY_MS * MS);
    for (slot = 0; slot < sim.n_slots; ++slot) {
        if ((slot != p->slot) && (part->ranks[slot].incarnation != 0)) {
            tell(p, slot, true);
        }
    }
}

void go_on(proc_t *p)
{
    part_t *part = &parts[index_of(p)];

    if (part->moving && part->listed && !part->switched && kvcl_moves_all(&part->moves, KVCL_MOVES_LISTED)) {
        part->switched = true;
        say(p, KVCL_MOVES_SWITCHED);
    }
    if (part->moving && part->switched && kvcl_moves_all(&part->moves, KVCL_MOVES_SWITCHED)) {
        settle(p);
    }
}

static void begin_part(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    unsigned i;

    memset(part, 0, offsetof(part_t, map));
    part->moves.ranks   = part->ranks;
    part->moves.n_ranks = sim.n_slots;
    part->begun         = true;
    for (i = 0; i < KVCL_SHARDS; ++i) { /* of nobody */
        part->map.home[i] = part->map.backup[i] = KVCL_SHARD_NO_RANK;
    }
    if ((kvcl_dir_table_format(&part->table, part->mem, sizeof(part->mem)) != KVCL_OK) ||
        (kvcl_home_init(&part->home, &part->table, p->slot, &part->map, part->incs, sim.n_slots) != KVCL_OK)) {
        sim_broken("Internal", p, "no table");
    }
}

/* A map is a function of the set of its ranks. */
static kvcl_status_t build_map(kvcl_shard_map_t *map, const uint32_t *ranks, uint32_t n)
{
    static struct {
        uint64_t         set;
        kvcl_shard_map_t map;
    } built[64];
    uint64_t         set = 0, hash;
    kvcl_status_t    status = KVCL_OK;
    uint32_t         i;

    for (i = 0; i < n; ++i) {
        set |= UINT64_C(1) << ranks[i];
    }
    hash = set;
    hash = kvcl_splitmix64(&hash) % 64;
    if ((set == 0) || (built[hash].set != set)) {
        status          = kvcl_shard_map_build(&built[hash].map, 1, ranks, n);
        built[hash].set = (status == KVCL_OK) ? set : 0;
    }
    if (status == KVCL_OK) {
        *map = built[hash].map;
    }
    return status;
}

/* Those who leave have shards if nobody else stays. */
static void make_map(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    uint32_t ranks[SLOTS], n = 0, slot, all;

    for (all = 0; (all < 2) && (n == 0); ++all) {
        for (slot = 0; slot < sim.n_slots; ++slot) {
            if ((part->ranks[slot].incarnation != 0) && ((all != 0) || !part->ranks[slot].leaves)) {
                ranks[n++] = slot;
            }
        }
    }
    if (build_map(&part->map, ranks, n) != KVCL_OK) {
        sim_broken("Internal", p, "no map");
    }
}

/* Shards begin to move, or begin anew. */
void move(proc_t *p, bool grows)
{
    static kvcl_shard_map_t old, also;
    part_t                  *part = &parts[index_of(p)];
    kvcl_moves_maps_t       next  = kvcl_moves_next(maps_of(part), part->switched, grows);
    uint32_t                slot;

    old            = *next.old;
    part->has_also = (next.also != NULL) && (broken != BREAK_FORGET_OLD);
    also           = part->has_also ? *next.also : old;
    part->old      = old;
    part->also     = also;
    for (slot = 0; slot < sim.n_slots; ++slot) {
        part->incs[slot] = part->ranks[slot].incarnation;
        if (part->incs[slot] == 0) {
            kvcl_moves_drop(&part->old, slot);
            kvcl_moves_drop(&part->also, slot);
        }
    }
    make_map(p);
    kvcl_moves_begin(&part->moves);
    part->moving = true;
    part->listed = part->switched = false;
    part->walk   = 0;
    adopt(part);
    part->sweep_at = (part->sweep_at != 0) ? part->sweep_at : sim.now + (sim_below(SWEEP_MS) * MS);
}

/* The job's first ranks open the store together. */
static void open_first(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    uint32_t slot;

    KVCL_RANKSET_EACH(&p->views.view.members, slot) {
        part->incs[slot] = part->ranks[slot].incarnation = (uint16_t)p->views.view.incarnation[slot];
    }
    make_map(p);
    kvcl_moves_begin(&part->moves);
    part->stage = OPEN;
    adopt(part);
}

/* True: ranks that took part are not in this view. */
static bool drop_gone(part_t *part, const kvcl_view_t *view)
{
    bool     changed = false;
    uint32_t slot;

    for (slot = 0; slot < sim.n_slots; ++slot) {
        if ((part->ranks[slot].incarnation != 0) && !kvcl_view_has(view, slot, part->ranks[slot].incarnation)) {
            part->ranks[slot].incarnation = 0;
            part->ranks[slot].leaves      = false;
            changed                       = true;
        }
    }
    return changed;
}

void follow(proc_t *p)
{
    static kvcl_view_t        next;
    part_t                    *part   = &parts[index_of(p)];
    const kvcl_view_t         *view   = &p->views.view;
    const kvcl_view_change_t  *change = kvcl_views_pending(&p->views);

    if (!sim_is_member(p) || p->paused) {
        return;
    }
    if ((broken == BREAK_BEFORE_COMMIT) && (change != NULL)) {
        kvcl_view_apply(view, change, &next);
        view = &next;
    }
    if (!part->begun) {
        begin_part(p);
        if (view->number == 1) {
            open_first(p);
        }
    } else if (part->view_id == view->id) {
        return;
    } else if (drop_gone(part, view) && (part->stage >= COMES)) {
        move(p, false);
    }
    part->view_id = view->id;
}

bool has_failed(const proc_t *p, uint32_t slot)
{
    return kvcl_rankset_has(&p->failed, slot);
}

/* Who is asked for a key: its home, or another one if that has failed; KVCL_SHARD_NO_RANK where all have left. */
uint32_t asked(const proc_t *p, const part_t *part, const kvcl_key_t *key)
{
    bool                   reads_old = part->moving && !part->switched && (broken != BREAK_ASK_NEW);
    const kvcl_shard_map_t *map      = reads_old ? &part->old : &part->map;
    uint32_t               home      = reads_old ? kvcl_moves_reader(&part->map, &part->old, key, true)
                                                 : kvcl_shard_home(map, key);
    uint32_t               backup    = kvcl_shard_backup(map, key);

    return ((backup != KVCL_SHARD_NO_RANK) && kvcl_rankset_has(&p->failed, home)) ? backup : home;
}

/* lease: it has one now. */
static bool owns(const proc_t *p, const kvcl_key_t *key)
{
    const part_t *part = &parts[index_of(p)];
    bool         in_old = (part->stage == OPEN) && (kvcl_moves_reader(&part->map, &part->old, key, true) == p->slot);
    bool         in_new = (kvcl_shard_home(&part->map, key) == p->slot);

    bool in_also = !part->has_also || (kvcl_moves_reader(&part->map, &part->also, key, true) == p->slot);

    return part->moving ? in_old && in_also && (in_new || !part->switched) : in_new;
}

/* Both use one map alone, and the same. */
static bool same_map(const part_t *a, const part_t *b)
{
    return !a->moving && !b->moving && (a->moves.id == b->moves.id);
}

/* All that have a part use the same map. */
static bool all_alike(void)
{
    const part_t *first = NULL;
    unsigned     i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_is_member(&sim.procs[i]) && parts[i].begun) {
            first = (first != NULL) ? first : &parts[i];
            if (!same_map(first, &parts[i])) {
                return false;
            }
        }
    }
    return true;
}

void check_owners(void)
{
    proc_t   *ready[PROCS], *owner;
    unsigned n = 0, i, k;
    bool     alike = true;

    if (all_alike()) {
        return;
    }
    for (i = 0; i < sim.n_procs; ++i) {
        proc_t *p = &sim.procs[i];
        if (sim_is_member(p) && !p->paused && parts[i].begun && has_lease(p)) {
            ready[n++] = p;
        }
    }
    for (i = 1; (i < n) && alike; ++i) {
        alike = same_map(&parts[index_of(ready[0])], &parts[index_of(ready[i])]);
    }
    for (k = 0; !alike && (k < KEYS); ++k) { /* one map has one owner of a key */
        owner = NULL;
        for (i = 0; i < n; ++i) {
            if (!owns(ready[i], &keys[k])) {
                continue;
            }
            if (owner != NULL) {
                sim_broken("OneOwner", ready[i], "another rank owns the same shard");
            }
            owner = ready[i];
        }
    }
}

/* ---- homes and holders ---- */

kvcl_dir_loc_t loc_of(const proc_t *p, unsigned key)
{
    return (kvcl_dir_loc_t){.rank = (uint16_t)p->slot, .incarnation = (uint16_t)p->incarnation, .len = 1, .gen = 1,
                            .slot = parts[index_of(p)].held[key] - 1u};
}

kvcl_status_t list_here(const proc_t *p, unsigned key, const kvcl_dir_loc_t *loc)
{
    part_t        *part  = &parts[index_of(p)];
    kvcl_status_t status = kvcl_home_may_change(&part->home, &keys[key], !has_lease(p));
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]; /* copies enough, if all live */
    bool          lives  = (loc->rank < sim.n_slots) && (part->incs[loc->rank] == loc->incarnation);

    if (status != KVCL_OK) {
        return status;
    }
    status = lives ? kvcl_home_list(&part->home, &keys[key], loc) : KVCL_ERR_STALE;
    return (lives && (status != KVCL_OK) && (look_up(p, key, locs) == KVCL_DIR_LOCS_MAX)) ? KVCL_OK : status;
}

kvcl_status_t remove_here(const proc_t *p, unsigned key)
{
    part_t         *part  = &parts[index_of(p)];
    kvcl_status_t  status = kvcl_home_may_remove(&part->home, &keys[key], !has_lease(p), true);
    const bool     waits = (broken != BREAK_UNHEARD_HOLDERS);
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n, i;

    if (status != KVCL_OK) {
        return status;
    }
    n = kvcl_home_remove(&part->home, &keys[key], waits, locs);
    for (i = 0; i < n; ++i) {
        if (locs[i].rank == p->slot) {
            part->held[key] = 0;
        } else {
            mail_t *mail = post(p, locs[i].rank, MAIL_WITHDRAW);
            mail->key    = key;
            mail->loc    = locs[i];
            status       = waits ? KVCL_ERR_STALE : status;
        }
    }
    return status;
}

unsigned look_up(const proc_t *p, unsigned key, kvcl_dir_loc_t *locs)
{
    const part_t *part = &parts[index_of(p)];
    unsigned     n     = kvcl_dir_table_find(&part->table, &keys[key], locs), kept = 0, i;

    for (i = 0; i < n; ++i) {
        if ((broken == BREAK_ANY_INCARNATION) || (part->incs[locs[i].rank] == locs[i].incarnation)) {
            locs[kept++] = locs[i];
        }
    }
    return kept;
}
