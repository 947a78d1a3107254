/*
 * Owns joining and leaving a job, and the wording of a tool's errors: "tool: rank 2 of 4: what: status (sentence)".
 */
#include "config.h"
#include "tools/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(5000000000) /* for a cancelled request to complete */

void job_complain(const job_t *job, const char *format, ...)
{
    char    text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (job->size > 1) {
        fprintf(stderr, "%s: rank %d of %d: %s\n", job->tool, job->rank, job->size, text);
    } else {
        fprintf(stderr, "%s: %s\n", job->tool, text);
    }
}

bool job_ok(const job_t *job, kvcl_status_t status, const char *what)
{
    if (status == KVCL_OK) {
        return true;
    }
    job_complain(job, "%s: %s (%s)", what, kvcl_status_text(status), kvcl_last_error());
    return false;
}

bool job_store_ok(const job_t *job, kvcl_status_t status)
{
    static const char member[] = "params.nvme";
    const char        *said    = kvcl_last_error(), *at = strstr(said, member);

    if ((status == KVCL_OK) || (at == NULL)) {
        return job_ok(job, status, "kvcl_store_open");
    }
    job_complain(job, "kvcl_store_open: %s (%.*s--nvme%s)", kvcl_status_text(status), (int)(at - said), said,
                 at + strlen(member));
    return false;
}

bool job_open(job_t *job, const char *tool)
{
    memset(job, 0, sizeof(*job));
    job->tool = tool;
    job->size = 1;
    if (!job_ok(job, kvcl_init(NULL, &job->ctx), "cannot join the job")) {
        return false;
    }
    if (!job_ok(job, kvcl_comm_world(job->ctx, &job->world), "kvcl_comm_world")) {
        job_close(job);
        return false;
    }
    job->rank = kvcl_comm_rank(job->world);
    job->size = kvcl_comm_size(job->world);
    return true;
}

void job_close(job_t *job)
{
    kvcl_finalize(job->ctx);
    job->ctx = NULL;
}

kvcl_status_t job_finish(kvcl_req_h req, uint64_t timeout_ns)
{
    kvcl_status_t status = kvcl_req_wait(req, timeout_ns);

    if (status == KVCL_ERR_WAIT_TIMEOUT) {
        kvcl_req_cancel(req);
        status = kvcl_req_wait(req, GRACE_NS);
        status = (status == KVCL_OK) ? KVCL_OK : KVCL_ERR_TIMED_OUT;
    }
    return status;
}

/* The second half of a posting call: posted is its status. */
static bool finish(const job_t *job, kvcl_status_t posted, kvcl_req_h req, uint64_t timeout_ns, const char *what)
{
    return job_ok(job, posted, what) && job_ok(job, job_finish(req, timeout_ns), what);
}

bool job_barrier(const job_t *job, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = timeout_ns;
    status            = kvcl_barrier(job->world, &params, &req);
    return finish(job, status, req, timeout_ns, "barrier");
}

bool job_gather(const job_t *job, const void *in, size_t len, void *out, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = timeout_ns;
    status            = kvcl_allgather(job->world, in, len, out, &params, &req);
    return finish(job, status, req, timeout_ns, "all-gather");
}

bool job_agree(const job_t *job, bool good, uint64_t timeout_ns)
{
    const uint8_t own  = good;
    uint8_t       *all = calloc((size_t)job->size, sizeof(*all));
    bool          agreed;
    int           i;

    if (all == NULL) {
        job_complain(job, "out of memory");
        return false;
    }
    agreed = job_gather(job, &own, sizeof(own), all, timeout_ns);
    for (i = 0; agreed && (i < job->size); ++i) {
        if ((all[i] == 0) && (i != job->rank)) {
            job_complain(job, "rank %d failed: its own message says why", i);
        }
    }
    agreed = agreed && (memchr(all, 0, (size_t)job->size) == NULL);
    free(all);
    return agreed;
}

bool job_send(const job_t *job, int rank, uint64_t tag, const void *buf, size_t len, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = timeout_ns;
    status            = kvcl_send_bytes(job->world, rank, tag, buf, len, &params, &req);
    return finish(job, status, req, timeout_ns, "send");
}

bool job_recv(const job_t *job, int rank, uint64_t tag, void *buf, size_t len, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = timeout_ns;
    status            = kvcl_recv_bytes(job->world, rank, tag, buf, len, &params, &req);
    return finish(job, status, req, timeout_ns, "receive");
}

int job_online_cores(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return (n > 0) ? (int)n : 1;
}
