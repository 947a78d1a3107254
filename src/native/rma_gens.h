/*
 * The generation words that a native get reads after its blocks: which words, in how many reads. Pure.
 *
 * Words that lie close together are read together: a read of some hundred bytes costs a network as much as one of four.
 */
#ifndef KVCL_NATIVE_RMA_GENS_H
#define KVCL_NATIVE_RMA_GENS_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

enum {
    KVCL_RMA_GENS_GAP  = 64,  /* words between two slots that are read with them, at most */
    KVCL_RMA_GENS_SPAN = 1024 /* words of one read, at most */
};

typedef struct kvcl_rma_span {
    uint32_t first; /* slot */
    uint32_t n;     /* words */
    size_t   at;    /* in words */
} kvcl_rma_span_t;

/* Zeroed: empty. */
typedef struct kvcl_rma_gens {
    kvcl_rma_span_t *spans; /* rising, none overlaps another */
    size_t          n_spans;
    uint32_t        *words; /* of all spans; filled by the reads */
} kvcl_rma_gens_t;

/** n > 0 slots, in any order, also twice. gens is empty. @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_rma_gens_plan(const uint32_t *slots, size_t n, kvcl_rma_gens_t *gens) KVCL_MUST_CHECK;
/** The word of one of the slots, once its span has been read. */
uint32_t      kvcl_rma_gens_word(const kvcl_rma_gens_t *gens, uint32_t slot);
/** Leaves it empty. */
void          kvcl_rma_gens_clear(kvcl_rma_gens_t *gens);

#endif
