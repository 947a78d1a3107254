/*
 * The sentence of a failed request (req.h): "OPERATION with PEER: the reason, and what to do".
 *
 * It is made when the request fails, under the engine lock, while everything that it names still exists; only for
 * requests that a caller collects or that have a callback. Successful requests allocate nothing. Once the request's
 * state is final its sentence no longer changes, except by kvcl_sentence_read(), which needs the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "core/comm.h"
#include "core/context.h"
#include "req/req.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WHAT_MAX = 384 };

static bool has_why(const kvcl_req_t *req)
{
    return (req->why.fmt != NULL) || (req->why.text != NULL);
}

void kvcl_req_why(kvcl_req_t *req, const char *fmt, ...)
{
    char    text[KVCL_ERROR_MAX];
    va_list ap;

    kvcl_assert_locked(req->ctx);
    if (has_why(req)) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    req->why.text = strdup(text);
}

void kvcl_req_keep_error(kvcl_req_t *req)
{
    if (!has_why(req)) {
        kvcl_sentence_keep(&req->why);
    }
}

void kvcl_req_take_why(kvcl_req_t *req, kvcl_req_t *part)
{
    if (!has_why(req) && !part->worded) {
        req->why       = part->why;
        part->why.fmt  = NULL;
        part->why.text = NULL;
    }
}

void kvcl_req_keep_sentence(kvcl_req_t *req)
{
    kvcl_sentence_keep(&req->why);
    req->worded = true;
}

/* The meaning of a status for any request, and what to do. */
static void explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    switch (status) {
    case KVCL_ERR_TIMED_OUT:
        snprintf(buf, cap, "its deadline of %llu ms has passed; check that the other side takes part and progresses "
                 "its context, or raise params.timeout_ns (0: KVCL_TIMEOUT)",
                 (unsigned long long)(req->timeout_ns / KVCL_NS_PER_MS));
        break;
    case KVCL_ERR_CANCELED:
        snprintf(buf, cap, "canceled, by kvcl_req_cancel or kvcl_finalize on this rank, or by the other side");
        break;
    case KVCL_ERR_RANK_FAILED:
        snprintf(buf, cap, "the rank has left or failed, or its connection broke, which is final: continue without it");
        break;
    case KVCL_ERR_UNREACHABLE:
        if ((req->with != NULL) && (kvcl_peer_why_unreachable(req->with) != NULL)) {
            snprintf(buf, cap, "%s", kvcl_peer_why_unreachable(req->with));
            break;
        }
        if ((req->with != NULL) && req->with->met) {
            snprintf(buf, cap, "the connection to the rank was lost meanwhile, and is made again over the next path: "
                     "what was sent or written may or may not have arrived; repeat it");
            break;
        }
        snprintf(buf, cap, "no connection could be made; check that its process runs, and that KVCL_NET names, on both "
                 "sides, an interface that leads to the other (none: ranks of one host only)");
        break;
    case KVCL_ERR_STALE:
        snprintf(buf, cap, "the block, cache or memory was withdrawn or replaced meanwhile: look it up again; or the "
                 "other ranks have excluded this one (KVCL_VIEWS)");
        break;
    case KVCL_ERR_REVOKED:
        snprintf(buf, cap, "the communicator was revoked (kvcl_comm_revoke): go on with kvcl_comm_agree and "
                 "kvcl_comm_shrink");
        break;
    case KVCL_ERR_NO_MEMORY:
        snprintf(buf, cap, "out of memory, on this rank or on the other side");
        break;
    case KVCL_ERR_PROTOCOL:
        snprintf(buf, cap, "the other side sent malformed messages; check both logs (KVCL_LOG=info), and that both "
                 "sides run the same version");
        break;
    case KVCL_ERR_IO:
        snprintf(buf, cap, "a device failed to copy; check the logs of both sides (KVCL_LOG=info)");
        break;
    case KVCL_ERR_AUTH:
        snprintf(buf, cap, "the job secrets differ; both sides need the same KVCL_SECRET_FILE");
        break;
    default:
        snprintf(buf, cap, "%s", kvcl_status_text(status));
        break;
    }
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    char who[48];

    if (req->cls->describe != NULL) {
        req->cls->describe(req, buf, cap);
    } else if (req->with != NULL) {
        snprintf(buf, cap, "%s with %s", req->cls->name, kvcl_comm_peer_name(req->with, who, sizeof(who)));
    } else {
        snprintf(buf, cap, "%s", req->cls->name);
    }
}

const char *kvcl_req_describe(kvcl_req_t *req, char *buf, size_t cap)
{
    kvcl_lock(req->ctx);
    describe(req, buf, cap);
    kvcl_unlock(req->ctx);
    return buf;
}

void kvcl_req_word(kvcl_req_t *req, kvcl_status_t status)
{
    char what[WHAT_MAX], why[KVCL_ERROR_MAX - WHAT_MAX - 1], all[KVCL_ERROR_MAX];

    kvcl_assert_locked(req->ctx);
    if (req->worded || (atomic_load_explicit(&req->holders, memory_order_relaxed) < 2)) {
        return; /* made already, or no caller can read it */
    }
    if (has_why(req)) {
        snprintf(why, sizeof(why), "%s", (kvcl_sentence_read(&req->why) != NULL) ? req->why.text
                                                                                 : kvcl_status_text(status));
    } else if ((req->cls->explain == NULL) || !req->cls->explain(req, status, why, sizeof(why))) {
        explain(req, status, why, sizeof(why));
    }
    describe(req, what, sizeof(what));
    snprintf(all, sizeof(all), "%s: %s", what, why);
    kvcl_sentence_free(&req->why);
    req->why.text = strdup(all);
    req->worded   = true;
}

void kvcl_req_report_error(kvcl_req_t *req)
{
    kvcl_status_t status = (kvcl_status_t)atomic_load_explicit(&req->state, memory_order_acquire);

    if (has_why(req)) {
        kvcl_sentence_report(&req->why);
    } else {
        (void)kvcl_fail(status, "%s: %s", req->cls->name, kvcl_status_text(status)); /* memory was short */
    }
}

const char *kvcl_req_error(kvcl_req_h handle)
{
    kvcl_req_t    *req = kvcl_req_slot_find(handle);
    kvcl_status_t status;
    const char    *text;

    if (req == NULL) {
        (void)kvcl_req_slot_refuse(handle, "kvcl_req_error");
        return kvcl_last_error();
    }
    status = (kvcl_status_t)atomic_load_explicit(&req->state, memory_order_acquire);
    if (status >= 0) {
        return "";
    }
    kvcl_lock(req->ctx);
    text = kvcl_sentence_read(&req->why);
    kvcl_unlock(req->ctx);
    return (text != NULL) ? text : kvcl_status_text(status);
}
