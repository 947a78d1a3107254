/*
 * One allocation of the transport that fails, at either rank, in the midst of a get over loop (fail_alloc_nth): the get
 * succeeds or ends with KVCL_ERR_NO_MEMORY before its deadline, and the next one succeeds.
 */
#include "config.h"
#include "link_pair.h"

#include <stdio.h>

static void   *mine, *theirs;
static size_t cache_bytes;
static char   name[32]; /* of b's cache */

static void open_caches(const kvcl_loop_faults_t *kind)
{
    size_t n;

    open_both(kind);
    still_right(1);
    ck_assert_int_eq(kvcl_layout_extent(&layout, &n, &cache_bytes), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_create(a, "mine", &layout, NULL, &cache_a), KVCL_OK);
    mine = kvcl_cache_base(cache_a, 0);
}

/* A cache of another name, which a has to request the description of. */
static void open_next(unsigned i)
{
    if (cache_b != NULL) {
        kvcl_cache_destroy(cache_b);
    }
    snprintf(name, sizeof(name), "theirs %u", i);
    ck_assert_int_eq(kvcl_cache_create(b, name, &layout, NULL, &cache_b), KVCL_OK);
    theirs = kvcl_cache_base(cache_b, 0);
}

static size_t count(int byte)
{
    size_t n = 0, i;

    for (i = 0; i < cache_bytes; ++i) {
        n += ((const unsigned char *)mine)[i] == byte;
    }
    return n;
}

/* whole: else one layer of one block, which the owner answers at once. */
static kvcl_status_t get_blocks(bool whole, int byte)
{
    static const uint32_t ids[BLOCKS] = {0, 1, 2, 3};
    kvcl_sel_t            sel         = {.blocks = ids, .n_blocks = whole ? BLOCKS : 1,
                                         .layers = {0, whole ? 0 : 1}};
    kvcl_xfer_params_t    params      = KVCL_XFER_PARAMS_INIT;
    size_t                bytes       = whole ? cache_bytes : cache_bytes / BLOCKS / 2;
    kvcl_req_h            req         = NULL;
    kvcl_status_t         status;

    params.remote_cache = name;
    params.timeout_ns   = 20 * KVCL_NS_PER_SEC;
    memset(mine, 0, cache_bytes);
    memset(theirs, byte, cache_bytes);
    status = kvcl_get(to_b, 0, cache_a, &sel, &sel, &params, &req);
    status = ((status == KVCL_OK) && (req != NULL)) ? ended(req) : status;
    ck_assert((status != KVCL_OK) || (count(byte) == bytes));
    return status;
}

/* _i: the kind of loop, and whether the get is of all blocks. */
START_TEST(a_get_ends_and_the_next_one_succeeds)
{
    kvcl_loop_faults_t faults;
    unsigned           refused = 0;
    bool               whole   = (_i % 2) != 0;
    kvcl_status_t      status;
    uint64_t           nth;

    open_caches(&kinds_of_loop[_i / 2]);
    for (nth = 1; nth <= NTH_MAX; ++nth) {
        open_next((unsigned)nth);
        faults                = kinds_of_loop[_i / 2];
        faults.fail_alloc_nth = nth;
        kvcl_loop_set_faults(&faults);
        status = get_blocks(whole, 50 + (int)nth);
        ck_assert_msg((status == KVCL_OK) || (status == KVCL_ERR_NO_MEMORY), "allocation %d: %s", (int)nth,
                      kvcl_status_text(status));
        refused += (status != KVCL_OK);
        kvcl_loop_set_faults(&kinds_of_loop[_i / 2]);
        ck_assert_int_eq(get_blocks(whole, 100 + (int)nth), KVCL_OK);
    }
    ck_assert_uint_gt(refused, 0);
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("no_memory");
    TCase *tc    = tcase_create("loop");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, a_get_ends_and_the_next_one_succeeds, 0, 2 * LOOP_KINDS);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
