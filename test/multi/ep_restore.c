/*
 * kvcl_ep_restore, kvcl_ep_settle and kvcl_ep_activate over real ranks: experts move to other loads; a rank dies before
 * or while the others fetch from it; copies have wrong bytes; there is a store or none. Every byte of every slot is
 * checked. The ranks are forked here, since mpirun would end them all.
 *   ep_restore [CASE]   prints "ok NAME" for each case; exit 1 if one failed
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 4, LAYERS = 2, EXPERTS = 7, SLOTS = 12, PER = SLOTS / RANKS, BYTES = 40000, SPARE = LAYERS * PER };
enum { VICTIM = RANKS - 1 };

typedef enum { MOVES, DIES, DIES_UNKNOWN, WRONG_BYTES, NO_STORE } what_t;

typedef struct plan {
    const char *name;
    what_t     what;
    bool       store;
} plan_t;

typedef struct job {
    const plan_t *plan;
    _Atomic int  *arrived; /* at each of a few points, of all processes */
} job_t;

typedef struct me {
    kvcl_context_h    ctx;
    kvcl_comm_h       world;
    kvcl_cache_h      cache;
    kvcl_store_h      store;
    const job_t       *job;
    int               rank;
    unsigned          failed;
    kvcl_ep_params_t  params;
    kvcl_ep_weights_t weights;
    uint8_t           active[RANKS];
    uint64_t          sums[LAYERS * EXPERTS];
    kvcl_key_t        keys[LAYERS * EXPERTS];
    int32_t           old[LAYERS * SLOTS], now[LAYERS * SLOTS];
} me_t;

#define CHECK(_me, _cond, ...)                                                        \
    do {                                                                              \
        if (!(_cond)) {                                                               \
            fprintf(stderr, "rank %d: line %d: %s: ", (_me)->rank, __LINE__, #_cond); \
            fprintf(stderr, __VA_ARGS__);                                             \
            fprintf(stderr, " [%s]\n", kvcl_last_error());                            \
            ++(_me)->failed;                                                          \
        }                                                                             \
    } while (0)

static void fill(unsigned char *to, unsigned layer, int32_t expert)
{
    unsigned i;

    for (i = 0; i < BYTES; ++i) {
        to[i] = (unsigned char)((i * 7u) + (layer * 31u) + ((unsigned)expert * 101u) + (i >> 8));
    }
}

static uint32_t block_of(unsigned layer, unsigned slot)
{
    return (layer * PER) + (slot % PER);
}

/* Wait until that many ranks are here: shared memory, since collectives would need all ranks. */
static void meet(const me_t *me, int point, int ranks)
{
    atomic_fetch_add(&me->job->arrived[point], 1);
    while (atomic_load(&me->job->arrived[point]) < ranks) {
        usleep(500);
    }
}

static void check_slot(me_t *me, unsigned layer, unsigned slot, int32_t expert)
{
    static unsigned char got[BYTES], want[BYTES];

    fill(want, layer, expert);
    CHECK(me, kvcl_cache_read_block(me->cache, block_of(layer, slot), got, BYTES) == KVCL_OK, "read");
    CHECK(me, memcmp(got, want, BYTES) == 0, "layer %u, slot %u: not the bytes of expert %d", layer, slot,
          (int)expert);
}

static void check_slots(me_t *me, const int32_t *placement)
{
    unsigned layer, slot;

    for (layer = 0; layer < LAYERS; ++layer) {
        for (slot = (unsigned)me->rank * PER; slot < ((unsigned)me->rank + 1) * PER; ++slot) {
            if (placement[(layer * SLOTS) + slot] >= 0) {
                check_slot(me, layer, slot, placement[(layer * SLOTS) + slot]);
            }
        }
    }
}

/* The weights of the old placement, their sums, and copies in a store. */
static void load(me_t *me)
{
    static unsigned char bytes[BYTES];
    kvcl_layout_t        layout = KVCL_LAYOUT_BYTES(SPARE + (LAYERS * PER), BYTES);
    kvcl_store_params_t  p      = KVCL_STORE_PARAMS_INIT;
    kvcl_req_h           req;
    uint64_t             loads[LAYERS * EXPERTS];
    unsigned             layer, e, s, slot;
    char                 text[32];
    uint32_t             spare = LAYERS * PER, id;

    for (e = 0; e < LAYERS * EXPERTS; ++e) {
        loads[e] = 10 + ((e * 37u) % 50);
    }
    KVCL_TRY(kvcl_ep_place(&me->params, loads, me->old));
    KVCL_TRY(kvcl_cache_create(me->ctx, "experts", &layout, NULL, &me->cache));
    for (layer = 0; layer < LAYERS; ++layer) {
        for (s = 0; s < PER; ++s) {
            slot = ((unsigned)me->rank * PER) + s;
            fill(bytes, layer, me->old[(layer * SLOTS) + slot]);
            KVCL_TRY(kvcl_cache_write_block(me->cache, block_of(layer, slot), bytes, BYTES));
        }
        for (e = 0; e < EXPERTS; ++e) {
            fill(bytes, layer, (int32_t)e);
            KVCL_TRY(kvcl_cache_write_block(me->cache, spare, bytes, BYTES));
            KVCL_TRY(kvcl_ep_weights_sum(me->cache, spare, &me->sums[(layer * EXPERTS) + e]));
            snprintf(text, sizeof(text), "expert %u of layer %u", e, layer);
            kvcl_key_from_string(text, strlen(text), &me->keys[(layer * EXPERTS) + e]);
        }
    }
    if (me->job->plan->store) {
        p.dram_bytes  = 64 * BYTES;
        p.block_bytes = BYTES;
        p.replicas    = 2;
        KVCL_TRY(kvcl_store_open(me->world, &p, &me->store));
        for (e = (unsigned)me->rank; e < LAYERS * EXPERTS; e += RANKS) {
            fill(bytes, e / EXPERTS, (int32_t)(e % EXPERTS));
            KVCL_TRY(kvcl_cache_write_block(me->cache, spare, bytes, BYTES));
            id = spare;
            KVCL_TRY(kvcl_store_put(me->store, &me->keys[e], 1, me->cache, &id, NULL, &req));
            KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
        }
    }
    me->weights = (kvcl_ep_weights_t)KVCL_EP_WEIGHTS_INIT;
    me->weights.comm       = me->world;
    me->weights.cache      = me->cache;
    me->weights.sums       = me->sums;
    me->weights.store      = me->store;
    me->weights.keys       = (me->store != NULL) ? me->keys : NULL;
    me->weights.timeout_ns = UINT64_C(60000000000);
}

/* The new placement of the plan. */
static size_t plan_moves(me_t *me, kvcl_ep_move_t *moves, size_t *lost)
{
    uint64_t loads[LAYERS * EXPERTS];
    size_t   n = 0;
    unsigned e;

    for (e = 0; e < LAYERS * EXPERTS; ++e) {
        loads[e] = 10 + ((e * 53u) % 90);
    }
    *lost = 0;
    if ((me->job->plan->what == DIES) || (me->job->plan->what == NO_STORE)) {
        me->active[VICTIM] = 0;
        me->params.active  = me->active;
        KVCL_TRY(kvcl_ep_repair(&me->params, me->old, me->now, lost, NULL));
    } else {
        KVCL_TRY(kvcl_ep_place(&me->params, loads, me->now));
    }
    KVCL_TRY(kvcl_ep_moves(&me->params, me->old, me->now, moves, sizeof(*moves), LAYERS * SLOTS, &n, NULL));
    return n;
}

/* One copy of a hot expert is damaged on the rank that the plan would ask first. */
static void damage(me_t *me, const kvcl_ep_move_t *moves, size_t n)
{
    static unsigned char bytes[BYTES];
    size_t               i;

    for (i = 0; i < n; ++i) {
        if ((moves[i].source >= 0) && (moves[i].source / PER == me->rank) && (moves[i].kind >= KVCL_EP_FROM_HOST)) {
            fill(bytes, moves[i].layer, (int32_t)moves[i].expert);
            bytes[BYTES / 2] ^= 1;
            KVCL_TRY(kvcl_cache_write_block(me->cache, block_of(moves[i].layer, (unsigned)moves[i].source), bytes,
                                            BYTES));
        }
    }
}

static void check_missing(me_t *me, const kvcl_ep_move_t *moves, size_t n, const uint32_t *blocks, size_t missing,
                          kvcl_status_t status)
{
    size_t i, mine = 0, absent = 0;

    for (i = 0; i < n; ++i) {
        const bool is_mine = (moves[i].destination / PER == (uint32_t)me->rank);

        mine   += is_mine;
        absent += (blocks[i] == KVCL_EP_BLOCK_MISSING);
        CHECK(me, is_mine != (blocks[i] == KVCL_EP_BLOCK_OTHER), "move %zu: block %u", i, blocks[i]);
    }
    CHECK(me, (absent == missing) && ((status == KVCL_OK) == (missing == 0)), "%zu missing, %zu listed", missing,
          absent);
    if (me->job->plan->what == NO_STORE) { /* the lost experts have no source at all */
        CHECK(me, (missing == mine) && ((mine == 0) || (status == KVCL_ERR_NOT_FOUND)), "%zu of %zu missing", missing,
              mine);
        for (i = 0; i < n; ++i) {
            me->now[(moves[i].layer * SLOTS) + moves[i].destination] = KVCL_EP_NONE;
        }
    } else {
        CHECK(me, missing == 0, "%zu missing", missing);
    }
}

static void misuse(me_t *me, kvcl_ep_move_t *moves, size_t n)
{
    static uint32_t blocks[LAYERS * SLOTS];
    kvcl_ep_weights_t w = me->weights;
    kvcl_ep_move_t    bad = moves[0];

    bad.expert = EXPERTS;
    CHECK(me, kvcl_ep_restore(&me->params, &w, me->old, &bad, sizeof(bad), 1, blocks, NULL) == KVCL_ERR_OUT_OF_RANGE,
          "an expert that is none");
    w.sums = NULL;
    CHECK(me, kvcl_ep_restore(&me->params, &w, me->old, moves, sizeof(bad), n, blocks, NULL) == KVCL_ERR_INVALID_PARAM,
          "no sums");
    blocks[0] = 0; /* a slot's block */
    CHECK(me, kvcl_ep_settle(&me->params, &me->weights, moves, sizeof(bad), 1, blocks) == KVCL_ERR_OUT_OF_RANGE,
          "no spare block");
}

static void activate(me_t *me)
{
    kvcl_ep_open_params_t p = KVCL_EP_OPEN_PARAMS_INIT;
    const kvcl_ep_mask_t  *mask;
    kvcl_ep_params_t      holes;
    int64_t               chosen[EXPERTS], ids[EXPERTS];
    kvcl_ep_h             ep;
    uint32_t              e;

    p.slots      = SLOTS;
    p.max_tokens = 4;
    p.top_k      = 2;
    p.hidden     = 8;
    KVCL_TRY(kvcl_ep_open(me->world, &p, &ep));
    mask = kvcl_ep_mask(ep);
    CHECK(me, (mask->number == 0) && (mask->layers == 0), "a map at the beginning");
    for (e = 0; e < EXPERTS; ++e) {
        chosen[e] = e;
    }
    CHECK(me, kvcl_ep_choose(ep, 0, chosen, 1, EXPERTS, ids) == KVCL_ERR_OUT_OF_RANGE, "no map");
    CHECK(me, kvcl_ep_activate(ep, 5, &me->params, me->now) == KVCL_OK, "activate");
    CHECK(me, (mask->number == 5) && (mask->layers == LAYERS) && (mask->generation % 2 == 0) &&
          (memcmp(mask->placement, me->now, sizeof(me->now)) == 0), "the map in memory");
    CHECK(me, kvcl_ep_activate(ep, 5, &me->params, me->now) == KVCL_ERR_STALE, "the same number");
    CHECK(me, kvcl_ep_choose(ep, LAYERS - 1, chosen, 1, EXPERTS, ids) == KVCL_OK, "choose");
    for (e = 0; e < EXPERTS; ++e) {
        CHECK(me, me->now[((LAYERS - 1) * SLOTS) + ids[e]] == (int32_t)e, "expert %u in slot %d", e, (int)ids[e]);
    }
    me->now[0] = KVCL_EP_NONE; /* a hole: refused unless asked for; then the old map serves */
    for (e = 0; e < SLOTS; ++e) {
        me->now[e] = (me->now[e] == 3) ? KVCL_EP_NONE : me->now[e];
    }
    CHECK(me, kvcl_ep_activate(ep, 6, &me->params, me->now) == KVCL_ERR_INVALID_PARAM, "a hole");
    CHECK(me, (mask->number == 5) && (kvcl_ep_choose(ep, 0, chosen, 1, EXPERTS, ids) == KVCL_OK) && (ids[3] >= 0),
          "the old map");
    holes        = me->params;
    holes.flags |= KVCL_EP_HOLES;
    CHECK(me, kvcl_ep_activate(ep, 6, &holes, me->now) == KVCL_OK, "a hole that is allowed");
    CHECK(me, (kvcl_ep_choose(ep, 0, chosen, 1, EXPERTS, ids) == KVCL_OK) && (ids[3] == KVCL_EP_ID_LOST), "lost");
    meet(me, 3, RANKS);
    kvcl_ep_close(ep);
}

static int live(const void *arg, int rank)
{
    static uint32_t      blocks[LAYERS * SLOTS];
    const job_t          *job = arg;
    const what_t         what = job->plan->what;
    const bool           dies = (what == DIES) || (what == DIES_UNKNOWN) || (what == NO_STORE);
    kvcl_ep_move_t       moves[LAYERS * SLOTS];
    me_t                 me = {.job = job, .rank = rank, .params = KVCL_EP_PARAMS_INIT};
    kvcl_status_t        status;
    size_t               n, lost, missing = 99, i;

    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    memset(me.active, 1, sizeof(me.active));
    me.params.layers  = LAYERS;
    me.params.experts = EXPERTS;
    me.params.slots   = SLOTS;
    me.params.ranks   = RANKS;
    load(&me);
    check_slots(&me, me.old);
    n = plan_moves(&me, moves, &lost);
    meet(&me, 0, RANKS);
    if (dies && (rank == VICTIM)) {
        raise(SIGKILL);
    }
    if (what == WRONG_BYTES) {
        damage(&me, moves, n);
        meet(&me, 1, RANKS);
    }
    misuse(&me, moves, n);
    status = kvcl_ep_restore(&me.params, &me.weights, me.old, moves, sizeof(moves[0]), n, blocks, &missing);
    check_missing(&me, moves, n, blocks, missing, status);
    if (what != WRONG_BYTES) {
        check_slots(&me, me.old); /* the old map serves */
    }
    meet(&me, 2, RANKS - dies);
    CHECK(&me, kvcl_ep_settle(&me.params, &me.weights, moves, sizeof(moves[0]), n, blocks) == KVCL_OK, "settle");
    for (i = 0; i < n; ++i) {
        if (blocks[i] < KVCL_EP_BLOCK_MISSING) {
            check_slot(&me, moves[i].layer, moves[i].destination, (int32_t)moves[i].expert);
        }
    }
    if (what != WRONG_BYTES) { /* slots that were damaged and did not move stay so */
        check_slots(&me, me.now);
    }
    if (what == MOVES) {
        activate(&me);
    }
    meet(&me, 4, RANKS - dies);
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return (me.failed == 0) ? 0 : 1;
}

static bool run(const plan_t *plan)
{
    job_t job   = {.plan = plan};
    bool  right = true;
    pid_t pids[RANKS], pid;
    int   i, status;

    job.arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    start_ranks(RANKS, live, &job, pids);
    for (i = 0; i < RANKS; ++i) {
        pid = waitpid(-1, &status, 0);
        if ((!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) &&
            !((pid == pids[VICTIM]) && WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL))) {
            fprintf(stderr, "%s: process %d ended with wait status 0x%x\n", plan->name, (int)pid, status);
            right = false;
        }
    }
    munmap(job.arrived, 4096);
    printf("%s %s\n", right ? "ok" : "WRONG", plan->name);
    return right;
}

int main(int argc, char **argv)
{
    static const plan_t plans[] = {
        {"experts move to other loads, and are activated", MOVES, false},
        {"a rank has died: its experts come from the store", DIES, true},
        {"a rank dies while others fetch from it", DIES_UNKNOWN, true},
        {"copies have wrong bytes: the next one, then the store", WRONG_BYTES, true},
        {"no store: what is lost is listed", NO_STORE, false},
    };
    size_t i;
    int    bad = 0;

    for (i = 0; i < sizeof(plans) / sizeof(plans[0]); ++i) {
        if ((argc < 2) || (strstr(plans[i].name, argv[1]) != NULL)) {
            bad += run(&plans[i]) ? 0 : 1;
        }
    }
    return (bad == 0) ? 0 : 1;
}
