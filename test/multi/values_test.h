/*
 * Shared by the tests of values: bytes that follow from a number, memory cut at random.
 */
#ifndef KVCL_TEST_VALUES_TEST_H
#define KVCL_TEST_VALUES_TEST_H

#include "world.h"

enum { B = 65536, HEAD = 96, MIB = 1 << 20 };

/* ---- bytes ---- */

static inline uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline void make_bytes(uint64_t what, uint8_t *buf, size_t bytes)
{
    uint64_t word;
    size_t   i;

    for (i = 0; i < bytes; i += sizeof(word)) {
        word = next(&what);
        memcpy(buf + i, &word, (bytes - i < sizeof(word)) ? bytes - i : sizeof(word));
    }
}

static inline bool same_bytes(uint64_t what, const uint8_t *buf, size_t bytes)
{
    uint64_t word;
    size_t   i;

    for (i = 0; i < bytes; i += sizeof(word)) {
        word = next(&what);
        if (memcmp(buf + i, &word, (bytes - i < sizeof(word)) ? bytes - i : sizeof(word)) != 0) {
            return false;
        }
    }
    return true;
}

static inline kvcl_key_t key_of(const world_t *w, const char *what, int rank, unsigned i)
{
    kvcl_key_t key;
    char       name[96];
    int        len = snprintf(name, sizeof(name), "%s/%llu/%d/%u", what, (unsigned long long)w->seed, rank, i);

    kvcl_key_from_string(name, (size_t)len, &key);
    return key;
}

/* ---- common steps of the tests ---- */

static inline kvcl_store_h open_store(world_t *w, uint64_t pool, unsigned replicas)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 1 << 16;
    params.dram_bytes  = pool * B;
    params.block_bytes = B;
    params.replicas    = replicas;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    return store;
}

/* Memory cut at random into extents of one buffer, with gaps and out of order. */
typedef struct memory {
    uint8_t       *buf, *flat;
    kvcl_extent_t extents[5];
    kvcl_value_t  value;
    size_t        bytes;
} memory_t;

static inline void memory_make(world_t *w, memory_t *m, size_t bytes, unsigned pieces)
{
    size_t   left = bytes, at = next(&w->rnd) % 64, len;
    unsigned i;

    m->bytes = bytes;
    m->buf   = malloc(bytes + 4096);
    m->flat  = malloc(bytes + 1);
    for (i = 0; i < pieces; ++i) {
        len           = (i + 1 == pieces) ? left : (size_t)(next(&w->rnd) % (left + 1));
        m->extents[i] = (kvcl_extent_t){m->buf + at, len};
        left -= len;
        at   += len + (next(&w->rnd) % 512);
    }
    m->value = (kvcl_value_t){m->extents, pieces};
}

static inline void memory_set(memory_t *m, uint64_t what)
{
    size_t   at = 0;
    unsigned i;

    make_bytes(what, m->flat, m->bytes);
    for (i = 0; i < m->value.n_extents; ++i) {
        if (m->extents[i].bytes != 0) {
            memcpy(m->extents[i].addr, m->flat + at, m->extents[i].bytes);
        }
        at += m->extents[i].bytes;
    }
}

static inline void memory_flatten(memory_t *m)
{
    size_t   at = 0;
    unsigned i;

    for (i = 0; i < m->value.n_extents; ++i) {
        if (m->extents[i].bytes != 0) {
            memcpy(m->flat + at, m->extents[i].addr, m->extents[i].bytes);
        }
        at += m->extents[i].bytes;
    }
}

static inline bool memory_is(memory_t *m, uint64_t what)
{
    memory_flatten(m);
    return same_bytes(what, m->flat, m->bytes);
}

static inline void memory_free(memory_t *m)
{
    free(m->buf);
    free(m->flat);
}

static inline uint64_t what_of(const kvcl_key_t *key, uint64_t version)
{
    uint64_t what;

    memcpy(&what, key->bytes + 16, sizeof(what));
    return what + (version * 0x10001u);
}

#endif
