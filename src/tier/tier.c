/*
 * The tier: open and close, issuing writes, handling their completions.
 *
 * One mutex. The log changes only under it, and pump() issues the next writes after each change. Waiters are sorted by
 * ticket, so those that are due are a run at the head.
 */
#include "config.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "tier/tier_impl.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEPTH = 16, STAGING_CHUNKS = 32, BOUNCES_MIN = 4, CLOSE_SECONDS = 10 };

int64_t kvcl_tier_continue(kvcl_tier_t *tier, kvcl_tio_op_t *op, int64_t result)
{
    uint64_t moved;

    if ((result < 0) || (op->kind >= KVCL_TIO_SYNC) || ((uint64_t)result >= op->len)) {
        return (result < 0) ? result : 0;
    }
    moved = (uint64_t)result / KVCL_SEG_ALIGN * KVCL_SEG_ALIGN;
    if (moved == 0) {
        return (op->kind == KVCL_TIO_WRITE) ? -ENOSPC : -EIO;
    }
    op->off += moved;
    op->buf += moved;
    op->len -= moved;
    tier->io->ops->submit(tier->io, op);
    return 1;
}

/* ---- what is due ---- */

/* Lock held: waiters below the ticket, or all if the log is off, move to out. */
static void take_due(const kvcl_tier_t *tier, kvcl_list_t *waiters, uint64_t upto, kvcl_list_t *out)
{
    while (!kvcl_list_is_empty(waiters)) {
        kvcl_tier_waiter_t *waiter = kvcl_list_head(waiters, kvcl_tier_waiter_t, link);

        if ((waiter->ticket > upto) && !tier->log.off) {
            return;
        }
        waiter->ticket = (waiter->ticket <= upto) ? 0 : 1; /* from here on: did it fail? */
        kvcl_list_del(&waiter->link);
        kvcl_list_add_tail(out, &waiter->link);
    }
}

static void notify(kvcl_tier_t *tier, kvcl_list_t *due, kvcl_seglog_evicted_t *evicted)
{
    kvcl_seglog_evicted_t *next;
    uint32_t              i;

    for (; evicted != NULL; evicted = next) {
        next = evicted->next;
        for (i = 0; (tier->gone != NULL) && (i < evicted->n); ++i) {
            const kvcl_seg_rec_t *rec = &evicted->recs[i];

            if (!(rec->unit & KVCL_SEG_DEAD)) {
                kvcl_tier_loc_t loc = {.segment = evicted->segment, .unit = rec->unit, .gen = evicted->seq,
                                       .len = rec->len, .checksum = rec->checksum};

                tier->gone(tier->arg, rec->key, &loc);
            }
        }
        free(evicted->recs);
        free(evicted);
    }
    while (!kvcl_list_is_empty(due)) {
        kvcl_tier_waiter_t *waiter = kvcl_container_of(kvcl_list_pop(due), kvcl_tier_waiter_t, link);

        waiter->cb(waiter->arg, (waiter->ticket == 0) ? KVCL_OK : KVCL_ERR_IO);
        free(waiter);
    }
}

static void on_write(kvcl_tio_op_t *op, int64_t result);

/* Lock held: submit the log's next I/Os while ops are free. */
static void pump(kvcl_tier_t *tier)
{
    while (!kvcl_list_is_empty(&tier->free_writes)) {
        kvcl_tier_write_t *write = kvcl_list_head(&tier->free_writes, kvcl_tier_write_t, link);

        if (!kvcl_seglog_next(&tier->log, &write->io)) {
            return;
        }
        kvcl_list_del(&write->link);
        ++tier->n_writes;
        write->op.kind = (write->io.kind == KVCL_SEGLOG_SYNC) ? KVCL_TIO_SYNC : KVCL_TIO_WRITE;
        write->op.off  = write->io.off;
        write->op.buf  = write->io.buf;
        write->op.len  = write->io.len;
        write->op.done = on_write;
        tier->io->ops->submit(tier->io, &write->op);
    }
}

void kvcl_tier_go_on(kvcl_tier_t *tier)
{
    kvcl_seglog_evicted_t *evicted = tier->log.evicted;
    kvcl_list_t           due;

    kvcl_list_init(&due);
    tier->log.evicted = NULL;
    pump(tier);
    take_due(tier, &tier->appends, tier->log.written, &due);
    take_due(tier, &tier->flushes, tier->log.durable, &due);
    pthread_mutex_unlock(&tier->lock);
    notify(tier, &due, evicted);
}

static void on_write(kvcl_tio_op_t *op, int64_t result)
{
    kvcl_tier_write_t *write = kvcl_container_of(op, kvcl_tier_write_t, op);
    kvcl_tier_t       *tier  = write->tier;
    int64_t           rc     = kvcl_tier_continue(tier, op, result);

    if (rc > 0) {
        return;
    }
    pthread_mutex_lock(&tier->lock);
    if ((rc < 0) && !tier->log.off) {
        kvcl_log_warn("tier %s: %s: %s; it takes no more blocks", tier->path,
                      (op->kind == KVCL_TIO_SYNC) ? "a sync failed" : "a write failed", strerror((int)-rc));
    }
    kvcl_seglog_done(&tier->log, &write->io, rc == 0);
    kvcl_list_add_tail(&tier->free_writes, &write->link);
    kvcl_tier_go_on(tier);
    /* Last, and under the lock: close may free the tier from here on. */
    pthread_mutex_lock(&tier->lock);
    --tier->n_writes;
    pthread_cond_broadcast(&tier->idle);
    pthread_mutex_unlock(&tier->lock);
}

void kvcl_tier_nonce(kvcl_tier_t *tier, uint8_t nonce[KVCL_TIER_NONCE])
{
    uint64_t n = atomic_fetch_add_explicit(&tier->n_nonces, 1, memory_order_relaxed);

    memcpy(nonce, tier->life, sizeof(tier->life));
    memcpy(nonce + sizeof(tier->life), &n, sizeof(n));
}

/* ---- open and close ---- */

static void free_tier(kvcl_tier_t *tier)
{
    if (tier->io != NULL) {
        tier->io->ops->close(tier->io);
    }
    kvcl_seglog_fini(&tier->log);
    kvcl_tier_file_close(&tier->file);
    if (tier->slab != NULL) {
        (void)munmap(tier->slab, tier->slab_len);
    }
    free(tier->bounces);
    free(tier->path);
    kvcl_wipe(&tier->key, sizeof(tier->key));
    pthread_cond_destroy(&tier->idle);
    pthread_mutex_destroy(&tier->lock);
    free(tier);
}

static kvcl_status_t open_memory(kvcl_tier_t *tier, const kvcl_tier_params_t *params)
{
    uint64_t      chunk   = (params->chunk > 0) ? params->chunk : 1024 * 1024;
    uint64_t      staging = (params->staging > 0) ? params->staging : STAGING_CHUNKS * chunk;
    unsigned      depth   = (params->depth > 0) ? params->depth : DEPTH;
    uint64_t      chunks  = staging / chunk;
    unsigned      i;
    uint32_t      life;
    kvcl_status_t status  = kvcl_random_bytes(&life, sizeof(life));

    status = (status == KVCL_OK) ? kvcl_random_bytes(tier->life, sizeof(tier->life)) : status;
    if (status != KVCL_OK) {
        return status;
    }
    chunks          = (chunks > KVCL_SEGLOG_CHUNKS_MAX) ? KVCL_SEGLOG_CHUNKS_MAX : (chunks < 2) ? 2 : chunks;
    tier->n_bounces = (depth > BOUNCES_MIN) ? depth : BOUNCES_MIN;
    tier->slab_len  = chunks * chunk + (size_t)tier->n_bounces * KVCL_TIER_BOUNCE;
    tier->bounces   = calloc(tier->n_bounces, sizeof(*tier->bounces));
    tier->slab      = mmap(NULL, tier->slab_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tier->slab == MAP_FAILED) {
        tier->slab = NULL;
    }
    if ((tier->bounces == NULL) || (tier->slab == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no %zu bytes of memory for a tier's buffers", tier->slab_len);
    }
    for (i = 0; i < tier->n_bounces; ++i) {
        tier->bounces[i] = tier->slab + chunks * chunk + (size_t)i * KVCL_TIER_BOUNCE;
    }
    for (i = 0; i < KVCL_TIER_OPS; ++i) {
        tier->writes[i].tier = tier;
        kvcl_list_add_tail(&tier->free_writes, &tier->writes[i].link);
    }
    return kvcl_seglog_init(&tier->log, &tier->file.super, life, tier->slab, (unsigned)chunks, chunk);
}

static kvcl_status_t open_io(kvcl_tier_t *tier, const kvcl_tier_params_t *params)
{
    unsigned      depth = (params->depth > 0) ? params->depth : DEPTH, n = params->n_mem;
    struct iovec  *mem  = calloc(n + 1, sizeof(*mem));
    kvcl_status_t status;

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a tier's list of memory");
    }
    mem[0] = (struct iovec){.iov_base = tier->slab, .iov_len = tier->slab_len};
    if (n > 0) {
        memcpy(mem + 1, params->mem, n * sizeof(*mem));
    }
    status = ((params->io != NULL) ? params->io : &kvcl_tio_uring)->open(tier->file.fd, depth, mem, n + 1, &tier->io);
    if ((status == KVCL_ERR_UNSUPPORTED) && (params->io == NULL)) {
        kvcl_log_info("tier %s: %s; it uses threads", tier->path, kvcl_last_error());
        status = kvcl_tio_threads.open(tier->file.fd, depth, mem, n + 1, &tier->io);
    }
    free(mem);
    return status;
}

static kvcl_status_t find_blocks(kvcl_tier_t *tier)
{
    uint8_t       *scratch = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEGLOG_SCRATCH);
    uint64_t      begin    = kvcl_now_ns();
    kvcl_status_t status   = KVCL_ERR_NO_MEMORY;

    if (scratch != NULL) {
        status = kvcl_seglog_recover(&tier->log, kvcl_tier_file_read, &tier->file, scratch, &tier->stats.scanned);
    }
    if (tier->log.left_out > 0) {
        kvcl_log_warn("tier %s: too many segments have no valid footer; %u of them are not searched, their blocks are "
                      "dropped", tier->path, tier->log.left_out);
    }
    free(scratch);
    tier->stats.open_ns = kvcl_now_ns() - begin;
    return status;
}

kvcl_status_t kvcl_tier_open(const kvcl_tier_params_t *params, kvcl_tier_t **tier_p)
{
    kvcl_tier_t        *tier = calloc(1, sizeof(*tier));
    pthread_condattr_t attr;
    kvcl_status_t      status;

    if (tier == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a tier");
    }
    pthread_mutex_init(&tier->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&tier->idle, &attr);
    pthread_condattr_destroy(&attr);
    kvcl_list_init(&tier->free_writes);
    kvcl_list_init(&tier->appends);
    kvcl_list_init(&tier->flushes);
    kvcl_list_init(&tier->starved);
    tier->gone  = params->gone;
    tier->arg   = params->arg;
    tier->keyed = params->key != NULL;
    if (tier->keyed) {
        tier->key = *params->key;
    }
    tier->path = strdup(params->path);
    status     = (tier->path != NULL) ? kvcl_tier_file_open(params, &tier->file) : KVCL_ERR_NO_MEMORY;
    if (status != KVCL_OK) {
        tier->file.fd = -1;
    }
    status = (status == KVCL_OK) ? open_memory(tier, params) : status;
    status = (status == KVCL_OK) ? find_blocks(tier) : status;
    status = (status == KVCL_OK) ? open_io(tier, params) : status;
    if (status != KVCL_OK) {
        free_tier(tier);
        return status;
    }
    pthread_mutex_lock(&tier->lock);
    kvcl_tier_go_on(tier); /* footers of what was scanned */
    *tier_p = tier;
    return KVCL_OK;
}

void kvcl_tier_close(kvcl_tier_t *tier)
{
    uint64_t        deadline;
    struct timespec until;
    int             rc = 0;

    if (tier == NULL) {
        return;
    }
    deadline = kvcl_deadline_after(CLOSE_SECONDS * KVCL_NS_PER_SEC);
    until    = (struct timespec){.tv_sec  = (time_t)(deadline / KVCL_NS_PER_SEC),
                                 .tv_nsec = (long)(deadline % KVCL_NS_PER_SEC)};
    pthread_mutex_lock(&tier->lock);
    tier->closing = true;
    kvcl_seglog_seal(&tier->log);
    (void)kvcl_seglog_flush(&tier->log);
    kvcl_tier_go_on(tier);
    pthread_mutex_lock(&tier->lock);
    while ((rc == 0) &&
           ((tier->n_writes > 0) || (tier->n_reads > 0) || !(tier->log.off || kvcl_seglog_idle(&tier->log)))) {
        rc = pthread_cond_timedwait(&tier->idle, &tier->lock, &until);
    }
    pthread_mutex_unlock(&tier->lock);
    if (rc != 0) {
        kvcl_log_warn("tier %s: the disk does not answer; its memory is given up", tier->path);
        return;
    }
    free_tier(tier);
}
