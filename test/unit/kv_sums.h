/*
 * The tests of sums for test_kv_copy (kv_sums.c).
 */
#ifndef KVCL_TEST_KV_SUMS_H
#define KVCL_TEST_KV_SUMS_H

#include <check.h>

void add_kv_sums(TCase *tc);

#endif
