/*
 * A rank that holds copies is killed or stopped. The others continue to get every block, soon and correctly.
 *   store_death RANKS [WHAT]   prints "ok NAME: figures" for each case; exit 1 if one failed
 *
 * The ranks are forked here and meet at a rendezvous address, since mpirun would end them all. They communicate through
 * shared memory, so that it works with any rank dead.
 */
#include "start_ranks.h"
#include "base/rand.h"
#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS_MAX = 8, KEYS = 150, BLOCK = 16384, WORDS = BLOCK / 8 };
/* No get may fail, and all keys are got within WITHIN_MS after the victim was hit. Without another copy or a hedge, a
 * get waits for KVCL_TIMEOUT (30 s), or for the hedge delay of 20 s that is set where the store must determine
 * its own. */
enum { WITHIN_MS = 15000, REPAIR_MS = 60000, STILL_MS = 60000 };
/* A rank lives for RANK_LIVES_S. Over TCP on a busy machine a round takes 2 s, with the thread sanitizer 5 s. */
enum { ROUNDS = 5, ROUNDS_AFTER = 5 };

typedef struct scene {
    const char *name;
    int        signal;    /* SIGKILL, SIGSTOP */
    bool       after_one; /* another rank was killed before, and its copies have been repaired */
    bool       automatic; /* the store determines the hedge delay: the one that is set is too long */
} scene_t;

/* State shared by all processes. */
typedef struct shared {
    _Atomic unsigned    ready;
    _Atomic uint64_t    struck_ns; /* when the victim was hit; 0: not yet */
    _Atomic uint64_t    gets, failed, missed, wrong;
    _Atomic unsigned    rounds[RANKS_MAX]; /* number of times a rank has got all keys */
    _Atomic uint64_t    gets_of[RANKS_MAX]; /* of keys, one by one */
    _Atomic uint64_t    slowest_ns; /* slowest first verified get of a key after the victim was hit */
    _Atomic uint64_t    longest_ns; /* slowest of the later gets */
    _Atomic uint64_t    blocks[RANKS_MAX], entries[RANKS_MAX]; /* while `repaired` is not set */
    _Atomic bool        repaired;
} shared_t;

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
    kvcl_cache_h   cache;
    int            rank, size, victim;
    shared_t       *s;
} me_t;

static kvcl_key_t key_of(int rank, unsigned i)
{
    kvcl_key_t key;
    char       name[32];
    int        len = snprintf(name, sizeof(name), "death/%d/%u", rank, i);

    kvcl_key_from_string(name, (size_t)len, &key);
    return key;
}

static void expected(const kvcl_key_t *key, uint64_t *words)
{
    kvcl_rand_t rnd;
    uint64_t    seed;
    unsigned    i;

    memcpy(&seed, key->bytes + 8, sizeof(seed));
    kvcl_rand_seed(&rnd, seed);
    for (i = 0; i < WORDS; ++i) {
        words[i] = kvcl_rand_next(&rnd);
    }
}

static kvcl_status_t wait_for(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

/* Get one key: KVCL_OK if the bytes are right, else the reason. */
static kvcl_status_t get_one(me_t *me, int rank, unsigned i)
{
    static uint64_t want[WORDS], got[WORDS];
    kvcl_key_t      key = key_of(rank, i);
    uint32_t        id  = KEYS;
    kvcl_req_h      req;
    kvcl_status_t   status;

    memset(got, 0, sizeof(got));
    KVCL_TRY(kvcl_cache_write_block(me->cache, id, got, sizeof(got)));
    status = wait_for(kvcl_store_get(me->store, &key, 1, me->cache, &id, NULL, NULL, &req), &req);
    ++me->s->gets;
    ++me->s->gets_of[me->rank];
    if (status == KVCL_OK) {
        KVCL_TRY(kvcl_cache_read_block(me->cache, id, got, sizeof(got)));
        expected(&key, want);
        me->s->wrong += (memcmp(want, got, sizeof(want)) != 0) ? 1 : 0;
    }
    return status;
}

static void raise_to(_Atomic uint64_t *top, uint64_t value)
{
    uint64_t old = atomic_load(top);

    while ((value > old) && !atomic_compare_exchange_weak(top, &old, value)) {
    }
}

/* Put this rank's blocks; false if some have fewer than two copies. */
static bool put_mine(me_t *me)
{
    static uint64_t    words[WORDS];
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[KEYS];
    uint32_t           ids[KEYS], i;
    uint8_t            copies[KEYS] = {0};
    kvcl_req_h         req;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(me->rank, i);
        ids[i]  = i;
        expected(&keys[i], words);
        KVCL_TRY(kvcl_cache_write_block(me->cache, i, words, sizeof(words)));
    }
    p.copies = copies;
    for (i = 0; i < KEYS; i += 10) { /* several puts, so that copies go to all ranks */
        p.copies = copies + i;
        KVCL_TRY(wait_for(kvcl_store_put(me->store, keys + i, 10, me->cache, ids + i, &p, &req), &req));
    }
    for (i = 0; (i < KEYS) && (copies[i] == 2); ++i) {
    }
    return i == KEYS;
}

/* Get all keys of a rank in one call, as soon as the victim has been hit. */
static void get_batch(me_t *me, int rank, bool *seen, unsigned *got)
{
    static uint64_t want[WORDS], words[WORDS];
    kvcl_key_t      keys[KEYS];
    kvcl_status_t   status[KEYS];
    uint32_t        ids[KEYS], i;
    kvcl_req_h      req;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(rank, i);
        ids[i]  = i;
    }
    (void)!wait_for(kvcl_store_get(me->store, keys, KEYS, me->cache, ids, status, NULL, &req), &req);
    raise_to(&me->s->slowest_ns, kvcl_now_ns() - atomic_load(&me->s->struck_ns));
    for (i = 0; i < KEYS; ++i) {
        if (status[i] != KVCL_OK) {
            fprintf(stderr, "rank %d: key %d/%u in a batch: %s\n", me->rank, rank, i, kvcl_status_text(status[i]));
            ++me->s->failed;
            continue;
        }
        KVCL_TRY(kvcl_cache_read_block(me->cache, i, words, sizeof(words)));
        expected(&keys[i], want);
        me->s->wrong += (memcmp(want, words, sizeof(want)) != 0) ? 1 : 0;
        *got         += seen[i] ? 0 : 1;
        seen[i]       = true;
    }
}

/* Get all keys repeatedly while the victim is hit, and ROUNDS_AFTER times after that. */
static void watch(me_t *me)
{
    bool          seen[RANKS_MAX][KEYS] = {{false}}, batched = false;
    uint64_t      struck, begun, ended;
    unsigned      i, got = 0, after = 0;
    kvcl_status_t status;
    int           r = 0, b;

    do {
        for (i = 0; i < KEYS; ++i) {
            begun  = kvcl_now_ns();
            status = get_one(me, r, i);
            ended  = kvcl_now_ns();
            struck = atomic_load(&me->s->struck_ns);
            if (status != KVCL_OK) {
                fprintf(stderr, "rank %d: key %d/%u: %s\n", me->rank, r, i, kvcl_status_text(status));
                ++me->s->failed;
            }
            if ((struck != 0) && (begun >= struck)) {
                raise_to(&me->s->longest_ns, ended - begun);
            }
            for (b = 0; (struck != 0) && !batched && (b < me->size); ++b) {
                get_batch(me, b, seen[b], &got);
            }
            batched = (struck != 0);
        }
        r = (r + 1) % me->size;
        me->s->rounds[me->rank] += (r == 0) ? 1 : 0;
        after                   += (batched && (r == 0)) ? 1 : 0;
    } while (after < ROUNDS_AFTER);
    if (got != (unsigned)me->size * KEYS) {
        fprintf(stderr, "rank %d: %u keys did not come\n", me->rank, ((unsigned)me->size * KEYS) - got);
        ++me->s->missed;
    }
}

/* Queries alone miss no key either. */
static void query_all(me_t *me)
{
    kvcl_key_t keys[KEYS];
    uint8_t    present[KEYS];
    unsigned   i, missed = 0;
    size_t     hit;
    int        r;

    for (r = 0; r < me->size; ++r) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(r, i);
        }
        KVCL_TRY(kvcl_store_exists(me->store, keys, KEYS, present, NULL));
        KVCL_TRY(kvcl_store_match(me->store, keys, KEYS, &hit, NULL));
        for (i = 0; i < KEYS; ++i) {
            missed += present[i] ? 0 : 1;
        }
        missed += (unsigned)(KEYS - hit);
    }
    if (missed != 0) {
        fprintf(stderr, "rank %d: %u keys are not seen\n", me->rank, missed);
        me->s->missed += missed;
    }
}

/* Report the blocks that this rank holds and lists until the repair is complete. */
static void notify_until_repaired(me_t *me)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    while (!atomic_load(&me->s->repaired)) {
        KVCL_TRY(kvcl_store_stats(me->store, &stats));
        me->s->blocks[me->rank]  = stats.blocks;
        me->s->entries[me->rank] = stats.entries;
        usleep(5000);
    }
}

typedef struct job {
    const scene_t *scene;
    shared_t      *s;
    int           size;
} job_t;

static int live(const void *arg, int rank)
{
    const job_t         *job   = arg;
    const scene_t       *scene = job->scene;
    shared_t            *s     = job->s;
    int                 size   = job->size;
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS + 1, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    me_t                me     = {.rank = rank, .size = size, .victim = size - (scene->after_one ? 2 : 1), .s = s};
    kvcl_req_h          req;

    params.dir_entries = 16384;
    params.dram_bytes  = 8ull * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
    KVCL_TRY(kvcl_store_open(me.world, &params, &me.store));
    if (!put_mine(&me)) {
        fprintf(stderr, "rank %d: not two copies of each block\n", rank);
        return 1;
    }
    KVCL_TRY(wait_for(kvcl_barrier(me.world, NULL, &req), &req));
    ++s->ready;
    if (scene->after_one && (rank != size - 1)) {
        notify_until_repaired(&me);
    }
    if ((rank == me.victim) || (rank == size - 1)) {
        for (;;) {
            pause();
        }
    }
    watch(&me);
    query_all(&me);
    ++s->ready;
    while (atomic_load(&s->ready) < (unsigned)((2 * size) - (scene->after_one ? 2 : 1))) {
        usleep(1000);
    }
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return 0;
}

/* Every rank below n has got all keys ROUNDS times. False: one gets none for STILL_MS. */
static bool all_have_got(const shared_t *s, int n)
{
    uint64_t still = kvcl_now_ns(), gets = 0;
    int      i;

    for (i = 0; i < n; ++i) {
        while (atomic_load(&s->rounds[i]) < ROUNDS) {
            if (atomic_load(&s->gets_of[i]) != gets) {
                gets  = atomic_load(&s->gets_of[i]);
                still = kvcl_now_ns();
            } else if (kvcl_now_ns() - still > STILL_MS * 1000000ull) {
                printf("WRONG rank %d got all keys %u times only, and no key for %d s\n", i,
                       atomic_load(&s->rounds[i]), STILL_MS / 1000);
                return false;
            }
            usleep(1000);
        }
    }
    return true;
}

/* Whether every block has two copies again, each is listed twice, and nothing else is listed. */
static bool repaired(shared_t *s, int size)
{
    uint64_t begun = kvcl_now_ns(), blocks = 0, entries = 0, want = 2ull * KEYS * (uint64_t)size;
    int      i;

    while ((kvcl_now_ns() - begun < REPAIR_MS * 1000000ull) && ((blocks != want) || (entries != 2 * want))) {
        usleep(2000);
        for (i = 0, blocks = 0, entries = 0; i < size - 1; ++i) {
            blocks  += s->blocks[i];
            entries += s->entries[i];
        }
    }
    printf("%s repaired: %llu of %llu copies, %llu of %llu entries after %.0f ms\n",
           ((blocks == want) && (entries == 2 * want)) ? "ok" : "WRONG", (unsigned long long)blocks,
           (unsigned long long)want, (unsigned long long)entries, 2ull * want, (double)(kvcl_now_ns() - begun) / 1e6);
    atomic_store(&s->repaired, true);
    return (blocks == want) && (entries == 2 * want);
}

static bool run(const scene_t *scene, int size)
{
    int      victim = size - (scene->after_one ? 2 : 1);
    shared_t *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job_t    job = {scene, s, size};
    pid_t    pids[RANKS_MAX];
    int      i, status;
    bool     right = true;

    if (scene->automatic) {
        setenv("KVCL_STORE_HEDGE", "20s", 1);
        setenv("KVCL_STORE_HEDGE_AUTO", "yes", 1);
    }
    start_ranks(size, live, &job, pids);
    unsetenv("KVCL_STORE_HEDGE");
    unsetenv("KVCL_STORE_HEDGE_AUTO");
    for (i = 0; (i < 60000) && (atomic_load(&s->ready) < (unsigned)size); ++i) {
        usleep(1000);
    }
    if (scene->after_one) {
        kill(pids[size - 1], SIGKILL);
        waitpid(pids[size - 1], &status, 0);
        right = repaired(s, size);
    }
    right = all_have_got(s, victim) && right;
    kill(pids[victim], scene->signal);
    atomic_store(&s->struck_ns, kvcl_now_ns());
    if (scene->signal == SIGKILL) {
        waitpid(pids[victim], &status, 0); /* a dead process counts as alive until it is waited for */
    }
    for (i = 0; i < victim; ++i) {
        right = rank_ends_well(pids[i]) && right;
    }
    if (scene->signal == SIGSTOP) {
        kill(pids[victim], SIGKILL);
        waitpid(pids[victim], &status, 0);
    }
    right = right && (s->failed == 0) && (s->missed == 0) && (s->wrong == 0) &&
            (s->slowest_ns <= WITHIN_MS * 1000000ull) && (s->longest_ns <= WITHIN_MS * 1000000ull);
    printf("%s %s, %d ranks: %llu gets, %llu failed, %llu keys missed, %llu wrong; all keys got after %.0f ms, longest "
           "get %.0f ms\n", right ? "ok" : "WRONG", scene->name, size, (unsigned long long)s->gets,
           (unsigned long long)s->failed, (unsigned long long)s->missed, (unsigned long long)s->wrong,
           (double)s->slowest_ns / 1e6, (double)s->longest_ns / 1e6);
    munmap(s, sizeof(*s));
    return right;
}

int main(int argc, char **argv)
{
    static const scene_t scenes[] = {
        {"killed", SIGKILL, false, false},
        {"stopped", SIGSTOP, false, false},
        {"stopped, hedged by itself", SIGSTOP, false, true},
        {"killed after a repair", SIGKILL, true, false},
    };
    int    size = (argc > 1) ? atoi(argv[1]) : 3, bad = 0;
    size_t i;

    for (i = 0; i < sizeof(scenes) / sizeof(scenes[0]); ++i) {
        if ((argc < 3) || (strcmp(scenes[i].name, argv[2]) == 0)) {
            bad += run(&scenes[i], size) ? 0 : 1;
        }
    }
    return (bad == 0) ? 0 : 1;
}
