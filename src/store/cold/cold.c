/*
 * A rank's second tier: opened and closed with the store, and the thread in between.
 *
 * The thread does the work that must not run under the engine lock or in a caller's thread: it writes blocks into the
 * tier, drops removed keys, lists the blocks found at start, and notifies homes of blocks that have left the tier. It
 * sleeps when there is nothing to do. The tier's own callbacks only record (evicted) or end reads (cold/stage.c).
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store/pool/pool.h"

#include <stdlib.h>

enum { DRAIN_SECONDS = 10 };
#define PAUSE_NS (2 * KVCL_NS_PER_MS)

const kvcl_tio_ops_t *kvcl_cold_io;
_Atomic bool         kvcl_cold_late;

/* ---- the thread ---- */

static void sleep_a_while(kvcl_cold_t *cold, uint64_t ns)
{
    uint64_t        until = kvcl_deadline_after(ns);
    struct timespec t     = {.tv_sec = (time_t)(until / KVCL_NS_PER_SEC), .tv_nsec = (long)(until % KVCL_NS_PER_SEC)};

    if (!cold->stopping) {
        (void)pthread_cond_timedwait(&cold->wake, &cold->lock, &t);
    }
}

static void *run(void *arg)
{
    kvcl_cold_t      *cold = arg;
    kvcl_cold_turn_t drops, demoted, listed;
    bool             draining, wait;

    pthread_mutex_lock(&cold->lock);
    while (!cold->stopping) {
        if (!atomic_exchange(&cold->kicked, false)) {
            pthread_cond_wait(&cold->wake, &cold->lock);
            continue;
        }
        pthread_mutex_unlock(&cold->lock);
        draining = atomic_load(&cold->draining); /* for all of this turn */
        drops    = kvcl_notes_drop(cold);
        demoted  = kvcl_cold_demote(cold);
        listed   = kvcl_cold_list(cold);
        kvcl_notes_report(cold);
        pthread_mutex_lock(&cold->lock);
        wait = (drops == KVCL_COLD_WAIT) || (demoted == KVCL_COLD_WAIT) || (listed == KVCL_COLD_WAIT);
        if (wait || (demoted == KVCL_COLD_MORE) || (listed == KVCL_COLD_MORE)) {
            atomic_store(&cold->kicked, true);
        } else if (draining) {
            cold->drained = true;
            pthread_cond_broadcast(&cold->wake);
        }
        if (wait && (demoted != KVCL_COLD_MORE) && (listed != KVCL_COLD_MORE)) {
            sleep_a_while(cold, PAUSE_NS);
        }
    }
    pthread_mutex_unlock(&cold->lock);
    return NULL;
}

/* ---- opening ---- */

/* "%r" in spec is the rank. origin: the field or variable that spec came from, for sentences. */
static kvcl_status_t parse_spec(const char *spec, const char *origin, uint32_t rank, char **path_p, uint64_t *size_p)
{
    char          *path, *full;
    const char    *at;
    size_t        room;
    kvcl_status_t status = kvcl_tier_spec_parse(spec, &path, size_p);

    if (status != KVCL_OK) {
        return kvcl_fail(status, "%s: %s", origin, kvcl_last_error());
    }
    at = strstr(path, "%r");
    if (at == NULL) {
        *path_p = path;
        return KVCL_OK;
    }
    room = strlen(path) + 16;
    full = malloc(room);
    if (full != NULL) {
        snprintf(full, room, "%.*s%u%s", (int)(at - path), path, rank, at + 2);
    }
    free(path);
    *path_p = full;
    return (full != NULL) ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a path");
}

static kvcl_status_t open_tier(kvcl_cold_t *cold, const char *spec, const char *origin, uint64_t flags)
{
    struct iovec       mem[KVCL_SLABS_CLASSES_MAX];
    kvcl_tier_params_t params = {.mem = mem, .n_mem = cold->n, .gone = kvcl_cold_dropped, .arg = cold,
                                 .io = kvcl_cold_io, .format = (flags & KVCL_STORE_NVME_FORMAT) != 0,
                                 .fresh = (flags & KVCL_STORE_JOIN) != 0};
    const char         *key_file = cold->store->ctx->config.store_nvme_key;
    kvcl_tier_key_t    key;
    char               *path;
    kvcl_status_t      status = parse_spec(spec, origin, cold->store->me, &path, &params.size);
    unsigned           i;

    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; i < cold->n; ++i) {
        kvcl_cache_h cache = cold->classes[i].cache;
        mem[i] = (struct iovec){(void *)cache->bases[0], cache->shape.blocks * cache->shape.block_bytes};
    }
    params.path = path;
    if ((key_file != NULL) && (key_file[0] != '\0')) {
        params.key = &key;
        status     = kvcl_tier_key_read(key_file, &key);
        status     = (status == KVCL_OK) ? KVCL_OK : kvcl_fail(status, "KVCL_STORE_NVME_KEY: %s", kvcl_last_error());
    }
    status = (status == KVCL_OK) ? kvcl_tier_open(&params, &cold->tier) : status;
    kvcl_wipe(&key, sizeof(key));
    if ((status == KVCL_ERR_BUSY) && (strstr(spec, "%r") == NULL)) {
        status = kvcl_fail(status, "%s; %%r stands for the rank", kvcl_last_error());
    }
    if (status != KVCL_OK) {
        status = kvcl_fail(status, "%s: %s", origin, kvcl_last_error());
    }
    free(path);
    return status;
}

static kvcl_status_t make_class(kvcl_cold_t *cold, kvcl_owner_t *pool)
{
    kvcl_cold_class_t *cls = &cold->classes[cold->n++];

    cls->cold  = cold;
    cls->pool  = pool;
    cls->clean = calloc(pool->slots.n, sizeof(*cls->clean));
    cls->sums  = calloc(pool->slots.n, sizeof(*cls->sums));
    kvcl_list_init(&cls->idle);
    kvcl_list_init(&cls->held);
    kvcl_list_init(&cls->jobs);
    return ((cls->clean != NULL) && (cls->sums != NULL)) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

/* One for each class of the pool. */
static kvcl_status_t make_classes(kvcl_cold_t *cold, const kvcl_pool_t *pool)
{
    kvcl_status_t status = KVCL_OK;
    uint64_t      most   = 0;
    unsigned      i;

    for (i = 0; (i < pool->n) && (status == KVCL_OK); ++i) {
        status = make_class(cold, pool->owners[i]);
        most   = (pool->owners[i]->slots.n > most) ? pool->owners[i]->slots.n : most;
    }
    for (cold->n_seen = 1024; cold->n_seen < 4 * most; cold->n_seen *= 2) {
    }
    cold->seen = calloc(cold->n_seen, sizeof(*cold->seen));
    return ((status == KVCL_OK) && (cold->seen != NULL))
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store's second tier");
}

kvcl_status_t kvcl_cold_open(kvcl_store_h store, const char *spec, const char *origin, uint64_t flags)
{
    kvcl_cold_t        *cold = calloc(1, sizeof(*cold));
    pthread_condattr_t attr;
    kvcl_status_t      status;

    if (cold == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store's second tier");
    }
    cold->store = store;
    pthread_mutex_init(&cold->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cold->wake, &attr);
    pthread_condattr_destroy(&attr);
    kvcl_list_init(&cold->begun);
    kvcl_map_init(&cold->index);
    status = make_classes(cold, store->pool);
    status = (status == KVCL_OK) ? kvcl_staging_init(cold) : status;
    status = (status == KVCL_OK) ? open_tier(cold, spec, origin, flags) : status;
    if (status != KVCL_OK) {
        kvcl_cold_close(cold);
        return status;
    }
    store->cold = cold;
    return KVCL_OK;
}

void kvcl_cold_start(kvcl_cold_t *cold)
{
    if (cold == NULL) {
        return;
    }
    kvcl_lock(cold->store->ctx);
    cold->notified = !cold->store->ranks[cold->store->me].listing;
    cold->started  = (pthread_create(&cold->thread, NULL, run, cold) == 0);
    cold->off      = !cold->started;
    kvcl_unlock(cold->store->ctx);
    if (!cold->started) {
        kvcl_log_warn("no thread for a store's second tier: nothing is written into it");
    }
    kvcl_cold_kick(cold);
}

/* ---- closing ---- */

void kvcl_cold_drain(kvcl_cold_t *cold)
{
    uint64_t        until = kvcl_deadline_after(DRAIN_SECONDS * KVCL_NS_PER_SEC);
    struct timespec t     = {.tv_sec = (time_t)(until / KVCL_NS_PER_SEC), .tv_nsec = (long)(until % KVCL_NS_PER_SEC)};
    int             rc    = 0;

    if ((cold == NULL) || !cold->started) {
        return;
    }
    atomic_store(&cold->draining, true);
    kvcl_cold_wake(cold);
    pthread_mutex_lock(&cold->lock);
    while (!cold->drained && (rc == 0)) {
        rc = pthread_cond_timedwait(&cold->wake, &cold->lock, &t);
    }
    pthread_mutex_unlock(&cold->lock);
    if (rc != 0) {
        kvcl_log_warn("a store is closed before all of its pool was in its tier");
    }
}

void kvcl_cold_stop(kvcl_cold_t *cold)
{
    if (cold != NULL) {
        kvcl_assert_locked(cold->store->ctx);
        kvcl_stage_stop(cold);
    }
}

void kvcl_cold_close(kvcl_cold_t *cold)
{
    unsigned i;

    if (cold == NULL) {
        return;
    }
    if (cold->started) {
        pthread_mutex_lock(&cold->lock);
        cold->stopping = true;
        pthread_cond_broadcast(&cold->wake);
        pthread_mutex_unlock(&cold->lock);
        pthread_join(cold->thread, NULL);
    }
    kvcl_tier_close(cold->tier);
    if (cold->n_reading != 0) {
        kvcl_log_warn("a store's staging memory is not freed: the disk may still write into it");
        return;
    }
    kvcl_staging_fini(cold);
    kvcl_map_fini(&cold->index);
    free(cold->evicted);
    free(cold->drops);
    for (i = 0; i < cold->n; ++i) {
        free(cold->classes[i].clean);
        free(cold->classes[i].sums);
    }
    free(cold->seen);
    pthread_cond_destroy(&cold->wake);
    pthread_mutex_destroy(&cold->lock);
    free(cold);
}

bool kvcl_cold_has_any(kvcl_cold_t *cold)
{
    kvcl_tier_stats_t tier = {.blocks = 0};

    if (cold != NULL) {
        kvcl_tier_stats(cold->tier, &tier);
    }
    return tier.blocks != 0;
}

void kvcl_cold_stats(kvcl_cold_t *cold, kvcl_store_stats_t *stats)
{
    kvcl_tier_stats_t tier;

    if (cold != NULL) {
        kvcl_tier_stats(cold->tier, &tier);
        stats->demoted     = atomic_load_explicit(&cold->n_demoted, memory_order_relaxed);
        stats->promoted    = atomic_load_explicit(&cold->n_promoted, memory_order_relaxed);
        stats->dropped     = atomic_load_explicit(&cold->n_dropped, memory_order_relaxed);
        stats->nvme_blocks = tier.blocks;
        stats->nvme_bytes  = tier.bytes;
        stats->nvme_bad    = tier.bad;
        stats->nvme_state  = tier.off ? KVCL_STORE_NVME_OFF : KVCL_STORE_NVME_ON;
    }
}
