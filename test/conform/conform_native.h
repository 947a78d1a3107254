/*
 * Cases of conform_fence (CF_BY_GET): native gets and puts that fail or do not end, and those of a store.
 */
#ifndef KVCL_TEST_CONFORM_NATIVE_H
#define KVCL_TEST_CONFORM_NATIVE_H

#include "conform.h"

/* This rank's calls of that kind and path, as kvcl_query_latency counts them. */
uint64_t cf_calls(cf_t *cf, const char *op, const char *path);

void cf_deadline_native(cf_t *cf);
void cf_a_stale_description(cf_t *cf);
void cf_store_gets_native(cf_t *cf);
void cf_store_reuses_slots(cf_t *cf);
void cf_lookups_native(cf_t *cf); /* conform_native_dir.c */
void cf_gets_look_natively(cf_t *cf);
void cf_lookups_beside_writes(cf_t *cf);
void cf_lookups_of_a_closed_store(cf_t *cf);
void cf_lookups_stalled(cf_t *cf);

#endif
