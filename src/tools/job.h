/*
 * This process in its job, as every tool needs it: context, world, and calls that wait with a limit and report the
 * failed rank and operation. job_t owns the context; a tool frees its caches and stores before job_close(). One thread.
 */
#ifndef KVCL_TOOLS_JOB_H
#define KVCL_TOOLS_JOB_H

#include <kvcl/kvcl.h>

#include <stdbool.h>

#define JOB_TIMEOUT_NS UINT64_C(60000000000) /* of operations that are short unless a rank has failed */

typedef struct job {
    const char     *tool;
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    int            rank;
    int            size;
} job_t;

/* All that return bool: true, or the error was printed to stderr. */
bool job_open(job_t *job, const char *tool);
void job_close(job_t *job);

bool job_ok(const job_t *job, kvcl_status_t status, const char *what);
/* The same, for kvcl_store_open: a sentence about params.nvme names --nvme, which the user gave. */
bool job_store_ok(const job_t *job, kvcl_status_t status);
void job_complain(const job_t *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Wait for a request to end; a request that is not done after the time limit is cancelled and collected. */
kvcl_status_t job_finish(kvcl_req_h req, uint64_t timeout_ns);

int job_online_cores(void);

bool job_barrier(const job_t *job, uint64_t timeout_ns);
/* Collective. @return whether all ranks are good; otherwise this rank has named those that are not. */
bool job_agree(const job_t *job, bool good, uint64_t timeout_ns);
bool job_gather(const job_t *job, const void *in, size_t len, void *out, uint64_t timeout_ns);
bool job_send(const job_t *job, int rank, uint64_t tag, const void *buf, size_t len, uint64_t timeout_ns);
bool job_recv(const job_t *job, int rank, uint64_t tag, void *buf, size_t len, uint64_t timeout_ns);

#endif
