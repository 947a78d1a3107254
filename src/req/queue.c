/*
 * Completion queues (queue.h).
 *
 * Owns: a queue, from its creation until it is destroyed and its last request has ended; the requests in its list;
 * those that failed and were drained last, whose sentences the caller may read.
 * Invariants: count is the length of the list; the descriptor, once opened, is readable while the list is not empty.
 * Locks: the queue's own, inside every other lock; no function of a request is called under it. A drain of an empty
 * queue reads two words and takes no lock.
 */
#include "config.h"
#include "req/queue.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The user's handle. */
struct kvcl_queue {
    struct kvcl_queue_core *core;
};

typedef struct kvcl_queue_core {
    pthread_mutex_t  lock;
    _Atomic unsigned holders; /* the handle, and each request that has joined and was not put yet */
    _Atomic size_t   count;
    kvcl_list_t      list;    /* kvcl_req_t.done_link, in the order in which they ended */
    kvcl_list_t      failed;  /* drained by the last call */
    bool             closed;
    int              fd;      /* -1 until requested */
} core_t;

static _Thread_local uint64_t begun_ns;

void kvcl_queue_begin(void)
{
    begun_ns = kvcl_now_ns();
}

static void drop_core(core_t *core)
{
    if (atomic_fetch_sub_explicit(&core->holders, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (core->fd >= 0) {
        close(core->fd);
    }
    pthread_mutex_destroy(&core->lock);
    free(core);
}

/* The user's handle, if there is one, is dead from here on. */
static void end_handle(const kvcl_req_t *req)
{
    if (req->slot != NULL) {
        kvcl_req_slot_kill(req->slot);
    }
}

static void drop_request(kvcl_req_t *req)
{
    end_handle(req);
    kvcl_req_drop(req);
}

static void drop_all(kvcl_list_t *list)
{
    kvcl_list_t *link;

    while ((link = kvcl_list_pop(list)) != NULL) {
        drop_request(kvcl_container_of(link, kvcl_req_t, done_link));
    }
}

void kvcl_queue_join(kvcl_req_t *req, const kvcl_xfer_params_t *p)
{
    core_t *core = p->queue->core;

    req->queue     = core;
    req->posted_ns = begun_ns;
    if (req->slot == NULL) { /* no user to take the hold from */
        atomic_fetch_add_explicit(&req->holders, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&core->holders, 1, memory_order_relaxed);
}

/* Queue's lock held. */
static void signal_fd(const core_t *core)
{
    uint64_t one = 1;

    if ((core->fd >= 0) && (write(core->fd, &one, sizeof(one)) < 0)) {
        kvcl_log_trace("eventfd %d is full: %m", core->fd); /* readable all the same */
    }
}

void kvcl_queue_put(kvcl_req_t *req)
{
    core_t *core = req->queue;
    bool   closed;

    req->posted_ns = kvcl_now_ns() - req->posted_ns; /* the time that it took */
    pthread_mutex_lock(&core->lock);
    closed = core->closed;
    if (!closed) {
        kvcl_list_add_tail(&core->list, &req->done_link);
        if (atomic_fetch_add_explicit(&core->count, 1, memory_order_release) == 0) {
            signal_fd(core);
        }
    }
    pthread_mutex_unlock(&core->lock);
    if (closed) {
        drop_request(req);
    }
    drop_core(core);
}

/* Move at most cap requests to taken, and those of the last drain to old. */
static size_t take(core_t *core, size_t cap, kvcl_list_t *taken, kvcl_list_t *old)
{
    kvcl_list_t *link;
    uint64_t    value;
    size_t      n = 0;

    pthread_mutex_lock(&core->lock);
    kvcl_list_splice_tail(old, &core->failed);
    while ((n < cap) && ((link = kvcl_list_pop(&core->list)) != NULL)) {
        kvcl_list_add_tail(taken, link);
        ++n;
    }
    if ((n != 0) && (atomic_fetch_sub_explicit(&core->count, n, memory_order_relaxed) == n) && (core->fd >= 0)) {
        (void)!read(core->fd, &value, sizeof(value)); /* empty: no longer readable */
    }
    pthread_mutex_unlock(&core->lock);
    return n;
}

/* The record of a request; a failed one is kept for its sentence. */
static void write_record(core_t *core, kvcl_req_t *req, kvcl_done_t *done)
{
    *done = (kvcl_done_t){.size = sizeof(*done), .arg = req->cb_arg, .bytes = req->timing.bytes, .ns = req->posted_ns,
                          .status = (kvcl_status_t)atomic_load_explicit(&req->state, memory_order_acquire)};
    if (done->status >= 0) {
        drop_request(req);
        return;
    }
    end_handle(req);
    done->error = kvcl_sentence_read(&req->why); /* no other thread has the request */
    done->error = (done->error != NULL) ? done->error : kvcl_status_text(done->status);
    pthread_mutex_lock(&core->lock);
    kvcl_list_add_tail(&core->failed, &req->done_link);
    pthread_mutex_unlock(&core->lock);
}

kvcl_status_t kvcl_req_drain(kvcl_queue_h queue, kvcl_done_t *done, size_t stride, size_t cap, size_t *n_p)
{
    kvcl_status_t status = kvcl_handle_check(queue, KVCL_KIND_QUEUE, "kvcl_req_drain");
    kvcl_list_t   taken, old, *link;
    kvcl_done_t   one;
    core_t        *core;
    size_t        i = 0;

    if (status != KVCL_OK) {
        return status;
    }
    if ((n_p == NULL) || ((done == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_drain: NULL argument");
    }
    status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_done_t, error), "kvcl_done_t", "kvcl_req_drain");
    if (status != KVCL_OK) {
        return status;
    }
    core = queue->core;
    *n_p = 0;
    if (atomic_load_explicit(&core->count, memory_order_acquire) == 0) {
        return KVCL_OK;
    }
    kvcl_list_init(&taken);
    kvcl_list_init(&old);
    *n_p = take(core, cap, &taken, &old);
    drop_all(&old);
    while ((link = kvcl_list_pop(&taken)) != NULL) {
        write_record(core, kvcl_container_of(link, kvcl_req_t, done_link), &one);
        kvcl_struct_out_at(done, i++, stride, &one, sizeof(one));
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_queue_create(kvcl_queue_h *queue_p)
{
    kvcl_queue_h queue;
    core_t       *core;

    if (queue_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_queue_create: queue_p is NULL");
    }
    queue = kvcl_object_alloc(KVCL_KIND_QUEUE, sizeof(*queue));
    core  = calloc(1, sizeof(*core));
    if ((queue == NULL) || (core == NULL)) {
        kvcl_object_free(queue);
        free(core);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_queue_create: no memory for a queue");
    }
    pthread_mutex_init(&core->lock, NULL);
    atomic_init(&core->holders, 1);
    kvcl_list_init(&core->list);
    kvcl_list_init(&core->failed);
    core->fd    = -1;
    queue->core = core;
    *queue_p    = queue;
    return KVCL_OK;
}

kvcl_status_t kvcl_queue_fd(kvcl_queue_h queue, int *fd_p)
{
    kvcl_status_t status = kvcl_handle_check(queue, KVCL_KIND_QUEUE, "kvcl_queue_fd");
    core_t        *core;

    if (status != KVCL_OK) {
        return status;
    }
    if (fd_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_queue_fd: fd_p is NULL");
    }
    core = queue->core;
    pthread_mutex_lock(&core->lock);
    if (core->fd < 0) {
        core->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        status   = (core->fd >= 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_IO, errno, "kvcl_queue_fd: cannot make an "
                                                               "eventfd");
        if ((status == KVCL_OK) && !kvcl_list_is_empty(&core->list)) {
            signal_fd(core);
        }
    }
    *fd_p = core->fd;
    pthread_mutex_unlock(&core->lock);
    return status;
}

void kvcl_queue_destroy(kvcl_queue_h queue)
{
    kvcl_list_t left;
    core_t      *core;

    if (!kvcl_handle_may_free(queue, KVCL_KIND_QUEUE, "kvcl_queue_destroy")) {
        return;
    }
    core = queue->core;
    kvcl_object_free(queue);
    kvcl_list_init(&left);
    pthread_mutex_lock(&core->lock);
    core->closed = true;
    kvcl_list_splice_tail(&left, &core->list);
    kvcl_list_splice_tail(&left, &core->failed);
    pthread_mutex_unlock(&core->lock);
    drop_all(&left);
    drop_core(core);
}
