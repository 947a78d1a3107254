/* Lists, maps, pools, heaps: small cases by hand, then random operations against a plain model. */
#include "config.h"
#include "test_base.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mpool.h"

#include <string.h>

typedef struct item {
    int              value;
    kvcl_list_t      link;
    kvcl_heap_node_t node;
} item_t;

START_TEST(list_keeps_order_and_survives_removal)
{
    kvcl_list_t list, other;
    item_t      items[5];
    item_t     *item, *tmp;
    int         i, sum = 0;

    kvcl_list_init(&list);
    kvcl_list_init(&other);
    ck_assert_ptr_null(kvcl_list_first(&list));
    ck_assert_ptr_null(kvcl_list_pop(&list));
    for (i = 0; i < 5; ++i) {
        items[i].value = i;
    }
    kvcl_list_add_tail(&list, &items[2].link);
    kvcl_list_add_tail(&list, &items[4].link);
    kvcl_list_add_head(&list, &items[0].link);
    kvcl_list_insert_before(&items[2].link, &items[1].link);
    kvcl_list_insert_before(&items[4].link, &items[3].link);
    i = 0;
    kvcl_list_foreach(item, &list, item_t, link) {
        ck_assert_int_eq(item->value, i++);
    }
    ck_assert_int_eq(i, 5);
    kvcl_list_foreach_safe(item, tmp, &list, item_t, link) {
        if (item->value % 2 == 0) {
            kvcl_list_del(&item->link);
            kvcl_list_del(&item->link); /* again: harmless */
        } else {
            sum += item->value;
        }
    }
    ck_assert_int_eq(sum, 4);
    kvcl_list_add_tail(&other, &items[0].link);
    kvcl_list_splice_tail(&other, &list);
    ck_assert(kvcl_list_is_empty(&list));
    ck_assert_int_eq(kvcl_list_head(&other, item_t, link)->value, 0);
    ck_assert_ptr_eq(kvcl_list_pop(&other), &items[0].link);
    ck_assert_ptr_eq(kvcl_list_pop(&other), &items[1].link);
    ck_assert_ptr_eq(kvcl_list_pop(&other), &items[3].link);
    kvcl_list_splice_tail(&list, &other);
    ck_assert(kvcl_list_is_empty(&list));
}
END_TEST

START_TEST(empty_map_answers_without_memory)
{
    kvcl_map_t map;
    uint64_t   key;
    size_t     it = 0;
    void      *value;

    kvcl_map_init(&map);
    ck_assert_ptr_null(kvcl_map_get(&map, 1));
    ck_assert_ptr_null(kvcl_map_del(&map, 1));
    ck_assert_int_eq(kvcl_map_next(&map, &it, &key, &value), 0);
    kvcl_map_clear(&map);
    ck_assert_int_eq(kvcl_map_put(&map, 1, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(kvcl_map_count(&map), 0);
    kvcl_map_fini(&map);
}
END_TEST

enum { MODEL_KEYS = 700 };

START_TEST(map_agrees_with_a_plain_array)
{
    static char  values[MODEL_KEYS * 2];
    void        *model[MODEL_KEYS] = {NULL};
    kvcl_rand_t  rnd;
    kvcl_map_t   map;
    uint64_t     key, spread;
    size_t       count = 0, seen = 0, it;
    void        *value, *was;
    int          step, wrong = 0;

    test_seed(&rnd);
    kvcl_map_init(&map);
    /* Keys that collide on purpose (spread by a large power of two) in every second run. */
    spread = kvcl_rand_below(&rnd, 2) ? UINT64_C(1) << 48 : 1;
    for (step = 0; step < 200000; ++step) {
        key = kvcl_rand_below(&rnd, MODEL_KEYS);
        was = model[key];
        switch (kvcl_rand_below(&rnd, 3)) {
        case 0:
            value      = &values[kvcl_rand_below(&rnd, sizeof(values))];
            model[key] = value;
            count += (was == NULL);
            wrong += (kvcl_map_put(&map, key * spread, value) != KVCL_OK);
            break;
        case 1:
            model[key] = NULL;
            count -= (was != NULL);
            wrong += (kvcl_map_del(&map, key * spread) != was);
            break;
        default:
            wrong += (kvcl_map_get(&map, key * spread) != was);
            break;
        }
        wrong += (kvcl_map_count(&map) != count);
    }
    ck_assert_int_eq(wrong, 0);
    kvcl_map_foreach(&map, it, key, value) {
        ck_assert_ptr_eq(value, model[key / spread]);
        ++seen;
    }
    ck_assert_uint_eq(seen, count);
    kvcl_map_clear(&map);
    ck_assert_uint_eq(kvcl_map_count(&map), 0);
    ck_assert_ptr_null(kvcl_map_get(&map, 1));
    kvcl_map_fini(&map);
}
END_TEST

START_TEST(reserved_map_does_not_move)
{
    kvcl_map_t map;
    void      *slots;
    uint64_t   key;

    kvcl_map_init(&map);
    ck_assert_int_eq(kvcl_map_reserve(&map, 1000), KVCL_OK);
    slots = map.slots;
    for (key = 0; key < 1000; ++key) {
        ck_assert_int_eq(kvcl_map_put(&map, key, &map), KVCL_OK);
    }
    ck_assert_ptr_eq(map.slots, slots);
    ck_assert_int_eq(kvcl_map_reserve(&map, SIZE_MAX), KVCL_ERR_NO_MEMORY);
    ck_assert_uint_eq(kvcl_map_count(&map), 1000);
    kvcl_map_fini(&map);
}
END_TEST

static char last_warning[256];

static void keep_warning(void *arg, kvcl_log_level_t level, const char *text)
{
    (void)arg;
    (void)level;
    snprintf(last_warning, sizeof(last_warning), "%s", text);
}

START_TEST(pool_hands_out_distinct_aligned_objects_and_names_a_leak)
{
    kvcl_mpool_t mp;
    char        *objs[100];
    int          i, j;

    kvcl_mpool_init(&mp, "test-pool", 40, 64, 7);
    for (i = 0; i < 100; ++i) {
        objs[i] = kvcl_mpool_get(&mp);
        ck_assert_ptr_nonnull(objs[i]);
        ck_assert_uint_eq((uintptr_t)objs[i] % 64, 0);
        memset(objs[i], i, 40);
    }
    for (i = 0; i < 100; ++i) {
        for (j = 0; j < 40; ++j) {
            ck_assert_int_eq(objs[i][j], i);
        }
    }
    for (i = 1; i < 100; ++i) {
        kvcl_mpool_put(&mp, objs[i]);
    }
    ck_assert_uint_eq(mp.in_use, 1);
    ck_assert_ptr_eq(kvcl_mpool_get(&mp), objs[99]); /* the warmest first */
    kvcl_mpool_put(&mp, objs[99]);
    kvcl_log_set_handler(keep_warning, NULL);
    ck_assert_uint_eq(kvcl_mpool_fini(&mp), 1);
    ck_assert_ptr_nonnull(strstr(last_warning, "test-pool: 1 of"));
    kvcl_log_set_handler(NULL, NULL);
}
END_TEST

enum { HEAP_ITEMS = 300 };

START_TEST(heap_agrees_with_a_search_for_the_minimum)
{
    static item_t     items[HEAP_ITEMS];
    kvcl_rand_t       rnd;
    kvcl_heap_t       heap;
    kvcl_heap_node_t *node;
    uint64_t          least;
    int               i, step, wrong = 0;

    test_seed(&rnd);
    kvcl_heap_init(&heap);
    ck_assert_ptr_null(kvcl_heap_min(&heap));
    ck_assert_uint_eq(kvcl_heap_min_key(&heap), UINT64_MAX);
    for (i = 0; i < HEAP_ITEMS; ++i) {
        kvcl_heap_node_init(&items[i].node);
    }
    for (step = 0; step < 20000; ++step) {
        node = &items[kvcl_rand_below(&rnd, HEAP_ITEMS)].node;
        if (node->index == 0) {
            ck_assert_int_eq(kvcl_heap_add(&heap, node, kvcl_rand_below(&rnd, 1000)), KVCL_OK);
        } else if (kvcl_rand_below(&rnd, 2)) {
            kvcl_heap_del(&heap, node);
            kvcl_heap_del(&heap, node); /* again: harmless */
        } else {
            kvcl_heap_update(&heap, node, kvcl_rand_below(&rnd, 1000));
        }
        least = UINT64_MAX;
        for (i = 0; i < HEAP_ITEMS; ++i) {
            if (items[i].node.index != 0) {
                least = (items[i].node.key < least) ? items[i].node.key : least;
                wrong += (heap.nodes[items[i].node.index - 1] != &items[i].node);
            }
        }
        wrong += (kvcl_heap_min_key(&heap) != least);
    }
    ck_assert_int_eq(wrong, 0);
    for (least = 0; (node = kvcl_heap_min(&heap)) != NULL; kvcl_heap_del(&heap, node)) {
        ck_assert_uint_ge(node->key, least);
        least = node->key;
    }
    kvcl_heap_fini(&heap);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base containers");
    TCase *tc    = tcase_create("containers");

    tcase_add_test(tc, list_keeps_order_and_survives_removal);
    tcase_add_test(tc, empty_map_answers_without_memory);
    tcase_add_test(tc, map_agrees_with_a_plain_array);
    tcase_add_test(tc, reserved_map_does_not_move);
    tcase_add_test(tc, pool_hands_out_distinct_aligned_objects_and_names_a_leak);
    tcase_add_test(tc, heap_agrees_with_a_search_for_the_minimum);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
