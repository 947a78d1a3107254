/*
 * Public structs of callers that were built with an older or a newer header: all that may grow begin with their size.
 *
 * What a caller gives is read as far as both know it: what an older caller lacks keeps its default, and what a newer
 * one has set beyond is refused, since it would be ignored. What a caller is given is written as far as both know it,
 * and zeroed beyond. Arrays have a stride, the caller's sizeof of an element. Sizes below the first version's, and
 * above KVCL_STRUCT_MAX, are no sizes: they are refused with both numbers. Pure; no lock.
 */
#ifndef KVCL_BASE_STRUCTS_H
#define KVCL_BASE_STRUCTS_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KVCL_STRUCT_MAX = 8192 };

/* The size of a struct that ends with a member: of its first version. */
#define KVCL_UP_TO(_type, _last) (offsetof(_type, _last) + sizeof(((_type *)0)->_last))

/** kvcl_struct_in for sizes that differ. */
kvcl_status_t kvcl_struct_in_other(void *to, const void *from, size_t first, size_t known, const char *name)
    KVCL_MUST_CHECK;

/**
 * Read a caller's struct. @a to: of known bytes, has the defaults, keeps them on failure; its size is known then.
 * @a name: for the sentence, "kvcl_xfer_params_t".
 */
static inline kvcl_status_t kvcl_struct_in(void *to, const void *from, size_t first, size_t known, const char *name)
{
    size_t size;

    memcpy(&size, from, sizeof(size));
    if (__builtin_expect(size != known, 0)) {
        return kvcl_struct_in_other(to, from, first, known, name);
    }
    memcpy(to, from, known);
    return KVCL_OK;
}

/** Before anything is done: can it be written to? NULL cannot. */
kvcl_status_t kvcl_struct_out_check(const void *out, size_t first, const char *name, const char *call) KVCL_MUST_CHECK;
/** Write to a caller's struct that passed; its size stays. @a from: of known bytes. */
void          kvcl_struct_out(void *out, const void *from, size_t known);

/** An array's stride. */
kvcl_status_t kvcl_stride_check(size_t stride, size_t first, const char *name, const char *call) KVCL_MUST_CHECK;
/** Write element @a i. @a from: of known bytes. */
void          kvcl_struct_out_at(void *array, size_t i, size_t stride, const void *from, size_t known);

#endif
