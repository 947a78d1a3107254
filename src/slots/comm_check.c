/*
 * What a call asks of its communicator before anything else: the rank, and whether it was revoked (core/comm.h).
 *
 * Owns: nothing. Invariant: a revoked communicator stays so. Locks: kvcl_comm_set_id needs the engine lock, the checks
 * none.
 */
#include "config.h"
#include "base/error.h"
#include "core/comm.h"
#include "handle/handle.h"

kvcl_status_t kvcl_comm_check(kvcl_comm_h comm, int rank, const char *call)
{
    kvcl_status_t status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);

    if (status != KVCL_OK) {
        return status;
    }
    if ((rank < 0) || (rank >= comm->size)) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s: rank %d is not in a communicator of %d ranks", call, rank,
                         comm->size);
    }
    return KVCL_OK;
}

static kvcl_status_t check_revoked(const struct kvcl_comm *comm, const char *call)
{
    if (atomic_load_explicit(&comm->revoked, memory_order_relaxed)) {
        return kvcl_fail(KVCL_ERR_REVOKED, "%s: the communicator was revoked (kvcl_comm_revoke): go on with "
                         "kvcl_comm_agree and kvcl_comm_shrink", call);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_check_op(kvcl_comm_h comm, int rank, const char *call)
{
    kvcl_status_t status = kvcl_comm_check(comm, rank, call);

    return (status == KVCL_OK) ? check_revoked(comm, call) : status;
}

kvcl_status_t kvcl_comm_check_any(kvcl_comm_h comm, int rank, const char *call)
{
    kvcl_status_t status;

    if (rank != KVCL_ANY_SOURCE) {
        return kvcl_comm_check_op(comm, rank, call);
    }
    status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);
    return (status == KVCL_OK) ? check_revoked(comm, call) : status;
}

kvcl_status_t kvcl_comm_check_group(kvcl_comm_h comm, int n, const char *call)
{
    kvcl_status_t status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);

    return ((status == KVCL_OK) && (n > 1) && atomic_load(&comm->ctx->slots.quiet))
               ? kvcl_fail(KVCL_ERR_RANK_FAILED, "%s: this process is no member of the job yet: wait for that by "
                           "kvcl_comm_sync", call) : status;
}

void kvcl_comm_set_id(kvcl_comm_h comm, uint64_t id)
{
    kvcl_context_h ctx = comm->ctx;

    kvcl_assert_locked(ctx);
    comm->id = id;
    if ((ctx->is_revoked != NULL) && ctx->is_revoked(ctx, id)) {
        atomic_store(&comm->revoked, true);
    }
}
