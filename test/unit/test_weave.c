/*
 * Woven copies beside memcpy, by every kernel that this processor supports: lists of pieces of equal and of unequal
 * lengths, at any alignment, and the bytes around each piece; whole blocks with their sums, each to several places.
 * TEST_RING=night: 300,000 lists.
 */
#include "config.h"
#include "test_base.h"
#include "base/checksum.h"
#include "weave/blocks.h"
#include "weave/bulk.h"
#include "weave/choice.h"
#include "weave/weave.h"

#include <stdint.h>
#include <string.h>

enum { PIECES = 24, GUARD = 64, ROOM = 1 << 20, GATE_LISTS = 20000, NIGHT_LISTS = 300000 };

static kvcl_rand_t rnd;

static uint64_t rng(void)
{
    return kvcl_rand_next(&rnd);
}

/* Mostly short lengths, many of them at the limits of lines, steps and memcpy. */
static size_t random_len(void)
{
    static const size_t edges[] = {0, 1, KVCL_WEAVE_LINE, KVCL_WEAVE_STEP, KVCL_WEAVE_SHORT, 1024, 4096, 32768};

    switch (rng() % 16) {
    case 0:
        return rng() % 40000;
    case 1:
    case 2:
        return rng() % 4096;
    case 3:
    case 4:
    case 5:
    case 6:
        return edges[rng() % (sizeof(edges) / sizeof(edges[0]))] + (rng() % 3);
    default:
        return rng() % 1400;
    }
}

static uint8_t from[ROOM], to[ROOM], expected[ROOM];

/* Pieces in the order of their sources, with destinations elsewhere in the list's order. */
static size_t make_list(kvcl_weave_piece_t *pieces)
{
    size_t n = rng() % (PIECES + 1), at = 0, i, j, equal = (rng() % 2 == 0) ? random_len() : SIZE_MAX;
    size_t place[PIECES];

    for (i = 0; i < n; ++i) {
        size_t shift = (rng() % 2 == 0) ? 0 : rng() % GUARD, len = (equal == SIZE_MAX) ? random_len() : equal;

        if (ROOM - at < len + (3 * GUARD)) {
            n = i;
            break;
        }
        place[i]  = at + GUARD + shift;
        pieces[i] = (kvcl_weave_piece_t){to + place[i], from + place[i] + (rng() % GUARD), len};
        at        = (place[i] + len + GUARD - 1) & ~(size_t)(GUARD - 1);
    }
    for (i = n; i > 1; --i) {
        kvcl_weave_piece_t piece = pieces[i - 1];

        j             = rng() % i;
        pieces[i - 1] = pieces[j];
        pieces[j]     = piece;
    }
    return n;
}

static size_t end_of(const kvcl_weave_piece_t *pieces, size_t n)
{
    size_t i, end = 0, at;

    for (i = 0; i < n; ++i) {
        at  = (size_t)((uint8_t *)pieces[i].dst - to) + pieces[i].len;
        end = (at > end) ? at : end;
    }
    return end + GUARD;
}

static void check_list(const kvcl_weave_kernel_t *kernel, unsigned width, const kvcl_weave_piece_t *pieces, size_t n)
{
    size_t end = end_of(pieces, n), i;

    memset(to, 0xa5, end);
    memset(expected, 0xa5, end);
    for (i = 0; i < n; ++i) {
        memcpy(expected + ((uint8_t *)pieces[i].dst - to), pieces[i].src, pieces[i].len);
    }
    kvcl_weave_copy(kernel, width, pieces, n);
    kernel->end();
    ck_assert_msg(memcmp(to, expected, end) == 0, "%s, %u side by side, %zu pieces", kernel->name, width, n);
}

static void fill_from(void)
{
    size_t i;

    for (i = 0; i < sizeof(from); ++i) {
        from[i] = (uint8_t)rng();
    }
}

START_TEST(any_list_is_copied_as_memcpy_does_and_no_byte_beside_it_changes)
{
    const kvcl_weave_kernel_t *kernel = &kvcl_weave_kernels[_i];
    const char                *ring   = getenv("TEST_RING");
    size_t lists = ((ring != NULL) && (strcmp(ring, "night") == 0)) ? NIGHT_LISTS : GATE_LISTS, i, n;
    kvcl_weave_piece_t        pieces[PIECES];

    if (!kernel->supported()) {
        printf("SKIP: this processor does not support %s\n", kernel->name);
        return;
    }
    test_seed(&rnd);
    fill_from();
    for (i = 0; i < lists; ++i) {
        n = make_list(pieces);
        check_list(kernel, 1u << (rng() % 3), pieces, n);
    }
}
END_TEST

START_TEST(one_long_piece_is_cut_and_whole)
{
    const kvcl_weave_kernel_t *kernel = &kvcl_weave_kernels[_i];
    kvcl_weave_piece_t        piece   = {.len = 0};
    unsigned                  width;

    if (!kernel->supported()) {
        return;
    }
    test_seed(&rnd);
    fill_from();
    for (width = 1; width <= KVCL_WEAVE_MOST; width *= 2) {
        piece = (kvcl_weave_piece_t){to + 64 + (rng() % 64), from + (rng() % 64), ROOM - 300 - (rng() % 5000)};
        check_list(kernel, width, &piece, 1);
    }
}
END_TEST

enum { BLOCKS = 11, CUTS = 4, BLOCK_MAX = 40000 };

/* A block of @a len bytes of `from`, to up to four places of `to` from *at_p on, cut at multiples of @a unit. */
static kvcl_weave_block_t make_block(struct iovec *places, size_t *at_p, size_t len, size_t unit)
{
    kvcl_weave_block_t block = {.src = from + (rng() % (ROOM - len)), .dst = places, .len = len};
    size_t             left  = len, n;

    while (left > 0) {
        n = (block.n_dst + 1 == CUTS) ? left : unit * (1 + (rng() % (1 + (len / unit))));
        n = (n < left) ? n : left;
        places[block.n_dst++] = (struct iovec){to + *at_p, n};
        *at_p                += ((n + GUARD - 1) & ~(size_t)(GUARD - 1)) + GUARD;
        left                 -= n;
    }
    return block;
}

static void check_block(const kvcl_weave_block_t *block)
{
    size_t   at = 0;
    unsigned i;

    for (i = 0; i < block->n_dst; at += block->dst[i].iov_len, ++i) {
        const uint8_t *end = (const uint8_t *)block->dst[i].iov_base + block->dst[i].iov_len;

        ck_assert(memcmp(block->dst[i].iov_base, block->src + at, block->dst[i].iov_len) == 0);
        ck_assert_msg((end[0] == 0xa5) && (end[GUARD - 1] == 0xa5), "bytes behind a place have changed");
    }
    ck_assert_uint_eq(at, block->len);
    ck_assert(!block->summing || (block->sum == kvcl_checksum(block->src, block->len)));
}

/* Pages, lines and bytes as units: the first can be woven with sums, the others take the other ways. */
START_TEST(blocks_in_several_places_have_their_bytes_and_their_sums)
{
    static const size_t units[] = {4096, 1024, 64, 1};
    struct iovec        places[BLOCKS][CUTS];
    kvcl_weave_block_t  blocks[BLOCKS];
    size_t              lists, i, n, at, len, unit;

    test_seed(&rnd);
    fill_from();
    kvcl_bulk_configure(1 + _i, 0);
    for (lists = 0; lists < 1000; ++lists) {
        unit = units[rng() % 4];
        len  = (rng() % 4 == 0) ? 1 + (rng() % BLOCK_MAX) : 4096 * (1 + (rng() % 9));
        n    = rng() % (BLOCKS + 1);
        memset(to, 0xa5, ROOM);
        for (i = 0, at = 0; i < n; ++i) {
            len       = (rng() % 16 == 0) ? 1 + (rng() % BLOCK_MAX) : len;
            blocks[i] = make_block(places[i], &at, len, unit);
            blocks[i].summing = (lists % 3 == 0) || ((lists % 3 == 1) && (rng() % 8 != 0));
        }
        kvcl_blocks_copy(blocks, n, rng() % 4 != 0);
        for (i = 0; i < n; ++i) {
            check_block(&blocks[i]);
        }
    }
    kvcl_bulk_configure(0, 0);
}
END_TEST

START_TEST(some_kernel_runs_on_any_processor)
{
    ck_assert(kvcl_weave_kernels[kvcl_weave_n_kernels - 1].supported());
    ck_assert(kvcl_weave_best()->supported());
    kvcl_weave_copy(kvcl_weave_best(), KVCL_WEAVE_MOST, NULL, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weave");
    TCase *tc    = tcase_create("weave");

    tcase_set_timeout(tc, 3600);
    tcase_add_loop_test(tc, any_list_is_copied_as_memcpy_does_and_no_byte_beside_it_changes, 0,
                        (int)kvcl_weave_n_kernels);
    tcase_add_loop_test(tc, one_long_piece_is_cut_and_whole, 0, (int)kvcl_weave_n_kernels);
    tcase_add_loop_test(tc, blocks_in_several_places_have_their_bytes_and_their_sums, 0, KVCL_COPY_N_WAYS);
    tcase_add_test(tc, some_kernel_runs_on_any_processor);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
