/*
 * XXH3-64 and a copy in one loop (AVX2), and the plain way where there is none.
 *
 * XXH3 of more than 240 bytes: eight accumulators take stripes of 64 bytes, each with another part of the secret; after
 * every 16 stripes, a block, they are scrambled; the last 64 bytes are one stripe more, whatever lies before them. The
 * sum of shorter ones is another function, so up to a block is kept back in `pending`. Pure, no locks; what the
 * processor has is asked once.
 */
#include "config.h"
#include "weave/sum_copy.h"

#include "base/sanitizers.h"
#include "weave/copy_racy.h"

#include <stdbool.h>
#include <string.h>

enum { SHORT = 240, SLICE = 8192, STRIPES = KVCL_SUM_BLOCK / KVCL_SUM_STRIPE, SECRET_STEP = 8, SECRET_LAST = 7 };

/* ThreadSanitizer is to see the racy copy as such, so it gets the plain way. */
#if defined(KVCL_HAVE_XXH3_INSIDE) && defined(__x86_64__) && !KVCL_TSAN
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

typedef struct lanes {
    __m256i a, b;
} lanes_t;

static const uint8_t *const secret = XXH3_kSecret;

static bool is_fast(void)
{
    return __builtin_cpu_supports("avx2");
}

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

AVX2_INLINE __m256i add_half(__m256i acc, __m256i data, const uint8_t *key)
{
    __m256i mixed   = _mm256_xor_si256(data, load(key));
    __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));

    return _mm256_add_epi64(_mm256_add_epi64(acc, _mm256_shuffle_epi32(data, 0x4e)), product);
}

/* One stripe; stored at dst, too, if it is to be copied. */
AVX2_INLINE lanes_t stripe(lanes_t acc, bool copying, uint8_t *dst, const uint8_t *src, const uint8_t *key)
{
    __m256i a = load(src), b = load(src + 32);

    if (copying) {
        _mm256_storeu_si256((__m256i *)(void *)dst, a);
        _mm256_storeu_si256((__m256i *)(void *)(dst + 32), b);
    }
    acc.a = add_half(acc.a, a, key);
    acc.b = add_half(acc.b, b, key + 32);
    return acc;
}

AVX2_INLINE __m256i scramble_half(__m256i acc, const uint8_t *key)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH_PRIME32_1);
    __m256i       mixed = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), load(key));
    __m256i       high  = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);

    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

AVX2_INLINE void blocks(uint64_t *sums, bool copying, uint8_t *dst, const uint8_t *src, size_t n)
{
    const uint8_t *end = secret + XXH_SECRET_DEFAULT_SIZE - KVCL_SUM_STRIPE;
    lanes_t       acc  = {load(sums), load(sums + 4)};
    size_t        i;

    for (; n > 0; --n) {
        for (i = 0; i < STRIPES; ++i) {
            acc = stripe(acc, copying, dst, src, secret + (i * SECRET_STEP));
            src += KVCL_SUM_STRIPE;
            dst = copying ? dst + KVCL_SUM_STRIPE : NULL;
        }
        acc.a = scramble_half(acc.a, end);
        acc.b = scramble_half(acc.b, end + 32);
    }
    _mm256_storeu_si256((__m256i *)(void *)sums, acc.a);
    _mm256_storeu_si256((__m256i *)(void *)(sums + 4), acc.b);
}

AVX2 static void sum_blocks(uint64_t *sums, const uint8_t *src, size_t n)
{
    blocks(sums, false, NULL, src, n);
}

AVX2 static void copy_blocks(uint64_t *sums, uint8_t *dst, const uint8_t *src, size_t n)
{
    blocks(sums, true, dst, src, n);
}

/* The stripes of a block that is not whole, then the last 64 bytes. */
AVX2 static void sum_rest(uint64_t *sums, const uint8_t *src, size_t n_stripes, const uint8_t *last)
{
    const uint8_t *key = secret + XXH_SECRET_DEFAULT_SIZE - KVCL_SUM_STRIPE - SECRET_LAST;
    lanes_t       acc  = {load(sums), load(sums + 4)};
    size_t        i;

    for (i = 0; i < n_stripes; ++i) {
        acc = stripe(acc, false, NULL, src + (i * KVCL_SUM_STRIPE), secret + (i * SECRET_STEP));
    }
    acc = stripe(acc, false, NULL, last, key);
    _mm256_storeu_si256((__m256i *)(void *)sums, acc.a);
    _mm256_storeu_si256((__m256i *)(void *)(sums + 4), acc.b);
}

static void fast_init(kvcl_sum_fast_t *sum)
{
    static const uint64_t begin[8] = XXH3_INIT_ACC;

    memcpy(sum->acc, begin, sizeof(begin));
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
    size_t n = KVCL_SUM_BLOCK - sum->n_pending;

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
        memcpy(sum->last, sum->pending + KVCL_SUM_BLOCK - KVCL_SUM_STRIPE, KVCL_SUM_STRIPE);
        sum->n_pending = 0;
    }
    n = (len > 0) ? (len - 1) / KVCL_SUM_BLOCK : 0;
    if (n > 0) {
        if (dst != NULL) {
            copy_blocks(sum->acc, dst, src, n);
        } else {
            sum_blocks(sum->acc, src, n);
        }
        n *= KVCL_SUM_BLOCK;
        src += n;
        dst = (dst != NULL) ? dst + n : NULL;
        len -= n;
        memcpy(sum->last, ((dst != NULL) ? dst : src) - KVCL_SUM_STRIPE, KVCL_SUM_STRIPE);
    }
    keep(sum, dst, src, len);
}

static uint64_t fast_end(const kvcl_sum_fast_t *sum)
{
    const size_t  n = sum->n_pending;
    const uint8_t *last;
    uint8_t       both[KVCL_SUM_STRIPE];
    uint64_t      acc[8];

    if (sum->total <= SHORT) {
        return kvcl_checksum(sum->pending, n);
    }
    last = sum->pending + n - KVCL_SUM_STRIPE;
    if (n < KVCL_SUM_STRIPE) {
        memcpy(both, sum->last + n, KVCL_SUM_STRIPE - n);
        memcpy(both + KVCL_SUM_STRIPE - n, sum->pending, n);
        last = both;
    }
    memcpy(acc, sum->acc, sizeof(acc));
    sum_rest(acc, sum->pending, (n - 1) / KVCL_SUM_STRIPE, last);
    return XXH3_mergeAccs(acc, secret + XXH_SECRET_MERGEACCS_START, sum->total * XXH_PRIME64_1);
}

/* One piece of more than SHORT bytes, summed at once: no state is kept for further pieces. */
static uint64_t fast_of(uint8_t *dst, const uint8_t *src, size_t len)
{
    const size_t n      = (len - 1) / KVCL_SUM_BLOCK;
    const size_t whole  = n * KVCL_SUM_BLOCK;
    uint64_t     acc[8] = XXH3_INIT_ACC;

    if (dst != NULL) {
        copy_blocks(acc, dst, src, n);
        memcpy(dst + whole, src + whole, len - whole);
        src = dst;
    } else {
        sum_blocks(acc, src, n);
    }
    sum_rest(acc, src + whole, (len - whole - 1) / KVCL_SUM_STRIPE, src + len - KVCL_SUM_STRIPE);
    return XXH3_mergeAccs(acc, secret + XXH_SECRET_MERGEACCS_START, (uint64_t)len * XXH_PRIME64_1);
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
