/*
 * Owns the table of tests: a new test is a row here, with its functions in a separate file.
 */
#include "config.h"
#include "tools/perf/perf_tests.h"

#include "tools/perf/flows/flows.h"
#include "tools/perf/perf_copy.h"

#define KIB UINT64_C(1024)

const perf_test_t perf_tests[] = {
    {.name       = "send",
     .flow       = &flow_send,
     .raw        = PERF_RAW_PUT,
     .bytes      = true,
     .unit       = 64 * KIB,
     .count      = 64,
     .op         = perf_send_op,
     .target_op  = perf_send_target,
     .renew      = perf_renew_near,
     .check_far  = perf_check_far},
    {.name      = "put",
     .flow      = &flow_put,
     .raw       = PERF_RAW_PUT,
     .bytes     = true,
     .unit      = 64 * KIB,
     .count     = 64,
     .op        = perf_put_op,
     .renew     = perf_renew_near,
     .check_far = perf_check_far},
    {.name       = "get",
     .flow       = &flow_get,
     .raw        = PERF_RAW_GET,
     .bytes      = true,
     .unit       = 64 * KIB,
     .count      = 64,
     .op         = perf_get_op,
     .renew      = perf_renew_far,
     .check_near = perf_check_near},
    {.name = "lookup", .batched = true, .store = true, .unit = 64, .count = 64 * KIB, .op = perf_lookup_op},
    {.name = "match", .store = true, .unit = 64, .count = 128, .op = perf_match_op},
    {.name       = "store-get",
     .flow       = &flow_store_get,
     .raw        = PERF_RAW_GET,
     .bytes      = true,
     .parts      = true,
     .store      = true,
     .unit       = 64 * KIB,
     .count      = 64,
     .op         = perf_store_get_op,
     .renew      = perf_store_renew_get,
     .check_near = perf_check_near},
    {.name       = "store-put",
     .bytes      = true,
     .parts      = true,
     .store      = true,
     .unit       = 64 * KIB,
     .count      = 64,
     .before     = perf_store_before_put,
     .op         = perf_store_put_op,
     .renew      = perf_renew_near,
     .check_near = perf_store_check_put},
    {.name = "store-keys", .unit = 64, .count = KIB * KIB, .drive = perf_keys},
    {.name = "copy", .alone = perf_copy},
    {.name = "bcast", .bytes = true, .unit = KIB * KIB, .count = 64, .drive = perf_bcast},
    {.name = "allreduce", .bytes = true, .unit = KIB * KIB, .count = 1, .drive = perf_allreduce},
};

const size_t perf_n_tests = sizeof(perf_tests) / sizeof(perf_tests[0]);
