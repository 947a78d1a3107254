/*
 * Copies of other ranks' blocks in this rank's pool: what a rank does for KVCL_RPC_COPY.
 *
 * A job takes pool blocks for the keys that the pool lacks, evicting as for a put. It fetches the bytes as a get does,
 * verified, from where the records say, or else from any copy; publishes and lists the blocks; has the next rank of the
 * chain fetch them from here; and answers how many copies exist from this rank on. The steps are callbacks of requests:
 * they take the lock themselves, and each has a deadline. A job always ends by answering.
 *
 * All blocks of a job have one size, and so belong to one class of the pool. At most BLOCKS_MAX blocks, and half of
 * what the class has or could get room for, are in flight; a request beyond that is answered KVCL_ERR_BUSY.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/copy/copy_job.h"
#include "store/copy/copy_jobs.h"
#include "store/get/gets.h"
#include "store/home/home_answer.h"
#include "store/pool/blocks.h"
#include "store/pool/publish.h"
#include "store/pool/room.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { BLOCKS_MAX = 16384 };

static kvcl_copy_job_t *make(kvcl_owner_t *pool, uint32_t n)
{
    kvcl_copy_job_t *job = calloc(1, sizeof(*job) + (n * ((2 * sizeof(kvcl_store_rec_t)) + sizeof(kvcl_dir_loc_t) +
                                                     (2 * sizeof(uint32_t)) + sizeof(kvcl_copy_other_t) +
                                                     sizeof(kvcl_copy_pin_t) + sizeof(kvcl_status_t) + 1)));

    if (job != NULL) {
        job->store  = pool->store;
        job->pool   = pool;
        job->n      = n;
        job->recs   = (kvcl_store_rec_t *)(void *)(job + 1);
        job->todo   = job->recs + n;
        job->from   = (kvcl_dir_loc_t *)(void *)(job->todo + n);
        job->others = (kvcl_copy_other_t *)(void *)(job->from + n);
        job->pins   = (kvcl_copy_pin_t *)(void *)(job->others + n);
        job->slots  = (uint32_t *)(void *)(job->pins + n);
        job->got    = (kvcl_status_t *)(void *)(job->slots + n);
        job->order  = (uint32_t *)(void *)(job->got + n);
        job->made   = (uint8_t *)(job->order + n);
        kvcl_list_init(&job->link);
    }
    return job;
}

/* Lock held. For blocks of a put, store the number of copies known here: those before this rank's, this one, and those
 * after it. */
static void store_counts(const kvcl_copy_job_t *job)
{
    const kvcl_owner_node_t *node;
    unsigned                copies;
    uint8_t                 *note;
    uint32_t                i;

    kvcl_assert_locked(job->store->ctx);
    for (i = 0; (job->head.there != 0) && (i < job->n); ++i) {
        node = (job->made[i] != 0) ? kvcl_owner_find(job->store, &job->recs[i].key, job->pool) : NULL;
        if (node != NULL) {
            note   = &job->pool->array[kvcl_owner_slot(node)].note;
            copies = (unsigned)job->head.there + job->made[i];
            copies = (copies < KVCL_DIR_LOCS_MAX) ? copies : KVCL_DIR_LOCS_MAX;
            *note  = (uint8_t)(((*note & KVCL_NOTE_COPIES) < copies) ? (*note & ~KVCL_NOTE_COPIES) | copies : *note);
        }
    }
}

/* Lock held. Frees the job. */
static void end(kvcl_copy_job_t *job, kvcl_status_t status)
{
    kvcl_store_h     store = job->store;
    kvcl_copy_tail_t tail  = {.pool_free = store->closing ? 0 : kvcl_pool_all_free_bytes(store->pool),
                              .size_free = store->closing ? 0 : kvcl_pool_free_bytes(job->pool)};
    uint8_t          out[sizeof(tail) + KVCL_COPY_MAX];

    kvcl_assert_locked(store->ctx);
    if (!store->closing) {
        kvcl_copy_unpin(job);
        store_counts(job);
    }
    memcpy(out, &tail, sizeof(tail));
    memcpy(out + sizeof(tail), job->made, job->n);
    kvcl_rpc_answer(job->peer, &job->request, status, job->n, out, (status == KVCL_OK) ? sizeof(tail) + job->n : 0);
    kvcl_list_del(&job->link);
    store->n_copying -= job->n;
    job->pool->n_copying -= job->n;
    --store->ops;
    kvcl_engine_notify(store->ctx);
    free(job);
}

/* ---- the chain ---- */

static void on_chain(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_copy_job_t *job  = rpc->arg;
    const uint8_t   *made = data;
    uint32_t        i;

    (void)len;
    for (i = 0; (status == KVCL_OK) && (i < rpc->n); ++i) {
        job->made[rpc->order[i]] = (uint8_t)(job->made[rpc->order[i]] + ((made[sizeof(kvcl_copy_tail_t) + i] <
                                             KVCL_DIR_LOCS_MAX) ? made[sizeof(kvcl_copy_tail_t) + i] : 0));
    }
    end(job, KVCL_OK);
}

/* Make loc this rank's copy: length, flags and checksum are those of the same bytes. */
static void set_local(const kvcl_owner_t *pool, uint32_t slot, kvcl_dir_loc_t *loc)
{
    loc->rank        = pool->slots.rank;
    loc->incarnation = pool->slots.incarnation;
    loc->cache       = pool->slots.cache;
    loc->slot        = slot;
    loc->gen         = kvcl_slots_gen(&pool->slots, slot);
}

/* Lock held. Send the blocks that the pool holds on to the next rank, as copies of this rank. False: nothing was
 * sent. */
static bool send_on(kvcl_copy_job_t *job)
{
    kvcl_store_h      store = job->store;
    kvcl_copy_head_t  head  = {.copies = job->head.copies, .flags = job->head.flags, .tenant = job->head.tenant};
    kvcl_owner_node_t *node;
    kvcl_rpc_t        *rpc;
    uint32_t          n = 0, i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < job->n; ++i) {
        node = (job->made[i] != 0) ? kvcl_owner_find(store, &job->recs[i].key, job->pool) : NULL;
        if (node != NULL) {
            set_local(job->pool, kvcl_owner_slot(node), &job->recs[i].loc);
            job->order[n++] = i;
        }
    }
    head.there  = (uint8_t)(((job->head.there == 0) || (job->head.there == KVCL_DIR_LOCS_MAX)) ? job->head.there
                                                                                               : job->head.there + 1);
    head.n_next = (uint8_t)(job->head.n_next - 1);
    memcpy(head.next, job->head.next + 1, head.n_next * sizeof(head.next[0]));
    rpc = (n != 0) ? kvcl_copy_request(store, job->head.next[0], &head, job->recs, job->order, n) : NULL;
    if (rpc == NULL) {
        return false;
    }
    rpc->arg  = job;
    rpc->done = on_chain;
    kvcl_rpc_post(rpc, kvcl_copy_time(job->store, n, kvcl_owner_bytes(job->pool)), NULL);
    return true;
}

static bool next_lives(const kvcl_copy_job_t *job)
{
    const struct kvcl_store *store = job->store;

    return (job->head.n_next != 0) && (job->head.next[0] != store->me) &&
           (store->incarnations[job->head.next[0]] != 0);
}

/* ---- this rank's copies ---- */

/* Only copies that are listed count as made; other ranks cannot find the rest. */
static void on_listed(void *arg, kvcl_status_t status)
{
    kvcl_copy_job_t *job   = arg;
    kvcl_store_h    store  = job->store;
    kvcl_context_h  ctx    = store->ctx;
    uint32_t        i;

    kvcl_lock(ctx);
    for (i = 0; (i < job->n) && (status == KVCL_OK) && !store->closing; ++i) {
        const kvcl_owner_node_t *node = kvcl_owner_find(store, &job->recs[i].key, job->pool);
        job->made[i] = (kvcl_owner_lists(job->pool, &job->recs[i].key) && !kvcl_copy_is_other(job, i, node)) ? 1 : 0;
    }
    if (store->closing || !next_lives(job) || !send_on(job)) {
        end(job, store->closing ? KVCL_ERR_NOT_FOUND : status);
    }
    kvcl_unlock(ctx);
}

static void on_fetched(void *arg, kvcl_status_t status)
{
    kvcl_copy_job_t    *job = arg;
    kvcl_context_h     ctx  = job->store->ctx;
    kvcl_xfer_params_t p    = {.size = sizeof(p), .cb = on_listed, .cb_arg = job};

    (void)status; /* each block has its own status */
    kvcl_lock(ctx);
    job->get = NULL;
    kvcl_copy_keep(job);
    kvcl_unlock(ctx);
    status = kvcl_publish_start(job->pool, job->todo + (job->n_todo - job->n_new), job->n_new + job->n_again,
                                NULL, &p, NULL);
    if (status != KVCL_OK) {
        on_listed(job, status);
    }
}

/* ---- the request ---- */

/* Lock held. The pool holds the block. Unless a put counts its copies, their number is unknown, and the requester may
 * drop its own: so the block is listed again, for one of its homes may not list it (it was silent, or full). */
static void note_held(kvcl_copy_job_t *job, uint32_t slot)
{
    kvcl_slot_t *at = &job->pool->array[slot];

    kvcl_assert_locked(job->store->ctx);
    kvcl_copy_pin(job, slot);
    at->note = (uint8_t)((job->head.there != 0) ? at->note : (at->note & ~KVCL_NOTE_COPIES));
    if ((job->head.there == 0) || !(at->note & KVCL_NOTE_LISTED)) {
        job->todo[job->n - ++job->n_again] = kvcl_owner_record(job->pool, slot);
    }
}

/* Lock held. Take slots for the blocks that the pool lacks, and start the get that fills them. */
static kvcl_status_t begin(kvcl_copy_job_t *job)
{
    kvcl_store_h      store = job->store;
    kvcl_owner_node_t *node;
    kvcl_status_t     status;
    uint32_t          i;

    kvcl_assert_locked(store->ctx);
    for (i = job->n; i-- > 0;) { /* the end of a chain first */
        node = kvcl_owner_find(store, &job->recs[i].key, job->pool);
        if (node != NULL) {
            kvcl_owner_touch(job->pool, kvcl_owner_slot(node));
        }
    }
    for (i = 0; i < job->n; ++i) {
        node = kvcl_owner_find(store, &job->recs[i].key, job->pool);
        if ((node != NULL) && !kvcl_copy_is_other(job, i, node)) {
            note_held(job, kvcl_owner_slot(node));
        } else {
            if (node != NULL) {
                job->others[job->n_todo].slot = kvcl_owner_slot(node);
                job->others[job->n_todo].gen  = kvcl_slots_gen(&job->pool->slots, kvcl_owner_slot(node));
            }
            job->todo[job->n_todo++] = job->recs[i];
        }
    }
    memmove(job->todo + job->n_todo, job->todo + (job->n - job->n_again), job->n_again * sizeof(*job->todo));
    status = kvcl_owner_reserve(store, job->n_todo);
    if (status == KVCL_OK) {
        status = kvcl_owner_take_for(job->pool, job->head.tenant, job->n_todo, job->slots);
    }
    if (status != KVCL_OK) {
        kvcl_copy_unpin(job);
        return status;
    }
    status = kvcl_get_recs(store, job->todo, job->n_todo, job->pool->cache, job->slots, job->got, job->from, 0, false,
                           NULL, on_fetched, job, &job->get);
    for (i = 0; (status != KVCL_OK) && (i < job->n_todo); ++i) {
        (void)!kvcl_slots_abort(&job->pool->slots, job->slots[i]);
    }
    if (status != KVCL_OK) {
        kvcl_copy_unpin(job);
        kvcl_store_freed(store);
    }
    return status;
}

/* Start a job of recs[order[0..n)] (order NULL: recs[0..n)); recs may have any alignment. On an error there is no
 * job. */
static kvcl_status_t start_job(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                               const kvcl_copy_head_t *head, const void *recs, const uint32_t *order, uint32_t n,
                               uint32_t source)
{
    uint32_t         first = ((order != NULL) && (n != 0)) ? order[0] : 0;
    kvcl_copy_job_t  *job;
    kvcl_store_rec_t rec;
    kvcl_owner_t     *pool;
    kvcl_status_t    status;
    uint32_t         i;

    memcpy(&rec, (const char *)recs + (first * sizeof(rec)), sizeof(rec));
    pool = kvcl_pool_for(store, rec.loc.len);
    if (pool == NULL) {
        return KVCL_ERR_INVALID_PARAM;
    }
    if ((store->n_copying + n > BLOCKS_MAX) ||
        ((pool->n_copying != 0) && (pool->n_copying + n > kvcl_pool_room(pool) / 2))) {
        return KVCL_ERR_BUSY;
    }
    job = make(pool, n);
    if (job == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    job->peer    = peer;
    job->request = *in;
    job->head    = *head;
    job->source  = source;
    for (i = 0; i < n; ++i) {
        memcpy(&job->recs[i], (const char *)recs + ((size_t)((order != NULL) ? order[i] : i) * sizeof(job->recs[i])),
               sizeof(job->recs[i]));
    }
    if (!kvcl_copy_check(pool, &job->head, job->recs, n)) {
        free(job);
        return KVCL_ERR_INVALID_PARAM;
    }
    kvcl_list_add_tail(&store->copies, &job->link);
    store->n_copying += n;
    pool->n_copying += n;
    ++store->ops;
    status = begin(job);
    if (status != KVCL_OK) {
        kvcl_list_del(&job->link);
        store->n_copying -= n;
        pool->n_copying -= n;
        --store->ops;
        free(job);
    }
    return status;
}

bool kvcl_copy_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len)
{
    kvcl_copy_head_t head;
    kvcl_status_t    status;

    (void)len;
    memcpy(&head, data, sizeof(head));
    if ((store->pool == NULL) || store->draining) {
        kvcl_rpc_answer(peer, in, (store->pool == NULL) ? KVCL_ERR_UNSUPPORTED : KVCL_ERR_NO_SPACE, 0, NULL, 0);
        return true;
    }
    status = start_job(store, peer, in, &head, (const char *)data + sizeof(head), NULL, in->n, 0);
    if (status != KVCL_OK) {
        kvcl_log_debug("no copies for %s: %s", peer->name, kvcl_status_text(status));
        kvcl_rpc_answer(peer, in, status, 0, NULL, 0);
    }
    return true;
}

kvcl_status_t kvcl_copy_here(kvcl_store_h store, const kvcl_copy_head_t *head, const kvcl_store_rec_t *recs,
                             const uint32_t *order, uint32_t n, const kvcl_dir_loc_t *source)
{
    kvcl_msg_dir_request_t no_request = {.msg = {.op = 0}, .n = n};

    return start_job(store, NULL, &no_request, head, recs, order, n, (source != NULL) ? kvcl_dir_loc_tag(source) : 0);
}

void kvcl_copies_discard(kvcl_store_h store, const kvcl_key_t *key)
{
    kvcl_copy_job_t *job;
    uint32_t        i;

    kvcl_list_foreach (job, &store->copies, kvcl_copy_job_t, link) {
        for (i = 0; i < job->n_todo; ++i) {
            job->others[i].left = job->others[i].left || kvcl_key_equal(&job->todo[i].key, key);
        }
    }
}

void kvcl_copies_stop(kvcl_store_h store)
{
    kvcl_copy_job_t *job, *next;

    kvcl_list_foreach_safe (job, next, &store->copies, kvcl_copy_job_t, link) {
        if ((job->get != NULL) && !kvcl_req_is_done(job->get)) {
            job->get->cls->stop(job->get, KVCL_ERR_SHUTDOWN);
        }
    }
}
