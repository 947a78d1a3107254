/*
 * What a rank has called, as its messages say it (coll_wire.h): ranks whose calls differ learn of both of them.
 * Pure; what comes from peers may hold anything.
 */
#ifndef KVCL_COLL_CALLED_H
#define KVCL_COLL_CALLED_H

#include "coll/coll_post.h"
#include "coll/coll_wire.h"

#include <stdbool.h>

kvcl_coll_called_t kvcl_coll_called_of(const kvcl_coll_call_t *call);

/** Must not be one collective: both are known, and their kinds, sizes, roots or reductions differ. Bytes of blocks are
 * compared elsewhere, with their shapes. */
bool kvcl_coll_called_differs(const kvcl_coll_called_t *one, const kvcl_coll_called_t *other);

/** The payload of an ABORT that tells which calls differ. @return whether it is one. */
bool kvcl_coll_unlike_read(const void *data, size_t len, kvcl_coll_unlike_t *unlike);

/** Fail with the sentence that names both calls. @return KVCL_ERR_INVALID_PARAM */
kvcl_status_t kvcl_coll_unlike_fail(const kvcl_coll_unlike_t *unlike);

#endif
