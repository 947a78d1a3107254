/*
 * kvcl_get_vec beside kvcl_get: 20,000 pieces of 4 KiB of a peer's memory, and as many blocks of its cache, in the same
 * random order, to places in order. Two ranks (mpirun), one call at a time, the two in turns: vec_bench [ROUNDS].
 * Rank 0 prints the medians and the least times in milliseconds, and their ratios.
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 4096, BLOCKS = 20000, MOST = 10000, EXPORT = 1024 };

typedef struct export {
    size_t        len;
    unsigned char bytes[EXPORT];
} export_t;

static uint32_t   order[BLOCKS], into[BLOCKS];
static kvcl_vec_t pieces[BLOCKS];

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec * 1e3) + ((double)t.tv_nsec / 1e6);
}

static void finish(kvcl_status_t posted, const kvcl_req_h *req)
{
    KVCL_TRY(posted);
    KVCL_TRY(kvcl_req_wait(*req, KVCL_WAIT_FOREVER));
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static void make_lists(char *to)
{
    uint32_t i, j, kept;

    for (i = 0; i < BLOCKS; ++i) {
        order[i] = i;
        into[i]  = BLOCKS + i;
    }
    srand(1);
    for (i = BLOCKS - 1; i > 0; --i) {
        j        = (uint32_t)rand() % (i + 1);
        kept     = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (i = 0; i < BLOCKS; ++i) {
        pieces[i] = (kvcl_vec_t){(uint64_t)order[i] * BLOCK, to + ((size_t)i * BLOCK), BLOCK};
    }
}

/* Each byte is that of its block's number. */
static void check(const char *got, const char *what)
{
    uint32_t i;

    for (i = 0; i < BLOCKS; ++i) {
        if ((got[(size_t)i * BLOCK] != (char)order[i]) || (got[((size_t)i * BLOCK) + BLOCK - 1] != (char)order[i])) {
            fprintf(stderr, "vec_bench: %s: wrong bytes in block %u\n", what, (unsigned)i);
            exit(1);
        }
    }
}

static void measure(kvcl_comm_h world, kvcl_cache_h cache, kvcl_rmem_h rmem, kvcl_mem_h mem, int rounds)
{
    static double    by_get[MOST], by_vec[MOST];
    const kvcl_sel_t remote = {.blocks = order, .n_blocks = BLOCKS}, local = {.blocks = into, .n_blocks = BLOCKS};
    kvcl_req_h       req;
    int              i;

    for (i = -2; i < rounds; ++i) { /* two to warm up */
        const int at   = (i < 0) ? 0 : i;
        double    from = now_ms();

        finish(kvcl_get(world, 1, cache, &remote, &local, NULL, &req), &req);
        by_get[at] = now_ms() - from;
        from       = now_ms();
        finish(kvcl_get_vec(rmem, pieces, BLOCKS, mem, NULL, &req), &req);
        by_vec[at] = now_ms() - from;
    }
    check((const char *)kvcl_cache_base(cache, 0) + ((size_t)BLOCKS * BLOCK), "kvcl_get");
    check(kvcl_mem_addr(mem), "kvcl_get_vec");
    qsort(by_get, (size_t)rounds, sizeof(by_get[0]), by_value);
    qsort(by_vec, (size_t)rounds, sizeof(by_vec[0]), by_value);
    printf("%d x %d bytes, ms: kvcl_get %.2f, least %.2f; kvcl_get_vec %.2f, least %.2f; ratio %.3f, of the least "
           "%.3f\n", BLOCKS, BLOCK, by_get[rounds / 2], by_get[0], by_vec[rounds / 2], by_vec[0],
           by_vec[rounds / 2] / by_get[rounds / 2], by_vec[0] / by_get[0]);
}

int main(int argc, char **argv)
{
    const kvcl_layout_t     layout    = KVCL_LAYOUT_BYTES(2 * BLOCKS, BLOCK);
    const kvcl_mem_params_t read_only = {.size = sizeof(read_only), .flags = KVCL_MEM_READ_ONLY};
    const size_t            bytes     = (size_t)BLOCKS * BLOCK;
    int                     rounds    = (argc > 1) ? atoi(argv[1]) : 50;
    export_t                mine      = {.len = EXPORT}, all[2];
    kvcl_context_h          ctx;
    kvcl_comm_h             world;
    kvcl_cache_h            cache;
    kvcl_mem_h              given, mem;
    kvcl_rmem_h             rmem;
    kvcl_req_h              req;
    uint32_t                i;

    rounds = ((rounds < 1) || (rounds > MOST)) ? 50 : rounds;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    if (kvcl_comm_size(world) != 2) {
        fprintf(stderr, "vec_bench: 2 ranks are needed\n");
        return 1;
    }
    KVCL_TRY(kvcl_cache_create(ctx, "vec", &layout, NULL, &cache));
    KVCL_TRY(kvcl_mem_alloc(ctx, bytes, &read_only, &given));
    KVCL_TRY(kvcl_mem_alloc(ctx, bytes, NULL, &mem));
    for (i = 0; i < BLOCKS; ++i) {
        memset((char *)kvcl_cache_base(cache, 0) + ((size_t)i * BLOCK), (char)i, BLOCK);
        memset((char *)kvcl_mem_addr(given) + ((size_t)i * BLOCK), (char)i, BLOCK);
    }
    make_lists(kvcl_mem_addr(mem));
    KVCL_TRY(kvcl_mem_export(given, KVCL_READ, mine.bytes, &mine.len));
    finish(kvcl_allgather(world, &mine, sizeof(mine), all, NULL, &req), &req);
    if (kvcl_comm_rank(world) == 0) {
        KVCL_TRY(kvcl_rmem_import(world, 1, all[1].bytes, all[1].len, &rmem));
        measure(world, cache, rmem, mem, rounds);
        kvcl_rmem_free(rmem);
    }
    finish(kvcl_barrier(world, NULL, &req), &req);
    kvcl_mem_free(given);
    kvcl_mem_free(mem);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return 0;
}
