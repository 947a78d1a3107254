/*
 * The runners of communicators (dev_coll.h). One serves the collectives of an epoch of its communicator: where they are
 * numbered anew, as when a process has joined (slots/rank_slots.h), the next call makes another runner, with numbers
 * and a communicator of its own. The operations of the runner before go on, and end by their deadlines at the latest;
 * then its thread ends, and the next runner of the context, or room_fini, joins it.
 *
 * Owns: the runners of a room until room_fini. Invariant: ranks that number a communicator's collectives alike compute
 * the same id for the communicator of its runner. Locks: the engine's, unless a function says otherwise.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/thread.h"

#include <stdlib.h>

static kvcl_dev_runner_t *find(kvcl_comm_h comm)
{
    kvcl_dev_runner_t *r;

    kvcl_assert_locked(comm->ctx);
    kvcl_list_foreach (r, &kvcl_dev_room(comm->ctx)->runners, kvcl_dev_runner_t, link) {
        if ((r->id == comm->id) && (r->epoch == comm->epoch)) {
            return r;
        }
    }
    return NULL;
}

/* No lock held. The communicator of a runner: the same ranks of the job, with an id that all of them compute. */
static kvcl_status_t twin_of(kvcl_comm_h comm, uint64_t epoch, kvcl_comm_h *twin_p)
{
    uint64_t      base   = comm->id ^ epoch ^ UINT64_C(0x646576696365636f);
    const int     size   = comm->size;
    int           *world = malloc((size_t)size * sizeof(*world)), i;
    kvcl_status_t status = (world != NULL)
                               ? kvcl_comm_make(comm->ctx, kvcl_splitmix64(&base) | 2, comm->rank, size, twin_p)
                               : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);

    if (status != KVCL_OK) {
        free(world);
        return status;
    }
    for (i = 0; i < size; ++i) {
        world[i] = (comm->world != NULL) ? comm->world[i] : i;
    }
    kvcl_lock(comm->ctx);
    (*twin_p)->world = world; /* those of the world, too: a process that joins takes its slot here as well */
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

/* Starts the thread of a runner; frees the runner on failure. */
static kvcl_status_t start(kvcl_dev_runner_t *r)
{
    pthread_condattr_t attr;
    int                err;

    kvcl_assert_locked(r->ctx);
    kvcl_list_init(&r->queue);
    kvcl_list_init(&r->link);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->cond, &attr);
    pthread_condattr_destroy(&attr);
    err = kvcl_thread_start(&r->thread, "kvcl-devcoll", kvcl_dev_runner_main, r);
    if (err != 0) {
        pthread_cond_destroy(&r->cond);
        pthread_mutex_destroy(&r->lock);
        free(r);
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "no thread for collectives on device memory");
    }
    return KVCL_OK;
}

/* The stacks of threads that have ended are freed, without a wait. The runners stay: operations that are over name
 * them. */
static void join_ended(kvcl_context_h ctx)
{
    kvcl_dev_runner_t *r;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (r, &kvcl_dev_room(ctx)->ended, kvcl_dev_runner_t, link) {
        r->joined = r->joined || (pthread_tryjoin_np(r->thread, NULL) == 0);
    }
}

/* twin: the runner's from success on. */
static kvcl_status_t make(kvcl_comm_h comm, uint64_t epoch, kvcl_comm_h twin, kvcl_dev_runner_t **r_p)
{
    kvcl_dev_runner_t *r = calloc(1, sizeof(*r));
    kvcl_status_t     status;

    kvcl_assert_locked(comm->ctx);
    if (r == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for collectives on device memory");
    }
    r->ctx   = comm->ctx;
    r->id    = comm->id;
    r->epoch = epoch;
    r->rank  = comm->rank;
    r->comm  = twin;
    join_ended(comm->ctx);
    status = start(r);
    if (status == KVCL_OK) {
        kvcl_dev_runners_end(comm->ctx, comm->id); /* those of earlier epochs */
        kvcl_list_add_tail(&kvcl_dev_room(comm->ctx)->runners, &r->link);
        *r_p = r;
    }
    return status;
}

kvcl_status_t kvcl_dev_runner_of(kvcl_comm_h comm, kvcl_dev_runner_t **r_p)
{
    kvcl_context_h ctx  = comm->ctx;
    kvcl_comm_h    twin = NULL;
    kvcl_status_t  status;
    uint64_t       epoch;

    kvcl_lock(ctx);
    *r_p  = find(comm);
    epoch = comm->epoch;
    kvcl_unlock(ctx);
    if (*r_p != NULL) {
        return KVCL_OK;
    }
    status = twin_of(comm, epoch, &twin);
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(ctx);
    *r_p = find(comm); /* another thread may have made it meanwhile */
    if (*r_p == NULL) {
        status = make(comm, epoch, twin, r_p);
        twin   = (status == KVCL_OK) ? NULL : twin;
    }
    kvcl_unlock(ctx);
    kvcl_comm_free(twin);
    return status;
}

kvcl_status_t kvcl_dev_runner_past(void)
{
    return kvcl_fail(KVCL_ERR_RANK_FAILED, "a rank has joined the communicator, or the ranks have made different "
                     "calls, while a collective was posted: post it again");
}

void kvcl_dev_runners_end(kvcl_context_h ctx, uint64_t id)
{
    kvcl_dev_room_t   *room = kvcl_dev_room(ctx);
    kvcl_dev_runner_t *r, *next;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach_safe (r, next, &room->runners, kvcl_dev_runner_t, link) {
        if ((id == 0) || (r->id == id)) {
            kvcl_list_del(&r->link);
            kvcl_list_add_tail(&room->ended, &r->link);
            pthread_mutex_lock(&r->lock);
            r->ending = true;
            pthread_cond_broadcast(&r->cond);
            pthread_mutex_unlock(&r->lock);
        }
    }
}
