/*
 * The reader of MessagePack (ev_msgpack.h). Owns nothing; the bytes are the caller's. Pure.
 */
#include "config.h"

#include "sched/events/ev_msgpack.h"

/* A big-endian number of n bytes. */
static bool number(kvcl_mp_t *mp, unsigned n, uint64_t *value_p)
{
    uint64_t value = 0;
    unsigned i;

    if (kvcl_mp_left(mp) < n) {
        return false;
    }
    for (i = 0; i < n; ++i) {
        value = value << 8 | mp->pos[i];
    }
    mp->pos += n;
    *value_p = value;
    return true;
}

/* len bytes in place. */
static bool bytes(kvcl_mp_t *mp, kvcl_mp_item_t *item, kvcl_mp_kind_t kind, uint64_t len)
{
    if (kvcl_mp_left(mp) < len) {
        return false;
    }
    item->kind  = kind;
    item->len   = (uint32_t)len;
    item->bytes = mp->pos;
    mp->pos += len;
    return true;
}

/* Items take at least a byte each: more than there are bytes cannot follow. */
static bool items(kvcl_mp_t *mp, kvcl_mp_item_t *item, kvcl_mp_kind_t kind, uint64_t len)
{
    if (len > kvcl_mp_left(mp) / ((kind == KVCL_MP_MAP) ? 2 : 1)) {
        return false;
    }
    item->kind = kind;
    item->len  = (uint32_t)len;
    return true;
}

static bool sized(kvcl_mp_t *mp, kvcl_mp_item_t *item, kvcl_mp_kind_t kind, unsigned n)
{
    uint64_t len;

    if (!number(mp, n, &len)) {
        return false;
    }
    return ((kind == KVCL_MP_BYTES) || (kind == KVCL_MP_EXT)) ? bytes(mp, item, kind, len + (kind == KVCL_MP_EXT))
                                                              : items(mp, item, kind, len);
}

static bool whole(kvcl_mp_t *mp, kvcl_mp_item_t *item, unsigned n, bool is_signed)
{
    uint64_t value, sign = UINT64_C(1) << (8 * n - 1);

    if (!number(mp, n, &value)) {
        return false;
    }
    item->kind   = (is_signed && ((value & sign) != 0)) ? KVCL_MP_INT : KVCL_MP_UINT;
    item->number = ((item->kind == KVCL_MP_INT) && (n < 8)) ? (value | ~(2 * sign - 1)) : value;
    return true;
}

static bool of_head(kvcl_mp_t *mp, kvcl_mp_item_t *item, uint8_t head)
{
    switch (head) {
    case 0xc0:
        item->kind = KVCL_MP_NIL;
        return true;
    case 0xc2:
    case 0xc3:
        item->kind   = KVCL_MP_BOOL;
        item->number = head & 1;
        return true;
    case 0xc4: case 0xc5: case 0xc6:
        return sized(mp, item, KVCL_MP_BYTES, 1u << (head - 0xc4));
    case 0xc7: case 0xc8: case 0xc9:
        return sized(mp, item, KVCL_MP_EXT, 1u << (head - 0xc7));
    case 0xca: case 0xcb:
        return bytes(mp, item, KVCL_MP_FLOAT, (head == 0xca) ? 4 : 8);
    case 0xcc: case 0xcd: case 0xce: case 0xcf:
        return whole(mp, item, 1u << (head - 0xcc), false);
    case 0xd0: case 0xd1: case 0xd2: case 0xd3:
        return whole(mp, item, 1u << (head - 0xd0), true);
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
        return bytes(mp, item, KVCL_MP_EXT, 1 + (UINT64_C(1) << (head - 0xd4)));
    case 0xd9: case 0xda: case 0xdb:
        return sized(mp, item, KVCL_MP_BYTES, 1u << (head - 0xd9));
    case 0xdc: case 0xdd:
        return sized(mp, item, KVCL_MP_ARRAY, 2u << (head - 0xdc));
    case 0xde: case 0xdf:
        return sized(mp, item, KVCL_MP_MAP, 2u << (head - 0xde));
    default: /* 0xc1 is never used */
        return false;
    }
}

bool kvcl_mp_next(kvcl_mp_t *mp, kvcl_mp_item_t *item)
{
    uint8_t head;

    if (mp->pos == mp->end) {
        return false;
    }
    head         = *mp->pos++;
    item->number = 0;
    item->len    = 0;
    item->bytes  = NULL;
    if (head < 0x80) {
        item->kind   = KVCL_MP_UINT;
        item->number = head;
        return true;
    }
    if (head >= 0xe0) {
        item->kind   = KVCL_MP_INT;
        item->number = (uint64_t)(int64_t)(int8_t)head;
        return true;
    }
    if (head < 0x90) {
        return items(mp, item, KVCL_MP_MAP, head & 15);
    }
    if (head < 0xa0) {
        return items(mp, item, KVCL_MP_ARRAY, head & 15);
    }
    return (head < 0xc0) ? bytes(mp, item, KVCL_MP_BYTES, head & 31) : of_head(mp, item, head);
}

/* Bytes of a value that has always as many, by its first byte; 0: look at it. Lists of numbers are long. */
static unsigned fixed(uint8_t head)
{
    if ((head < 0x80) || (head >= 0xe0)) {
        return 1;
    }
    return ((head >= 0xcc) && (head <= 0xd3)) ? 1 + (1u << (head & 3)) : 0;
}

/* Go past a value of `size` bytes and those behind it with the same head, at most `most`: hashes and most tokens have
 * it. @return how many. */
static uint64_t alike(kvcl_mp_t *mp, unsigned size, uint64_t most)
{
    const uint8_t *p = mp->pos, *const last = mp->end - size;
    const uint8_t head = *p;
    uint64_t      n    = 0;

    do {
        p += size;
        ++n;
    } while ((n < most) && (p <= last) && (*p == head));
    mp->pos = p;
    return n;
}

bool kvcl_mp_skip(kvcl_mp_t *mp)
{
    kvcl_mp_item_t item;
    uint64_t       left = 1; /* values still to come; each takes a byte at least */
    unsigned       size;

    while (left > 0) {
        size = (mp->pos != mp->end) ? fixed(*mp->pos) : 0;
        if ((size > 0) && (size <= kvcl_mp_left(mp))) {
            left -= alike(mp, size, left);
            continue;
        }
        if (!kvcl_mp_next(mp, &item)) {
            return false;
        }
        --left;
        left += (item.kind == KVCL_MP_ARRAY) ? item.len : (item.kind == KVCL_MP_MAP) ? 2 * (uint64_t)item.len : 0;
        if (left > kvcl_mp_left(mp)) {
            return false;
        }
    }
    return true;
}

bool kvcl_mp_u32_any(kvcl_mp_t *mp, uint32_t most, uint32_t *value_p)
{
    kvcl_mp_item_t item;

    if (!kvcl_mp_next(mp, &item) || (item.kind != KVCL_MP_UINT) || (item.number > most)) {
        return false;
    }
    *value_p = (uint32_t)item.number;
    return true;
}

/* As the tokens of a large vocabulary are: five bytes each. */
static bool all_wide(kvcl_mp_t *mp, uint32_t *values, uint32_t n)
{
    const uint8_t *p = mp->pos;
    uint32_t      i;

    if (kvcl_mp_left(mp) / 5 < n) {
        return false;
    }
    for (i = 0; i < n; ++i, p += 5) {
        if (*p != 0xce) {
            return false;
        }
        values[i] = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    }
    mp->pos = p;
    return true;
}

bool kvcl_mp_u32s(kvcl_mp_t *mp, uint32_t *values, uint32_t n)
{
    uint32_t i = 0;

    if (all_wide(mp, values, n)) {
        return true;
    }
    while ((i < n) && kvcl_mp_u32(mp, UINT32_MAX, &values[i])) {
        ++i;
    }
    return i == n;
}
