/*
 * The two ends of a get of parts (part.h): their checks, the buffer between them, and positions in the selected bytes.
 *
 * Owns nothing but what kvcl_part_make() allocates, until kvcl_part_free(). No lock.
 */
#include "config.h"
#include "base/error.h"
#include "store/get/part.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { RING_BYTES = 32 << 20 };

void kvcl_part_free(kvcl_part_t *part)
{
    if (part == NULL) {
        return;
    }
    free((void *)(uintptr_t)part->local.blocks);
    free(part->recs);
    free((void *)part->base);
    kvcl_tenant_release(part->tenant);
    free(part);
}

kvcl_status_t kvcl_part_runs(const kvcl_part_t *part, bool one_layer, kvcl_runs_t *runs)
{
    kvcl_sel_t   to = part->local, from = part->wanted;
    kvcl_range_t to_layers = kvcl_sel_layers(&part->cache->shape, &to), from_layers;
    kvcl_side_t  dst, src;

    from_layers = kvcl_sel_layers(&part->stored, &from);
    if (one_layer) {
        to.layers   = (kvcl_range_t){to_layers.first + part->layer, to_layers.first + part->layer + 1};
        from.layers = (kvcl_range_t){from_layers.first + part->layer, from_layers.first + part->layer + 1};
    }
    dst = kvcl_cache_side(part->cache, &to);
    src = (kvcl_side_t){&part->stored, &part->base, from, NULL};
    return kvcl_runs_init(runs, &dst, &src, KVCL_STREAM_CANONICAL);
}

uint64_t kvcl_part_position(const kvcl_part_t *part, size_t i)
{
    const kvcl_span_t span  = kvcl_sel_tokens(&part->stored, &part->wanted);
    const uint64_t    token = (uint64_t)i * part->stored.tokens;
    const uint64_t    each  = kvcl_sel_block_bytes(&part->stored, &part->wanted) / part->stored.tokens;

    return (token <= span.first) ? 0 : (((token < span.end) ? token : span.end) - span.first) * each;
}

bool kvcl_part_next(kvcl_part_t *part, uint64_t *from_p, uint64_t *to_p)
{
    do {
        while ((part->at < part->end) && (part->each[part->at] != KVCL_OK)) {
            ++part->at;
        }
        *from_p = kvcl_part_position(part, part->at);
        while ((part->at < part->end) && (part->each[part->at] == KVCL_OK)) {
            ++part->at;
        }
        *to_p = kvcl_part_position(part, part->at);
    } while ((*from_p == *to_p) && (part->at < part->end)); /* blocks outside the range of tokens */
    return *from_p < *to_p;
}

/* A dense layout whose block is its canonical bytes. */
static kvcl_status_t stored_shape(const kvcl_layout_t *stored, kvcl_cache_h cache, size_t blocks, kvcl_shape_t *shape)
{
    const kvcl_shape_t *of = &cache->shape;
    kvcl_layout_t      l   = KVCL_LAYOUT_INIT;
    kvcl_status_t      status;
    kvcl_shape_t       given;

    if (stored != NULL) {
        status = kvcl_shape_init(&given, stored);
        if (status != KVCL_OK) {
            return kvcl_fail(status, "%s: stored: %s", KVCL_PART_CALL, kvcl_last_error());
        }
        of = &given;
    }
    if (of->block_bytes > UINT32_MAX) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "%s: a stored block has %llu bytes, blocks of a store at most %u",
                         KVCL_PART_CALL, (unsigned long long)of->block_bytes, UINT32_MAX);
    }
    l.layers       = of->layers;
    l.kv           = of->kv;
    l.blocks       = blocks;
    l.tokens       = of->tokens;
    l.heads        = of->heads;
    l.head_dim     = of->head_dim;
    l.elem_bytes   = of->elem_bytes;
    l.head_stride  = (uint64_t)of->head_dim * of->elem_bytes;
    l.token_stride = of->heads * l.head_stride;
    l.kv_stride    = of->tokens * l.token_stride;
    l.layer_stride = of->kv * l.kv_stride;
    l.block_stride = of->block_bytes;
    return kvcl_shape_init(shape, &l);
}

/* Do the two selections fit each other? */
static kvcl_status_t check_sides(kvcl_part_t *part)
{
    const kvcl_range_t to   = kvcl_sel_layers(&part->cache->shape, &part->local);
    kvcl_status_t      status;
    kvcl_range_t       from;
    kvcl_runs_t        runs;

    status = kvcl_sel_check(&part->stored, &part->wanted);
    if (status != KVCL_OK) {
        return kvcl_fail(status, "%s: part: %s", KVCL_PART_CALL, kvcl_last_error());
    }
    status = kvcl_part_runs(part, false, &runs);
    if (status != KVCL_OK) {
        return kvcl_fail(status, "%s: cache \"%s\" (first) and the stored blocks: %s", KVCL_PART_CALL,
                         part->cache->name, kvcl_last_error());
    }
    from           = kvcl_sel_layers(&part->stored, &part->wanted);
    part->n_layers = to.end - to.first;
    if (part->layerwise && (from.end - from.first != part->n_layers)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "%s: KVCL_LAYERWISE: cache \"%s\" has %u layers, the stored blocks %u; "
                         "leave the flag out for opaque blocks", KVCL_PART_CALL, part->cache->name,
                         part->n_layers, from.end - from.first);
    }
    return KVCL_OK;
}

static kvcl_status_t make_buffer(kvcl_part_t *part)
{
    const uint64_t bytes  = part->stored.block_bytes;
    kvcl_layout_t  opaque = kvcl_layout_opaque(part->ring, (uint32_t)bytes);

    part->base = (uintptr_t)malloc(part->ring * bytes);
    if (part->base == 0) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a buffer of %zu blocks of %llu bytes%s", KVCL_PART_CALL,
                         part->ring, (unsigned long long)bytes,
                         part->layerwise ? ": get fewer at a time with KVCL_LAYERWISE" : "");
    }
    part->buffer = (struct kvcl_cache){.ctx = part->store->ctx, .name = "plain memory", .bases = &part->base};
    return kvcl_shape_init(&part->buffer.shape, &opaque);
}

static kvcl_status_t make_lists(kvcl_part_t *part, const kvcl_key_t *keys)
{
    const size_t each = sizeof(*part->recs) + sizeof(*part->ids) + sizeof(*part->each);
    size_t       i;

    part->recs = calloc(part->n, each);
    if (part->recs == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu blocks", KVCL_PART_CALL, part->n);
    }
    part->ids  = (uint32_t *)(void *)(part->recs + part->n);
    part->each = (kvcl_status_t *)(void *)(part->ids + part->n);
    for (i = 0; i < part->n; ++i) {
        part->recs[i].key = keys[i];
        part->ids[i]      = (uint32_t)(i % part->ring);
        part->each[i]     = KVCL_ERR_INTERNAL; /* until a get of blocks sets it */
    }
    part->wanted.blocks   = part->ids;
    part->wanted.n_blocks = part->n;
    return KVCL_OK;
}

kvcl_status_t kvcl_part_make(kvcl_store_h store, const kvcl_part_args_t *args, kvcl_part_t **part_p)
{
    kvcl_part_t   *part = calloc(1, sizeof(*part));
    kvcl_shape_t  one;
    kvcl_status_t status;

    *part_p = part;
    if (part == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a request", KVCL_PART_CALL);
    }
    part->store     = store;
    part->cache     = args->cache;
    part->n         = args->n;
    part->layerwise = args->layerwise;
    part->wanted    = (args->wanted != NULL) ? *args->wanted : (kvcl_sel_t){0};
    status          = stored_shape(args->stored, args->cache, 1, &one);
    if (status != KVCL_OK) {
        return status;
    }
    part->ring = (size_t)(RING_BYTES / one.block_bytes);
    part->ring = (part->ring == 0) ? 1 : part->ring;
    part->ring = (part->layerwise || (part->n < part->ring)) ? part->n : part->ring;
    if (((status = stored_shape(args->stored, args->cache, part->ring, &part->stored)) != KVCL_OK) ||
        ((status = kvcl_own_sel(&part->local, args->local)) != KVCL_OK) ||
        ((status = make_lists(part, args->keys)) != KVCL_OK) || ((status = check_sides(part)) != KVCL_OK)) {
        return status;
    }
    return make_buffer(part);
}
