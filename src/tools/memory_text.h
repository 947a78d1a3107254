/*
 * What kvcl_query_memory reports about a memory, in a few words: "mapped", "native (rdma)", "served: WHY",
 * "native (cma), puts served: WHY".
 */
#ifndef KVCL_TOOLS_MEMORY_TEXT_H
#define KVCL_TOOLS_MEMORY_TEXT_H

#include <kvcl/kvcl.h>

enum { MEMORY_TEXT_MAX = 160 };

/* For memory that this rank may read. */
void memory_text(const kvcl_memory_info_t *info, char *buf, size_t cap);

#endif
