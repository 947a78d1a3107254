/*
 * Shared by the tests of the prefix index: random numbers with a printed seed, keys of a chain, a source.
 */
#ifndef KVCL_TEST_INDEX_SCENE_H
#define KVCL_TEST_INDEX_SCENE_H

#include "test_base.h"

#include <kvcl/kvcl_sched_index.h>

#include <stdbool.h>
#include <string.h>

static kvcl_rand_t rnd;

static inline uint32_t below(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

/* Keys of a prompt of its own for each number. */
static inline void test_chain(uint32_t number, kvcl_key_t *keys, size_t n)
{
    kvcl_key_t root;
    uint32_t   token;
    size_t     i, one;

    kvcl_key_root(&number, sizeof(number), "test", &root);
    for (i = 0; i < n; ++i) {
        token = (uint32_t)i;
        ck_assert_int_eq(kvcl_key_chain((i == 0) ? &root : &keys[i - 1], i, &token, 1, 1, &keys[i], 1, &one), KVCL_OK);
    }
}

static inline uint32_t test_source(kvcl_sched_index_h index, const char *name, uint32_t instance, uint32_t feed)
{
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    uint32_t                   source;

    p.name     = name;
    p.instance = instance;
    p.feed     = feed;
    p.model    = "m";
    ck_assert_int_eq(kvcl_sched_index_source(index, &p, &source), KVCL_OK);
    return source;
}

static inline kvcl_sched_source_info_t test_info(kvcl_sched_index_h index, uint32_t source)
{
    kvcl_sched_source_info_t info = KVCL_SCHED_SOURCE_INFO_INIT;

    ck_assert_int_eq(kvcl_sched_index_info(index, source, &info), KVCL_OK);
    return info;
}

#endif
