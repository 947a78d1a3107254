/*
 * Keys against vectors computed by another implementation (Python's hashlib), by
 *
 *   sha  = lambda b: hashlib.sha256(b).digest()
 *   root = sha(b"kvcl-key-root-01" + struct.pack("<Q", 8) + b"tenant-7" + b"llama-3-8b/bf16")
 *   toks = [(i * 2654435761 + 12345) & 0xffffffff for i in range(35 * 4 + 3)]
 *   prev = root
 *   for i in range(35):
 *       k = sha(b"kvcl-key-block01" + prev + struct.pack("<4I", *toks[4*i:4*i+4]))
 *       prev = k if i % 16 == 0 else prev[:2] + k[2:]
 */
#include "kvcl/kvcl_key.h"

#include <check.h>
#include <stdlib.h>

enum { BLOCKS = 35, PER_BLOCK = 4, TOKENS = BLOCKS * PER_BLOCK + 3 };

static uint32_t tokens[TOKENS];
static kvcl_key_t root;

static void setup(void)
{
    uint32_t i;

    for (i = 0; i < TOKENS; ++i) {
        tokens[i] = (i * 2654435761u) + 12345u;
    }
    kvcl_key_root("tenant-7", 8, "llama-3-8b/bf16", &root);
}

static void expect(const kvcl_key_t *key, const char *hex)
{
    char buf[KVCL_KEY_HEX_SIZE];

    ck_assert_str_eq(kvcl_key_format(key, buf), hex);
}

START_TEST(chain_matches_independent_vectors)
{
    kvcl_key_t keys[BLOCKS];
    size_t n = 0;

    expect(&root, "54f10d95e77d7537846cc0c71c76d7a320f96984049585fa7fdf4c8747206734");
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, keys, BLOCKS, &n), KVCL_OK);
    ck_assert_uint_eq(n, BLOCKS);
    expect(&keys[0], "5fa4c55fccddfabcd385ceeaeaa9f74bf73e5a91861814aec80784003362f6de");
    expect(&keys[1], "5fa4aa439ab9d376817701738a927b34b97ab70c7daee5cfa2a89a7f595ba586");
    expect(&keys[15], "5fa4a17d6977cc9284b6b3633c36ee13d8395b3d4dcd14c5cee9f5c3445e750c");
    expect(&keys[16], "dc8c5ec8c36d1eb7a3012f0e9468c06b6ccbef91a70239e4916e1688dabb462a");
    expect(&keys[17], "dc8c6edcfbb8a5e8c6deaba5ae76a44b0de87e99c395f0c0c26a602c430423cd");
    expect(&keys[34], "ed62ba5d71722b14dfaf21283b895e861bff83d750186c7ffcf73d678ac05bf3");
}
END_TEST

START_TEST(blocks_of_any_length_match_independent_vectors)
{
    static const size_t      lens[] = {1, 16, 17, 18, 52, 53, 140}; /* up to 52 tokens are hashed in one piece */
    static const char *const hex[]  = {"7013fd38412a831ad65c5e2ecd56093024e2a564757af026d2d113a82c872624",
                                       "2c0c651d12ce260be3cbeaff40169b109139d99f1eb0a0c36de6495a8e7e5491",
                                       "1389b1f0523c75d80686d71ab739080315a1c758bb1c79fbb1efef5c07820c07",
                                       "c6034a18f50dc11d08688f46cba696d2b8514c106972881c099e92036c75fe8a",
                                       "b27f533ac8c594315d05a5ceb284a4ca7a171c3316fad3fdbe40c1ba021e0dc3",
                                       "5295bfa4caba48068cb61043db1b7b2655b1997ad304749fbaf3c1081e2cf136",
                                       "beff3326e3143d9d49a89ea9098b583d1b50a0a761c5c85bd4f3d03f43f4e230"};
    kvcl_key_t key;
    size_t i, n;

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, lens[i], lens[i], &key, 1, &n), KVCL_OK);
        ck_assert_uint_eq(n, 1);
        expect(&key, hex[i]);
    }
}
END_TEST

START_TEST(string_and_empty_root_match_independent_vectors)
{
    kvcl_key_t key;

    kvcl_key_from_string("ckpt-1200/piece 7", 17, &key);
    expect(&key, "610b7f9e5904365050be67e747106bee2544a5de265d41c29d05c0de0dee9e45");
    kvcl_key_root(NULL, 0, NULL, &key);
    expect(&key, "1b7484873bc2ad4afa60a819e8b2647b6eaa9eff1513a09dde598281ca48ad8b");
}
END_TEST

START_TEST(tag_is_shared_by_groups_of_sixteen)
{
    kvcl_key_t keys[BLOCKS];
    size_t n, i;

    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, keys, BLOCKS, &n), KVCL_OK);
    for (i = 0; i < n; ++i) {
        ck_assert_uint_eq(kvcl_key_tag(&keys[i]), kvcl_key_tag(&keys[i - (i % KVCL_KEY_TAG_BLOCKS)]));
    }
    ck_assert_uint_eq(kvcl_key_tag(&keys[0]), 0x5fa4);
    ck_assert_uint_ne(kvcl_key_tag(&keys[15]), kvcl_key_tag(&keys[16]));
}
END_TEST

START_TEST(continuing_a_chain_anywhere_gives_the_same_keys)
{
    kvcl_key_t all[BLOCKS], some[BLOCKS];
    size_t n, at;

    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, all, BLOCKS, &n), KVCL_OK);
    for (at = 1; at < BLOCKS; ++at) {
        memset(some, 0, sizeof(some));
        ck_assert_int_eq(kvcl_key_chain(&all[at - 1], at, tokens + (at * PER_BLOCK), TOKENS - (at * PER_BLOCK),
                                        PER_BLOCK, some, BLOCKS, &n),
                         KVCL_OK);
        ck_assert_uint_eq(n, BLOCKS - at);
        ck_assert_int_eq(memcmp(some, &all[at], n * sizeof(kvcl_key_t)), 0);
    }
    /* in place, the parent inside the array */
    memcpy(some, all, sizeof(all));
    memset(&some[3], 0, (BLOCKS - 3) * sizeof(kvcl_key_t));
    ck_assert_int_eq(kvcl_key_chain(&some[2], 3, tokens + (3 * PER_BLOCK), TOKENS - (3 * PER_BLOCK), PER_BLOCK,
                                    &some[3], BLOCKS - 3, &n),
                     KVCL_OK);
    ck_assert_int_eq(memcmp(some, all, sizeof(all)), 0);
}
END_TEST

START_TEST(any_changed_token_changes_its_block_and_all_later_ones_only)
{
    kvcl_key_t a[BLOCKS], b[BLOCKS];
    size_t n, i;

    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, a, BLOCKS, &n), KVCL_OK);
    tokens[7 * PER_BLOCK + 3] ^= 0x80000000u;
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, b, BLOCKS, &n), KVCL_OK);
    for (i = 0; i < n; ++i) {
        ck_assert_int_eq(kvcl_key_equal(&a[i], &b[i]) != 0, i < 7);
    }
}
END_TEST

START_TEST(salt_and_model_do_not_run_into_each_other)
{
    kvcl_key_t a, b;

    kvcl_key_root("ab", 2, "c", &a);
    kvcl_key_root("a", 1, "bc", &b);
    ck_assert(!kvcl_key_equal(&a, &b));
}
END_TEST

START_TEST(counting_and_a_short_array_write_no_key)
{
    kvcl_key_t keys[BLOCKS], zero[BLOCKS];
    size_t n = 99;

    memset(keys, 0, sizeof(keys));
    memset(zero, 0, sizeof(zero));
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, NULL, 0, &n), KVCL_OK);
    ck_assert_uint_eq(n, BLOCKS);
    n = 99;
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, TOKENS, PER_BLOCK, keys, BLOCKS - 1, &n), KVCL_ERR_NO_SPACE);
    ck_assert_uint_eq(n, BLOCKS);
    ck_assert_int_eq(memcmp(keys, zero, sizeof(keys)), 0);
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, PER_BLOCK - 1, PER_BLOCK, keys, BLOCKS, &n), KVCL_OK);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(kvcl_key_chain(&root, 0, NULL, 0, PER_BLOCK, keys, BLOCKS, &n), KVCL_OK);
    ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(bad_arguments_are_named)
{
    kvcl_key_t key;
    size_t n = 5;

    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, 4, 0, &key, 1, &n), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "tokens_per_block"));
    ck_assert_int_eq(kvcl_key_chain(NULL, 0, tokens, 4, 4, &key, 1, &n), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "parent"));
    ck_assert_int_eq(kvcl_key_chain(&root, 0, NULL, 4, 4, &key, 1, &n), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, 4, 4, &key, 1, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, 4, 4, NULL, 1, &n), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(n, 5);
}
END_TEST

START_TEST(a_foreign_hash_is_taken_as_is)
{
    uint8_t hash[32];
    kvcl_key_t key;
    int i;

    for (i = 0; i < 32; ++i) {
        hash[i] = (uint8_t)(0xf0 + i);
    }
    kvcl_key_from_hash32(hash, &key);
    ck_assert_int_eq(memcmp(key.bytes, hash, 32), 0);
    ck_assert_uint_eq(kvcl_key_tag(&key), 0xf0f1);
}
END_TEST

START_TEST(bytes_of_any_length_match_independent_vectors)
{
    uint8_t bytes[36];
    kvcl_key_t key, other;
    int i;

    for (i = 0; i < 32; ++i) {
        bytes[i] = (uint8_t)(0xf0 + i);
    }
    memcpy(bytes + 32, "\007\000\000", 4);
    kvcl_key_from_bytes(NULL, 0, bytes, 32, &key);
    ck_assert_int_eq(memcmp(key.bytes, bytes, 32), 0);
    kvcl_key_from_bytes(NULL, 0, bytes, 36, &key); /* sha256("kvcl-key-bytes01" + pack("<Q", 0) + bytes) */
    expect(&key, "48767801dac61988e54d419a548b31c3ba0556b8853bdbce24c6673e89a31731");
    kvcl_key_from_bytes("tenant-7", 8, bytes, 32, &key);
    expect(&key, "33779508fc2f99d544a3ca1ea560ac1210714095c688a9959991aae9aaf829c3");
    kvcl_key_from_bytes(NULL, 0, NULL, 0, &key);
    expect(&key, "07bff51ff20a08de08cf1a2e84fcc40e90fe24ec5b82ccd5febd6b11f4dcd580");
    kvcl_key_from_bytes("ab", 2, "cd", 2, &key); /* salt and bytes do not run into each other */
    kvcl_key_from_bytes("abc", 3, "d", 1, &other);
    ck_assert(!kvcl_key_equal(&key, &other));
    kvcl_key_from_bytes(NULL, 0, "abcd", 4, &other);
    ck_assert(!kvcl_key_equal(&key, &other));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_key");
    TCase *tc = tcase_create("key");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, chain_matches_independent_vectors);
    tcase_add_test(tc, blocks_of_any_length_match_independent_vectors);
    tcase_add_test(tc, string_and_empty_root_match_independent_vectors);
    tcase_add_test(tc, tag_is_shared_by_groups_of_sixteen);
    tcase_add_test(tc, continuing_a_chain_anywhere_gives_the_same_keys);
    tcase_add_test(tc, any_changed_token_changes_its_block_and_all_later_ones_only);
    tcase_add_test(tc, salt_and_model_do_not_run_into_each_other);
    tcase_add_test(tc, counting_and_a_short_array_write_no_key);
    tcase_add_test(tc, bad_arguments_are_named);
    tcase_add_test(tc, a_foreign_hash_is_taken_as_is);
    tcase_add_test(tc, bytes_of_any_length_match_independent_vectors);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
