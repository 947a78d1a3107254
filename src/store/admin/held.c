/*
 * KVCL_RPC_HELD: a rank that is about to drop its own copies of blocks asks other ranks whether they have them.
 *
 * The directory does not suffice: a home lists a block that its rank has evicted, or has dropped since a publish of it
 * failed, until the removal arrives. So the rank itself is asked for the very generation that the home lists. The
 * answer is 1 if the rank has that block, no publish in flight can end it, and the rank is not drained. Then only an
 * eviction or a removal of the key ends the block.
 *
 * Owns nothing. The serving function holds the engine lock; the requesting one takes none.
 */
#include "config.h"
#include "store/admin/ops.h"
#include "store/home/home_answer.h"
#include "store/pool/publish.h"

#include <stdlib.h>

/* ---- the rank that is asked: lock held ---- */

static bool has(kvcl_store_h store, const kvcl_store_rec_t *rec)
{
    const kvcl_owner_t *owner;

    kvcl_assert_locked(store->ctx);
    if (store->draining || (rec->loc.rank != store->me) || (rec->loc.incarnation != store->incarnation)) {
        return false;
    }
    if (kvcl_loc_is_nvme(&rec->loc)) {
        return store->notify->tier_holds(store, &rec->key, &rec->loc);
    }
    owner = kvcl_owner_by_cache_id(store, rec->loc.cache);
    return (owner != NULL) &&
           (kvcl_slots_check(&owner->slots, rec->loc.slot, rec->loc.gen, &rec->key) == KVCL_OK) &&
           !(owner->array[rec->loc.slot].note & KVCL_NOTE_CORRUPT) &&
           !kvcl_publish_may_fail(store, owner, rec->loc.slot);
}

kvcl_status_t kvcl_op_held(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    const size_t     n = len / sizeof(kvcl_store_rec_t);
    kvcl_store_rec_t rec;
    size_t           i;

    if ((len % sizeof(rec) != 0) || (n > KVCL_HELD_MAX)) {
        return KVCL_ERR_PROTOCOL;
    }
    for (i = 0; i < n; ++i) {
        memcpy(&rec, (const char *)in + (i * sizeof(rec)), sizeof(rec));
        out->buf[i] = has(store, &rec) ? 1 : 0;
    }
    out->len = n;
    return KVCL_OK;
}

/* ---- the rank that asks ---- */

typedef struct ask {
    uint32_t         n;
    uint32_t         item[KVCL_HELD_MAX]; /* the number of its key */
    kvcl_store_rec_t recs[KVCL_HELD_MAX];
    uint8_t          *answers;            /* KVCL_HELD_MAX a rank */
    kvcl_status_t    *status;             /* one a rank */
    kvcl_op_out_t    outs[];              /* one a rank */
} ask_t;

static ask_t *make(const struct kvcl_store *store)
{
    const size_t each = sizeof(kvcl_op_out_t) + sizeof(kvcl_status_t) + KVCL_HELD_MAX;
    ask_t        *ask = malloc(sizeof(*ask) + (store->n_ranks * each));

    if (ask != NULL) {
        ask->status  = (kvcl_status_t *)(void *)(ask->outs + store->n_ranks);
        ask->answers = (uint8_t *)(ask->status + store->n_ranks);
    }
    return ask;
}

/* The turn-th location of each key without a holder. False: there is none. */
static bool gather(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n, unsigned turn,
                   const uint8_t *held, ask_t *ask)
{
    unsigned at, j;
    size_t   i;

    ask->n = 0;
    for (i = 0; i < n; ++i) {
        for (j = 0, at = 0; (held[i] == 0) && (j < found[i].n); ++j) {
            const kvcl_dir_loc_t *loc = &found[i].locs[j];
            if ((loc->rank != store->me) && !store->ranks[loc->rank].leaving && (at++ == turn)) {
                ask->recs[ask->n]   = (kvcl_store_rec_t){.key = keys[i], .loc = *loc};
                ask->item[ask->n++] = (uint32_t)i;
            }
        }
    }
    return ask->n != 0;
}

/* All ranks of the records at once. A rank that does not answer has none of them. */
static kvcl_status_t query(kvcl_store_h store, ask_t *ask, uint64_t timeout_ns, uint8_t *held)
{
    kvcl_status_t status;
    uint32_t      i, rank;

    for (rank = 0; rank < store->n_ranks; ++rank) {
        ask->status[rank] = KVCL_ERR_UNREACHABLE; /* not asked */
        ask->outs[rank]   = (kvcl_op_out_t){.buf = ask->answers + ((size_t)rank * KVCL_HELD_MAX), .cap = ask->n};
    }
    for (i = 0; i < ask->n; ++i) {
        ask->status[ask->recs[i].loc.rank] = KVCL_OK;
    }
    status = kvcl_op_call_all(store, KVCL_RPC_HELD, ask->recs, ask->n * sizeof(ask->recs[0]), timeout_ns, ask->outs,
                              ask->status);
    for (i = 0; (status == KVCL_OK) && (i < ask->n); ++i) {
        rank               = ask->recs[i].loc.rank;
        held[ask->item[i]] = (ask->status[rank] == KVCL_OK) && (ask->outs[rank].len == ask->n) &&
                             (ask->outs[rank].buf[i] == 1);
    }
    return status;
}

kvcl_status_t kvcl_held(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n,
                        uint64_t timeout_ns, uint8_t *held)
{
    ask_t         *ask   = make(store);
    kvcl_status_t status = KVCL_OK;
    unsigned      turn;

    if (ask == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to ask other ranks for %zu blocks", n);
    }
    memset(held, 0, n);
    for (turn = 0; (status == KVCL_OK) && gather(store, keys, found, n, turn, held, ask); ++turn) {
        status = query(store, ask, timeout_ns, held);
    }
    free(ask);
    return status;
}
