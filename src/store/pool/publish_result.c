/*
 * The results of a publish or a remove (publish_result.h): what the answers of the homes mean for each block, the end
 * of blocks that no home lists, and the error sentences.
 *
 * Owns nothing: the state is kvcl_publish_t. Invariant: a block of the pool whose publish failed is either listed by a
 * home or withdrawn. Engine lock held.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "member/lease.h"
#include "store/home/home_answer.h"
#include "store/home/ranks.h"
#include "store/home/follow_views.h"
#include "store/pool/publish.h"
#include "store/pool/publish_result.h"
#include "store/words.h"

#include <stdio.h>

#define LAG_PAUSE_NS (10 * KVCL_NS_PER_MS)

/* A removal with views asks again after a tenth of a millisecond, then after four times as long each time: the ranks
 * with the blocks mostly drop them at once, and each round sends them another notice. */
#define DROP_PAUSE_NS      (KVCL_NS_PER_MS / 10)
#define DROP_PAUSE_MOST_NS (200 * KVCL_NS_PER_MS)

bool kvcl_publish_is_current(const kvcl_publish_t *publish, size_t i)
{
    const kvcl_store_rec_t *rec = &publish->recs[i];

    if (!publish->is_publish || (publish->owner == NULL)) {
        return false;
    }
    return kvcl_loc_is_nvme(&rec->loc) ? publish->store->notify->tier_holds(publish->store, &rec->key, &rec->loc)
                                       : (kvcl_slots_gen(&publish->owner->slots, rec->loc.slot) == rec->loc.gen);
}

void kvcl_publish_drop_unlisted(kvcl_publish_t *publish)
{
    kvcl_owner_t     *owner = publish->owner;
    kvcl_store_rec_t removed;
    size_t           i;

    kvcl_assert_locked(publish->store->ctx);
    if (!publish->is_publish || (owner == NULL) || (owner->pool == NULL) || publish->store->closing ||
        (publish->status == KVCL_OK)) {
        return;
    }
    for (i = 0; i < publish->n; ++i) {
        const kvcl_dir_loc_t *loc = &publish->recs[i].loc;
        if (!kvcl_loc_is_nvme(loc) && kvcl_publish_is_current(publish, i) &&
            !(owner->array[loc->slot].note & KVCL_NOTE_LISTED)) {
            (void)!kvcl_owner_withdraw(owner, loc->slot, KVCL_SLOT_FREE, &removed);
        }
    }
}

/* Blocks that were withdrawn since the send must not stay in the directory. */
static void remove_withdrawn(kvcl_publish_t *publish)
{
    kvcl_store_rec_t removed;
    size_t           i;

    for (i = 0; publish->is_publish && (i < publish->n); ++i) {
        if (!kvcl_publish_is_current(publish, i)) {
            removed            = publish->recs[i];
            removed.loc.source = 0;
            kvcl_store_notify_removed(publish->store, &removed, 1);
        }
    }
}

static void set_failed(kvcl_publish_t *publish, size_t i, kvcl_status_t status)
{
    if (publish->status == KVCL_OK) {
        publish->status = status;
        publish->failed = i;
    }
    if (publish->each != NULL) {
        publish->each[i] = status;
    }
}

/* A block that one home lists is found, though its other home is silent; that home gets the record later
 * (republish.c). */
static void judge_silence(kvcl_publish_t *publish)
{
    size_t i;

    for (i = 0; publish->is_publish && (i < publish->n); ++i) {
        if (publish->answers[i] == KVCL_PUBLISH_SILENCE) {
            kvcl_req_why(&publish->req, "a home of its keys does not answer, and they have no other that does: raise "
                         "the store's replicas to 2, or put them again later");
            set_failed(publish, i, KVCL_ERR_TIMED_OUT);
        }
    }
}

bool kvcl_publish_is_early(kvcl_publish_t *publish, uint32_t rank, kvcl_status_t status)
{
    const struct kvcl_store *store = publish->store;

    if (store->views == NULL) {
        return false;
    }
    publish->no_quorum = publish->no_quorum || (status == KVCL_ERR_NO_QUORUM);
    return (status == KVCL_ERR_NO_QUORUM) || (status == KVCL_ERR_STALE) ||
           ((status != KVCL_OK) && (rank != store->me) && (store->incarnations[rank] == 0));
}

bool kvcl_publish_is_unheard(kvcl_publish_t *publish)
{
    bool   is = false;
    size_t i;

    for (i = 0; (publish->store->views != NULL) && publish->is_publish && (i < publish->n); ++i) {
        if (publish->answers[i] == KVCL_PUBLISH_SILENCE) {
            publish->answers[i] = 0;
            is                  = true;
        }
    }
    return is;
}

uint64_t kvcl_publish_pause_ns(kvcl_publish_t *publish)
{
    uint64_t next_ns = publish->drop_pause_ns * 4;

    if (publish->is_publish) {
        return LAG_PAUSE_NS;
    }
    next_ns                = (next_ns == 0) ? DROP_PAUSE_NS : next_ns;
    publish->drop_pause_ns = (next_ns < DROP_PAUSE_MOST_NS) ? next_ns : DROP_PAUSE_MOST_NS;
    return publish->drop_pause_ns;
}

void kvcl_publish_give_up(kvcl_publish_t *publish, kvcl_status_t status)
{
    size_t i;

    for (i = 0; (publish->each != NULL) && (i < publish->n); ++i) {
        if ((publish->answers[i] & KVCL_PUBLISH_LISTED) == 0) {
            publish->each[i] = status;
        }
    }
}

void kvcl_publish_judge_exclusion(kvcl_publish_t *publish)
{
    if ((publish->again || publish->lagging) && (publish->status == KVCL_OK) &&
        kvcl_member_is_excluded(publish->store->ctx)) {
        publish->status = KVCL_ERR_STALE;
        kvcl_publish_give_up(publish, KVCL_ERR_STALE);
    }
}

/* A put that could not reach a quorum has not waited for a slow rank. */
static void judge_quorum(kvcl_publish_t *publish)
{
    size_t i;

    if ((publish->store->views == NULL) || (publish->status != KVCL_ERR_TIMED_OUT) ||
        (!publish->no_quorum && kvcl_views_may_own(publish->store))) {
        return;
    }
    publish->status = KVCL_ERR_NO_QUORUM;
    for (i = 0; (publish->each != NULL) && (i < publish->n); ++i) {
        publish->each[i] = (publish->each[i] == KVCL_ERR_TIMED_OUT) ? KVCL_ERR_NO_QUORUM : publish->each[i];
    }
}

void kvcl_publish_conclude(kvcl_publish_t *publish)
{
    kvcl_assert_locked(publish->store->ctx);
    judge_silence(publish);
    judge_quorum(publish);
    kvcl_publish_drop_unlisted(publish);
    remove_withdrawn(publish);
}

/* Lock held. The block counts as listed if each home that has answered lists it: where one is full of other copies,
 * lookups there do not find this one. */
static void note_listed(kvcl_publish_t *publish, size_t i)
{
    uint8_t *note = &publish->owner->array[publish->recs[i].loc.slot].note;

    kvcl_assert_locked(publish->store->ctx);
    *note = (uint8_t)((publish->answers[i] & KVCL_PUBLISH_FULL) ? *note & ~KVCL_NOTE_LISTED : *note | KVCL_NOTE_LISTED);
}

/* KVCL_ERR_EXISTS, a full set of copies elsewhere, is as good as a listing for the call. A home that no longer knows
 * this rank, or that has failed, just does not list the block. */
void kvcl_publish_take(kvcl_publish_t *publish, size_t i, kvcl_status_t status)
{
    if (publish->is_publish && ((status == KVCL_OK) || (status == KVCL_ERR_EXISTS))) {
        publish->answers[i] |= KVCL_PUBLISH_LISTED;
    }
    if (publish->is_publish && (status == KVCL_ERR_EXISTS)) {
        publish->answers[i] |= KVCL_PUBLISH_FULL;
    }
    if ((status == KVCL_ERR_NO_SPACE) || (status == KVCL_ERR_NO_MEMORY) || (status == KVCL_ERR_TIMED_OUT) ||
        (status == KVCL_ERR_CANCELED) || (status == KVCL_ERR_SHUTDOWN)) {
        set_failed(publish, i, status);
    } else if ((status != KVCL_OK) && (status != KVCL_ERR_EXISTS)) {
        kvcl_log_debug("a block is not listed: %s", kvcl_status_text(status));
    } else if (kvcl_publish_is_current(publish, i) && !kvcl_loc_is_nvme(&publish->recs[i].loc)) {
        note_listed(publish, i);
    }
}

bool kvcl_publish_may_fail(const struct kvcl_store *store, const kvcl_owner_t *owner, uint32_t slot)
{
    const kvcl_publish_t *publish;
    size_t               i;

    kvcl_assert_locked(store->ctx);
    if (owner->array[slot].note & KVCL_NOTE_LISTED) {
        return false;
    }
    kvcl_list_foreach (publish, &store->publishes, kvcl_publish_t, link) {
        for (i = 0; (publish->owner == owner) && (i < publish->n); ++i) {
            if ((publish->recs[i].loc.slot == slot) && kvcl_publish_is_current(publish, i)) {
                return true;
            }
        }
    }
    return false;
}

/* The key was removed while the copy was made, or has other bytes now. remove_withdrawn() notifies a home that has
 * listed the block. */
void kvcl_publish_refused(kvcl_publish_t *publish, size_t i)
{
    kvcl_store_rec_t removed;

    kvcl_assert_locked(publish->store->ctx);
    if (!publish->store->closing && kvcl_publish_is_current(publish, i) && !kvcl_loc_is_nvme(&publish->recs[i].loc)) {
        (void)!kvcl_owner_withdraw(publish->owner, publish->recs[i].loc.slot, KVCL_SLOT_FREE, &removed);
    }
}

/* A publish continues if the other home lists the block. A removal needs the answer of the key's home; its backup is
 * notified by the home and by the owners. */
void kvcl_publish_silence(kvcl_publish_t *publish, const kvcl_rpc_t *rpc)
{
    kvcl_store_h store = rpc->store;
    kvcl_key_t   key;
    uint32_t     i;

    for (i = 0; i < rpc->n; ++i) {
        if (publish->is_publish) {
            publish->answers[rpc->order[i]] |= KVCL_PUBLISH_SILENCE;
            store->ranks[rpc->rank].missed = true;
            continue;
        }
        memcpy(&key, rpc->payload + ((size_t)i * sizeof(key)), sizeof(key));
        if (store->views != NULL) { /* it is a home no more, soon, or no quorum is left */
            publish->lagging = true;
        } else if (kvcl_shard_backup(kvcl_store_shards(store), &key) != rpc->rank) {
            kvcl_req_why(&publish->req, "rank %u, the home of some keys, does not answer: its entries of them may be "
                         "found again: remove them again when it answers", rpc->rank);
            set_failed(publish, rpc->order[i], KVCL_ERR_TIMED_OUT);
        }
    }
}

void kvcl_publish_describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_publish_t *publish = kvcl_container_of((kvcl_req_t *)req, kvcl_publish_t, req);
    const char           *call    = !publish->is_publish ? "kvcl_store_remove"
                                    : ((publish->owner != NULL) && (publish->owner->pool != NULL))
                                          ? "kvcl_store_put" : "kvcl_store_publish";

    if (publish->is_publish && (publish->failed < publish->n)) {
        snprintf(buf, cap, "%s of %zu blocks, the first that failed is number %zu of those to be listed, key "
                 "%016llx...", call, publish->n, publish->failed, kvcl_key_prefix(&publish->recs[publish->failed].key));
    } else {
        snprintf(buf, cap, "%s of %zu blocks", call, publish->n);
    }
}

bool kvcl_publish_explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    if (status == KVCL_ERR_NO_SPACE) {
        snprintf(buf, cap, "its home's part of the directory is full, so it is not listed: open the stores with more "
                 "dir_entries");
        return true;
    }
    (void)req;
    return kvcl_store_explain(status, buf, cap);
}

void kvcl_publish_set_error(const kvcl_publish_t *publish, kvcl_status_t status)
{
    char what[256], why[256];

    kvcl_publish_describe(&publish->req, what, sizeof(what));
    if (!kvcl_publish_explain(&publish->req, status, why, sizeof(why))) {
        snprintf(why, sizeof(why), "%s", kvcl_status_text(status));
    }
    (void)kvcl_fail(status, "%s: %s", what, why);
}
