/*
 * Blocks of values as they are filled (value/value_fill.c): heads, bytes of values cut at random, zeros. The bytes, the
 * blocks beside them and the sums, by every copy that large puts may use, and whether or not the put is large.
 */
#include "config.h"
#include "test_base.h"
#include "base/checksum.h"
#include "value/value.h"
#include "weave/bulk.h"
#include "weave/choice.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 160, MOST = 130, EXTENTS = 4, LISTS = 60 };

typedef struct block {
    kvcl_value_head_t head;
    bool              has_head;
    uint8_t           *memory; /* the extents of a value, with gaps */
    kvcl_extent_t     extents[EXTENTS];
    kvcl_value_t      value;
    uint64_t          bytes;
} block_t;

static kvcl_rand_t        rnd;
static struct kvcl_store  store;
static kvcl_owner_t       owner;
static struct kvcl_cache  cache;
static uintptr_t          base;
static uint8_t            *pool;
static uint64_t           block_bytes;

static uint64_t rng(void)
{
    return kvcl_rand_next(&rnd);
}

static void open_pool(uint64_t bytes, uint64_t flags)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(SLOTS, (uint32_t)bytes);

    ck_assert_int_eq(kvcl_shape_init(&cache.shape, &layout), KVCL_OK);
    block_bytes      = bytes;
    pool             = aligned_alloc(4096, ((SLOTS * bytes) + 4095) & ~UINT64_C(4095));
    base             = (uintptr_t)pool;
    cache.bases      = &base;
    owner.cache      = &cache;
    store.value_pool = &owner;
    store.flags      = flags;
    memset(pool, 0xee, SLOTS * bytes);
}

/* Mostly the bytes of a whole block in one piece, as an engine's chunks. */
static void make(block_t *block)
{
    const unsigned n = (rng() % 4 == 0) ? 1 + (unsigned)(rng() % EXTENTS) : 1;
    uint64_t       left, at = rng() % 64, i;

    memset(block, 0, sizeof(*block));
    block->has_head = (rng() % 5 == 0);
    block->bytes    = (rng() % 5 == 0) ? rng() % (block_bytes + 1) : block_bytes;
    if (block->has_head) {
        for (i = 0; i < sizeof(block->head); ++i) {
            ((uint8_t *)&block->head)[i] = (uint8_t)rng();
        }
        block->bytes = (block->bytes > block_bytes - sizeof(block->head)) ? block_bytes - sizeof(block->head)
                                                                          : block->bytes;
    }
    block->memory = malloc(block_bytes + 64 + (EXTENTS * 16));
    for (i = 0, left = block->bytes; i < n; ++i) {
        const uint64_t len = (i + 1 == n) ? left : rng() % (left + 1);

        block->extents[i] = (kvcl_extent_t){block->memory + at, len};
        for (uint64_t j = 0; j < len; ++j) {
            block->memory[at + j] = (uint8_t)rng();
        }
        left -= len;
        at   += len + (rng() % 16);
    }
    block->value = (kvcl_value_t){block->extents, n};
}

static kvcl_value_holds_t holds(void *arg, size_t i)
{
    const block_t *block = (const block_t *)arg + i;

    return (kvcl_value_holds_t){.head = block->has_head ? &block->head : NULL, .at = {.value = &block->value},
                                .bytes = block->bytes};
}

/* As one would write it by hand. */
static void expect(const block_t *block, uint8_t *to)
{
    size_t used = 0, i;

    if (block->has_head) {
        memcpy(to, &block->head, sizeof(block->head));
        used = sizeof(block->head);
    }
    for (i = 0; i < block->value.n_extents; ++i) {
        memcpy(to + used, block->extents[i].addr, block->extents[i].bytes);
        used += block->extents[i].bytes;
    }
    memset(to + used, 0, block_bytes - used);
}

static void fill_some(size_t n)
{
    static block_t          blocks[MOST];
    static kvcl_store_rec_t recs[MOST];
    uint32_t                slots[SLOTS], other, i;
    uint8_t                 *wanted = malloc(block_bytes);
    const bool              summing = !(store.flags & KVCL_STORE_NO_CHECKSUM);

    for (i = 0; i < SLOTS; ++i) {
        slots[i] = i;
    }
    for (i = SLOTS - 1; i > 0; --i) {
        const uint32_t swap = (uint32_t)(rng() % (i + 1));

        other       = slots[i];
        slots[i]    = slots[swap];
        slots[swap] = other;
    }
    memset(pool, 0xee, SLOTS * block_bytes);
    for (i = 0; i < n; ++i) {
        make(&blocks[i]);
        recs[i].loc.checksum = 77;
    }
    kvcl_value_fill(&store, slots, n, holds, blocks, recs);
    for (i = 0; i < SLOTS; ++i) {
        const uint8_t *at = pool + (slots[i] * block_bytes);

        if (i < n) {
            expect(&blocks[i], wanted);
            ck_assert_uint_eq(recs[i].loc.checksum, summing ? kvcl_checksum(wanted, block_bytes) : 77);
            free(blocks[i].memory);
        } else {
            memset(wanted, 0xee, block_bytes); /* no other block is touched */
        }
        ck_assert_msg(memcmp(at, wanted, block_bytes) == 0, "block %u of %zu, %llu bytes", i, n,
                      (unsigned long long)block_bytes);
    }
    free(wanted);
}

START_TEST(blocks_hold_their_bytes_and_have_their_sums)
{
    static const uint64_t sizes[] = {128, 1000, 4096, 65536};
    unsigned              i, lists;

    test_seed(&rnd);
    for (lists = 0; lists < LISTS; ++lists) {
        i = (unsigned)(rng() % (sizeof(sizes) / sizeof(sizes[0])));
        kvcl_bulk_configure(1 + _i, (lists % 2 == 0) ? 1 : 0); /* large from a byte on, or as measured */
        open_pool(sizes[i], (lists % 5 == 0) ? KVCL_STORE_NO_CHECKSUM : 0);
        fill_some((size_t)(rng() % (MOST + 1)));
        free(pool);
    }
    kvcl_bulk_configure(0, 0);
}
END_TEST

START_TEST(a_large_put_is_filled_as_a_short_one)
{
    test_seed(&rnd);
    open_pool(512 << 10, 0);
    fill_some(40); /* 20 MiB: large without a measurement */
    fill_some(8);  /* 4 MiB: it depends on where the bytes are */
    free(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value_fill");
    TCase *tc    = tcase_create("value_fill");

    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, blocks_hold_their_bytes_and_have_their_sums, 0, KVCL_COPY_N_WAYS);
    tcase_add_test(tc, a_large_put_is_filled_as_a_short_one);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
