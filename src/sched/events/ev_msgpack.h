/*
 * Reading MessagePack from hostile bytes: a cursor, and the next item. Lengths are compared with what is left before
 * they are used. No allocation, no recursion; skipping any value takes time in proportion to its bytes. Pure.
 * Source of the format: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
#ifndef KVCL_SCHED_EVENTS_EV_MSGPACK_H
#define KVCL_SCHED_EVENTS_EV_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum kvcl_mp_kind {
    KVCL_MP_NIL,
    KVCL_MP_BOOL,   /* number 0 or 1 */
    KVCL_MP_UINT,   /* number */
    KVCL_MP_INT,    /* negative: number in two's complement */
    KVCL_MP_FLOAT,  /* its value is not read */
    KVCL_MP_BYTES,  /* bytes, len: a string or binary data */
    KVCL_MP_ARRAY,  /* len items follow */
    KVCL_MP_MAP,    /* len pairs of items follow */
    KVCL_MP_EXT     /* its bytes are skipped */
} kvcl_mp_kind_t;

typedef struct kvcl_mp_item {
    kvcl_mp_kind_t kind;
    uint32_t       len;
    uint64_t       number;
    const uint8_t  *bytes;
} kvcl_mp_item_t;

typedef struct kvcl_mp {
    const uint8_t *pos;
    const uint8_t *end;
} kvcl_mp_t;

static inline size_t kvcl_mp_left(const kvcl_mp_t *mp)
{
    return (size_t)(mp->end - mp->pos);
}

/** The next item; of an array or a map, its head. @return false: the bytes end, or are none of the format. */
bool kvcl_mp_next(kvcl_mp_t *mp, kvcl_mp_item_t *item);
/** Go past the next value with all it contains. @return false, as above. */
bool kvcl_mp_skip(kvcl_mp_t *mp);
/** The next value as a whole number of at most `most`, in any form that the format has. @return false: it is none. */
bool kvcl_mp_u32_any(kvcl_mp_t *mp, uint32_t most, uint32_t *value_p);

/** The same, with the forms of most tokens inline. */
static inline bool kvcl_mp_u32(kvcl_mp_t *mp, uint32_t most, uint32_t *value_p)
{
    const uint8_t *p    = mp->pos;
    const size_t  left = kvcl_mp_left(mp);

    if ((left >= 5) && (*p == 0xce)) { /* as tokens of a large vocabulary are */
        mp->pos += 5;
        *value_p = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
        return *value_p <= most;
    }
    if ((left >= 3) && (*p == 0xcd)) {
        mp->pos += 3;
        *value_p = (uint32_t)p[1] << 8 | p[2];
        return *value_p <= most;
    }
    return kvcl_mp_u32_any(mp, most, value_p);
}

/** The next n values as whole numbers of 32 bits. @return false: one is none. */
bool kvcl_mp_u32s(kvcl_mp_t *mp, uint32_t *values, uint32_t n);

static inline bool kvcl_mp_is(const kvcl_mp_item_t *item, const char *text, size_t len)
{
    return (item->kind == KVCL_MP_BYTES) && (item->len == len) && (__builtin_memcmp(item->bytes, text, len) == 0);
}

#endif
