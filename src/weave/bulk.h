/*
 * The copy of transfers larger than the caches (KVCL_COPY_COLD_BYTES of xfer/copy.h): woven, past the processor's
 * caches (weave.h). It saves the read of the destination's lines, a third of the traffic.
 *
 * Any thread, no lock. Under ThreadSanitizer it is memcpy, whose accesses the sanitizer checks.
 */
#ifndef KVCL_WEAVE_BULK_H
#define KVCL_WEAVE_BULK_H

#include "weave/weave.h"

/** Copy @a n pieces; at most a few dozen a call, in the order of a list. They must not overlap. */
void kvcl_bulk_copy(const kvcl_weave_piece_t *pieces, size_t n);
/** To be called after the last copy, before the bytes are announced to another thread or process. */
void kvcl_bulk_end(void);

#endif
