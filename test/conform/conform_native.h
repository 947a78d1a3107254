/*
 * Cases of conform_fence (CF_BY_GET): native gets and puts that fail or do not end, and those of a store.
 */
#ifndef KVCL_TEST_CONFORM_NATIVE_H
#define KVCL_TEST_CONFORM_NATIVE_H

#include "conform.h"

void cf_deadline_native(cf_t *cf);
void cf_a_stale_description(cf_t *cf);
void cf_store_gets_native(cf_t *cf);
void cf_store_reuses_slots(cf_t *cf);

#endif
