/*
 * Dispatch and combine (kvcl_ep_step.h) beside their floors, in one run and in turns: kvcl_alltoallv of the bytes that
 * travel between ranks, and memcpy of all bytes. Every output is checked.
 *
 *   mpirun -n 4 ep_step_bench [TOKENS [HIDDEN [TOP_K [SLOTS]]]]      default 128 7168 8 32; bf16
 *
 * Each token chooses TOP_K slots at random. The experts multiply by 1, so the sum of a token's weights, 1, gives the
 * token back. Times are those of the slowest rank in a round, from a barrier on; the median of the rounds is printed.
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 31, WARM = 4, ROWS = 5 };

static const char *const names[ROWS] = {"dispatch", "combine", "combine, outputs of the caller",
                                        "floor: kvcl_alltoallv", "floor: memcpy"};

typedef struct bench {
    kvcl_context_h ctx;
    kvcl_comm_h    comm;
    kvcl_ep_h      ep;
    uint32_t       rank, size, tokens, hidden, top_k, slots;
    size_t         row;
    char           *x, *out, *y, *from, *to; /* from, to: as many rows as a rank may send, and get */
    int64_t        *ids;
    float          *weights;
    uint64_t       *out_lens, *in_lens; /* bytes from and to each rank */
    double         times[ROWS][ROUNDS];
} bench_t;

static double us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec * 1e6) + ((double)t.tv_nsec / 1e3);
}

static void must(kvcl_status_t posted, kvcl_req_h *req)
{
    KVCL_TRY(posted);
    KVCL_TRY(kvcl_req_wait(*req, KVCL_WAIT_FOREVER));
}

static void barrier(bench_t *b)
{
    kvcl_req_h req = NULL;

    must(kvcl_barrier(b->comm, NULL, &req), &req);
}

static void note(bench_t *b, unsigned row, unsigned round, double begin)
{
    double     mine = us() - begin, most;
    kvcl_req_h req  = NULL;

    must(kvcl_allreduce(b->comm, &mine, &most, 1, KVCL_DTYPE_F64, KVCL_REDUCE_MAX, NULL, &req), &req);
    b->times[row][round] = most;
}

static void choose(bench_t *b, unsigned round)
{
    uint64_t state = (b->rank * 1000003u) + round + 1;
    uint32_t t, k, i;

    for (t = 0; t < b->tokens; ++t) {
        int64_t *ids = b->ids + ((size_t)t * b->top_k);

        for (k = 0; k < b->top_k; ++k) {
            do {
                state  = (state * UINT64_C(6364136223846793005)) + UINT64_C(1442695040888963407);
                ids[k] = (int64_t)((state >> 33) % b->slots);
                for (i = 0; (i < k) && (ids[i] != ids[k]); ++i) {
                }
            } while (i < k);
            b->weights[((size_t)t * b->top_k) + k] = 1.0f / (float)b->top_k;
        }
    }
}

/* What a step moves, as an all-to-all: the rows for other ranks. */
static size_t lengths(bench_t *b)
{
    const uint32_t local = b->slots / b->size;
    kvcl_req_h     req   = NULL;
    size_t         i, all = 0;

    memset(b->in_lens, 0, b->size * sizeof(*b->in_lens));
    for (i = 0; i < (size_t)b->tokens * b->top_k; ++i) {
        b->in_lens[b->ids[i] / local] += (b->ids[i] / local != b->rank) ? b->row : 0;
    }
    must(kvcl_alltoall(b->comm, b->in_lens, sizeof(*b->in_lens), b->out_lens, NULL, &req), &req);
    for (i = 0; i < b->size; ++i) {
        all += b->in_lens[i];
    }
    return all;
}

/* The experts: y = x, row for row. */
static void compute(const bench_t *b, const kvcl_ep_batch_t *batch, char *y)
{
    uint32_t e;

    for (e = 0; e < batch->experts; ++e) {
        memcpy(y + ((size_t)e * batch->rows * b->row), (const char *)batch->x + ((size_t)e * batch->rows * b->row),
               batch->counts[e] * b->row);
    }
}

static void step(bench_t *b, unsigned round, unsigned row)
{
    kvcl_ep_batch_t  batch  = KVCL_EP_BATCH_INIT;
    kvcl_ep_result_t result = KVCL_EP_RESULT_INIT;
    char             *y     = (row == 1) ? NULL : b->y;
    double           begin;

    barrier(b);
    begin = us();
    KVCL_TRY(kvcl_ep_dispatch(b->ep, b->x, b->ids, b->tokens, b->top_k, &batch));
    note(b, 0, round, begin);
    compute(b, &batch, (y != NULL) ? y : batch.y);
    memset(b->out, 0, b->tokens * b->row);
    barrier(b);
    begin = us();
    KVCL_TRY(kvcl_ep_combine(b->ep, y, b->weights, b->out, NULL, &result));
    note(b, row, round, begin);
    if ((result.tokens_lost != 0) || (memcmp(b->out, b->x, b->tokens * b->row) != 0)) {
        fprintf(stderr, "rank %u: wrong outputs, %u tokens lost\n", b->rank, result.tokens_lost);
        exit(1);
    }
}

static void floors(bench_t *b, unsigned round)
{
    kvcl_req_h req = NULL;
    double     begin;

    barrier(b);
    begin = us();
    must(kvcl_alltoallv(b->comm, b->from, b->in_lens, NULL, b->to, b->out_lens, NULL, NULL, &req), &req);
    note(b, 3, round, begin);
    barrier(b);
    begin = us();
    memcpy(b->to, b->from, (size_t)b->tokens * b->top_k * b->row);
    note(b, 4, round, begin);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void *some(size_t bytes)
{
    char   *p = malloc(bytes + 1);
    size_t i;

    if (p == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (i = 0; i < bytes; ++i) {
        p[i] = (char)((i & 1) ? 0x3f : i >> 1); /* bf16 numbers */
    }
    return p;
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise)
{
    return (argc > i) ? (uint32_t)strtoul(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
    bench_t               b = {.tokens = number(argc, argv, 1, 128), .hidden = number(argc, argv, 2, 7168),
                               .top_k = number(argc, argv, 3, 8), .slots = number(argc, argv, 4, 32)};
    kvcl_ep_open_params_t p = KVCL_EP_OPEN_PARAMS_INIT;
    size_t                moved = 0, most;
    unsigned              round, row;

    KVCL_TRY(kvcl_init(NULL, &b.ctx));
    KVCL_TRY(kvcl_comm_world(b.ctx, &b.comm));
    b.rank       = (uint32_t)kvcl_comm_rank(b.comm);
    b.size       = (uint32_t)kvcl_comm_size(b.comm);
    b.row        = (size_t)b.hidden * 2;
    p.slots      = b.slots;
    p.max_tokens = b.tokens;
    p.top_k      = b.top_k;
    p.hidden     = b.hidden;
    KVCL_TRY(kvcl_ep_open(b.comm, &p, &b.ep));
    most       = (size_t)b.tokens * b.top_k * b.row;
    b.x        = some(b.tokens * b.row);
    b.out      = some(b.tokens * b.row);
    b.y        = some((size_t)b.slots * b.tokens * b.row);
    b.from     = some(most);
    b.to       = some(most * b.size);
    b.ids      = some((size_t)b.tokens * b.top_k * sizeof(*b.ids));
    b.weights  = some((size_t)b.tokens * b.top_k * sizeof(*b.weights));
    b.in_lens  = some(b.size * sizeof(*b.in_lens));
    b.out_lens = some(b.size * sizeof(*b.out_lens));
    for (round = 0; round < ROUNDS + WARM; ++round) {
        choose(&b, round);
        moved = lengths(&b);
        step(&b, round % ROUNDS, 1);
        step(&b, round % ROUNDS, 2);
        floors(&b, round % ROUNDS);
    }
    if (b.rank == 0) {
        printf("%u ranks, %u tokens of %u bf16, top %u of %u slots: %.1f MB of rows a rank, %.1f MB to others\n",
               b.size, b.tokens, b.hidden, b.top_k, b.slots, (double)most / 1e6, (double)moved / 1e6);
        for (row = 0; row < ROWS; ++row) {
            qsort(b.times[row], ROUNDS, sizeof(b.times[0][0]), ascending);
            printf("%-32s %9.0f us median %9.0f us least %8.2f GB/s a rank\n", names[row], b.times[row][ROUNDS / 2],
                   b.times[row][0], (double)((row == 3) ? moved : most) / b.times[row][ROUNDS / 2] / 1e3);
        }
    }
    barrier(&b);
    kvcl_ep_close(b.ep);
    kvcl_finalize(b.ctx);
    return 0;
}
