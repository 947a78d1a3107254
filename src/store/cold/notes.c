/*
 * Notes for the tier thread: keys to be dropped from the tier, and blocks that have left it and are still listed.
 *
 * Any thread takes them, also the tier's callbacks, which may do nothing else; so they have a lock of their own,
 * cold->lock, an innermost one. The tier thread works them off: it drops the keys, and notifies homes under the engine
 * lock. Without memory for a note, a home keeps an entry that reads as a miss.
 */
#include "config.h"
#include "store/cold/cold.h"
#include "store/home/home_answer.h"

#include <stdlib.h>

enum { NOTES_MIN = 256 };

kvcl_dir_loc_t kvcl_cold_loc(const kvcl_cold_t *cold, const kvcl_tier_loc_t *at, unsigned copies)
{
    return (kvcl_dir_loc_t){.rank = (uint16_t)cold->store->me, .incarnation = cold->store->incarnation,
                            .cache = KVCL_COLD_CACHE, .slot = at->unit, .len = at->len, .gen = at->gen,
                            .flags = (uint16_t)(KVCL_DIR_TIER_NVME | KVCL_LOC_SUMMED |
                                                ((copies - 1) << KVCL_LOC_COPIES_SHIFT)),
                            .checksum = at->checksum};
}

bool kvcl_cold_holds(const kvcl_cold_t *cold, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    kvcl_tier_loc_t at;

    return (cold != NULL) && (loc->incarnation == cold->store->incarnation) &&
           (kvcl_tier_find(cold->tier, key->bytes, &at) == KVCL_OK) && (at.unit == loc->slot) && (at.gen == loc->gen);
}

/* ---- taking notes ---- */

void kvcl_cold_kick(kvcl_cold_t *cold)
{
    if (!atomic_exchange(&cold->kicked, true)) {
        kvcl_cold_wake(cold);
    }
}

void kvcl_cold_wake(kvcl_cold_t *cold)
{
    pthread_mutex_lock(&cold->lock);
    atomic_store(&cold->kicked, true);
    pthread_cond_broadcast(&cold->wake);
    pthread_mutex_unlock(&cold->lock);
}

/* cold->lock held. Room for one more element of size bytes; NULL: no memory. */
static void *grown(void *notes, size_t n, size_t *room_p, size_t size)
{
    size_t room = (*room_p == 0) ? NOTES_MIN : 2 * *room_p;
    void   *more;

    if (n < *room_p) {
        return notes;
    }
    more = realloc(notes, room * size);
    if (more != NULL) {
        *room_p = room;
    }
    return more;
}

void kvcl_cold_dropped(void *arg, const uint8_t *key, const kvcl_tier_loc_t *at)
{
    kvcl_cold_t      *cold = arg;
    unsigned         copies = (cold->store->n_ranks > 1) ? 2 : 1; /* both homes may list it */
    kvcl_store_rec_t *more;

    pthread_mutex_lock(&cold->lock);
    more = grown(cold->evicted, cold->n_evicted, &cold->room_evicted, sizeof(*more));
    if (more != NULL) { /* without memory a home keeps an entry that reads as a miss */
        cold->evicted = more;
        memcpy(more[cold->n_evicted].key.bytes, key, sizeof(more->key.bytes));
        more[cold->n_evicted++].loc = kvcl_cold_loc(cold, at, copies);
    }
    pthread_mutex_unlock(&cold->lock);
    kvcl_cold_kick(cold);
}

/* False: the tier has no room for the tombstone yet. Its callbacks only record: kvcl_cold_dropped(). */
static bool drop_now(kvcl_cold_t *cold, const kvcl_key_t *key)
{
    kvcl_tier_loc_t at;

    if (kvcl_tier_find(cold->tier, key->bytes, &at) == KVCL_OK) {
        if (kvcl_tier_drop(cold->tier, key->bytes) == KVCL_ERR_BUSY) {
            return false;
        }
        kvcl_cold_dropped(cold, key->bytes, &at);
    }
    return true;
}

static void drop_later(kvcl_cold_t *cold, const kvcl_key_t *key)
{
    kvcl_key_t *more;

    pthread_mutex_lock(&cold->lock);
    more = grown(cold->drops, cold->n_drops, &cold->room_drops, sizeof(*more));
    if (more != NULL) {
        cold->drops           = more;
        more[cold->n_drops++] = *key;
    }
    pthread_mutex_unlock(&cold->lock);
    kvcl_cold_kick(cold);
}

void kvcl_cold_drop(kvcl_cold_t *cold, const kvcl_key_t *key)
{
    if (cold == NULL) {
        return;
    }
    kvcl_assert_locked(cold->store->ctx);
    ++cold->drop_epoch;
    if (!drop_now(cold, key)) {
        drop_later(cold, key);
    }
}

/* ---- working them off ---- */

/* Engine lock held. Notify homes of some recorded blocks. They are taken and sent under one hold of the lock. False:
 * there were none. */
static bool notify_some(kvcl_cold_t *cold)
{
    enum { PIECE = 256 };
    kvcl_store_rec_t recs[PIECE];
    size_t           n;

    kvcl_assert_locked(cold->store->ctx);
    pthread_mutex_lock(&cold->lock);
    n = (cold->n_evicted < PIECE) ? cold->n_evicted : PIECE;
    cold->n_evicted -= n;
    if (n != 0) {
        memcpy(recs, cold->evicted + cold->n_evicted, n * sizeof(recs[0]));
    }
    pthread_mutex_unlock(&cold->lock);
    kvcl_cold_mark_dirty(cold, recs, n);
    kvcl_store_notify_removed(cold->store, recs, n);
    return n != 0;
}

void kvcl_cold_notify_evicted(kvcl_cold_t *cold)
{
    if (cold == NULL) {
        return;
    }
    kvcl_assert_locked(cold->store->ctx);
    while (notify_some(cold)) {
    }
}

void kvcl_notes_report(kvcl_cold_t *cold)
{
    bool more = true;

    while (more) {
        kvcl_lock(cold->store->ctx);
        more = !cold->store->closing && notify_some(cold);
        kvcl_unlock(cold->store->ctx);
    }
}

kvcl_cold_turn_t kvcl_notes_drop(kvcl_cold_t *cold)
{
    kvcl_key_t *keys;
    size_t     n, i;
    bool       busy = false;

    pthread_mutex_lock(&cold->lock);
    keys             = cold->drops;
    n                = cold->n_drops;
    cold->drops      = NULL;
    cold->n_drops    = 0;
    cold->room_drops = 0;
    pthread_mutex_unlock(&cold->lock);
    for (i = 0; i < n; ++i) {
        busy = busy || !drop_now(cold, &keys[i]);
        if (busy) {
            drop_later(cold, &keys[i]);
        }
    }
    free(keys);
    return busy ? KVCL_COLD_WAIT : KVCL_COLD_IDLE;
}
