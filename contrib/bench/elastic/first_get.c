/*
 * From SIGKILL of a rank to verified gets of the keys that it has put, each of which has a second copy (KVCL_VIEWS).
 * Ranks are forked here; each puts KEYS keys, two copies each. The survivors get keys of all ranks, one a call, while
 * the last rank is killed. Two lines as those of elastic: until a survivor's first verified get that began afterwards,
 * and until it has got each of that rank's keys, one after the other; then how many gets failed or brought wrong bytes.
 *   first_get RANKS ROUNDS
 */
#include "test/multi/start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS_MAX = 16, SAMPLES = 1 << 15, KEYS = 32, BLOCK = 4096 };

typedef struct shared {
    _Atomic int      ready, done, end;
    _Atomic uint64_t killed_ns, gets, failed, wrong;
    _Atomic uint64_t first_ns[RANKS_MAX], key_ns[RANKS_MAX][KEYS]; /* after the kill */
} shared_t;

typedef struct samples {
    double ms[SAMPLES];
    int    n;
} samples_t;

static shared_t  *shared;
static int       size;
static pid_t     pids[RANKS_MAX];
static samples_t first, each;

/* ---- a rank ---- */

static void finish(kvcl_status_t posted, kvcl_req_h *req)
{
    KVCL_TRY(posted);
    KVCL_TRY(kvcl_req_wait(*req, KVCL_WAIT_FOREVER));
}

static kvcl_key_t key_of(int rank, int i, unsigned char *block)
{
    kvcl_key_t key;
    char       name[32];

    kvcl_key_from_string(name, (size_t)snprintf(name, sizeof(name), "first/%d/%d", rank, i), &key);
    memset(block, 1 + (((rank * KEYS) + i) % 255), BLOCK);
    return key;
}

static void put_mine(kvcl_store_h store, kvcl_cache_h cache, int rank)
{
    static unsigned char block[BLOCK];
    kvcl_xfer_params_t   params = KVCL_XFER_PARAMS_INIT;
    const uint32_t       id     = 0;
    uint8_t              copies;
    kvcl_key_t           key;
    kvcl_req_h           req;
    int                  i;

    params.copies = &copies;
    for (i = 0; i < KEYS; ++i) {
        key = key_of(rank, i, block);
        KVCL_TRY(kvcl_cache_write_block(cache, id, block, BLOCK));
        finish(kvcl_store_put(store, &key, 1, cache, &id, &params, &req), &req);
        if (copies != 2) {
            fprintf(stderr, "first_get: a put made %d copies\n", copies);
            _exit(1);
        }
    }
}

/* @return whether the block came, with the right bytes. */
static bool get_one(kvcl_store_h store, kvcl_cache_h cache, int rank, int i)
{
    static unsigned char want[BLOCK], got[BLOCK];
    const uint32_t       id  = 0;
    const kvcl_key_t     key = key_of(rank, i, want);
    kvcl_req_h           req;
    kvcl_status_t        status;

    memset(got, 0, sizeof(got));
    KVCL_TRY(kvcl_cache_write_block(cache, id, got, BLOCK));
    status = kvcl_store_get(store, &key, 1, cache, &id, NULL, NULL, &req);
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    atomic_fetch_add(&shared->gets, 1);
    if (status != KVCL_OK) {
        fprintf(stderr, "first_get: %s\n", kvcl_status_text(status));
        atomic_fetch_add(&shared->failed, 1);
        return false;
    }
    KVCL_TRY(kvcl_cache_read_block(cache, id, got, BLOCK));
    if (memcmp(got, want, BLOCK) != 0) {
        atomic_fetch_add(&shared->wrong, 1);
        return false;
    }
    return true;
}

static void survive(kvcl_store_h store, kvcl_cache_h cache, int rank)
{
    uint64_t killed;
    int      turn, i;

    for (turn = rank; atomic_load(&shared->killed_ns) == 0; ++turn) {
        (void)get_one(store, cache, turn % size, (turn / size) % KEYS);
    }
    killed = atomic_load(&shared->killed_ns);
    for (turn = 0; turn < KEYS; ++turn) {
        i = (turn + (rank * 5)) % KEYS; /* the survivors begin with different keys */
        while (!get_one(store, cache, size - 1, i)) {
        }
        atomic_store(&shared->key_ns[rank][i], kvcl_now_ns() - killed);
        if (turn == 0) {
            atomic_store(&shared->first_ns[rank], kvcl_now_ns() - killed);
        }
    }
    for (turn = 0; turn < size * KEYS; ++turn) {
        (void)get_one(store, cache, turn % size, turn / size);
    }
}

static int live(const void *arg, int rank)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(1, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_context_h      ctx;
    kvcl_comm_h         world;
    kvcl_cache_h        cache;
    kvcl_store_h        store;
    kvcl_req_h          req;

    (void)arg;
    params.dir_entries = 8192;
    params.dram_bytes  = (uint64_t)8 * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "c", &layout, NULL, &cache));
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    put_mine(store, cache, rank);
    finish(kvcl_barrier(world, NULL, &req), &req);
    atomic_fetch_add(&shared->ready, 1);
    while (rank == size - 1) {
        pause(); /* it is killed */
    }
    survive(store, cache, rank);
    atomic_fetch_add(&shared->done, 1);
    while (atomic_load(&shared->end) == 0) {
        usleep(1000);
    }
    return 0;
}

/* ---- the parent ---- */

static void wait_value(_Atomic int *word, int value)
{
    int status;

    while (atomic_load(word) < value) {
        usleep(200);
        if ((waitpid(-1, &status, WNOHANG) > 0) && !WIFSIGNALED(status)) {
            fprintf(stderr, "first_get: a rank has ended\n");
            exit(1);
        }
    }
}

static void add(samples_t *to, uint64_t ns)
{
    if (to->n < SAMPLES) {
        to->ms[to->n++] = (double)ns / 1e6;
    }
}

static void one_round(void)
{
    int rank, i;

    start_ranks(size, live, NULL, pids);
    wait_value(&shared->ready, size);
    usleep(500000); /* each has its lease by now */
    atomic_store(&shared->killed_ns, kvcl_now_ns());
    kill(pids[size - 1], SIGKILL);
    wait_value(&shared->done, size - 1);
    for (rank = 0; rank < size - 1; ++rank) {
        add(&first, atomic_load(&shared->first_ns[rank]));
        for (i = 0; i < KEYS; ++i) {
            add(&each, atomic_load(&shared->key_ns[rank][i]));
        }
    }
    atomic_store(&shared->end, 1);
    for (rank = 0; rank < size; ++rank) {
        kill(pids[rank], SIGKILL);
        (void)waitpid(pids[rank], NULL, 0);
    }
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static void report(samples_t *of, const char *name)
{
    qsort(of->ms, (size_t)of->n, sizeof(of->ms[0]), by_value);
    printf("%-44s %9.2f %9.2f %9.2f %-8s %6d   p99 200, TCP 500\n", name, of->ms[of->n / 2],
           of->ms[(of->n - 1) * 99 / 100], of->ms[of->n - 1], "ms", of->n);
}

int main(int argc, char **argv)
{
    const int rounds = (argc > 2) ? atoi(argv[2]) : 0;
    uint64_t  gets = 0, failed = 0, wrong = 0;
    int       i;

    size   = (argc > 1) ? atoi(argv[1]) : 0;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 3) || (size > RANKS_MAX) || (rounds < 1) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: first_get RANKS ROUNDS\n");
        return 1;
    }
    setenv("KVCL_VIEWS", "yes", 1);
    for (i = 0; i < rounds; ++i) {
        memset(shared, 0, sizeof(*shared));
        one_round();
        gets   += atomic_load(&shared->gets);
        failed += atomic_load(&shared->failed);
        wrong  += atomic_load(&shared->wrong);
    }
    report(&first, "SIGKILL to the first verified get");
    report(&each, "SIGKILL to each key that it held");
    printf("   %llu gets: %llu failed, %llu wrong (0, 0)\n", (unsigned long long)gets, (unsigned long long)failed,
           (unsigned long long)wrong);
    return ((failed == 0) && (wrong == 0)) ? 0 : 1;
}
