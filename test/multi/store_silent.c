/*
 * A rank that is stopped, not dead. Store queries of the others end soon meanwhile, return nothing wrong, and find the
 * rank again when it resumes.
 *   store_silent REPLICAS [WHAT]   prints "ok WHAT" for each case; exit 1 if one failed
 *
 * No case reads a clock: KVCL_TIMEOUT is longer than the ranks live (start_ranks.h), so a call that waited for its
 * deadline would end the test.
 */
#include "start_ranks.h"
#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 4, VICTIM = RANKS - 1, KEYS = 64, BLOCK = 4096 };
#define MINUTE UINT64_C(60000000000)

typedef struct shared {
    _Atomic unsigned ready;
    _Atomic bool     stop, go_on, over; /* requests of rank 0 to the parent, and its notices to the others */
    _Atomic bool     stopped, went_on;
} shared_t;

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
    kvcl_cache_h   cache;
    int            rank, replicas, bad;
    shared_t       *s;
} me_t;

#define CHECK(_me, _cond, ...)                                                                                         \
    do {                                                                                                               \
        if (!(_cond)) {                                                                                                \
            fprintf(stderr, "rank %d: %s:%d: %s: ", (_me)->rank, __func__, __LINE__, #_cond);                          \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, " [%s]\n", kvcl_last_error());                                                             \
            ++(_me)->bad;                                                                                              \
        }                                                                                                              \
    } while (0)

static kvcl_key_t key_of(int rank, unsigned i)
{
    kvcl_key_t key;
    char       name[32];
    int        len = snprintf(name, sizeof(name), "silent/%d/%u", rank, i);

    kvcl_key_from_string(name, (size_t)len, &key);
    return key;
}

static void keys_of(int rank, kvcl_key_t *keys)
{
    unsigned i;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(rank, i);
    }
}

static kvcl_status_t wait_for(kvcl_status_t posted, kvcl_req_h *req)
{
    kvcl_status_t status = posted;

    while ((status == KVCL_OK) && ((status = kvcl_req_test(*req)) == KVCL_INPROGRESS)) {
        usleep(100);
        status = KVCL_OK;
    }
    return status;
}

static void put_mine(me_t *me, int rank, uint8_t with)
{
    uint8_t    bytes[BLOCK];
    kvcl_key_t keys[KEYS];
    uint32_t   ids[KEYS], i;
    kvcl_req_h req;

    keys_of(rank, keys);
    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
        memset(bytes, (int)(with + i), sizeof(bytes));
        KVCL_TRY(kvcl_cache_write_block(me->cache, i, bytes, sizeof(bytes)));
    }
    KVCL_TRY(wait_for(kvcl_store_put(me->store, keys, KEYS, me->cache, ids, NULL, &req), &req));
}

/* ---- the parent stops and continues the victim ---- */

static void strike(_Atomic bool *request, _Atomic bool *done)
{
    atomic_store(request, true);
    while (!atomic_load(done)) {
        usleep(1000);
    }
}

static void wait_state(me_t *me, kvcl_rank_state_t want)
{
    kvcl_rank_state_t state;

    do {
        KVCL_TRY(kvcl_rank_state(me->world, VICTIM, &state));
        usleep(1000);
    } while (state != want);
}

/* ---- the cases: rank 0's, while the victim is stopped ---- */

/* Blocks held and listed by ranks that reply are found. Return the number of keys found. */
static unsigned look(me_t *me)
{
    kvcl_key_t keys[KEYS];
    uint8_t    present[KEYS];
    unsigned   seen = 0, i;
    size_t     hit;
    int        r;

    for (r = 0; r < RANKS; ++r) {
        keys_of(r, keys);
        memset(present, 7, sizeof(present));
        CHECK(me, kvcl_store_exists(me->store, keys, KEYS, present, NULL) == KVCL_OK, "keys of rank %d", r);
        CHECK(me, kvcl_store_match(me->store, keys, KEYS, &hit, NULL) == KVCL_OK, "keys of rank %d", r);
        for (i = 0; i < KEYS; ++i) {
            CHECK(me, present[i] <= 1, "key %u is %u", i, present[i]);
            seen += present[i];
        }
        for (i = 0; (i < KEYS) && present[i]; ++i) {
        }
        CHECK(me, (hit <= KEYS) && ((me->replicas == 1) || (hit == i)), "hit %zu, present %u", hit, i);
    }
    return seen;
}

static void questions(me_t *me)
{
    unsigned seen = look(me), again = look(me);

    CHECK(me, seen == again, "%u keys, then %u", seen, again);
    CHECK(me, (me->replicas == 1) || (seen == RANKS * KEYS), "%u keys are seen, of %d", seen, RANKS * KEYS);
    CHECK(me, seen >= KEYS, "%u keys are seen", seen);
}

static void posted(me_t *me)
{
    kvcl_key_t keys[KEYS];
    uint8_t    present[KEYS] = {0}, first[KEYS];
    kvcl_req_h reqs[3];
    size_t     hit = 99;

    keys_of(1, keys);
    CHECK(me, kvcl_store_exists(me->store, keys, KEYS, first, NULL) == KVCL_OK, "exists");
    CHECK(me, kvcl_store_exists_post(me->store, keys, KEYS, present, NULL, &reqs[0]) == KVCL_OK, "exists");
    CHECK(me, kvcl_store_match_post(me->store, keys, KEYS, &hit, NULL, &reqs[1]) == KVCL_OK, "match");
    CHECK(me, kvcl_store_unpin_post(me->store, keys, KEYS, 5, NULL, &reqs[2]) == KVCL_OK, "unpin");
    memset(keys, 0, sizeof(keys)); /* they were copied */
    CHECK(me, wait_for(KVCL_OK, &reqs[2]) == KVCL_OK, "unpin");
    CHECK(me, wait_for(KVCL_OK, &reqs[1]) == KVCL_OK, "match");
    CHECK(me, wait_for(KVCL_OK, &reqs[0]) == KVCL_OK, "exists");
    CHECK(me, memcmp(present, first, sizeof(first)) == 0, "a posted exists says something else");
    CHECK(me, hit <= KEYS, "hit %zu", hit);
}

/* One rank's silence is that rank's status; the replies of the others count. */
static void statistics(me_t *me)
{
    kvcl_store_stats_t stats[RANKS], one = KVCL_STORE_STATS_INIT;
    kvcl_status_t      status[RANKS];
    kvcl_store_item_t  items[8];
    uint64_t           cursor = 0;
    size_t             n;
    int                r;

    CHECK(me, kvcl_store_all_stats(me->store, RANKS, stats, sizeof(stats[0]), status, NULL) == KVCL_OK, "all");
    for (r = 0; r < RANKS; ++r) {
        CHECK(me, status[r] == ((r == VICTIM) ? KVCL_ERR_TIMED_OUT : KVCL_OK), "rank %d: %s", r,
              kvcl_status_text(status[r]));
        CHECK(me, (stats[r].pool_blocks != 0) == (r != VICTIM), "rank %d has %llu blocks", r,
              (unsigned long long)stats[r].pool_blocks);
    }
    CHECK(me, kvcl_store_rank_stats(me->store, VICTIM, &one, NULL) == KVCL_ERR_TIMED_OUT, "one");
    CHECK(me, strstr(kvcl_last_error(), "rank 3") != NULL, "who is not named");
    CHECK(me,
          kvcl_store_list(me->store, VICTIM, &cursor, items, sizeof(*items), 8, &n, NULL, NULL) == KVCL_ERR_TIMED_OUT,
          "list");
    CHECK(me, kvcl_store_quota(me->store, -1, 77, 1 << 20, NULL) == KVCL_ERR_TIMED_OUT, "quota");
    CHECK(me, kvcl_store_quota(me->store, 1, 77, 0, NULL) == KVCL_OK, "quota of one");
}

static void pins(me_t *me)
{
    kvcl_key_t    keys[KEYS];
    uint8_t       copies[KEYS], present[KEYS];
    kvcl_status_t status;
    unsigned      i;

    keys_of(1, keys);
    KVCL_TRY(kvcl_store_exists(me->store, keys, KEYS, present, NULL));
    status = kvcl_store_pin(me->store, keys, KEYS, 5, MINUTE, 0, copies, NULL);
    CHECK(me, (status == KVCL_OK) || (me->replicas == 1), "pin: %s", kvcl_status_text(status));
    for (i = 0; i < KEYS; ++i) {
        CHECK(me, (copies[i] != 0) == (present[i] != 0), "key %u: %u copies", i, copies[i]);
    }
    CHECK(me, kvcl_store_unpin(me->store, keys, KEYS, 5, NULL) == KVCL_OK, "unpin");
}

/* An excluded rank is neither queried nor waited for; it is found again when it is included. */
static void excluded(me_t *me)
{
    kvcl_store_stats_t stats[RANKS];
    kvcl_status_t      status[RANKS];
    uint8_t            present[KEYS];
    kvcl_key_t         keys[KEYS];

    CHECK(me, kvcl_store_exclude(me->store, 1, 1) == KVCL_OK, "exclude");
    CHECK(me, kvcl_store_exclude(me->store, me->rank, 1) == KVCL_ERR_INVALID_PARAM, "exclude me");
    CHECK(me, kvcl_store_exclude(me->store, RANKS, 1) == KVCL_ERR_UNKNOWN_RANK, "exclude nobody");
    CHECK(me, kvcl_store_all_stats(me->store, RANKS, stats, sizeof(stats[0]), status, NULL) == KVCL_OK, "all");
    CHECK(me, status[1] == KVCL_ERR_UNREACHABLE, "rank 1: %s", kvcl_status_text(status[1]));
    CHECK(me, status[2] == KVCL_OK, "rank 2: %s", kvcl_status_text(status[2]));
    keys_of(2, keys);
    CHECK(me, kvcl_store_exists(me->store, keys, KEYS, present, NULL) == KVCL_OK, "exists");
    CHECK(me, kvcl_store_exclude(me->store, 1, 0) == KVCL_OK, "take back");
    CHECK(me, kvcl_store_rank_stats(me->store, 1, &stats[1], NULL) == KVCL_OK, "rank 1 again");
}

/* ---- puts and removals while a home is stopped ---- */

enum { LATE = RANKS, LATER = LATE + 1, EACH = 16 }; /* sets of keys put meanwhile */

static bool removed[EACH], replaced[EACH];

static kvcl_status_t get(me_t *me, const kvcl_key_t *key, uint8_t *bytes)
{
    kvcl_status_t status;
    uint32_t      id = 0;
    kvcl_req_h    req;

    status = wait_for(kvcl_store_get(me->store, key, 1, me->cache, &id, NULL, NULL, &req), &req);
    if (status == KVCL_OK) {
        KVCL_TRY(kvcl_cache_read_block(me->cache, id, bytes, BLOCK));
    }
    return status;
}

/* With two homes a put needs one of them, and copies go to ranks that reply; with one home some keys have none. */
static void put_late(me_t *me, int set)
{
    uint8_t            bytes[BLOCK], copies[KEYS] = {0}, present[KEYS];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[KEYS];
    uint32_t           ids[KEYS], i;
    kvcl_status_t      status;
    kvcl_req_h         req;

    keys_of(set, keys);
    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
        memset(bytes, set + (int)i, sizeof(bytes));
        KVCL_TRY(kvcl_cache_write_block(me->cache, i, bytes, sizeof(bytes)));
    }
    params.copies = copies;
    status        = wait_for(kvcl_store_put(me->store, keys, KEYS, me->cache, ids, &params, &req), &req);
    CHECK(me, status == ((me->replicas == 1) ? KVCL_ERR_TIMED_OUT : KVCL_OK), "put: %s", kvcl_status_text(status));
    CHECK(me, kvcl_store_exists(me->store, keys, KEYS, present, NULL) == KVCL_OK, "exists");
    for (i = 0; (me->replicas > 1) && (i < KEYS); ++i) {
        CHECK(me, (copies[i] == me->replicas) && present[i], "key %u: %u copies, present %u", i, copies[i],
              present[i]);
    }
}

/* The status of each call holds, then and later. */
static void remove_some(me_t *me)
{
    uint8_t       bytes[BLOCK], present;
    kvcl_key_t    key;
    kvcl_status_t status;
    kvcl_req_h    req;
    uint32_t      id = 0;
    unsigned      i;

    for (i = 0; i < EACH; ++i) {
        key        = key_of(1, i);
        status     = wait_for(kvcl_store_remove(me->store, &key, 1, NULL, &req), &req);
        removed[i] = (status == KVCL_OK);
        CHECK(me, removed[i] || (status == KVCL_ERR_TIMED_OUT), "remove: %s", kvcl_status_text(status));
        KVCL_TRY(kvcl_store_exists(me->store, &key, 1, &present, NULL));
        CHECK(me, !removed[i] || !present, "removed key %u is there", i);
        key = key_of(2, i);
        memset(bytes, 0xe0 + (int)i, sizeof(bytes));
        KVCL_TRY(kvcl_cache_write_block(me->cache, id, bytes, sizeof(bytes)));
        status      = wait_for(kvcl_store_upsert(me->store, &key, 1, me->cache, &id, NULL, &req), &req);
        replaced[i] = (status == KVCL_OK);
        CHECK(me, replaced[i] || (status == KVCL_ERR_TIMED_OUT), "upsert: %s", kvcl_status_text(status));
    }
}

/* No removed key reappears, and no old bytes do. */
static void check_late(me_t *me)
{
    uint8_t  bytes[BLOCK];
    unsigned i;

    for (i = 0; i < EACH; ++i) {
        kvcl_key_t gone = key_of(1, i), other = key_of(2, i);
        CHECK(me, !removed[i] || (get(me, &gone, bytes) == KVCL_ERR_NOT_FOUND), "removed key %u is there again", i);
        if (get(me, &other, bytes) == KVCL_OK) {
            CHECK(me, (bytes[9] == 0xe0 + i) || (!replaced[i] && (bytes[9] == 2 + i)), "key %u has old bytes: %u", i,
                  bytes[9]);
        } else {
            CHECK(me, !replaced[i], "new key %u is gone", i);
        }
    }
}

static void check_put(me_t *me, int set)
{
    uint8_t       bytes[BLOCK];
    kvcl_key_t    keys[KEYS];
    kvcl_status_t status;
    size_t        hit = 0;
    unsigned      i;

    keys_of(set, keys);
    while ((me->replicas > 1) && (hit != KEYS)) {
        KVCL_TRY(kvcl_store_match(me->store, keys, KEYS, &hit, NULL));
        usleep(1000);
    }
    for (i = 0; i < KEYS; ++i) { /* a put that failed may only have left a hint at a home */
        /* A slow rank may be suspected again: its backup answered the match, and the key is a miss at the rank itself
         * until the holders of the block have listed it there. */
        while (((status = get(me, &keys[i], bytes)) == KVCL_ERR_NOT_FOUND) && (me->replicas > 1)) {
            usleep(1000);
        }
        CHECK(me, (status != KVCL_OK) || (bytes[7] == (unsigned)set + i), "key %u has other bytes", i);
        CHECK(me, (status == KVCL_OK) || (me->replicas == 1), "key %u: %s", i, kvcl_status_text(status));
    }
}

static unsigned n_gone(void)
{
    unsigned n = 0, i;

    for (i = 0; i < EACH; ++i) {
        n += removed[i] ? 1 : 0;
    }
    return n;
}

static void lead(me_t *me)
{
    unsigned seen;

    CHECK(me, look(me) == RANKS * KEYS, "not all are seen at first");
    strike(&me->s->stop, &me->s->stopped);
    statistics(me); /* queries it, on every path */
    wait_state(me, KVCL_RANK_SUSPECT);
    questions(me);
    posted(me);
    pins(me);
    statistics(me);
    excluded(me);
    put_late(me, LATE);
    put_late(me, LATER); /* the ranks that make copies know of the silence by now */
    remove_some(me);
    CHECK(me, (n_gone() != 0) && (n_gone() != EACH), "%u of %d removals are done: a silent home has none", n_gone(),
          EACH);
    strike(&me->s->go_on, &me->s->went_on);
    wait_state(me, KVCL_RANK_ALIVE);
    check_late(me);
    check_put(me, LATE);
    check_put(me, LATER);
    while (((seen = look(me)) < (RANKS * KEYS) - (2 * EACH)) || (seen > (RANKS * KEYS) - n_gone())) {
        usleep(1000);
    }
    check_late(me);
}

/* ---- the ranks ---- */

typedef struct job {
    shared_t *s;
    int      replicas;
} job_t;

static int live(const void *arg, int rank)
{
    const job_t         *job   = arg;
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    me_t                me     = {.rank = rank, .replicas = job->replicas, .s = job->s};

    params.dir_entries = 16384;
    params.dram_bytes  = 16ull * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = (uint64_t)job->replicas;
    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
    KVCL_TRY(kvcl_store_open(me.world, &params, &me.store));
    put_mine(&me, rank, (uint8_t)rank);
    ++me.s->ready;
    while (atomic_load(&me.s->ready) != RANKS) {
        usleep(1000);
    }
    if (rank == 0) {
        lead(&me);
        atomic_store(&me.s->over, true);
    }
    while (!atomic_load(&me.s->over)) {
        usleep(1000);
    }
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return (me.bad == 0) ? 0 : 1;
}

int main(int argc, char **argv)
{
    shared_t *s   = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job_t    job  = {s, (argc > 1) ? atoi(argv[1]) : 2};
    bool     good = true;
    pid_t    pids[RANKS];
    int      i, status;

    setenv("KVCL_TIMEOUT", "200s", 1);
    start_ranks(RANKS, live, &job, pids);
    while (!atomic_load(&s->over) && (waitpid(pids[0], &status, WNOHANG) == 0)) {
        usleep(1000);
        if (atomic_load(&s->stop) && !atomic_load(&s->stopped)) {
            kill(pids[VICTIM], SIGSTOP);
            waitpid(pids[VICTIM], &status, WUNTRACED); /* wait until it is stopped */
            atomic_store(&s->stopped, true);
        }
        if (atomic_load(&s->go_on) && !atomic_load(&s->went_on)) {
            kill(pids[VICTIM], SIGCONT);
            atomic_store(&s->went_on, true);
        }
    }
    if (!atomic_load(&s->over)) {
        fprintf(stderr, "rank 0 has ended before it was done\n");
        kill(pids[VICTIM], SIGKILL);
        good = false;
        atomic_store(&s->over, true);
    } else {
        good = rank_ends_well(pids[0]);
    }
    for (i = 1; i < RANKS; ++i) {
        good = rank_ends_well(pids[i]) && good;
    }
    printf("%s a silent rank, %d replicas\n", good ? "ok" : "WRONG", job.replicas);
    return good ? 0 : 1;
}
