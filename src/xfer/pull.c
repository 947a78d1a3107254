/*
 * Pull (pull.h): the steps of one transfer at the side that wants the bytes, up to the choice of the path.
 *
 * Owns: the pull's state. Its two ends are in pull_ends.c, copies in copy.c, native transfers in rma.c, served ones in
 * pull_served.c. Invariants: a pull ends once (kvcl_pull_finish), and its destination does not change after that; it
 * begins again once where the peer's cache was described anew, and with each link to the peer that is lost.
 * Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "xfer/pull.h"
#include "base/error.h"
#include "base/log.h"
#include "xfer/describe.h"
#include "xfer/params.h"

#include <stdlib.h>
#include <string.h>

kvcl_pull_t *kvcl_pull_new(void)
{
    return calloc(1, sizeof(kvcl_pull_t));
}

void kvcl_pull_discard(kvcl_pull_t *pull)
{
    if (pull != NULL) {
        free((void *)pull->remote.blocks);
        free((void *)pull->local.blocks);
        free(pull->gens);
        if (pull->owns_pieces) {
            free(pull->near);
            free(pull->far);
        }
        kvcl_rma_gens_clear(&pull->far_gens);
        kvcl_gate_free(pull->gate);
        free(pull);
    }
}

static void release(kvcl_req_t *req)
{
    kvcl_pull_discard(kvcl_container_of(req, kvcl_pull_t, req));
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_pull_stop(kvcl_container_of(req, kvcl_pull_t, req), status);
}

static kvcl_transfer_words_t words_of(const kvcl_pull_t *pull)
{
    return (kvcl_transfer_words_t){.push = pull->push, .peer = pull->peer, .name = pull->cache_name,
                                   .remote = &pull->remote, .cache = pull->cache, .local = &pull->local};
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_pull_t     *pull = kvcl_container_of((kvcl_req_t *)req, kvcl_pull_t, req);
    kvcl_transfer_words_t words = words_of(pull);

    if (pull->from == KVCL_FROM_CACHE) {
        kvcl_describe_transfer(&words, buf, cap);
    } else {
        kvcl_describe_bytes(false, pull->peer, pull->far, pull->total, pull->offset, buf, cap);
    }
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const kvcl_pull_t     *pull = kvcl_container_of((kvcl_req_t *)req, kvcl_pull_t, req);
    kvcl_transfer_words_t words = words_of(pull);

    return (pull->from == KVCL_FROM_CACHE) ? kvcl_explain_transfer(&words, status, buf, cap)
                                           : kvcl_explain_access(pull->peer, status, buf, cap);
}

static bool again(kvcl_req_t *req)
{
    return kvcl_pull_again(kvcl_container_of(req, kvcl_pull_t, req));
}

static const kvcl_req_class_t pull_class = {
    .name = "get", .stop = stop, .again = again, .release = release, .describe = describe, .explain = explain};

kvcl_pull_t *kvcl_pull_find(kvcl_context_h ctx, uint64_t op)
{
    kvcl_req_t *req = kvcl_req_find(ctx, op, &pull_class);

    return (req != NULL) ? kvcl_container_of(req, kvcl_pull_t, req) : NULL;
}

kvcl_pull_t *kvcl_pull_of(kvcl_req_t *req)
{
    return (req->cls == &pull_class) ? kvcl_container_of(req, kvcl_pull_t, req) : NULL;
}

void kvcl_pull_finish(kvcl_pull_t *pull, kvcl_status_t status)
{
    size_t i;

    if (pull->state == KVCL_PULL_OVER) {
        return;
    }
    pull->state = KVCL_PULL_OVER;
    if (pull->quick) {
        kvcl_peer_answered(pull->peer);
    }
    if (pull->status != NULL) {
        for (i = 0; i < pull->remote.n_blocks; ++i) {
            if ((pull->status[i] == KVCL_INPROGRESS) || ((status != KVCL_OK) && (pull->status[i] == KVCL_OK))) {
                pull->status[i] = status;
            }
        }
    }
    if (status == KVCL_OK) {
        pull->req.timing.bytes = pull->total;
        pull->req.ctx->stats.bytes_in += pull->push ? 0 : pull->total;
        pull->req.ctx->stats.bytes_out += pull->push ? pull->total : 0;
        status = pull->any_failed ? KVCL_ERR_NOT_FOUND : KVCL_OK;
    }
    if (pull->on_done != NULL) {
        pull->on_done(pull, status);
    }
    kvcl_req_complete(&pull->req, status);
}

void kvcl_pull_stop(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_msg_credit_t out = {.msg = {.type = KVCL_MSG_PULL_STOP, .op = pull->req.id}};

    kvcl_assert_locked(pull->req.ctx);
    switch (pull->state) {
    case KVCL_PULL_PEER:
        kvcl_peer_unwait(&pull->peer_waiter);
        break;
    case KVCL_PULL_CACHE:
        kvcl_rcache_unwait(&pull->rcache_waiter);
        break;
    case KVCL_PULL_COPY:
        kvcl_copy_stop(&pull->copy, status);
        return;
    case KVCL_PULL_RMA:
        kvcl_rma_stop(pull, status);
        return;
    case KVCL_PULL_SERVED:
        if (kvcl_peer_post(pull->peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
            kvcl_log_debug("%s has failed: a stop is not sent", pull->peer->name);
        }
        break;
    default:
        break;
    }
    kvcl_pull_finish(pull, status);
}

/* ---- generations: a block whose slot was reused meanwhile is no longer that block ---- */

void kvcl_pull_fail_block(kvcl_pull_t *pull, size_t i, kvcl_status_t status)
{
    pull->any_failed = true;
    if (pull->status != NULL) {
        pull->status[i] = status;
    }
}

kvcl_rregion_t *kvcl_pull_witness(kvcl_pull_t *pull)
{
    return (pull->from == KVCL_FROM_REGION) ? pull->rregion : &pull->rcache->gens_region;
}

/* The peer's cache is not the one that it described: the peer may have another of that name. */
bool kvcl_pull_try_again(kvcl_pull_t *pull)
{
    kvcl_rcache_stale(pull->rcache);
    if (pull->requested_again || (pull->cache_name[0] == '\0')) {
        return false;
    }
    pull->requested_again = true;
    if (pull->quick) {
        pull->quick = false;
        kvcl_peer_answered(pull->peer);
    }
    kvcl_pull_step(pull);
    return true;
}

void kvcl_pull_bytes_done(kvcl_pull_t *pull, kvcl_status_t status, bool live)
{
    if (pull->lost) {
        kvcl_pull_begin_again(pull);
        return;
    }
    if ((status == KVCL_OK) && !live) {
        if ((pull->rcache != NULL) && kvcl_pull_try_again(pull)) {
            return;
        }
        status = (pull->rcache != NULL) ? KVCL_ERR_STALE : KVCL_ERR_ACCESS;
    }
    if ((status == KVCL_OK) && (pull->gens != NULL)) {
        kvcl_pull_check_gens(pull);
    }
    if ((status == KVCL_OK) && pull->guarded && (kvcl_rregion_revoked(&pull->rcache->gens_region) != pull->revoked)) {
        kvcl_pull_request(pull);
        return;
    }
    kvcl_pull_finish(pull, status);
}

void kvcl_pull_rma_failed(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_log_debug("%s: native %s failed (%s): the owner serves it", pull->peer->name, pull->push ? "put" : "get",
                   kvcl_status_text(status));
    if (pull->need_direct) {
        kvcl_pull_finish(pull, KVCL_ERR_UNSUPPORTED);
    } else {
        kvcl_pull_request(pull);
    }
}

static void copy_done(kvcl_copy_t *copy, kvcl_status_t status)
{
    kvcl_pull_t *pull = kvcl_container_of(copy, kvcl_pull_t, copy);

    pull->summed = (pull->copy.sums != NULL);
    kvcl_pull_bytes_done(pull, status, kvcl_rregion_live(kvcl_pull_witness(pull)));
}

/* ---- the steps ---- */

static bool is_mapped(const kvcl_pull_t *pull)
{
    return (pull->from == KVCL_FROM_REGION) ? (pull->rregion->attr.map != NULL)
                                            : (pull->rcache != NULL) && pull->rcache->mapped;
}

static bool is_rma(const kvcl_pull_t *pull)
{
    if (pull->ranged || (pull->offer != 0) || !kvcl_rma_same_kind(pull)) {
        return false;
    }
    if (pull->from == KVCL_FROM_REGION) {
        return pull->push ? pull->rregion->attr.put : pull->rregion->attr.get;
    }
    return (pull->rcache != NULL) && (pull->push ? pull->rcache->put : pull->rcache->get);
}

void kvcl_pull_all_here(kvcl_pull_t *pull)
{
    size_t i;

    for (i = 0; (pull->status != NULL) && (i < pull->remote.n_blocks); ++i) {
        if (pull->status[i] == KVCL_INPROGRESS) {
            pull->status[i] = KVCL_OK;
        }
    }
    kvcl_pull_finish(pull, KVCL_OK);
}

/* The peer and its cache are ready: choose the path of the bytes. */
static void move(kvcl_pull_t *pull)
{
    kvcl_status_t status;
    kvcl_runs_t   runs;

    if (pull->total == 0) { /* nothing to move */
        kvcl_pull_all_here(pull);
        return;
    }
    if ((is_mapped(pull) || is_rma(pull)) && !kvcl_rregion_live(kvcl_pull_witness(pull))) {
        kvcl_pull_bytes_done(pull, KVCL_OK, false);
        return;
    }
    if (is_mapped(pull) || is_rma(pull)) {
        status = is_mapped(pull) ? kvcl_pull_copy_runs(pull) : kvcl_pull_runs(pull, &runs);
        if (status != KVCL_OK) {
            kvcl_req_keep_error(&pull->req);
            kvcl_pull_finish(pull, status);
            return;
        }
        if (is_mapped(pull)) {
            pull->state     = KVCL_PULL_COPY;
            kvcl_timing_path(&pull->req.timing, kvcl_mem_path_mapped(pull->peer));
            pull->copy.done = copy_done;
            pull->copy.background = pull->background;
            kvcl_copy_start(pull->req.ctx, &pull->copy, pull->range_from, pull->range_from + pull->total);
            return;
        }
        pull->state = KVCL_PULL_RMA;
        kvcl_timing_path(&pull->req.timing, KVCL_MEM_PATH_NATIVE);
        if ((status = kvcl_rma_start(pull, &runs)) != KVCL_ERR_UNSUPPORTED) {
            if (status != KVCL_OK) {
                kvcl_pull_finish(pull, status);
            }
            return;
        }
    }
    if (pull->need_direct) {
        kvcl_pull_finish(pull, KVCL_ERR_UNSUPPORTED);
        return;
    }
    kvcl_pull_request(pull);
}

static void on_peer(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    kvcl_pull_t *pull = kvcl_container_of(waiter, kvcl_pull_t, peer_waiter);

    if (status != KVCL_OK) {
        kvcl_pull_finish(pull, status);
        return;
    }
    kvcl_pull_step(pull);
}

static void on_rcache(kvcl_rcache_waiter_t *waiter, kvcl_rcache_t *rcache, kvcl_status_t status)
{
    kvcl_pull_t *pull = kvcl_container_of(waiter, kvcl_pull_t, rcache_waiter);

    (void)rcache;
    if (status != KVCL_OK) {
        if (status == KVCL_ERR_PROTOCOL) { /* decided on this thread, just now: what the description claims */
            kvcl_req_keep_error(&pull->req);
        }
        kvcl_pull_finish(pull, status);
        return;
    }
    pull->fresh = true;
    kvcl_pull_step(pull);
}

void kvcl_pull_step(kvcl_pull_t *pull)
{
    kvcl_status_t status;

    pull->state          = KVCL_PULL_PEER;
    pull->summed         = false;
    pull->peer_waiter.fn = on_peer;
    status               = kvcl_gate_pass(pull->gate, pull->peer, &pull->peer_waiter);
    if (status == KVCL_INPROGRESS) {
        return;
    }
    if ((status == KVCL_OK) && (pull->from == KVCL_FROM_REGION)) {
        status = kvcl_rregion_ready(pull->rregion, pull->peer);
        if (status == KVCL_ERR_PROTOCOL) {
            kvcl_req_keep_error(&pull->req);
        }
    }
    if ((status == KVCL_OK) && (pull->from == KVCL_FROM_CACHE) && ((pull->offer == 0) || (pull->peer->maps != 0))) {
        pull->state            = KVCL_PULL_CACHE;
        pull->rcache_waiter.fn = on_rcache;
        kvcl_req_watch(&pull->req, pull->peer);
        status = kvcl_rcache_get(pull->peer, pull->cache_name, pull->name_key, pull->cache_id, &pull->rcache,
                                 &pull->rcache_waiter);
        if (status == KVCL_INPROGRESS) {
            return;
        }
        if (status == KVCL_OK) {
            status = kvcl_pull_check(pull);
            if ((status != KVCL_OK) && !pull->fresh && kvcl_pull_try_again(pull)) {
                return; /* the owner may have another cache of that name now */
            }
            if (status != KVCL_OK) {
                kvcl_req_keep_error(&pull->req);
            }
        }
    }
    if (status != KVCL_OK) {
        kvcl_pull_finish(pull, status);
        return;
    }
    kvcl_req_watch(&pull->req, pull->peer);
    move(pull);
}

kvcl_status_t kvcl_pull_post(kvcl_context_h ctx, kvcl_pull_t *pull, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_status_t status;
    size_t        i;

    kvcl_assert_locked(ctx);
    kvcl_list_init(&pull->peer_waiter.link);
    kvcl_list_init(&pull->rcache_waiter.link);
    kvcl_list_init(&pull->copy.link);
    for (i = 0; (pull->status != NULL) && (i < pull->remote.n_blocks); ++i) {
        pull->status[i] = KVCL_INPROGRESS;
    }
    status = kvcl_req_post(&pull->req, ctx, &pull_class, p, req_p);
    if (status == KVCL_OK) {
        kvcl_req_bind(&pull->req, (pull->from == KVCL_FROM_CACHE) ? pull->self.id : 0);
        pull->req.timing.op = pull->op;
        pull->req.with      = kvcl_req_is_awaited(p, req_p) ? pull->peer : NULL;
        kvcl_pull_step(pull);
    }
    return status;
}
