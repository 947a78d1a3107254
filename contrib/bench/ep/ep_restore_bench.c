/*
 * kvcl_ep_restore (kvcl_ep_restore.h) beside a plain kvcl_get of the same blocks, in one run and in turns. Every rank
 * gets all experts of its next rank.
 *
 *   mpirun -n 4 ep_restore_bench [MIB [SLOTS]]       default: weights of 4 MiB, 16 slots a rank
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 11, ROWS = 3 };

static const char *const names[ROWS] = {"kvcl_ep_restore, verified", "kvcl_get", "kvcl_ep_weights_sum alone"};

static double us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec * 1e6) + ((double)t.tv_nsec / 1e3);
}

static void must(kvcl_status_t posted, const kvcl_req_h *req)
{
    KVCL_TRY(posted);
    KVCL_TRY(kvcl_req_wait(*req, KVCL_WAIT_FOREVER));
}

static double slowest(kvcl_comm_h comm, double mine)
{
    kvcl_req_h req;
    double     most;

    must(kvcl_allreduce(comm, &mine, &most, 1, KVCL_DTYPE_F64, KVCL_REDUCE_MAX, NULL, &req), &req);
    return most;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

typedef struct bench {
    kvcl_context_h    ctx;
    kvcl_comm_h       comm;
    kvcl_ep_params_t  p;
    kvcl_ep_weights_t w;
    uint32_t          per; /* slots of a rank */
    size_t            bytes, n;
    uint32_t          *blocks, *there, *here;
    uint64_t          *sums, *mine;
    kvcl_ep_move_t    *moves;
    int32_t           *old, *new;
    double            times[ROWS][ROUNDS];
} bench_t;

static void *some(size_t n, size_t each)
{
    void *p = calloc(n, each);

    if (p == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return p;
}

static void make(bench_t *b)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2 * b->per, b->bytes);
    kvcl_req_h          req;
    uint32_t            i;

    KVCL_TRY(kvcl_cache_create(b->ctx, "experts", &layout, NULL, &b->w.cache));
    b->p.ranks   = (uint32_t)kvcl_comm_size(b->comm);
    b->p.slots   = b->per * b->p.ranks;
    b->p.experts = b->p.slots;
    b->old       = some(b->p.slots, sizeof(*b->old));
    b->new       = some(b->p.slots, sizeof(*b->new));
    b->moves     = some(b->p.slots, sizeof(*b->moves));
    b->blocks    = some(b->p.slots, sizeof(*b->blocks));
    b->sums      = some(b->p.slots, sizeof(*b->sums));
    b->mine      = some(b->per, sizeof(*b->mine));
    b->there     = some(b->per, sizeof(*b->there));
    b->here      = some(b->per, sizeof(*b->here));
    for (i = 0; i < b->p.slots; ++i) {
        b->old[i] = (int32_t)i;
        b->new[i] = (int32_t)((i + b->per) % b->p.slots);
    }
    for (i = 0; i < b->per; ++i) {
        memset((char *)kvcl_cache_base(b->w.cache, 0) + (i * b->bytes), 1 + kvcl_comm_rank(b->comm) + (int)i, b->bytes);
        KVCL_TRY(kvcl_ep_weights_sum(b->w.cache, i, &b->mine[i]));
        b->there[i] = i;
        b->here[i]  = b->per + i;
    }
    must(kvcl_allgather(b->comm, b->mine, b->per * sizeof(*b->mine), b->sums, NULL, &req), &req);
    b->w.comm = b->comm;
    b->w.sums = b->sums;
    KVCL_TRY(kvcl_ep_moves(&b->p, b->old, b->new, b->moves, sizeof(*b->moves), b->p.slots, &b->n, NULL));
}

static void run(bench_t *b, unsigned round)
{
    const kvcl_sel_t remote = kvcl_sel_of(b->there, b->per), local = kvcl_sel_of(b->here, b->per);
    const int        next   = (kvcl_comm_rank(b->comm) + 1) % kvcl_comm_size(b->comm);
    kvcl_req_h       req;
    uint32_t         i;
    double           begin;

    (void)slowest(b->comm, 0); /* all begin together */
    begin = us();
    KVCL_TRY(kvcl_ep_restore(&b->p, &b->w, b->old, b->moves, sizeof(*b->moves), b->n, b->blocks, NULL));
    b->times[0][round] = slowest(b->comm, us() - begin);
    begin              = us();
    must(kvcl_get(b->comm, next, b->w.cache, &remote, &local, NULL, &req), &req);
    b->times[1][round] = slowest(b->comm, us() - begin);
    begin              = us();
    for (i = 0; i < b->per; ++i) {
        KVCL_TRY(kvcl_ep_weights_sum(b->w.cache, b->per + i, &b->mine[i]));
    }
    b->times[2][round] = slowest(b->comm, us() - begin);
}

int main(int argc, char **argv)
{
    bench_t    b = {.p = KVCL_EP_PARAMS_INIT, .w = KVCL_EP_WEIGHTS_INIT,
                    .bytes = ((argc > 1) ? strtoul(argv[1], NULL, 0) : 4) << 20,
                    .per = (argc > 2) ? (uint32_t)strtoul(argv[2], NULL, 0) : 16};
    kvcl_req_h req;
    unsigned   row, round;

    KVCL_TRY(kvcl_init(NULL, &b.ctx));
    KVCL_TRY(kvcl_comm_world(b.ctx, &b.comm));
    make(&b);
    for (round = 0; round < ROUNDS; ++round) {
        run(&b, round);
    }
    for (row = 0; (row < ROWS) && (kvcl_comm_rank(b.comm) == 0); ++row) {
        qsort(b.times[row], ROUNDS, sizeof(b.times[0][0]), ascending);
        printf("%-28s %9.0f us median %9.0f us least %8.2f GB/s a rank\n", names[row], b.times[row][ROUNDS / 2],
               b.times[row][0], (double)(b.per * b.bytes) / b.times[row][ROUNDS / 2] / 1e3);
    }
    must(kvcl_barrier(b.comm, NULL, &req), &req);
    kvcl_cache_destroy(b.w.cache);
    kvcl_finalize(b.ctx);
    return 0;
}
