/*
 * Hands a prompt over layer by layer, so that the computation hides the transfer.
 *
 *   mpirun -n 2 layerwise [BLOCKS [ROUNDS]]      (alone: to itself, to verify the bytes)
 *
 * Rank 0 computes a prompt of LAYERS layers, with real work, and sends it; rank 1 receives. Three modes take turns: the
 * transfer alone, the computation alone, and both: one send is posted before the computation begins, and each layer is
 * marked when it is done. The work of a layer is set before each round so that the computation takes as long as the
 * transfer.
 *
 * hidden = (transfer + compute - both) / transfer, the median of the rounds. The last layer's transfer cannot be
 * hidden: with 32 layers at most 97% can. Each rank needs a core of its own (mpirun binds them so): a transfer that
 * copies on all idle cores has fewer of them while a computation runs.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAYERS = 32, TOKENS = 16, HEADS = 8, HEAD_DIM = 128, ROUNDS_MAX = 99, TAG = 7 };

static const uint64_t second = 1000000000;

volatile uint64_t result_of_work; /* never read, which the compiler cannot assume */

typedef struct prompt {
    kvcl_cache_h cache;
    uint32_t     *ids;
    kvcl_sel_t   sel;
    uint64_t     work; /* iterations of mill() for a layer */
} prompt_t;

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ((uint64_t)ts.tv_sec * second) + (uint64_t)ts.tv_nsec;
}

/* Stands for the model: arithmetic that stays in the core. */
static uint64_t mill(uint64_t turns, uint64_t x)
{
    uint64_t i;

    for (i = 0; i < turns; ++i) {
        x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9) + i;
    }
    return x;
}

/* The address of block i of a plane. A layer's tensor is [K,V][blocks][tokens][heads][head_dim] of 2 bytes. */
static uint64_t *block_at(const prompt_t *prompt, unsigned layer, unsigned plane, size_t i)
{
    size_t words = TOKENS * HEADS * HEAD_DIM * 2 / sizeof(uint64_t);
    size_t place = (plane * kvcl_cache_blocks(prompt->cache)) + prompt->ids[i];

    return (uint64_t *)kvcl_cache_base(prompt->cache, layer) + (place * words);
}

/* Write the result of the work: a word at the beginning and the end of each block of the layer. */
static void compute_layer(const prompt_t *prompt, unsigned layer, uint64_t round)
{
    size_t   last  = (TOKENS * HEADS * HEAD_DIM * 2 / sizeof(uint64_t)) - 1, i;
    uint64_t value = (round << 16) + layer;
    unsigned plane;

    result_of_work = mill(prompt->work, value);
    for (i = 0; i < prompt->sel.n_blocks; ++i) {
        for (plane = 0; plane < 2; ++plane) {
            block_at(prompt, layer, plane, i)[0]    = value + (i << 32);
            block_at(prompt, layer, plane, i)[last] = value + (i << 32) + plane;
        }
    }
}

static size_t count_wrong(const prompt_t *prompt, unsigned layer, uint64_t round)
{
    size_t   last  = (TOKENS * HEADS * HEAD_DIM * 2 / sizeof(uint64_t)) - 1, wrong = 0, i;
    uint64_t value = (round << 16) + layer;
    unsigned plane;

    for (i = 0; i < prompt->sel.n_blocks; ++i) {
        for (plane = 0; plane < 2; ++plane) {
            wrong += (block_at(prompt, layer, plane, i)[0] != value + (i << 32));
            wrong += (block_at(prompt, layer, plane, i)[last] != value + (i << 32) + plane);
        }
    }
    return wrong;
}

/* Rank 1 reports that its recv is posted. */
static void report_ready(kvcl_comm_h world)
{
    kvcl_req_h req;

    KVCL_TRY(kvcl_send_bytes(world, 0, TAG + 1, "", 1, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
}

static void until_ready(kvcl_comm_h world)
{
    kvcl_req_h req;
    char       byte;

    KVCL_TRY(kvcl_recv_bytes(world, 1, TAG + 1, &byte, 1, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
}

/* Rank 0: returns when the receiver has everything. */
static uint64_t send_prompt(kvcl_comm_h world, int to, const prompt_t *prompt, uint64_t round, int compute)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           began;
    kvcl_req_h         req;
    unsigned           l;

    params.flags = KVCL_LAYERWISE;
    for (l = 0; (l < LAYERS) && !compute; ++l) {
        compute_layer(prompt, l, round);
    }
    until_ready(world);
    began = now_ns();
    KVCL_TRY(kvcl_send(world, to, TAG, prompt->cache, &prompt->sel, &params, &req));
    for (l = 0; l < LAYERS; ++l) {
        if (compute) {
            compute_layer(prompt, l, round);
        }
        KVCL_TRY(kvcl_req_layer_ready(req, l));
    }
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    return now_ns() - began;
}

/* Rank 1: checks each layer when it arrives; a model would decode it there. */
static size_t recv_prompt(kvcl_comm_h world, const prompt_t *prompt, uint64_t round)
{
    size_t     wrong = 0;
    kvcl_req_h req;
    unsigned   l;

    KVCL_TRY(kvcl_recv(world, 0, TAG, prompt->cache, &prompt->sel, NULL, &req));
    report_ready(world);
    for (l = 0; l < LAYERS; ++l) {
        KVCL_TRY(kvcl_req_layer_wait(req, l, 60 * second));
    }
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    for (l = 0; l < LAYERS; ++l) {
        wrong += count_wrong(prompt, l, round);
    }
    return wrong;
}

static uint64_t compute_alone(const prompt_t *prompt, uint64_t round)
{
    uint64_t began = now_ns();
    unsigned l;

    for (l = 0; l < LAYERS; ++l) {
        compute_layer(prompt, l, round);
    }
    return now_ns() - began;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double median_ms(uint64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof(*ns), by_size);
    return (double)ns[n / 2] * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Adjust the work so that the computation takes as long as the transfer just did. */
static void set_work(prompt_t *prompt, uint64_t transfer_ns)
{
    uint64_t ns = compute_alone(prompt, 0), work = prompt->work;

    work         = (uint64_t)((double)work * (double)transfer_ns / (double)ns);
    prompt->work = (work < prompt->work / 2) ? prompt->work / 2 : (work > prompt->work * 2) ? prompt->work * 2 : work;
}

/* Rank 0's part: warm up, set the work, measure. */
static void measure(kvcl_comm_h world, prompt_t *prompt, int rounds)
{
    uint64_t transfer[ROUNDS_MAX], compute[ROUNDS_MAX], both[ROUNDS_MAX], bytes, alone, turns = 1 << 22, round = 0;
    double   hidden[ROUNDS_MAX], t;
    int      i;

    for (i = 0; i < 2; ++i) {
        (void)send_prompt(world, 1, prompt, ++round, 0);
    }
    for (i = 0; i < 3; ++i) {
        transfer[i] = send_prompt(world, 1, prompt, ++round, 0);
    }
    t            = median_ms(transfer, 3);
    alone        = compute_alone(prompt, 0); /* time to write the words */
    prompt->work = turns / LAYERS;
    bytes        = compute_alone(prompt, 0);
    if ((t * 1e6 > (double)alone) && (bytes > alone)) {
        prompt->work = (uint64_t)((double)turns * (t * 1e6 - (double)alone) / (double)(bytes - alone) / LAYERS);
    }
    for (i = 0; i < rounds; ++i) {
        transfer[i] = send_prompt(world, 1, prompt, ++round, 0);
        set_work(prompt, transfer[i]);
        compute[i] = compute_alone(prompt, 0);
        both[i]    = send_prompt(world, 1, prompt, ++round, 1);
        hidden[i]  = ((double)transfer[i] + (double)compute[i] - (double)both[i]) / (double)transfer[i];
    }
    qsort(hidden, (size_t)rounds, sizeof(*hidden), by_value);
    bytes = kvcl_cache_block_bytes(prompt->cache) * prompt->sel.n_blocks;
    t     = median_ms(transfer, rounds);
    printf("%d layers, %.1f MB: transfer alone %.2f ms (%.2f GB/s), compute alone %.2f ms, both %.2f ms: %.0f%% of the "
           "transfer hidden\n", LAYERS, (double)bytes * 1e-6, t, (double)bytes * 1e-6 / t, median_ms(compute, rounds),
           median_ms(both, rounds), 100 * hidden[rounds / 2]);
}

/* Rank 1 takes part in the same number of rounds. */
static size_t take_part(kvcl_comm_h world, prompt_t *prompt, int rounds)
{
    uint64_t round = 0;
    size_t   wrong = 0;
    int      i;

    for (i = 0; i < 5; ++i) {
        wrong += recv_prompt(world, prompt, ++round);
    }
    for (i = 0; i < rounds; ++i) {
        wrong += recv_prompt(world, prompt, ++round);
        wrong += recv_prompt(world, prompt, ++round);
    }
    return wrong;
}

/* Alone: a send to itself, the recv posted first. */
static size_t to_itself(kvcl_comm_h world, const prompt_t *from, const prompt_t *to)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    size_t             wrong  = 0;
    kvcl_req_h         in, out;
    unsigned           l;

    params.flags = KVCL_LAYERWISE;
    KVCL_TRY(kvcl_recv(world, 0, TAG, to->cache, &to->sel, NULL, &in));
    KVCL_TRY(kvcl_send(world, 0, TAG, from->cache, &from->sel, &params, &out));
    for (l = 0; l < LAYERS; ++l) {
        compute_layer(from, l, 1);
        KVCL_TRY(kvcl_req_layer_ready(out, l));
        KVCL_TRY(kvcl_req_layer_wait(in, l, 10 * second));
        wrong += count_wrong(to, l, 1);
    }
    KVCL_TRY(kvcl_req_wait(in, 10 * second));
    KVCL_TRY(kvcl_req_wait(out, 10 * second));
    return wrong;
}

/* The sender's blocks are in reverse order, the receiver's at odd places. */
static prompt_t make_prompt(kvcl_context_h ctx, const char *name, size_t n, int reverse)
{
    kvcl_layout_t layout = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER, .layers = LAYERS, .blocks = n,
                                           .tokens = TOKENS, .heads = HEADS, .head_dim = HEAD_DIM, .elem_bytes = 2);
    prompt_t      prompt = {.ids = malloc(n * sizeof(*prompt.ids)), .work = 0};
    size_t        i;

    if (prompt.ids == NULL) {
        exit(1);
    }
    for (i = 0; i < n; ++i) {
        prompt.ids[i] = (uint32_t)(reverse ? n - 1 - i : (i * 7) % n);
    }
    prompt.sel = (kvcl_sel_t){.blocks = prompt.ids, .n_blocks = n};
    KVCL_TRY(kvcl_cache_create(ctx, name, &layout, NULL, &prompt.cache));
    return prompt;
}

int main(int argc, char **argv)
{
    long           n      = (argc > 1) ? atol(argv[1]) : 32;
    int            rounds = (argc > 2) ? atoi(argv[2]) : 3, rank;
    size_t         wrong  = 0;
    prompt_t       prompt, other;
    kvcl_context_h ctx;
    kvcl_comm_h    world;

    if ((n < 1) || (n > 4096) || (n % 7 == 0) || (rounds < 1) || (rounds > ROUNDS_MAX)) {
        fprintf(stderr, "usage: layerwise [BLOCKS [ROUNDS]]   BLOCKS: at most 4096, no multiple of 7; ROUNDS: at most "
                "%d\n", ROUNDS_MAX);
        return 2;
    }
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank   = kvcl_comm_rank(world);
    prompt = make_prompt(ctx, "prompt", (size_t)n, rank == 0);
    other  = make_prompt(ctx, "other", (size_t)n, 0);
    if (kvcl_comm_size(world) == 1) {
        wrong = to_itself(world, &prompt, &other);
        printf("%d layers to myself, %zu words wrong\n", LAYERS, wrong);
    } else if (rank == 0) {
        measure(world, &prompt, rounds);
    } else if (rank == 1) {
        wrong = take_part(world, &prompt, rounds);
        printf("rank 1: %zu words wrong\n", wrong);
    }
    kvcl_cache_destroy(prompt.cache);
    kvcl_cache_destroy(other.cache);
    kvcl_finalize(ctx);
    free(prompt.ids);
    free(other.ids);
    return (wrong == 0) ? 0 : 1;
}
