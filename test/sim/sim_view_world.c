/*
 * Network, processes and clocks of sim_view.h, and what must hold.
 */
#include "config.h"

#include "sim_view.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD UINT64_MAX /* a time of arrival */

typedef struct letter {
    unsigned        to;
    bool            held;
    uint64_t        proof; /* not a message: the kernel's word that this incarnation of msg.from has ended */
    kvcl_view_msg_t msg;
} letter_t;

world_t sim;

static sim_queue_t queue; /* of letters */
static letter_t    letters[SIM_QUEUE_MAX];
static kvcl_view_t views_sent[SIM_QUEUE_MAX]; /* by letter; most have none */
static uint64_t    seen_view;                 /* before a step */
static bool        had_lease;

unsigned sim_below(uint64_t n)
{
    return (unsigned)(kvcl_rand_next(&sim.rnd) % n);
}

void sim_broken(const char *invariant, const proc_t *p, const char *what)
{
    if (!sim.failed) {
        printf("seed %" PRIu64 " step %" PRIu64 ": %s: rank %u of incarnation %" PRIu64 ", view %" PRIu64 ": %s\n",
               sim.seed, sim.now / MS, invariant, p->slot, p->incarnation, p->views.view.number, what);
    }
    sim.failed = true;
}

uint64_t sim_clock(const proc_t *p)
{
    return p->offset + (sim.now / 1000 * p->rate);
}

bool sim_lives(const proc_t *p)
{
    return p->used && !p->dead;
}

bool sim_is_member(const proc_t *p)
{
    return sim_lives(p) && (p->views.state == KVCL_VIEWS_MEMBER);
}

/* ---- invariants ---- */

/* Highest random weight, as in dir/shard.c. */
static uint32_t homes_of(const kvcl_view_t *view, uint32_t of)
{
    uint64_t best, state, weight;
    uint32_t shard, slot, home, set = 0;

    for (shard = 0; shard < SHARDS; ++shard) {
        best = 0;
        home = KVCL_SLOT_NONE;
        KVCL_RANKSET_EACH(&view->members, slot) {
            state  = (view->incarnation[slot] << 8) ^ shard;
            weight = kvcl_splitmix64(&state) | 1;
            home   = (weight > best) ? slot : home;
            best   = (weight > best) ? weight : best;
        }
        set |= (home == of) ? UINT32_C(1) << shard : 0;
    }
    return set;
}

static uint32_t owned(proc_t *p)
{
    static kvcl_view_t next;

    if (p->paused || !sim_is_member(p) || !kvcl_views_has_lease(&p->views, sim_clock(p))) {
        return 0;
    }
    if (p->homes_id != p->views.view.id) {
        p->homes_id = p->views.view.id;
        p->homes    = homes_of(&p->views.view, p->slot);
    }
    if (kvcl_views_pending(&p->views) == NULL) {
        return p->homes;
    }
    kvcl_view_apply(&p->views.view, kvcl_views_pending(&p->views), &next);
    return p->homes & homes_of(&next, p->slot);
}

static void check(proc_t *p)
{
    uint32_t mine;
    unsigned i;

    if (!sim_is_member(p)) {
        return;
    }
    mine     = owned(p);
    p->owned = mine;
    for (i = 0; i < sim.n_procs; ++i) {
        proc_t *q = &sim.procs[i];

        if ((q == p) || !sim_is_member(q)) {
            continue;
        }
        if ((q->views.view.number == p->views.view.number) && (q->views.view.id != p->views.view.id)) {
            sim_broken("OneView", p, "another living rank has another view of this number");
        }
        if (((q->owned & mine) != 0) && ((owned(q) & mine) != 0)) {
            sim_broken("OneOwner", p, "another rank owns the same shard");
        }
    }
}

static void check_new_view(const proc_t *p)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *q = &sim.procs[i];

        if (sim_is_member(q) && !q->paused && !kvcl_view_has(&p->views.view, q->slot, q->incarnation) &&
            (q->views.view.number < p->views.view.number) && kvcl_views_has_lease(&q->views, sim_clock(q))) {
            sim_broken("NoLeaseLeft", p, "a rank that its view excludes has a lease");
        }
    }
}

/* The members of the latest view that live and have not been excluded from it. */
static proc_t *latest_view(kvcl_rankset_t *there)
{
    proc_t  *latest = NULL, *p;
    unsigned i;

    memset(there, 0, sizeof(*there));
    for (i = 0; i < sim.n_procs; ++i) {
        p = &sim.procs[i];
        if (sim_is_member(p) && ((latest == NULL) || (p->views.view.number > latest->views.view.number))) {
            latest = p;
        }
    }
    for (i = 0; (latest != NULL) && (i < sim.n_procs); ++i) {
        p = &sim.procs[i];
        if (sim_is_member(p) && kvcl_view_has(&latest->views.view, p->slot, p->incarnation)) {
            kvcl_rankset_add(there, p->slot);
        }
    }
    return latest;
}

void sim_check_together(void)
{
    kvcl_rankset_t there;
    proc_t        *latest = latest_view(&there), *p;
    unsigned       i;

    if ((latest == NULL) || !kvcl_view_is_quorum(&latest->views.view.members, &there)) {
        return;
    }
    if (!kvcl_rankset_equal(&there, &latest->views.view.members)) {
        sim_broken("Together", latest, "a member of its view is dead");
    }
    for (i = 0; i < sim.n_procs; ++i) {
        p = &sim.procs[i];
        if (sim_is_member(p) && kvcl_view_has(&latest->views.view, p->slot, p->incarnation) &&
            (p->views.view.id != latest->views.view.id)) {
            sim_broken("Together", p, "not the latest view");
        }
        if (sim_is_member(p) && (p->views.view.id != latest->views.view.id) && kvcl_views_has_quorum(&p->views)) {
            sim_broken("Together", p, "an excluded rank counts a quorum"); /* nobody who knows may live to tell it */
        }
        if (sim_lives(p) && (p->views.state == KVCL_VIEWS_JOINING)) {
            sim_broken("Together", p, "still waits to join");
        }
    }
}

/* ---- the machine's hands ---- */

static letter_t *post(unsigned to, uint64_t at)
{
    const unsigned i = sim_queue_new(&queue);

    letters[i].to    = to;
    letters[i].held  = (at == HELD);
    letters[i].proof = 0;
    if (at != HELD) {
        sim_queue_add(&queue, i, at);
    }
    return &letters[i];
}

uint64_t sim_travel(void)
{
    return 50000 + ((sim_below(100) < 90) ? sim_below(2 * MS)
                                          : sim_below(sim.healed ? 5 * MS : (sim.delay * MS) + 1));
}

static void on_send(void *arg, uint32_t to, const kvcl_view_msg_t *msg)
{
    proc_t   *p = arg;
    unsigned  i, copies;
    letter_t *l;

    for (i = 0; i < sim.n_procs; ++i) {
        if ((sim.procs[i].slot != to) || !sim_lives(&sim.procs[i]) ||
            ((sim.hook != NULL) && !sim.hook(p, &sim.procs[i], msg)) || p->dead ||
            (sim.cut[p - sim.procs][i] == IS_CUT) || (!sim.healed && (sim_below(1000) < sim.loss))) {
            continue;
        }
        for (copies = (sim_below(50) == 0) ? 2 : 1; copies > 0; --copies) {
            l      = post(i, (sim.cut[p - sim.procs][i] == IS_HELD) ? HELD : sim.now + sim_travel());
            l->msg = *msg;
            if (msg->view != NULL) {
                views_sent[l - letters] = *msg->view;
                l->msg.view             = &views_sent[l - letters];
            }
        }
    }
}

/* p has adopted a view, in which these ranks have joined. */
static void check_failures(proc_t *p, const kvcl_rankset_t *joined)
{
    kvcl_rankset_t gone = p->members, stay = p->failed;

    kvcl_rankset_drop(&stay, joined);
    kvcl_rankset_keep(&stay, &p->views.view.members);
    kvcl_rankset_drop(&stay, &p->views.detect.proven);
    if (!kvcl_rankset_is_empty(&stay)) {
        sim_broken("FailedFirst", p, "a member that stays was reported");
    }
    kvcl_rankset_drop(&gone, &p->views.view.members);
    kvcl_rankset_drop(&gone, &p->failed);
    kvcl_rankset_drop(&gone, &sim.asked);
    if (!kvcl_rankset_is_empty(&gone)) {
        sim_broken("FailedFirst", p, "a member has left the view, and was not reported");
    }
    p->members = p->views.view.members;
    kvcl_rankset_drop(&p->failed, joined);
    kvcl_rankset_keep(&p->failed, &p->members);
}

static void on_event(void *arg, kvcl_views_event_t event, const kvcl_rankset_t *ranks)
{
    proc_t         *p    = arg;
    kvcl_rankset_t twice = *ranks;
    unsigned       i;

    if (event == KVCL_VIEWS_FAILED) {
        kvcl_rankset_keep(&twice, &p->failed);
        if (!kvcl_rankset_is_empty(&twice)) {
            sim_broken("FailedFirst", p, "a failure is reported twice");
        }
        kvcl_rankset_join(&p->failed, ranks);
    } else if ((event == KVCL_VIEWS_VIEW) && !p->dead) {
        if ((p->joins_at == 0) && (p->views.view.number != seen_view + 1) && had_lease) {
            sim_broken("NextView", p, "a number is left out");
        }
        p->joins_at = 0;
        check_failures(p, ranks);
        for (i = 0; i < sim.n_procs; ++i) {
            if (p->proven[i]) {
                sim_prove((unsigned)(p - sim.procs), i, 1);
            }
        }
        sim.adopted += 1;
        check_new_view(p);
    }
    if (sim.more.event != NULL) {
        sim.more.event(p, event, ranks);
    }
}

static void after(proc_t *p)
{
    check(p);
    if (sim.more.after != NULL) {
        sim.more.after(p);
    }
}

static const kvcl_views_ops_t ops = {on_send, on_event};

/* ---- what happens to processes ---- */

void sim_prove(unsigned to, unsigned dead, uint64_t after_ms)
{
    letter_t *l = post(to, sim.now + (after_ms * MS));

    sim.procs[to].proven[dead] = true;
    l->proof                   = sim.procs[dead].incarnation;
    l->msg.from                = sim.procs[dead].slot;
}

static uint64_t next_tick(uint64_t after_ns)
{
    return sim.in_step ? (sim.now / (TICK_MS * MS) + 1) * TICK_MS * MS : sim.now + after_ns;
}

static void start(uint32_t slot, const kvcl_view_t *view, uint64_t incarnation)
{
    proc_t  *p = &sim.procs[sim.n_procs++];
    unsigned i;

    memset(p, 0, sizeof(*p));
    for (i = 0; i < sim.n_procs; ++i) { /* whoever is dead was so before it came */
        p->proven[i] = sim.procs[i].dead && (sim_below(2) == 0);
    }
    p->used        = true;
    p->owned       = UINT32_MAX;
    p->slot        = slot;
    p->incarnation = incarnation;
    p->offset      = (1 + sim_below(1000)) * 1000 * MS;
    p->rate        = 1000 - sim.drift + sim_below((2 * sim.drift) + 1);
    p->tick_at     = next_tick(sim_below(TICK_MS * MS));
    p->joins_at    = (view == NULL) ? sim.now + 1 : 0;
    if (view != NULL) {
        p->members = view->members;
    }
    kvcl_views_init(&p->views, slot, incarnation, view, &sim.times, &ops, p, sim_clock(p));
}

void sim_join(uint32_t slot)
{
    if ((sim.n_procs < sim.most_procs) && (slot != KVCL_SLOT_NONE)) {
        start(slot, NULL, ++sim.incarnations);
    }
}

uint32_t sim_free_slot(void)
{
    uint32_t slot;
    unsigned i;

    for (slot = 0; slot < sim.n_slots; ++slot) {
        for (i = 0; (i < sim.n_procs) && !(sim_lives(&sim.procs[i]) && (sim.procs[i].slot == slot)); ++i) {
        }
        if (i == sim.n_procs) {
            return slot;
        }
    }
    return KVCL_SLOT_NONE;
}

void sim_pause(proc_t *p, uint64_t ms)
{
    p->paused    = true;
    p->resume_at = sim.now + (ms * MS);
}

void sim_leave(proc_t *p, uint32_t slot)
{
    kvcl_rankset_add(&sim.asked, slot);
    kvcl_views_leave(&p->views, slot, sim_clock(p));
}

void sim_warm(proc_t *p, bool warm)
{
    kvcl_views_warm(&p->views, warm, sim_clock(p));
}

void sim_release(void)
{
    unsigned i;

    for (i = 0; i < queue.end; ++i) {
        if (sim_queue_is_used(&queue, i) && letters[i].held) {
            letters[i].held = false;
            sim_queue_add(&queue, i, sim.now + sim_travel());
        }
    }
}

void sim_heal(void)
{
    unsigned i;

    sim_release();

    sim.healed = true;
    memset(sim.cut, 0, sizeof(sim.cut));
    for (i = 0; i < sim.n_procs; ++i) {
        sim.procs[i].resume_at = 0;
    }
}

/* ---- a run ---- */

static void remember(const proc_t *p)
{
    seen_view = p->views.view.number;
    had_lease = kvcl_views_has_lease(&p->views, sim_clock(p));
}

/* A process that joins asks a member whom it knows, again and again. */
static void ask_to_join(proc_t *p)
{
    proc_t *q;

    if ((p->joins_at != 0) && (sim.now >= p->joins_at)) {
        q           = &sim.procs[p->asks++ % sim.n_procs];
        p->joins_at = sim.now + 200 * MS;
        if (sim_is_member(q) && !q->paused) {
            remember(q);
            kvcl_views_join(&q->views, p->slot, p->incarnation, sim_clock(q));
            after(q);
        }
    }
}

static void deliver(void)
{
    const unsigned i = sim_queue_take(&queue);
    letter_t       *l = &letters[i];
    proc_t         *p = &sim.procs[l->to];

    if (p->paused) {
        sim_queue_add(&queue, i, ((p->resume_at > sim.now) ? p->resume_at : sim.now) + (TICK_MS * MS));
        return;
    }
    if (!p->dead) {
        remember(p);
        if (l->proof != 0) {
            kvcl_views_proven(&p->views, l->msg.from, l->proof, false, sim_clock(p));
        } else {
            kvcl_views_take(&p->views, &l->msg, sim_clock(p));
        }
        after(p);
    }
    sim_queue_free(&queue, i); /* not sooner: what is sent meanwhile would overwrite it */
}

static void tick(proc_t *p)
{
    if (p->paused && (sim.now >= p->resume_at)) {
        p->paused = false;
        check(p); /* before it has looked at anything */
    }
    p->tick_at = next_tick(((sim.rests && !kvcl_views_is_busy(&p->views)) ? REST_MS : TICK_MS) * MS);
    if (sim_lives(p) && !p->paused) {
        ask_to_join(p);
        remember(p);
        if (sim.in_step) {
            kvcl_views_beat_in_step(&p->views, sim_clock(p));
        }
        kvcl_views_tick(&p->views, sim_clock(p));
        after(p);
    }
}

void sim_step(uint64_t until_ns)
{
    uint64_t at     = until_ns;
    proc_t  *ticker = NULL;
    bool     letter;
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_lives(&sim.procs[i]) && (sim.procs[i].tick_at < at)) {
            at     = sim.procs[i].tick_at;
            ticker = &sim.procs[i];
        }
    }
    letter  = (sim_queue_at(&queue) < at);
    at      = letter ? sim_queue_at(&queue) : at;
    sim.now = (at > sim.now) ? at : sim.now;
    if (letter) {
        deliver();
    } else if (ticker != NULL) {
        tick(ticker);
    }
}

void sim_begin(uint64_t seed, unsigned n, unsigned drift, const kvcl_views_times_t *times)
{
    static kvcl_view_t view;
    uint64_t           incarnations[SLOTS] = {0};
    unsigned           i;

    memset(&sim, 0, offsetof(world_t, procs));
    for (i = 0; i < PROCS; ++i) { /* the rest when they start */
        sim.procs[i].used = false;
    }
    sim_queue_clear(&queue);
    sim.n_slots    = (n <= FEW_SLOTS) ? FEW_SLOTS : SLOTS;
    sim.most_procs = (n <= FEW_SLOTS) ? FEW_PROCS : PROCS;
    kvcl_rand_seed(&sim.rnd, seed);
    sim.seed    = seed;
    sim.in_step = (seed / 4) % 4 == 1; /* stories, and others */
    sim.drift   = drift;
    sim.times   = *times;
    sim.delay   = 10;
    for (i = 0; i < n; ++i) {
        incarnations[i] = ++sim.incarnations;
    }
    kvcl_view_first(&view, incarnations, n);
    for (i = 0; i < n; ++i) {
        start(i, &view, incarnations[i]);
    }
}
