/*
 * The functions of the tests, and the table of them (perf_tests.c). perf_test_t describes each function.
 */
#ifndef KVCL_TOOLS_PERF_PERF_TESTS_H
#define KVCL_TOOLS_PERF_PERF_TESTS_H

#include "tools/perf/perf.h"

bool perf_get_op(perf_slice_t *slice);
bool perf_put_op(perf_slice_t *slice);
bool perf_send_op(perf_slice_t *slice);
bool perf_send_target(perf_t *perf);

bool perf_lookup_op(perf_slice_t *slice);
bool perf_match_op(perf_slice_t *slice);
bool perf_store_get_op(perf_slice_t *slice);
bool perf_store_put_op(perf_slice_t *slice);
void perf_store_before_put(perf_slice_t *slice);
bool perf_store_renew_get(perf_t *perf);
uint64_t perf_store_check_put(perf_t *perf);

bool     perf_renew_near(perf_t *perf);
bool     perf_renew_far(perf_t *perf);
uint64_t perf_check_near(perf_t *perf);
uint64_t perf_check_far(perf_t *perf);

#endif
