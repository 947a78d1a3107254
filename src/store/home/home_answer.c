/*
 * The home's side: answers to queries about its keys, and the handling of withdrawals of this rank's own blocks.
 *
 * Runs in message handlers with the engine lock held; only the holder of that lock writes the table. All input is
 * hostile: counts are checked against lengths, records by dir_wire, slots by their generation and key.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "store/home/home_answer.h"
#include "store/home/ranks.h"
#include "store/home/follow_views.h"
#include "store/pool/publish_own.h"
#include "store/store.h"

#include <stdlib.h>

void kvcl_rpc_answer(kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, kvcl_status_t status, uint32_t n,
                     const void *data, size_t len)
{
    kvcl_msg_dir_answer_t out = {.msg    = {.type = KVCL_MSG_DIR_ANSWER, .flags = in->msg.flags, .op = in->msg.op},
                                 .status = status, .n = n};

    if (in->msg.op == 0) {
        return; /* the sender expects no answer */
    }
    if (kvcl_peer_post(peer, &out.msg, sizeof(out), data, len) != KVCL_OK) {
        kvcl_log_debug("an answer of the directory to %s is dropped: the peer has failed", peer->name);
    }
}

void *kvcl_home_scratch(kvcl_context_h ctx, size_t len)
{
    kvcl_store_room_t *room = kvcl_store_room(ctx);
    uint8_t           *more;

    kvcl_assert_locked(ctx);
    if (len > room->scratch_room) {
        more = realloc(room->scratch, len);
        if (more == NULL) {
            return NULL;
        }
        room->scratch      = more;
        room->scratch_room = len;
    }
    return room->scratch;
}

/* PUBLISH, REMOVE and LOOKUP are answered by the home's pure step (dir/home.h). */
bool kvcl_home_on_dir(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                      size_t len)
{
    kvcl_dir_msg_t    request;
    kvcl_home_event_t event = {.type = KVCL_HOME_REQUEST, .u.request = &request};
    kvcl_home_out_t   out;
    kvcl_status_t     status;

    if ((kvcl_dir_msg_unpack(&request, data, len) != KVCL_OK) || ((uint8_t)request.type != in->msg.flags) ||
        (request.n != in->n) || (request.n > KVCL_RPC_KEYS_MAX)) {
        return false;
    }
    event.no_lease = (request.type == KVCL_DIR_MSG_PUBLISH) && !kvcl_views_may_own(store);
    out.cap        = kvcl_dir_reply_bytes_max(request.type, request.n);
    out.buf        = kvcl_home_scratch(store->ctx, out.cap);
    status         = (out.buf != NULL) ? kvcl_home_step(&store->home, &event, &out) : KVCL_ERR_NO_MEMORY;
    kvcl_rpc_answer(peer, in, status, request.n, (status == KVCL_OK) ? out.buf : NULL,
                    (status == KVCL_OK) ? out.len : 0);
    return true;
}

static uint8_t presence(kvcl_store_h store, const kvcl_key_t *key, uint32_t requester)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n = kvcl_dir_read(&store->table.view, key, locs), i;
    uint8_t        flags = 0;

    for (i = 0; i < n; ++i) {
        if (kvcl_store_loc_lives(store, &locs[i])) {
            flags |= KVCL_PRESENT_SOMEWHERE | ((locs[i].rank == requester) ? KVCL_PRESENT_YOURS : 0);
        }
    }
    return flags;
}

bool kvcl_home_on_present(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len)
{
    enum { AHEAD = 16 };
    const kvcl_key_t *keys  = data;
    uint8_t          *flags = kvcl_home_scratch(store->ctx, in->n + 1ul);
    uint32_t         i;

    (void)len;
    if (flags == NULL) {
        kvcl_rpc_answer(peer, in, KVCL_ERR_NO_MEMORY, 0, NULL, 0);
        return true;
    }
    for (i = 0; i < in->n + AHEAD; ++i) {
        if (i < in->n) {
            kvcl_dir_prefetch(&store->table.view, &keys[i]);
        }
        if (i >= AHEAD) {
            flags[i - AHEAD] = presence(store, &keys[i - AHEAD], in->rank);
        }
    }
    store->home.n_looked_up += in->n;
    kvcl_rpc_answer(peer, in, KVCL_OK, in->n, flags, in->n);
    return true;
}

bool kvcl_home_on_table(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len)
{
    uint8_t buf[KVCL_REGION_DESC_MAX];
    size_t  used = kvcl_region_pack(store->table_region, KVCL_READ, buf, sizeof(buf));

    (void)data;
    (void)len;
    kvcl_rpc_answer(peer, in, (used != 0) ? KVCL_OK : KVCL_ERR_UNSUPPORTED, 0, buf, used);
    return true;
}

/* ---- notices to homes, without an answer: blocks were removed, or have another record ---- */

static void notify_home(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_store_rec_t *recs, const uint32_t *order,
                        uint32_t n, kvcl_dir_msg_type_t what)
{
    kvcl_msg_dir_request_t out   = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = (uint8_t)what},
                                .store = store->id, .n = n, .rank = store->me};
    size_t                 room = kvcl_dir_request_bytes(what, n);
    uint8_t                *buf = kvcl_home_scratch(store->ctx, room);
    kvcl_dir_pack_t        pack;
    kvcl_status_t          status;
    uint32_t               i;

    if ((peer->state != KVCL_PEER_READY) || (buf == NULL)) {
        return; /* an entry is a hint: a reader compares its generation, which has changed */
    }
    status = kvcl_dir_pack_begin(&pack, buf, room, what, kvcl_store_shards(store)->view, 0);
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = kvcl_dir_pack_add(&pack, &recs[order[i]].key, &recs[order[i]].loc);
    }
    if ((status != KVCL_OK) ||
        (kvcl_peer_post(peer, &out.msg, sizeof(out), buf, kvcl_dir_pack_end(&pack)) != KVCL_OK)) {
        kvcl_log_debug("a notice of %u blocks to %s could not be sent", n, peer->name);
    }
}

static void notify_table(kvcl_store_h store, const kvcl_store_rec_t *rec, kvcl_dir_msg_type_t what)
{
    kvcl_status_t status = (what == KVCL_DIR_MSG_PUBLISH) ? kvcl_home_list(&store->home, &rec->key, &rec->loc)
                                                          : kvcl_dir_table_remove(&store->table, &rec->key, &rec->loc);

    (void)status;
}

/* The homes do not answer. */
static void notify_homes(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n, kvcl_dir_msg_type_t what)
{
    kvcl_scatter_t scatter;
    uint32_t       home, from, to, some;

    if ((n == 0) || (kvcl_scatter_recs(store, recs, n, &scatter) != KVCL_OK)) {
        return;
    }
    for (home = 0; home < store->n_ranks; ++home) {
        to = scatter.starts[home + 1];
        for (from = scatter.starts[home]; from < to; from += some) {
            some = (to - from > KVCL_RPC_KEYS_MAX) ? KVCL_RPC_KEYS_MAX : to - from;
            if (home != store->me) {
                notify_home(store, store->ranks[home].peer, recs, scatter.order + from, some, what);
            } else {
                uint32_t i;
                for (i = from; i < from + some; ++i) {
                    notify_table(store, &recs[scatter.order[i]], what);
                }
            }
        }
    }
    kvcl_scatter_free(&scatter);
}

void kvcl_store_notify_removed(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n)
{
    kvcl_assert_locked(store->ctx);
    notify_homes(store, recs, n, KVCL_DIR_MSG_REMOVE);
}

/* ---- removal of keys: the home drops its entries and notifies the owners ---- */

/* The local owner of the block that the record names; NULL: the block has another generation now. */
static kvcl_owner_t *owner_of(kvcl_store_h store, const kvcl_store_rec_t *rec)
{
    kvcl_owner_t *owner = kvcl_owner_by_cache_id(store, rec->loc.cache);
    bool         still  = (owner != NULL) && (rec->loc.incarnation == store->incarnation) &&
                          (kvcl_slots_check(&owner->slots, rec->loc.slot, rec->loc.gen, &rec->key) == KVCL_OK);

    return still ? owner : NULL;
}

/* A rank has removed the key: this rank's block of it is no longer published. */
static void revoke(kvcl_store_h store, const kvcl_store_rec_t *rec)
{
    kvcl_owner_t     *owner = owner_of(store, rec);
    kvcl_store_rec_t removed;

    store->notify->lost(store, &rec->key);
    if (owner == NULL) {
        return;
    }
    if (kvcl_owner_withdraw(owner, rec->loc.slot, KVCL_SLOT_FREE, &removed) != KVCL_OK) {
        kvcl_log_debug("a removed block could not be withdrawn: %s", kvcl_last_error());
    } else if (kvcl_store_two_homes(store, removed.loc.flags)) {
        kvcl_store_notify_removed(store, &removed, 1); /* the sender of the notice is only one of the two homes */
    }
}

/* ---- copies that a reader found corrupt: the owner checks its block ---- */

/* Wrong means the same other checksum twice: a failing device yields a new one each time. */
static bool is_wrong(const kvcl_owner_t *owner, uint32_t slot)
{
    uint64_t sum = kvcl_store_block_sum(owner->cache, slot);

    return (sum != owner->array[slot].sum) && (kvcl_store_block_sum(owner->cache, slot) == sum);
}

/* Drops a local block whose own bytes are wrong. A pinned block of the store's own cache may be read in place: it stays
 * until it is unpinned, but is no longer found. A copy of the key in the tier is not touched. */
static void drop_corrupt(kvcl_owner_t *owner, uint32_t slot, const kvcl_store_rec_t *rec)
{
    kvcl_store_rec_t removed = *rec;

    if (owner->managed && (owner->pool == NULL) && (owner->pins[slot] != 0)) {
        owner->array[slot].note = (uint8_t)((owner->array[slot].note & ~KVCL_NOTE_LISTED) | KVCL_NOTE_CORRUPT);
    } else if (kvcl_owner_withdraw(owner, slot, KVCL_SLOT_FREE, &removed) != KVCL_OK) {
        return;
    }
    kvcl_store_notify_removed(owner->store, &removed, 1);
}

/* A reader got bytes that do not match rec, the record of the directory. If the directory has a wrong record, the right
 * one is published again. If the local block is wrong, it is dropped. If the transfer or the reader is at fault,
 * nothing changes. */
static void check_block(kvcl_store_h store, const kvcl_store_rec_t *rec)
{
    const uint32_t    slot   = rec->loc.slot;
    kvcl_owner_t      *owner = owner_of(store, rec);
    kvcl_slot_t       *at    = (owner != NULL) ? &owner->array[slot] : NULL;
    kvcl_store_rec_t  local  = *rec;
    bool              summed = (at != NULL) && (at->flags & KVCL_LOC_SUMMED);

    if ((at == NULL) || (at->note & KVCL_NOTE_CORRUPT) || owner->cache->closing) {
        return;
    }
    local.loc.flags    = at->flags;
    local.loc.len      = (uint32_t)kvcl_owner_bytes(owner);
    local.loc.checksum = at->sum;
    local.loc.source   = kvcl_dir_loc_tag(&local.loc); /* the home takes it only if it still lists the block */
    if (((at->flags ^ rec->loc.flags) & KVCL_LOC_SUMMED) || (summed && (at->sum != rec->loc.checksum))) {
        notify_homes(store, &local, 1, KVCL_DIR_MSG_PUBLISH);
    } else if (summed && is_wrong(owner, slot)) {
        local.loc.source = 0;
        drop_corrupt(owner, slot, &local);
    }
}

void kvcl_store_notify_owner(kvcl_store_h store, const kvcl_store_rec_t *rec, bool corrupt)
{
    kvcl_msg_withdraw_t out   = {.msg = {.type = KVCL_MSG_WITHDRAW, .flags = corrupt ? KVCL_WITHDRAW_CORRUPT : 0},
                                .store = store->id, .n = 1};
    kvcl_peer_t         *peer = store->ranks[rec->loc.rank].peer;

    kvcl_assert_locked(store->ctx);
    if ((rec->loc.rank == store->me) && corrupt) {
        check_block(store, rec);
    } else if (rec->loc.rank == store->me) {
        revoke(store, rec);
    } else if ((peer->state == KVCL_PEER_READY) &&
               (kvcl_peer_post(peer, &out.msg, sizeof(out), rec, sizeof(*rec)) != KVCL_OK)) {
        kvcl_log_debug("a withdrawal of a block could not be sent to %s: the peer has failed", peer->name);
    }
}

bool kvcl_home_remove_keys(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n)
{
    const bool       waits = (store->views != NULL);
    bool             gone  = true;
    kvcl_dir_loc_t   locs[KVCL_DIR_LOCS_MAX];
    kvcl_store_rec_t rec;
    unsigned         n_locs, j;
    size_t           i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < n; ++i) {
        rec.key = keys[(order != NULL) ? order[i] : i];
        n_locs  = kvcl_home_remove(&store->home, &rec.key, waits, locs);
        for (j = 0; j < n_locs; ++j) {
            rec.loc = locs[j];
            gone    = gone && (!waits || (rec.loc.rank == store->me));
            kvcl_store_notify_owner(store, &rec, false);
        }
    }
    store->notify->removed(store, keys, order, n);
    return gone;
}

bool kvcl_home_on_remove_keys(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                              size_t len)
{
    const kvcl_key_t *keys  = data;
    kvcl_status_t    status = KVCL_OK;
    uint32_t         i;

    (void)len;
    for (i = 0; (store->views != NULL) && (i < in->n) && (status == KVCL_OK); ++i) {
        status = kvcl_home_may_remove(&store->home, &keys[i], !kvcl_views_may_own(store), store->replicas > 1);
    }
    if ((status == KVCL_OK) && !kvcl_home_remove_keys(store, keys, NULL, in->n)) {
        status = KVCL_ERR_STALE; /* the same request comes again */
    }
    kvcl_rpc_answer(peer, in, status, in->n, NULL, 0);
    return true;
}

void kvcl_home_on_withdraw(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len)
{
    const kvcl_msg_withdraw_t *in   = (const kvcl_msg_withdraw_t *)msg;
    kvcl_store_h              store = kvcl_store_by_id(ctx, in->store);
    kvcl_store_rec_t          rec;
    const bool                corrupt = (in->msg.flags & KVCL_WITHDRAW_CORRUPT) != 0;
    const uint32_t            first   = 0;
    uint32_t                  i;

    (void)hdr_len;
    if ((in->n > (corrupt ? 1 : KVCL_RPC_KEYS_MAX)) || (len != (size_t)in->n * sizeof(rec))) {
        kvcl_am_malformed(ctx, peer, "a withdrawal whose length does not match its count");
        return;
    }
    for (i = 0; (store != NULL) && (i < in->n); ++i) {
        memcpy(&rec, (const char *)data + (i * sizeof(rec)), sizeof(rec));
        if (rec.loc.rank == store->me) {
            kvcl_store_notify_owner(store, &rec, corrupt);
            if (!corrupt && (store->views != NULL)) { /* the home waits for it */
                rec.loc.source = 0;
                notify_home(store, peer, &rec, &first, 1, KVCL_DIR_MSG_REMOVE);
            }
        }
    }
}
