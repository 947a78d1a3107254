/*
 * The permutation of keys (policy/key_perm.h): it is one, its batches equal its single keys, equal tags stay equal and
 * nothing else does, and another secret is another permutation. One image is fixed: keys lie in files.
 */
#include "config.h"
#include "policy/key_perm.h"
#include "base/rand.h"

#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY = KVCL_KEY_PERM_BYTES, MANY = 300 };

static atomic_bool no_memory; /* libcrypto makes no further context */

/* libcrypto's, which the library calls through this one. Only src includes its headers. */
struct evp_cipher_ctx_st *EVP_CIPHER_CTX_new(void);
__attribute__((visibility("default"))) struct evp_cipher_ctx_st *EVP_CIPHER_CTX_new(void)
{
    void                     *symbol = dlsym(RTLD_NEXT, "EVP_CIPHER_CTX_new");
    struct evp_cipher_ctx_st *(*make_ctx)(void);

    memcpy(&make_ctx, &symbol, sizeof(make_ctx));
    return atomic_load(&no_memory) ? NULL : make_ctx();
}

static kvcl_key_perm_t *make(uint8_t first)
{
    uint8_t         secret[32] = {first};
    kvcl_key_perm_t *perm;

    ck_assert_int_eq(kvcl_key_perm_create(secret, &perm), KVCL_OK);
    return perm;
}

static void fill(uint8_t *keys, size_t n)
{
    const char *env = getenv("TEST_SEED");
    uint64_t   seed = (env != NULL) ? strtoull(env, NULL, 0) : (uint64_t)time(NULL), word;
    size_t     i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    for (i = 0; i < n * KEY; i += sizeof(word)) {
        word = kvcl_splitmix64(&seed);
        memcpy(keys + i, &word, sizeof(word));
    }
    for (i = 0; i < n; ++i) { /* chains of 16 */
        memcpy(keys + (i * KEY), keys + (i / 16 * 16 * KEY), 2);
    }
}

/* The number of bits in which two images differ. */
static unsigned distance(const uint8_t *a, const uint8_t *b, size_t n)
{
    unsigned bits = 0;
    size_t   i;

    for (i = 0; i < n; ++i) {
        bits += (unsigned)__builtin_popcount((unsigned)(a[i] ^ b[i]));
    }
    return bits;
}

START_TEST(any_number_of_keys_returns)
{
    static const size_t counts[] = {0, 1, 2, 63, 64, 65, 128, MANY};
    uint8_t             keys[MANY * KEY], out[MANY * KEY], one[KEY];
    kvcl_key_perm_t     *perm = make(1);
    size_t              n = counts[_i], i;

    fill(keys, n);
    memset(out, 0, sizeof(out));
    kvcl_key_perm_apply(perm, keys, n, out);
    for (i = 0; i < n; ++i) {
        kvcl_key_perm_apply(perm, keys + (i * KEY), 1, one);
        ck_assert_mem_eq(one, out + (i * KEY), KEY);
        ck_assert_mem_ne(keys + (i * KEY) + 2, one + 2, KEY - 2);
        kvcl_key_perm_undo(perm, one, 1, one); /* in place */
        ck_assert_mem_eq(one, keys + (i * KEY), KEY);
    }
    kvcl_key_perm_undo(perm, out, n, out);
    ck_assert(memcmp(out, keys, n * KEY) == 0);
    kvcl_key_perm_destroy(perm);
}
END_TEST

START_TEST(tags_are_permuted_alone)
{
    uint8_t         *seen = calloc(65536, 1), key[KEY] = {0}, out[KEY];
    kvcl_key_perm_t *perm = make(2);
    unsigned        tag, moved = 0, image;

    for (tag = 0; tag < 65536; ++tag) {
        key[0] = (uint8_t)(tag >> 8);
        key[1] = (uint8_t)tag;
        key[9] = (uint8_t)(tag * 7); /* the rest has no influence on the image of a tag */
        kvcl_key_perm_apply(perm, key, 1, out);
        image = ((unsigned)out[0] << 8) | out[1];
        ck_assert_uint_eq(seen[image], 0);
        seen[image] = 1;
        moved += (image != tag);
        key[9] = 0;
        kvcl_key_perm_apply(perm, key, 1, out);
        ck_assert_uint_eq(image, ((unsigned)out[0] << 8) | out[1]);
    }
    ck_assert_uint_gt(moved, 65000);
    free(seen);
    kvcl_key_perm_destroy(perm);
}
END_TEST

/* A change of one bit anywhere, also in the tag, changes about half of the other 240 bits. */
START_TEST(one_bit_changes_half)
{
    kvcl_key_perm_t *perm = make(3);
    uint8_t         key[KEY], out[KEY], near[KEY];
    unsigned        bit, bits;

    fill(key, 1);
    kvcl_key_perm_apply(perm, key, 1, out);
    for (bit = 0; bit < 8 * KEY; ++bit) {
        key[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        kvcl_key_perm_apply(perm, key, 1, near);
        key[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        bits = distance(out + 2, near + 2, KEY - 2);
        ck_assert_msg((bits > 60) && (bits < 180), "bit %u: %u of 240 bits differ", bit, bits);
    }
    kvcl_key_perm_destroy(perm);
}
END_TEST

START_TEST(another_secret_is_another_permutation)
{
    kvcl_key_perm_t *a = make(4), *b = make(5), *same = make(4);
    uint8_t         key[KEY] = {0}, out[3][KEY];
    unsigned        bits;

    kvcl_key_perm_apply(a, key, 1, out[0]);
    kvcl_key_perm_apply(b, key, 1, out[1]);
    kvcl_key_perm_apply(same, key, 1, out[2]);
    ck_assert_mem_eq(out[0], out[2], KEY);
    bits = distance(out[0] + 2, out[1] + 2, KEY - 2);
    ck_assert((bits > 60) && (bits < 180));
    kvcl_key_perm_destroy(a);
    kvcl_key_perm_destroy(b);
    kvcl_key_perm_destroy(same);
}
END_TEST

/* Blocks of tenants outlive a process in second tiers. */
START_TEST(the_image_is_fixed)
{
    static const char expected[] = "9fd52f34ea09c6b5bd0dcfd8cb0ed036acc577813fe513ae01c1321f53d57402";
    kvcl_key_perm_t   *perm = make(6);
    uint8_t           key[KEY];
    char              hex[(2 * KEY) + 1];
    unsigned          i;

    for (i = 0; i < KEY; ++i) {
        key[i] = (uint8_t)i;
    }
    kvcl_key_perm_apply(perm, key, 1, key);
    for (i = 0; i < KEY; ++i) {
        snprintf(hex + (2 * i), 3, "%02x", key[i]);
    }
    ck_assert_str_eq(hex, expected);
    kvcl_key_perm_destroy(perm);
}
END_TEST

typedef struct job {
    kvcl_key_perm_t *perm;
    const uint8_t   *keys, *images;
    bool            bad;
} job_t;

static void *work(void *arg)
{
    job_t   *job = arg;
    uint8_t out[100 * KEY];
    int     i;

    for (i = 0; i < 500; ++i) {
        kvcl_key_perm_apply(job->perm, job->keys, 100, out);
        job->bad = job->bad || (memcmp(out, job->images, sizeof(out)) != 0);
    }
    return NULL;
}

/* In the second round libcrypto has no memory for a second context: the threads wait for the only one. */
START_TEST(threads_share_one)
{
    enum { THREADS = 12 }; /* more than it keeps contexts */
    uint8_t         keys[100 * KEY], images[100 * KEY];
    kvcl_key_perm_t *perm = make(7);
    pthread_t       threads[THREADS];
    job_t           jobs[THREADS];
    int             i;

    fill(keys, 100);
    kvcl_key_perm_apply(perm, keys, 100, images);
    atomic_store(&no_memory, _i != 0);
    for (i = 0; i < THREADS; ++i) {
        jobs[i] = (job_t){.perm = perm, .keys = keys, .images = images};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        ck_assert(!jobs[i].bad);
    }
    atomic_store(&no_memory, false);
    kvcl_key_perm_destroy(perm);
}
END_TEST

START_TEST(without_memory_none_is_made)
{
    uint8_t         secret[32] = {1};
    kvcl_key_perm_t *perm      = NULL;

    atomic_store(&no_memory, true);
    ck_assert_int_eq(kvcl_key_perm_create(secret, &perm), KVCL_ERR_NO_MEMORY);
    ck_assert_ptr_null(perm);
    atomic_store(&no_memory, false);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("key_perm");
    TCase   *tcase  = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, any_number_of_keys_returns, 0, 8);
    tcase_add_test(tcase, tags_are_permuted_alone);
    tcase_add_test(tcase, one_bit_changes_half);
    tcase_add_test(tcase, another_secret_is_another_permutation);
    tcase_add_test(tcase, the_image_is_fixed);
    tcase_add_loop_test(tcase, threads_share_one, 0, 2);
    tcase_add_test(tcase, without_memory_none_is_made);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
