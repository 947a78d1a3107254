/*
 * Republishing: a home that was silent or excluded receives the records it has missed when it takes part again. A
 * publish without its answer is listed at the key's other home only (publish.c), so a lookup at this home would miss.
 *
 * Walks the slots of all owners, SLOTS_MAX at a time. Its state is the position of the walk and a mark for each rank.
 * The home does not answer: a block that it cannot list is a miss there. Blocks that are only in the second tier are
 * not republished. Engine lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/home/home_answer.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/pool/republish.h"
#include "store/store.h"

#include <stdlib.h>

enum { SLOTS_MAX = 4096, RECS_MAX = 512 };
#define STEP_NS (KVCL_NS_PER_MS / 2)

static void step(void *arg);

static void wake(kvcl_store_h store)
{
    if (store->republish_timer == NULL) {
        store->republish_timer = kvcl_store_timer_start(store, STEP_NS, step, store);
    }
}

/* Is the rank a home of this published block? */
static bool should_list(const struct kvcl_store *store, const kvcl_slot_t *slot, uint32_t rank)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(store);

    return (slot->state == KVCL_SLOT_PUBLISHED) && !(slot->note & KVCL_NOTE_CORRUPT) &&
           ((kvcl_shard_home(map, &slot->key) == rank) ||
            (kvcl_store_two_homes(store, slot->flags) && (kvcl_shard_backup(map, &slot->key) == rank)));
}

/* Collects the next records for the rank; *end_p: the walk has ended. */
static uint32_t gather(kvcl_store_h store, uint32_t rank, kvcl_store_rec_t *recs, bool *end_p)
{
    kvcl_owner_t *owner = kvcl_owner_next(store, store->republish_cache);
    uint32_t     looked = 0, n = 0;

    for (; owner != NULL; owner = kvcl_owner_next(store, owner->cache->id + 1ull)) {
        if (owner->cache->id != store->republish_cache) {
            store->republish_cache = owner->cache->id;
            store->republish_slot  = 0;
        }
        for (; store->republish_slot < owner->slots.n; ++store->republish_slot) {
            if ((looked++ == SLOTS_MAX) || (n == RECS_MAX)) {
                *end_p = false;
                return n;
            }
            if (should_list(store, &owner->array[store->republish_slot], rank)) {
                recs[n++] = kvcl_owner_record(owner, store->republish_slot);
            }
        }
    }
    *end_p = true;
    return n;
}

static bool notify(kvcl_store_h store, uint32_t rank, const kvcl_store_rec_t *recs, uint32_t n)
{
    kvcl_msg_dir_request_t out   = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = KVCL_RPC_PUBLISH},
                                .store = store->id, .n = n, .rank = store->me};
    kvcl_peer_t            *peer = store->ranks[rank].peer;
    size_t                 room  = kvcl_dir_request_bytes(KVCL_DIR_MSG_PUBLISH, n);
    uint8_t                *buf  = kvcl_home_scratch(store->ctx, room);
    kvcl_dir_pack_t        pack;
    kvcl_status_t          status;
    uint32_t               i;

    if ((peer->state != KVCL_PEER_READY) || (buf == NULL)) {
        return false;
    }
    status = kvcl_dir_pack_begin(&pack, buf, room, KVCL_DIR_MSG_PUBLISH, kvcl_store_shards(store)->view, 0);
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = kvcl_dir_pack_add(&pack, &recs[i].key, &recs[i].loc);
    }
    return (status == KVCL_OK) &&
           (kvcl_peer_post(peer, &out.msg, sizeof(out), buf, kvcl_dir_pack_end(&pack)) == KVCL_OK);
}

/* The first rank with a walk in progress, or n_ranks. */
static uint32_t next_rank(const struct kvcl_store *store)
{
    uint32_t i;

    for (i = 0; (i < store->n_ranks) && !store->ranks[i].republishing; ++i) {
    }
    return i;
}

static void step(void *arg)
{
    kvcl_store_h     store = arg;
    uint32_t         rank  = next_rank(store), n;
    kvcl_store_rec_t *recs;
    bool             end;

    store->republish_timer = NULL;
    if (store->closing || (rank == store->n_ranks)) {
        return;
    }
    recs = malloc(RECS_MAX * sizeof(*recs));
    n    = (recs != NULL) ? gather(store, rank, recs, &end) : 0;
    if ((recs == NULL) || kvcl_store_suspects(store, rank) || ((n != 0) && !notify(store, rank, recs, n))) {
        store->ranks[rank].missed = (store->incarnations[rank] != 0); /* retried when it answers again */
        end                       = true;
    }
    free(recs);
    if (end) {
        store->ranks[rank].republishing = false;
        store->republish_cache          = 0;
        store->republish_slot           = 0;
        kvcl_log_debug("rank %u has received the records that it missed", rank);
    }
    if (next_rank(store) != store->n_ranks) {
        wake(store);
    }
}

void kvcl_republish_start(kvcl_store_h store, uint32_t rank)
{
    if (store->ranks[rank].missed && !store->closing && !kvcl_store_suspects(store, rank)) {
        store->ranks[rank].missed       = false;
        store->ranks[rank].republishing = true;
        if (rank == next_rank(store)) { /* its walk starts, or starts again */
            store->republish_cache = 0;
            store->republish_slot  = 0;
        }
        wake(store);
    }
}

void kvcl_republish_stop(kvcl_store_h store)
{
    kvcl_store_timer_stop(store->republish_timer);
    store->republish_timer = NULL;
}
