/*
 * An index from bytes (the format: idx_save.c). Owns nothing. Locks: takes the index's.
 */
#include "config.h"

#include "sched/index/idx_save.h"
#include "sched/index/idx_set.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/wirebuf.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

static kvcl_status_t bad(const char *what)
{
    return kvcl_fail(KVCL_ERR_PROTOCOL, "not a saved index, or one that was changed or cut: %s", what);
}

/* A NUL-terminated copy that the caller frees; NULL without an error: none. */
static char *text_of(kvcl_rd_t *rd)
{
    uint32_t   len = kvcl_rd_u32(rd);
    const char *from;
    char       *text;

    if (len == KVCL_IDX_NO_TEXT) {
        return NULL;
    }
    from = kvcl_rd_bytes(rd, (len > KVCL_IDX_TEXT_MAX) ? SIZE_MAX : len);
    text = (from != NULL) ? malloc((size_t)len + 1) : NULL;
    if ((text == NULL) || ((len > 0) && (memchr(from, 0, len) != NULL))) {
        free(text);
        rd->failed = 1;
        return NULL;
    }
    memcpy(text, from, len);
    text[len] = '\0';
    return text;
}

/* What of a source is not in its params. */
typedef struct loaded {
    uint64_t next, top, event_id[KVCL_IDX_TIERS], counters[KVCL_IDX_COUNTERS];
    bool     lossy;
} loaded_t;

static void params_of(kvcl_rd_t *rd, kvcl_sched_source_params_t *p, loaded_t *more)
{
    unsigned i;

    *p              = (kvcl_sched_source_params_t)KVCL_SCHED_SOURCE_PARAMS_INIT;
    p->instance     = kvcl_rd_u32(rd);
    p->feed         = kvcl_rd_u32(rd);
    p->tiers        = kvcl_rd_u32(rd);
    p->block_tokens = kvcl_rd_u32(rd);
    p->dp_rank      = kvcl_rd_u32(rd);
    p->flags        = kvcl_rd_u64(rd);
    p->max_blocks   = kvcl_rd_u64(rd);
    more->next      = kvcl_rd_u64(rd);
    more->top       = kvcl_rd_u64(rd);
    more->lossy     = kvcl_rd_u8(rd) != 0;
    for (i = 0; i < KVCL_IDX_TIERS; ++i) {
        more->event_id[i] = kvcl_rd_u64(rd);
    }
    for (i = 0; i < KVCL_IDX_COUNTERS; ++i) {
        more->counters[i] = kvcl_rd_u64(rd);
    }
    p->name         = text_of(rd);
    p->model        = text_of(rd);
    p->only_model   = text_of(rd);
    p->only_tenant  = text_of(rd);
    p->only_backend = text_of(rd);
    p->salt_len     = kvcl_rd_u32(rd);
    p->salt         = kvcl_rd_bytes(rd, (p->salt_len > KVCL_IDX_TEXT_MAX) ? SIZE_MAX : p->salt_len);
}

static kvcl_status_t load_held(kvcl_sched_index_h index, kvcl_rd_t *rd, kvcl_idx_source_t *source,
                               const uint8_t *blocks, uint64_t n_blocks)
{
    uint64_t      n = kvcl_rd_u64(rd), i, hash;
    uint32_t      number, tiers;
    const uint8_t *block;
    kvcl_key_t    key;
    kvcl_status_t status = KVCL_OK;

    if (n > kvcl_rd_left(rd) / KVCL_IDX_HOLDER_BYTES) {
        return bad("a source's blocks");
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        number = kvcl_rd_u32(rd);
        tiers  = kvcl_rd_u8(rd);
        hash   = kvcl_rd_u64(rd);
        if ((number >= n_blocks) || (tiers == 0) || ((tiers & ~source->params.tiers) != 0)) {
            return bad("a holder");
        }
        block = blocks + (size_t)number * KVCL_IDX_BLOCK_BYTES;
        memcpy(key.bytes, block, sizeof(key.bytes));
        status = kvcl_idx_hold(index, source, &key, block[32] % KVCL_IDX_DEPTHS, hash, tiers);
        if (status != KVCL_OK) {
            return kvcl_fail(status, "the saved index does not fit: %llu blocks, max_blocks of the index or of source "
                             "\"%s\"", (unsigned long long)n_blocks, source->params.name);
        }
    }
    return KVCL_OK;
}

static kvcl_status_t load_source(kvcl_sched_index_h index, kvcl_rd_t *rd, const uint8_t *blocks, uint64_t n_blocks)
{
    kvcl_sched_source_params_t p;
    kvcl_idx_source_t          *source;
    loaded_t                   more;
    uint32_t                   at;
    kvcl_status_t              status;

    params_of(rd, &p, &more);
    if (!kvcl_rd_ok(rd) || (p.name == NULL) || (p.name[0] == '\0') || (p.feed > KVCL_SCHED_FEED_MOONCAKE) ||
        (p.tiers == 0) || (p.tiers > KVCL_IDX_REAL) || (more.next > more.top)) {
        status = bad("a source");
    } else {
        status = kvcl_idx_source_add(index, &p, &at);
    }
    if (status == KVCL_OK) {
        source = index->sources[at];
        status = load_held(index, rd, source, blocks, n_blocks);
        memcpy(&source->info.messages, more.counters, sizeof(more.counters));
        memcpy(source->event_id, more.event_id, sizeof(more.event_id));
        source->next  = more.next;
        source->top   = more.top;
        source->lossy = more.lossy;
    }
    free((void *)(uintptr_t)p.name);
    free((void *)(uintptr_t)p.model);
    free((void *)(uintptr_t)p.only_model);
    free((void *)(uintptr_t)p.only_tenant);
    free((void *)(uintptr_t)p.only_backend);
    return status;
}

static kvcl_status_t load_all(kvcl_sched_index_h index, const uint8_t *buf, size_t len)
{
    kvcl_rd_t     rd;
    const uint8_t *sum = (len >= KVCL_IDX_SUM_BYTES) ? buf + len - KVCL_IDX_SUM_BYTES : NULL, *blocks;
    uint32_t      version, n_sources, i;
    uint64_t      n_blocks, seed, want = 0;
    kvcl_status_t status = KVCL_OK;

    kvcl_rd_init(&rd, buf, len);
    if ((len < KVCL_IDX_HEAD_BYTES + KVCL_IDX_SUM_BYTES) || (memcmp(kvcl_rd_bytes(&rd, 8), KVCL_IDX_MAGIC, 8) != 0)) {
        return bad("its head");
    }
    version = kvcl_rd_u32(&rd);
    if (version != KVCL_IDX_VERSION) {
        return kvcl_fail(KVCL_ERR_VERSION, "a saved index of version %u; this library reads version %d", version,
                         KVCL_IDX_VERSION);
    }
    for (i = 0; i < KVCL_IDX_SUM_BYTES; ++i) {
        want |= (uint64_t)sum[i] << (8 * i);
    }
    if (kvcl_checksum(buf, len - KVCL_IDX_SUM_BYTES) != want) {
        return bad("its checksum differs");
    }
    rd.end    = sum;
    n_sources = kvcl_rd_u32(&rd);
    n_blocks  = kvcl_rd_u64(&rd);
    seed      = kvcl_rd_u64(&rd);
    if (n_blocks > kvcl_rd_left(&rd) / KVCL_IDX_BLOCK_BYTES) {
        return bad("its blocks");
    }
    blocks      = kvcl_rd_bytes(&rd, (size_t)n_blocks * KVCL_IDX_BLOCK_BYTES);
    index->hash_seed = seed;
    for (i = 0; (status == KVCL_OK) && (i < n_sources); ++i) {
        status = load_source(index, &rd, blocks, n_blocks);
    }
    return ((status == KVCL_OK) && !kvcl_rd_done(&rd)) ? bad("there are bytes behind its end") : status;
}

kvcl_status_t kvcl_sched_index_load(kvcl_sched_index_h index, const void *buf, size_t len)
{
    kvcl_status_t status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_load");
    uint32_t      i;

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) && (len > 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_load: buf is NULL");
    }
    (void)pthread_mutex_lock(&index->lock);
    if (index->n_sources != 0) {
        status = kvcl_fail(KVCL_ERR_EXISTS, "the index has %u sources: load into an empty one", index->n_sources);
    } else {
        status = load_all(index, buf, len);
        for (i = 0; (status != KVCL_OK) && (i < index->source_cap); ++i) {
            if (index->sources[i] != NULL) {
                kvcl_idx_source_forget(index, i);
            }
        }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}
