/*
 * A collective on device memory by the host: copy to the host, the same collective there, copy back. A side that is
 * host memory is used in place. All by the runner's thread.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>

static kvcl_status_t copy(kvcl_copier_t *dst, void *to, kvcl_copier_t *src, const void *from, uint64_t len)
{
    const kvcl_piece_t piece = {.dst = (uintptr_t)to, .src = (uintptr_t)from, .len = len};

    return (len > 0) ? kvcl_copier_copy(dst, src, &piece, 1) : KVCL_OK;
}

/* Between a side on the device and the host's copy of it. No byte between the parts of an alltoallv is touched. */
static kvcl_status_t move(const kvcl_dev_op_t *op, char *host, bool back)
{
    const kvcl_coll_call_t *call  = &op->call;
    const uint64_t         *lens  = back ? op->parts.recv_lens : op->parts.send_lens;
    const uint64_t         *offs  = back ? op->parts.recv_offs : op->parts.send_offs;
    const int              size   = op->runner->comm->size; /* it may be gone after a copy that took too long */
    kvcl_status_t          status = KVCL_OK;
    int                    r;

    if (call->kind != KVCL_COLL_ALLTOALLV) {
        return back ? copy(op->out, call->buf, NULL, host, op->out_bytes)
                    : copy(NULL, host, op->in, call->in, op->in_bytes);
    }
    for (r = 0; (r < size) && (status == KVCL_OK); ++r) {
        status = back ? copy(op->out, (char *)call->buf + offs[r], NULL, host + offs[r], lens[r])
                      : copy(NULL, host + offs[r], op->in, (const char *)call->in + offs[r], lens[r]);
    }
    return status;
}

/* Host memory in place of a side on the device. */
static kvcl_status_t stage(const kvcl_dev_op_t *op, kvcl_copier_t *copier, uint64_t len, void **host_p)
{
    *host_p = NULL;
    if ((copier == NULL) || (len == 0)) {
        return KVCL_OK;
    }
    *host_p = malloc(len);
    return (*host_p != NULL) ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory on the host for %llu bytes of "
                                                   "the device", op->call.name, (unsigned long long)len);
}

kvcl_status_t kvcl_dev_by_host(kvcl_dev_op_t *op)
{
    const bool       is_bcast = (op->call.kind == KVCL_COLL_BCAST);
    const bool       gives    = !is_bcast || (op->runner->comm->rank == op->call.root);
    kvcl_coll_call_t call     = op->call;
    void             *in, *out = NULL;
    kvcl_status_t    status   = stage(op, op->in, op->in_bytes, &in);

    if ((status == KVCL_OK) && !is_bcast) {
        status = stage(op, op->out, op->out_bytes, &out);
    }
    if ((status == KVCL_OK) && (in != NULL) && gives) {
        status = move(op, in, false);
    }
    if ((status == KVCL_OK) && atomic_load(&op->runner->lost)) {
        status = KVCL_ERR_IO; /* it was given up during the copy: the context may be gone */
    }
    if (status == KVCL_OK) {
        out       = is_bcast ? in : out;
        call.in   = (in != NULL) ? in : op->call.in;
        call.buf  = (out != NULL) ? out : op->call.buf;
        status    = kvcl_dev_step(op, KVCL_DEV_DATA, &call);
    }
    if ((status == KVCL_OK) && (out != NULL) && !(is_bcast && gives)) {
        status = move(op, out, true);
    }
    free(in);
    if (!is_bcast) {
        free(out);
    }
    return status;
}
