/*
 * Cases of conform_fence: native gets and puts that fail or do not end (CF_BY_GET).
 */
#ifndef KVCL_TEST_CONFORM_NATIVE_H
#define KVCL_TEST_CONFORM_NATIVE_H

#include "conform.h"

void cf_deadline_native(cf_t *cf);
void cf_a_stale_description(cf_t *cf);

#endif
