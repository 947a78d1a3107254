/*
 * The share of the lower class: exactly its percentage of the turns, evenly spread.
 */
#include "config.h"

#include "xfer/share.h"

#include <check.h>

START_TEST(the_lower_class_gets_its_percentage_evenly)
{
    unsigned percent, i, since, turns;

    for (percent = 0; percent <= 90; ++percent) {
        kvcl_share_t share = {0};
        for (i = 0, since = 0, turns = 0; i < 1000; ++i) {
            ++since;
            if (kvcl_share_lower(&share, percent)) {
                ++turns;
                ck_assert_uint_le(since, (100 + percent - 1) / percent);
                since = 0;
            }
        }
        ck_assert_uint_eq(turns, 10 * percent);
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("xfer_share");
    TCase   *tc    = tcase_create("share");
    SRunner *runner;
    int      failed;

    tcase_add_test(tc, the_lower_class_gets_its_percentage_evenly);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
