/*
 * Do the local pieces of a get overlap? Pure; lists in rising order, the usual ones, are not sorted.
 */
#ifndef KVCL_VEC_OVERLAP_H
#define KVCL_VEC_OVERLAP_H

#include <kvcl/kvcl_xfer.h>

/**
 * No piece is empty or wraps around. @a n: at most KVCL_VEC_MAX.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: pieces i and j overlap, without a sentence; KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_vec_overlap(const kvcl_vec_t *pieces, size_t n, size_t *i_p, size_t *j_p) KVCL_MUST_CHECK;

#endif
