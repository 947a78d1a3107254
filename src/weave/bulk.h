/*
 * The copy of transfers larger than the caches (KVCL_COPY_COLD_BYTES of xfer/copy.h): woven, past the processor's
 * caches (weave.h), or memcpy where no woven copy is faster (choice.h).
 *
 * There is one choice for the process. KVCL_COPY names a copy, or auto: then the first copy reads the measured speeds
 * of this machine from the user's cache folder, or measures them (20 ms at rest) and keeps them there. Any thread. One
 * mutex, held while a thread measures; other threads use memcpy meanwhile. Under ThreadSanitizer it is always memcpy,
 * whose accesses the sanitizer checks.
 */
#ifndef KVCL_WEAVE_BULK_H
#define KVCL_WEAVE_BULK_H

#include "weave/weave.h"

extern const char *const kvcl_bulk_settings[]; /* values of KVCL_COPY: auto, then the copies; NULL at the end */

/** Use the value of KVCL_COPY, an index into kvcl_bulk_settings. Reads the environment: call it in kvcl_init only. */
void kvcl_bulk_configure(int setting);

/** Copy @a n pieces; at most a few dozen a call, in the order of a list. They must not overlap. */
void kvcl_bulk_copy(const kvcl_weave_piece_t *pieces, size_t n);
/** @return whether pieces of @a bytes are woven, not copied by memcpy. */
bool kvcl_bulk_is_woven(size_t bytes);
/** To be called after the last copy, before the bytes are announced to another thread or process. */
void kvcl_bulk_end(void);

/**
 * The choice of a setting, why, and the measured speeds, as lines of text; measures if that was not done before.
 * @return the length of the text without its NUL; a text that does not fit in cap bytes is cut off.
 */
size_t kvcl_bulk_describe(int setting, char *buf, size_t cap);

#endif
