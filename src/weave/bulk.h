/*
 * The copy of large transfers: woven, past the processor's caches (weave.h), or memcpy where no woven copy is faster
 * (choice.h). From 16 MiB on every transfer is large. A smaller one, from the measured size on, is large if its source
 * is not in the caches, which its first part shows: the part is copied through the caches, and timed.
 *
 * There is one choice for the process. KVCL_COPY names a copy, or auto: then the first copy reads the measured speeds
 * of this machine from the user's cache folder, or measures them (about 20 ms) and keeps them there. Any thread. One
 * mutex, held while a thread measures; other threads use memcpy meanwhile. Under ThreadSanitizer it is always memcpy,
 * whose accesses the sanitizer checks.
 */
#ifndef KVCL_WEAVE_BULK_H
#define KVCL_WEAVE_BULK_H

#include "base/clock.h"
#include "weave/weave.h"

#include <stdatomic.h>
#include <stdint.h>

extern const char *const kvcl_bulk_settings[]; /* values of KVCL_COPY: auto, then the copies; NULL at the end */

/**
 * Use the value of KVCL_COPY, an index into kvcl_bulk_settings, and of KVCL_COPY_LARGE (0: measured). Reads the
 * environment: call it in kvcl_init only.
 */
void kvcl_bulk_configure(int setting, uint64_t large);

typedef enum { KVCL_BULK_CACHED, KVCL_BULK_UNSURE, KVCL_BULK_LARGE } kvcl_bulk_how_t;

enum { KVCL_BULK_PROBE = 256 * 1024 }; /* bytes of a first part that show where the source is */

extern _Atomic uint64_t kvcl_bulk_least; /* shorter transfers are not large */
kvcl_bulk_how_t         kvcl_bulk_how_long(uint64_t bytes);

/** How a transfer of @a bytes is copied. UNSURE: its parts, of KVCL_BULK_PROBE bytes or more, ask below. */
static inline kvcl_bulk_how_t kvcl_bulk_how(uint64_t bytes)
{
    return (bytes < atomic_load_explicit(&kvcl_bulk_least, memory_order_relaxed)) ? KVCL_BULK_CACHED
                                                                                  : kvcl_bulk_how_long(bytes);
}

/** Before a part is copied, past the caches only if how is LARGE. @return what part_end needs. */
static inline uint64_t kvcl_bulk_part_begin(kvcl_bulk_how_t how)
{
    return (how == KVCL_BULK_UNSURE) ? kvcl_now_ns() : 0;
}

/** A part of @a bytes was copied, summed or not. @return how the parts that follow are copied. */
kvcl_bulk_how_t kvcl_bulk_part_end(kvcl_bulk_how_t how, uint64_t bytes, uint64_t begun);

/** Copy @a n pieces; at most a few dozen a call, in the order of a list. They must not overlap. */
void kvcl_bulk_copy(const kvcl_weave_piece_t *pieces, size_t n);
/** @return whether pieces of @a bytes are woven, not copied by memcpy. */
bool kvcl_bulk_is_woven(size_t bytes);
/** To be called after the last copy, before the bytes are announced to another thread or process. */
void kvcl_bulk_end(void);

/**
 * The choice of the settings, why, and the measured speeds, as lines of text; measures if that was not done before.
 * @return the length of the text without its NUL; a text that does not fit in cap bytes is cut off.
 */
size_t kvcl_bulk_describe(int setting, uint64_t large, char *buf, size_t cap);

#endif
