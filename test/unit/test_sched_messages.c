/*
 * Long messages of engines: the reader of MessagePack takes short ways over rows of numbers, and blocks are looked up
 * some at a time. Each short way is compared with the long one.
 */
#include "index_scene.h"

#include "sched/events/ev_msgpack.h"

/* Reading one value against going past it and against reading it as a number, for each first byte and each length. */
START_TEST(the_short_ways_agree_with_the_long_one)
{
    static const uint8_t bytes[16] = {0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0};
    uint8_t              value[16];
    kvcl_mp_t            next, skip, read;
    kvcl_mp_item_t       item;
    uint32_t             number;
    unsigned             head, len;
    bool                 is;

    for (head = 0; head < 256; ++head) {
        for (len = 0; len <= sizeof(value); ++len) {
            memcpy(value, bytes, sizeof(value));
            value[0] = (uint8_t)head;
            next = skip = read = (kvcl_mp_t){value, value + len};
            is   = kvcl_mp_next(&next, &item);
            if (is && ((item.kind == KVCL_MP_ARRAY) || (item.kind == KVCL_MP_MAP))) {
                continue;
            }
            ck_assert_msg(kvcl_mp_skip(&skip) == is, "%02x of %u bytes", head, len);
            ck_assert_msg(!is || (skip.pos == next.pos), "%02x of %u bytes", head, len);
            is = is && (item.kind == KVCL_MP_UINT) && (item.number <= UINT32_MAX);
            ck_assert_msg(kvcl_mp_u32(&read, UINT32_MAX, &number) == is, "%02x of %u bytes", head, len);
            ck_assert_msg(!is || ((number == item.number) && (read.pos == next.pos)), "%02x of %u bytes", head, len);
        }
    }
}
END_TEST

/* Lists of numbers of all sizes, some of them in rows of one size: skipped as a whole and value by value. */
START_TEST(a_list_is_skipped_as_its_values_are)
{
    static const uint8_t heads[] = {0x07, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd3, 0xe1, 0xc0, 0xa2};
    static const uint8_t sizes[] = {1, 2, 3, 5, 9, 2, 9, 1, 1, 3};
    uint8_t              list[64 * 9 + 3];
    kvcl_mp_t            whole, each;
    kvcl_mp_item_t       item;
    unsigned             round, i, n, kind = 0, len;

    for (round = 0; round < 2000; ++round) {
        n       = below(64);
        len     = 3;
        list[0] = 0xdc;
        list[1] = 0;
        list[2] = (uint8_t)n;
        for (i = 0; i < n; ++i) {
            kind = ((i == 0) || (below(4) == 0)) ? below(sizeof(heads)) : kind;
            memset(list + len, (int)below(256), sizes[kind]);
            list[len] = heads[kind];
            len += sizes[kind];
        }
        len  -= ((n > 0) && (below(3) == 0)) ? 1 : 0; /* cut */
        whole = each = (kvcl_mp_t){list, list + len};
        for (i = 0; (i <= n) && kvcl_mp_next(&each, &item); ++i) {
        }
        ck_assert_msg(kvcl_mp_skip(&whole) == (i > n), "round %u: %u values in %u bytes", round, n, len);
        ck_assert_msg((i <= n) || (whole.pos == list + len), "round %u", round);
    }
}
END_TEST

/* Rows of numbers, most of them of five bytes, read together and one by one; some are cut, or have another value. */
START_TEST(a_row_of_numbers_is_read_as_each_of_them_is)
{
    uint8_t   row[64 * 5];
    uint32_t  values[64], value;
    kvcl_mp_t all, each;
    unsigned  round, i, n, len, one;

    for (round = 0; round < 5000; ++round) {
        n   = below(64);
        one = below(2) * (1 + below(64)); /* a number of one byte, or none */
        for (i = 0, len = 0; i < n; ++i) {
            memset(row + len, (int)below(256), 5);
            row[len] = (i + 1 == one) ? 0x21 : 0xce;
            len += (i + 1 == one) ? 1 : 5;
        }
        if ((n > 0) && (below(8) == 0)) {
            row[0] = 0xc0;
        }
        len   -= ((n > 0) && (below(3) == 0)) ? 1 : 0;
        all    = each = (kvcl_mp_t){row, row + len};
        for (i = 0; (i < n) && kvcl_mp_u32(&each, UINT32_MAX, &value); ++i) {
        }
        ck_assert_msg(kvcl_mp_u32s(&all, values, n) == (i == n), "round %u: %u numbers in %u bytes", round, n, len);
        ck_assert_msg((i < n) || (all.pos == each.pos), "round %u", round);
        each = (kvcl_mp_t){row, row + len};
        for (n = (i == n) ? n : 0, i = 0; i < n; ++i) {
            ck_assert(kvcl_mp_u32(&each, UINT32_MAX, &value));
            ck_assert_uint_eq(values[i], value);
        }
    }
}
END_TEST

/* One message of more blocks than are looked up at a time, and the table grows meanwhile. */
START_TEST(a_long_message_stores_each_block)
{
    enum { BLOCKS = 2500, BLOCK = 4 };
    static uint8_t           payload[BLOCKS * (3 + BLOCK * 5) + 64];
    static uint32_t          tokens[BLOCKS * BLOCK];
    static kvcl_key_t        keys[BLOCKS];
    static const uint8_t     head[] = {0x92, 0, 0x91, 0x97, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e',
                                       'd', 0xdc, BLOCKS >> 8, BLOCKS & 255};
    static const uint8_t     tail[] = {BLOCK, 0xc0, 0xa3, 'G', 'P', 'U'};
    const kvcl_sched_root_t  root   = {.size = sizeof(root), .model = "m"};
    static const uint8_t     number[8];
    kvcl_sched_frame_t       frames[2] = {{number, 8}, {payload, 0}};
    kvcl_sched_index_h       tested;
    kvcl_sched_hold_t        hold;
    kvcl_key_t               key;
    uint32_t                 source;
    size_t                   len = sizeof(head), i, n;

    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    source = test_source(tested, "engine", 3, KVCL_SCHED_FEED_VLLM);
    memcpy(payload, head, len);
    for (i = 0; i < BLOCKS; ++i) {
        payload[len++] = 0xcd;
        payload[len++] = (uint8_t)(i >> 8);
        payload[len++] = (uint8_t)i;
    }
    payload[len++] = 0xc0;
    payload[len++] = 0xdc;
    payload[len++] = (uint8_t)((BLOCKS * BLOCK) >> 8);
    payload[len++] = (uint8_t)(BLOCKS * BLOCK);
    for (i = 0; i < (size_t)BLOCKS * BLOCK; ++i) {
        tokens[i] = below(3) == 0 ? below(100) : below(200000);
        if (tokens[i] < 128) {
            payload[len++] = (uint8_t)tokens[i];
            continue;
        }
        payload[len++] = 0xce;
        payload[len++] = (uint8_t)(tokens[i] >> 24);
        payload[len++] = (uint8_t)(tokens[i] >> 16);
        payload[len++] = (uint8_t)(tokens[i] >> 8);
        payload[len++] = (uint8_t)tokens[i];
    }
    memcpy(payload + len, tail, sizeof(tail));
    frames[1].len = len + sizeof(tail);
    ck_assert_int_eq(kvcl_sched_index_feed(tested, source, 0, frames, 2, NULL), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).blocks, BLOCKS);
    ck_assert_int_eq(kvcl_sched_index_root(&root, &key), KVCL_OK);
    ck_assert_int_eq(kvcl_key_chain(&key, 0, tokens, (size_t)BLOCKS * BLOCK, BLOCK, keys, BLOCKS, &n), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys, BLOCKS, 0, 0, &hold, 1, &n), KVCL_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(hold.blocks, BLOCKS);
    kvcl_sched_index_destroy(tested);
}
END_TEST

/* [0, [["BlockStored", hashes, nil, tokens, 1, nil, "GPU"]]] of n blocks; all numbers are below 128. */
static size_t message_of(const uint8_t *hashes, const uint8_t *tokens, uint32_t n, uint8_t *payload)
{
    static const uint8_t head[] = {0x92, 0, 0x91, 0x97, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e', 'd',
                                   0xdc, 0};
    static const uint8_t tail[] = {1, 0xc0, 0xa3, 'G', 'P', 'U'};
    size_t               len    = sizeof(head);

    memcpy(payload, head, len);
    payload[len++] = (uint8_t)n;
    memcpy(payload + len, hashes, n);
    len += n;
    payload[len++] = 0xc0;
    payload[len++] = 0xdc;
    payload[len++] = 0;
    payload[len++] = (uint8_t)n;
    memcpy(payload + len, tokens, n);
    len += n;
    memcpy(payload + len, tail, sizeof(tail));
    return len + sizeof(tail);
}

enum { HASHES = 64, ROW = 40 };

/* A block is held by the first hash that named it; a hash that names another one drops that of before. */
typedef struct plain {
    kvcl_key_t means[HASHES];
    bool       is[HASHES];
} plain_t;

static bool plain_has(const plain_t *plain, const kvcl_key_t *key)
{
    uint32_t h = 0;

    while ((h < HASHES) && !(plain->is[h] && kvcl_key_equal(&plain->means[h], key))) {
        ++h;
    }
    return h < HASHES;
}

static void plain_put(plain_t *plain, uint32_t hash, const kvcl_key_t *key)
{
    plain->is[hash] = plain->is[hash] && kvcl_key_equal(&plain->means[hash], key);
    if (!plain_has(plain, key)) {
        plain->is[hash]    = true;
        plain->means[hash] = *key;
    }
}

/* Rows shorter and longer than those that are looked up ahead name few blocks by few hashes: blocks of a row change one
 * another. */
START_TEST(rows_of_any_length_are_as_a_plain_model)
{
    static plain_t           plain;
    kvcl_sched_index_stats_t stats = KVCL_SCHED_INDEX_STATS_INIT;
    kvcl_key_t               root, keys[ROW];
    uint8_t                  payload[2 * ROW + 64], number[8] = {0}, hashes[ROW], tokens[ROW];
    uint32_t                 source, round, i, n, held, words[ROW];
    kvcl_sched_frame_t       frames[2] = {{number, 8}, {payload, 0}};
    kvcl_sched_index_h       tested;
    kvcl_sched_hold_t        hold;
    size_t                   got;

    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    source = test_source(tested, "engine", 3, KVCL_SCHED_FEED_VLLM);
    kvcl_key_root(NULL, 0, "m", &root);
    for (round = 0; round < 500; ++round) {
        n         = 1 + below(ROW);
        number[6] = (uint8_t)(round >> 8);
        number[7] = (uint8_t)round;
        for (i = 0; i < n; ++i) {
            hashes[i] = (uint8_t)below(HASHES);
            tokens[i] = (uint8_t)(below(4) / 3);
            words[i]  = tokens[i];
        }
        frames[1].len = message_of(hashes, tokens, n, payload);
        ck_assert_int_eq(kvcl_sched_index_feed(tested, source, 0, frames, 2, NULL), KVCL_OK);
        ck_assert_int_eq(kvcl_key_chain(&root, 0, words, n, 1, keys, ROW, &got), KVCL_OK);
        for (i = 0; i < n; ++i) {
            plain_put(&plain, hashes[i], &keys[i]);
        }
        for (i = 0, held = 0; i < HASHES; ++i) {
            held += plain.is[i];
        }
        ck_assert_uint_eq(test_info(tested, source).blocks, held);
        ck_assert_int_eq(kvcl_sched_index_stats(tested, &stats), KVCL_OK);
        ck_assert_uint_eq(stats.blocks, held);
        for (i = 0; i < n; ++i) {
            ck_assert_int_eq(kvcl_sched_index_match(tested, &keys[i], 1, 0, 0, &hold, 1, &got), KVCL_OK);
            ck_assert_msg(got == (size_t)plain_has(&plain, &keys[i]), "round %u, block %u of %u", round, i, n);
        }
    }
    kvcl_sched_index_destroy(tested);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_messages");
    TCase *tc    = tcase_create("messages");

    test_seed(&rnd);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_short_ways_agree_with_the_long_one);
    tcase_add_test(tc, a_list_is_skipped_as_its_values_are);
    tcase_add_test(tc, a_row_of_numbers_is_read_as_each_of_them_is);
    tcase_add_test(tc, a_long_message_stores_each_block);
    tcase_add_test(tc, rows_of_any_length_are_as_a_plain_model);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
