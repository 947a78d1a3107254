/*
 * The room of collectives on device memory in a context (dev_coll.h): its runners, its message, and its reaction when a
 * peer fails or a communicator is freed. Engine lock, except init and fini.
 *
 * STOP: the sender's collective `seq` on device memory of communicator `comm` has failed with status. The receiver
 * stops its own; one that has not begun is stopped when it is posted.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <time.h>

enum { END_S = 2 }; /* for what follows the end of a runner's collective */

/* The operation with this number, in flight or in the queue. */
static kvcl_dev_op_t *find(const kvcl_dev_runner_t *r, uint64_t seq)
{
    kvcl_dev_op_t *op;

    if ((r->current != NULL) && (r->current->seq == seq)) {
        return r->current;
    }
    kvcl_list_foreach (op, &r->queue, kvcl_dev_op_t, link) {
        if (op->seq == seq) {
            return op;
        }
    }
    return NULL;
}

/* One that ends still performs what it has. */
static kvcl_dev_runner_t *find_runner(kvcl_list_t *runners, uint64_t comm)
{
    kvcl_dev_runner_t *r;

    kvcl_list_foreach (r, runners, kvcl_dev_runner_t, link) {
        if ((r->comm != NULL) && (r->comm->id == comm)) {
            return r;
        }
    }
    return NULL;
}

static void on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                    size_t len)
{
    const kvcl_msg_dev_stop_t *stop  = (const kvcl_msg_dev_stop_t *)msg;
    const kvcl_status_t       status = kvcl_coll_error_of(stop->status);
    kvcl_dev_runner_t         *r     = find_runner(&kvcl_dev_room(ctx)->runners, stop->comm);
    kvcl_peer_t               *known;
    kvcl_dev_op_t             *op;

    (void)hdr_len;
    (void)data;
    (void)len;
    r = (r != NULL) ? r : find_runner(&kvcl_dev_room(ctx)->ended, stop->comm);
    if ((r == NULL) || (stop->rank >= (uint32_t)r->comm->size)) {
        return;
    }
    known = r->comm->peers[stop->rank];
    if ((known != NULL) && (known != peer)) {
        kvcl_am_malformed(ctx, peer, "a collective of another rank is stopped");
        return;
    }
    op = find(r, stop->seq);
    if (op != NULL) {
        kvcl_dev_stop(op, status, (int)stop->rank);
    } else if (stop->seq >= r->seqs) {
        r->stopped[r->n_stopped % KVCL_DEV_STOPPED].seq    = stop->seq;
        r->stopped[r->n_stopped % KVCL_DEV_STOPPED].rank   = stop->rank;
        r->stopped[r->n_stopped % KVCL_DEV_STOPPED].status = status;
        ++r->n_stopped;
    }
}

/* ---- the room ---- */

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_dev_room_t *room = calloc(1, sizeof(*room));

    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for collectives on device memory");
    }
    kvcl_list_init(&room->runners);
    kvcl_list_init(&room->ended);
    kvcl_coll_room(ctx)->on_device = kvcl_dev_post;
    *state_p                       = room;
    return KVCL_OK;
}

/* No lock held: the thread needs it. One that is inside NCCL or the driver keeps the runner, and touches the context no
 * more once it is lost. The engine has stopped: no request's deadline bounds its collective now. */
static void join(kvcl_dev_runner_t *r)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S + (atomic_load(&r->lost) ? 0 : KVCL_DEV_GRACE_MS / 1000);
    if (!r->joined && (pthread_timedjoin_np(r->thread, NULL, &until) != 0)) {
        atomic_store(&r->lost, true);
        (void)pthread_detach(r->thread);
        kvcl_log_warn("a thread is still inside NCCL or the driver; what it uses is not freed");
        return;
    }
    pthread_cond_destroy(&r->cond);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_dev_room_t *room = state;
    kvcl_list_t     *link;

    kvcl_lock(ctx);
    kvcl_dev_runners_end(ctx, 0);
    kvcl_unlock(ctx);
    while ((link = kvcl_list_pop(&room->ended)) != NULL) {
        join(kvcl_container_of(link, kvcl_dev_runner_t, link));
    }
    free(room);
}

static void stop_in_nccl(kvcl_list_t *runners, const kvcl_peer_t *peer)
{
    kvcl_dev_runner_t *r;
    int               i;

    kvcl_list_foreach (r, runners, kvcl_dev_runner_t, link) {
        for (i = 0; (r->current != NULL) && r->current->in_nccl && (i < r->comm->size); ++i) {
            if (r->comm->peers[i] == peer) {
                kvcl_dev_stop(r->current, KVCL_ERR_RANK_FAILED, -1);
            }
        }
    }
}

/* The host's steps learn of a failed peer by themselves; NCCL does not. */
static void room_peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_dev_room_t *room = state;

    kvcl_assert_locked(ctx);
    stop_in_nccl(&room->runners, peer);
    stop_in_nccl(&room->ended, peer);
}

static void room_comm_freed(kvcl_context_h ctx, void *state, kvcl_comm_h comm)
{
    (void)state;
    kvcl_assert_locked(ctx);
    if (comm->id != 0) { /* else its making has failed, before it had one */
        kvcl_dev_runners_end(ctx, comm->id);
    }
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_DEV_STOP, sizeof(kvcl_msg_dev_stop_t), on_stop},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_devcoll = {
    .name        = "devcoll",
    .handlers    = handlers,
    .init        = room_init,
    .fini        = room_fini,
    .peer_failed = room_peer_failed,
    .comm_freed  = room_comm_freed,
};
