/*
 * kvcl_store_get_part: parts of blocks, and blocks layer by layer.
 *
 * A checksum covers a whole block, so blocks are fetched whole, by a get of blocks (gets.h) into a buffer, and verified
 * there. Then copy jobs (xfer/copy.h) write the selected bytes to their places. The buffer is a ring: block i of the
 * call is fetched into its block i % ring. In each round a part of the blocks is fetched and copied, in their order. A
 * layer-wise get has one round: all blocks are in the buffer, and each layer is copied by jobs of its own.
 *
 * Wrong bytes are never returned: no byte leaves the buffer before its whole block was verified, and nobody else writes
 * to the buffer. A layer has arrived when its bytes of all blocks are at their places; where a block failed, none
 * arrives.
 *
 * Engine lock, except in the posting call and on_got(). At any time either a get of blocks or a copy job is in flight.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/get/gets.h"
#include "store/get/part.h"
#include "store/words.h"
#include "xfer/params.h"

#include <stdio.h>
#include <stdlib.h>

static void release(kvcl_req_t *req)
{
    kvcl_part_free(kvcl_container_of(req, kvcl_part_t, req));
}

/* ---- the end ---- */

/* The first error; bytes: of the blocks that arrived. Writes the caller's statuses. */
static kvcl_status_t write_statuses(const kvcl_part_t *part, uint64_t *bytes_p)
{
    kvcl_status_t first = KVCL_OK, one;
    size_t        i;

    *bytes_p = 0;
    for (i = 0; i < part->n; ++i) {
        one      = ((part->stopping != KVCL_OK) && ((i >= part->first) || part->layerwise)) ? part->stopping
                                                                                             : part->each[i];
        first    = (first == KVCL_OK) ? one : first;
        *bytes_p += (one == KVCL_OK) ? kvcl_part_position(part, i + 1) - kvcl_part_position(part, i) : 0;
        if (part->statuses[0] != NULL) {
            part->statuses[0][i] = one;
        }
        if (part->statuses[1] != NULL) {
            part->statuses[1][i] = one;
        }
    }
    return first;
}

static void finish(kvcl_part_t *part)
{
    kvcl_status_t final = write_statuses(part, &part->req.timing.bytes);

    --part->store->ops;
    kvcl_req_complete(&part->req, final);
}

/* The first that has failed; n: none until now. */
static size_t first_failed(const kvcl_part_t *part)
{
    const size_t known = (part->got != NULL) ? part->first : part->end;
    size_t       i;

    for (i = 0; (i < known) && (part->each[i] == KVCL_OK); ++i) {
    }
    return (i < known) ? i : part->n;
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_part_t *part = kvcl_container_of((kvcl_req_t *)req, kvcl_part_t, req);
    const size_t      i     = first_failed(part);

    if ((part->stopping != KVCL_OK) || (i == part->n)) {
        snprintf(buf, cap, "%s of %zu blocks into \"%s\"", KVCL_PART_CALL, part->n, part->cache->name);
    } else {
        snprintf(buf, cap, "%s of %zu blocks into \"%s\", the first that failed is number %zu, key %016llx...",
                 KVCL_PART_CALL, part->n, part->cache->name, i, kvcl_key_prefix(&part->recs[i].key));
    }
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const kvcl_part_t *part = kvcl_container_of((kvcl_req_t *)req, kvcl_part_t, req);

    return ((status == KVCL_ERR_NOT_FOUND) &&
            kvcl_store_explain_size(part->store, part->stored.block_bytes, buf, cap)) ||
           kvcl_store_explain(status, buf, cap);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_part_t *part = kvcl_container_of(req, kvcl_part_t, req);

    if (part->stopping != KVCL_OK) {
        return;
    }
    part->stopping = status;
    if (part->copying) {
        kvcl_copy_stop(&part->copy, status);
    } else if ((part->got != NULL) && !kvcl_req_is_done(part->got)) {
        part->got->cls->stop(part->got, status); /* on_got() ends it */
    }
}

static kvcl_status_t layer_state(const kvcl_req_t *req, uint32_t layer)
{
    kvcl_part_t        *part    = kvcl_container_of((kvcl_req_t *)req, kvcl_part_t, req);
    const kvcl_range_t selected = kvcl_sel_layers(&part->cache->shape, &part->local);

    if ((layer < selected.first) || (layer >= selected.end)) {
        return KVCL_ERR_OUT_OF_RANGE;
    }
    if (layer - selected.first < atomic_load_explicit(&part->landed, memory_order_acquire)) {
        return KVCL_OK;
    }
    return (kvcl_status_t)atomic_load_explicit(&part->req.state, memory_order_acquire);
}

static const kvcl_req_class_t part_class = {.name = "store-get-part", .stop = stop, .release = release,
                                            .describe = describe, .explain = explain, .layer_state = layer_state};

/* ---- the rounds ---- */

static void copy_next(kvcl_part_t *part);

static void on_copied(kvcl_copy_t *copy, kvcl_status_t status)
{
    kvcl_part_t *part = kvcl_container_of(copy, kvcl_part_t, copy);

    part->copying = false;
    if ((status != KVCL_OK) && (part->stopping == KVCL_OK)) {
        kvcl_req_keep_error(&part->req); /* a device's sentence */
        part->stopping = status;
    }
    if (part->stopping != KVCL_OK) {
        finish(part);
    } else {
        copy_next(part);
    }
}

/* No lock. */
static void on_got(void *arg, kvcl_status_t status)
{
    kvcl_part_t    *part = arg;
    kvcl_context_h ctx   = part->store->ctx;

    (void)status; /* each block has its own */
    kvcl_lock(ctx);
    part->got = NULL;
    part->at  = part->first;
    if (part->stopping != KVCL_OK) {
        finish(part);
    } else {
        copy_next(part);
    }
    kvcl_unlock(ctx);
}

/* Fetch the next blocks of the call, as many as the ring has, or end. */
static void fetch_next(kvcl_part_t *part)
{
    const size_t  left   = part->n - part->first;
    kvcl_status_t status = KVCL_OK;

    if (left != 0) {
        part->end = part->first + ((left < part->ring) ? left : part->ring);
        status    = kvcl_get_recs(part->store, &part->recs[part->first], part->end - part->first, &part->buffer,
                                  &part->ids[part->first], &part->each[part->first], NULL,
                                  kvcl_deadline_left(part->deadline_ns) + 1, true, part->tenant, on_got, part,
                                  &part->got);
    }
    if (status != KVCL_OK) {
        part->got      = NULL;
        part->stopping = status;
        kvcl_req_keep_error(&part->req);
    }
    if ((left == 0) || (status != KVCL_OK)) {
        finish(part);
    }
}

/* All bytes of a layer are at their places, or, of a get that is not layer-wise, all of a round. True: a layer is
 * left. */
static bool next_layer(kvcl_part_t *part)
{
    if (!part->layerwise) {
        return false;
    }
    ++part->layer;
    if (first_failed(part) == part->n) {
        atomic_store_explicit(&part->landed, part->layer, memory_order_release);
        kvcl_engine_news(part->store->ctx);
    }
    part->at = part->first;
    return part->layer < part->n_layers;
}

static void copy_next(kvcl_part_t *part)
{
    const uint64_t each = part->layerwise ? part->n_layers : 1;
    uint64_t       from, to;

    do {
        if (kvcl_part_next(part, &from, &to)) {
            part->copying   = true;
            part->copy.done = on_copied;
            part->copy.how  = KVCL_BULK_CACHED; /* kvcl_copy_start chooses */
            if (kvcl_part_runs(part, part->layerwise, &part->copy.runs) == KVCL_OK) {
                kvcl_copy_start(part->store->ctx, &part->copy, from / each, to / each);
            } else {
                on_copied(&part->copy, KVCL_ERR_INTERNAL); /* cannot happen: the selections were checked */
            }
            return;
        }
    } while (next_layer(part));
    part->first = part->end;
    fetch_next(part);
}

/* ---- the call ---- */

/* A get of few bytes whose tables and blocks are in mapped memory. True: it has ended, with *final_p. */
static bool get_inside(kvcl_part_t *part, const kvcl_key_t *keys, kvcl_store_tenant_t *tenant, kvcl_status_t *final_p)
{
    const uint64_t most = part->store->ctx->config.inline_copy / part->stored.block_bytes;
    kvcl_status_t *statuses[2] = {part->each, NULL};
    uint64_t      from, to;
    kvcl_runs_t   runs;

    if (part->layerwise || (part->n > part->ring) || (part->n > most) ||
        (kvcl_part_runs(part, false, &runs) != KVCL_OK) ||
        !kvcl_get_now(part->store, keys, part->n, &part->buffer, part->ids, statuses, NULL, tenant, final_p)) {
        return false;
    }
    part->end = part->n;
    while (kvcl_part_next(part, &from, &to)) {
        if (kvcl_runs_copy(&runs, from, to) != KVCL_OK) {
            *final_p = part->stopping = KVCL_ERR_IO; /* with the device's sentence */
            break;
        }
    }
    return true;
}

static kvcl_status_t start(kvcl_part_t *part, kvcl_store_tenant_t *tenant, const kvcl_xfer_params_t *p,
                           kvcl_req_h *req_p)
{
    kvcl_context_h ctx = part->store->ctx;
    kvcl_status_t  status;

    kvcl_lock(ctx);
    part->deadline_ns = kvcl_deadline_after(kvcl_timeout(ctx, p->timeout_ns));
    status            = kvcl_req_post(&part->req, ctx, &part_class, p, req_p);
    if (status == KVCL_OK) {
        part->tenant = kvcl_tenant_hold(tenant);
        ++part->store->ops;
        fetch_next(part);
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        kvcl_part_free(part);
        return kvcl_fail(status, "%s: no memory for a request", KVCL_PART_CALL);
    }
    return KVCL_OK;
}

/* Takes the part. */
static kvcl_status_t begin(kvcl_part_t *part, const kvcl_key_t *keys, kvcl_store_tenant_t *tenant,
                           const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_context_h ctx = part->store->ctx;
    kvcl_status_t  final;
    uint64_t       bytes;

    atomic_fetch_add_explicit(&part->store->counts.gets, part->n, memory_order_relaxed);
    if (tenant != NULL) {
        atomic_fetch_add_explicit(&tenant->counts.gets, part->n, memory_order_relaxed);
    }
    if (!get_inside(part, keys, tenant, &final)) {
        return start(part, tenant, p, req_p);
    }
    (void)!write_statuses(part, &bytes);
    kvcl_part_free(part);
    return kvcl_req_instant(ctx, final, bytes, p, req_p);
}

static kvcl_status_t get_part(kvcl_store_h store, kvcl_store_tenant_t *tenant, kvcl_part_args_t *args,
                              kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_status_t      result = kvcl_store_check(store, args->keys, args->n, KVCL_PART_CALL);
    kvcl_part_t        *part  = NULL;
    kvcl_xfer_params_t p;

    if ((result != KVCL_OK) || ((result = kvcl_xfer_params(params, KVCL_CALL_STORE_GET_PART, &p)) != KVCL_OK) ||
        ((result = kvcl_xfer_local(store->ctx, args->cache, args->local, KVCL_PART_CALL)) != KVCL_OK)) {
        return result;
    }
    if (args->n == 0) {
        return (args->local->n_blocks == 0) ? kvcl_req_instant(store->ctx, KVCL_OK, 0, &p, req_p)
                                            : kvcl_fail(KVCL_ERR_BAD_LAYOUT, "%s: no keys for %zu local blocks",
                                                        KVCL_PART_CALL, args->local->n_blocks);
    }
    args->layerwise = (p.flags & KVCL_LAYERWISE) != 0;
    result          = kvcl_part_make(store, args, &part);
    if (result != KVCL_OK) {
        kvcl_part_free(part);
        return result;
    }
    part->statuses[0] = status;
    part->statuses[1] = p.status;
    return begin(part, args->keys, tenant, &p, req_p);
}

kvcl_status_t kvcl_store_get_part(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_layout_t *stored,
                                  const kvcl_sel_t *part, kvcl_cache_h cache, const kvcl_sel_t *local,
                                  kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_part_args_t args = {.n = n, .stored = stored, .wanted = part, .cache = cache, .local = local};
    kvcl_entry_t     entry;
    kvcl_status_t    result = kvcl_store_enter(&store, &keys, n, KVCL_PART_CALL, &entry);

    if (result == KVCL_OK) {
        args.keys = keys;
        result    = get_part(store, entry.tenant, &args, status, params, req_p);
    }
    kvcl_store_leave(&entry);
    return result;
}
