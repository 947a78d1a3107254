/*
 * Blocks of this rank's tier on their way to requesting ranks: read into staging blocks (cold/staging.c), which readers
 * hold until they release them.
 *
 * A request is for blocks of one size. Requests of one size are served in order of arrival, and the sizes take turns.
 * At most WAITING_MAX blocks wait; a request beyond that is answered KVCL_ERR_BUSY. A block that is requested a second
 * time is promoted (cold/promote.c).
 *
 * Everything runs under the engine lock, except the ends of reads, which run on the tier's threads and take it.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store/home/home_answer.h"
#include "store/home/timer.h"
#include "store/pool/pool.h"

#include <stdlib.h>

enum { WAITING_MAX = 65536 };
#define RETRY_NS (100 * KVCL_NS_PER_MS)

typedef struct stage_job stage_job_t;

/* One block of a request. */
typedef struct stage_item {
    kvcl_list_t link; /* in kvcl_stage_t.waiters */
    stage_job_t *job;
} stage_item_t;

struct stage_job {
    kvcl_list_t            link;    /* in cls->jobs until all is begun, then in cold->begun */
    kvcl_cold_class_t      *cls;
    kvcl_peer_t            *peer;   /* the requester; NULL: cb, if that is not NULL */
    kvcl_msg_dir_request_t request;
    kvcl_stage_cb_t        cb;
    void                   *arg;
    uint32_t               n, next; /* items; those begun */
    uint32_t               left;    /* not over */
    kvcl_stage_got_t       *got;
    kvcl_store_rec_t       *recs;
    stage_item_t           items[];
};

/* A job for blocks of the first record's size; the others are answered NOT_FOUND. */
static stage_job_t *make(kvcl_cold_t *cold, const void *recs, uint32_t n)
{
    stage_job_t *job = calloc(1, sizeof(*job) + (n * (sizeof(job->items[0]) + sizeof(*job->got) + sizeof(*job->recs))));
    uint32_t    i;

    if (job == NULL) {
        return NULL;
    }
    job->n    = n;
    job->left = n;
    job->recs = (kvcl_store_rec_t *)(void *)(job->items + n);
    job->got  = (kvcl_stage_got_t *)(void *)(job->recs + n);
    memcpy(job->recs, recs, n * sizeof(*job->recs));
    job->cls  = kvcl_cold_class_for(cold, job->recs[0].loc.len);
    job->cls  = (job->cls != NULL) ? job->cls : &cold->classes[0];
    kvcl_list_init(&job->link);
    for (i = 0; i < n; ++i) {
        kvcl_list_init(&job->items[i].link);
        job->items[i].job = job;
        job->got[i].status = KVCL_ERR_BUSY;
    }
    return job;
}

/* The get that requested the blocks has ended and cannot release them. */
static void release_all(stage_job_t *job)
{
    uint32_t i;

    for (i = 0; i < job->n; ++i) {
        if (job->got[i].status == KVCL_OK) {
            kvcl_staging_release(job->cls->cold, &job->got[i]);
        }
    }
}

/* Frees the job. */
static void answer(stage_job_t *job)
{
    kvcl_cold_t *cold = job->cls->cold;

    kvcl_list_del(&job->link);
    cold->n_waiting -= job->n;
    --cold->store->ops;
    if (job->peer != NULL) {
        kvcl_rpc_answer(job->peer, &job->request, KVCL_OK, job->n, job->got, job->n * sizeof(*job->got));
    } else if (job->cb != NULL) {
        job->cb(job->arg, job->got, job->n);
    } else {
        release_all(job);
    }
    kvcl_engine_notify(cold->store->ctx);
    free(job);
}

static void item_over(stage_item_t *item, kvcl_status_t status, kvcl_stage_t *stage)
{
    stage_job_t      *job = item->job;
    kvcl_stage_got_t *got = &job->got[item - job->items];

    got->status = status;
    if (status == KVCL_OK) {
        kvcl_staging_hold(stage);
        got->cache = (uint16_t)stage->cls->cache->id;
        got->slot  = kvcl_stage_slot(stage);
        got->gen   = kvcl_slots_gen(&stage->cls->slots, got->slot);
    }
    if (--job->left == 0) {
        answer(job);
    }
}

static void pump(kvcl_cold_t *cold);

/* A read has ended. */
static void stage_over(kvcl_stage_t *stage, kvcl_status_t status)
{
    kvcl_cold_t *cold = stage->cls->cold;

    stage->reading = false;
    --cold->n_reading;
    cold->pumping = true; /* no staging block is taken while this one is handed to its readers */
    status = kvcl_staging_read(stage, status);
    if ((status != KVCL_OK) && !cold->store->closing) {
        kvcl_store_notify_removed(cold->store, &stage->rec, 1);
    }
    while (!kvcl_list_is_empty(&stage->waiters)) {
        stage_item_t *item = kvcl_container_of(kvcl_list_pop(&stage->waiters), stage_item_t, link);
        item_over(item, status, stage);
    }
    if ((status == KVCL_OK) && stage->promote) {
        kvcl_promote(stage);
    }
    cold->pumping = false;
}

static void on_read(void *arg, kvcl_status_t status)
{
    kvcl_stage_t   *stage = arg;
    kvcl_cold_t    *cold  = stage->cls->cold;
    kvcl_context_h ctx    = cold->store->ctx;

    kvcl_lock(ctx);
    stage_over(stage, status);
    pump(cold);
    --cold->store->ops; /* last: the store may be closed from here on */
    kvcl_engine_notify(ctx);
    kvcl_unlock(ctx);
}

/* Begin one block of a request. False: there is no staging block, or no read, for it now. A block that has left the
 * tier is not handed out, staged or not: it may have been removed. */
static bool begin(stage_item_t *item, const kvcl_store_rec_t *rec)
{
    kvcl_cold_class_t *cls  = item->job->cls;
    kvcl_cold_t       *cold = cls->cold;
    kvcl_stage_t      *stage;
    kvcl_tier_loc_t   at;
    struct iovec      iov;
    kvcl_status_t     status;

    if ((rec->loc.len != cls->cache->shape.block_bytes) || !kvcl_cold_holds(cold, &rec->key, &rec->loc) ||
        (kvcl_tier_find(cold->tier, rec->key.bytes, &at) != KVCL_OK) || (at.len != rec->loc.len) ||
        (at.checksum != rec->loc.checksum)) {
        item_over(item, KVCL_ERR_NOT_FOUND, NULL);
        return true;
    }
    stage = kvcl_staging_find(cold, rec);
    if (stage != NULL) {
        stage->promote = kvcl_promote_seen(cold, &rec->key) || stage->promote;
        if (stage->reading) {
            kvcl_list_add_tail(&stage->waiters, &item->link);
            return true;
        }
        if (stage->promote) {
            kvcl_promote(stage);
        }
        item_over(item, KVCL_OK, stage);
        return true;
    }
    stage = kvcl_staging_take(cls, rec);
    if (stage == NULL) {
        return false;
    }
    stage->promote = kvcl_promote_seen(cold, &rec->key);
    iov.iov_base   = (uint8_t *)cls->cache->bases[0] + ((uint64_t)kvcl_stage_slot(stage) * rec->loc.len);
    iov.iov_len    = rec->loc.len;
    status         = kvcl_tier_read(cold->tier, rec->key.bytes, &at, &iov, 1, on_read, stage);
    if (status != KVCL_OK) {
        (void)!kvcl_staging_read(stage, status);
        if (status == KVCL_ERR_BUSY) {
            return false; /* the tier begins no further read until one ends */
        }
        item_over(item, status, NULL);
        return true;
    }
    stage->reading = true;
    ++cold->n_reading;
    ++cold->store->ops;
    kvcl_list_add_tail(&stage->waiters, &item->link);
    return true;
}

static void retry(void *arg)
{
    kvcl_cold_t *cold = arg;

    cold->timer = NULL;
    pump(cold);
}

/* Begin what is left of a request. False: there is no staging block for the next one. */
static bool begin_job(stage_job_t *job)
{
    kvcl_cold_class_t *cls = job->cls;
    uint32_t          i, n = job->n;

    for (i = job->next; i < n; ++i) {
        job->next = i + 1;
        if (i + 1 == n) { /* its last block may end and free it */
            kvcl_list_del(&job->link);
            kvcl_list_add_tail(&cls->cold->begun, &job->link);
        }
        if (!begin(&job->items[i], &job->recs[i])) {
            job->next = i;
            kvcl_list_del(&job->link);
            kvcl_list_add_head(&cls->jobs, &job->link);
            return false;
        }
    }
    return true;
}

/* The class whose request is next, without those in full; NULL: there is none. */
static kvcl_cold_class_t *next_class(kvcl_cold_t *cold, unsigned full)
{
    unsigned i, k;

    for (i = 0; i < cold->n; ++i) {
        k = (cold->begin_at + i) % cold->n;
        if (!(full & (1u << k)) && !kvcl_list_is_empty(&cold->classes[k].jobs)) {
            cold->begin_at = (k + 1) % cold->n;
            return &cold->classes[k];
        }
    }
    return NULL;
}

/* Begin blocks of the requests, in turn, as long as there is room. Requests that end in here may add others. */
static void pump(kvcl_cold_t *cold)
{
    kvcl_cold_class_t *cls;
    unsigned          full = 0;

    if (cold->pumping) {
        return;
    }
    cold->pumping = true;
    while ((cls = next_class(cold, full)) != NULL) {
        if (!begin_job(kvcl_list_head(&cls->jobs, stage_job_t, link))) {
            full |= 1u << (cls - cold->classes);
        }
    }
    cold->pumping = false;
    if ((full != 0) && (cold->timer == NULL)) {
        cold->timer = kvcl_store_timer_start(cold->store, RETRY_NS, retry, cold);
    }
}

/* The records are hostile: begin() checks that they name blocks of this rank's tier. */
static kvcl_status_t add_job(stage_job_t *job)
{
    kvcl_cold_t *cold = job->cls->cold;

    if (cold->n_waiting + job->n > WAITING_MAX) {
        free(job);
        return KVCL_ERR_BUSY;
    }
    cold->n_waiting += job->n;
    ++cold->store->ops;
    kvcl_list_add_tail(&job->cls->jobs, &job->link);
    pump(cold);
    return KVCL_OK;
}

bool kvcl_stage_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                           size_t len)
{
    stage_job_t   *job;
    kvcl_status_t status = KVCL_ERR_NO_MEMORY;

    (void)len;
    if (store->cold == NULL) {
        kvcl_rpc_answer(peer, in, KVCL_ERR_UNSUPPORTED, 0, NULL, 0);
        return true;
    }
    job = make(store->cold, data, in->n);
    if (job != NULL) {
        job->peer    = peer;
        job->request = *in;
        status       = add_job(job);
    }
    if (status != KVCL_OK) {
        kvcl_rpc_answer(peer, in, status, 0, NULL, 0);
    }
    return true;
}

kvcl_status_t kvcl_stage_here(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, uint32_t n, kvcl_stage_cb_t cb,
                              void *arg)
{
    stage_job_t *job = make(cold, recs, n);

    if (job == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    job->cb  = cb;
    job->arg = arg;
    return add_job(job);
}

void kvcl_stage_release(kvcl_store_h store, const void *data, uint32_t n)
{
    kvcl_stage_got_t got;
    uint32_t         i;

    for (i = 0; (store->cold != NULL) && (i < n); ++i) {
        memcpy(&got, (const char *)data + (i * sizeof(got)), sizeof(got));
        kvcl_staging_release(store->cold, &got);
    }
    if (store->cold != NULL) {
        pump(store->cold);
    }
}

bool kvcl_stage_on_release(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                           size_t len)
{
    (void)peer;
    (void)len;
    kvcl_stage_release(store, data, in->n);
    return true;
}

static void forget(kvcl_list_t *jobs, const void *arg)
{
    stage_job_t *job;

    kvcl_list_foreach (job, jobs, stage_job_t, link) {
        if (job->arg == arg) {
            job->cb = NULL;
        }
    }
}

void kvcl_stage_forget(kvcl_cold_t *cold, const void *arg)
{
    unsigned i;

    for (i = 0; i < cold->n; ++i) {
        forget(&cold->classes[i].jobs, arg);
    }
    forget(&cold->begun, arg);
}

static void end_job(stage_job_t *job)
{
    uint32_t i, n = job->n;

    kvcl_list_del(&job->link);
    kvcl_list_add_tail(&job->cls->cold->begun, &job->link);
    for (i = job->next; i < n; ++i) {
        item_over(&job->items[i], KVCL_ERR_SHUTDOWN, NULL);
    }
}

void kvcl_stage_stop(kvcl_cold_t *cold)
{
    unsigned i;

    kvcl_store_timer_stop(cold->timer);
    cold->timer = NULL;
    for (i = 0; i < cold->n; ++i) {
        while (!kvcl_list_is_empty(&cold->classes[i].jobs)) {
            end_job(kvcl_list_head(&cold->classes[i].jobs, stage_job_t, link));
        }
    }
}
