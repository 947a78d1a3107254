/*
 * A get out of another rank's memory is a use of that block. Its owner must be notified, otherwise a block that is used
 * only remotely seems unused and is evicted. Uses are collected here and sent in batches, without an answer. A lost one
 * (another thread was collecting, the owner has failed, the run ended) only makes the order of eviction less exact.
 *
 * The thread that has set `busy` owns the bins; no thread waits for it.
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

enum { BINS = 32 };

struct kvcl_uses {
    atomic_flag busy;
    bin_t       bins[BINS];
};

kvcl_status_t kvcl_uses_open(kvcl_store_h store)
{
    store->uses = (store->n_ranks > 1) ? calloc(1, sizeof(*store->uses)) : NULL;
    if (store->uses != NULL) {
        atomic_flag_clear(&store->uses->busy);
    }
    return ((store->uses != NULL) || (store->n_ranks == 1)) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

static void notify(kvcl_store_h store, const bin_t *bin)
{
    kvcl_msg_dir_request_t out   = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = KVCL_RPC_USED},
                                    .store = store->id, .n = bin->n, .rank = store->me};
    kvcl_peer_t            *peer = store->ranks[bin->rank].peer;

    if ((bin->n != 0) && !store->closing && (peer->state == KVCL_PEER_READY)) {
        (void)!kvcl_peer_post(peer, &out.msg, sizeof(out), bin->uses, bin->n * sizeof(bin->uses[0]));
    }
}

/* If the bin has no room for another use of this rank, its content is moved to *full. */
static bool note(struct kvcl_uses *uses, const kvcl_dir_loc_t *loc, bin_t *full)
{
    bin_t *bin  = &uses->bins[loc->rank % BINS];
    bool  empty = false;

    if (atomic_flag_test_and_set_explicit(&uses->busy, memory_order_acquire)) {
        return false;
    }
    if ((bin->n == KVCL_USES_MAX) || ((bin->rank != loc->rank) && (bin->n != 0))) {
        *full  = *bin;
        empty  = true;
        bin->n = 0;
    }
    bin->rank           = loc->rank;
    bin->uses[bin->n++] = (kvcl_store_use_t){.cache = loc->cache, .slot = loc->slot, .gen = loc->gen};
    atomic_flag_clear_explicit(&uses->busy, memory_order_release);
    return empty;
}

void kvcl_uses_note(kvcl_store_h store, const kvcl_dir_loc_t *loc, bool locked)
{
    bin_t full;

    if ((store->uses == NULL) || (loc->rank == store->me) || (loc->rank >= store->n_ranks) ||
        !note(store->uses, loc, &full)) {
        return;
    }
    if (!locked) {
        kvcl_lock(store->ctx);
    }
    notify(store, &full);
    if (!locked) {
        kvcl_unlock(store->ctx);
    }
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
