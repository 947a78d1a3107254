/*
 * Destruction of local caches (cache.h). Peers that are served have time to finish; then their transfers are ended, and
 * the memory is revoked. A cache that the network may still read is left, and its destruction can be repeated.
 *
 * Owns nothing. Invariants: a cache is freed only when no peer is served from it, no cache lies in its memory, and its
 * revocation has succeeded. Locks: takes the engine lock.
 */
#include "config.h"
#include "cache/cache.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/comm.h"
#include "handle/handle.h"

#include <stdio.h>

#define SERVED_NS (2 * KVCL_NS_PER_SEC) /* the time that peers being served have to finish when a cache is destroyed */
#define ENDED_NS  (5 * KVCL_NS_PER_SEC) /* and its transport's frames may be under way so long */

static bool unserved(void *arg)
{
    return ((kvcl_cache_h)arg)->serves == 0;
}

/* Lock held. Peers begin no transfer of it any more. @return as kvcl_region_revoke(). */
static kvcl_status_t revoke(kvcl_cache_h cache)
{
    kvcl_status_t status, one;
    uint32_t      i;

    kvcl_assert_locked(cache->ctx);
    status = kvcl_region_revoke(cache->gens_region); /* first: a peer that reads this word leaves the memory alone */
    for (i = 0; (cache->arena == NULL) && (i < cache->n_regions); ++i) {
        one    = kvcl_region_revoke(cache->regions[i]);
        status = (status == KVCL_OK) ? one : status;
    }
    return status;
}

/* Transfers served from the cache end with an error at their pullers, except for frames that a transport still reads.
 * Returns whether all reads have ended. */
static bool end_serves(kvcl_cache_h cache)
{
    kvcl_context_h     ctx = cache->ctx;
    kvcl_list_t        ending, *link;
    kvcl_region_user_t *user;
    char               reader[48];

    kvcl_lock(ctx);
    kvcl_list_init(&ending); /* the end of one may end others */
    kvcl_list_splice_tail(&ending, &cache->users);
    while ((link = kvcl_list_pop(&ending)) != NULL) {
        user = kvcl_container_of(link, kvcl_region_user_t, link);
        kvcl_list_add_tail(&cache->users, link);
        kvcl_log_warn("cache \"%s\" is destroyed while %s reads it: the transfer ends", cache->name,
                      kvcl_comm_peer_name(user->peer, reader, sizeof(reader)));
        user->revoked(user); /* it may be freed now */
    }
    kvcl_unlock(ctx);
    if (kvcl_engine_wait(ctx, unserved, cache, kvcl_deadline_after(ENDED_NS))) {
        return true;
    }
    kvcl_lock(ctx);
    kvcl_list_foreach (user, &cache->users, kvcl_region_user_t, link) {
        kvcl_log_error("cache \"%s\" is not destroyed: bytes of it are still on their way to %s; its memory must not "
                       "be freed, kvcl_cache_destroy may be called again", cache->name,
                       kvcl_comm_peer_name(user->peer, reader, sizeof(reader)));
    }
    kvcl_unlock(ctx);
    return false;
}

void kvcl_cache_destroy(kvcl_cache_h cache)
{
    kvcl_context_h ctx;
    kvcl_status_t  status;
    bool           unread;
    char           why[KVCL_ERROR_MAX / 2];

    if (!kvcl_handle_may_free(cache, KVCL_KIND_CACHE, "kvcl_cache_destroy")) {
        return;
    }
    ctx = cache->ctx;
    kvcl_lock(ctx);
    if ((cache->store != NULL) && !((kvcl_cache_user_t *)cache->store)->release(cache)) {
        kvcl_unlock(ctx);
        kvcl_log_error("cache \"%s\" is still used by a store and is not destroyed", cache->name);
        (void)kvcl_fail(KVCL_ERR_BUSY,
                        "cache \"%s\" is still used by a store and is not destroyed", cache->name);
        return;
    }
    if (cache->n_over != 0) { /* one of those could not be destroyed, and has logged that */
        kvcl_unlock(ctx);
        kvcl_log_error("cache \"%s\" has the memory of %u others and is not destroyed", cache->name, cache->n_over);
        return;
    }
    cache->closing = true;
    kvcl_unlock(ctx);
    unread = kvcl_engine_wait(ctx, unserved, cache, kvcl_deadline_after(SERVED_NS)) || end_serves(cache);
    kvcl_lock(ctx);
    status = revoke(cache);
    if (unread && (status == KVCL_OK)) {
        kvcl_list_del(&cache->link);
        if (cache->arena != NULL) {
            --cache->arena->n_over;
        }
    }
    kvcl_unlock(ctx);
    if (!unread) {
        (void)kvcl_fail(KVCL_ERR_BUSY, "cache \"%s\" is not destroyed: a peer still reads it, and its memory must not "
                        "be freed", cache->name);
    } else if (status != KVCL_OK) {
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        (void)kvcl_fail(status, "cache \"%s\" is not destroyed, and its memory must not be freed: %s; then call "
                        "kvcl_cache_destroy again", cache->name, why);
        kvcl_log_error("%s", kvcl_last_error());
    } else {
        kvcl_cache_free(cache);
    }
}

void kvcl_caches_fini(kvcl_context_h ctx)
{
    kvcl_list_t *link;

    while ((link = kvcl_list_pop(kvcl_context_caches(ctx))) != NULL) {
        kvcl_cache_h cache = kvcl_container_of(link, struct kvcl_cache, link);
        kvcl_log_warn("cache \"%s\" was not destroyed before kvcl_finalize", cache->name);
        kvcl_cache_free(cache);
    }
}
