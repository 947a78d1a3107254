/*
 * Items assigned to the ranks that are to have them (home/scatter.c): each rank gets its items, in their order, however
 * many ranks an item has.
 */
#include "config.h"

#include "dir/moves.h"
#include "store/home/rpc.h"

#include <check.h>
#include <stdlib.h>

enum { RANKS = 7, ITEMS = 1000 };

/* The rank that an item has in one of its places; some places are unused. */
static uint32_t rank_of(unsigned item, unsigned place)
{
    const unsigned rank = (item * 5 + place * 3) % (RANKS + 2);

    return (rank < RANKS) ? rank : KVCL_SHARD_NO_RANK;
}

static void check(unsigned per)
{
    static uint32_t to[KVCL_MOVES_HOMES * ITEMS];
    kvcl_scatter_t  scatter;
    unsigned        item, place;
    uint32_t        rank, at = 0;

    for (item = 0; item < ITEMS; ++item) {
        for (place = 0; place < per; ++place) {
            to[(item * per) + place] = rank_of(item, place);
        }
    }
    ck_assert_int_eq(kvcl_scatter_to(RANKS, to, per, ITEMS, &scatter), KVCL_OK);
    for (rank = 0; rank < RANKS; ++rank) {
        ck_assert_uint_eq(scatter.starts[rank], at);
        for (item = 0; item < ITEMS; ++item) {
            for (place = 0; place < per; ++place) {
                if (rank_of(item, place) == rank) {
                    ck_assert_uint_eq(scatter.order[at++], item);
                }
            }
        }
    }
    ck_assert_uint_eq(scatter.starts[RANKS], at);
    kvcl_scatter_free(&scatter);
}

START_TEST(each_rank_gets_its_items_in_their_order)
{
    unsigned per;

    for (per = 1; per <= KVCL_MOVES_HOMES; ++per) { /* of a record, while its shard moves, as many as that */
        check(per);
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_scatter");
    TCase   *tc    = tcase_create("scatter");
    SRunner *runner;
    int     failed;

    tcase_add_test(tc, each_rank_gets_its_items_in_their_order);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
