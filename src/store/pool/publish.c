/*
 * Publish and remove: one request that sends each home its records or keys in one message, and waits for the answers.
 *
 * A publish starts when its slots are PUBLISHED. A block that is withdrawn meanwhile is removed again after its home's
 * answer, since the two messages may have passed each other. If a home fails, all records are sent again to the homes
 * of the new map; if one of these does not know yet of the failure, after a pause. Where maps follow views, both are
 * sent again until each home has taken them, or until the deadline.
 *
 * Owns the requests, which are in store->publishes until they end. Engine lock held, except where a request is made.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/home/home_answer.h"
#include "store/home/paths.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/home/follow_views.h"
#include "store/pool/publish.h"
#include "store/pool/publish_result.h"
#include "store/tenant.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { ROUNDS_MAX = 100 };

/* With one home a key no other home can list its block. So a publish or a removal waits at least this long for a home,
 * however short the hedge is: a rank that only lacks a processor answers within that time. */
#define SOLE_HOME_NS (2 * KVCL_NS_PER_SEC)

static void free_publish(kvcl_publish_t *publish)
{
    kvcl_list_t *link;

    while ((link = kvcl_list_first(&publish->rpcs)) != NULL) {
        kvcl_rpc_t *rpc = kvcl_container_of(link, kvcl_rpc_t, link);
        kvcl_list_del(&rpc->link);
        kvcl_rpc_discard(rpc);
    }
    kvcl_scatter_free(&publish->scatter);
    free(publish);
}

static void release(kvcl_req_t *req)
{
    free_publish(kvcl_container_of(req, kvcl_publish_t, req));
}

static bool once_more(kvcl_publish_t *publish);

static void finish(kvcl_publish_t *publish)
{
    if (once_more(publish)) {
        return;
    }
    kvcl_list_del(&publish->link);
    kvcl_publish_conclude(publish);
    --publish->store->ops;
    publish->req.timing.bytes = (publish->status == KVCL_OK) ? publish->req.timing.bytes : 0;
    kvcl_req_complete(&publish->req, publish->status);
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_publish_t *publish = rpc->arg;
    kvcl_dir_msg_t reply;
    uint32_t       i;

    if (rpc->silent) {
        kvcl_publish_silence(publish, rpc);
        if (--publish->outstanding == 0) {
            finish(publish);
        }
        return;
    }
    if ((status == KVCL_OK) && publish->is_publish) {
        status = kvcl_dir_msg_unpack(&reply, data, len); /* cannot fail: rpc.c has checked it */
    }
    publish->again = publish->again || ((rpc->store->views == NULL) && (rpc->store->incarnations[rpc->rank] == 0));
    for (i = 0; i < rpc->n; ++i) {
        kvcl_status_t one = ((status == KVCL_OK) && publish->is_publish) ? kvcl_dir_msg_status(&reply, i) : status;
        publish->lagging = publish->lagging ||
                           ((one == KVCL_ERR_STALE) && kvcl_publish_is_current(publish, rpc->order[i])) ||
                           kvcl_publish_is_early(publish, rpc->rank, one);
        if ((status == KVCL_OK) && (one == KVCL_ERR_NOT_FOUND)) {
            kvcl_publish_refused(publish, rpc->order[i]);
        } else {
            kvcl_publish_take(publish, rpc->order[i], one);
        }
    }
    if (--publish->outstanding == 0) {
        finish(publish);
    }
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_publish_t *publish = kvcl_container_of(req, kvcl_publish_t, req);

    if (publish->status == KVCL_OK) {
        publish->status = status;
    }
    if (publish->pause != NULL) {
        kvcl_publish_give_up(publish, status);
    }
    kvcl_store_timer_stop(publish->pause);
    publish->pause = NULL;
    ++publish->outstanding;
    kvcl_rpcs_stop(&publish->rpcs, status);
    if (--publish->outstanding == 0) {
        finish(publish);
    }
}

static const kvcl_req_class_t publish_class = {
    .name = "store-publish", .stop = stop, .release = release, .describe = kvcl_publish_describe,
    .explain = kvcl_publish_explain};

/* Makes the RPCs to the other homes, unposted. keys: the records of a publish, the keys of a remove. */
static kvcl_status_t scatter_out(kvcl_publish_t *publish, const void *keys, size_t stride)
{
    kvcl_store_h  store  = publish->store;
    uint8_t       kind   = publish->is_publish ? KVCL_RPC_PUBLISH : KVCL_RPC_REMOVE_KEYS;
    kvcl_status_t status = publish->is_publish ? kvcl_scatter_recs(store, keys, publish->n, &publish->scatter)
                                               : kvcl_scatter_both(store, keys, stride, publish->n, &publish->scatter);
    uint32_t      home;

    for (home = 0; (status == KVCL_OK) && (home < store->n_ranks); ++home) {
        if (home != store->me) {
            status = kvcl_rpcs_make(store, home, kind, keys, stride, &publish->scatter, &publish->rpcs);
        }
    }
    return status;
}

/* Nothing shared is touched yet. */
static kvcl_status_t make(kvcl_store_h store, kvcl_owner_t *owner, const void *keys, size_t stride, size_t n,
                          const kvcl_xfer_params_t *p, kvcl_publish_t **publish_p)
{
    kvcl_publish_t *publish = malloc(sizeof(*publish) + (n * (sizeof(publish->recs[0]) + 1)));
    kvcl_status_t  status;
    size_t         i;

    if (publish == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to publish %zu blocks", n);
    }
    memset(publish, 0, sizeof(*publish));
    kvcl_list_init(&publish->link);
    kvcl_list_init(&publish->rpcs);
    publish->store      = store;
    publish->owner      = owner;
    publish->is_publish = (owner != NULL);
    publish->each       = p->status;
    publish->n          = n;
    publish->failed     = n;
    publish->answers    = (uint8_t *)&publish->recs[n];
    memset(publish->answers, 0, n);
    memcpy(publish->recs, keys, n * ((owner != NULL) ? sizeof(publish->recs[0]) : sizeof(kvcl_key_t)));
    for (i = 0; (p->status != NULL) && (i < n); ++i) {
        p->status[i] = KVCL_OK;
    }
    status = scatter_out(publish, keys, stride);
    if (status != KVCL_OK) {
        free_publish(publish);
        return status;
    }
    *publish_p = publish;
    return KVCL_OK;
}

/* Lock held. All of them, or none yet. */
static void remove_here(kvcl_publish_t *publish, const kvcl_key_t *keys, const uint32_t *order, size_t n)
{
    kvcl_store_h  store  = publish->store;
    kvcl_status_t status = KVCL_OK;
    size_t        i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; (store->views != NULL) && (i < n) && (status == KVCL_OK); ++i) {
        status = kvcl_home_may_remove(&store->home, &keys[order[i]], false, store->replicas > 1);
    }
    publish->lagging = (status != KVCL_OK) || !kvcl_home_remove_keys(store, keys, order, n);
}

/* Lock held. Applies the part whose home is this rank. */
static void apply_here(kvcl_publish_t *publish, const void *keys)
{
    kvcl_store_h   store  = publish->store;
    const uint32_t *order = publish->scatter.order + publish->scatter.starts[store->me];
    size_t         n      = publish->scatter.starts[store->me + 1] - publish->scatter.starts[store->me], i;
    kvcl_status_t  status;

    kvcl_assert_locked(store->ctx);
    if ((n != 0) && !kvcl_views_may_own(store)) {
        publish->lagging = kvcl_publish_is_early(publish, store->me, KVCL_ERR_NO_QUORUM);
        return;
    }
    if (!publish->is_publish) {
        remove_here(publish, keys, order, n);
        return;
    }
    for (i = 0; i < n; ++i) {
        const kvcl_store_rec_t *rec = &publish->recs[order[i]];
        if (!kvcl_publish_is_current(publish, order[i])) {
            continue;
        }
        status = kvcl_home_list(&store->home, &rec->key, &rec->loc);
        if (status == KVCL_ERR_NOT_FOUND) {
            kvcl_publish_refused(publish, order[i]);
        } else {
            kvcl_publish_take(publish, order[i], status);
        }
    }
}

/* Is the home left out of a publish? An excluded one is, and a silent one if blocks have two homes. */
static bool is_left_out(const kvcl_publish_t *publish, uint32_t home)
{
    const struct kvcl_store *store = publish->store;

    return publish->is_publish && (kvcl_store_excludes(store, home) ||
                                   ((store->replicas > 1) && kvcl_silence_is_sure(store, home)));
}

static void post_rpcs(kvcl_publish_t *publish, uint64_t timeout_ns)
{
    const struct kvcl_store *store = publish->store;
    kvcl_list_t             rpcs, *link;

    kvcl_list_init(&rpcs);
    kvcl_list_splice_tail(&rpcs, &publish->rpcs);
    publish->outstanding = 1;
    while ((link = kvcl_list_first(&rpcs)) != NULL) {
        kvcl_rpc_t *rpc = kvcl_container_of(link, kvcl_rpc_t, link);
        rpc->arg      = publish;
        rpc->done     = on_answer;
        rpc->least_ns = (store->replicas > 1) ? 0 : SOLE_HOME_NS;
        ++publish->outstanding;
        if (is_left_out(publish, rpc->rank)) {
            kvcl_list_del(&rpc->link);
            --publish->outstanding;
            kvcl_publish_silence(publish, rpc);
            kvcl_rpc_discard(rpc);
        } else {
            kvcl_rpc_post_watched(rpc, timeout_ns, &publish->rpcs);
        }
    }
    if (--publish->outstanding == 0) {
        finish(publish);
    }
}

/* Lock held. False: publish->status says why not. */
static bool send_again(kvcl_publish_t *publish)
{
    kvcl_status_t status;

    kvcl_assert_locked(publish->store->ctx);
    publish->again = publish->no_quorum = false;
    kvcl_scatter_free(&publish->scatter);
    status = scatter_out(publish, publish->recs, publish->is_publish ? sizeof(publish->recs[0]) : sizeof(kvcl_key_t));
    if (status != KVCL_OK) {
        publish->status = status;
        return false;
    }
    apply_here(publish, publish->recs);
    post_rpcs(publish, 0); /* the request's own deadline stops them */
    return true;
}

static void after_pause(void *arg)
{
    kvcl_publish_t *publish = arg;

    publish->pause = NULL;
    if (!send_again(publish)) {
        finish(publish);
    }
}

/* Lock held. */
static bool once_more(kvcl_publish_t *publish)
{
    kvcl_assert_locked(publish->store->ctx);
    if ((publish->status == KVCL_OK) && kvcl_publish_is_unheard(publish)) {
        publish->lagging = true;
    }
    kvcl_publish_judge_exclusion(publish);
    if ((!publish->is_publish && (publish->store->views == NULL)) || (!publish->again && !publish->lagging) ||
        (publish->status != KVCL_OK) || publish->store->closing ||
        ((publish->store->views == NULL) && (++publish->rounds >= ROUNDS_MAX))) {
        return false;
    }
    if (publish->lagging) {
        publish->lagging = false;
        publish->pause   = kvcl_store_timer_start(publish->store, kvcl_publish_pause_ns(publish), after_pause, publish);
        return publish->pause != NULL;
    }
    return send_again(publish);
}

/* No lock held; frees the publish on failure. */
static kvcl_status_t start(kvcl_publish_t *publish, const void *keys, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_store_h   store = publish->store;
    kvcl_context_h ctx   = store->ctx;
    kvcl_status_t  status;
    uint64_t       bytes;

    kvcl_lock(ctx);
    apply_here(publish, keys);
    kvcl_scatter_path(store, &publish->scatter, &publish->timing);
    if (kvcl_list_is_empty(&publish->rpcs) && !publish->lagging) {
        kvcl_publish_drop_unlisted(publish);
        kvcl_unlock(ctx);
        status = publish->status;
        bytes  = (status == KVCL_OK) ? publish->timing.bytes : 0;
        if (status == KVCL_OK) {
            kvcl_timing_end(&ctx->latency, &publish->timing);
        } else {
            kvcl_publish_set_error(publish, status);
        }
        free_publish(publish);
        return kvcl_req_instant(ctx, status, bytes, p, req_p);
    }
    status = kvcl_req_post(&publish->req, ctx, &publish_class, p, req_p);
    if (status == KVCL_OK) {
        publish->req.timing = publish->timing;
        ++store->ops;
        kvcl_list_add_tail(&store->publishes, &publish->link);
        post_rpcs(publish, p->timeout_ns);
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        free_publish(publish);
        return kvcl_fail(status, "no memory for a request");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_publish_start(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n,
                                 const kvcl_timing_t *timing, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_publish_t *publish;
    kvcl_status_t  status = make(owner->store, owner, recs, sizeof(*recs), n, p, &publish);

    if (status != KVCL_OK) {
        return status;
    }
    publish->timing = (timing != NULL) ? *timing : (kvcl_timing_t){0};
    return start(publish, recs, p, req_p);
}

void kvcl_publish_forget(kvcl_owner_t *owner)
{
    kvcl_publish_t *publish;

    kvcl_assert_locked(owner->store->ctx);
    kvcl_list_foreach (publish, &owner->store->publishes, kvcl_publish_t, link) {
        if (publish->owner == owner) {
            publish->owner = NULL;
        }
    }
}

/* ---- kvcl_store_remove ---- */

static kvcl_status_t remove_keys(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                 const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_status_t      status = kvcl_store_check(store, keys, n, "kvcl_store_remove");
    kvcl_xfer_params_t p;
    kvcl_publish_t     *remove;

    if (status == KVCL_OK) {
        status = kvcl_xfer_params(params, KVCL_CALL_STORE_REMOVE, &p);
    }
    if (status == KVCL_OK) {
        status = make(store, NULL, keys, sizeof(*keys), n, &p, &remove);
    }
    return (status == KVCL_OK) ? start(remove, keys, &p, req_p) : status;
}

kvcl_status_t kvcl_store_remove(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, &keys, n, "kvcl_store_remove", &entry);

    status = (status == KVCL_OK) ? remove_keys(store, keys, n, params, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}
