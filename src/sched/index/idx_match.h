/*
 * The runs of a match while it walks over the blocks (idx_match.c, idx_runs.c). Readers; no lock.
 */
#ifndef KVCL_SCHED_INDEX_IDX_MATCH_H
#define KVCL_SCHED_INDEX_IDX_MATCH_H

#include "sched/index/idx_set.h"
#include "sched/index/idx_table.h"

/* A slot's run. It goes on at this block if its tick is that of the block before. */
typedef struct kvcl_match_run {
    uint64_t tick;
    uint32_t first;
    uint32_t tier;
} kvcl_match_run_t;

typedef struct kvcl_match_scratch {
    uint64_t         tick;  /* one more at each block of each match */
    uint32_t         slots;
    uint32_t         pad;
    kvcl_match_run_t *run;  /* of each slot */
    uint64_t         *dense; /* a row of bits for each tier: slots whose run is on it. All 0 while sparse */
    uint32_t         *list; /* slots with a run, while sparse */
    uint32_t         *next;
} kvcl_match_scratch_t;

typedef struct kvcl_match {
    kvcl_idx_slots_t     *slots;
    kvcl_match_scratch_t *scratch;
    kvcl_sched_hold_t    *holds;
    size_t               cap;
    size_t               n;        /* holds found; the last cap of them are kept */
    size_t               at;       /* block */
    uint32_t             least;
    uint32_t             n_list;
    uint32_t             words;    /* of the dense rows that may have a bit */
    bool                 is_dense;
    bool                 fresh;    /* a run may begin at this block */
} kvcl_match_t;

/** The block's holders are a bitmap; are in the block, or in a list. */
void kvcl_match_dense(kvcl_match_t *match, const kvcl_idx_bits_t *bits);
void kvcl_match_sparse(kvcl_match_t *match, kvcl_idx_block_t *block, kvcl_idx_list_t *list);
/** No holder: all runs end before this block. */
void kvcl_match_end_all(kvcl_match_t *match);
/** Does a run go on? */
bool kvcl_match_any(const kvcl_match_t *match);

void kvcl_idx_scratch_fini(kvcl_idx_epoch_t *epoch);

#endif
