/*
 * The pure parts of a step of experts: routes against the rule written plainly, notices, sums bit by bit against
 * operations that are rounded one by one, renormalising. TEST_SEED replays.
 */
#include "ep/ep_step.h"
#include "test_base.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { INPUTS = 300, RANKS = 5, TOKENS = 24, TOP_K = 6, HIDDEN = 700 };

static kvcl_rand_t rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

static kvcl_ep_open_params_t params_of(uint32_t slots, uint32_t top_k)
{
    kvcl_ep_open_params_t p = KVCL_EP_OPEN_PARAMS_INIT;

    p.slots      = slots;
    p.max_tokens = TOKENS;
    p.top_k      = top_k;
    p.hidden     = HIDDEN;
    return p;
}

static void refused(const kvcl_ep_open_params_t *p, uint32_t ranks, const char *word)
{
    kvcl_ep_dims_t dims;

    ck_assert_int_eq(kvcl_ep_dims_take(p, ranks, 0, &dims), KVCL_ERR_INVALID_PARAM);
    ck_assert_msg(strstr(kvcl_last_error(), word) != NULL, "'%s' lacks '%s'", kvcl_last_error(), word);
}

START_TEST(params_are_checked)
{
    kvcl_ep_open_params_t p = params_of(10, 3);
    kvcl_ep_dims_t        dims;

    ck_assert_int_eq(kvcl_ep_dims_take(&p, 5, 1, &dims), KVCL_OK);
    ck_assert((dims.local == 2) && (dims.rows == 5 * TOKENS) && (dims.most == 2 * TOKENS) &&
              (dims.row_bytes == 2 * HIDDEN));
    refused(&p, 4, "12 slots");
    refused(&p, 0, "ranks");
    p.top_k = KVCL_EP_MAX_TOP_K + 1;
    refused(&p, 5, "top_k is 65");
    p       = params_of(10, 3);
    p.dtype = KVCL_DTYPE_F64;
    refused(&p, 5, "dtype");
    p            = params_of(65536, 3);
    p.max_tokens = 65536;
    refused(&p, 1, "rows");
    p.hidden = 0;
    refused(&p, 1, "hidden");
}
END_TEST

/* Random choices; some ranks are not active. */
static void draw(const kvcl_ep_dims_t *dims, int64_t *ids, uint32_t n, uint32_t top_k, int32_t *active)
{
    uint32_t t, k, i;

    for (i = 0; i < dims->ranks; ++i) {
        active[i] = (below(4) != 0);
    }
    for (t = 0; t < n; ++t) {
        for (k = 0; k < top_k; ++k) {
            ids[(t * top_k) + k] = (int64_t)below(dims->slots + 2) - 2;
            for (i = 0; i < k; ++i) {
                if (ids[(t * top_k) + i] == ids[(t * top_k) + k]) {
                    ids[(t * top_k) + k] = KVCL_EP_ID_NONE;
                }
            }
        }
    }
}

START_TEST(routes_sort_choices_by_slot_then_by_token)
{
    uint32_t              i, k, n, top_k, slot, row;
    kvcl_ep_open_params_t p;
    kvcl_ep_dims_t        dims;
    kvcl_ep_route_t       route;
    int64_t               ids[TOKENS * TOP_K];
    int32_t               active[RANKS];
    unsigned              input;

    for (input = 0; input < INPUTS; ++input) {
        p     = params_of(RANKS * (1 + below(4)), TOP_K);
        n     = below(TOKENS + 1);
        top_k = 1 + below(TOP_K);
        ck_assert_int_eq(kvcl_ep_dims_take(&p, RANKS, 0, &dims), KVCL_OK);
        ck_assert_int_eq(kvcl_ep_route_init(&route, &dims), KVCL_OK);
        draw(&dims, ids, n, top_k, active);
        ck_assert_int_eq(kvcl_ep_route_check(&dims, ids, n, top_k), KVCL_OK);
        kvcl_ep_route_make(&route, &dims, ids, n, top_k, active);
        for (slot = 0, row = 0; slot < dims.slots; ++slot) {
            ck_assert_uint_eq(route.begin[slot], row);
            for (i = 0; i < n * top_k; ++i) {
                if ((ids[i] == (int64_t)slot) && (active[slot / dims.local] != 0)) {
                    ck_assert_uint_eq(route.place[i], row);
                    ck_assert_uint_eq(route.tokens[row], i / top_k);
                    ++row;
                }
            }
        }
        ck_assert_uint_eq(route.begin[dims.slots], row);
        for (k = 0; k < n * top_k; ++k) {
            if (ids[k] == KVCL_EP_ID_NONE) {
                ck_assert_uint_eq(route.place[k], KVCL_EP_ROW_NONE);
            } else if ((ids[k] < 0) || (active[ids[k] / dims.local] == 0)) {
                ck_assert_uint_eq(route.place[k], KVCL_EP_ROW_LOST);
            }
        }
        kvcl_ep_route_fini(&route);
    }
}
END_TEST

START_TEST(a_notice_tells_what_the_route_gives)
{
    kvcl_ep_open_params_t p = params_of(RANKS * 3, TOP_K);
    char                  bytes[sizeof(kvcl_ep_notice_t) + (3 * sizeof(uint32_t)) + 1];
    uint32_t              counts[3], e, r;
    int64_t               ids[TOKENS * TOP_K];
    int32_t               active[RANKS];
    kvcl_ep_notice_t      notice;
    kvcl_ep_dims_t        dims;
    kvcl_ep_route_t       route;
    size_t                len, i;

    ck_assert_int_eq(kvcl_ep_dims_take(&p, RANKS, 0, &dims), KVCL_OK);
    ck_assert_int_eq(kvcl_ep_route_init(&route, &dims), KVCL_OK);
    draw(&dims, ids, TOKENS, TOP_K, active);
    active[2] = 1;
    kvcl_ep_route_make(&route, &dims, ids, TOKENS, TOP_K, active);
    len = kvcl_ep_notice_bytes(&dims);
    for (r = 0; r < RANKS; ++r) {
        kvcl_ep_notice_write(bytes, &dims, &route, r, 9, 77);
        ck_assert_int_eq(kvcl_ep_notice_read(bytes, len, &dims, &notice, counts), KVCL_OK);
        ck_assert((notice.number == 9) && (notice.step == 77));
        ck_assert_uint_eq(notice.rows, kvcl_ep_route_rows(&route, &dims, r));
        for (e = 0; e < 3; ++e) {
            ck_assert_uint_eq(counts[e], route.begin[(r * 3) + e + 1] - route.begin[(r * 3) + e]);
        }
        ck_assert_int_eq(kvcl_ep_notice_read(bytes, len - 1, &dims, &notice, counts), KVCL_ERR_PROTOCOL);
        ck_assert_int_eq(kvcl_ep_notice_read(bytes, len + 1, &dims, &notice, counts), KVCL_ERR_PROTOCOL);
    }
    /* A changed byte of the counts, or of what precedes them: number and step are the machine's to compare. */
    for (i = 0; i < len; ++i) {
        kvcl_ep_notice_write(bytes, &dims, &route, 2, 9, 77);
        bytes[i] = (char)(bytes[i] ^ 0x40);
        ck_assert_int_eq(kvcl_ep_notice_read(bytes, len, &dims, &notice, counts),
                         ((i >= 8) && (i < 24)) ? KVCL_OK : KVCL_ERR_PROTOCOL);
    }
    kvcl_ep_route_fini(&route);
}
END_TEST

static float wide(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static bool same(float a, float b)
{
    return (memcmp(&a, &b, sizeof(a)) == 0) || (isnan(a) && isnan(b));
}

/* Any bits: infinities and NaNs too, rarely. */
static uint16_t half_of(void)
{
    return (uint16_t)((below(2) << 15) | ((below(64) == 0) ? below(0x8000) : 0x3f80 - 600 + below(1200)));
}

START_TEST(sums_are_in_order_and_round_each_operation)
{
    static uint16_t halves[TOP_K][HIDDEN], out16[HIDDEN];
    static float    floats[TOP_K][HIDDEN], out32[HIDDEN];
    const void      *rows16[TOP_K], *rows32[TOP_K];
    float           weights[TOP_K];
    volatile float  sum, product;
    uint32_t        n, hidden, k, i, bits;
    unsigned        input;

    for (input = 0; input < INPUTS / 3; ++input) {
        n      = below(TOP_K + 1);
        hidden = 1 + below(HIDDEN);
        for (k = 0; k < n; ++k) {
            weights[k] = ((float)below(1u << 24) / (float)(1u << 23)) - 1.0f;
            rows16[k]  = halves[k];
            rows32[k]  = floats[k];
            for (i = 0; i < hidden; ++i) {
                halves[k][i] = half_of();
                floats[k][i] = wide(half_of()) * (1.0f + ((float)below(1u << 20) / (float)(1u << 23)));
            }
        }
        kvcl_ep_sum(out16, KVCL_DTYPE_BF16, hidden, rows16, weights, n);
        kvcl_ep_sum(out32, KVCL_DTYPE_F32, hidden, rows32, weights, n);
        for (i = 0; i < hidden; ++i) {
            for (k = 0, sum = 0.0f; k < n; ++k) {
                product = weights[k] * floats[k][i];
                sum     = sum + product;
            }
            ck_assert_msg(same(out32[i], sum), "element %u of %u: %a, not %a", i, hidden, (double)out32[i],
                          (double)sum);
            for (k = 0, sum = 0.0f; k < n; ++k) {
                product = weights[k] * wide(halves[k][i]);
                sum     = sum + product;
            }
            memcpy(&bits, (const void *)&sum, sizeof(bits));
            bits = isnan(sum) ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1);
            ck_assert_msg(same(wide(out16[i]), wide((uint16_t)(bits >> 16))), "element %u of %u: %a of %a", i, hidden,
                          (double)wide(out16[i]), (double)sum);
        }
    }
}
END_TEST

START_TEST(renormalising_is_for_lost_weights_only)
{
    const int64_t ids[8]     = {3, 4, 5, KVCL_EP_ID_NONE, 6, KVCL_EP_ID_LOST, 7, 8};
    const float   weights[8] = {0.5f, 0.5f, 0.25f, 9.0f, 0.75f, 0.25f, 0.5f, 0.5f};
    const float   lost[4]    = {0.0f, 0.25f, 0.25f, 0.5f};
    float         out[8]     = {1, 2, 1, 2, 3, 4, 5, 6};
    uint8_t       hopeless[4];
    uint32_t      n = 99;

    ck_assert_int_eq(kvcl_ep_renormalise(out, KVCL_DTYPE_F32, 4, 2, ids, weights, 2, lost, hopeless, &n), KVCL_OK);
    ck_assert_uint_eq(n, 1); /* token 1 chose one expert, and lost it: 0/0 */
    ck_assert((hopeless[0] == 0) && (hopeless[1] == 1) && (hopeless[2] == 0) && (hopeless[3] == 0));
    ck_assert((out[0] == 1) && (out[1] == 2));                          /* nothing lost */
    ck_assert((out[2] == 1) && (out[3] == 2));                          /* left as it is */
    ck_assert((out[4] == 3 * (1.0f / 0.75f)) && (out[5] == 4 * (1.0f / 0.75f)));
    ck_assert((out[6] == 10) && (out[7] == 12));
    ck_assert_int_eq(kvcl_ep_renormalise(NULL, KVCL_DTYPE_F32, 4, 2, ids, weights, 2, lost, NULL, NULL),
                     KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_ep_renormalise(out, KVCL_DTYPE_F16, 4, 2, ids, weights, 2, lost, NULL, NULL),
                     KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_ep_renormalise(NULL, KVCL_DTYPE_F32, 0, 2, NULL, NULL, 2, NULL, NULL, NULL), KVCL_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ep_step");
    TCase *tc    = tcase_create("step");

    test_seed(&rnd);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, params_are_checked);
    tcase_add_test(tc, routes_sort_choices_by_slot_then_by_token);
    tcase_add_test(tc, a_notice_tells_what_the_route_gives);
    tcase_add_test(tc, sums_are_in_order_and_round_each_operation);
    tcase_add_test(tc, renormalising_is_for_lost_weights_only);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
