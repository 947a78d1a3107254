/*
 * The walk of an owner while shards move (dir/moves.h): each published block whose homes are others now is listed at
 * these, which answer. One batch is in flight at a time. A batch that some home has not taken (it does not know yet
 * that it is one, it has no lease at the moment, or its link was lost) is sent again after a pause; a home that has
 * failed is left out, since the view without it begins the walk anew. A home whose table is full, or that lists as many
 * other copies as it can, does not list a block: the next put of it lists it again, or fails. Until then lookups miss
 * it: in the first case, of which the log tells, at once; in the second one if those copies go.
 *
 * Blocks of the second tier are listed as at an opening (cold/listing.c). The walk has ended when they are.
 *
 * Invariant: blocks that are published meanwhile are listed at all homes by their own publish. Owns store->rehome.
 * Engine lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/home/follow_views.h"
#include "store/pool/rehome.h"

#include <stdlib.h>

enum { LOOKED_MAX = 16384, RECS_MAX = 4096 };
#define PAUSE_NS (5 * KVCL_NS_PER_MS)

typedef struct kvcl_rehome kvcl_rehome_t;

struct kvcl_rehome {
    kvcl_store_h       store;
    bool               walking;
    bool               missed;      /* a home has not taken the batch: it is sent again */
    bool               again;       /* the walk begins anew when what is in flight has ended */
    uint64_t           cache;       /* the position of the walk */
    uint32_t           slot;
    uint64_t           from_cache;  /* where the batch in flight began */
    uint32_t           from_slot;
    unsigned           outstanding;
    uint64_t           n_sent;
    uint64_t           n_full;      /* records for which a home had no room */
    kvcl_list_t        rpcs;
    kvcl_store_timer_t *timer;
    kvcl_scatter_t     scatter;
    uint32_t           n;
    uint32_t           to[2 * RECS_MAX];
    kvcl_store_rec_t   recs[RECS_MAX];
};

static void go_on(kvcl_rehome_t *rehome);

static void on_timer(void *arg)
{
    kvcl_rehome_t *rehome = arg;

    rehome->timer = NULL;
    if (rehome->walking && !rehome->store->closing) {
        go_on(rehome);
    }
}

static void pause_walk(kvcl_rehome_t *rehome, uint64_t ns)
{
    if (rehome->timer == NULL) {
        rehome->timer = kvcl_store_timer_start(rehome->store, ns, on_timer, rehome);
    }
}

/* ---- a batch ---- */

/* Adds the block's record if it has a new home that can be told. */
static void add(kvcl_rehome_t *rehome, const kvcl_owner_t *owner, uint32_t slot)
{
    kvcl_store_h           store = rehome->store;
    const kvcl_shard_map_t *map  = kvcl_store_shards(store), *old = kvcl_store_old(map);
    const kvcl_slot_t      *at   = &owner->array[slot];
    const bool             two   = kvcl_store_two_homes(store, at->flags);
    uint32_t               *to   = &rehome->to[2 * rehome->n], homes[2], i;
    bool                   any   = false;

    if ((at->state != KVCL_SLOT_PUBLISHED) || (at->note & KVCL_NOTE_CORRUPT)) {
        return;
    }
    homes[0] = kvcl_shard_home(map, &at->key);
    homes[1] = two ? kvcl_shard_backup(map, &at->key) : KVCL_SHARD_NO_RANK;
    for (i = 0; i < 2; ++i) {
        to[i] = (kvcl_moves_is_new(old, &at->key, two, homes[i]) && (store->incarnations[homes[i]] != 0))
                    ? homes[i] : KVCL_SHARD_NO_RANK;
        any = any || (to[i] != KVCL_SHARD_NO_RANK);
    }
    if (any) {
        rehome->recs[rehome->n++] = kvcl_owner_record(owner, slot);
    }
}

/* The next records. False: the walk has ended. */
static bool gather(kvcl_rehome_t *rehome)
{
    kvcl_owner_t *owner = kvcl_owner_next(rehome->store, rehome->cache);
    uint32_t     looked = 0;

    rehome->n          = 0;
    rehome->from_cache = rehome->cache;
    rehome->from_slot  = rehome->slot;
    for (; owner != NULL; owner = kvcl_owner_next(rehome->store, owner->cache->id + 1ull)) {
        if (owner->cache->id != rehome->cache) {
            rehome->cache = owner->cache->id;
            rehome->slot  = 0;
        }
        for (; rehome->slot < owner->slots.n; ++rehome->slot) {
            if ((looked++ == LOOKED_MAX) || (rehome->n == RECS_MAX)) {
                return true;
            }
            add(rehome, owner, rehome->slot);
        }
    }
    return false;
}

/* A block does not count as listed any more if its new home does not list it. */
static void take(kvcl_rehome_t *rehome, const kvcl_store_rec_t *rec, kvcl_status_t status)
{
    kvcl_owner_t *owner = kvcl_owner_by_cache_id(rehome->store, rec->loc.cache);
    const bool   unlisted = (status == KVCL_ERR_NO_SPACE) || (status == KVCL_ERR_EXISTS);

    rehome->n_full += (status == KVCL_ERR_NO_SPACE);
    if (unlisted && (owner != NULL) && (kvcl_slots_gen(&owner->slots, rec->loc.slot) == rec->loc.gen)) {
        owner->array[rec->loc.slot].note &= (uint8_t)~KVCL_NOTE_LISTED;
    }
}

static void over(kvcl_rehome_t *rehome)
{
    if (--rehome->outstanding != 0) {
        return;
    }
    kvcl_scatter_free(&rehome->scatter);
    if (rehome->missed) {
        rehome->cache = rehome->from_cache;
        rehome->slot  = rehome->from_slot;
    }
    if (rehome->again) {
        rehome->cache = 0;
        rehome->slot  = 0;
    }
    pause_walk(rehome, (rehome->missed && !rehome->again) ? PAUSE_NS : 1);
    rehome->missed = rehome->again = false;
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_rehome_t  *rehome = rpc->arg;
    kvcl_dir_msg_t reply;
    kvcl_status_t  one;
    uint32_t       i;

    if ((status == KVCL_OK) && (kvcl_dir_msg_unpack(&reply, data, len) == KVCL_OK)) {
        for (i = 0; i < rpc->n; ++i) {
            one            = kvcl_dir_msg_status(&reply, i);
            rehome->missed = rehome->missed || (one == KVCL_ERR_STALE) || (one == KVCL_ERR_NO_QUORUM);
            take(rehome, &rehome->recs[rpc->order[i]], one);
        }
    } else if (rehome->store->incarnations[rpc->rank] != 0) {
        rehome->missed = true;
    }
    over(rehome);
}

/* This rank is the new home of some blocks itself. */
static void list_here(kvcl_rehome_t *rehome)
{
    kvcl_store_h   store = rehome->store;
    const uint32_t *order = rehome->scatter.order + rehome->scatter.starts[store->me];
    uint32_t       n     = rehome->scatter.starts[store->me + 1] - rehome->scatter.starts[store->me], i;

    for (i = 0; i < n; ++i) {
        const kvcl_store_rec_t *rec = &rehome->recs[order[i]];
        take(rehome, rec, kvcl_home_list(&store->home, &rec->key, &rec->loc));
    }
}

static void send_batch(kvcl_rehome_t *rehome)
{
    kvcl_store_h store = rehome->store;
    kvcl_list_t  rpcs, *link;
    uint32_t     rank;

    kvcl_list_init(&rpcs);
    rehome->outstanding = 1;
    if (kvcl_scatter_to(store->n_ranks, rehome->to, 2, rehome->n, &rehome->scatter) != KVCL_OK) {
        rehome->missed = true;
        over(rehome);
        return;
    }
    list_here(rehome);
    for (rank = 0; rank < store->n_ranks; ++rank) {
        if ((rank != store->me) &&
            (kvcl_rpcs_make(store, rank, KVCL_RPC_PUBLISH, rehome->recs, sizeof(rehome->recs[0]), &rehome->scatter,
                            &rpcs) != KVCL_OK)) {
            rehome->missed = true;
        }
    }
    while ((link = kvcl_list_first(&rpcs)) != NULL) {
        kvcl_rpc_t *rpc = kvcl_container_of(link, kvcl_rpc_t, link);

        rpc->arg        = rehome;
        rpc->done       = on_answer;
        rehome->n_sent += rpc->n;
        ++rehome->outstanding;
        kvcl_rpc_post(rpc, 0, &rehome->rpcs);
    }
    over(rehome);
}

/* The next batch that is not empty; or the walk ends. */
static void go_on(kvcl_rehome_t *rehome)
{
    kvcl_store_h store = rehome->store;
    bool         more;

    if (kvcl_store_old(kvcl_store_shards(store)) == NULL) {
        rehome->walking = false;
        return;
    }
    more = gather(rehome);
    if (rehome->n != 0) {
        send_batch(rehome);
    } else if (more) {
        pause_walk(rehome, 1);
    } else if (store->notify->tier_is_listed(store)) {
        rehome->walking = false;
        kvcl_log_debug("%llu records are at their new homes", (unsigned long long)rehome->n_sent);
        if (rehome->n_full != 0) {
            kvcl_log_warn("%llu times a new home of a block had no room to list it: such keys may not be found: open "
                          "the stores with more dir_entries", (unsigned long long)rehome->n_full);
        }
        kvcl_views_listed(store);
    } else {
        pause_walk(rehome, PAUSE_NS);
    }
}

/* ---- start and stop ---- */

void kvcl_rehome_start(kvcl_store_h store)
{
    kvcl_rehome_t *rehome = store->rehome;

    kvcl_assert_locked(store->ctx);
    if (store->closing) {
        return;
    }
    if (rehome == NULL) {
        rehome = calloc(1, sizeof(*rehome));
        if (rehome == NULL) {
            kvcl_log_error("no memory to list blocks at their new homes: keys may not be found");
            return;
        }
        rehome->store = store;
        kvcl_list_init(&rehome->rpcs);
        store->rehome = rehome;
    }
    store->notify->list_tier(store);
    rehome->walking = true;
    rehome->n_sent  = 0;
    rehome->n_full  = 0;
    if (rehome->outstanding != 0) {
        rehome->again = true;
        return;
    }
    rehome->cache = 0;
    rehome->slot  = 0;
    kvcl_store_timer_stop(rehome->timer);
    rehome->timer = NULL;
    pause_walk(rehome, 1);
}

void kvcl_rehome_stop(kvcl_store_h store)
{
    kvcl_rehome_t *rehome = store->rehome;

    if (rehome != NULL) {
        rehome->walking = false;
        kvcl_store_timer_stop(rehome->timer);
        rehome->timer = NULL;
        kvcl_rpcs_stop(&rehome->rpcs, KVCL_ERR_SHUTDOWN);
    }
}
