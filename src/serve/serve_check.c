/*
 * The check of a PULL: every field is hostile. No state; engine lock.
 */
#include "config.h"
#include "cache/cache.h"
#include "kv/flat.h"
#include "weave/user_memory.h"
#include "xfer/offer.h"
#include "serve/serve.h"
#include "weave/pieces.h"

#include <stdlib.h>

static kvcl_status_t take_ids(kvcl_serve_t *serve, const kvcl_msg_pull_t *in, const void *data, size_t len)
{
    bool   gens = (in->msg.flags & KVCL_PULL_GENS) != 0;
    size_t each = gens ? 8 : 4;

    if ((in->n_blocks == 0) || (in->n_blocks > len / each) || (len != in->n_blocks * each)) {
        return KVCL_ERR_PROTOCOL;
    }
    serve->ids = malloc(len);
    if (serve->ids == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    kvcl_copy_bytes(serve->ids, data, len);
    serve->n        = (size_t)in->n_blocks;
    serve->has_gens = gens;
    return KVCL_OK;
}

static kvcl_status_t from_cache(kvcl_serve_t *serve, const kvcl_msg_pull_t *in, const void *data, size_t len)
{
    kvcl_cache_h  cache = kvcl_cache_by_id(serve->ctx, in->target);
    kvcl_status_t status;
    kvcl_side_t   side;
    kvcl_sel_t    sel;

    if (cache == NULL) {
        return KVCL_ERR_NOT_REGISTERED;
    }
    status = take_ids(serve, in, data, len);
    if (status != KVCL_OK) {
        return status;
    }
    if (!kvcl_stream_order_valid(in->order)) {
        return KVCL_ERR_PROTOCOL;
    }
    sel    = (kvcl_sel_t){.blocks = serve->ids, .n_blocks = serve->n, .layers = {in->layers[0], in->layers[1]},
                          .heads = {in->heads[0], in->heads[1]}, .tokens = {in->tokens[0], in->tokens[1]}};
    side   = kvcl_cache_side(cache, &sel);
    status = kvcl_side_check(&side);
    if (status != KVCL_OK) {
        return KVCL_ERR_OUT_OF_RANGE;
    }
    if ((in->unit != 0) && ((kvcl_sel_unit(&cache->shape, &sel) % in->unit) != 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    kvcl_stream_init_units(&serve->stream, &side, in->order, in->unit);
    if (serve->stream.total_bytes != in->len) {
        return KVCL_ERR_TRUNCATED;
    }
    serve->cache = cache;
    return KVCL_OK;
}

static kvcl_status_t from_region(kvcl_serve_t *serve, const kvcl_msg_pull_t *in)
{
    kvcl_region_t *region;
    kvcl_status_t status = kvcl_region_check(serve->ctx, in->target, in->key, KVCL_READ, in->offset, in->len, &region);

    if (status == KVCL_OK) {
        kvcl_stream_flat(&serve->stream, (const char *)region->addr + in->offset, in->len);
        serve->stream.copier = region->copier;
        serve->region = region;
    }
    return status;
}

static kvcl_status_t from_pieces(kvcl_serve_t *serve, const kvcl_msg_pull_t *in, const void *data, size_t len)
{
    kvcl_region_t *region;
    kvcl_status_t status = kvcl_region_check(serve->ctx, in->target, in->key, KVCL_READ, 0, 0, &region);

    if ((status == KVCL_OK) && (in->n_blocks * sizeof(kvcl_wire_piece_t) != len)) {
        status = KVCL_ERR_PROTOCOL;
    }
    if (status == KVCL_OK) {
        status = kvcl_pieces_decode(data, len, in->n_blocks, region->len, in->len, &serve->pieces);
    }
    if (status == KVCL_OK) {
        kvcl_stream_pieces(&serve->stream, serve->pieces, (uintptr_t)region->addr);
        serve->stream.copier = region->copier;
        serve->region = region;
    }
    return status;
}

static kvcl_status_t from_offer(kvcl_serve_t *serve, const kvcl_msg_pull_t *in)
{
    kvcl_offer_t *offer = kvcl_offer_find(serve->ctx, in->key, serve->peer);

    if (offer == NULL) {
        return KVCL_ERR_CANCELED;
    }
    if ((in->offset > offer->stream.total_bytes) || (in->len > offer->stream.total_bytes - in->offset)) {
        return KVCL_ERR_TRUNCATED;
    }
    if ((offer->plain != NULL) && !kvcl_is_mapped(offer->plain + in->offset, (size_t)in->len)) {
        return KVCL_ERR_ACCESS;
    }
    serve->stream = offer->stream;
    if (in->unit != 0) {
        if ((offer->side.shape == NULL) || ((kvcl_sel_unit(offer->side.shape, &offer->side.sel) % in->unit) != 0)) {
            return KVCL_ERR_PROTOCOL;
        }
        kvcl_stream_init_units(&serve->stream, &offer->side, KVCL_STREAM_CANONICAL, in->unit);
    }
    kvcl_stream_seek(&serve->stream, in->offset);
    serve->offer = offer;
    return KVCL_OK;
}

kvcl_status_t kvcl_serve_check(kvcl_serve_t *serve, const kvcl_msg_pull_t *in, const void *data, size_t len)
{
    switch (in->from) {
    case KVCL_FROM_CACHE:
        return from_cache(serve, in, data, len);
    case KVCL_FROM_REGION:
        return from_region(serve, in);
    case KVCL_FROM_OFFER:
        return from_offer(serve, in);
    case KVCL_FROM_PIECES:
        return from_pieces(serve, in, data, len);
    default:
        return KVCL_ERR_PROTOCOL;
    }
}
