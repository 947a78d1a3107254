/*
 * Gates: a transfer that begins only when an engine's CUDA stream has finished the work enqueued before the post.
 *
 * A gate belongs to one operation, which waits at it where it would otherwise wait for its peer's session; a NULL gate
 * is open. The stream opens it from a thread of the driver (device/copier.h), which takes only the gates' lock and
 * wakes the engine; the engine's poll then starts the operation. A gate's memory outlives its operation until the
 * driver has called.
 */
#ifndef KVCL_GATE_GATE_H
#define KVCL_GATE_GATE_H

#include "core/context.h"
#include "core/peer.h"

typedef struct kvcl_gate kvcl_gate_t;

/**
 * No lock held. *gate_p: NULL if the stream is NULL or has no work left. @a call: for sentences.
 * @return KVCL_OK; KVCL_ERR_UNSUPPORTED (no driver), KVCL_ERR_INVALID_PARAM (the stream is being captured),
 *         KVCL_ERR_NO_MEMORY, KVCL_ERR_IO (the driver).
 */
kvcl_status_t kvcl_gate_make(kvcl_context_h ctx, void *stream, const char *call, kvcl_gate_t **gate_p) KVCL_MUST_CHECK;
/** With or without the lock; no operation waits at it. NULL is allowed. */
void          kvcl_gate_free(kvcl_gate_t *gate);

/** Lock held. As kvcl_peer_ready, but not before the gate is open; peer NULL: that alone. */
kvcl_status_t kvcl_gate_pass(kvcl_gate_t *gate, kvcl_peer_t *peer, kvcl_peer_waiter_t *waiter) KVCL_MUST_CHECK;

#endif
