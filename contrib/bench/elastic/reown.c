/*
 * How long shards of a large directory take to move after a death, and to a rank that joins (KVCL_VIEWS). Ranks are
 * forked here; each puts its part of the keys, with one block of 64 bytes a key. One line for each figure, as elastic.
 *   reown RANKS ROUNDS CASE [KEYS] [REPLICAS]   CASE: death, join; KEYS: of all ranks, 1,000,000
 *
 * death: from SIGKILL of the last rank to the moment at which the last survivor logs that shards have moved.
 * join:  the time of kvcl_store_open() in a process that has joined the job, which ends when its shards are there.
 */
#include "test/multi/start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS_MAX = 16, ROUNDS_MAX = 64, BYTES = 64, BATCH = 512 };

typedef struct shared {
    _Atomic int      done, joined;
    _Atomic uint64_t join_ns;
    char             address[64];
} shared_t;

static shared_t *shared;
static int      size;
static uint64_t keys = 1000000, replicas = 1;
static char     folder[] = "/tmp/kvcl-reown-XXXXXX";
static pid_t    pids[RANKS_MAX + 1];

/* ---- a rank ---- */

static kvcl_store_h open_store(kvcl_comm_h world, uint64_t flags)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store  = NULL;

    params.flags       = flags;
    params.dir_entries = 4 * replicas * keys / (uint64_t)(size - 2); /* while shards move, an entry is at both homes */
    params.block_bytes = BYTES;
    params.dram_bytes  = 2 * replicas * BYTES * keys / (uint64_t)(size - 1);
    params.replicas    = replicas;
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    return store;
}

static void put_all(kvcl_context_h ctx, kvcl_store_h store, int rank)
{
    kvcl_layout_t   layout = KVCL_LAYOUT_BYTES(BATCH, BYTES);
    kvcl_key_t      list[BATCH];
    uint32_t        ids[BATCH], n, i;
    const uint64_t  mine = keys / (uint64_t)size;
    kvcl_cache_h    cache;
    kvcl_req_h      req;
    uint64_t        at;
    char            name[32];

    KVCL_TRY(kvcl_cache_create(ctx, "c", &layout, NULL, &cache));
    for (at = 0; at < mine; at += n) {
        n = (mine - at < BATCH) ? (uint32_t)(mine - at) : BATCH;
        for (i = 0; i < n; ++i) {
            int len = snprintf(name, sizeof(name), "%d/%llu", rank, (unsigned long long)(at + i));

            kvcl_key_from_string(name, (size_t)len, &list[i]);
            ids[i] = i;
        }
        KVCL_TRY(kvcl_store_put(store, list, n, cache, ids, NULL, &req));
        KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    }
}

static int live(const void *arg, int rank)
{
    char           path[64];
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
    uint64_t       from;
    size_t         len;
    int            fd;

    (void)arg;
    snprintf(path, sizeof(path), "%s/%d", folder, rank);
    fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    (void)dup2(fd, STDERR_FILENO);
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    from  = kvcl_now_ns();
    store = open_store(world, (rank == size) ? KVCL_STORE_JOIN : 0);
    if (rank == size) {
        atomic_store(&shared->join_ns, kvcl_now_ns() - from);
        atomic_store(&shared->joined, 1);
    } else {
        if (rank == 0) {
            KVCL_TRY(kvcl_join_address(ctx, shared->address, sizeof(shared->address), &len));
        }
        put_all(ctx, store, rank);
        atomic_fetch_add(&shared->done, 1);
    }
    for (;;) {
        pause(); /* it is killed */
    }
}

/* ---- the parent ---- */

static void wait_value(_Atomic int *word, int value)
{
    int status;

    while (atomic_load(word) < value) {
        usleep(1000);
        if (waitpid(-1, &status, WNOHANG) > 0) {
            fprintf(stderr, "reown: a rank has ended: see %s\n", folder);
            exit(1);
        }
    }
}

static bool has_moved(int rank)
{
    static char text[1 << 16];
    char        path[64];
    FILE        *file;
    size_t      n;

    snprintf(path, sizeof(path), "%s/%d", folder, rank);
    file = fopen(path, "r");
    n    = (file != NULL) ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[n] = '\0';
    if (file != NULL) {
        fclose(file);
    }
    return strstr(text, "shards have moved") != NULL;
}

static double death(void)
{
    const uint64_t from = kvcl_now_ns();
    int            rank;

    kill(pids[size - 1], SIGKILL);
    for (rank = 0; rank < size - 1; ++rank) {
        while (!has_moved(rank)) {
            usleep(1000);
        }
    }
    return (double)(kvcl_now_ns() - from) / 1e6;
}

static double join(void)
{
    pids[size] = fork();
    if (pids[size] == 0) {
        char text[16];

        snprintf(text, sizeof(text), "%d", size);
        setenv("KVCL_RANK", text, 1);
        setenv("KVCL_JOIN", shared->address, 1);
        alarm(RANK_LIVES_S);
        _exit(live(NULL, size));
    }
    wait_value(&shared->joined, 1);
    return (double)atomic_load(&shared->join_ns) / 1e6;
}

static void remove_folder(void)
{
    char path[64];
    int  rank;

    for (rank = 0; rank <= size; ++rank) {
        snprintf(path, sizeof(path), "%s/%d", folder, rank);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    const int  rounds = (argc > 2) ? atoi(argv[2]) : 0;
    const bool dies   = (argc > 3) && (strcmp(argv[3], "death") == 0);
    double     ms[ROUNDS_MAX];
    char       text[16], line[96];
    int        i, rank;

    size     = (argc > 1) ? atoi(argv[1]) : 0;
    keys     = (argc > 4) ? strtoull(argv[4], NULL, 10) : keys;
    replicas = (argc > 5) ? strtoull(argv[5], NULL, 10) : replicas;
    shared   = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 3) || (size > RANKS_MAX) || (rounds < 1) || (rounds > ROUNDS_MAX) || (argc < 4) || (keys < 1000) ||
        (replicas < 1) || (replicas > 2) || (shared == MAP_FAILED) || (mkdtemp(folder) == NULL)) {
        fprintf(stderr, "usage: reown RANKS ROUNDS death|join [KEYS] [REPLICAS]\n");
        return 1;
    }
    snprintf(text, sizeof(text), "%d", size + 1);
    setenv("KVCL_VIEWS", "yes", 1);
    setenv("KVCL_SLOTS", text, 1);
    setenv("KVCL_JOIN_AT", "127.0.0.1:0", 1);
    setenv("KVCL_LOG", "info", 1);
    for (i = 0; i < rounds; ++i) {
        memset(shared, 0, sizeof(*shared));
        pids[size] = 0;
        start_ranks(size, live, NULL, pids);
        wait_value(&shared->done, size);
        ms[i] = dies ? death() : join();
        for (rank = 0; rank <= size; ++rank) {
            if (pids[rank] > 0) {
                kill(pids[rank], SIGKILL);
                (void)waitpid(pids[rank], NULL, 0);
            }
        }
    }
    remove_folder();
    qsort(ms, (size_t)rounds, sizeof(ms[0]), by_value);
    snprintf(line, sizeof(line), "%llu keys, R=%llu: %s", (unsigned long long)keys, (unsigned long long)replicas,
             dies ? "SIGKILL to shards moved" : "a rank joins the store");
    printf("%-44s %9.0f %9.0f %9.0f %-8s %6d   1000\n", line, ms[rounds / 2], ms[(rounds - 1) * 99 / 100],
           ms[rounds - 1], "ms", rounds);
    return 0;
}
