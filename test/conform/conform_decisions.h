/* Cases of conform_rma in conform_decisions.c. */
#ifndef KVCL_TEST_CONFORM_DECISIONS_H
#define KVCL_TEST_CONFORM_DECISIONS_H

#include "conform.h"

void cf_query_path(cf_t *cf);
void cf_query_memory(cf_t *cf);

#endif
