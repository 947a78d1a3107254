/*
 * The timeouts of the user's calls and operations (timeout.h). No state.
 */
#include "config.h"
#include "req/timeout.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "core/context.h"

uint64_t kvcl_wait_deadline(kvcl_context_h ctx, uint64_t timeout_ns)
{
    if (timeout_ns == KVCL_WAIT_FOREVER) {
        return KVCL_DEADLINE_NONE;
    }
    return kvcl_deadline_after((timeout_ns == KVCL_WAIT_DEFAULT) ? ctx->config.timeout_ns : timeout_ns);
}

bool kvcl_wait_for(kvcl_context_h ctx, bool (*done)(void *arg), void *arg, uint64_t timeout_ns)
{
    bool over;

    if (timeout_ns != 0) {
        return kvcl_engine_wait(ctx, done, arg, kvcl_wait_deadline(ctx, timeout_ns));
    }
    (void)kvcl_engine_pass(ctx);
    kvcl_lock(ctx);
    over = done(arg);
    kvcl_unlock(ctx);
    return over;
}

kvcl_status_t kvcl_wait_ended(kvcl_context_h ctx, uint64_t timeout_ns, const char *call, const char *what)
{
    char time[32];

    timeout_ns = (timeout_ns == KVCL_WAIT_DEFAULT) ? ctx->config.timeout_ns : timeout_ns;
    return kvcl_fail(KVCL_ERR_WAIT_TIMEOUT, "%s: waited %s for %s", call,
                     kvcl_time_format(time, sizeof(time), timeout_ns), what);
}

kvcl_status_t kvcl_call_timeout(kvcl_context_h ctx, uint64_t timeout_ns, const char *call, uint64_t *ns_p)
{
    if (timeout_ns == KVCL_WAIT_FOREVER) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: KVCL_WAIT_FOREVER is for calls that only wait: give a time, or "
                         "KVCL_WAIT_DEFAULT", call);
    }
    timeout_ns = (timeout_ns == KVCL_WAIT_DEFAULT) ? ctx->config.timeout_ns : timeout_ns;
    *ns_p      = (timeout_ns != 0) ? timeout_ns : 1;
    return KVCL_OK;
}

kvcl_status_t kvcl_params_timeout(uint64_t *timeout_ns, const char *call)
{
    if (*timeout_ns == KVCL_WAIT_FOREVER) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: timeout_ns is KVCL_WAIT_FOREVER, but each operation has a "
                         "deadline: give a time, or 0 for the default", call);
    }
    *timeout_ns = (*timeout_ns == KVCL_WAIT_DEFAULT) ? 0 : *timeout_ns;
    return KVCL_OK;
}
