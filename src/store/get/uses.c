/*
 * A get out of another rank's memory is a use of that block. Its owner must be notified, otherwise a block that is used
 * only remotely seems unused and is evicted. Uses are collected here and sent in batches, without an answer: at the end
 * of a get, those of each rank of which there are 64 or more, so a long get wakes the owner once. A lost one (another
 * thread was collecting, the owner has failed, the run ended) only makes the order of eviction less exact.
 *
 * The thread that has set `busy` owns the bins and may wait for the engine lock; no thread waits for `busy`.
 */
#include "config.h"
#include "store/get/uses.h"
#include "store/store.h"

#include <stdlib.h>

/* The uses of blocks of one rank. */
typedef struct bin {
    uint32_t         rank;
    uint32_t         n;
    kvcl_store_use_t uses[KVCL_USES_MAX];
} bin_t;

enum { BINS = 32, SEND = 64 };

struct kvcl_uses {
    atomic_flag busy;
    atomic_bool ready; /* a bin has SEND uses or more */
    bin_t       bins[BINS];
};

kvcl_status_t kvcl_uses_open(kvcl_store_h store)
{
    store->uses = (store->n_ranks > 1) ? calloc(1, sizeof(*store->uses)) : NULL;
    if (store->uses != NULL) {
        atomic_flag_clear(&store->uses->busy);
        atomic_init(&store->uses->ready, false);
    }
    return ((store->uses != NULL) || (store->n_ranks == 1)) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

/* Engine lock held. Empties the bin. */
static void notify(kvcl_store_h store, bin_t *bin)
{
    kvcl_msg_dir_request_t out   = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = KVCL_RPC_USED},
                                    .store = store->id, .n = bin->n, .rank = store->me};
    kvcl_peer_t            *peer = store->ranks[bin->rank].peer;

    kvcl_assert_locked(store->ctx);
    if ((bin->n != 0) && !store->closing && (peer->state == KVCL_PEER_READY)) {
        (void)!kvcl_peer_post(peer, &out.msg, sizeof(out), bin->uses, bin->n * sizeof(bin->uses[0]));
    }
    bin->n = 0;
}

static void lock_and_notify(kvcl_store_h store, bin_t *bin, bool locked)
{
    if (!locked) {
        kvcl_lock(store->ctx);
    }
    notify(store, bin);
    if (!locked) {
        kvcl_unlock(store->ctx);
    }
}

/* The caller has set `busy`. */
static void note(kvcl_store_h store, const kvcl_dir_loc_t *loc, bool locked)
{
    struct kvcl_uses *uses = store->uses;
    bin_t            *bin  = &uses->bins[loc->rank % BINS];

    if ((bin->n == KVCL_USES_MAX) || ((bin->rank != loc->rank) && (bin->n != 0))) {
        lock_and_notify(store, bin, locked);
    }
    bin->rank           = loc->rank;
    bin->uses[bin->n++] = (kvcl_store_use_t){.cache = loc->cache, .slot = loc->slot, .gen = loc->gen};
    if (bin->n == SEND) {
        atomic_store_explicit(&uses->ready, true, memory_order_relaxed);
    }
}

static bool take(struct kvcl_uses *uses)
{
    return (uses != NULL) && !atomic_flag_test_and_set_explicit(&uses->busy, memory_order_acquire);
}

void kvcl_uses_note(kvcl_store_h store, const kvcl_dir_loc_t *const *locs, size_t n, bool locked)
{
    size_t i;

    if ((n == 0) || !take(store->uses)) {
        return;
    }
    for (i = 0; i < n; ++i) {
        if ((locs[i]->rank != store->me) && (locs[i]->rank < store->n_ranks)) {
            note(store, locs[i], locked);
        }
    }
    atomic_flag_clear_explicit(&store->uses->busy, memory_order_release);
}

void kvcl_uses_send(kvcl_store_h store, bool locked)
{
    struct kvcl_uses *uses = store->uses;
    size_t           i;

    if ((uses == NULL) || !atomic_load_explicit(&uses->ready, memory_order_relaxed) || !take(uses)) {
        return;
    }
    atomic_store_explicit(&uses->ready, false, memory_order_relaxed);
    for (i = 0; i < BINS; ++i) {
        if (uses->bins[i].n >= SEND) {
            lock_and_notify(store, &uses->bins[i], locked);
        }
    }
    atomic_flag_clear_explicit(&uses->busy, memory_order_release);
}

bool kvcl_uses_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len)
{
    kvcl_store_use_t use;
    kvcl_owner_t     *owner;
    uint32_t         i;

    (void)peer;
    (void)len;
    for (i = 0; i < in->n; ++i) {
        memcpy(&use, (const char *)data + (i * sizeof(use)), sizeof(use));
        owner = kvcl_owner_by_cache_id(store, use.cache);
        if ((owner != NULL) && (use.slot < owner->slots.n) &&
            (owner->array[use.slot].state == KVCL_SLOT_PUBLISHED) &&
            (kvcl_slots_gen(&owner->slots, use.slot) == use.gen)) {
            kvcl_owner_touch(owner, use.slot);
        }
    }
    return true;
}
