/*
 * A rank that holds copies of values, some of them spread over ranks, is killed. The others continue to get every
 * value, soon and correctly.
 *   values_death RANKS
 *
 * The ranks are forked here and meet at a rendezvous address, since mpirun would end them all (as in store_death.c).
 */
#include "start_ranks.h"
#include "values_test.h"
#include "base/clock.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { RANKS_MAX = 8, VALUES = 5, ROUNDS = 3, ROUNDS_AFTER = 4, WAIT_S = 60 };

typedef struct shared {
    _Atomic unsigned ready;
    _Atomic uint64_t struck_ns; /* when the victim was hit; 0: not yet */
    _Atomic uint64_t gets, failed, wrong;
    _Atomic unsigned rounds[RANKS_MAX]; /* number of times a rank has got all values */
} shared_t;

static size_t bytes_of(unsigned i)
{
    static const size_t sizes[VALUES] = {1000, B, (3 * B) + 5, (2 * MIB) + 1, 9 * MIB};

    return sizes[i];
}

static void put_mine(world_t *w, kvcl_store_h store, uint8_t *buf)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    uint8_t            copies;
    kvcl_key_t         key;
    kvcl_req_h         req;
    unsigned           i;

    p.copies = &copies;
    for (i = 0; i < VALUES; ++i) {
        key    = key_of(w, "death", w->rank, i);
        copies = 0;
        make_bytes(what_of(&key, 0), buf, bytes_of(i));
        CHECK(w, (DO(kvcl_store_put_value(store, &key, buf, bytes_of(i), &p, &req)) == KVCL_OK) && (copies == 2),
              "value %u has %u copies", i, copies);
    }
}

static void get_one(world_t *w, kvcl_store_h store, shared_t *s, int rank, unsigned i, uint8_t *buf)
{
    kvcl_key_t    key = key_of(w, "death", rank, i);
    kvcl_req_h    req;
    kvcl_status_t status;

    memset(buf, 0, bytes_of(i));
    status = DO(kvcl_store_get_value(store, &key, buf, bytes_of(i), NULL, &req));
    ++s->gets;
    if (status != KVCL_OK) {
        fprintf(stderr, "rank %d: value %d/%u: %s\n", w->rank, rank, i, kvcl_status_text(status));
        ++s->failed;
    } else if (!same_bytes(what_of(&key, 0), buf, bytes_of(i))) {
        ++s->wrong;
    }
}

typedef struct job {
    shared_t *s;
    int      size;
    uint64_t seed;
} job_t;

static int live(const void *arg, int rank)
{
    const job_t  *job = arg;
    shared_t     *s   = job->s;
    int          size = job->size, r;
    world_t      w    = {.seed = job->seed};
    uint8_t      *buf = malloc(10 * MIB);
    kvcl_store_h store;
    unsigned     i, after = 0;

    KVCL_TRY(kvcl_init(NULL, &w.ctx));
    KVCL_TRY(kvcl_comm_world(w.ctx, &w.comm));
    w.rank = rank;
    w.size = size;
    store  = open_store(&w, 4096, 2);
    put_mine(&w, store, buf);
    sync_all(&w);
    ++s->ready;
    while (rank == size - 1) {
        pause();
    }
    do {
        for (r = 0; r < size; ++r) {
            for (i = 0; i < VALUES; ++i) {
                get_one(&w, store, s, r, i, buf);
            }
        }
        ++s->rounds[rank];
        after = (atomic_load(&s->struck_ns) != 0) ? after + 1 : 0;
    } while (after < ROUNDS_AFTER);
    ++s->ready;
    while (atomic_load(&s->ready) < (unsigned)((2 * size) - 1)) {
        usleep(1000);
    }
    kvcl_store_close(store);
    kvcl_finalize(w.ctx);
    free(buf);
    return (w.failed == 0) ? 0 : 1;
}

static bool has_got_all(const shared_t *s, int rank)
{
    uint64_t begun = kvcl_now_ns();

    while (atomic_load(&s->rounds[rank]) < ROUNDS) {
        if (kvcl_now_ns() - begun > WAIT_S * 1000000000ull) {
            printf("WRONG rank %d got all values %u times only\n", rank, atomic_load(&s->rounds[rank]));
            return false;
        }
        usleep(1000);
    }
    return true;
}

int main(int argc, char **argv)
{
    shared_t   *s   = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int        size = (argc > 1) ? atoi(argv[1]) : 4, status, i;
    const char *given = getenv("TEST_SEED");
    uint64_t   seed = (given != NULL) ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    job_t      job  = {s, size, seed};
    pid_t      pids[RANKS_MAX];
    bool       right = true;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    setenv("KVCL_STORE_STRIPE", "4M", 1);
    start_ranks(size, live, &job, pids);
    for (i = 0; (i < 60000) && (atomic_load(&s->ready) < (unsigned)size); ++i) {
        usleep(1000);
    }
    for (i = 0; i < size - 1; ++i) {
        right = has_got_all(s, i) && right;
    }
    kill(pids[size - 1], SIGKILL);
    waitpid(pids[size - 1], &status, 0); /* a dead process counts as alive until it is waited for */
    atomic_store(&s->struck_ns, kvcl_now_ns());
    for (i = 0; i < size - 1; ++i) {
        right = rank_ends_well(pids[i]) && right;
    }
    right = right && (s->failed == 0) && (s->wrong == 0) && (s->gets != 0);
    printf("%s a holder of values killed, %d ranks: %llu gets, %llu failed, %llu wrong\n", right ? "ok" : "WRONG", size,
           (unsigned long long)s->gets, (unsigned long long)s->failed, (unsigned long long)s->wrong);
    return right ? 0 : 1;
}
