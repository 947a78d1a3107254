/*
 * Numbers of the format of saved indices (idx_save.c writes it, idx_load.c reads it).
 */
#ifndef KVCL_SCHED_INDEX_IDX_SAVE_H
#define KVCL_SCHED_INDEX_IDX_SAVE_H

#include "sched/index/idx.h"

#include <stddef.h>

enum {
    KVCL_IDX_VERSION      = 1,
    KVCL_IDX_COUNTERS     = 13, /* of kvcl_sched_source_info_t, from messages on */
    KVCL_IDX_HEAD_BYTES   = 32,
    KVCL_IDX_BLOCK_BYTES  = 32 + 1,
    KVCL_IDX_HOLDER_BYTES = 4 + 1 + 8,
    KVCL_IDX_SUM_BYTES    = 8,
    KVCL_IDX_TEXT_MAX     = 65536
};
#define KVCL_IDX_NO_TEXT UINT32_MAX
#define KVCL_IDX_MAGIC   "KVCLIDX" /* with its NUL */

_Static_assert(offsetof(kvcl_sched_source_info_t, full) - offsetof(kvcl_sched_source_info_t, messages) ==
                   (KVCL_IDX_COUNTERS - 1) * sizeof(uint64_t), "the counters are in a row");

#endif
