/*
 * Gates (gate.h).
 *
 * A gate has two holders, its operation and the driver; the last one frees it. One lock guards all gates, so that the
 * driver's thread never accesses a context whose operation has ended. Order: an engine's lock, then this one; the
 * driver's thread takes only this one, and kvcl_engine_nudge waits for no lock.
 */
#include "config.h"
#include "gate/gate.h"
#include "base/error.h"
#include "device/copier.h"

#include <stdlib.h>

typedef struct gates {
    kvcl_list_t  waiting; /* kvcl_gate_t with an operation that waits; `lock` */
    _Atomic bool over;    /* a gate has opened since the last poll */
} gates_t;

struct kvcl_gate {
    kvcl_list_t    link;    /* gates.waiting, while its operation waits */
    kvcl_context_h ctx;     /* NULL: the operation has ended */
    bool           over;    /* the stream has reached it: open */
    unsigned       holders;
    kvcl_peer_t    *peer;
    kvcl_list_t    waiters; /* one at most; none when the operation has been stopped. The engine's lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static gates_t *gates_of(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_GATE];
}

/* `lock` is held. */
static void drop(kvcl_gate_t *gate)
{
    if (--gate->holders == 0) {
        free(gate);
    }
}

/* From a thread of the driver. */
static void stream_is_there(void *arg)
{
    kvcl_gate_t *gate = arg;

    pthread_mutex_lock(&lock);
    gate->over = true;
    if (gate->ctx != NULL) {
        atomic_store(&gates_of(gate->ctx)->over, true);
        kvcl_engine_nudge(gate->ctx);
    }
    drop(gate);
    pthread_mutex_unlock(&lock);
}

kvcl_status_t kvcl_gate_make(kvcl_context_h ctx, void *stream, const char *call, kvcl_gate_t **gate_p)
{
    kvcl_gate_t   *gate;
    kvcl_status_t status;

    *gate_p = NULL;
    if (stream == NULL) {
        return KVCL_OK;
    }
    gate = calloc(1, sizeof(*gate));
    if (gate == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory to wait for a stream", call);
    }
    kvcl_list_init(&gate->link);
    kvcl_list_init(&gate->waiters);
    gate->ctx     = ctx;
    gate->holders = 2;
    status        = kvcl_copier_after(stream, stream_is_there, gate);
    if (status == KVCL_INPROGRESS) {
        *gate_p = gate;
        return KVCL_OK;
    }
    free(gate); /* the driver has not taken it */
    return status;
}

void kvcl_gate_free(kvcl_gate_t *gate)
{
    if (gate != NULL) {
        pthread_mutex_lock(&lock);
        kvcl_list_del(&gate->link);
        gate->ctx = NULL;
        drop(gate);
        pthread_mutex_unlock(&lock);
    }
}

kvcl_status_t kvcl_gate_pass(kvcl_gate_t *gate, kvcl_peer_t *peer, kvcl_peer_waiter_t *waiter)
{
    bool wait;

    if (peer != NULL) {
        kvcl_assert_locked(peer->ctx);
    }
    if (gate != NULL) {
        pthread_mutex_lock(&lock);
        wait = !gate->over;
        if (wait) {
            gate->peer = peer;
            kvcl_list_add_tail(&gate->waiters, &waiter->link);
            kvcl_list_add_tail(&gates_of(gate->ctx)->waiting, &gate->link);
        }
        pthread_mutex_unlock(&lock);
        if (wait) {
            return KVCL_INPROGRESS;
        }
    }
    return (peer != NULL) ? kvcl_peer_ready(peer, waiter) : KVCL_OK;
}

/* The waiter of the next open gate whose operation still waits. */
static kvcl_peer_waiter_t *take_over(kvcl_list_t *waiting, kvcl_peer_t **peer_p)
{
    kvcl_list_t *found = NULL;
    kvcl_gate_t *gate, *next;

    pthread_mutex_lock(&lock);
    kvcl_list_foreach_safe (gate, next, waiting, kvcl_gate_t, link) {
        if (gate->over) {
            kvcl_list_del(&gate->link);
            found   = kvcl_list_pop(&gate->waiters);
            *peer_p = gate->peer;
            if (found != NULL) {
                break;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return (found != NULL) ? kvcl_container_of(found, kvcl_peer_waiter_t, link) : NULL;
}

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    gates_t *gates = calloc(1, sizeof(*gates));

    (void)ctx;
    if (gates == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for gates");
    }
    kvcl_list_init(&gates->waiting);
    *state_p = gates;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    (void)ctx;
    free(state);
}

/* The operations whose gates have opened begin. */
static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    gates_t            *gates = state;
    unsigned           n      = 0;
    kvcl_peer_waiter_t *waiter;
    kvcl_status_t      status;
    kvcl_peer_t        *peer;

    kvcl_assert_locked(ctx);
    if (!atomic_load_explicit(&gates->over, memory_order_relaxed)) {
        return 0;
    }
    (void)atomic_exchange(&gates->over, false);
    while ((waiter = take_over(&gates->waiting, &peer)) != NULL) { /* from the start: a call may end others */
        status = (peer != NULL) ? kvcl_peer_ready(peer, waiter) : KVCL_OK;
        if (status != KVCL_INPROGRESS) {
            waiter->fn(waiter, status);
        }
        ++n;
    }
    return n;
}

const kvcl_room_t kvcl_room_gate = {.name = "gate", .init = room_init, .fini = room_fini, .poll = room_poll};
