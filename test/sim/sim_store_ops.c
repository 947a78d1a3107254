/*
 * Operations of sim_store.h: listing (by puts, copies and walks), removals and gets; and the delivery of messages.
 */
#include "config.h"

#include "sim_store.h"

#include <string.h>

static uint64_t next_id;

static op_t *op_new(proc_t *p, op_kind_t kind, unsigned key)
{
    part_t   *part = &parts[index_of(p)];
    unsigned i;

    for (i = 0; (i < STORE_OPS) && (part->ops[i].kind != OP_NONE); ++i) {
    }
    if (i == STORE_OPS) {
        return NULL;
    }
    part->ops[i] = (op_t){.kind = kind, .id = ++next_id, .key = key, .end_at = sim.now + (store_give_up_ms * MS)};
    return &part->ops[i];
}

static op_t *op_find(proc_t *p, uint64_t id)
{
    part_t   *part = &parts[index_of(p)];
    unsigned i;

    for (i = 0; i < STORE_OPS; ++i) {
        if ((part->ops[i].kind != OP_NONE) && (part->ops[i].id == id)) {
            return &part->ops[i];
        }
    }
    return NULL;
}

static bool hold(proc_t *p, unsigned key)
{
    part_t *part = &parts[index_of(p)];

    if ((part->held[key] == 0) && (part->n_slots < BLOCKS)) {
        part->key_of[part->n_slots] = key;
        part->held[key]             = (uint8_t)++part->n_slots;
    }
    return part->held[key] != 0;
}

static bool may_have_copy(const proc_t *p, uint32_t slot)
{
    const part_t *part = &parts[index_of(p)];

    return (part->incs[slot] != 0) && (slot != p->slot) && !part->ranks[slot].leaves && !((part->fresh >> slot) & 1);
}

static void end_op(proc_t *p, op_t *op)
{
    uint32_t slot, tried = 0;
    mail_t   *mail;
    op_t     *copy;

    if ((op->kind == OP_LIST) && op->then_copy) {
        slot = sim_below(sim.n_slots);
        copy = op_new(p, OP_COPY, op->key);
        while (!may_have_copy(p, slot)) {
            slot = (slot + 1) % sim.n_slots;
            if (++tried == sim.n_slots) {
                break; /* alone: no put counts */
            }
        }
        if ((copy != NULL) && may_have_copy(p, slot)) {
            mail      = post(p, slot, MAIL_COPY);
            mail->id  = copy->id;
            mail->key = op->key;
        }
    } else if ((op->kind == OP_LIST) && (op->reply_to != 0)) {
        mail     = post(p, sim.procs[op->reply_to - 1].slot, MAIL_COPY_REPLY);
        mail->id = op->reply_id;
    } else if (op->kind == OP_REMOVE) {
        states[op->key] = KEY_REMOVED;
        n_removed      += 1;
    }
    op->kind = OP_NONE;
}

/* A message to each home that has not answered yet. */
static void send_change(proc_t *p, op_t *op)
{
    part_t        *part = &parts[index_of(p)];
    kvcl_moves_maps_t maps;
    uint32_t      homes[KVCL_MOVES_HOMES];
    bool          all   = true, walks = (op->kind == OP_LIST) && (op->end_at == UINT64_MAX) && part->moving;
    kvcl_status_t status;
    mail_t        *mail;
    unsigned      i;

    if ((op->kind == OP_LIST) && (part->held[op->key] == 0)) {
        op->kind = OP_NONE; /* it was removed meanwhile */
        return;
    }
    if (op->map_id != part->moves.id) {
        op->map_id = part->moves.id;
        op->acked  = 0;
    }
    maps      = maps_of(part);
    maps.also = (part->moving && !walks) ? maps.also : NULL;
    kvcl_moves_homes(maps, &keys[op->key], true, homes);
    for (i = 0; i < KVCL_MOVES_HOMES; ++i) {
        if ((homes[i] == KVCL_SHARD_NO_RANK) || ((op->acked >> homes[i]) & 1) ||
            (walks && !kvcl_moves_is_new(&part->old, &keys[op->key], true, homes[i]))) {
            continue;
        }
        if (homes[i] == p->slot) {
            kvcl_dir_loc_t loc = loc_of(p, op->key);
            status = (op->kind == OP_LIST) ? list_here(p, op->key, &loc) : remove_here(p, op->key);
            op->acked |= (status == KVCL_OK) ? UINT64_C(1) << homes[i] : 0;
            all = all && (status == KVCL_OK);
            continue;
        }
        all       = false;
        mail      = post(p, homes[i], (op->kind == OP_LIST) ? MAIL_DIR : MAIL_REMOVE);
        mail->id  = op->id;
        mail->key = op->key;
        mail->loc = loc_of(p, op->key);
    }
    if (all) {
        end_op(p, op);
    }
}

static void got(proc_t *p, op_t *op, bool found)
{
    n_got += found ? 1 : 0;
    if (!found && op->sure && (states[op->key] == KEY_ACKED) && (n_lost < 2) && !is_excluded(p)) {
        sim_broken("Found", p, "a key that was acknowledged is absent");
    }
    op->kind = OP_NONE;
}

static void fetch_next(proc_t *p, op_t *op)
{
    mail_t *mail;

    for (; op->at < op->n; ++op->at) {
        if (op->locs[op->at].rank == p->slot) {
            got(p, op, true);
            return;
        }
        if (!kvcl_rankset_has(&p->failed, op->locs[op->at].rank)) {
            mail      = post(p, op->locs[op->at].rank, MAIL_FETCH);
            mail->id  = op->id;
            mail->key = op->key;
            mail->loc = op->locs[op->at];
            return;
        }
    }
    got(p, op, false);
}

static void send_get(proc_t *p, op_t *op)
{
    part_t   *part = &parts[index_of(p)];
    uint32_t home;
    mail_t   *mail;

    op->fetching = false;
    home         = asked(p, part, &keys[op->key]);
    if (home == p->slot) {
        op->n = look_up(p, op->key, op->locs);
        op->at = 0;
        fetch_next(p, op);
        return;
    }
    mail      = post(p, home, MAIL_LOOKUP);
    mail->id  = op->id;
    mail->key = op->key;
}

/* Copies at ranks that stay. */
static unsigned copies_elsewhere(const proc_t *p, unsigned key)
{
    unsigned i, n = 0;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *q = &sim.procs[i];

        n += (q != p) && sim_is_member(q) && (parts[i].held[key] != 0) && (parts[i].leaving == STAYS) &&
             kvcl_view_has(&p->views.view, q->slot, q->incarnation) && !has_failed(p, q->slot);
    }
    return n;
}

/* The next rank that has no copy yet, until two that stay have one. */
static void send_hand(proc_t *p, op_t *op)
{
    const part_t *part = &parts[index_of(p)];
    mail_t       *mail;

    while ((op->at < sim.n_slots) && !may_have_copy(p, op->at)) {
        op->at   += 1;
        op->acked = 0;
    }
    if (((op->acked == 0) && (copies_elsewhere(p, op->key) > 1)) || (op->at >= sim.n_slots) ||
        (part->held[op->key] == 0)) {
        handing[op->key] -= 1;
        op->kind          = OP_NONE;
    } else if (has_failed(p, op->at)) {
        op->at   += 1;
        op->acked = 0;
    } else if (op->acked++ % 8 == 0) { /* it may have had no room for an operation */
        mail       = post(p, op->at, MAIL_COPY);
        mail->id   = op->id;
        mail->key  = op->key;
        mail->step = 1;
    }
}

static bool is_being_removed(unsigned key)
{
    unsigned i, j;

    for (i = 0; i < sim.n_procs; ++i) {
        for (j = 0; sim_is_member(&sim.procs[i]) && (j < STORE_OPS); ++j) {
            if ((parts[i].ops[j].kind == OP_REMOVE) && (parts[i].ops[j].key == key)) {
                return true;
            }
        }
    }
    return false;
}

bool hand_over(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    op_t     *op;
    unsigned i, left = 0;

    for (; part->handed < KEYS; ++part->handed) {
        if ((part->held[part->handed] == 0) || (states[part->handed] == KEY_REMOVED) || (broken == BREAK_NO_DRAIN)) {
            continue; /* of a removed key the source is not listed any more: no copy of it is (dir/home.h) */
        }
        if (is_being_removed(part->handed)) {
            return false;
        }
        op = op_new(p, OP_HAND, part->handed);
        if (op == NULL) {
            return false;
        }
        op->end_at = UINT64_MAX;
        handing[part->handed] += 1;
    }
    for (i = 0; i < STORE_OPS; ++i) {
        left += (part->ops[i].kind == OP_HAND);
    }
    return left == 0;
}

void run_op(proc_t *p, op_t *op)
{
    if (sim.now >= op->end_at) {
        if ((op->kind != OP_GET) && (states[op->key] == KEY_BUSY)) {
            states[op->key] = KEY_UNSURE;
        }
        op->kind = OP_NONE;
        return;
    }
    if (sim.now < op->retry_at) {
        return;
    }
    op->retry_at = sim.now + ((op->kind == OP_GET) ? 4 * RETRY_MS : RETRY_MS) * MS;
    if ((op->kind == OP_LIST) || (op->kind == OP_REMOVE)) {
        send_change(p, op);
    } else if (op->kind == OP_GET) {
        send_get(p, op);
    } else if (op->kind == OP_HAND) {
        send_hand(p, op);
    }
}

/* The walk: a key a tick, by operations that list it at all of its homes. */
void walk(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    op_t     *op;
    unsigned i, left = 0;

    if (!part->moving || part->listed) {
        return;
    }
    for (; part->walk < KEYS; ++part->walk) {
        if ((part->held[part->walk] != 0) && (broken != BREAK_NO_WALK)) {
            op = op_new(p, OP_LIST, part->walk);
            if (op == NULL) {
                return;
            }
            op->end_at = UINT64_MAX;
        }
    }
    for (i = 0; i < STORE_OPS; ++i) {
        left += (part->ops[i].kind == OP_LIST) && (part->ops[i].end_at == UINT64_MAX);
    }
    if (left == 0) {
        part->listed = true;
        say(p, KVCL_MOVES_LISTED);
        go_on(p);
    }
}

void client(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    unsigned key   = sim_below(KEYS), what = sim_below(12);
    op_t     *op   = NULL;

    if ((sim.now > store_client_ends) ||
        ((part->stage != OPEN) && ((part->stage != COMES) || (broken != BREAK_EARLY_GET)))) {
        return;
    }
    if ((what == 0) && (sim_below(3) == 0) && (states[key] == KEY_NEW) && (part->stage == OPEN) &&
        (part->leaving == STAYS)) {
        op = op_new(p, OP_LIST, key);
        if ((op != NULL) && hold(p, key)) {
            op->then_copy = true;
            states[key]   = KEY_BUSY;
        }
    } else if ((what == 1) && (sim_below(8) == 0) && (states[key] == KEY_ACKED) && (part->stage == OPEN) &&
               (handing[key] == 0)) {
        op = op_new(p, OP_REMOVE, key);
        if (op != NULL) {
            states[key] = KEY_BUSY;
        }
    } else if (what > 7) {
        op = op_new(p, OP_GET, key);
        if (op != NULL) {
            op->sure = (states[key] == KEY_ACKED);
        }
    }
}

/* ---- deliveries ---- */

static void take_answer(proc_t *p, const mail_t *mail)
{
    op_t *op = op_find(p, mail->id);

    if (op == NULL) {
        return;
    }
    if ((op->kind == OP_HAND) && (sim.procs[mail->from].slot != op->at)) {
        return; /* a second answer of a rank before */
    }
    if (op->kind == OP_HAND) {
        op->at      += 1;
        op->acked    = 0;
        op->retry_at = 0;
    } else if ((mail->kind == MAIL_COPY_REPLY) && (mail->status != KVCL_OK)) {
        op->end_at = sim.now; /* a rank that leaves takes no copy */
    } else if (mail->kind == MAIL_COPY_REPLY) {
        if (states[op->key] == KEY_BUSY) {
            states[op->key] = KEY_ACKED;
            n_acked        += 1;
        }
        op->kind = OP_NONE;
    } else if (mail->kind == MAIL_LOOKUP_REPLY) {
        op->n  = mail->n;
        op->at = 0;
        memcpy(op->locs, mail->locs, sizeof(op->locs));
        fetch_next(p, op);
    } else if (mail->kind == MAIL_FETCH_REPLY) {
        if ((mail->status == KVCL_OK) && (mail->step != op->key)) {
            sim_broken("Right", p, "the block of another key");
        }
        if (mail->status == KVCL_OK) {
            got(p, op, true);
        } else {
            ++op->at;
            fetch_next(p, op);
        }
    } else if (mail->status == KVCL_OK) {
        op->acked |= UINT64_C(1) << sim.procs[mail->from].slot;
        op->retry_at = (op->map_id == parts[index_of(p)].moves.id) ? 0 : op->retry_at;
    }
}

static void take_fetch(proc_t *p, const mail_t *mail)
{
    part_t *part = &parts[index_of(p)];
    bool   is    = (mail->loc.slot < part->n_slots) &&
                   ((broken == BREAK_ANY_INCARNATION) || (mail->loc.incarnation == (uint16_t)p->incarnation));
    mail_t *back = post(p, sim.procs[mail->from].slot, MAIL_FETCH_REPLY);

    is           = is && (part->held[part->key_of[mail->loc.slot]] == mail->loc.slot + 1);
    back->id     = mail->id;
    back->status = is ? KVCL_OK : KVCL_ERR_STALE;
    back->step   = is ? part->key_of[mail->loc.slot] : 0;
}

static bool is_listing_for(const part_t *part, const mail_t *mail)
{
    unsigned i;

    for (i = 0; i < STORE_OPS; ++i) {
        if ((part->ops[i].kind == OP_LIST) && (part->ops[i].reply_to == mail->from + 1) &&
            (part->ops[i].reply_id == mail->id)) {
            return true;
        }
    }
    return false;
}

static void take_moved(proc_t *p, const mail_t *mail)
{
    part_t         *part = &parts[index_of(p)];
    const proc_t   *from = &sim.procs[mail->from];

    if (part->ranks[from->slot].incarnation != (uint16_t)from->incarnation) {
        return; /* it comes, and this rank has not taken it yet */
    }
    if (mail->step != 0) {
        kvcl_moves_say(&part->moves, from->slot, mail->id,
                       (mail->step == 2) ? KVCL_MOVES_SWITCHED : KVCL_MOVES_LISTED);
    }
    if ((mail->n != 0) && (mail->id == part->moves.id) && (part->stage >= COMES)) {
        tell(p, from->slot, false);
    }
    go_on(p);
}

/* The home keeps the entry until it hears that the block is gone. */
static void take_withdraw(proc_t *p, const mail_t *mail)
{
    part_t *part = &parts[index_of(p)];
    mail_t *back;

    if ((mail->loc.incarnation == (uint16_t)p->incarnation) && (part->held[mail->key] == mail->loc.slot + 1)) {
        part->held[mail->key] = 0;
    }
    back      = post(p, sim.procs[mail->from].slot, MAIL_DROPPED);
    back->key = mail->key;
    back->loc = mail->loc;
}

static void take_mail(proc_t *p, const mail_t *mail)
{
    part_t *part = &parts[index_of(p)];
    mail_t *back;
    op_t   *op;

    switch (mail->kind) {
    case MAIL_DIR:
        answer(p, mail, MAIL_DIR_REPLY, list_here(p, mail->key, &mail->loc));
        break;
    case MAIL_REMOVE:
        answer(p, mail, MAIL_REMOVE_REPLY, remove_here(p, mail->key));
        break;
    case MAIL_LOOKUP:
        back      = post(p, sim.procs[mail->from].slot, MAIL_LOOKUP_REPLY);
        back->id  = mail->id;
        back->key = mail->key;
        back->n   = look_up(p, mail->key, back->locs);
        break;
    case MAIL_FETCH:
        take_fetch(p, mail);
        break;
    case MAIL_COPY:
        if (is_listing_for(part, mail)) {
            break; /* it answers when it is listed */
        }
        if ((part->leaving != STAYS) || ((mail->step != 0) && (part->held[mail->key] != 0))) {
            answer(p, mail, MAIL_COPY_REPLY, KVCL_ERR_EXISTS);
            break;
        }
        op = op_new(p, OP_LIST, mail->key);
        if ((op != NULL) && hold(p, mail->key)) {
            op->reply_to = mail->from + 1;
            op->reply_id = mail->id;
        } else if (op != NULL) {
            op->kind = OP_NONE;
            answer(p, mail, MAIL_COPY_REPLY, KVCL_ERR_NO_SPACE);
        }
        break;
    case MAIL_WITHDRAW:
        take_withdraw(p, mail);
        break;
    case MAIL_DROPPED:
        (void)!kvcl_dir_table_remove(&part->table, &keys[mail->key], &mail->loc);
        break;
    case MAIL_MOVED:
        take_moved(p, mail);
        break;
    case MAIL_ASK:
    case MAIL_ASK_REPLY:
    case MAIL_TAKE:
    case MAIL_TAKE_REPLY:
        take_grow(p, mail);
        break;
    default:
        take_answer(p, mail);
        break;
    }
}

void deliver(mail_t *mail)
{
    mail_t       taken = *mail;
    proc_t       *p    = &sim.procs[mail->to];
    const proc_t *from = &sim.procs[mail->from];
    bool         fits;

    if (sim_lives(p) && (p->paused || (sim.cut[mail->from][mail->to] != 0))) {
        mail->at = sim.now + (10 * MS);
        return;
    }
    mail->at = 0;
    follow(p);
    if (!sim_is_member(p) || !parts[index_of(p)].begun) {
        return;
    }
    fits = kvcl_view_has(&p->views.view, from->slot, from->incarnation) &&
           !kvcl_rankset_has(&p->failed, from->slot);
    if (!fits && (broken != BREAK_STALE_SENDER)) {
        return;
    }
    if (!kvcl_view_has(&p->views.view, from->slot, from->incarnation) &&
        ((taken.kind == MAIL_DIR) || (taken.kind == MAIL_REMOVE))) {
        sim_broken("Fenced", p, "a message of a process that its view excludes is taken");
    }
    take_mail(p, &taken);
}
