/*
 * Cursors that read and write little-endian fields of a byte buffer, bounds-checked, with one
 * sticky error: after the first field that does not fit every further read yields 0 (NULL for
 * bytes), every further write does nothing, and _ok() says no. So a decoder reads all fields and
 * checks once. Pure: no allocation, no lock; the buffer stays the caller's and must outlive what
 * kvcl_rd_bytes returns, which points into it.
 */
#ifndef KVCL_BASE_WIREBUF_H
#define KVCL_BASE_WIREBUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct kvcl_rd {
    const uint8_t *pos;
    const uint8_t *end;
    int            failed;
} kvcl_rd_t;

typedef struct kvcl_wr {
    uint8_t *start;
    uint8_t *pos;
    uint8_t *end;
    int      failed;
} kvcl_wr_t;

static inline void kvcl_rd_init(kvcl_rd_t *rd, const void *buf, size_t len)
{
    rd->pos    = (const uint8_t *)buf;
    rd->end    = (len == 0) ? rd->pos : rd->pos + len;
    rd->failed = 0;
}

static inline int kvcl_rd_ok(const kvcl_rd_t *rd)
{
    return !rd->failed;
}

/* Bytes not read yet; 0 after an error. */
static inline size_t kvcl_rd_left(const kvcl_rd_t *rd)
{
    return rd->failed ? 0 : (size_t)(rd->end - rd->pos);
}

/* No error, and every byte was read: what a decoder of a whole message checks last. */
static inline int kvcl_rd_done(const kvcl_rd_t *rd)
{
    return !rd->failed && (rd->pos == rd->end);
}

/* The next len bytes, in place, or NULL. */
static inline const void *kvcl_rd_bytes(kvcl_rd_t *rd, size_t len)
{
    const uint8_t *at = rd->pos;

    if (rd->failed || (len > (size_t)(rd->end - rd->pos))) {
        rd->failed = 1;
        return NULL;
    }
    if (len > 0) {
        rd->pos += len;
    }
    return at;
}

/* Copy the next len bytes out; dst is zeroed on error. */
static inline void kvcl_rd_copy(kvcl_rd_t *rd, void *dst, size_t len)
{
    const void *src = kvcl_rd_bytes(rd, len);

    if (len == 0) {
        return;
    }
    if (src != NULL) {
        memcpy(dst, src, len);
    } else {
        memset(dst, 0, len);
    }
}

#define KVCL_WIREBUF_RD(_name, _type)                                                              \
    static inline _type kvcl_rd_##_name(kvcl_rd_t *rd)                                             \
    {                                                                                              \
        const uint8_t *at    = (const uint8_t *)kvcl_rd_bytes(rd, sizeof(_type));                  \
        _type          value = 0;                                                                  \
        size_t         i;                                                                          \
                                                                                                   \
        for (i = 0; (at != NULL) && (i < sizeof(_type)); ++i) {                                    \
            value = (_type)(value | (_type)((_type)at[i] << (8 * i)));                             \
        }                                                                                          \
        return value;                                                                              \
    }

KVCL_WIREBUF_RD(u8, uint8_t)
KVCL_WIREBUF_RD(u16, uint16_t)
KVCL_WIREBUF_RD(u32, uint32_t)
KVCL_WIREBUF_RD(u64, uint64_t)

static inline void kvcl_wr_init(kvcl_wr_t *wr, void *buf, size_t cap)
{
    wr->start  = (uint8_t *)buf;
    wr->pos    = wr->start;
    wr->end    = (cap == 0) ? wr->start : wr->start + cap;
    wr->failed = 0;
}

static inline int kvcl_wr_ok(const kvcl_wr_t *wr)
{
    return !wr->failed;
}

/* Bytes written so far; what was written before an error counts. */
static inline size_t kvcl_wr_len(const kvcl_wr_t *wr)
{
    return (size_t)(wr->pos - wr->start);
}

/* Room for len bytes to be filled by the caller (at once: undefined contents), or NULL. */
static inline void *kvcl_wr_reserve(kvcl_wr_t *wr, size_t len)
{
    uint8_t *at = wr->pos;

    if (wr->failed || (len > (size_t)(wr->end - wr->pos))) {
        wr->failed = 1;
        return NULL;
    }
    if (len > 0) {
        wr->pos += len;
    }
    return at;
}

static inline void kvcl_wr_bytes(kvcl_wr_t *wr, const void *src, size_t len)
{
    void *at = kvcl_wr_reserve(wr, len);

    if ((at != NULL) && (len > 0)) {
        memcpy(at, src, len);
    }
}

static inline void kvcl_wr_zero(kvcl_wr_t *wr, size_t len)
{
    void *at = kvcl_wr_reserve(wr, len);

    if ((at != NULL) && (len > 0)) {
        memset(at, 0, len);
    }
}

#define KVCL_WIREBUF_WR(_name, _type)                                                              \
    static inline void kvcl_wr_##_name(kvcl_wr_t *wr, _type value)                                 \
    {                                                                                              \
        uint8_t *at = (uint8_t *)kvcl_wr_reserve(wr, sizeof(_type));                               \
        size_t   i;                                                                                \
                                                                                                   \
        for (i = 0; (at != NULL) && (i < sizeof(_type)); ++i) {                                    \
            at[i] = (uint8_t)(value >> (8 * i));                                                   \
        }                                                                                          \
    }

KVCL_WIREBUF_WR(u8, uint8_t)
KVCL_WIREBUF_WR(u16, uint16_t)
KVCL_WIREBUF_WR(u32, uint32_t)
KVCL_WIREBUF_WR(u64, uint64_t)

#endif
