/*
 * An index as bytes, and back. Owns the format; the bytes are the caller's. Locks: takes the index's.
 *
 * Format, little-endian: magic "KVCLIDX\0", u32 version, u32 sources, u64 blocks, u64 seed of the engines' hashes; each
 * block: key, u8 depth; each source: its params, state and counters, its texts (u32 length, UINT32_MAX: none, and
 * bytes), its salt, u64 blocks that it holds, each u32 block, u8 tiers, u64 hash; u64 XXH3 of all before it. Lengths
 * are compared with what is left before anything is made of them, so hostile bytes cost memory in proportion to their
 * number.
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

/* ---- writing: into a buffer that counts on when it is full ---- */

typedef struct out {
    kvcl_wr_t wr;
    size_t    len;
} out_t;

static void out_bytes(out_t *out, const void *bytes, size_t len)
{
    kvcl_wr_bytes(&out->wr, bytes, len);
    out->len += len;
}

static void out_u32(out_t *out, uint32_t value)
{
    kvcl_wr_u32(&out->wr, value);
    out->len += 4;
}

static void out_u64(out_t *out, uint64_t value)
{
    kvcl_wr_u64(&out->wr, value);
    out->len += 8;
}

static void out_u8(out_t *out, uint8_t value)
{
    kvcl_wr_u8(&out->wr, value);
    out->len += 1;
}

static void out_text(out_t *out, const char *text)
{
    uint32_t len = (text != NULL) ? (uint32_t)strlen(text) : KVCL_IDX_NO_TEXT;

    out_u32(out, len);
    out_bytes(out, text, (text != NULL) ? len : 0);
}

static void save_source(out_t *out, kvcl_idx_source_t *source)
{
    const kvcl_sched_source_params_t *p = &source->params;
    unsigned                         i;

    out_u32(out, p->instance);
    out_u32(out, p->feed);
    out_u32(out, p->tiers);
    out_u32(out, p->block_tokens);
    out_u32(out, p->dp_rank);
    out_u64(out, p->flags);
    out_u64(out, p->max_blocks);
    out_u64(out, source->next);
    out_u64(out, source->top);
    out_u8(out, source->lossy);
    for (i = 0; i < KVCL_IDX_TIERS; ++i) {
        out_u64(out, source->event_id[i]);
    }
    for (i = 0; i < KVCL_IDX_COUNTERS; ++i) {
        out_u64(out, (&source->info.messages)[i]);
    }
    out_text(out, p->name);
    out_text(out, p->model);
    out_text(out, p->only_model);
    out_text(out, p->only_tenant);
    out_text(out, p->only_backend);
    out_u32(out, (uint32_t)p->salt_len);
    out_bytes(out, p->salt, p->salt_len);
}

/* number[id]: 1, 2, ... for each block that a source holds; the others 0. @return how many; UINT32_MAX: no memory. */
static uint32_t number_blocks(kvcl_sched_index_h index, uint32_t **number_p)
{
    uint32_t *number = calloc(index->block_end, sizeof(*number)), id, i, n = 0;
    uint64_t it, hash;

    *number_p = number;
    if (number == NULL) {
        return UINT32_MAX;
    }
    for (i = 0; i < index->source_cap; ++i) {
        for (it = 0; (index->sources[i] != NULL) && kvcl_idx_held_next(&index->sources[i]->held, &it, &hash, &id);) {
            number[id] = 1;
        }
    }
    for (id = 1; id < index->block_end; ++id) {
        number[id] = (number[id] != 0) ? ++n : 0;
    }
    return n;
}

static void save_held(kvcl_sched_index_h index, out_t *out, const kvcl_idx_source_t *source, const uint32_t *number)
{
    uint64_t it = 0, hash;
    uint32_t id;

    out_u64(out, source->held.n);
    while (kvcl_idx_held_next(&source->held, &it, &hash, &id)) {
        out_u32(out, number[id] - 1);
        out_u8(out, (uint8_t)(kvcl_idx_set_get(kvcl_idx_block(index, id), source->slot) & source->params.tiers));
        out_u64(out, hash);
    }
}

static void save_all(kvcl_sched_index_h index, out_t *out, const uint32_t *number, uint32_t n)
{
    const kvcl_idx_block_t *block;
    uint32_t               id, i;

    out_bytes(out, KVCL_IDX_MAGIC, 8);
    out_u32(out, KVCL_IDX_VERSION);
    out_u32(out, index->n_sources);
    out_u64(out, n);
    out_u64(out, index->hash_seed);
    for (id = 1; id < index->block_end; ++id) {
        if (number[id] != 0) {
            block = kvcl_idx_block(index, id);
            out_bytes(out, block->key.bytes, sizeof(block->key.bytes));
            out_u8(out, (uint8_t)kvcl_idx_depth(block));
        }
    }
    for (i = 0; i < index->source_cap; ++i) {
        if (index->sources[i] != NULL) {
            save_source(out, index->sources[i]);
            save_held(index, out, index->sources[i], number);
        }
    }
    if (kvcl_wr_ok(&out->wr)) {
        out_u64(out, kvcl_checksum(out->wr.start, kvcl_wr_len(&out->wr)));
    } else {
        out->len += KVCL_IDX_SUM_BYTES;
    }
}

kvcl_status_t kvcl_sched_index_save(kvcl_sched_index_h index, void *buf, size_t cap, size_t *len_p)
{
    kvcl_status_t status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_save");
    uint32_t      *number, n;
    out_t         out = {.len = 0};

    if (status != KVCL_OK) {
        return status;
    }
    if ((len_p == NULL) || ((buf == NULL) && (cap > 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_save: buf or len_p is NULL");
    }
    kvcl_wr_init(&out.wr, buf, cap);
    (void)pthread_mutex_lock(&index->lock);
    n = number_blocks(index, &number);
    if (number != NULL) {
        save_all(index, &out, number, n);
    }
    (void)pthread_mutex_unlock(&index->lock);
    if (number == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_sched_index_save: no memory");
    }
    free(number);
    *len_p = out.len;
    return ((buf == NULL) || kvcl_wr_ok(&out.wr))
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_NO_SPACE, "an index of %zu bytes does not fit into %zu", out.len, cap);
}
