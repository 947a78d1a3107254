/*
 * Requests: the life of an operation.
 *
 * Every operation embeds a kvcl_req_t as its first member and gives it a class. States: in progress -> final, once, by
 * kvcl_req_complete() with the engine lock held. The deadline and the failure of a peer reach the operation through
 * cls->stop(req, status): it fences its buffers and completes with that status, now or later, unless it had finished.
 * Memory: a collected (test, wait) or detached request is released by cls->release after its callback ran.
 * A request is collected when it is over (callback.h): final, and its callback has returned. One that was posted with a
 * completion queue is collected by the call that drains its completion (queue.h).
 *
 * kvcl_req_instant() makes a request that is final at once without any lock: for transfers copied inside the post.
 */
#ifndef KVCL_REQ_REQ_H
#define KVCL_REQ_REQ_H

#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/latency.h"
#include "handle/handle.h"
#include <kvcl/kvcl_xfer.h>
#include <stdatomic.h>
#include <stdbool.h>

struct kvcl_context;
struct kvcl_peer;

typedef struct kvcl_request kvcl_req_t;

typedef struct kvcl_req_class {
    const char *name;
    /* Engine lock held. May be called more than once; must lead to kvcl_req_complete(). */
    void (*stop)(kvcl_req_t *req, kvcl_status_t status);
    /* Engine lock held. The link to its peer was lost, and another one is being made. True: it has begun again, and
     * waits for the peer. False, or NULL: it is stopped with KVCL_ERR_UNREACHABLE. */
    bool (*again)(kvcl_req_t *req);
    /* Engine lock not held; frees the object. NULL: free(). */
    void (*release)(kvcl_req_t *req);
    /* Engine lock held, on failure, before anything is released: the operation and its peer: "kvcl_get of 2 blocks
     * (3, 4) of rank 1's cache \"kv\"". NULL: its name, and the peer's. */
    void (*describe)(const kvcl_req_t *req, char *buf, size_t cap);
    /* The same: the meaning of this status, and what to do. False, or NULL: the general meaning (req_error.c). */
    bool (*explain)(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap);
    /* Any thread, no lock, in progress. This layer may be read now. The request may be freed on return. NULL: it has no
     * layers to mark. */
    kvcl_status_t (*layer_ready)(kvcl_req_t *req, uint32_t layer);
    /* Any thread. KVCL_OK: all bytes of this layer have arrived. KVCL_INPROGRESS, the request's final status, or
     * KVCL_ERR_OUT_OF_RANGE. NULL: each layer has the request's state. */
    kvcl_status_t (*layer_state)(const kvcl_req_t *req, uint32_t layer);
} kvcl_req_class_t;

struct kvcl_request {
    struct kvcl_context    *ctx;
    const kvcl_req_class_t *cls;
    kvcl_req_slot_t        *slot;    /* of the user's handle; NULL: there is none */
    _Atomic int            state;    /* KVCL_INPROGRESS or the final status */
    _Atomic int            holders;  /* the user's handle, or the queue; the callback still to run */
    _Atomic int            called;   /* callback.c */
    uint64_t               id;       /* in messages; 0 until kvcl_req_publish */
    uint64_t               comm;     /* the communicator whose revocation ends it; 0: none */
    kvcl_req_cb_t          cb;
    void                   *cb_arg;
    kvcl_timing_t          timing;   /* begun by kvcl_req_start; its poster sets op, and the path when it is known */
    struct kvcl_peer       *with;    /* the peer that sentences name; NULL: none */
    uint64_t               timeout_ns; /* its deadline, counted from its start */
    kvcl_sentence_t        why;      /* in progress: the reason of a failure; once failed: the whole sentence */
    bool                   worded;   /* why is the whole sentence */
    kvcl_heap_node_t       timer;
    struct kvcl_queue_core *queue;   /* takes its completion; NULL: none */
    uint64_t               posted_ns; /* with a queue: when the posting call began */
    kvcl_list_t            done_link; /* engine->callbacks, or those that the queue holds */
    kvcl_list_t            peer_link; /* peer->reqs */
    kvcl_list_t            live_link; /* engine->live */
};

/**
 * Engine lock held. Starts a request: its deadline, its place in the list of live ones. user: the user gets a handle
 * and collects it; otherwise it is released when its callback (if any) has run.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_req_start(kvcl_req_t *req, struct kvcl_context *ctx, const kvcl_req_class_t *cls,
                             uint64_t timeout_ns, kvcl_req_cb_t cb, void *cb_arg, bool user) KVCL_MUST_CHECK;

/**
 * Engine lock held. kvcl_req_start for a user's call: deadline, callback and completion queue are those of its params.
 * *req_p (unless NULL) is its handle.
 */
kvcl_status_t kvcl_req_post(kvcl_req_t *req, struct kvcl_context *ctx, const kvcl_req_class_t *cls,
                            const kvcl_xfer_params_t *p, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Does the poster of these learn the end of its operation? */
static inline bool kvcl_req_is_awaited(const kvcl_xfer_params_t *p, const kvcl_req_h *req_p)
{
    return (p->cb != NULL) || (p->queue != NULL) || (req_p != NULL);
}

/** The user's handle of a request that was started with @a user. */
kvcl_req_h kvcl_req_handle(kvcl_req_t *req);

/** Engine lock held: give it an id that peers' messages may name; kvcl_req_find() finds it until it completes. */
kvcl_status_t kvcl_req_publish(kvcl_req_t *req) KVCL_MUST_CHECK;
void          kvcl_req_unpublish(kvcl_req_t *req); /* messages that name the old id no longer find it */
kvcl_req_t   *kvcl_req_find(struct kvcl_context *ctx, uint64_t id, const kvcl_req_class_t *cls);

/** Engine lock held: stop it with KVCL_ERR_RANK_FAILED when this peer fails, and name the peer in sentences. */
void kvcl_req_watch(kvcl_req_t *req, struct kvcl_peer *peer);

/** Engine lock held, right after its start: it ends with KVCL_ERR_REVOKED when the communicator of this id is revoked,
 * also if it was a moment ago. 0: of none. */
void kvcl_req_bind(kvcl_req_t *req, uint64_t comm);
/** Engine lock held: stop all that are bound to this communicator. */
void kvcl_req_stop_bound(struct kvcl_context *ctx, uint64_t comm, kvcl_status_t status);

/**
 * Engine lock held, in stop() of a request that cannot complete yet: stop() is called again at this time, unless the
 * request has completed by then. @return whether it will be; false: no memory.
 */
bool kvcl_req_stop_again(kvcl_req_t *req, uint64_t at_ns) KVCL_MUST_CHECK;

/** Engine lock held. Once. */
void kvcl_req_complete(kvcl_req_t *req, kvcl_status_t status);

static inline bool kvcl_req_is_done(const kvcl_req_t *req)
{
    return atomic_load_explicit(&((kvcl_req_t *)req)->state, memory_order_acquire) != KVCL_INPROGRESS;
}

/**
 * No lock. The operation finished inside its posting call: make a request with its final status, or none if nobody
 * awaits it. The callback runs later, from progress. bytes: of payload that it moved.
 */
kvcl_status_t kvcl_req_instant(struct kvcl_context *ctx, kvcl_status_t final, uint64_t bytes,
                               const kvcl_xfer_params_t *p, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* ---- the sentence of a failure (req_error.c) ---- */

enum { KVCL_REQ_WHAT_MAX = 256 }; /* bytes of kvcl_req_describe's text in a wait's sentence */

/** Engine lock held, before completion: the reason of a failure, and what to do; the request's description is put
 * before it. The first one stays. */
void kvcl_req_why(kvcl_req_t *req, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/** The same: the reason is this thread's last error. */
void kvcl_req_keep_error(kvcl_req_t *req);
/** The same: the reason is that of a request that was a part of this one. */
void kvcl_req_take_why(kvcl_req_t *req, kvcl_req_t *part);
/** This thread's last error is the whole sentence. */
void kvcl_req_keep_sentence(kvcl_req_t *req);
/** Engine lock held, about to fail with this status: make the sentence, unless no thread can read it. */
void kvcl_req_word(kvcl_req_t *req, kvcl_status_t status);
/** No lock, in progress: its name and peer, "get with rank 3". @return buf. */
const char *kvcl_req_describe(kvcl_req_t *req, char *buf, size_t cap);
/** No lock. It has failed: its sentence is this thread's last error. */
void kvcl_req_report_error(kvcl_req_t *req);

/** Drop one holder; releases with the last. No lock held. */
void kvcl_req_drop(kvcl_req_t *req);

#endif
