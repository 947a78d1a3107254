/*
 * What homes have missed: a rank that answers again, or is taken back, is told of the blocks published here that it
 * should list. A publish that a home did not hear is listed at the key's other home only (publish.c), and who asks the
 * first one would not find it.
 *
 * The slots of all owners are walked, some at a time; nothing is kept but where the walk stands and which ranks are
 * owed. The home does not answer: what it cannot list is a miss there. Blocks of the second tier alone are not told.
 * Engine lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/store.h"

#include <stdlib.h>

enum { SLOTS_MAX = 4096, RECS_MAX = 512 };
#define STEP_NS (KVCL_NS_PER_MS / 2)

static void turn(void *arg);

static void wake(kvcl_store_h store)
{
    if (store->owed_timer == NULL) {
        store->owed_timer = kvcl_store_timer_start(store, STEP_NS, turn, store);
    }
}

static bool is_home(const struct kvcl_store *store, const kvcl_slot_t *slot, uint32_t rank)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(store);

    return (slot->state == KVCL_SLOT_PUBLISHED) && !(slot->note & KVCL_NOTE_SPOILT) &&
           ((kvcl_shard_home(map, &slot->key) == rank) ||
            (kvcl_store_two_homes(store, slot->flags) && (kvcl_shard_backup(map, &slot->key) == rank)));
}

static kvcl_store_rec_t record_of(const kvcl_owner_t *owner, uint32_t slot)
{
    const kvcl_slot_t *at = &owner->array[slot];

    return (kvcl_store_rec_t){.key = at->key,
                              .loc = {.rank = owner->slots.rank, .incarnation = owner->slots.incarnation,
                                      .cache = owner->slots.cache, .flags = at->flags, .slot = slot,
                                      .len = (uint32_t)kvcl_owner_bytes(owner),
                                      .gen = kvcl_slots_gen(&owner->slots, slot), .checksum = at->sum}};
}

/* The next records for the rank; *end_p: there are no more. */
static uint32_t gather(kvcl_store_h store, uint32_t rank, kvcl_store_rec_t *recs, bool *end_p)
{
    kvcl_owner_t *owner = kvcl_owner_next(store, store->owed_cache);
    uint32_t     looked = 0, n = 0;

    for (; owner != NULL; owner = kvcl_owner_next(store, owner->cache->id + 1ull)) {
        if (owner->cache->id != store->owed_cache) {
            store->owed_cache = owner->cache->id;
            store->owed_slot  = 0;
        }
        for (; store->owed_slot < owner->slots.n; ++store->owed_slot) {
            if ((looked++ == SLOTS_MAX) || (n == RECS_MAX)) {
                *end_p = false;
                return n;
            }
            if (is_home(store, &owner->array[store->owed_slot], rank)) {
                recs[n++] = record_of(owner, store->owed_slot);
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
    kvcl_peer_t        *peer = store->ranks[rank].peer;
    size_t             room  = kvcl_dir_request_bytes(KVCL_DIR_MSG_PUBLISH, n);
    uint8_t            *buf  = kvcl_home_scratch(store->ctx, room);
    kvcl_dir_pack_t    pack;
    kvcl_status_t      status;
    uint32_t           i;

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

/* The first rank that is being told. */
static uint32_t next_rank(const struct kvcl_store *store)
{
    uint32_t i;

    for (i = 0; (i < store->n_ranks) && !store->ranks[i].telling; ++i) {
    }
    return i;
}

static void turn(void *arg)
{
    kvcl_store_h     store = arg;
    uint32_t         rank  = next_rank(store), n;
    kvcl_store_rec_t *recs;
    bool             end;

    store->owed_timer = NULL;
    if (store->closing || (rank == store->n_ranks)) {
        return;
    }
    recs = malloc(RECS_MAX * sizeof(*recs));
    n    = (recs != NULL) ? gather(store, rank, recs, &end) : 0;
    if ((recs == NULL) || kvcl_store_suspects(store, rank) || ((n != 0) && !notify(store, rank, recs, n))) {
        store->ranks[rank].owed = (store->incarnations[rank] != 0); /* when it answers again */
        end                     = true;
    }
    free(recs);
    if (end) {
        store->ranks[rank].telling = false;
        store->owed_cache          = 0;
        store->owed_slot           = 0;
        kvcl_log_debug("rank %u has been told what it had missed", rank);
    }
    if (next_rank(store) != store->n_ranks) {
        wake(store);
    }
}

void kvcl_owed_start(kvcl_store_h store, uint32_t rank)
{
    if (store->ranks[rank].owed && !store->closing && !kvcl_store_suspects(store, rank)) {
        store->ranks[rank].owed    = false;
        store->ranks[rank].telling = true;
        if (rank == next_rank(store)) { /* its walk begins, or begins once more */
            store->owed_cache = 0;
            store->owed_slot  = 0;
        }
        wake(store);
    }
}

void kvcl_owed_stop(kvcl_store_h store)
{
    kvcl_store_timer_stop(store->owed_timer);
    store->owed_timer = NULL;
}
