/*
 * The other ranks, as a drain finds them (drain_ranks.h).
 *
 * A rank that answers and has no room will not have any later. A rank that is silent may answer before the deadline,
 * and a home that has failed has a successor then: these are what a drain waits for. It waits for another map of the
 * shards, or for the silent rank, for PAUSE_NS at least. Since it hears nothing of what happens between two other
 * ranks, it tries again after PAUSE_NS, doubled with each try up to DOUBLINGS times.
 *
 * Owns nothing. Locks: none on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "member/lease.h"
#include "req/timeout.h"
#include "store/grow/drain_ranks.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdio.h>
#include <stdlib.h>

enum { DOUBLINGS = 6 };
#define PAUSE_NS (20 * KVCL_NS_PER_MS)
#define QUERY_NS KVCL_NS_PER_SEC /* a query of a rank has a quarter of the time left, and so long at least */

kvcl_drain_t *kvcl_drain_new(kvcl_store_h store, uint64_t deadline_ns)
{
    kvcl_drain_t *drain = calloc(1, sizeof(*drain) + (store->n_ranks * (sizeof(drain->room[0]) +
                                                                        sizeof(drain->skip[0]))));

    if (drain != NULL) {
        drain->store       = store;
        drain->deadline_ns = deadline_ns;
        drain->silent      = -1;
        drain->skip        = (uint8_t *)(drain->room + store->n_ranks);
    }
    return drain;
}

void kvcl_drain_begin(kvcl_drain_t *drain)
{
    drain->left       = drain->all_left = drain->left_bytes = 0;
    drain->any_missed = false;
    drain->silent     = -1;
    drain->map        = kvcl_store_shards(drain->store);
}

/* ---- room ---- */

static uint64_t room_for(const kvcl_store_stats_t *stats, uint64_t bytes)
{
    unsigned i;

    for (i = 0; i < KVCL_STORE_SIZES_MAX; ++i) {
        if ((i < stats->n_sizes) && (stats->sizes[i].block_bytes == bytes)) {
            return stats->sizes[i].takes * bytes;
        }
    }
    return 0;
}

static uint64_t query_time(const kvcl_drain_t *drain)
{
    const uint64_t left  = kvcl_deadline_left(drain->deadline_ns), most = kvcl_timeout(drain->store->ctx, 0);
    uint64_t       of_it = (left / 4 > QUERY_NS) ? left / 4 : QUERY_NS;

    of_it = (of_it < left) ? of_it : left;
    of_it = (of_it < most) ? of_it : most;
    return (of_it != 0) ? of_it : 1;
}

/* A rank that has failed, or that has no room, says nothing else later. */
static void note_status(kvcl_drain_t *drain, uint32_t rank, kvcl_status_t status)
{
    if ((drain->silent < 0) && (status != KVCL_OK) && (status != KVCL_ERR_NO_SPACE) &&
        (status != KVCL_ERR_UNSUPPORTED) && (status != KVCL_ERR_INVALID_PARAM) && (status != KVCL_ERR_RANK_FAILED) &&
        !kvcl_store_excludes(drain->store, rank)) {
        drain->silent        = (int)rank;
        drain->silent_status = status;
    }
}

void kvcl_drain_query(kvcl_drain_t *drain, uint64_t bytes, bool again)
{
    kvcl_store_h       store  = drain->store;
    kvcl_store_stats_t stats  = KVCL_STORE_STATS_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status;
    uint32_t           i;
    bool               takes;

    memset(drain->skip, 0, store->n_ranks); /* a rank without room for one size may have room for another */
    drain->full = false;
    for (i = 0; i < store->n_ranks; ++i) {
        if ((i == store->me) || (again && store->ranks[i].leaving)) {
            continue;
        }
        params.timeout_ns       = query_time(drain);
        status                  = kvcl_store_rank_stats(store, (int)i, &stats, &params);
        takes                   = (status == KVCL_OK) && (stats.draining == 0);
        store->ranks[i].leaving = !takes;
        drain->room[i]          = takes ? room_for(&stats, bytes) : 0;
        note_status(drain, i, status);
        if ((status == KVCL_OK) && (store->ranks[i].n_sizes != 0)) {
            kvcl_lock(store->ctx);
            kvcl_place_seen(&store->places[i], takes ? stats.pool_free_bytes : 0);
            kvcl_unlock(store->ctx);
        }
    }
}

/* Lock held. The rank with the most room, in the order of kvcl_store_place; false: no rank has any. */
static bool choose(kvcl_drain_t *drain, uint64_t bytes, uint16_t *to_p)
{
    kvcl_assert_locked(drain->store->ctx);
    while (kvcl_store_place(drain->store, bytes, drain->skip, 1, to_p) == 1) {
        if (drain->room[*to_p] >= bytes) {
            return true;
        }
        drain->skip[*to_p] = 1;
    }
    return false;
}

kvcl_status_t kvcl_drain_send(kvcl_drain_t *drain, uint64_t tenant, uint64_t bytes, uint16_t *to_p)
{
    kvcl_store_h  store  = drain->store;
    kvcl_send_t   *batch = &drain->batch;
    kvcl_status_t status;
    bool          found;

    kvcl_lock(store->ctx);
    found = choose(drain, bytes, to_p);
    if (found && (drain->room[*to_p] / bytes < batch->n)) {
        batch->n = (uint32_t)(drain->room[*to_p] / bytes);
    }
    kvcl_unlock(store->ctx);
    if (!found) {
        return KVCL_ERR_NO_SPACE;
    }
    status = kvcl_send_batch(store, *to_p, tenant, drain->deadline_ns, batch);
    if (status != KVCL_OK) {
        note_status(drain, *to_p, status);
        drain->skip[*to_p] = 1; /* another rank takes them */
        batch->n           = 0;
        return KVCL_OK;
    }
    drain->room[*to_p] = batch->room;
    return KVCL_OK;
}

/* ---- another try ---- */

static bool is_closed(void *arg)
{
    return ((const struct kvcl_store *)arg)->closing;
}

/* Lock held. */
static bool has_changed(void *arg)
{
    const kvcl_drain_t      *drain = arg;
    const struct kvcl_store *store = drain->store;

    kvcl_assert_locked(store->ctx);
    return store->closing || (kvcl_store_shards(store) != drain->map) ||
           ((drain->silent >= 0) && (drain->silent_status == KVCL_ERR_TIMED_OUT) &&
            !kvcl_store_suspects(store, (uint32_t)drain->silent));
}

bool kvcl_drain_again(kvcl_drain_t *drain, kvcl_status_t status)
{
    kvcl_store_h store = drain->store;
    const bool   knows = (drain->silent < 0) && !drain->any_missed;
    uint64_t     until;
    bool         ends;

    kvcl_lock(store->ctx);
    ends = store->closing || kvcl_member_is_excluded(store->ctx);
    kvcl_unlock(store->ctx);
    if (ends || knows || (status != KVCL_ERR_NO_SPACE) || kvcl_deadline_passed(drain->deadline_ns)) {
        return false;
    }
    until = kvcl_deadline_after(PAUSE_NS << ((drain->tries < DOUBLINGS) ? drain->tries : DOUBLINGS));
    until = (until < drain->deadline_ns) ? until : drain->deadline_ns;
    ++drain->tries;
    if (!kvcl_engine_wait(store->ctx, is_closed, store, kvcl_deadline_after(PAUSE_NS))) {
        (void)kvcl_engine_wait(store->ctx, has_changed, drain, until);
    }
    return !kvcl_deadline_passed(drain->deadline_ns);
}

/* ---- why blocks have not moved ---- */

/* The rank that a home of this one's, or this rank itself, waits for in vain; -1: none. */
static int silent_rank(const kvcl_drain_t *drain)
{
    const struct kvcl_store *store = drain->store;
    uint32_t                i;

    for (i = 0; (drain->silent < 0) && drain->any_missed && (i < store->n_ranks); ++i) {
        if ((i != store->me) && kvcl_store_suspects(store, i) && !kvcl_store_excludes(store, i)) {
            return (int)i;
        }
    }
    return drain->silent;
}

/* Lock held. What matters more than the status of the last try. */
static kvcl_status_t cause(const kvcl_drain_t *drain, int silent, kvcl_status_t status)
{
    kvcl_store_h store = drain->store;

    kvcl_assert_locked(store->ctx);
    if (store->closing || ((status != KVCL_ERR_NO_SPACE) && (status != KVCL_ERR_TIMED_OUT))) {
        return store->closing ? KVCL_ERR_SHUTDOWN : status;
    }
    if (kvcl_member_is_excluded(store->ctx) || !kvcl_views_may_own(store)) {
        return kvcl_member_is_excluded(store->ctx) ? KVCL_ERR_STALE : KVCL_ERR_NO_QUORUM;
    }
    return ((silent >= 0) || drain->any_missed) ? KVCL_ERR_TIMED_OUT : status;
}

kvcl_status_t kvcl_drain_failed(const kvcl_drain_t *drain, kvcl_status_t status)
{
    const unsigned long long moved = drain->moved, left = drain->all_left, bytes = drain->left_bytes;
    const int                silent = silent_rank(drain);
    char                     who[96] = "", room[96] = "";

    kvcl_lock(drain->store->ctx);
    status = cause(drain, silent, status);
    kvcl_unlock(drain->store->ctx);
    if ((status == KVCL_ERR_NO_SPACE) && (left != 0)) {
        return kvcl_fail(status, "kvcl_store_drain: %llu blocks have moved, at least %llu blocks (%llu bytes) have not:"
                         " no other rank's pool has room for them, and none evicts for them: remove blocks, or open "
                         "ranks with more dram_bytes", moved, left, bytes);
    }
    if ((silent >= 0) && ((drain->silent < 0) || (drain->silent_status == KVCL_ERR_TIMED_OUT))) {
        snprintf(who, sizeof(who), ": rank %d does not answer", silent);
    } else if (silent >= 0) {
        snprintf(who, sizeof(who), ": rank %d does not take them (%s)", silent, kvcl_status_text(drain->silent_status));
    } else if (drain->any_missed) {
        snprintf(who, sizeof(who), ": other ranks could not fetch them, or not list them at their homes");
    }
    if (left != 0) {
        snprintf(room, sizeof(room), "; the others have no room for at least %llu blocks (%llu bytes)", left, bytes);
    }
    return kvcl_fail(status, "kvcl_store_drain: %llu blocks have moved, others not: %s%s%s: call it again%s", moved,
                     (status == KVCL_ERR_NO_QUORUM)   ? "too few ranks answer this one to decide"
                     : (status == KVCL_ERR_TIMED_OUT) ? "the time is over"
                                                      : kvcl_status_text(status),
                     who, room, (status == KVCL_ERR_TIMED_OUT) ? ", or give a longer timeout_ns" : "");
}
