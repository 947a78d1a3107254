/*
 * The receiving side of layer-wise sends (layers.h): a pull for each group of layers that the sender reported.
 *
 * It ends when all layers have landed, or after the first error when no pull is in flight: the fence of a pull is that
 * of the recv. A layer that has landed stays so, whatever the result of the recv.
 */
#include "config.h"
#include "p2p/layers.h"
#include "base/error.h"
#include "base/log.h"
#include "p2p/p2p.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { PULLS_MAX = 4 }; /* in flight at once */

typedef struct group {
    kvcl_list_t      link;
    kvcl_layers_in_t *in;
    uint32_t         first, end;
    uint64_t         offer;
    uint64_t         revoked;
    kvcl_pull_t      *pull;
} group_t;

/* ---- beginning ---- */

static kvcl_status_t check(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel)
{
    uint32_t     n = msg->layers[1] - msg->layers[0];
    kvcl_range_t mine;

    if ((msg->layers[1] <= msg->layers[0]) || (n > KVCL_LAYOUT_MAX_LAYERS) || (msg->len % n != 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    if (cache != NULL) {
        mine = kvcl_sel_layers(&cache->shape, sel);
        return (mine.end - mine.first == n) ? KVCL_OK : KVCL_ERR_BAD_LAYOUT;
    }
    return KVCL_OK;
}

kvcl_layers_in_t *kvcl_layers_in_new(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_send_t *msg,
                                     const void *payload, size_t len, kvcl_cache_h cache, const kvcl_sel_t *sel,
                                     void *buf, kvcl_status_t *status_p)
{
    uint32_t         n     = msg->layers[1] - msg->layers[0];
    size_t           words = kvcl_layers_words(n);
    kvcl_layers_in_t *in;

    *status_p = check(msg, cache, sel);
    if (*status_p != KVCL_OK) {
        return NULL;
    }
    *status_p = KVCL_ERR_NO_MEMORY;
    in        = calloc(1, sizeof(*in) + (2 * words * sizeof(uint64_t)));
    if (in == NULL) {
        return NULL;
    }
    kvcl_list_init(&in->link);
    kvcl_list_init(&in->waiting);
    kvcl_list_init(&in->active);
    if (msg->msg.flags & KVCL_SEND_CACHE) {
        in->ids = malloc(len + 1);
        if (in->ids == NULL) {
            free(in);
            return NULL;
        }
        kvcl_copy_bytes(in->ids, payload, len);
    }
    in->ctx      = ctx;
    in->peer     = peer;
    in->msg      = *msg;
    in->cache    = cache;
    in->sel      = (cache != NULL) ? *sel : (kvcl_sel_t){0};
    in->buf      = buf;
    in->first    = (cache != NULL) ? kvcl_sel_layers(&cache->shape, sel).first : 0;
    in->n        = n;
    in->notified = (uint64_t *)(in->landed + words);
    *status_p    = KVCL_OK;
    return in;
}

void kvcl_layers_in_free(kvcl_layers_in_t *in)
{
    if (in != NULL) {
        free(in->ids);
        free(in);
    }
}

static void end_if_over(kvcl_layers_in_t *in)
{
    kvcl_list_t *link;

    if (in->busy || (in->n_active != 0) || ((in->status == KVCL_OK) && (in->n_landed < in->n))) {
        return;
    }
    while ((link = kvcl_list_pop(&in->waiting)) != NULL) {
        free(kvcl_container_of(link, group_t, link));
    }
    kvcl_list_del(&in->link);
    in->busy = true; /* nothing runs after the end */
    in->ended(in, in->status);
}

void kvcl_layers_in_stop(kvcl_layers_in_t *in, kvcl_status_t status)
{
    bool    busy = in->busy;
    group_t *group, *next;

    kvcl_assert_locked(in->ctx);
    if (in->status == KVCL_OK) {
        in->status = status;
    }
    in->busy = true;
    kvcl_list_foreach_safe (group, next, &in->active, group_t, link) {
        kvcl_pull_stop(group->pull, in->status);
    }
    in->busy = busy;
    end_if_over(in);
}

void kvcl_layers_in_begin(kvcl_layers_in_t *in, uint64_t op)
{
    kvcl_msg_layers_want_t out = {
        .msg   = {.type = KVCL_MSG_LAYERS_WANT, .op = in->msg.msg.op,
                  .flags = (in->cache == NULL) ? KVCL_LAYERS_WHOLE : 0},
        .requester = op};
    kvcl_status_t          status;

    kvcl_assert_locked(in->ctx);
    kvcl_list_add_tail(&kvcl_p2p_state(in->ctx)->layers_in, &in->link);
    status = kvcl_peer_post(in->peer, &out.msg, sizeof(out), NULL, 0);
    if (status != KVCL_OK) {
        kvcl_layers_in_stop(in, status);
    }
}

kvcl_layers_in_t *kvcl_layers_in_find(kvcl_context_h ctx, const kvcl_peer_t *peer, uint64_t op)
{
    kvcl_layers_in_t *in;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (in, &kvcl_p2p_state(ctx)->layers_in, kvcl_layers_in_t, link) {
        if ((in->peer == peer) && (in->msg.msg.op == op)) {
            return in;
        }
    }
    return NULL;
}

/* ---- pulling ---- */

static void start_some(kvcl_layers_in_t *in);

static void pulled(kvcl_pull_t *pull, kvcl_status_t status)
{
    group_t          *group = pull->arg;
    kvcl_layers_in_t *in    = group->in;
    uint32_t         i;

    kvcl_list_del(&group->link);
    --in->n_active;
    if (status == KVCL_OK) {
        for (i = group->first; i < group->end; ++i) {
            atomic_fetch_or_explicit(&in->landed[i / 64], UINT64_C(1) << (i % 64), memory_order_release);
        }
        in->n_landed += group->end - group->first;
    }
    free(group);
    if (in->status != KVCL_OK) { /* stopped by kvcl_layers_in_stop */
        end_if_over(in);
    } else if (status != KVCL_OK) {
        kvcl_layers_in_stop(in, status);
    } else {
        kvcl_engine_news(in->ctx);
        start_some(in);
    }
}

/* From the sender's cache if it can be mapped here, else from the offer. */
static kvcl_status_t fill_pull(const group_t *group, kvcl_pull_t *pull)
{
    const kvcl_layers_in_t *in    = group->in;
    const kvcl_msg_send_t  *msg   = &in->msg;
    kvcl_sel_t             mine   = in->sel, theirs;
    kvcl_status_t          status = KVCL_OK;

    pull->peer      = in->peer;
    pull->from      = KVCL_FROM_OFFER;
    pull->offer     = group->offer;
    pull->unit      = kvcl_send_unit(msg, in->cache, &in->sel);
    pull->total     = (msg->len / in->n) * (group->end - group->first);
    pull->buf       = in->buf;
    pull->on_done   = pulled;
    pull->copy.how  = kvcl_bulk_how(msg->len);
    if (in->cache != NULL) {
        mine.layers = (kvcl_range_t){in->first + group->first, in->first + group->end};
        status      = kvcl_pull_set_local(pull, in->cache, &mine);
    }
    if ((status == KVCL_OK) && (in->ids != NULL)) {
        theirs = (kvcl_sel_t){.blocks = in->ids, .n_blocks = (size_t)msg->n_blocks,
                              .layers = {msg->layers[0] + group->first, msg->layers[0] + group->end},
                              .heads = {msg->heads[0], msg->heads[1]}, .tokens = {msg->tokens[0], msg->tokens[1]}};
        pull->from     = KVCL_FROM_CACHE;
        pull->cache_id = msg->cache;
        pull->guarded  = true;
        pull->revoked  = group->revoked;
        status         = kvcl_pull_set_remote(pull, &theirs);
    }
    return status;
}

static kvcl_status_t start(group_t *group)
{
    kvcl_layers_in_t *in    = group->in;
    kvcl_pull_t      *pull  = kvcl_pull_new();
    kvcl_status_t    status = (pull != NULL) ? fill_pull(group, pull) : KVCL_ERR_NO_MEMORY;

    if (status == KVCL_OK) {
        pull->arg   = group;
        group->pull = pull;
        kvcl_list_add_tail(&in->active, &group->link);
        ++in->n_active;
        /* No deadline of its own: the recv's stops it. */
        status = kvcl_pull_start(in->ctx, pull, UINT64_MAX);
        if (status == KVCL_OK) {
            return KVCL_OK; /* the group may have been freed */
        }
        kvcl_list_del(&group->link);
        --in->n_active;
    }
    kvcl_pull_discard(pull);
    free(group);
    return status;
}

static void start_some(kvcl_layers_in_t *in)
{
    kvcl_status_t status = KVCL_OK;
    kvcl_list_t   *link;

    if (in->busy) {
        return; /* the caller that set busy continues */
    }
    in->busy = true;
    while ((in->status == KVCL_OK) && (status == KVCL_OK) && (in->n_active < PULLS_MAX) &&
           ((link = kvcl_list_pop(&in->waiting)) != NULL)) {
        status = start(kvcl_container_of(link, group_t, link));
    }
    in->busy = false;
    if (status != KVCL_OK) {
        kvcl_layers_in_stop(in, status);
    } else {
        end_if_over(in);
    }
}

/* ---- reports of the sender ---- */

static kvcl_status_t take_group(kvcl_layers_in_t *in, const kvcl_layer_group_t *notified, uint64_t revoked)
{
    group_t  *group;
    uint32_t i;

    if ((notified->first >= notified->end) || (notified->end > in->n) || (notified->offer == 0) ||
        ((in->cache == NULL) && (notified->end - notified->first != in->n))) {
        return KVCL_ERR_PROTOCOL;
    }
    for (i = notified->first; i < notified->end; ++i) {
        if (kvcl_layers_bit(in->notified, i)) {
            return KVCL_ERR_PROTOCOL;
        }
        kvcl_layers_set(in->notified, i);
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    group->in      = in;
    group->first   = notified->first;
    group->end     = notified->end;
    group->offer   = notified->offer;
    group->revoked = revoked;
    kvcl_list_add_tail(&in->waiting, &group->link);
    return KVCL_OK;
}

void kvcl_layers_in_announced(kvcl_layers_in_t *in, const kvcl_msg_layers_t *msg, const void *data, size_t len)
{
    kvcl_status_t      status = KVCL_OK;
    kvcl_layer_group_t notified;
    uint32_t           i;

    kvcl_assert_locked(in->ctx);
    if ((msg->status > 0) || (msg->n > len / sizeof(notified)) || (len != msg->n * sizeof(notified))) {
        status = KVCL_ERR_PROTOCOL;
    } else if (msg->status < 0) {
        kvcl_layers_in_stop(in, (kvcl_status_t)msg->status);
        return;
    }
    for (i = 0; (status == KVCL_OK) && (i < msg->n); ++i) {
        memcpy(&notified, (const char *)data + (i * sizeof(notified)), sizeof(notified));
        status = take_group(in, &notified, msg->revoked);
    }
    if (status == KVCL_OK) {
        start_some(in);
        return;
    }
    if (status == KVCL_ERR_PROTOCOL) {
        kvcl_am_malformed(in->ctx, in->peer, "an invalid report of layers");
    }
    kvcl_layers_in_stop(in, status);
}

bool kvcl_layers_in_landed(const kvcl_layers_in_t *in, uint32_t layer)
{
    uint32_t i = layer - in->first;

    return ((atomic_load_explicit((_Atomic uint64_t *)&in->landed[i / 64], memory_order_acquire) >> (i % 64)) & 1) != 0;
}
