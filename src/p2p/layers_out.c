/*
 * The sending side of layer-wise sends (layers.h): marking layers, and reporting them to the receiver.
 *
 * Marking takes no lock: it sets a bit, and a flag of the context, which the poll clears before it reads the bits, so
 * none is missed. The thread that sets the flag wakes a sleeping poller. Where the progress thread would need the same
 * core, and the lock is free, the marking thread reports to the receiver itself.
 */
#include "config.h"
#include "p2p/layers.h"
#include "p2p/p2p.h"
#include "base/error.h"
#include "base/log.h"
#include "xfer/offer.h"
#include "xfer/xfer.h"

#include <stdlib.h>

enum { GROUP_BYTES = 4 << 20, BATCH = 64 }; /* a group: one layer, or several small ones */

typedef struct group {
    kvcl_list_t       link;
    kvcl_layers_out_t *out;
    kvcl_offer_t      offer;
} group_t;

kvcl_layers_out_t *kvcl_layers_out_new(kvcl_context_h ctx, kvcl_peer_t *peer, kvcl_cache_h cache,
                                       const kvcl_sel_t *sel)
{
    kvcl_range_t      layers = kvcl_sel_layers(&cache->shape, sel);
    uint32_t          n      = layers.end - layers.first;
    size_t            words  = kvcl_layers_words(n);
    kvcl_layers_out_t *out   = calloc(1, sizeof(*out) + (2 * words * sizeof(uint64_t)));

    if (out == NULL) {
        return NULL;
    }
    out->ctx         = ctx;
    out->peer        = peer;
    out->cache       = cache;
    out->sel         = *sel;
    out->sel.layers  = layers;
    out->n           = n;
    out->layer_bytes = kvcl_sel_bytes(&cache->shape, sel) / n;
    out->notified    = (uint64_t *)(out->ready + words);
    kvcl_list_init(&out->link);
    kvcl_list_init(&out->groups);
    return out;
}

void kvcl_layers_out_open(kvcl_layers_out_t *out)
{
    kvcl_assert_locked(out->ctx);
    kvcl_list_add_tail(&kvcl_p2p_state(out->ctx)->layers_out, &out->link);
}

/* ---- groups ---- */

static void group_idle(kvcl_offer_t *offer)
{
    group_t           *group = kvcl_container_of(offer, group_t, offer);
    kvcl_layers_out_t *out   = group->out;

    kvcl_list_del(&group->link);
    free(group);
    if (--out->open == 0) {
        out->idle(out);
    }
}

static kvcl_status_t open_group(kvcl_layers_out_t *out, uint32_t first, uint32_t end, kvcl_layer_group_t *notified)
{
    group_t       *group = calloc(1, sizeof(*group));
    kvcl_sel_t    sel    = out->sel;
    kvcl_status_t status;
    kvcl_side_t   side;
    uint32_t      i;

    if (group == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a group of layers");
    }
    sel.layers = (kvcl_range_t){out->sel.layers.first + first, out->sel.layers.first + end};
    side       = kvcl_cache_side(out->cache, &sel);
    kvcl_stream_init(&group->offer.stream, &side, KVCL_STREAM_CANONICAL);
    group->out        = out;
    group->offer.side = side;
    group->offer.peer = out->peer;
    group->offer.idle = group_idle;
    status            = kvcl_offer_open(out->ctx, &group->offer);
    if (status != KVCL_OK) {
        free(group);
        return status;
    }
    kvcl_list_add_tail(&out->groups, &group->link);
    ++out->open;
    out->n_announced += end - first;
    for (i = first; i < end; ++i) {
        kvcl_layers_set(out->notified, i);
    }
    *notified = (kvcl_layer_group_t){.first = first, .end = end, .offer = group->offer.id};
    return KVCL_OK;
}

/* ---- reporting ---- */

/* The first layer from `from` on that is ready and not reported; n: none. */
static uint32_t next_fresh(const kvcl_layers_out_t *out, uint32_t from)
{
    uint64_t fresh;
    uint32_t i = from;

    while (i < out->n) {
        fresh = atomic_load_explicit((_Atomic uint64_t *)&out->ready[i / 64], memory_order_acquire) &
                ~out->notified[i / 64] & (UINT64_MAX << (i % 64));
        if (fresh != 0) {
            return (i & ~63u) + (uint32_t)__builtin_ctzll(fresh);
        }
        i = (i & ~63u) + 64;
    }
    return out->n;
}

static bool next_group(const kvcl_layers_out_t *out, uint32_t from, uint32_t *first_p, uint32_t *end_p)
{
    uint32_t first = next_fresh(out, from), end = first + 1;

    if (first == out->n) {
        return false;
    }
    while ((end < out->n) && (out->whole || ((end + 1 - first) * out->layer_bytes <= GROUP_BYTES)) &&
           (next_fresh(out, end) == end)) {
        ++end;
    }
    *first_p = first;
    *end_p   = end;
    return !out->whole || ((first == 0) && (end == out->n));
}

static kvcl_status_t post(kvcl_layers_out_t *out, const kvcl_layer_group_t *groups, uint32_t n)
{
    kvcl_msg_layers_t msg = {.msg = {.type = KVCL_MSG_LAYERS, .op = out->requester}, .status = KVCL_OK, .n = n,
                             .revoked = kvcl_revoked(out->ctx)};

    return (n == 0) ? KVCL_OK : kvcl_peer_post(out->peer, &msg.msg, sizeof(msg), groups, n * sizeof(*groups));
}

/* Report all new groups. May end the send. Returns the number of groups. */
static unsigned notify(kvcl_layers_out_t *out)
{
    kvcl_layer_group_t batch[BATCH];
    kvcl_status_t      status = KVCL_OK;
    uint32_t           first, end = 0, n = 0;
    unsigned           all = 0;

    if ((out->requester == 0) || out->closed) {
        return 0;
    }
    while ((status == KVCL_OK) && next_group(out, end, &first, &end)) {
        status = open_group(out, first, end, &batch[n]);
        n     += (status == KVCL_OK) ? 1 : 0;
        ++all;
        if ((status == KVCL_OK) && (n == BATCH)) {
            status = post(out, batch, n);
            n      = 0;
        }
    }
    if (status == KVCL_OK) {
        status = post(out, batch, n);
    }
    if (status != KVCL_OK) {
        out->failed(out, status);
    }
    return all;
}

kvcl_status_t kvcl_layers_out_want(kvcl_layers_out_t *out, uint64_t requester, bool whole)
{
    kvcl_assert_locked(out->ctx);
    if ((requester == 0) || (out->requester != 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    out->requester = requester;
    out->whole = whole;
    (void)notify(out);
    return KVCL_OK;
}

unsigned kvcl_layers_poll(kvcl_context_h ctx)
{
    kvcl_p2p_state_t  *p2p = kvcl_p2p_state(ctx);
    kvcl_layers_out_t *out, *next;
    unsigned          n = 0;

    if (!atomic_load_explicit(&p2p->layers_marked, memory_order_relaxed)) {
        return 0;
    }
    (void)atomic_exchange(&p2p->layers_marked, false);
    kvcl_list_foreach_safe (out, next, &p2p->layers_out, kvcl_layers_out_t, link) {
        n += notify(out);
    }
    return n;
}

void kvcl_layers_out_refuse(kvcl_peer_t *peer, uint64_t requester)
{
    kvcl_msg_layers_t msg = {.msg = {.type = KVCL_MSG_LAYERS, .op = requester}, .status = KVCL_ERR_CANCELED};

    if (kvcl_peer_post(peer, &msg.msg, sizeof(msg), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: the end of a layer-wise send is not reported", peer->name);
    }
}

/* ---- marking ---- */

kvcl_status_t kvcl_layers_out_ready(kvcl_layers_out_t *out, uint32_t layer)
{
    kvcl_context_h   ctx   = out->ctx;
    kvcl_p2p_state_t *p2p  = kvcl_p2p_state(ctx);
    uint32_t         first = out->sel.layers.first, end = out->sel.layers.end;
    _Atomic uint64_t *word;
    uint64_t         bit;

    if ((layer < first) || (layer >= end)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "layer %u of a send of layers %u to %u", layer, first, end - 1);
    }
    bit  = UINT64_C(1) << ((layer - first) % 64);
    word = &out->ready[(layer - first) / 64];
    if (atomic_load_explicit(word, memory_order_relaxed) & bit) {
        return KVCL_OK;
    }
    (void)atomic_fetch_or(word, bit); /* out may be freed from now on: this may have been the last layer */
    if (!atomic_exchange(&p2p->layers_marked, true)) {
        if (ctx->engine.one_core && kvcl_trylock(ctx)) {
            (void)kvcl_layers_poll(ctx);
            kvcl_unlock(ctx);
        } else {
            kvcl_engine_nudge(ctx);
        }
    }
    return KVCL_OK;
}

/* ---- the end ---- */

void kvcl_layers_out_close(kvcl_layers_out_t *out)
{
    group_t *group, *next;

    kvcl_assert_locked(out->ctx);
    if (out->closed) {
        return;
    }
    out->closed = true;
    kvcl_list_del(&out->link);
    ++out->open; /* so that idle() is called once, below or later */
    kvcl_list_foreach_safe (group, next, &out->groups, group_t, link) {
        kvcl_offer_close(out->ctx, &group->offer);
    }
    if (--out->open == 0) {
        out->idle(out);
    }
}
