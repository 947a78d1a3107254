/*
 * Publish, withdraw, remove.
 *
 * A publish: the slots are taken, the checksums computed (no lock), the slots become PUBLISHED, the homes are told, one
 * message each. The request is over when all of them have answered. A block that was withdrawn meanwhile is removed
 * again after its home's answer, since the two messages may have passed each other. If a home is found to be gone, all
 * of it is sent once more, to the homes that there are then; if one of those does not know yet that it is, a little
 * later.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/home/paths.h"
#include "store/store.h"
#include "store/words.h"
#include "xfer/params.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 100 };
#define LAG_PAUSE_NS (10 * KVCL_NS_PER_MS)

/* A publish or a remove under way. */
struct kvcl_publish {
    kvcl_req_t    req;
    kvcl_store_h  store;
    kvcl_owner_t  *owner;       /* NULL: a remove, or the owner has gone */
    kvcl_list_t   link;         /* store->publishes */
    kvcl_list_t   rpcs;
    unsigned      outstanding;
    kvcl_status_t status;       /* the first thing that went wrong */
    size_t        wrong;        /* with which block; n: with none in particular */
    kvcl_status_t *each;        /* the user's, or NULL */
    kvcl_scatter_t scatter;
    bool          is_publish;
    bool          again;        /* a home has gone: what it was told is to be told to others */
    bool          lagging;      /* a rank that is to be a home has not heard yet of the death that makes it one */
    kvcl_store_timer_t *pause;  /* until it is told again */
    unsigned      rounds;
    kvcl_timing_t timing;       /* of the call that this is the end of */
    size_t        n;
    uint8_t       *heard;       /* a publish: n, behind recs: HEARD_* */
    kvcl_store_rec_t recs[];
};

/* What the homes of a block have said. */
enum { HEARD_LISTED = 1, HEARD_SILENCE = 2 };

/* Where keys have one home no other one can list a block. So a publish or a removal waits that long for a home, however
 * short the hedge is: a rank that only lacks a processor answers within that time. */
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

/* Is the block still published as the record says? Of the pool's owner also: is it in the tier as it says? */
static bool is_current(const kvcl_publish_t *publish, size_t i)
{
    const kvcl_store_rec_t *rec = &publish->recs[i];

    if (!publish->is_publish || (publish->owner == NULL)) {
        return false;
    }
    return kvcl_loc_is_nvme(&rec->loc) ? publish->store->notify->tier_holds(publish->store, &rec->key, &rec->loc)
                                       : (kvcl_slots_gen(&publish->owner->slots, rec->loc.slot) == rec->loc.gen);
}

/* Lock held: a put that failed leaves no block in the pool that nobody is told of, since the next one of its key would
 * take it for done. */
static void withdraw_unlisted(kvcl_publish_t *publish)
{
    kvcl_owner_t     *owner = publish->owner;
    kvcl_store_rec_t gone;
    size_t           i;

    kvcl_assert_locked(publish->store->ctx);
    if (!publish->is_publish || (owner == NULL) || (owner->pool == NULL) || publish->store->closing ||
        (publish->status == KVCL_OK)) {
        return;
    }
    for (i = 0; i < publish->n; ++i) {
        const kvcl_dir_loc_t *loc = &publish->recs[i].loc;
        if (!kvcl_loc_is_nvme(loc) && is_current(publish, i) && !(owner->array[loc->slot].note & KVCL_NOTE_LISTED)) {
            (void)!kvcl_owner_withdraw(owner, loc->slot, KVCL_SLOT_FREE, &gone);
        }
    }
}

/* What was withdrawn between the send and now must not stay in the directory. */
static void remove_withdrawn(kvcl_publish_t *publish)
{
    kvcl_store_rec_t gone;
    size_t           i;

    for (i = 0; publish->is_publish && (i < publish->n); ++i) {
        if (!is_current(publish, i)) {
            gone            = publish->recs[i];
            gone.loc.source = 0;
            kvcl_store_notify_removed(publish->store, &gone, 1);
        }
    }
}

static bool once_more(kvcl_publish_t *publish);

static void went_wrong(kvcl_publish_t *publish, size_t i, kvcl_status_t status)
{
    if (publish->status == KVCL_OK) {
        publish->status = status;
        publish->wrong  = i;
    }
    if (publish->each != NULL) {
        publish->each[i] = status;
    }
}

/* A block that one home lists is found, though the other is silent: that one is told later (republish.c). */
static void judge_silence(kvcl_publish_t *publish)
{
    size_t i;

    for (i = 0; publish->is_publish && (i < publish->n); ++i) {
        if (publish->heard[i] == HEARD_SILENCE) {
            kvcl_req_why(&publish->req, "a home of its keys does not answer, and they have no other that does: raise "
                         "the store's replicas to 2, or put them again later");
            went_wrong(publish, i, KVCL_ERR_TIMED_OUT);
        }
    }
}

static void finish(kvcl_publish_t *publish)
{
    if (once_more(publish)) {
        return;
    }
    judge_silence(publish);
    kvcl_list_del(&publish->link);
    withdraw_unlisted(publish);
    remove_withdrawn(publish);
    --publish->store->ops;
    kvcl_req_complete(&publish->req, publish->status);
}

/* A home's word on one block. A full set of copies elsewhere is as good; a home that knows me no more, or that is gone,
 * just does not list it. */
static void take_result(kvcl_publish_t *publish, size_t i, kvcl_status_t status)
{
    if (publish->is_publish && ((status == KVCL_OK) || (status == KVCL_ERR_EXISTS))) {
        publish->heard[i] |= HEARD_LISTED;
    }
    if ((status == KVCL_ERR_NO_SPACE) || (status == KVCL_ERR_NO_MEMORY) || (status == KVCL_ERR_TIMED_OUT) ||
        (status == KVCL_ERR_CANCELED) || (status == KVCL_ERR_SHUTDOWN)) {
        went_wrong(publish, i, status);
    } else if ((status != KVCL_OK) && (status != KVCL_ERR_EXISTS)) {
        kvcl_log_debug("a block is not listed: %s", kvcl_status_text(status));
    } else if ((status == KVCL_OK) && is_current(publish, i) && !kvcl_loc_is_nvme(&publish->recs[i].loc)) {
        publish->owner->array[publish->recs[i].loc.slot].note |= KVCL_NOTE_LISTED;
    }
}

/* Lock held. A copy of what is listed no more: the key was removed while the bytes were on their way, or has others
 * now. So it is given up; remove_withdrawn() tells the home that has listed it. */
static void refused(kvcl_publish_t *publish, size_t i)
{
    kvcl_store_rec_t gone;

    kvcl_assert_locked(publish->store->ctx);
    if (!publish->store->closing && is_current(publish, i) && !kvcl_loc_is_nvme(&publish->recs[i].loc)) {
        (void)!kvcl_owner_withdraw(publish->owner, publish->recs[i].loc.slot, KVCL_SLOT_FREE, &gone);
    }
}

/* A home that does not answer. A publish goes on without it if the other home lists the block. A removal needs the
 * word of the key's home; its backup hears of it from there, and from the owners. */
static void on_silence(kvcl_publish_t *publish, const kvcl_rpc_t *rpc)
{
    kvcl_store_h store = rpc->store;
    kvcl_key_t   key;
    uint32_t     i;

    for (i = 0; i < rpc->n; ++i) {
        if (publish->is_publish) {
            publish->heard[rpc->order[i]] |= HEARD_SILENCE;
            store->ranks[rpc->rank].missed = true;
            continue;
        }
        memcpy(&key, rpc->payload + ((size_t)i * sizeof(key)), sizeof(key));
        if (kvcl_shard_backup(kvcl_store_shards(store), &key) != rpc->rank) {
            kvcl_req_why(&publish->req, "rank %u, the home of some keys, does not answer: what it lists of them may be "
                         "found again; remove them once more when it answers", rpc->rank);
            went_wrong(publish, rpc->order[i], KVCL_ERR_TIMED_OUT);
        }
    }
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_publish_t *publish = rpc->arg;
    kvcl_dir_msg_t reply;
    uint32_t       i;

    if (rpc->silent) {
        on_silence(publish, rpc);
        if (--publish->outstanding == 0) {
            finish(publish);
        }
        return;
    }
    if ((status == KVCL_OK) && publish->is_publish) {
        status = kvcl_dir_msg_unpack(&reply, data, len); /* did so before: it fits */
    }
    publish->again = publish->again || (rpc->store->incarnations[rpc->rank] == 0);
    for (i = 0; i < rpc->n; ++i) {
        kvcl_status_t one = ((status == KVCL_OK) && publish->is_publish) ? kvcl_dir_msg_status(&reply, i) : status;
        publish->lagging = publish->lagging || ((one == KVCL_ERR_STALE) && is_current(publish, rpc->order[i]));
        if ((status == KVCL_OK) && (one == KVCL_ERR_NOT_FOUND)) {
            refused(publish, rpc->order[i]);
        } else {
            take_result(publish, rpc->order[i], one);
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
    kvcl_store_timer_stop(publish->pause);
    publish->pause = NULL;
    ++publish->outstanding;
    kvcl_rpcs_stop(&publish->rpcs, status);
    if (--publish->outstanding == 0) {
        finish(publish);
    }
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_publish_t *publish = kvcl_container_of((kvcl_req_t *)req, kvcl_publish_t, req);
    const char           *call    = !publish->is_publish ? "kvcl_store_remove"
                                    : ((publish->owner != NULL) && (publish->owner->pool != NULL))
                                          ? "kvcl_store_put" : "kvcl_store_publish";

    if (publish->is_publish && (publish->wrong < publish->n)) {
        snprintf(buf, cap, "%s of %zu blocks, the first that failed is number %zu of those to be listed, key "
                 "%016llx...", call, publish->n, publish->wrong, kvcl_key_prefix(&publish->recs[publish->wrong].key));
    } else {
        snprintf(buf, cap, "%s of %zu blocks", call, publish->n);
    }
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    if (status == KVCL_ERR_NO_SPACE) {
        snprintf(buf, cap, "its home's part of the directory is full, so it is not listed: open the stores with more "
                 "dir_entries");
        return true;
    }
    (void)req;
    return kvcl_store_explain(status, buf, cap);
}

/* It is over inside the call: the whole sentence, for the request that is made of it. */
static void say(const kvcl_publish_t *publish, kvcl_status_t status)
{
    char what[256], why[256];

    describe(&publish->req, what, sizeof(what));
    if (!explain(&publish->req, status, why, sizeof(why))) {
        snprintf(why, sizeof(why), "%s", kvcl_status_text(status));
    }
    (void)kvcl_fail(status, "%s: %s", what, why);
}

static const kvcl_req_class_t publish_class = {
    .name = "store-publish", .stop = stop, .release = release, .describe = describe, .explain = explain};

/* To each home its part, unposted but for mine. keys: recs of a publish, keys of a remove. */
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
    publish->wrong      = n;
    publish->heard      = (uint8_t *)&publish->recs[n];
    memset(publish->heard, 0, n);
    if (owner != NULL) {
        memcpy(publish->recs, keys, n * sizeof(publish->recs[0]));
    }
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

/* The part of the table that is mine. Lock held. */
static void apply_here(kvcl_publish_t *publish, const void *keys)
{
    kvcl_store_h   store  = publish->store;
    const uint32_t *order = publish->scatter.order + publish->scatter.starts[store->me];
    size_t         n      = publish->scatter.starts[store->me + 1] - publish->scatter.starts[store->me], i;
    kvcl_status_t  status;

    if (!publish->is_publish) {
        kvcl_home_remove_keys(store, keys, order, n);
        return;
    }
    for (i = 0; i < n; ++i) {
        const kvcl_store_rec_t *rec = &publish->recs[order[i]];
        if (!is_current(publish, order[i])) {
            continue;
        }
        status = kvcl_home_list(&store->home, &rec->key, &rec->loc);
        if (status == KVCL_ERR_NOT_FOUND) {
            refused(publish, order[i]);
        } else {
            take_result(publish, order[i], status);
        }
    }
}

/* Is a home not even asked? One that is suspected, where blocks have two homes; one that is excluded. */
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
            on_silence(publish, rpc);
            kvcl_rpc_discard(rpc);
        } else {
            kvcl_rpc_post_watched(rpc, timeout_ns, &publish->rpcs);
        }
    }
    if (--publish->outstanding == 0) {
        finish(publish);
    }
}

/* Lock held. False: it could not be. */
static bool send_again(kvcl_publish_t *publish)
{
    kvcl_status_t status;

    kvcl_assert_locked(publish->store->ctx);
    publish->again = false;
    kvcl_scatter_free(&publish->scatter);
    status = scatter_out(publish, publish->recs, sizeof(publish->recs[0]));
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
    if (!publish->is_publish || (!publish->again && !publish->lagging) || (publish->status != KVCL_OK) ||
        publish->store->closing || (++publish->rounds >= ROUNDS_MAX)) {
        return false;
    }
    if (publish->lagging) {
        publish->lagging = false;
        publish->pause   = kvcl_store_timer_start(publish->store, LAG_PAUSE_NS, after_pause, publish);
        return publish->pause != NULL;
    }
    return send_again(publish);
}

/* No lock held; owns the publish. */
static kvcl_status_t start(kvcl_publish_t *publish, const void *keys, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_store_h   store = publish->store;
    kvcl_context_h ctx   = store->ctx;
    kvcl_status_t  status;

    kvcl_lock(ctx);
    apply_here(publish, keys);
    kvcl_scatter_path(store, &publish->scatter, &publish->timing);
    if (kvcl_list_is_empty(&publish->rpcs)) {
        withdraw_unlisted(publish);
        kvcl_unlock(ctx);
        status = publish->status;
        if (status == KVCL_OK) {
            kvcl_timing_end(&ctx->latency, &publish->timing);
        } else {
            say(publish, status);
        }
        free_publish(publish);
        return kvcl_req_instant(ctx, status, p->cb, p->cb_arg, req_p);
    }
    status = kvcl_req_start(&publish->req, ctx, &publish_class, p->timeout_ns, p->cb, p->cb_arg, req_p != NULL);
    if (status == KVCL_OK) {
        publish->req.timing = publish->timing;
        ++store->ops;
        kvcl_list_add_tail(&store->publishes, &publish->link);
        if (req_p != NULL) {
            *req_p = kvcl_req_handle(&publish->req);
        }
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

kvcl_status_t kvcl_store_remove(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
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
