/*
 * Blocks copied and summed in one pass (kv/runs_sum.c) beside kvcl_checksum() of their bytes: layouts with long runs
 * and with short ones, blocks of all lengths at any alignment, and a slice of a list. Part of test_kv_copy.
 */
#include "kv_sums.h"
#include "kv/runs.h"

#include "base/checksum.h"
#include "base/rand.h"
#include "weave/bulk.h"

#include <stdlib.h>
#include <string.h>

static kvcl_rand_t rnd;

#define REQUIRE(_cond)                       \
    do {                                     \
        if (!(_cond)) {                      \
            ck_abort_msg("%s", #_cond);      \
        }                                    \
    } while (0)

/* A cache of planes and one of bytes, blocks in random order, in both directions, by long runs and by short ones. */
static void check_summed(uint32_t head_dim)
{
    enum { BLOCKS = 6, LISTED = 4, TOKENS = 16 };
    static const uint32_t planes_ids[LISTED] = {4, 0, 5, 2}, bytes_ids[LISTED] = {1, 2, 0, 3};
    const kvcl_layout_t   planes_layout = {.size = sizeof(planes_layout), .layers = 2, .kv = 2, .blocks = BLOCKS,
                                           .tokens = TOKENS, .heads = 4, .head_dim = head_dim, .elem_bytes = 2};
    const size_t          block = (size_t)2 * 2 * TOKENS * 4 * head_dim * 2;
    const kvcl_layout_t   bytes_layout = KVCL_LAYOUT_BYTES(BLOCKS, (uint32_t)block);
    uint8_t               *planes = malloc(BLOCKS * block), *bytes = aligned_alloc(64, BLOCKS * block);
    uint8_t               *back   = aligned_alloc(64, BLOCKS * block);
    uintptr_t             planes_base = (uintptr_t)planes, bytes_base = (uintptr_t)bytes, back_base = (uintptr_t)back;
    kvcl_shape_t          planes_shape, bytes_shape;
    uint64_t              sums[LISTED], again[LISTED];
    kvcl_side_t           src = {.shape = &planes_shape, .bases = &planes_base, .sel = {planes_ids, LISTED}};
    kvcl_side_t           mid = {.shape = &bytes_shape, .bases = &bytes_base, .sel = {bytes_ids, LISTED}};
    kvcl_side_t           dst = {.shape = &planes_shape, .bases = &back_base, .sel = {planes_ids, LISTED}};
    kvcl_stream_t         stream;
    size_t                i;

    REQUIRE(kvcl_shape_init(&planes_shape, &planes_layout) == KVCL_OK);
    REQUIRE(kvcl_shape_init(&bytes_shape, &bytes_layout) == KVCL_OK);
    for (i = 0; i < BLOCKS * block; ++i) {
        planes[i] = (uint8_t)kvcl_rand_next(&rnd);
    }
    memset(bytes, 0xee, BLOCKS * block);
    memset(back, 0xee, BLOCKS * block);
    REQUIRE(kvcl_side_copy_sums(&mid, &src, sums) == KVCL_OK);
    REQUIRE(kvcl_side_copy_sums(&dst, &mid, again) == KVCL_OK);
    kvcl_stream_init(&stream, &src, KVCL_STREAM_CANONICAL);
    for (i = 0; i < LISTED; ++i) {
        REQUIRE(sums[i] == kvcl_checksum(bytes + (bytes_ids[i] * block), block));
        REQUIRE((sums[i] == again[i]) && (sums[i] == kvcl_stream_checksum(&stream, block)));
    }
    kvcl_stream_init(&stream, &dst, KVCL_STREAM_CANONICAL);
    REQUIRE(kvcl_stream_checksum(&stream, LISTED * block) != 0);
    REQUIRE(bytes[5 * block] == 0xee); /* not listed */
    memset(back, 0xee, BLOCKS * block);
    REQUIRE(kvcl_side_copy_sums(&dst, &src, NULL) == KVCL_OK);
    REQUIRE(kvcl_side_copy_sums(&dst, &src, again) == KVCL_OK);
    REQUIRE(memcmp(sums, again, sizeof(sums)) == 0);
    memset(bytes, 0xee, BLOCKS * block);
    memset(back, 0xee, BLOCKS * block);
    REQUIRE(kvcl_side_copy_sums_large(&mid, &src, again) == KVCL_OK);
    REQUIRE(memcmp(sums, again, sizeof(sums)) == 0);
    REQUIRE(kvcl_side_copy_sums_large(&dst, &mid, again) == KVCL_OK);
    REQUIRE(memcmp(sums, again, sizeof(sums)) == 0);
    for (i = 0; i < LISTED; ++i) {
        REQUIRE(sums[i] == kvcl_checksum(bytes + (bytes_ids[i] * block), block));
    }
    REQUIRE(bytes[5 * block] == 0xee);
    free(planes), free(bytes), free(back);
}

/* Blocks of bytes at any alignment of both sides, as many as are woven and a few more, by both functions. */
static void check_large(size_t block, size_t n, size_t shift)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES((uint32_t)n, (uint32_t)block);
    uint8_t             *from = malloc((n * block) + 64), *to = aligned_alloc(64, ((n * block) + 255) & ~(size_t)63);
    uintptr_t           from_base = (uintptr_t)from + (kvcl_rand_next(&rnd) % 64), to_base = (uintptr_t)to + shift;
    uint32_t            from_ids[16], to_ids[16];
    uint64_t            sums[16], plain[16];
    kvcl_shape_t        shape;
    kvcl_side_t         src = {.shape = &shape, .bases = &from_base, .sel = {from_ids, n}};
    kvcl_side_t         dst = {.shape = &shape, .bases = &to_base, .sel = {to_ids, n}};
    size_t              i;

    REQUIRE(kvcl_shape_init(&shape, &layout) == KVCL_OK);
    for (i = 0; i < (n * block) + 64; ++i) {
        from[i] = (uint8_t)kvcl_rand_next(&rnd);
    }
    for (i = 0; i < n; ++i) {
        from_ids[i] = (uint32_t)((i * 7) % n);
        to_ids[i]   = (uint32_t)(n - 1 - i);
    }
    memset(to, 0xee, (n * block) + 128);
    REQUIRE(kvcl_side_copy_sums_large(&dst, &src, sums) == KVCL_OK);
    for (i = 0; i < n; ++i) {
        REQUIRE(memcmp((uint8_t *)to_base + (to_ids[i] * block), (uint8_t *)from_base + (from_ids[i] * block),
                       block) == 0);
        REQUIRE(sums[i] == kvcl_checksum((uint8_t *)from_base + (from_ids[i] * block), block));
    }
    REQUIRE((to[shift + (n * block)] == 0xee) && ((shift == 0) || (to[shift - 1] == 0xee)));
    REQUIRE(kvcl_side_copy_sums(&dst, &src, plain) == KVCL_OK);
    REQUIRE(memcmp(sums, plain, n * sizeof(*sums)) == 0);
    free(from), free(to);
}

/* A slice of a list: other blocks and other sums stay as they are. */
START_TEST(some_blocks_of_a_list_are_summed)
{
    enum { N = 13, FIRST = 3, SOME = 6, BYTES = 4096 };
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(N, BYTES);
    static uint8_t      from[N * BYTES];
    static _Alignas(64) uint8_t to[N * BYTES];
    uintptr_t           from_base = (uintptr_t)from, to_base = (uintptr_t)to;
    uint32_t            from_ids[N], to_ids[N];
    uint64_t            sums[N];
    kvcl_shape_t        shape;
    kvcl_side_t         src = {.shape = &shape, .bases = &from_base, .sel = {from_ids, N}};
    kvcl_side_t         dst = {.shape = &shape, .bases = &to_base, .sel = {to_ids, N}};
    kvcl_runs_t         runs;
    size_t              i;
    int                 large;

    kvcl_rand_seed(&rnd, 9);
    kvcl_bulk_configure(4, 0); /* four woven */
    REQUIRE(kvcl_shape_init(&shape, &layout) == KVCL_OK);
    for (i = 0; i < sizeof(from); ++i) {
        from[i] = (uint8_t)(kvcl_rand_next(&rnd) | 1); /* no byte is 0 */
    }
    for (i = 0; i < N; ++i) {
        from_ids[i] = (uint32_t)((i * 7) % N);
        to_ids[i]   = (uint32_t)((i * 5) % N);
    }
    REQUIRE(kvcl_runs_init(&runs, &dst, &src, KVCL_STREAM_CANONICAL) == KVCL_OK);
    REQUIRE(kvcl_runs_can_sum(&runs));
    for (large = 0; large <= 1; ++large) {
        memset(to, 0, sizeof(to));
        memset(sums, 0, sizeof(sums));
        kvcl_runs_copy_sums(&runs, FIRST, SOME, large, sums);
        for (i = 0; i < N; ++i) {
            const uint8_t *at = to + ((size_t)to_ids[i] * BYTES), *origin = from + ((size_t)from_ids[i] * BYTES);
            const int     in  = (i >= FIRST) && (i < FIRST + SOME);

            REQUIRE((memcmp(at, origin, BYTES) == 0) == in);
            REQUIRE(in || ((at[0] == 0) && (at[BYTES - 1] == 0)));
            REQUIRE((i >= SOME) ? (sums[i] == 0)
                                : (sums[i] == kvcl_checksum(from + ((size_t)from_ids[FIRST + i] * BYTES), BYTES)));
        }
    }
    kvcl_bulk_configure(0, 0);
}
END_TEST

START_TEST(large_lists_have_the_same_sums)
{
    static const size_t blocks[] = {64, 1024, 1025, 1056, 2048, 4096, 4128, 32768, 65536 + 96};
    static const size_t counts[] = {1, 4, 5, 11, 13};
    size_t              i, j;
    int                 setting;

    kvcl_rand_seed(&rnd, 8);
    for (setting = 1; kvcl_bulk_settings[setting] != NULL; ++setting) {
        kvcl_bulk_configure(setting, 0);
        for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); ++i) {
            for (j = 0; j < sizeof(counts) / sizeof(counts[0]); ++j) {
                check_large(blocks[i], counts[j], 0);
                check_large(blocks[i], counts[j], kvcl_rand_next(&rnd) % 64);
            }
        }
    }
}
END_TEST

START_TEST(blocks_are_summed_as_they_are_copied)
{
    int setting;

    kvcl_rand_seed(&rnd, 7);
    for (setting = 1; kvcl_bulk_settings[setting] != NULL; ++setting) {
        kvcl_bulk_configure(setting, 0);
        check_summed(64);
        check_summed(2);
        check_summed(37);
    }
    kvcl_bulk_configure(0, 0);
}
END_TEST

void add_kv_sums(TCase *tc)
{
    tcase_add_test(tc, blocks_are_summed_as_they_are_copied);
    tcase_add_test(tc, large_lists_have_the_same_sums);
    tcase_add_test(tc, some_blocks_of_a_list_are_summed);
}
