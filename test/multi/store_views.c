/*
 * Stores whose maps follow views (KVCL_VIEWS): ranks are killed, one of them while shards still move, or stopped, while
 * the others put, remove and get. They are forked here, since mpirun would end them all.
 *   store_views CASE   killed, both, stopped, alone, holds; prints "ok CASE ..." or "WRONG CASE ...", then exit 1
 *
 * killed   4 ranks; the last two are killed, the second one up to 200 ms (by seed) after the first. Each key that a
 *          survivor has put and not removed is found, and no key that it has removed. A key whose two homes were the
 *          victims may be absent until its owner has listed it at new homes; then it is found (found late)
 * both     the same, but both are killed at once, and the survivors get those keys at once
 * stopped  4 ranks; the last is stopped until the others have excluded it. No put or removal that it begins afterwards
 *          succeeds; nor does a put under way of which only it has a copy, since the rank that was to have another one
 *          was stopped, too, for a moment; and the others lose nothing
 * alone    3 ranks, two of them stopped: the third one's removals and upserts end with KVCL_ERR_NO_QUORUM, its gets of
 *          keys that it is a home of go on; and when the others go on, it removes again
 * holds    4 ranks; the last is stopped. Rank 0 removes keys that the last holds, and of which rank 0 is a home and the
 *          last is none: that does not end before the view of rank 0 is one without the last
 */
#include "start_ranks.h"

#include "base/rand.h"
#include "dir/shard.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 4, KEYS = 400, BLOCK = 4096, WORDS = BLOCK / 8, SCRATCH = KEYS, LONG_MS = 60000 };

enum { KEY_NEW, KEY_PUT, KEY_REMOVED, KEY_UNSURE }; /* unsure: the last call on it has failed */

typedef enum { KILLED, BOTH, STOPPED, ALONE, HOLDS, SCENES } scene_t;

typedef struct shared {
    _Atomic int      ready, phase, done; /* phase 1: the victims were hit; 2: they go on, or the second one was hit */
    _Atomic bool     second;             /* the second one is hit next, or was */
    _Atomic bool     excluded;           /* rank 0 has a view without the victim */
    _Atomic bool     held;               /* rank 1 does not answer: the victim puts keys of which it is no home */
    _Atomic unsigned begun;              /* calls of the victim, that under way included */
    _Atomic uint64_t resumed_ns;
    _Atomic uint64_t puts, removes, gets;
    _Atomic uint64_t lost, found, wrong, failed, zombie, fenced, no_quorum, again, late;
} shared_t;

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
    kvcl_cache_h   cache;
    kvcl_rand_t    rnd;
    int            rank;
    uint8_t        state[KEYS];
    unsigned       round[KEYS];
    uint8_t        copies; /* of its last put */
} me_t;

static shared_t         *s;
static int              size;
static kvcl_shard_map_t homes;  /* before the strike */
static uint32_t         victim; /* it and the ranks behind it are killed; RANKS: none is */

/* A key that was removed is not put again: its next round has another name. */
static kvcl_key_t key_of(int rank, unsigned i, unsigned round)
{
    kvcl_key_t key;
    char       name[48];
    int        len = snprintf(name, sizeof(name), "views/%d/%u/%u", rank, i, round);

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

static kvcl_status_t put(me_t *me, unsigned i, uint64_t timeout_ns, bool upsert)
{
    static uint64_t    words[WORDS];
    kvcl_key_t         key = key_of(me->rank, i, me->round[i]);
    kvcl_xfer_params_t p   = KVCL_XFER_PARAMS_INIT;
    uint32_t           id  = i;
    kvcl_req_h         req;

    expected(&key, words);
    KVCL_TRY(kvcl_cache_write_block(me->cache, id, words, sizeof(words)));
    p.timeout_ns = timeout_ns;
    p.copies     = &me->copies;
    return wait_for(upsert ? kvcl_store_upsert(me->store, &key, 1, me->cache, &id, &p, &req)
                           : kvcl_store_put(me->store, &key, 1, me->cache, &id, &p, &req), &req);
}

static kvcl_status_t drop(me_t *me, unsigned i, uint64_t timeout_ns)
{
    kvcl_key_t         key = key_of(me->rank, i, me->round[i]);
    kvcl_xfer_params_t p   = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    p.timeout_ns = timeout_ns;
    return wait_for(kvcl_store_remove(me->store, &key, 1, &p, &req), &req);
}

/* Gets a key of any rank, and looks at its bytes. */
static kvcl_status_t get(me_t *me, const kvcl_key_t *key, uint64_t timeout_ns)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    static uint64_t want[WORDS], got[WORDS];
    uint32_t        id = SCRATCH;
    kvcl_req_h      req;
    kvcl_status_t   status;

    p.timeout_ns = timeout_ns;
    memset(got, 0, sizeof(got));
    KVCL_TRY(kvcl_cache_write_block(me->cache, id, got, sizeof(got)));
    status = wait_for(kvcl_store_get(me->store, key, 1, me->cache, &id, NULL, &p, &req), &req);
    ++s->gets;
    if (status == KVCL_OK) {
        KVCL_TRY(kvcl_cache_read_block(me->cache, id, got, sizeof(got)));
        expected(key, want);
        s->wrong += (memcmp(want, got, sizeof(want)) != 0) ? 1 : 0;
    }
    return status;
}

static bool kills(scene_t scene)
{
    return (scene == KILLED) || (scene == BOTH);
}

/* Does rank 0 alone do something? */
static bool has_one(scene_t scene)
{
    return (scene == ALONE) || (scene == HOLDS);
}

/* Are both homes of the key killed? */
static bool is_orphan(const kvcl_key_t *key)
{
    return atomic_load(&s->second) && (kvcl_shard_home(&homes, key) >= victim) &&
           (kvcl_shard_backup(&homes, key) >= victim);
}

/* Gets a key that this rank has put. */
static kvcl_status_t get_sure(me_t *me, const kvcl_key_t *key)
{
    const uint64_t end    = kvcl_now_ns() + (LONG_MS * UINT64_C(1000000));
    kvcl_status_t  status = get(me, key, 0);

    if ((status == KVCL_ERR_NOT_FOUND) && (s->lost == 0) && is_orphan(key)) {
        ++s->late;
        while ((status == KVCL_ERR_NOT_FOUND) && (kvcl_now_ns() < end)) {
            usleep(1000);
            status = get(me, key, 0);
        }
    }
    return status;
}

/* Does the key's state fit what this rank has done with it? */
static void look(me_t *me, unsigned i, bool last)
{
    kvcl_key_t    key = key_of(me->rank, i, me->round[i]);
    kvcl_status_t status;

    if ((me->state[i] != KEY_PUT) && (me->state[i] != KEY_REMOVED)) {
        return;
    }
    status = (me->state[i] == KEY_PUT) ? get_sure(me, &key) : get(me, &key, 0);
    if ((me->state[i] == KEY_PUT) && (status != KVCL_OK)) {
        fprintf(stderr, "rank %d: key %u/%u%s: %s\n", me->rank, i, me->round[i], last ? " at the end" : "",
                kvcl_status_text(status));
        ++s->lost;
    } else if ((me->state[i] == KEY_REMOVED) && (status == KVCL_OK)) {
        fprintf(stderr, "rank %d: removed key %u/%u is found\n", me->rank, i, me->round[i]);
        ++s->found;
    }
}

static void act(me_t *me, unsigned i)
{
    kvcl_status_t status;

    if (me->state[i] == KEY_PUT) {
        status       = drop(me, i, 0);
        me->state[i] = (status == KVCL_OK) ? KEY_REMOVED : KEY_UNSURE;
        s->removes  += (status == KVCL_OK) ? 1 : 0;
    } else {
        me->round[i] += 1;
        status        = put(me, i, 0, false);
        me->state[i]  = (status == KVCL_OK) ? KEY_PUT : KEY_UNSURE;
        s->puts      += (status == KVCL_OK) ? 1 : 0;
    }
    if (status != KVCL_OK) { /* nothing fails while a quorum lives */
        fprintf(stderr, "rank %d: key %u/%u: %s\n", me->rank, i, me->round[i], kvcl_last_error());
        ++s->failed;
    }
}

/* Puts, removes and gets until the phase is over, and for a while after that. */
static void work(me_t *me, unsigned rounds)
{
    unsigned i, n = 0;

    while ((atomic_load(&s->phase) < 2) || (n < rounds)) {
        i = (unsigned)(kvcl_rand_next(&me->rnd) % KEYS);
        if (kvcl_rand_next(&me->rnd) % 3 == 0) {
            look(me, i, false);
        } else {
            act(me, i);
        }
        n += (atomic_load(&s->phase) == 2) ? 1 : 0;
        if ((me->rank == 0) && (kvcl_comm_view(me->world) > 1)) {
            atomic_store(&s->excluded, true);
        }
    }
    for (i = 0; i < KEYS; ++i) {
        look(me, i, true);
    }
}

/* Right after the strike, gets the keys whose homes are killed. */
static void get_orphans(me_t *me)
{
    kvcl_key_t key;
    unsigned   i;

    while (atomic_load(&s->phase) < 2) {
        usleep(100);
    }
    for (i = 0; i < KEYS; ++i) {
        key = key_of(me->rank, i, me->round[i]);
        if (is_orphan(&key)) {
            look(me, i, false);
        }
    }
}

static bool is_home(uint32_t rank, const kvcl_key_t *key)
{
    return (kvcl_shard_home(&homes, key) == rank) || (kvcl_shard_backup(&homes, key) == rank);
}

/* The stopped rank: what it begins after it goes on does not succeed. */
static void be_zombie(me_t *me)
{
    unsigned      i = 0;
    uint64_t      begun;
    kvcl_status_t status;
    kvcl_key_t    key;
    bool          put_it, held;

    for (i = 0; atomic_load(&s->done) == 0; i = (i + 1) % KEYS) {
        held   = atomic_load(&s->held);
        put_it = held || (me->state[i] != KEY_PUT);
        do {
            me->round[i] += put_it ? 1 : 0;
            key           = key_of(me->rank, i, me->round[i]);
        } while (held && is_home(1, &key));
        begun  = kvcl_now_ns();
        ++s->begun;
        status = put_it ? put(me, i, 500000000, false) : drop(me, i, 500000000);
        me->state[i] = (put_it && (status == KVCL_OK)) ? KEY_PUT : KEY_UNSURE;
        if ((atomic_load(&s->resumed_ns) != 0) && (begun >= atomic_load(&s->resumed_ns))) {
            s->zombie += (status == KVCL_OK) ? 1 : 0;
            s->fenced += (status != KVCL_OK) ? 1 : 0;
        } else if ((atomic_load(&s->resumed_ns) != 0) && put_it && (status == KVCL_OK) && (me->copies < 2)) {
            fprintf(stderr, "key %u/%u, put when this rank was stopped: %u copies\n", i, me->round[i], me->copies);
            s->zombie += 1;
        }
    }
}

static void be_alone(me_t *me)
{
    kvcl_status_t status;
    kvcl_key_t    key;
    uint64_t      end;
    unsigned      found = 0, i;

    while (atomic_load(&s->phase) == 0) {
        usleep(1000);
    }
    for (i = 0; i < 4; ++i) {
        status        = (i % 2 == 0) ? drop(me, i, 1000000000) : put(me, i, 1000000000, true);
        s->no_quorum += (status == KVCL_ERR_NO_QUORUM) ? 1 : 0;
        if (status != KVCL_ERR_NO_QUORUM) {
            fprintf(stderr, "alone, %u: %s\n", i, kvcl_status_text(status));
        }
    }
    for (i = KEYS - 60; i < KEYS; ++i) { /* this rank is the only reachable home of two thirds of the keys */
        key    = key_of(me->rank, i, me->round[i]);
        found += (get(me, &key, 200000000) == KVCL_OK) ? 1 : 0;
    }
    if (found < 20) {
        fprintf(stderr, "alone: of 60 own keys only %u are found\n", found);
        ++s->lost;
    }
    atomic_store(&s->phase, 2);
    end = kvcl_now_ns() + (LONG_MS * UINT64_C(1000000));
    do {
        status = drop(me, 0, 2000000000);
    } while ((status != KVCL_OK) && (kvcl_now_ns() < end));
    s->again += (status == KVCL_OK) ? 1 : 0;
}

/* Rank 0: the last rank, which is stopped, holds these keys. */
static void remove_held(me_t *me)
{
    static kvcl_key_t keys[KEYS];
    const uint64_t    end = kvcl_now_ns() + (LONG_MS * UINT64_C(1000000));
    kvcl_status_t     status;
    kvcl_req_h        req;
    unsigned          n = 0, i;

    for (i = 0; i < KEYS; ++i) {
        keys[n] = key_of(size - 1, i, 0);
        n      += is_home(0, &keys[n]) && !is_home((uint32_t)size - 1, &keys[n]) ? 1 : 0;
    }
    while (atomic_load(&s->phase) == 0) {
        usleep(1000);
    }
    status = wait_for(kvcl_store_remove(me->store, keys, n, NULL, &req), &req);
    if ((status != KVCL_OK) || (n == 0)) {
        fprintf(stderr, "%u keys that a stopped rank holds: %s\n", n, kvcl_status_text(status));
        ++s->failed;
    }
    s->found   += (status == KVCL_OK) && (kvcl_comm_view(me->world) == 1) ? 1 : 0;
    s->removes += n;
    while ((kvcl_comm_view(me->world) == 1) && (kvcl_now_ns() < end)) {
        usleep(1000);
    }
    for (i = 0; i < n; ++i) {
        s->found += (get(me, &keys[i], 0) == KVCL_OK) ? 1 : 0;
    }
}

typedef struct job {
    scene_t  scene;
    uint64_t seed;
} job_t;

static int live(const void *arg, int rank)
{
    const job_t         *job   = arg;
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS + 1, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    static me_t         me;
    kvcl_req_h          req;
    unsigned            i;

    me.rank = rank;
    kvcl_rand_seed(&me.rnd, job->seed + (uint64_t)rank);
    params.dir_entries = 1 << 16;
    params.dram_bytes  = 16ull * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
    KVCL_TRY(kvcl_store_open(me.world, &params, &me.store));
    for (i = 0; i < KEYS; ++i) {
        KVCL_TRY(put(&me, i, 0, false));
        me.state[i] = KEY_PUT;
    }
    KVCL_TRY(wait_for(kvcl_barrier(me.world, NULL, &req), &req));
    ++s->ready;
    if (job->scene == ALONE) {
        if (rank == 0) {
            be_alone(&me);
        }
    } else if (job->scene == HOLDS) {
        if (rank == 0) {
            remove_held(&me);
        }
    } else if ((job->scene == STOPPED) && (rank == size - 1)) {
        be_zombie(&me);
        return 0; /* excluded: nothing is left to close in order */
    } else {
        if (job->scene == BOTH) {
            get_orphans(&me);
        }
        work(&me, 1000);
    }
    s->done += (has_one(job->scene) && (rank != 0)) ? 0 : 1;
    while (atomic_load(&s->done) < (has_one(job->scene) ? 1 : kills(job->scene) ? 2 : size - 1)) {
        usleep(1000);
    }
    if (has_one(job->scene)) {
        return 0;
    }
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return 0;
}

static bool wait_ready(void)
{
    int i;

    for (i = 0; (i < LONG_MS) && (atomic_load(&s->ready) < size); ++i) {
        usleep(1000);
    }
    return atomic_load(&s->ready) == size;
}

/* Until the victim is in a put that waits for rank 1, which it has chosen for the copy: the third one, at the latest.
 * If it does not get there before it suspects rank 1, the rest is tested all the same. */
static void wait_for_put(void)
{
    unsigned last = atomic_load(&s->begun), still = 0, i;

    for (i = 0; (i < 500) && (still < 50); ++i) {
        usleep(1000);
        still = (atomic_load(&s->begun) == last) ? still + 1 : 0;
        last  = atomic_load(&s->begun);
    }
}

static void strike(const job_t *job, const pid_t *pids)
{
    kvcl_rand_t rnd;
    unsigned    n;
    int         i;

    kvcl_rand_seed(&rnd, job->seed);
    usleep(100000 + (useconds_t)(kvcl_rand_next(&rnd) % 300000));
    if (kills(job->scene)) {
        kill(pids[3], SIGKILL);
        atomic_store(&s->phase, 1);
        usleep((job->scene == BOTH) ? 0 : (useconds_t)(kvcl_rand_next(&rnd) % 200000));
        atomic_store(&s->second, true);
        kill(pids[2], SIGKILL);
    } else if (job->scene == STOPPED) {
        atomic_store(&s->held, true);
        n = atomic_load(&s->begun);
        for (i = 0; (i < LONG_MS) && (atomic_load(&s->begun) < n + 2); ++i) {
            usleep(1000); /* those calls that began before have ended */
        }
        kill(pids[1], SIGSTOP);
        wait_for_put();
        kill(pids[3], SIGSTOP);
        kill(pids[1], SIGCONT);
        atomic_store(&s->phase, 1);
        for (i = 0; (i < LONG_MS) && !atomic_load(&s->excluded); ++i) {
            usleep(1000);
        }
        atomic_store(&s->resumed_ns, kvcl_now_ns());
        kill(pids[3], SIGCONT);
        for (i = 0; (i < LONG_MS) && (atomic_load(&s->zombie) + atomic_load(&s->fenced) == 0); ++i) {
            usleep(1000); /* it has begun something since */
        }
    } else if (job->scene == HOLDS) {
        kill(pids[3], SIGSTOP);
        atomic_store(&s->phase, 1);
        for (i = 0; (i < 2 * LONG_MS) && (atomic_load(&s->done) == 0); ++i) {
            usleep(1000);
        }
        kill(pids[3], SIGCONT);
    } else {
        kill(pids[1], SIGSTOP);
        kill(pids[2], SIGSTOP);
        usleep(900000); /* its lease is over */
        atomic_store(&s->phase, 1);
        while (atomic_load(&s->phase) < 2) {
            usleep(1000);
        }
        kill(pids[1], SIGCONT);
        kill(pids[2], SIGCONT);
    }
    atomic_store(&s->phase, 2);
}

static bool run(const char *name, const job_t *job)
{
    const uint32_t ranks[RANKS] = {0, 1, 2, 3};
    pid_t          pids[RANKS];
    int            i, status;
    bool           right;

    s      = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size   = (job->scene == ALONE) ? 3 : RANKS;
    victim = kills(job->scene) ? 2 : RANKS;
    right  = (kvcl_shard_map_build(&homes, 1, ranks, (uint32_t)size) == KVCL_OK);
    start_ranks(size, live, job, pids);
    right = wait_ready() && right;
    if (right) {
        strike(job, pids);
    }
    for (i = 0; i < size; ++i) {
        if ((uint32_t)i >= victim) {
            waitpid(pids[i], &status, 0);
        } else {
            right = rank_ends_well(pids[i]) && right;
        }
    }
    right = right && (s->lost == 0) && (s->found == 0) && (s->wrong == 0) && (s->failed == 0) && (s->zombie == 0);
    right = right && ((job->scene != STOPPED) || (s->fenced > 0));
    right = right && ((job->scene != ALONE) || ((s->no_quorum == 4) && (s->again == 1)));
    printf("%s %s, seed %llu: %llu puts, %llu removals, %llu gets; lost %llu, found late %llu, found again %llu, "
           "wrong %llu, failed %llu, by the zombie %llu of %llu\n", right ? "ok" : "WRONG", name,
           (unsigned long long)job->seed, (unsigned long long)s->puts, (unsigned long long)s->removes,
           (unsigned long long)s->gets, (unsigned long long)s->lost, (unsigned long long)s->late,
           (unsigned long long)s->found, (unsigned long long)s->wrong, (unsigned long long)s->failed,
           (unsigned long long)s->zombie, (unsigned long long)(s->zombie + s->fenced));
    munmap(s, sizeof(*s));
    return right;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"killed", "both", "stopped", "alone", "holds"};
    const char               *text   = getenv("TEST_SEED");
    job_t                    job     = {.seed = (text != NULL) ? strtoull(text, NULL, 10) : kvcl_now_ns() % 1000000};
    int                      bad     = 0, i;

    for (i = 0; i < SCENES; ++i) {
        if ((argc < 2) || (strcmp(argv[1], names[i]) == 0)) {
            job.scene = (scene_t)i;
            set_views(kills(job.scene) ? PATIENT_MS : (job.scene == STOPPED) ? STOPPED_MS : 1000);
            bad += run(names[i], &job) ? 0 : 1;
        }
    }
    return (bad == 0) ? 0 : 1;
}
