/*
 * XXH3-64 and a copy in one loop (xxh3.h, AVX2), and the plain way where there is none.
 *
 * The last stripe and the sum of short ones are not as the others, so up to a block is kept back in `pending`. Pure, no
 * locks.
 */
#include "config.h"
#include "weave/sum_copy.h"

#include "weave/copy_racy.h"
#include "weave/xxh3.h"

#include <stdbool.h>
#include <string.h>

enum {
    SHORT   = KVCL_XXH3_SHORT,
    SLICE   = 8192,
    STRIPE  = KVCL_XXH3_STRIPE,
    BLOCK   = KVCL_XXH3_BLOCK,
    STRIPES = BLOCK / STRIPE
};

#if KVCL_XXH3_STEPS

static bool is_fast(void)
{
    return __builtin_cpu_supports("avx2");
}

/* One stripe; stored at dst, too, if it is to be copied. */
KVCL_AVX2_INLINE kvcl_avx2_acc_t stripe(kvcl_avx2_acc_t acc, bool copying, uint8_t *dst, const uint8_t *src,
                                        const uint8_t *key)
{
    __m256i a = kvcl_avx2_load(src), b = kvcl_avx2_load(src + 32);

    if (copying) {
        _mm256_storeu_si256((__m256i *)(void *)dst, a);
        _mm256_storeu_si256((__m256i *)(void *)(dst + 32), b);
    }
    return kvcl_avx2_add(acc, a, b, key);
}

KVCL_AVX2_INLINE void blocks(uint64_t *sums, bool copying, uint8_t *dst, const uint8_t *src, size_t n)
{
    kvcl_avx2_acc_t acc = kvcl_avx2_take(sums);
    size_t          i;

    for (; n > 0; --n) {
        for (i = 0; i < STRIPES; ++i) {
            acc = stripe(acc, copying, dst, src, kvcl_xxh3_key(i));
            src += STRIPE;
            dst = copying ? dst + STRIPE : NULL;
        }
        acc = kvcl_avx2_scramble(acc);
    }
    kvcl_avx2_give(sums, acc);
}

KVCL_AVX2 static void sum_blocks(uint64_t *sums, const uint8_t *src, size_t n)
{
    blocks(sums, false, NULL, src, n);
}

KVCL_AVX2 static void copy_blocks(uint64_t *sums, uint8_t *dst, const uint8_t *src, size_t n)
{
    blocks(sums, true, dst, src, n);
}

/* The stripes of a block that is not whole, then the last 64 bytes. */
KVCL_AVX2 static void sum_rest(uint64_t *sums, const uint8_t *src, size_t n_stripes, const uint8_t *last)
{
    kvcl_avx2_acc_t acc = kvcl_avx2_take(sums);
    size_t          i;

    for (i = 0; i < n_stripes; ++i) {
        acc = stripe(acc, false, NULL, src + (i * STRIPE), kvcl_xxh3_key(i));
    }
    kvcl_avx2_give(sums, stripe(acc, false, NULL, last, kvcl_xxh3_last_key()));
}

static void fast_init(kvcl_sum_fast_t *sum)
{
    kvcl_xxh3_begin(sum->acc);
    sum->n_pending = 0;
    sum->total     = 0;
}

/* At most as much as there is room for. */
static void keep(kvcl_sum_fast_t *sum, uint8_t *dst, const uint8_t *src, size_t len)
{
    if (dst != NULL) {
        memcpy(dst, src, len);
        src = dst;
    }
    memcpy(sum->pending + sum->n_pending, src, len);
    sum->n_pending += len;
}

static void fast_copy(kvcl_sum_fast_t *sum, uint8_t *dst, const uint8_t *src, size_t len)
{
    size_t n = BLOCK - sum->n_pending;

    sum->total += len;
    if (sum->n_pending > 0) {
        n = (n < len) ? n : len;
        keep(sum, dst, src, n);
        src += n;
        dst = (dst != NULL) ? dst + n : NULL;
        len -= n;
        if (len == 0) {
            return;
        }
        sum_blocks(sum->acc, sum->pending, 1);
        memcpy(sum->last, sum->pending + BLOCK - STRIPE, STRIPE);
        sum->n_pending = 0;
    }
    n = (len > 0) ? (len - 1) / BLOCK : 0;
    if (n > 0) {
        if (dst != NULL) {
            copy_blocks(sum->acc, dst, src, n);
        } else {
            sum_blocks(sum->acc, src, n);
        }
        n *= BLOCK;
        src += n;
        dst = (dst != NULL) ? dst + n : NULL;
        len -= n;
        memcpy(sum->last, ((dst != NULL) ? dst : src) - STRIPE, STRIPE);
    }
    keep(sum, dst, src, len);
}

static uint64_t fast_end(const kvcl_sum_fast_t *sum)
{
    const size_t  n = sum->n_pending;
    const uint8_t *last;
    uint8_t       both[STRIPE];
    uint64_t      acc[8];

    if (sum->total <= SHORT) {
        return kvcl_checksum(sum->pending, n);
    }
    last = sum->pending + n - STRIPE;
    if (n < STRIPE) {
        memcpy(both, sum->last + n, STRIPE - n);
        memcpy(both + STRIPE - n, sum->pending, n);
        last = both;
    }
    memcpy(acc, sum->acc, sizeof(acc));
    sum_rest(acc, sum->pending, (n - 1) / STRIPE, last);
    return kvcl_xxh3_end(acc, sum->total);
}

/* One piece of more than SHORT bytes, summed at once: no state is kept for further pieces. */
static uint64_t fast_of(uint8_t *dst, const uint8_t *src, size_t len)
{
    const size_t n     = (len - 1) / BLOCK;
    const size_t whole = n * BLOCK;
    uint64_t     acc[8];

    kvcl_xxh3_begin(acc);
    if (dst != NULL) {
        copy_blocks(acc, dst, src, n);
        memcpy(dst + whole, src + whole, len - whole);
        src = dst;
    } else {
        sum_blocks(acc, src, n);
    }
    sum_rest(acc, src + whole, (len - whole - 1) / STRIPE, src + len - STRIPE);
    return kvcl_xxh3_end(acc, len);
}

#else

static bool is_fast(void)
{
    return false;
}

static void fast_init(kvcl_sum_fast_t *sum)
{
    (void)sum;
}

static void fast_copy(kvcl_sum_fast_t *sum, uint8_t *dst, const uint8_t *src, size_t len)
{
    (void)sum, (void)dst, (void)src, (void)len;
}

static uint64_t fast_end(const kvcl_sum_fast_t *sum)
{
    (void)sum;
    return 0;
}

static uint64_t fast_of(uint8_t *dst, const uint8_t *src, size_t len)
{
    (void)dst, (void)src, (void)len;
    return 0;
}

#endif

void kvcl_sum_init(kvcl_sum_t *sum)
{
    sum->is_fast = is_fast();
    if (sum->is_fast) {
        fast_init(&sum->u.fast);
    } else {
        kvcl_checksum_init(&sum->u.plain);
    }
}

static void plain_copy(kvcl_checksum_state_t *state, uint8_t *dst, const uint8_t *src, size_t len)
{
    size_t n;

    if (dst == NULL) {
        kvcl_checksum_update(state, src, len);
        return;
    }
    for (; len > 0; len -= n, dst += n, src += n) {
        n = (len < SLICE) ? len : SLICE;
        kvcl_copy_racy(dst, src, n);
        kvcl_checksum_update(state, dst, n);
    }
}

void kvcl_sum_copy(kvcl_sum_t *sum, void *dst, const void *src, size_t len)
{
    if (len == 0) {
        return;
    }
    if (sum->is_fast) {
        fast_copy(&sum->u.fast, (uint8_t *)dst, (const uint8_t *)src, len);
    } else {
        plain_copy(&sum->u.plain, (uint8_t *)dst, (const uint8_t *)src, len);
    }
}

uint64_t kvcl_sum_end(const kvcl_sum_t *sum)
{
    return sum->is_fast ? fast_end(&sum->u.fast) : kvcl_checksum_digest(&sum->u.plain);
}

uint64_t kvcl_sum_of(const void *buf, size_t len)
{
    return ((len > SHORT) && is_fast()) ? fast_of(NULL, (const uint8_t *)buf, len) : kvcl_checksum(buf, len);
}

uint64_t kvcl_sum_copy_of(void *dst, const void *src, size_t len)
{
    kvcl_checksum_state_t state;

    if ((len > SHORT) && is_fast()) {
        return fast_of((uint8_t *)dst, (const uint8_t *)src, len);
    }
    kvcl_checksum_init(&state);
    plain_copy(&state, (uint8_t *)dst, (const uint8_t *)src, len);
    return kvcl_checksum_digest(&state);
}
