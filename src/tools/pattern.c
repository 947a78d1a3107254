/*
 * Owns the generator: four 64-bit lanes, each a counter with its own odd step, folded once. It runs at memory speed; a
 * real random generator would dominate the measurement.
 */
#include "config.h"
#include "tools/pattern.h"

#include <string.h>

#define LANES 4u
#define GROUP (LANES * sizeof(uint64_t))

typedef struct lanes {
    uint64_t at[LANES];
} lanes_t;

static const uint64_t step[LANES] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xbf58476d1ce4e5b9),
                                     UINT64_C(0x94d049bb133111eb), UINT64_C(0xd6e8feb86659fd93)};

/* Little-endian on every machine; a plain load or store where that is the native order. */
static uint64_t little(uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(value);
#else
    return value;
#endif
}

static lanes_t lanes_of(const uint8_t seed[32])
{
    lanes_t lanes;
    size_t  i;

    memcpy(lanes.at, seed, sizeof(lanes.at));
    for (i = 0; i < LANES; ++i) {
        lanes.at[i] = little(lanes.at[i]);
    }
    return lanes;
}

static inline void next(lanes_t *lanes, uint64_t out[LANES])
{
    size_t i;

    for (i = 0; i < LANES; ++i) {
        lanes->at[i] += step[i];
        out[i] = little(lanes->at[i] ^ (lanes->at[i] >> 29));
    }
}

void pattern_fill(const uint8_t seed[32], void *buf, size_t len)
{
    uint8_t  *to   = (uint8_t *)buf;
    lanes_t  lanes = lanes_of(seed);
    uint64_t group[LANES];

    for (; len >= GROUP; len -= GROUP, to += GROUP) {
        next(&lanes, group);
        memcpy(to, group, GROUP);
    }
    if (len != 0) {
        next(&lanes, group);
        memcpy(to, group, len);
    }
}

static size_t first_difference(const void *a, const void *b, size_t len)
{
    const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
    size_t        i;

    for (i = 0; (i < len) && (x[i] == y[i]); ++i) {
    }
    return i;
}

size_t pattern_check(const uint8_t seed[32], const void *buf, size_t len)
{
    const uint8_t *from = (const uint8_t *)buf;
    lanes_t       lanes = lanes_of(seed);
    uint64_t      want[LANES], have[LANES], diff;
    size_t        at, part, i;

    for (at = 0; at < len; at += GROUP) {
        next(&lanes, want);
        part = (len - at < GROUP) ? len - at : GROUP;
        diff = 0;
        if (part == GROUP) {
            memcpy(have, from + at, GROUP);
            for (i = 0; i < LANES; ++i) {
                diff |= have[i] ^ want[i];
            }
        } else {
            diff = (memcmp(from + at, want, part) != 0);
        }
        if (diff != 0) {
            return at + first_difference(from + at, want, part);
        }
    }
    return PATTERN_GOOD;
}

void pattern_seed(uint64_t a, uint64_t b, uint8_t seed[32])
{
    uint64_t words[4], x = a ^ (b * UINT64_C(0xd1342543de82ef95));
    size_t   i;

    /* splitmix64 */
    for (i = 0; i < 4; ++i) {
        x += step[0];
        words[i] = (x ^ (x >> 30)) * step[1];
        words[i] = (words[i] ^ (words[i] >> 27)) * step[2];
        words[i] = little(words[i] ^ (words[i] >> 31));
        x ^= (i == 0) ? b : 0;
    }
    memcpy(seed, words, sizeof(words));
}
