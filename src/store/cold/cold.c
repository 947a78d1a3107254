/*
 * A rank's second tier: opened with the store, closed with it, and the thread in between.
 *
 * The thread does what must not be done under the engine lock or in somebody's call: it writes blocks into the tier,
 * drops removed keys, lists what a start has found, and tells homes what has left the tier. It sleeps when there is
 * nothing to do. The tier's own callbacks only make notes (gone) or end reads (cold/stage.c).
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store/pool/pool.h"

#include <stdlib.h>

enum { DRAIN_SECONDS = 10, NOTES_MIN = 256 };
#define PAUSE_NS (2 * KVCL_NS_PER_MS)

const kvcl_tio_ops_t *kvcl_nvme_io;
_Atomic bool         kvcl_nvme_late;

kvcl_dir_loc_t kvcl_nvme_loc(const kvcl_nvme_t *nvme, const kvcl_tier_loc_t *at, unsigned copies)
{
    return (kvcl_dir_loc_t){.rank = (uint16_t)nvme->store->me, .incarnation = nvme->store->incarnation,
                            .cache = KVCL_NVME_CACHE, .slot = at->unit, .len = at->len, .gen = at->gen,
                            .flags = (uint16_t)(KVCL_DIR_TIER_NVME | KVCL_LOC_SUMMED |
                                                ((copies - 1) << KVCL_LOC_COPIES_SHIFT)),
                            .checksum = at->checksum};
}

bool kvcl_nvme_holds(const kvcl_nvme_t *nvme, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    kvcl_tier_loc_t at;

    return (nvme != NULL) && (loc->incarnation == nvme->store->incarnation) &&
           (kvcl_tier_find(nvme->tier, key->bytes, &at) == KVCL_OK) && (at.unit == loc->slot) && (at.gen == loc->gen);
}

/* ---- notes for the thread ---- */

void kvcl_nvme_kick(kvcl_nvme_t *nvme)
{
    if (!atomic_exchange(&nvme->kicked, true)) {
        kvcl_nvme_wake(nvme);
    }
}

void kvcl_nvme_wake(kvcl_nvme_t *nvme)
{
    pthread_mutex_lock(&nvme->lock);
    atomic_store(&nvme->kicked, true);
    pthread_cond_broadcast(&nvme->wake);
    pthread_mutex_unlock(&nvme->lock);
}

/* nvme->lock held. Room for one more of size bytes; NULL: no memory. */
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

void kvcl_nvme_gone(void *arg, const uint8_t *key, const kvcl_tier_loc_t *at)
{
    kvcl_nvme_t      *nvme = arg;
    unsigned         copies = (nvme->store->n_ranks > 1) ? 2 : 1; /* both homes may list it */
    kvcl_store_rec_t *more;

    pthread_mutex_lock(&nvme->lock);
    more = grown(nvme->gone, nvme->n_gone, &nvme->room_gone, sizeof(*more));
    if (more != NULL) { /* else a home keeps an entry that reads as a miss */
        nvme->gone = more;
        memcpy(more[nvme->n_gone].key.bytes, key, sizeof(more->key.bytes));
        more[nvme->n_gone++].loc = kvcl_nvme_loc(nvme, at, copies);
    }
    pthread_mutex_unlock(&nvme->lock);
    kvcl_nvme_kick(nvme);
}

/* False: the tier has no room for the tombstone yet. Its callbacks make notes only: kvcl_nvme_gone(). */
static bool drop_now(kvcl_nvme_t *nvme, const kvcl_key_t *key)
{
    kvcl_tier_loc_t at;

    if (kvcl_tier_find(nvme->tier, key->bytes, &at) == KVCL_OK) {
        if (kvcl_tier_drop(nvme->tier, key->bytes) == KVCL_ERR_BUSY) {
            return false;
        }
        kvcl_nvme_gone(nvme, key->bytes, &at);
    }
    return true;
}

static void drop_later(kvcl_nvme_t *nvme, const kvcl_key_t *key)
{
    kvcl_key_t *more;

    pthread_mutex_lock(&nvme->lock);
    more = grown(nvme->drops, nvme->n_drops, &nvme->room_drops, sizeof(*more));
    if (more != NULL) {
        nvme->drops            = more;
        more[nvme->n_drops++] = *key;
    }
    pthread_mutex_unlock(&nvme->lock);
    kvcl_nvme_kick(nvme);
}

void kvcl_nvme_drop(kvcl_nvme_t *nvme, const kvcl_key_t *key)
{
    if (nvme == NULL) {
        return;
    }
    ++nvme->drop_epoch;
    if (!drop_now(nvme, key)) {
        drop_later(nvme, key);
    }
}

/* ---- what the thread does ---- */

/* Engine lock held. Some of the notes: nobody else has taken them and not told yet. False: there were none. */
static bool tell_some(kvcl_nvme_t *nvme)
{
    enum { PIECE = 256 };
    kvcl_store_rec_t recs[PIECE];
    size_t           n;

    pthread_mutex_lock(&nvme->lock);
    n = (nvme->n_gone < PIECE) ? nvme->n_gone : PIECE;
    nvme->n_gone -= n;
    if (n != 0) {
        memcpy(recs, nvme->gone + nvme->n_gone, n * sizeof(recs[0]));
    }
    pthread_mutex_unlock(&nvme->lock);
    kvcl_nvme_soil(nvme, recs, n);
    kvcl_store_tell_removed(nvme->store, recs, n);
    return n != 0;
}

void kvcl_nvme_tell_gone(kvcl_nvme_t *nvme)
{
    while ((nvme != NULL) && tell_some(nvme)) {
    }
}

static void take_gone(kvcl_nvme_t *nvme)
{
    bool more = true;

    while (more) {
        kvcl_lock(nvme->store->ctx);
        more = !nvme->store->closing && tell_some(nvme);
        kvcl_unlock(nvme->store->ctx);
    }
}

static kvcl_nvme_turn_t take_drops(kvcl_nvme_t *nvme)
{
    kvcl_key_t *keys;
    size_t     n, i;
    bool       busy = false;

    pthread_mutex_lock(&nvme->lock);
    keys             = nvme->drops;
    n                = nvme->n_drops;
    nvme->drops      = NULL;
    nvme->n_drops    = 0;
    nvme->room_drops = 0;
    pthread_mutex_unlock(&nvme->lock);
    for (i = 0; i < n; ++i) {
        busy = busy || !drop_now(nvme, &keys[i]);
        if (busy) {
            drop_later(nvme, &keys[i]);
        }
    }
    free(keys);
    return busy ? KVCL_NVME_WAIT : KVCL_NVME_IDLE;
}

static void sleep_a_while(kvcl_nvme_t *nvme, uint64_t ns)
{
    uint64_t        until = kvcl_deadline_after(ns);
    struct timespec t     = {.tv_sec = (time_t)(until / KVCL_NS_PER_SEC), .tv_nsec = (long)(until % KVCL_NS_PER_SEC)};

    if (!nvme->stopping) {
        (void)pthread_cond_timedwait(&nvme->wake, &nvme->lock, &t);
    }
}

static void *run(void *arg)
{
    kvcl_nvme_t      *nvme = arg;
    kvcl_nvme_turn_t drops, demoted, listed;
    bool             draining, wait;

    pthread_mutex_lock(&nvme->lock);
    while (!nvme->stopping) {
        if (!atomic_exchange(&nvme->kicked, false)) {
            pthread_cond_wait(&nvme->wake, &nvme->lock);
            continue;
        }
        pthread_mutex_unlock(&nvme->lock);
        draining = atomic_load(&nvme->draining); /* all of this turn */
        drops    = take_drops(nvme);
        demoted  = kvcl_nvme_demote(nvme);
        listed   = kvcl_nvme_list(nvme);
        take_gone(nvme);
        pthread_mutex_lock(&nvme->lock);
        wait = (drops == KVCL_NVME_WAIT) || (demoted == KVCL_NVME_WAIT) || (listed == KVCL_NVME_WAIT);
        if (wait || (demoted == KVCL_NVME_MORE) || (listed == KVCL_NVME_MORE)) {
            atomic_store(&nvme->kicked, true);
        } else if (draining) {
            nvme->drained = true;
            pthread_cond_broadcast(&nvme->wake);
        }
        if (wait && (demoted != KVCL_NVME_MORE) && (listed != KVCL_NVME_MORE)) {
            sleep_a_while(nvme, PAUSE_NS);
        }
    }
    pthread_mutex_unlock(&nvme->lock);
    return NULL;
}

/* ---- opening ---- */

/* "%r" is the rank. */
static kvcl_status_t path_of(const char *spec, uint32_t rank, char **path_p, uint64_t *size_p)
{
    char          *path, *full;
    const char    *at;
    size_t        room;
    kvcl_status_t status = kvcl_tier_spec_parse(spec, &path, size_p);

    if (status != KVCL_OK) {
        return kvcl_fail(status, "KVCL_STORE_NVME: %s", kvcl_last_error());
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

static kvcl_status_t open_tier(kvcl_nvme_t *nvme, const char *spec)
{
    struct iovec       mem[KVCL_SLABS_CLASSES_MAX];
    kvcl_tier_params_t params = {.mem = mem, .n_mem = nvme->n, .gone = kvcl_nvme_gone, .arg = nvme, .io = kvcl_nvme_io};
    char               *path;
    kvcl_status_t      status = path_of(spec, nvme->store->me, &path, &params.size);
    unsigned           i;

    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; i < nvme->n; ++i) {
        kvcl_cache_h cache = nvme->classes[i].cache;
        mem[i] = (struct iovec){(void *)cache->bases[0], cache->shape.blocks * cache->shape.block_bytes};
    }
    params.path = path;
    status      = kvcl_tier_open(&params, &nvme->tier);
    if ((status == KVCL_ERR_BUSY) && (strstr(spec, "%r") == NULL)) {
        status = kvcl_fail(status, "%s; %%r in KVCL_STORE_NVME stands for the rank", kvcl_last_error());
    }
    free(path);
    return status;
}

static kvcl_status_t make_class(kvcl_nvme_t *nvme, kvcl_owner_t *pool)
{
    kvcl_nvme_class_t *cls = &nvme->classes[nvme->n++];

    cls->nvme  = nvme;
    cls->pool  = pool;
    cls->clean = calloc(pool->slots.n, sizeof(*cls->clean));
    cls->sums  = calloc(pool->slots.n, sizeof(*cls->sums));
    kvcl_list_init(&cls->idle);
    kvcl_list_init(&cls->held);
    kvcl_list_init(&cls->jobs);
    return ((cls->clean != NULL) && (cls->sums != NULL)) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

/* As the pool has them. */
static kvcl_status_t make_classes(kvcl_nvme_t *nvme, const kvcl_pool_t *pool)
{
    kvcl_status_t status = KVCL_OK;
    uint64_t      most   = 0;
    unsigned      i;

    for (i = 0; (i < pool->n) && (status == KVCL_OK); ++i) {
        status = make_class(nvme, pool->owners[i]);
        most   = (pool->owners[i]->slots.n > most) ? pool->owners[i]->slots.n : most;
    }
    for (nvme->n_seen = 1024; nvme->n_seen < 4 * most; nvme->n_seen *= 2) {
    }
    nvme->seen = calloc(nvme->n_seen, sizeof(*nvme->seen));
    return ((status == KVCL_OK) && (nvme->seen != NULL))
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store's second tier");
}

kvcl_status_t kvcl_nvme_open(kvcl_store_h store, const char *spec)
{
    kvcl_nvme_t        *nvme = calloc(1, sizeof(*nvme));
    pthread_condattr_t attr;
    kvcl_status_t      status;

    if (nvme == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store's second tier");
    }
    nvme->store = store;
    pthread_mutex_init(&nvme->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&nvme->wake, &attr);
    pthread_condattr_destroy(&attr);
    kvcl_list_init(&nvme->begun);
    kvcl_map_init(&nvme->index);
    status = make_classes(nvme, store->pool);
    status = (status == KVCL_OK) ? kvcl_staging_init(nvme) : status;
    status = (status == KVCL_OK) ? open_tier(nvme, spec) : status;
    if (status != KVCL_OK) {
        kvcl_nvme_close(nvme);
        return status;
    }
    store->nvme = nvme;
    return KVCL_OK;
}

void kvcl_nvme_start(kvcl_nvme_t *nvme)
{
    if (nvme == NULL) {
        return;
    }
    kvcl_lock(nvme->store->ctx);
    nvme->told = !nvme->store->ranks[nvme->store->me].listing;
    kvcl_unlock(nvme->store->ctx);
    nvme->started = (pthread_create(&nvme->thread, NULL, run, nvme) == 0);
    if (!nvme->started) {
        kvcl_log_warn("no thread for a store's second tier: nothing is written into it");
        kvcl_lock(nvme->store->ctx);
        nvme->off = true;
        kvcl_unlock(nvme->store->ctx);
    }
    kvcl_nvme_kick(nvme);
}

/* ---- closing ---- */

void kvcl_nvme_drain(kvcl_nvme_t *nvme)
{
    uint64_t        until = kvcl_deadline_after(DRAIN_SECONDS * KVCL_NS_PER_SEC);
    struct timespec t     = {.tv_sec = (time_t)(until / KVCL_NS_PER_SEC), .tv_nsec = (long)(until % KVCL_NS_PER_SEC)};
    int             rc    = 0;

    if ((nvme == NULL) || !nvme->started) {
        return;
    }
    atomic_store(&nvme->draining, true);
    kvcl_nvme_wake(nvme);
    pthread_mutex_lock(&nvme->lock);
    while (!nvme->drained && (rc == 0)) {
        rc = pthread_cond_timedwait(&nvme->wake, &nvme->lock, &t);
    }
    pthread_mutex_unlock(&nvme->lock);
    if (rc != 0) {
        kvcl_log_warn("a store is closed before all of its pool was in its tier");
    }
}

void kvcl_nvme_stop(kvcl_nvme_t *nvme)
{
    if (nvme != NULL) {
        kvcl_stage_stop(nvme);
    }
}

void kvcl_nvme_close(kvcl_nvme_t *nvme)
{
    unsigned i;

    if (nvme == NULL) {
        return;
    }
    if (nvme->started) {
        pthread_mutex_lock(&nvme->lock);
        nvme->stopping = true;
        pthread_cond_broadcast(&nvme->wake);
        pthread_mutex_unlock(&nvme->lock);
        pthread_join(nvme->thread, NULL);
    }
    kvcl_tier_close(nvme->tier);
    if (nvme->n_reading != 0) {
        kvcl_log_warn("a store's staging memory is given up: the disk may still write there");
        return;
    }
    kvcl_staging_fini(nvme);
    kvcl_map_fini(&nvme->index);
    free(nvme->gone);
    free(nvme->drops);
    for (i = 0; i < nvme->n; ++i) {
        free(nvme->classes[i].clean);
        free(nvme->classes[i].sums);
    }
    free(nvme->seen);
    pthread_cond_destroy(&nvme->wake);
    pthread_mutex_destroy(&nvme->lock);
    free(nvme);
}

bool kvcl_nvme_has_any(kvcl_nvme_t *nvme)
{
    kvcl_tier_stats_t tier = {.blocks = 0};

    if (nvme != NULL) {
        kvcl_tier_stats(nvme->tier, &tier);
    }
    return tier.blocks != 0;
}

void kvcl_nvme_stats(kvcl_nvme_t *nvme, kvcl_store_stats_t *stats)
{
    kvcl_tier_stats_t tier;

    if (nvme != NULL) {
        kvcl_tier_stats(nvme->tier, &tier);
        stats->demoted     = atomic_load_explicit(&nvme->n_demoted, memory_order_relaxed);
        stats->promoted    = atomic_load_explicit(&nvme->n_promoted, memory_order_relaxed);
        stats->dropped     = atomic_load_explicit(&nvme->n_dropped, memory_order_relaxed);
        stats->nvme_blocks = tier.blocks;
        stats->nvme_bytes  = tier.bytes;
        stats->nvme_bad    = tier.bad;
        stats->nvme_state  = tier.off ? KVCL_STORE_NVME_OFF : KVCL_STORE_NVME_ON;
    }
}
