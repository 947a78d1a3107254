/*
 * The timeouts of the user's calls (kvcl_context.h): of calls that wait, and of calls that run an operation.
 */
#ifndef KVCL_REQ_TIMEOUT_H
#define KVCL_REQ_TIMEOUT_H

#include <kvcl/kvcl_context.h>
#include <stdbool.h>

/** A call that waits: its deadline, KVCL_DEADLINE_NONE with KVCL_WAIT_FOREVER. */
uint64_t kvcl_wait_deadline(kvcl_context_h ctx, uint64_t timeout_ns);

/** No lock held. kvcl_engine_wait with a user's timeout; 0: progress the context once. @return whether done. */
bool kvcl_wait_for(kvcl_context_h ctx, bool (*done)(void *arg), void *arg, uint64_t timeout_ns);

/**
 * The result of a call whose wait timed out: KVCL_ERR_WAIT_TIMEOUT, with a sentence that has the condition (@a what,
 * "get with rank 3") and the time.
 */
kvcl_status_t kvcl_wait_ended(kvcl_context_h ctx, uint64_t timeout_ns, const char *call, const char *what);

/**
 * A call that runs an operation within timeout_ns: *ns_p is its time, at least 1 ns.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (KVCL_WAIT_FOREVER).
 */
kvcl_status_t kvcl_call_timeout(kvcl_context_h ctx, uint64_t timeout_ns, const char *call, uint64_t *ns_p)
    KVCL_MUST_CHECK;

/** params.timeout_ns of an operation: KVCL_WAIT_DEFAULT becomes 0, KVCL_WAIT_FOREVER is refused. */
kvcl_status_t kvcl_params_timeout(uint64_t *timeout_ns, const char *call) KVCL_MUST_CHECK;

#endif
