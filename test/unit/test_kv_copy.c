/*
 * Property test: random layouts (both orders, random nested strides with padding, one base, one per layer, one per
 * plane, opaque; blocks of different sizes), selections, ranges of tokens and block lists on two sides. It compares the
 * library's run list, split run list, gather, scatter and unpacking with a plain copy, head vector by head vector, by
 * the formula of kvcl_layout.h and strides that this file computes itself. Every byte of the destination is compared,
 * including those that must not change. Bases are allocated with the exact size that the library returns, so that
 * sanitizers detect an access outside. TEST_SEED repeats a run (the seed is printed), KVCL_TEST_CASES sets its length.
 */
#include "kv_sums.h"
#include "kv/runs.h"

#include "base/checksum.h"
#include "base/rand.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BASES = 8, MAX_LIST = 24 };

/* The reference's description of one side: its own strides, by dimension, [base] for those from base to base. */
typedef struct model {
    kvcl_layout_t layout;
    kvcl_shape_t shape;
    uint64_t stride[KVCL_DIMS + 1]; /* by KVCL_DIM_*; bytes */
    uint32_t base_step[KVCL_DIMS + 1];
    uint64_t span;
    uint32_t n_bases;
    int opaque;
    uint32_t tokens; /* of a block */
    uint32_t first_layer, first_head, first_token;
    size_t n_blocks;
    uint32_t ids[MAX_LIST];
    uint8_t *mem[MAX_BASES];
    uint8_t *want[MAX_BASES]; /* of the destination */
    uintptr_t bases[MAX_BASES];
    kvcl_side_t side;
} model_t;

/* Properties shared by both sides. */
typedef struct common {
    uint32_t kv, head_dim, elem_bytes, n_layers, n_heads;
    uint64_t head_bytes, token_bytes;
    uint32_t n_tokens; /* in all */
    uint32_t unit;     /* divides both blocks, and the ends of both ranges */
} common_t;

static kvcl_rand_t rnd;
static uint64_t seed;
static unsigned long case_no;

static uint32_t upto(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

/* (ck_assert writes to a file at each call, whatever its result, which would take most of the time.) */
#define REQUIRE(_cond)                                                                                                 \
    do {                                                                                                               \
        if (!(_cond)) {                                                                                                \
            ck_abort_msg("case %lu of TEST_SEED=%" PRIu64 ": %s (%s)", case_no, seed, #_cond, kvcl_last_error()); \
        }                                                                                                              \
    } while (0)

static void random_counts(model_t *m, const common_t *c)
{
    kvcl_layout_t *l = &m->layout;

    *l = (kvcl_layout_t){.size = sizeof(*l)};
    l->layers = c->n_layers + upto(2);
    l->heads = c->n_heads + (upto(2) * upto(3));
    l->blocks = 1 + upto(14);
    l->kv = ((c->kv == 2) && upto(2)) ? 0 : c->kv;
    l->tokens = m->tokens;
    l->head_dim = c->head_dim;
    l->elem_bytes = c->elem_bytes;
    l->order = upto(2);
    l->flags = (uint64_t[]){0, KVCL_LAYOUT_PER_LAYER, KVCL_LAYOUT_PER_PLANE}[upto(3)];
    m->first_layer = upto(l->layers - c->n_layers + 1);
    m->first_head = upto(l->heads - c->n_heads + 1);
}

static void shuffle(uint32_t *v, size_t n)
{
    size_t i, j;
    uint32_t t;

    for (i = n; i > 1; --i) {
        j = upto((uint32_t)i);
        t = v[i - 1], v[i - 1] = v[j], v[j] = t;
    }
}

/* The reference's strides: dense in the declared order and left to the library, or nested at random. */
static void random_strides(model_t *m, const common_t *c)
{
    const uint64_t count[] = {0, m->layout.heads, m->tokens, m->layout.blocks, c->kv, m->layout.layers};
    uint32_t dims[] = {KVCL_DIM_HEAD, KVCL_DIM_TOKEN, KVCL_DIM_BLOCK, KVCL_DIM_KV, KVCL_DIM_LAYER};
    uint64_t *const fields[] = {NULL,
                                &m->layout.head_stride,
                                &m->layout.token_stride,
                                &m->layout.block_stride,
                                &m->layout.kv_stride,
                                &m->layout.layer_stride};
    uint64_t span = c->head_bytes, pad;
    int dense = upto(3) == 0;
    uint32_t d;
    int i;

    if (dense && (m->layout.order == KVCL_ORDER_HND)) {
        dims[0] = KVCL_DIM_TOKEN, dims[1] = KVCL_DIM_HEAD;
    } else if (!dense) {
        shuffle(dims, KVCL_DIMS);
    }
    m->n_bases = 1;
    for (i = 0; i < KVCL_DIMS; ++i) {
        d = dims[i];
        if ((d == KVCL_DIM_LAYER) && (m->layout.flags != 0)) {
            m->base_step[d] = (m->layout.flags == KVCL_LAYOUT_PER_PLANE) ? c->kv : 1;
            m->n_bases *= m->layout.layers;
        } else if ((d == KVCL_DIM_KV) && (m->layout.flags == KVCL_LAYOUT_PER_PLANE)) {
            m->base_step[d] = 1;
            m->n_bases *= c->kv;
        } else {
            pad = (dense || upto(2)) ? 0 : 1 + upto(9);
            m->stride[d] = span + pad;
            *fields[d] = dense ? 0 : m->stride[d];
            span += (count[d] - 1) * m->stride[d];
        }
    }
    m->span = span;
}

static void make_opaque(model_t *m, const common_t *c)
{
    m->opaque = 1;
    m->layout = (kvcl_layout_t)KVCL_LAYOUT_BYTES(1 + upto(14), (uint32_t)c->token_bytes * m->tokens);
    m->n_bases = 1;
    m->span = m->layout.blocks * c->token_bytes * m->tokens;
}

/* Ids with neighbours among them; all different where bytes are written. */
static void random_ids(model_t *m, size_t n, int distinct)
{
    uint32_t all[MAX_LIST], blocks = (uint32_t)m->layout.blocks;
    size_t i, start;

    for (i = 0; i < blocks; ++i) {
        all[i] = (uint32_t)i;
    }
    if (upto(2)) {
        shuffle(all, blocks);
    }
    start = upto(blocks);
    for (i = 0; i < n; ++i) {
        m->ids[i] = all[(start + i) % blocks];
        if (!distinct && (upto(4) == 0)) {
            m->ids[i] = upto(blocks);
        }
    }
}

static void fill_memory(model_t *m, int with_want)
{
    uint64_t i, word;
    uint32_t b;

    for (b = 0; b < m->n_bases; ++b) {
        m->mem[b] = malloc(m->span);
        for (i = 0; i < m->span; i += sizeof(word)) {
            word = kvcl_rand_next(&rnd);
            memcpy(m->mem[b] + i, &word, (m->span - i < sizeof(word)) ? (size_t)(m->span - i) : sizeof(word));
        }
        m->bases[b] = (uintptr_t)m->mem[b];
        if (with_want) {
            m->want[b] = malloc(m->span);
            memcpy(m->want[b], m->mem[b], m->span);
        }
    }
}

static void make_model(model_t *m, const common_t *c, uint32_t tokens, int opaque)
{
    memset(m, 0, sizeof(*m));
    m->tokens = tokens;
    if (opaque) {
        make_opaque(m, c);
    } else {
        random_counts(m, c);
        random_strides(m, c);
    }
}

/* The position of c's tokens in the list, and the length that it must have. With range 0 they are the whole list. */
static void place_tokens(model_t *m, const common_t *c, int range)
{
    uint64_t room = m->layout.blocks * m->tokens;

    if (c->n_tokens == 0) {
        return;
    }
    if (range && (room > c->n_tokens)) {
        room -= c->n_tokens;
        m->first_token = upto((uint32_t)((room < 2 * m->tokens) ? room : 2 * m->tokens) + 1);
    }
    m->n_blocks = (m->first_token + c->n_tokens + m->tokens - 1) / m->tokens;
    m->n_blocks += (range && (m->n_blocks < m->layout.blocks)) ? upto(2) : 0; /* one that is not accessed */
}

static void finish_model(model_t *m, const common_t *c, int is_dst)
{
    uint32_t end = m->first_token + c->n_tokens;

    REQUIRE(kvcl_shape_init(&m->shape, &m->layout) == KVCL_OK);
    REQUIRE(m->shape.n_bases == m->n_bases);
    REQUIRE(m->shape.base_bytes == m->span);
    random_ids(m, m->n_blocks, is_dst);
    fill_memory(m, is_dst);
    m->side = (kvcl_side_t){.shape = &m->shape, .bases = m->bases, .sel = {.blocks = m->ids, .n_blocks = m->n_blocks}};
    if (!m->opaque && ((c->n_layers < m->layout.layers) || upto(2))) {
        m->side.sel.layers = (kvcl_range_t){m->first_layer, m->first_layer + c->n_layers};
    }
    if (!m->opaque && ((c->n_heads < m->layout.heads) || upto(2))) {
        m->side.sel.heads = (kvcl_range_t){m->first_head, m->first_head + c->n_heads};
    }
    if ((c->n_tokens > 0) && ((m->n_blocks * m->tokens > c->n_tokens) || (!m->opaque && (upto(4) == 0)))) {
        m->side.sel.tokens = (kvcl_range_t){m->first_token, end};
    }
    REQUIRE(kvcl_side_check(&m->side) == KVCL_OK);
    REQUIRE(kvcl_sel_bytes(&m->shape, &m->side.sel) == c->n_tokens * c->token_bytes);
}

/* The reference: the address of head vector (l, k, i-th token, h) of the selection. */
static uint8_t *locate(const model_t *m, uint8_t *const *mem, const common_t *c, size_t i, uint32_t l, uint32_t k,
                       uint32_t h)
{
    uint64_t id = m->ids[(m->first_token + i) / m->tokens];
    uint64_t t = (m->first_token + i) % m->tokens;

    if (m->opaque) {
        return mem[0] + (id * c->token_bytes * m->tokens) +
               (((((uint64_t)l * c->kv + k) * m->tokens + t) * c->n_heads + h) * c->head_bytes);
    }
    l += m->first_layer;
    h += m->first_head;
    return mem[(l * m->base_step[KVCL_DIM_LAYER]) + (k * m->base_step[KVCL_DIM_KV])] + (l * m->stride[KVCL_DIM_LAYER]) +
           (k * m->stride[KVCL_DIM_KV]) + (id * m->stride[KVCL_DIM_BLOCK]) + (t * m->stride[KVCL_DIM_TOKEN]) +
           (h * m->stride[KVCL_DIM_HEAD]);
}

/* The plain copy into want[]; packed gets the canonical bytes by @a unit. */
static void reference_copy(model_t *dst, const model_t *src, const common_t *c, uint8_t *packed, uint32_t unit)
{
    uint32_t l, k, t, h;
    size_t i;

    for (i = 0; i < c->n_tokens; i += unit) {
        for (l = 0; l < c->n_layers; ++l) {
            for (k = 0; k < c->kv; ++k) {
                for (t = 0; t < unit; ++t) {
                    for (h = 0; h < c->n_heads; ++h) {
                        memcpy(packed, locate(src, src->mem, c, i + t, l, k, h), c->head_bytes);
                        memcpy(locate(dst, dst->want, c, i + t, l, k, h), packed, c->head_bytes);
                        packed += c->head_bytes;
                    }
                }
            }
        }
    }
}

static uint32_t random_order(void)
{
    uint32_t dims[] = {1, 2, 3, 4, 5}, order = 0;
    int i;

    if (upto(3) == 0) {
        return KVCL_STREAM_CANONICAL;
    }
    shuffle(dims, KVCL_DIMS);
    for (i = 0; i < KVCL_DIMS; ++i) {
        order |= dims[i] << (4 * i);
    }
    return order;
}

/* One run at a time, of random greatest length; each must be after the base it names. */
static void copy_by_runs(const model_t *dst, const model_t *src, kvcl_runs_t *runs)
{
    uint64_t pos = 0;
    size_t max;
    kvcl_run_t run;

    while (max = upto(2) ? SIZE_MAX : 1 + upto(40), kvcl_runs_next(runs, max, &run)) {
        REQUIRE((run.len > 0) && (run.len <= max));
        REQUIRE((run.dst_base < dst->n_bases) && (run.dst >= dst->bases[run.dst_base]) &&
                (run.dst + run.len <= dst->bases[run.dst_base] + dst->span));
        REQUIRE((run.src_base < src->n_bases) && (run.src >= src->bases[run.src_base]) &&
                (run.src + run.len <= src->bases[run.src_base] + src->span));
        memcpy((void *)run.dst, (const void *)run.src, run.len);
        pos += run.len;
        REQUIRE(kvcl_stream_pos(&runs->src) == pos);
    }
    REQUIRE(pos == kvcl_runs_bytes(runs));
}

/* Parts in any order, as several threads would copy them. */
static void copy_by_parts(const kvcl_runs_t *runs)
{
    uint64_t cut[4] = {0, 0, 0, kvcl_runs_bytes(runs)};
    int i;

    cut[1] = upto((uint32_t)cut[3] + 1);
    cut[2] = cut[1] + upto((uint32_t)(cut[3] - cut[1]) + 1);
    for (i = 2; i >= 0; --i) {
        ck_assert_int_eq(kvcl_runs_copy(runs, cut[i], cut[i + 1]), KVCL_OK);
    }
}

static void copy_by_buffer(const model_t *dst, const model_t *src, const common_t *c, uint32_t order)
{
    uint64_t total = c->n_tokens * c->token_bytes, done, n;
    uint8_t *stage = malloc(total + 1);
    kvcl_stream_t from, to;

    kvcl_stream_init_units(&from, &src->side, order, c->unit);
    kvcl_stream_init_units(&to, &dst->side, order, c->unit);
    for (done = 0; done < total; done += n) {
        n = kvcl_stream_gather(&from, stage + done, 1 + upto(200));
        REQUIRE((n > 0) && (done + n <= total));
    }
    REQUIRE(kvcl_stream_gather(&from, stage, 1) == 0);
    for (done = 0; done < total; done += n) {
        n = 1 + upto(200);
        n = (n > total - done) ? total - done : n;
        if (upto(4) == 0) {
            kvcl_stream_seek(&to, done);
        }
        REQUIRE(((upto(2) == 0) ? kvcl_stream_scatter : kvcl_stream_scatter_cold)(&to, stage + done, n) == n);
    }
    REQUIRE(kvcl_stream_scatter(&to, stage, 1) == 0);
    free(stage);
}

/* packed: by the source's own unit, as stored and sent. */
static void check_checksum(const model_t *src, const common_t *c, const uint8_t *packed)
{
    uint64_t unit_bytes = kvcl_sel_unit(&src->shape, &src->side.sel) * (src->opaque ? src->tokens : 1) * c->token_bytes;
    uint64_t at;
    kvcl_stream_t s;

    kvcl_stream_init(&s, &src->side, KVCL_STREAM_CANONICAL);
    REQUIRE(s.block_bytes == src->tokens * c->token_bytes);
    REQUIRE(s.total_bytes == c->n_tokens * c->token_bytes);
    for (at = 0; at < s.total_bytes; at += unit_bytes) {
        REQUIRE(kvcl_stream_checksum(&s, unit_bytes) == kvcl_checksum(packed + at, unit_bytes));
    }
}

static uint32_t plain_gcd(uint32_t a, uint32_t b)
{
    return (a == 0) ? b : plain_gcd(b % a, a);
}

/* The unit in which a model's list is walked by default. */
static uint32_t own_unit(const model_t *m, const common_t *c)
{
    if (m->side.sel.tokens.end == 0) {
        return m->tokens;
    }
    return plain_gcd(m->first_token, plain_gcd(m->first_token + c->n_tokens, m->tokens));
}

/* Two sides of equal tokens: in blocks of one size, or of two sizes, where one divides the other. */
static void make_models(model_t *dst, model_t *src, common_t *c)
{
    uint32_t small = 1 + upto(3), times = (upto(2) == 0) ? 1 : 1 + upto(4), room;
    int opaque = upto(4) == 0, ranges = !opaque && (upto(2) == 0), swap = (int)upto(2);

    times = opaque ? 1 : times;
    make_model(dst, c, swap ? small : small * times, opaque && upto(2));
    make_model(src, c, swap ? small * times : small, opaque && upto(2));
    room = (uint32_t)(((dst->layout.blocks * dst->tokens < src->layout.blocks * src->tokens) || opaque)
                          ? dst->layout.blocks * dst->tokens : src->layout.blocks * src->tokens);
    c->n_tokens = (ranges ? upto(room + 1) : upto((room / (small * times)) + 1) * small * times);
    place_tokens(dst, c, ranges && upto(2));
    place_tokens(src, c, ranges && upto(2));
    finish_model(dst, c, 1);
    finish_model(src, c, 0);
    c->unit = (dst->opaque || src->opaque || (c->n_tokens == 0)) ? 0 : plain_gcd(own_unit(dst, c), own_unit(src, c));
}

static void one_case(void)
{
    static model_t dst, src;
    common_t c = {.kv = 1 + upto(2),
                  .head_dim = 1 + upto(4),
                  .elem_bytes = 1u << upto(3),
                  .n_layers = 1 + upto(3),
                  .n_heads = 1 + upto(4)};
    uint32_t order = KVCL_RUNS_ANY_ORDER, how = upto(4), b;
    uint8_t *packed;
    kvcl_runs_t runs;

    c.head_bytes = (uint64_t)c.head_dim * c.elem_bytes;
    c.token_bytes = c.head_bytes * c.n_heads * c.kv * c.n_layers;
    make_models(&dst, &src, &c);
    packed = malloc((c.n_tokens * c.token_bytes) + 1);
    reference_copy(&dst, &src, &c, packed, own_unit(&src, &c));
    if (kvcl_shape_is_opaque(&dst.shape) != kvcl_shape_is_opaque(&src.shape)) {
        order = KVCL_STREAM_CANONICAL;
    } else if (upto(2)) {
        order = random_order();
    }
    REQUIRE(kvcl_runs_init(&runs, &dst.side, &src.side, order) == KVCL_OK);
    REQUIRE((kvcl_runs_unit(&dst.side, &src.side) == c.unit) || (c.n_tokens == 0) || kvcl_shape_is_opaque(&dst.shape) ||
            kvcl_shape_is_opaque(&src.shape));
    if (how == 0) {
        copy_by_runs(&dst, &src, &runs);
    } else if (how == 1) {
        copy_by_parts(&runs);
    } else if ((how == 2) && (dst.opaque == src.opaque)) {
        REQUIRE(kvcl_runs_unpack(&dst.side, packed, src.opaque ? 1 : own_unit(&src, &c)) == KVCL_OK);
    } else {
        copy_by_buffer(&dst, &src, &c, runs.src.order);
    }
    for (b = 0; b < dst.n_bases; ++b) {
        REQUIRE(memcmp(dst.mem[b], dst.want[b], dst.span) == 0);
        free(dst.mem[b]), free(dst.want[b]);
    }
    check_checksum(&src, &c, packed);
    for (b = 0; b < src.n_bases; ++b) {
        free(src.mem[b]);
    }
    free(packed);
}

START_TEST(random_copies_equal_the_plain_copy)
{
    const char *text = getenv("TEST_SEED");
    const char *cases = getenv("KVCL_TEST_CASES");
    unsigned long n = (cases != NULL) ? strtoul(cases, NULL, 0) : 100000;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    seed = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)now.tv_nsec + ((uint64_t)now.tv_sec << 20);
    printf("test_kv_copy: TEST_SEED=%" PRIu64 ", %lu cases\n", seed, n);
    fflush(stdout);
    kvcl_rand_seed(&rnd, seed);
    for (case_no = 0; case_no < n; ++case_no) {
        one_case();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_copy");
    TCase *tc = tcase_create("copy");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 600);
    add_kv_sums(tc);
    tcase_add_test(tc, random_copies_equal_the_plain_copy);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
