/*
 * Ranks that leave a job with stores (kvcl_leave), while others fail, close or have no room. Ranks are forked here, and
 * write what they saw into memory that all share.
 *   leave_stores [CASE]   prints "ok NAME" for each case; exit 1 if one failed
 *
 * all      all ranks of a store leave at once: nobody is left to have their shards, and none waits for that
 * struck   two ranks leave, and the one that stays is killed meanwhile
 * closed   one of three stores is closed while the rank hands it over and drains it, and another rank is silent: both
 *          end, so that the close does not give up, the drain fails, and the other two are handed over all the same
 * early    before the ranks have met: an error, and the rank stays
 * full     the others have no room: an error with numbers, also if time runs out as they are counted; the rank stays,
 *          has shards again, takes blocks of others, and may try again
 * removed  a rank that others have removed is told so at once, not when its time is over
 * forged   a rank sends what ranks that come and leave send, changed and repeated: once it has said what is true,
 *          shards settle and all blocks are found
 */
#include "grow_keys.h"
#include "start_ranks.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/grow/rounds.h"
#include "store/home/follow_views.h"
#include "store/store_wire.h"

#include <kvcl/kvcl.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { RANKS = 3, KEYS = 40, STORES = 3, MANY = 4096, TRIES = 2000, FORGED_N = 3000, WAIT_S = 60 };
#define WAIT_NS (WAIT_S * UINT64_C(1000000000))

typedef enum { ALL, STRUCK, CLOSED, EARLY, FULL, REMOVED, FORGED } what_t;

typedef struct shared {
    what_t      what;
    _Atomic int met, begun, stopped, go, left, wrong, finished;
} shared_t;

typedef struct rank {
    int            rank;
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   stores[STORES];
    kvcl_cache_h   cache;
    kvcl_status_t  status; /* of kvcl_leave() */
    char           sentence[256];
} rank_t;

static shared_t *shared;
static pid_t    pids[RANKS];

#define IS(_call, _result)                                                                                             \
    do {                                                                                                               \
        kvcl_status_t is_ = (_call);                                                                                   \
        if (is_ != (_result)) {                                                                                        \
            fprintf(stderr, "rank %d: %s: %s: %s\n", r->rank, #_call, kvcl_status_name(is_), kvcl_last_error());       \
            atomic_store(&shared->wrong, 1);                                                                           \
        }                                                                                                              \
    } while (0)

static void wait_value(_Atomic int *word, int value)
{
    while (atomic_load(word) < value) { /* the alarm of each process bounds it */
        usleep(500);
    }
}

static void meet(_Atomic int *word, int n)
{
    atomic_fetch_add(word, 1);
    wait_value(word, n);
}

/* ---- a rank ---- */

static void open_store(rank_t *r, uint64_t blocks, kvcl_store_h *store_p)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    params.dir_entries = 1 << 14;
    params.block_bytes = BLOCK;
    params.dram_bytes  = blocks * BLOCK;
    params.replicas    = 1;
    IS(kvcl_store_open(r->world, &params, store_p), KVCL_OK);
}

static void put(rank_t *r, int of)
{
    static uint64_t words[WORDS];
    unsigned        i;

    for (i = 0; i < KEYS; ++i) {
        kvcl_key_t key = key_of(of, i);
        uint32_t   id  = 0;
        kvcl_req_h req;

        expected(&key, words);
        IS(kvcl_cache_write_block(r->cache, id, words, sizeof(words)), KVCL_OK);
        IS(wait_for(kvcl_store_put(r->stores[of], &key, 1, r->cache, &id, NULL, &req), &req), KVCL_OK);
    }
}

static void get(rank_t *r, int of)
{
    static uint64_t want[WORDS], got[WORDS];
    unsigned        i;

    for (i = 0; i < KEYS; ++i) {
        kvcl_key_t key = key_of(of, i);
        uint32_t   id  = 1;
        kvcl_req_h req;

        IS(wait_for(kvcl_store_get(r->stores[of], &key, 1, r->cache, &id, NULL, NULL, &req), &req), KVCL_OK);
        IS(kvcl_cache_read_block(r->cache, id, got, sizeof(got)), KVCL_OK);
        expected(&key, want);
        if (memcmp(want, got, sizeof(want)) != 0) {
            fprintf(stderr, "rank %d: other bytes\n", r->rank);
            atomic_store(&shared->wrong, 1);
        }
    }
}

static void *leave(void *arg)
{
    rank_t *r = arg;

    r->status = kvcl_leave(r->ctx, WAIT_NS);
    snprintf(r->sentence, sizeof(r->sentence), "%s", (r->status == KVCL_OK) ? "" : kvcl_last_error());
    return NULL;
}

static void leaves(rank_t *r, kvcl_status_t status, const char *word)
{
    (void)leave(r);
    if ((r->status != status) || (strstr(r->sentence, word) == NULL)) {
        fprintf(stderr, "rank %d: kvcl_leave: %s: %s\n", r->rank, kvcl_status_name(r->status), r->sentence);
        atomic_store(&shared->wrong, 1);
    }
    atomic_fetch_add(&shared->left, 1);
}

static void live_all(rank_t *r, int leavers)
{
    int i;

    for (i = 0; i < STORES; ++i) {
        open_store(r, 8 * KEYS, &r->stores[i]);
    }
    put(r, 0);
    meet(&shared->begun, RANKS);
    if (r->rank < leavers) {
        while (atomic_load(&shared->go) == 0) { /* all at the same moment */
        }
        leaves(r, KVCL_OK, "");
        wait_value(&shared->left, leavers);
    } else {
        pause(); /* it is killed */
    }
}

static uint64_t operations(rank_t *r)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    IS(kvcl_context_stats(r->ctx, &stats), KVCL_OK);
    return stats.ops;
}

/* Until this rank drains the store. */
static void wait_drained(rank_t *r, kvcl_store_h store)
{
    const uint64_t     begun_ns = kvcl_now_ns();
    kvcl_store_stats_t stats    = KVCL_STORE_STATS_INIT;

    do {
        usleep(500);
        IS(kvcl_store_rank_stats(store, r->rank, &stats, NULL), KVCL_OK);
    } while (!stats.draining && (kvcl_now_ns() - begun_ns < WAIT_NS));
}

/* It asks the silent rank for its room when the store is closed: no block has moved. */
static void *drain_closed(void *arg)
{
    rank_t   *r    = arg;
    uint64_t moved = 1;

    IS(kvcl_store_drain(r->stores[0], &moved, NULL), KVCL_ERR_SHUTDOWN);
    IS((moved == 0) ? KVCL_OK : KVCL_ERR_INTERNAL, KVCL_OK);
    return NULL;
}

/* The thread that leaves has asked the two others to take the shards of the first store. A close ends the operations
 * of other threads; where some do not end, it fails with a sentence. */
static void close_asked(rank_t *r, uint64_t before)
{
    const uint64_t begun_ns = kvcl_now_ns();
    pthread_t      thread;

    while ((operations(r) < before + RANKS - 1) && (kvcl_now_ns() - begun_ns < WAIT_NS)) {
        usleep(500);
    }
    pthread_create(&thread, NULL, drain_closed, r);
    wait_drained(r, r->stores[0]);
    kvcl_store_close(r->stores[0]);
    if (strstr(kvcl_last_error(), "kvcl_store_close") != NULL) {
        fprintf(stderr, "rank 1: a close leaves operations in flight: %s\n", kvcl_last_error());
        atomic_store(&shared->wrong, 1);
    }
    pthread_join(thread, NULL);
    r->stores[0] = NULL;
}

/* Rank 1 leaves. Rank 2 is stopped, so that the first store's shards do not move, until rank 1 has closed that one. */
static void live_closed(rank_t *r)
{
    pthread_t thread;
    uint64_t  before;
    int       i;

    for (i = 0; i < STORES; ++i) {
        open_store(r, 8 * KEYS, &r->stores[i]);
        if (r->rank == 1) {
            put(r, i);
        }
    }
    IS(kvcl_phase(r->ctx, KVCL_PHASE_WARM_UP), KVCL_OK);
    meet(&shared->begun, RANKS);
    if (r->rank == 1) {
        wait_value(&shared->stopped, 1);
        before = operations(r);
        pthread_create(&thread, NULL, leave, r);
        close_asked(r, before);
        atomic_store(&shared->go, 1);
        pthread_join(thread, NULL);
        IS(r->status, KVCL_OK);
        atomic_store(&shared->left, 1);
    } else {
        wait_value(&shared->left, 1);
        get(r, 1);
        get(r, 2);
    }
    meet(&shared->met, RANKS);
}

/* Rank 2 takes no part in views, so the others wait for it. */
static void live_early(rank_t *r)
{
    kvcl_event_t event = KVCL_EVENT_INIT;

    if (r->rank != 2) {
        r->status = kvcl_leave(r->ctx, 1000000);
        if ((r->status != KVCL_ERR_TIMED_OUT) || (strstr(kvcl_last_error(), "have not met") == NULL)) {
            fprintf(stderr, "rank %d: kvcl_leave: %s: %s\n", r->rank, kvcl_status_name(r->status), kvcl_last_error());
            atomic_store(&shared->wrong, 1);
        }
        IS(kvcl_event_next(r->ctx, &event), KVCL_INPROGRESS); /* it stays */
    }
    meet(&shared->met, RANKS);
}

static void put_many(rank_t *r)
{
    static kvcl_key_t keys[MANY];
    static uint32_t   ids[MANY];
    kvcl_req_h        req;
    unsigned          i;

    for (i = 0; i < MANY; ++i) {
        keys[i] = key_of(STORES, i);
    }
    IS(wait_for(kvcl_store_put(r->stores[0], keys, MANY, r->cache, ids, NULL, &req), &req), KVCL_OK);
}

/* Some time is enough to find blocks without room, and too short to count them all: the number is then smaller. */
static void drain_part(rank_t *r)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           ns     = kvcl_now_ns();
    const char         *words;
    kvcl_status_t      status = kvcl_store_drain(r->stores[0], NULL, NULL);
    unsigned           left   = KEYS + MANY, all = KEYS + MANY - 8, i;
    kvcl_rand_t        rnd;

    IS(status, KVCL_ERR_NO_SPACE);
    ns = kvcl_now_ns() - ns;
    kvcl_rand_seed(&rnd, ns);
    for (i = 0; (i < TRIES) && (left >= all); ++i) {
        params.timeout_ns = 1 + (kvcl_rand_next(&rnd) % (2 * ns));
        status            = kvcl_store_drain(r->stores[0], NULL, &params);
        words             = strstr(kvcl_last_error(), "at least ");
        if (((status != KVCL_ERR_NO_SPACE) || (words == NULL) || (sscanf(words, "at least %u blocks", &left) != 1)) &&
            (status != KVCL_ERR_TIMED_OUT)) {
            break;
        }
    }
    if ((left == 0) || (left >= all)) {
        fprintf(stderr, "rank 1: no drain of %u has counted a part of %u blocks: %s\n", i, all, kvcl_last_error());
        atomic_store(&shared->wrong, 1);
    }
}

/* Rank 1 has not left: it is a home again, and its pool takes blocks. */
static void is_member(rank_t *r)
{
    const uint64_t     begun_ns = kvcl_now_ns();
    kvcl_store_stats_t stats    = KVCL_STORE_STATS_INIT;

    do {
        IS(kvcl_store_stats(r->stores[0], &stats), KVCL_OK);
    } while ((stats.entries == 0) && (kvcl_now_ns() - begun_ns < WAIT_NS) && (usleep(1000) == 0));
    if ((stats.entries == 0) || (stats.draining != 0)) {
        fprintf(stderr, "rank 1 has not left, has %llu entries, draining: %llu\n", (unsigned long long)stats.entries,
                (unsigned long long)stats.draining);
        atomic_store(&shared->wrong, 1);
    }
}

/* Rank 0 puts a block, and has rank 1 make a copy. */
static void copy_to_member(rank_t *r)
{
    kvcl_key_t key = key_of(STORES + 1, 0);
    uint32_t   id  = 0;
    kvcl_req_h req;

    IS(wait_for(kvcl_store_put(r->stores[0], &key, 1, r->cache, &id, NULL, &req), &req), KVCL_OK);
    IS(kvcl_store_copy(r->stores[0], &key, 1, 1, 0, NULL, NULL), KVCL_OK);
    atomic_store(&shared->go, 1);
}

static void live_full(rank_t *r)
{
    char moved[64];

    open_store(r, (r->rank == 1) ? 8 * KEYS + MANY : 4, &r->stores[0]);
    if (r->rank == 1) {
        put(r, 0);
        put_many(r);
        leaves(r, KVCL_ERR_NO_SPACE, " blocks have moved, ");
        snprintf(moved, sizeof(moved), "%d blocks (%d bytes) have not", KEYS + MANY - 8, (KEYS + MANY - 8) * BLOCK);
        if (strstr(r->sentence, moved) == NULL) {
            fprintf(stderr, "rank 1: no \"%s\" in: %s\n", moved, r->sentence);
            atomic_store(&shared->wrong, 1);
        }
        is_member(r);
        leaves(r, KVCL_ERR_NO_SPACE, " blocks have moved, ");
        is_member(r);
    }
    wait_value(&shared->left, 2);
    get(r, 0);
    meet(&shared->begun, RANKS);
    if (r->rank == 0) {
        copy_to_member(r);
    } else if (r->rank == 1) {
        wait_value(&shared->go, 1);
        drain_part(r);
    }
    meet(&shared->met, RANKS);
}

/* Rank 0 removes rank 1, which has a store, and leaves when it knows. */
static void live_removed(rank_t *r)
{
    const int    one   = 1;
    kvcl_event_t event = KVCL_EVENT_INIT;
    uint64_t     begun_ns;

    open_store(r, 8 * KEYS, &r->stores[0]);
    meet(&shared->begun, RANKS);
    if (r->rank == 0) {
        IS(kvcl_comm_deactivate(r->world, &one, 1, WAIT_NS, NULL), KVCL_OK);
    } else if (r->rank == 1) {
        while ((kvcl_event_next(r->ctx, &event) != KVCL_OK) || (event.type != KVCL_EVENT_EXCLUDED)) {
            usleep(500);
        }
        begun_ns = kvcl_now_ns();
        leaves(r, KVCL_ERR_STALE, "excluded");
        if (kvcl_now_ns() - begun_ns > WAIT_NS / 2) {
            fprintf(stderr, "rank 1 is told late that it was excluded\n");
            atomic_store(&shared->wrong, 1);
        }
    }
    wait_value(&shared->left, 1);
}

/* ASK, TAKE or MOVED: true, with some bytes changed, or with another rank, number or length. */
static void post_forged(rank_t *r, kvcl_rand_t *rnd)
{
    static const uint8_t   kinds[]     = {KVCL_RPC_ASK, KVCL_RPC_TAKE, KVCL_RPC_TAKE, KVCL_RPC_MOVED};
    kvcl_store_h           store       = r->stores[0];
    const uint8_t          kind        = kinds[kvcl_rand_below(rnd, sizeof(kinds))];
    kvcl_msg_dir_request_t out         = {.msg = {.type = KVCL_MSG_DIR_REQUEST, .flags = kind}, .store = store->id};
    unsigned char          bytes[1024] = {0};
    kvcl_moved_t           moved;
    kvcl_part_t            part;
    size_t                 len;

    kvcl_lock(r->ctx);
    part       = kvcl_grow_part(store);
    part.flags = (uint32_t)kvcl_rand_below(rnd, 5);
    moved      = (kvcl_moved_t){.id = store->views->moves.id, .listed = (uint8_t)kvcl_rand_below(rnd, 2),
                                .asks = (uint8_t)kvcl_rand_below(rnd, 3)};
    moved.switched = (uint8_t)kvcl_rand_below(rnd, 2);
    len            = (kind == KVCL_RPC_ASK) ? 0 : (kind == KVCL_RPC_TAKE) ? sizeof(part) : sizeof(moved);
    memcpy(bytes, (kind == KVCL_RPC_TAKE) ? (void *)&part : (void *)&moved, len);
    if ((len != 0) && (kvcl_rand_below(rnd, 2) == 0)) {
        bytes[kvcl_rand_below(rnd, len)] ^= (unsigned char)(1u << kvcl_rand_below(rnd, 8));
    }
    out.store = (kind == KVCL_RPC_ASK) ? kvcl_grow_name(store) : out.store;
    out.n     = (kvcl_rand_below(rnd, 8) == 0) ? (uint32_t)kvcl_rand_below(rnd, 3) : (len != 0);
    out.rank  = (kvcl_rand_below(rnd, 4) == 0) ? (uint32_t)kvcl_rand_below(rnd, RANKS + 2) : (uint32_t)r->rank;
    len       = (kvcl_rand_below(rnd, 8) == 0) ? kvcl_rand_below(rnd, sizeof(bytes)) : len;
    (void)!kvcl_peer_post(store->ranks[kvcl_rand_below(rnd, 2)].peer, &out.msg, sizeof(out), bytes, len);
    kvcl_unlock(r->ctx);
}

/* What is true, to both others: until they have taken it. */
static void say_truth(rank_t *r)
{
    kvcl_rounds_t rounds;
    kvcl_part_t   part;
    unsigned      taken = 0;

    IS(kvcl_rounds_open(&rounds, r->stores[0], kvcl_deadline_after(WAIT_NS)), KVCL_OK);
    do {
        kvcl_lock(r->ctx);
        part = kvcl_grow_part(r->stores[0]);
        kvcl_unlock(r->ctx);
        part.flags = KVCL_PART_SURE;
        (void)kvcl_rounds_ask(&rounds, &part);
        taken = (rounds.ranks[0].status == KVCL_OK) + (rounds.ranks[1].status == KVCL_OK);
    } while ((taken != 2) && kvcl_rounds_pause(&rounds));
    if (taken != 2) {
        fprintf(stderr, "rank 2 is not taken: %s, %s\n", kvcl_status_name(rounds.ranks[0].status),
                kvcl_status_name(rounds.ranks[1].status));
        atomic_store(&shared->wrong, 1);
    }
    kvcl_rounds_close(&rounds);
}

static void live_forged(rank_t *r)
{
    const char  *seed = getenv("TEST_SEED");
    kvcl_rand_t rnd;
    int         i;

    open_store(r, 8 * KEYS, &r->stores[0]);
    if (r->rank == 1) {
        put(r, 0);
    }
    kvcl_log_set_level(KVCL_LOG_ERROR); /* what is refused is logged */
    meet(&shared->begun, RANKS);
    if (r->rank == 2) {
        kvcl_rand_seed(&rnd, (seed != NULL) ? strtoull(seed, NULL, 10) : kvcl_now_ns());
        for (i = 0; i < FORGED_N; ++i) {
            post_forged(r, &rnd);
        }
        say_truth(r);
    }
    meet(&shared->met, RANKS);
    if (!kvcl_rounds_wait_settled(r->stores[0], kvcl_deadline_after(WAIT_NS))) {
        fprintf(stderr, "rank %d: shards do not settle\n", r->rank);
        atomic_store(&shared->wrong, 1);
    }
    get(r, 0);
    meet(&shared->left, RANKS);
}

static int live(const void *arg, int rank)
{
    static rank_t one;
    rank_t        *r     = &one;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2, BLOCK);
    int           i;

    (void)arg;
    r->rank = rank;
    if ((shared->what == EARLY) && (rank == 2)) {
        setenv("KVCL_VIEWS", "no", 1);
    }
    KVCL_TRY(kvcl_init(NULL, &r->ctx));
    KVCL_TRY(kvcl_comm_world(r->ctx, &r->world));
    KVCL_TRY(kvcl_cache_create(r->ctx, "c", &layout, NULL, &r->cache));
    switch (shared->what) {
    case ALL:
        live_all(r, RANKS);
        break;
    case STRUCK:
        live_all(r, RANKS - 1);
        break;
    case CLOSED:
        live_closed(r);
        break;
    case EARLY:
        live_early(r);
        break;
    case REMOVED:
        live_removed(r);
        break;
    case FORGED:
        live_forged(r);
        break;
    default:
        live_full(r);
        break;
    }
    for (i = 0; i < STORES; ++i) {
        kvcl_store_close(r->stores[i]);
    }
    kvcl_cache_destroy(r->cache);
    kvcl_finalize(r->ctx);
    atomic_fetch_add(&shared->finished, 1);
    return 0;
}

/* ---- the parent ---- */

static bool wait_for_word(_Atomic int *word, int value)
{
    int i;

    for (i = 0; (i < WAIT_S * 1000) && (atomic_load(word) < value); ++i) {
        usleep(1000);
    }
    return atomic_load(word) >= value;
}

static bool run(what_t what, const char *name)
{
    const int end   = (what == STRUCK) ? RANKS - 1 : RANKS;
    bool      right = true;
    int       rank;

    memset(shared, 0, sizeof(*shared));
    shared->what = what;
    start_ranks(RANKS, live, NULL, pids);
    if ((what == ALL) || (what == STRUCK)) {
        right = wait_for_word(&shared->begun, RANKS);
        atomic_store(&shared->go, 1);
    }
    if (what == STRUCK) {
        kill(pids[RANKS - 1], SIGKILL);
        (void)waitpid(pids[RANKS - 1], NULL, 0);
    } else if (what == CLOSED) {
        right = wait_for_word(&shared->begun, RANKS);
        kill(pids[2], SIGSTOP);
        (void)waitpid(pids[2], NULL, WUNTRACED);
        atomic_store(&shared->stopped, 1);
        right = wait_for_word(&shared->go, 1) && right;
        kill(pids[2], SIGCONT);
    }
    for (rank = 0; rank < end; ++rank) {
        right = rank_ends_well(pids[rank]) && right;
    }
    right = right && (atomic_load(&shared->wrong) == 0) && (atomic_load(&shared->finished) == end);
    printf("%s %s\n", right ? "ok" : "WRONG", name);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {[ALL] = "all", [STRUCK] = "struck", [CLOSED] = "closed", [EARLY] = "early",
                                        [FULL] = "full", [REMOVED] = "removed", [FORGED] = "forged"};
    bool right = true;
    int  what;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    setenv("KVCL_VIEWS", "yes", 1);
    for (what = ALL; what <= FORGED; ++what) {
        if ((argc < 2) || (strcmp(argv[1], names[what]) == 0)) {
            right = run((what_t)what, names[what]) && right;
        }
    }
    return right ? 0 : 1;
}
