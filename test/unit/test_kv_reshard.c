/*
 * Reshard plans: every pair (m, n) in 1..16, models of several numbers of KV heads, all kinds of layouts. The bytes of
 * each step go through the run planner from the sources' memories to the destination's. Then every byte of the
 * destination is compared with a formula over (layer, plane, block, token, head, byte) of the model. The bytes moved
 * are counted: as many as the destination holds, so none arrived twice. Both views of a plan are compared.
 */
#include "kvcl/kvcl_reshard.h"
#include "kv/runs.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 16, BLOCKS = 5, PROMPT = 3, TOKENS = 2, LAYERS = 5, VECTOR = 6, BASES_MAX = 2 * LAYERS, RANKS_MAX = 64 };

typedef struct kind {
    const char *name;
    uint64_t flags;
    uint32_t order, kv;
    int joined; /* [blocks][heads][tokens][K,V][D] */
} kind_t;

static const kind_t kinds[] = {
    {"NHD, one tensor", 0, KVCL_ORDER_NHD, 2, 0},
    {"HND, one tensor", 0, KVCL_ORDER_HND, 2, 0},
    {"NHD per layer", KVCL_LAYOUT_PER_LAYER, KVCL_ORDER_NHD, 2, 0},
    {"HND per layer", KVCL_LAYOUT_PER_LAYER, KVCL_ORDER_HND, 2, 0},
    {"NHD per plane", KVCL_LAYOUT_PER_PLANE, KVCL_ORDER_NHD, 2, 0},
    {"K and V joined", KVCL_LAYOUT_PER_LAYER, KVCL_ORDER_NHD, 2, 1},
    {"latent", KVCL_LAYOUT_PER_LAYER, KVCL_ORDER_NHD, 1, 0},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static const uint32_t source_ids[PROMPT] = {3, 4, 1}, destination_ids[PROMPT] = {0, 2, 3};

/* One rank's cache. */
typedef struct rank_cache {
    kvcl_range_t layers, heads; /* of the model */
    kvcl_shape_t shape;
    uintptr_t bases[BASES_MAX];
    uint8_t *mem;
} rank_cache_t;

static uint8_t value(uint32_t layer, uint32_t plane, uint32_t block, uint32_t token, uint32_t head, uint32_t i)
{
    uint32_t x = (((((layer * 2 + plane) * PROMPT + block) * TOKENS + token) * 64 + head) * VECTOR) + i;

    return (uint8_t)((x * 2654435761u) >> 24);
}

static void make_cache(rank_cache_t *c, const kind_t *kind, const kvcl_reshard_group_t *group, uint32_t n_layers,
                       uint32_t n_heads, uint32_t index)
{
    kvcl_layout_t l = {.size = sizeof(l), .flags = kind->flags, .order = kind->order, .kv = kind->kv, .blocks = BLOCKS,
                       .tokens = TOKENS, .head_dim = VECTOR / 2, .elem_bytes = 2};
    uint32_t b;

    ck_assert_int_eq(kvcl_reshard_share(group, n_layers, n_heads, index, &c->layers, &c->heads), KVCL_OK);
    l.layers = c->layers.end - c->layers.first;
    l.heads = c->heads.end - c->heads.first;
    if (kind->joined) {
        l.kv_stride = VECTOR;
        l.token_stride = (uint64_t)2 * VECTOR;
        l.head_stride = l.token_stride * TOKENS;
        l.block_stride = l.head_stride * l.heads;
    }
    ck_assert_msg(kvcl_shape_init(&c->shape, &l) == KVCL_OK, "%s: %s", kind->name, kvcl_last_error());
    c->mem = malloc(c->shape.base_bytes * c->shape.n_bases);
    memset(c->mem, 0xee, c->shape.base_bytes * c->shape.n_bases);
    for (b = 0; b < c->shape.n_bases; ++b) {
        c->bases[b] = (uintptr_t)c->mem + (b * c->shape.base_bytes);
    }
}

static uint8_t *vector_at(const rank_cache_t *c, uint32_t l, uint32_t k, uint32_t id, uint32_t t, uint32_t h)
{
    const kvcl_shape_t *s = &c->shape;
    uint32_t base = (s->flags == KVCL_LAYOUT_PER_PLANE) ? (l * s->kv) + k : (s->flags != 0) ? l : 0;

    return (uint8_t *)c->bases[base] + (l * s->layer_stride) + (k * s->kv_stride) + (id * s->block_stride) +
           (t * s->token_stride) + (h * s->head_stride);
}

/* Visit the blocks of the prompt: write the model's values, or compare. @return the number of wrong bytes. */
static size_t visit(const rank_cache_t *c, const uint32_t *ids, int write)
{
    uint32_t l, k, b, t, h, i;
    size_t wrong = 0;
    uint8_t *at;

    for (l = c->layers.first; l < c->layers.end; ++l) {
        for (h = c->heads.first; h < c->heads.end; ++h) {
            for (k = 0; k < c->shape.kv; ++k) {
                for (b = 0; b < PROMPT; ++b) {
                    for (t = 0; t < TOKENS; ++t) {
                        at = vector_at(c, l - c->layers.first, k, ids[b], t, h - c->heads.first);
                        for (i = 0; i < VECTOR; ++i) {
                            wrong += !write && (at[i] != value(l, k, b, t, h, i));
                            at[i] = value(l, k, b, t, h, i);
                        }
                    }
                }
            }
        }
    }
    return wrong;
}

static uint64_t move(const rank_cache_t *to, const rank_cache_t *from, const kvcl_reshard_step_t *step)
{
    kvcl_side_t dst = {.shape = &to->shape, .bases = to->bases,
                       .sel = {.blocks = destination_ids, .n_blocks = PROMPT, .layers = step->destination_layers,
                               .heads = step->destination_heads}};
    kvcl_side_t src = {.shape = &from->shape, .bases = from->bases,
                       .sel = {.blocks = source_ids, .n_blocks = PROMPT, .layers = step->source_layers,
                               .heads = step->source_heads}};
    kvcl_runs_t runs;

    ck_assert_msg(kvcl_side_check(&dst) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_msg(kvcl_side_check(&src) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_msg(kvcl_runs_init(&runs, &dst, &src, KVCL_RUNS_ANY_ORDER) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_runs_copy(&runs, 0, kvcl_runs_bytes(&runs)), KVCL_OK);
    return kvcl_runs_bytes(&runs);
}

static uint32_t n_ranks(const kvcl_reshard_group_t *g)
{
    return g->tp * ((g->pp == 0) ? 1 : g->pp);
}

/* Check all steps of all destinations against the sources' view; loads: number of steps of each source. */
static void both_views(const kvcl_reshard_params_t *p, size_t *loads)
{
    kvcl_reshard_step_t steps[RANKS_MAX], other[RANKS_MAX];
    size_t n, n_other, total = 0, total_other = 0, j, k, found;
    uint32_t i;

    for (i = 0; i < n_ranks(&p->destination); ++i) {
        ck_assert_int_eq(kvcl_reshard_plan(p, i, steps, sizeof(kvcl_reshard_step_t), RANKS_MAX, &n), KVCL_OK);
        ck_assert_uint_le(n, KVCL_RESHARD_STEPS_MAX(p->source.tp, p->source.pp));
        total += n;
        for (j = 0; j < n; ++j) {
            ck_assert_uint_eq(steps[j].destination, i);
            ck_assert_int_eq(kvcl_reshard_plan_source(p, steps[j].source, other, sizeof(kvcl_reshard_step_t), RANKS_MAX,
                                                      &n_other), KVCL_OK);
            for (k = 0, found = 0; k < n_other; ++k) {
                found += (memcmp(&other[k], &steps[j], sizeof(steps[j])) == 0);
            }
            ck_assert_uint_eq(found, 1);
        }
    }
    for (i = 0; i < n_ranks(&p->source); ++i) {
        ck_assert_int_eq(kvcl_reshard_plan_source(p, i, other, sizeof(kvcl_reshard_step_t), RANKS_MAX, &loads[i]),
                         KVCL_OK);
        ck_assert_uint_le(loads[i], KVCL_RESHARD_STEPS_MAX(p->destination.tp, p->destination.pp));
        total_other += loads[i];
    }
    ck_assert_uint_eq(total, total_other);
}

/* Move a prompt from group to group; check every byte and their number. */
static void move_all(const kvcl_reshard_params_t *p, const kind_t *kind)
{
    static rank_cache_t sources[RANKS_MAX];
    kvcl_reshard_step_t steps[RANKS_MAX];
    rank_cache_t mine;
    uint64_t bytes;
    size_t n, j;
    uint32_t i;

    for (i = 0; i < n_ranks(&p->source); ++i) {
        make_cache(&sources[i], kind, &p->source, p->layers, p->heads, i);
        (void)visit(&sources[i], source_ids, 1);
    }
    for (i = 0; i < n_ranks(&p->destination); ++i) {
        make_cache(&mine, kind, &p->destination, p->layers, p->heads, i);
        ck_assert_msg(kvcl_reshard_plan(p, i, steps, sizeof(kvcl_reshard_step_t), RANKS_MAX, &n) == KVCL_OK, "%s",
                      kvcl_last_error());
        for (j = 0, bytes = 0; j < n; ++j) {
            bytes += move(&mine, &sources[steps[j].source], &steps[j]);
        }
        ck_assert_msg(visit(&mine, destination_ids, 0) == 0, "%s: %u heads, %ux%u to %ux%u: rank %u has wrong bytes",
                      kind->name, p->heads, p->source.tp, p->source.pp, p->destination.tp, p->destination.pp, i);
        ck_assert_uint_eq(bytes, mine.shape.block_bytes * PROMPT);
        free(mine.mem);
    }
    for (i = 0; i < n_ranks(&p->source); ++i) {
        free(sources[i].mem);
    }
}

/* Whether engines can place these heads on t ranks. */
static int placeable(uint32_t heads, uint32_t t)
{
    return (heads % t == 0) || (t % heads == 0);
}

START_TEST(every_pair_of_sizes_moves_every_byte_once)
{
    static const uint32_t heads[] = {1, 2, 4, 8, 12, 16, 32};
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT;
    kvcl_reshard_step_t step;
    size_t n, refused = 0, moved = 0, loads[RANKS_MAX], h, k;
    uint32_t m, d;

    p.layers = 2;
    for (h = 0; h < sizeof(heads) / sizeof(heads[0]); ++h) {
        for (m = 1; m <= RANKS; ++m) {
            for (d = 1; d <= RANKS; ++d) {
                p.heads = heads[h];
                p.source.tp = m;
                p.destination.tp = d;
                if (!placeable(p.heads, m) || !placeable(p.heads, d)) {
                    ck_assert_int_eq(kvcl_reshard_plan(&p, 0, &step, sizeof(kvcl_reshard_step_t), 1, &n),
                                     KVCL_ERR_INVALID_PARAM);
                    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "one must divide the other"));
                    ++refused;
                    continue;
                }
                both_views(&p, loads);
                for (k = 0; k < KINDS; ++k) {
                    if ((p.heads == 1) || (kinds[k].kv == 2)) {
                        move_all(&p, &kinds[k]);
                        ++moved;
                    }
                }
            }
        }
    }
    printf("test_kv_reshard: %zu groups of ranks and layouts moved, %zu refused\n", moved, refused);
    ck_assert_uint_gt(moved, 1000);
    ck_assert_uint_gt(refused, 100);
}
END_TEST

START_TEST(stages_split_the_layers_on_both_sides)
{
    static const uint32_t counts[] = {1, 3, 1};
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT;
    size_t loads[RANKS_MAX], k;
    uint32_t m, d, from, to;

    p.layers = LAYERS;
    p.heads = 4;
    for (from = 1; from <= 4; ++from) {
        for (to = 0; to <= 4; ++to) {
            for (m = 1; m <= 8; m *= 2) {
                for (d = 1; d <= 8; d *= 2) {
                    p.source = (kvcl_reshard_group_t){.tp = m, .pp = from, .stage_layers = (from == 3) ? counts : NULL};
                    p.destination = (kvcl_reshard_group_t){.tp = d, .pp = to};
                    both_views(&p, loads);
                    for (k = 0; k + 1 < KINDS; ++k) {
                        move_all(&p, &kinds[k]);
                    }
                }
            }
        }
    }
}
END_TEST

START_TEST(the_load_of_replicated_heads_is_even)
{
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT;
    size_t loads[RANKS_MAX], least, most;
    uint32_t m, d, h, i;

    p.layers = 1;
    for (h = 1; h <= 8; h *= 2) {
        for (m = h; m <= RANKS; m += h) {
            for (d = h; d <= RANKS; d += h) {
                p.heads = h;
                p.source.tp = m;
                p.destination.tp = d;
                both_views(&p, loads);
                for (i = 0, least = SIZE_MAX, most = 0; i < m; ++i) {
                    least = (loads[i] < least) ? loads[i] : least;
                    most = (loads[i] > most) ? loads[i] : most;
                }
                ck_assert_msg(most - least <= 1, "%u heads, %u to %u: loads from %zu to %zu", h, m, d, least, most);
            }
        }
    }
}
END_TEST

START_TEST(the_same_index_gives_where_it_can)
{
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT;
    kvcl_range_t source, mine;
    kvcl_reshard_step_t step;
    uint32_t m, d, i;
    size_t n;

    p.layers = 1;
    p.heads = 2;
    for (m = 2; m <= RANKS; m += 2) {
        for (d = 2; d <= RANKS; d += 2) {
            p.source.tp = m;
            p.destination.tp = d;
            for (i = 0; (i < m) && (i < d); ++i) {
                ck_assert_int_eq(kvcl_reshard_share(&p.source, 1, 2, i, NULL, &source), KVCL_OK);
                ck_assert_int_eq(kvcl_reshard_share(&p.destination, 1, 2, i, NULL, &mine), KVCL_OK);
                ck_assert_int_eq(kvcl_reshard_plan(&p, i, &step, sizeof(kvcl_reshard_step_t), 1, &n), KVCL_OK);
                ck_assert_uint_eq(n, 1);
                if (source.first == mine.first) {
                    ck_assert_uint_eq(step.source, i);
                }
            }
        }
    }
}
END_TEST

START_TEST(the_nearest_holder_gives)
{
    uint32_t distances[4 * 8], i, j, best;
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT;
    kvcl_reshard_step_t step;
    size_t n, loads[RANKS_MAX];

    p.layers = 2;
    p.heads = 2; /* heads 0 on sources 0..3, 1 on 4..7 */
    p.source.tp = 8;
    p.destination.tp = 4;
    p.distances = distances;
    for (i = 0; i < 32; ++i) {
        distances[i] = (i * 2654435761u) >> 20;
    }
    both_views(&p, loads);
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(kvcl_reshard_plan(&p, i, &step, sizeof(kvcl_reshard_step_t), 1, &n), KVCL_OK);
        best = (i / 2) * 4;
        for (j = best + 1; j < ((i / 2) * 4) + 4; ++j) {
            best = (distances[(i * 8) + j] < distances[(i * 8) + best]) ? j : best;
        }
        ck_assert_uint_eq(step.source, best);
    }
    move_all(&p, &kinds[0]);
    memset(distances, 0, sizeof(distances)); /* all equal: the same plan as without distances */
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(kvcl_reshard_plan(&p, i, &step, sizeof(kvcl_reshard_step_t), 1, &n), KVCL_OK);
        ck_assert_uint_eq(step.source, ((i / 2) * 4) + (i % 4));
    }
}
END_TEST

START_TEST(an_array_that_is_too_short_is_told_how_long)
{
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT;
    kvcl_reshard_step_t steps[8];
    size_t n = 99;

    p.layers = 2;
    p.heads = 8;
    p.source.tp = 8;
    p.destination.tp = 1;
    memset(steps, 0x77, sizeof(steps));
    ck_assert_int_eq(kvcl_reshard_plan(&p, 0, NULL, sizeof(kvcl_reshard_step_t), 0, &n), KVCL_ERR_TRUNCATED);
    ck_assert_uint_eq(n, 8);
    ck_assert_int_eq(kvcl_reshard_plan(&p, 0, steps, sizeof(kvcl_reshard_step_t), 7, &n), KVCL_ERR_TRUNCATED);
    ck_assert_uint_eq(steps[0].source, 0x77777777);
    ck_assert_int_eq(kvcl_reshard_plan(&p, 0, steps, sizeof(kvcl_reshard_step_t), 8, &n), KVCL_OK);
    ck_assert_uint_eq(steps[7].source, 7);
    ck_assert_uint_eq(steps[7].destination_heads.first, 7);
}
END_TEST

static void expect_refused(const kvcl_reshard_params_t *p, uint32_t index, kvcl_status_t status, const char *why)
{
    kvcl_reshard_step_t steps[RANKS_MAX];
    size_t n = 99;

    ck_assert_int_eq(kvcl_reshard_plan(p, index, steps, sizeof(kvcl_reshard_step_t), RANKS_MAX, &n), status);
    ck_assert_msg(strstr(kvcl_last_error(), why) != NULL, "\"%s\" does not say \"%s\"", kvcl_last_error(), why);
    ck_assert_uint_eq(n, 99);
}

START_TEST(what_makes_no_sense_is_refused)
{
    static const uint32_t counts[] = {1, 2}, empty[] = {4, 0};
    kvcl_reshard_params_t p = KVCL_RESHARD_PARAMS_INIT, good;
    kvcl_reshard_step_t step;
    size_t n;

    p.layers = 4;
    p.heads = 8;
    p.source.tp = 4;
    p.destination.tp = 2;
    good = p;
    expect_refused(&p, 2, KVCL_ERR_OUT_OF_RANGE, "rank 2 of a destination of 2");
    ck_assert_int_eq(kvcl_reshard_plan_source(&p, 4, &step, sizeof(kvcl_reshard_step_t), 1, &n), KVCL_ERR_OUT_OF_RANGE);
    expect_refused(NULL, 0, KVCL_ERR_INVALID_PARAM, "NULL");
    p.size = 4;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "size");
    p = good, p.flags = 2;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "flags 0x2");
    p = good, p.heads = 0;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "0 heads");
    p = good, p.layers = KVCL_LAYOUT_MAX_LAYERS + 1;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "4097 layers");
    p = good, p.source.tp = 0;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "source has 0 x 1 ranks");
    p = good, p.destination.tp = 65536, p.destination.pp = 65536;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "65536 x 65536 ranks");
    p = good, p.source.pp = 5;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "5 stages for 4 layers");
    p = good, p.source.pp = 2, p.source.stage_layers = counts;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "have 3 layers, the model 4");
    p = good, p.source.pp = 2, p.source.stage_layers = empty;
    expect_refused(&p, 0, KVCL_ERR_INVALID_PARAM, "stage 1 of the source has no layer");
    ck_assert_int_eq(kvcl_reshard_plan(&good, 0, NULL, sizeof(kvcl_reshard_step_t), 3, &n), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_reshard_plan(&good, 0, &step, sizeof(kvcl_reshard_step_t), 1, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_reshard_share(NULL, 1, 1, 0, NULL, NULL), KVCL_ERR_INVALID_PARAM);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_reshard");
    TCase *tc = tcase_create("reshard");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_pair_of_sizes_moves_every_byte_once);
    tcase_add_test(tc, stages_split_the_layers_on_both_sides);
    tcase_add_test(tc, the_load_of_replicated_heads_is_even);
    tcase_add_test(tc, the_same_index_gives_where_it_can);
    tcase_add_test(tc, the_nearest_holder_gives);
    tcase_add_test(tc, an_array_that_is_too_short_is_told_how_long);
    tcase_add_test(tc, what_makes_no_sense_is_refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
