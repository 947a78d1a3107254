/*
 * Blocks of several sizes in one arena: the guarantees of slabs.c under churn, with a model of a pool over it. Each
 * class has the slots' states in a short form, a real eviction order, and blocks being filled and pinned. Each cell of
 * the arena records its block, so no two blocks ever overlap.
 */
#include "policy/slabs.h"
#include "policy/evict.h"
#include "base/rand.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FREE, FILLING, PUBLISHED };

/* Check writes each assertion that holds into a pipe, which is too slow for millions. */
#define HOLDS(_cond)                           \
    do {                                       \
        if (!(_cond)) {                        \
            ck_abort_msg("%s", #_cond);        \
        }                                      \
    } while (0)

/* Sizes are in cells; a cell stands for 1 KiB. */
typedef struct model {
    kvcl_rand_t  rnd;
    kvcl_slabs_t slabs;
    void         *slabs_mem;
    uint64_t     cells;
    uint32_t     *whose;   /* by cell: id + 1, its class in the top bits */
    unsigned     n;
    uint64_t     sizes[KVCL_SLABS_CLASSES_MAX];
    kvcl_evict_t order[KVCL_SLABS_CLASSES_MAX];
    void         *order_mem[KVCL_SLABS_CLASSES_MAX];
    uint8_t      *state[KVCL_SLABS_CLASSES_MAX];
    uint32_t     *free[KVCL_SLABS_CLASSES_MAX]; /* ids that may be free; checked when taken */
    uint32_t     n_free[KVCL_SLABS_CLASSES_MAX];
    uint64_t     published; /* cells */
    uint64_t     failed, taken, keys;
} model_t;

static uint64_t seed_of(void)
{
    const char *replay = getenv("TEST_SEED");

    return (replay != NULL) ? strtoull(replay, NULL, 0) : 1;
}

static uint64_t below(model_t *m, uint64_t n)
{
    return kvcl_rand_next(&m->rnd) % n;
}

static void add_free(model_t *m, unsigned cls, uint32_t id)
{
    m->state[cls][id] = FREE;
    m->free[cls][m->n_free[cls]++] = id;
}

static void model_open(model_t *m, uint64_t cells, const uint64_t *sizes, unsigned n, uint64_t seed)
{
    size_t   bytes = kvcl_slabs_bytes(cells, sizes, n);
    uint32_t id;
    unsigned i;

    memset(m, 0, sizeof(*m));
    kvcl_rand_seed(&m->rnd, seed);
    ck_assert_uint_ne(bytes, 0);
    m->cells     = cells;
    m->n         = n;
    m->whose     = calloc(cells, sizeof(*m->whose));
    m->slabs_mem = malloc(bytes);
    ck_assert_int_eq(kvcl_slabs_init(&m->slabs, cells, sizes, n, m->slabs_mem, bytes), KVCL_OK);
    for (i = 0; i < n; ++i) {
        uint32_t n_ids = m->slabs.classes[i].n_ids;
        m->sizes[i]     = sizes[i];
        m->order_mem[i] = malloc(kvcl_evict_bytes(n_ids));
        m->state[i]     = malloc(n_ids);
        m->free[i]      = malloc(n_ids * sizeof(uint32_t));
        memset(m->state[i], FILLING, n_ids);
        ck_assert_int_eq(kvcl_evict_init(&m->order[i], n_ids, m->order_mem[i],
                                         kvcl_evict_bytes(n_ids)), KVCL_OK);
        for (id = 0; id < n_ids; ++id) {
            if (kvcl_slabs_has(&m->slabs, i, id)) {
                add_free(m, i, id);
            }
        }
        ck_assert_uint_gt(m->n_free[i], 0);
    }
}

static void model_close(model_t *m)
{
    unsigned i;

    for (i = 0; i < m->n; ++i) {
        free(m->order_mem[i]);
        free(m->state[i]);
        free(m->free[i]);
    }
    free(m->whose);
    free(m->slabs_mem);
}

static void mark(model_t *m, unsigned cls, uint32_t id, uint32_t from, uint32_t to)
{
    uint64_t at = id * m->sizes[cls], end = at + m->sizes[cls];

    HOLDS(end <= m->cells);
    for (; at < end; ++at) {
        HOLDS(m->whose[at] == from);
        m->whose[at] = to;
    }
}

static uint32_t name(unsigned cls, uint32_t id)
{
    return ((uint32_t)(cls + 1) << 28) | id;
}

static void withdraw(model_t *m, unsigned cls, uint32_t id)
{
    (void)!kvcl_evict_remove(&m->order[cls], id);
    kvcl_slabs_removed(&m->slabs, cls, id);
    mark(m, cls, id, name(cls, id), 0);
    m->published -= m->sizes[cls];
}

/* As kvcl_pool_grow(). */
static bool grow(model_t *m, unsigned cls, bool must)
{
    kvcl_slab_ids_t ids, got, lost;
    uint32_t        slab, id, i;
    unsigned        from, tries;
    bool            can;

    for (tries = 0; must || (tries < 8); ++tries) {
        slab = (tries < 8) ? kvcl_slabs_choose(&m->slabs, cls, must) : kvcl_slabs_next(&m->slabs, cls);
        if (slab == KVCL_SLAB_NONE) {
            kvcl_slabs_round(&m->slabs);
            return false;
        }
        from = m->slabs.slabs[slab].owner;
        HOLDS(from != cls);
        ids = (kvcl_slab_ids_t){0, 0};
        can = true;
        if (from != KVCL_SLAB_NOBODY) {
            HOLDS(m->slabs.classes[from].n_slabs > 1);
            ids = kvcl_slabs_ids(&m->slabs, slab, from);
        }
        for (id = ids.first; id < ids.end; ++id) {
            can = can && (!kvcl_slabs_has(&m->slabs, from, id) || (m->state[from][id] == FREE) ||
                          ((m->state[from][id] == PUBLISHED) && (m->order[from].nodes[id].pins == 0)));
        }
        if (!can) {
            kvcl_slabs_refuse(&m->slabs, slab);
            continue;
        }
        for (id = ids.first; id < ids.end; ++id) {
            if (kvcl_slabs_has(&m->slabs, from, id)) {
                if (m->state[from][id] == PUBLISHED) {
                    withdraw(m, from, id);
                }
                m->state[from][id] = FILLING;
            }
        }
        kvcl_slabs_give(&m->slabs, slab, cls, &got, &lost);
        for (i = 0; (from != KVCL_SLAB_NOBODY) && (i < m->n_free[from]);) { /* evicted ids */
            if (m->state[from][m->free[from][i]] != FREE) {
                m->free[from][i] = m->free[from][--m->n_free[from]];
            } else {
                ++i;
            }
        }
        for (id = got.first; id < got.end; ++id) {
            HOLDS(kvcl_slabs_has(&m->slabs, cls, id));
            add_free(m, cls, id);
        }
        if (from != KVCL_SLAB_NOBODY) {
            ++m->taken;
        }
        return true;
    }
    return false;
}

/* As a put of one block. False: there is no room for it. */
static bool take(model_t *m, unsigned cls, uint32_t *id_p)
{
    uint32_t id;

    while ((m->n_free[cls] == 0) && (kvcl_slabs_spare(&m->slabs, cls) != 0) && grow(m, cls, false)) {
    }
    if ((m->n_free[cls] == 0) && kvcl_slabs_due(&m->slabs, cls, 1)) {
        (void)grow(m, cls, false);
    }
    if ((m->n_free[cls] == 0) && (kvcl_evict_victim(&m->order[cls], &id) == KVCL_OK)) {
        withdraw(m, cls, id);
        add_free(m, cls, id);
    }
    if ((m->n_free[cls] == 0) && !grow(m, cls, true)) {
        return false;
    }
    *id_p = m->free[cls][--m->n_free[cls]];
    HOLDS(m->state[cls][*id_p] == FREE);
    HOLDS(kvcl_slabs_has(&m->slabs, cls, *id_p));
    m->state[cls][*id_p] = FILLING;
    mark(m, cls, *id_p, 0, name(cls, *id_p));
    return true;
}

static void publish(model_t *m, unsigned cls, uint32_t id)
{
    m->state[cls][id] = PUBLISHED;
    m->published += m->sizes[cls];
    HOLDS(kvcl_evict_insert(&m->order[cls], id, ++m->keys * 0x9e3779b97f4a7c15ull) == KVCL_OK);
    kvcl_slabs_use(&m->slabs, cls, id);
}

static double utilisation(const model_t *m)
{
    return (double)m->published / (double)m->cells;
}

/* A random class, weighted by the number of puts of each. */
static unsigned pick(model_t *m, const unsigned *weights)
{
    uint64_t sum = 0, at;
    unsigned i;

    for (i = 0; i < m->n; ++i) {
        sum += weights[i];
    }
    at = below(m, sum);
    for (i = 0; at >= weights[i]; ++i) {
        at -= weights[i];
    }
    return i;
}

static void churn(model_t *m, const unsigned *weights, uint64_t steps, double *least_p)
{
    double   least = 1;
    uint32_t id;
    unsigned cls;
    uint64_t i;

    for (i = 0; i < steps; ++i) {
        cls = pick(m, weights);
        if (take(m, cls, &id)) {
            publish(m, cls, id);
        } else {
            ++m->failed;
        }
        if (below(m, 4) == 0) { /* a use */
            id = (uint32_t)below(m, m->slabs.classes[cls].n_ids);
            if (m->state[cls][id] == PUBLISHED) {
                kvcl_evict_touch(&m->order[cls], id);
                kvcl_slabs_use(&m->slabs, cls, id);
            }
        }
        if ((i % 64 == 0) && (utilisation(m) < least)) {
            least = utilisation(m);
        }
    }
    *least_p = least;
}

static uint64_t puts_for(const model_t *m, const unsigned *weights, double arenas)
{
    double   mean = 0, sum = 0;
    unsigned i;

    for (i = 0; i < m->n; ++i) {
        mean += (double)weights[i] * (double)m->sizes[i];
        sum  += weights[i];
    }
    return (uint64_t)(arenas * (double)m->cells * sum / mean) + 1;
}

START_TEST(the_sizes_of_real_models_fill_an_arena)
{
    static const struct {
        const char *what;
        unsigned   n;
        uint64_t   sizes[4]; /* KiB */
        unsigned   weights[4];
    } mixes[] = {
        {"attention 32 KiB, TP8 4 KiB, MLA 72 KiB", 3, {32, 4, 72}, {4, 8, 2}},
        {"hybrid: attention 64 KiB, sliding window 128 KiB, state 2,120 KiB", 3, {64, 128, 2120}, {300, 150, 1}},
        {"MLA 1,098 KiB (61 layers), draft 36 KiB, state 5,184 KiB", 3, {1098, 36, 5184}, {30, 100, 1}},
        {"pages of 1, 2, 8 MiB and chunks of 10 MiB", 4, {1024, 2048, 8192, 10240}, {16, 8, 2, 1}},
        {"Llama-8B 2 MiB, Qwen 2,304 KiB, 70B 5 MiB, DeepSeek 1,098 KiB", 4, {2048, 2304, 5120, 1098}, {4, 4, 1, 4}},
    };
    uint64_t most, mean, sum;
    model_t  m;
    double   least;
    unsigned i, c;

    for (i = 0; i < sizeof(mixes) / sizeof(mixes[0]); ++i) {
        model_open(&m, 2048 * 1024, mixes[i].sizes, mixes[i].n, seed_of()); /* 2 GiB */
        churn(&m, mixes[i].weights, puts_for(&m, mixes[i].weights, 6), &least);
        churn(&m, mixes[i].weights, puts_for(&m, mixes[i].weights, 4), &least);
        for (c = 0, most = mean = sum = 0; c < m.n; ++c) {
            most  = (m.sizes[c] > most) ? m.sizes[c] : most;
            mean += mixes[i].weights[c] * m.sizes[c];
            sum  += mixes[i].weights[c];
        }
        printf("%-66s %5.1f%% at least, now %5.1f%%; one size for all %5.1f%%; %llu slabs of %llu KiB, %llu taken\n",
               mixes[i].what, 100 * least, 100 * utilisation(&m),
               100 * (double)mean / (double)sum / (double)most, (unsigned long long)m.slabs.n,
               (unsigned long long)m.slabs.slab_bytes, (unsigned long long)m.taken);
        ck_assert(kvcl_slabs_check(&m.slabs));
        ck_assert_uint_eq(m.failed, 0);
        ck_assert_double_ge(least, 0.95);
        model_close(&m);
    }
}
END_TEST

START_TEST(random_sizes_fill_an_arena_and_no_class_starves)
{
    uint64_t sizes[KVCL_SLABS_CLASSES_MAX], total = 0, puts;
    unsigned weights[KVCL_SLABS_CLASSES_MAX], round, n, i, phase;
    double   least, worst = 1;
    model_t  m;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed_of());
    for (round = 0; round < 12; ++round) {
        kvcl_rand_seed(&m.rnd, seed_of() + round);
        n = 2 + (unsigned)below(&m, 7);
        for (i = 0; i < n; ++i) { /* of any length: from 1 cell to 1/640 of the arena */
            sizes[i]   = 1 + below(&m, 1ull << (2 + below(&m, 8))) * 5 / 4;
            weights[i] = 1 + (unsigned)below(&m, 20000 / sizes[i] + 1);
        }
        for (i = 1; i < n; ++i) {
            unsigned j;
            for (j = 0; j < i; ++j) {
                sizes[i] += (sizes[i] == sizes[j]) ? 1 + i : 0;
            }
        }
        if (kvcl_slabs_slab_bytes(1 << 19, sizes, n) == 0) {
            continue; /* two are equal after all */
        }
        model_open(&m, 1 << 19, sizes, n, seed_of() + round);
        for (phase = 0; phase < 4; ++phase) { /* the mix changes in each phase */
            puts = puts_for(&m, weights, 5);
            puts = (puts < 60000) ? puts : 60000;
            churn(&m, weights, puts, &least);
            churn(&m, weights, puts, &least);
            total += 2 * puts;
            worst  = ((utilisation(&m) < worst) && (puts < 60000)) ? utilisation(&m) : worst;
            ck_assert_msg((puts == 60000) || (least >= 0.95), "seed %llu phase %u: %u sizes, %.3f",
                          (unsigned long long)(seed_of() + round), phase, n, least);
            ck_assert_uint_eq(m.failed, 0);
            ck_assert(kvcl_slabs_check(&m.slabs));
            for (i = 0; i < n; ++i) {
                weights[i] = 1 + (unsigned)below(&m, 20000 / sizes[i] + 1);
            }
        }
        model_close(&m);
    }
    printf("%llu puts of random sizes: at least %.1f%% of the arena used\n", (unsigned long long)total, 100 * worst);
}
END_TEST

START_TEST(a_change_of_the_mix_moves_slabs_and_leaves_each_class_one)
{
    static const uint64_t sizes[3] = {32, 72, 2000};
    static const unsigned only[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    model_t  m;
    double   least;
    unsigned phase, i;

    model_open(&m, 512 * 1024, sizes, 3, seed_of());
    for (phase = 0; phase < 6; ++phase) {
        churn(&m, only[phase % 3], puts_for(&m, only[phase % 3], 30), &least);
        ck_assert(kvcl_slabs_check(&m.slabs));
        ck_assert_uint_eq(m.failed, 0);
        ck_assert_double_ge((double)m.slabs.classes[phase % 3].n_slabs, 0.8 * m.slabs.n);
        ck_assert_double_ge(utilisation(&m), 0.95);
        for (i = 0; i < 3; ++i) {
            ck_assert_uint_ge(m.slabs.classes[i].n_slabs, 1);
        }
    }
    model_close(&m);
}
END_TEST

START_TEST(equal_demand_ends_in_equal_shares_and_used_blocks_stay)
{
    static const uint64_t sizes[2] = {64, 128};
    static const unsigned first[2] = {1, 0}, even[2] = {2, 1};
    model_t  m;
    double   least;
    uint32_t id;
    uint64_t taken;
    unsigned i;

    model_open(&m, 512 * 1024, sizes, 2, seed_of());
    churn(&m, first, puts_for(&m, first, 3), &least);
    churn(&m, even, puts_for(&m, even, 20), &least);
    ck_assert_double_ge((double)m.slabs.classes[0].n_slabs, 0.38 * m.slabs.n);
    ck_assert_double_le((double)m.slabs.classes[0].n_slabs, 0.62 * m.slabs.n);
    taken = m.taken;
    churn(&m, even, puts_for(&m, even, 20), &least);
    ck_assert_uint_lt(m.taken - taken, m.slabs.n); /* stable: less than one slab in 20 of the cells put */
    for (i = 0; i < 40; ++i) { /* class 1 is only used, class 0 only put */
        for (id = 0; id < m.slabs.classes[1].n_ids; ++id) {
            if (m.state[1][id] == PUBLISHED) {
                kvcl_slabs_use(&m.slabs, 1, id);
            }
        }
        churn(&m, first, puts_for(&m, first, 0.25), &least);
    }
    ck_assert_double_ge((double)m.slabs.classes[1].n_slabs, 0.3 * m.slabs.n);
    model_close(&m);
}
END_TEST

static void remove_some(model_t *m)
{
    unsigned cls = (unsigned)below(m, 4);
    uint32_t id  = (uint32_t)below(m, m->slabs.classes[cls].n_ids);

    if ((m->state[cls][id] == PUBLISHED) && (m->order[cls].nodes[id].pins == 0)) {
        withdraw(m, cls, id);
        add_free(m, cls, id);
    }
}

/* Blocks stay FILLING for a while, some are pinned for ever, some are removed. */
START_TEST(random_steps_with_pins_and_fills_never_overlap_and_never_shut_a_class_out)
{
    static const uint64_t sizes[4] = {3, 10, 64, 200};
    static const unsigned weights[4] = {60, 20, 4, 1};
    enum { HELD = 256, STEPS = 300000 };
    struct { unsigned cls; uint32_t id; } held[HELD];
    unsigned n_held = 0, cls, at, pins = 0;
    uint32_t id;
    model_t  m;
    uint64_t step;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed_of());
    model_open(&m, 60000, sizes, 4, seed_of());
    for (step = 0; step < STEPS; ++step) {
        cls = (below(&m, 2) == 0) ? (unsigned)((step / 20000) % 4) : pick(&m, weights);
        if ((n_held < HELD) && (below(&m, 3) != 0)) {
            if (take(&m, cls, &id)) {
                held[n_held].cls  = cls;
                held[n_held++].id = id;
            } else {
                ++m.failed;
            }
        } else if (n_held != 0) {
            at  = (unsigned)below(&m, n_held);
            cls = held[at].cls;
            id  = held[at].id;
            held[at] = held[--n_held];
            if (below(&m, 8) == 0) { /* it failed */
                mark(&m, cls, id, name(cls, id), 0);
                add_free(&m, cls, id);
            } else {
                publish(&m, cls, id);
                if ((cls != 3) && (pins < 60) && (below(&m, 100) == 0)) {
                    ck_assert_int_eq(kvcl_evict_pin(&m.order[cls], id), KVCL_OK);
                    ++pins;
                }
            }
        }
        if (below(&m, 16) == 0) {
            remove_some(&m);
        }
        if (step % 5000 == 0) {
            ck_assert(kvcl_slabs_check(&m.slabs));
        }
    }
    /* Fills end, and each class gets blocks, whatever is pinned. */
    while (n_held != 0) {
        --n_held;
        publish(&m, held[n_held].cls, held[n_held].id);
    }
    for (cls = 0; cls < 4; ++cls) {
        ck_assert(take(&m, cls, &id));
    }
    printf("%llu slabs changed hands, %llu takes of %d found all blocks held\n", (unsigned long long)m.taken,
           (unsigned long long)m.failed, STEPS);
    ck_assert_uint_gt(m.taken, 20);
    ck_assert_uint_lt(m.failed, STEPS / 100);
    model_close(&m);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
    static const uint64_t twice[2] = {8, 8}, zero[2] = {8, 0}, large[2] = {8, 1000},
                          many[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    kvcl_slabs_t slabs;
    uint64_t     mem[512];

    ck_assert_uint_eq(kvcl_slabs_bytes(10000, twice, 2), 0);
    ck_assert_uint_eq(kvcl_slabs_bytes(10000, zero, 2), 0);
    ck_assert_uint_eq(kvcl_slabs_bytes(7999, large, 2), 0);
    ck_assert_uint_ne(kvcl_slabs_bytes(8000, large, 2), 0);
    ck_assert_uint_eq(kvcl_slabs_bytes(10000, many, 9), 0);
    ck_assert_uint_eq(kvcl_slabs_bytes(10000, many, 0), 0);
    ck_assert_uint_eq(kvcl_slabs_bytes(UINT64_MAX, large, 2), 0);
    ck_assert_int_eq(kvcl_slabs_init(&slabs, 8000, large, 2, mem, 16), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(kvcl_slabs_slab_bytes(1 << 20, (const uint64_t[]){6, 4}, 2) % 12, 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_slabs");
    TCase   *tc    = tcase_create("slabs");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, the_sizes_of_real_models_fill_an_arena);
    tcase_add_test(tc, random_sizes_fill_an_arena_and_no_class_starves);
    tcase_add_test(tc, a_change_of_the_mix_moves_slabs_and_leaves_each_class_one);
    tcase_add_test(tc, equal_demand_ends_in_equal_shares_and_used_blocks_stay);
    tcase_add_test(tc, random_steps_with_pins_and_fills_never_overlap_and_never_shut_a_class_out);
    tcase_add_test(tc, what_makes_no_sense_is_refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
