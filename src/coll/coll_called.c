/*
 * Calls as messages name them, and the sentence about two that differ (coll_called.h). Pure.
 */
#include "config.h"
#include "coll/coll_called.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 128 };

kvcl_coll_called_t kvcl_coll_called_of(const kvcl_coll_call_t *call)
{
    const bool has_root = (call->kind == KVCL_COLL_BCAST) || (call->kind == KVCL_COLL_GATHER) ||
                          (call->kind == KVCL_COLL_SCATTER);

    return (kvcl_coll_called_t){
        .bytes     = call->len,
        .root      = has_root ? (uint32_t)call->root : 0,
        .kind      = 1 + (uint32_t)call->kind,
        .blocks    = (call->sel != NULL),
        .reduction = call->reduction,
    };
}

/* Selections of blocks are compared by their announcements, which know more of them. An empty selection has none, so it
 * is compared here. */
bool kvcl_coll_called_differs(const kvcl_coll_called_t *one, const kvcl_coll_called_t *other)
{
    const bool blocks = (one->blocks != 0) && (other->blocks != 0);
    const bool bytes  = blocks ? ((one->bytes == 0) != (other->bytes == 0)) : (one->bytes != other->bytes);

    return (one->kind != 0) && (other->kind != 0) &&
           ((one->kind != other->kind) || (one->root != other->root) || (one->reduction != other->reduction) ||
            ((one->blocks == 0) != (other->blocks == 0)) || bytes);
}

static bool is_of_each(kvcl_coll_kind_t kind)
{
    return (kind == KVCL_COLL_ALLGATHER) || (kind == KVCL_COLL_REDUCE_SCATTER) || (kind == KVCL_COLL_ALLTOALL) ||
           (kind == KVCL_COLL_GATHER) || (kind == KVCL_COLL_SCATTER);
}

/* "kvcl_bcast_bytes of 4096 bytes from rank 0". Returns buf, of TEXT_MAX bytes. */
static const char *text_of(const kvcl_coll_called_t *called, char *buf)
{
    const kvcl_coll_kind_t kind = (kvcl_coll_kind_t)(called->kind - 1);
    char                   size[48] = "", root[32] = "", reduction[32] = "";

    if ((called->kind == KVCL_COLL_CALLED_AGREE) || (called->kind == KVCL_COLL_CALLED_SHRINK)) {
        snprintf(buf, TEXT_MAX, "kvcl_comm_%s", (called->kind == KVCL_COLL_CALLED_AGREE) ? "agree" : "shrink");
        return buf;
    }
    if ((called->kind == 0) || (called->kind > KVCL_COLL_COUNT)) {
        snprintf(buf, TEXT_MAX, "an unknown collective");
        return buf;
    }
    if ((kind != KVCL_COLL_BARRIER) && (kind != KVCL_COLL_ALLTOALLV)) {
        snprintf(size, sizeof(size), " of %llu bytes%s", (unsigned long long)called->bytes,
                 is_of_each(kind) ? " of each rank" : "");
    }
    if ((kind == KVCL_COLL_BCAST) || (kind == KVCL_COLL_GATHER) || (kind == KVCL_COLL_SCATTER)) {
        snprintf(root, sizeof(root), " %s rank %u", (kind == KVCL_COLL_GATHER) ? "to" : "from", called->root);
    }
    if (called->reduction != 0) {
        snprintf(reduction, sizeof(reduction), " (%s of %s)",
                 kvcl_reduce_name((kvcl_reduce_t)((called->reduction - 1) & 0xff)),
                 kvcl_dtype_name((kvcl_dtype_t)((called->reduction - 1) >> 8)));
    }
    snprintf(buf, TEXT_MAX, "kvcl_%s%s%s%s%s", kvcl_coll_kind_name(kind),
             ((kind == KVCL_COLL_BCAST) && (called->blocks == 0)) ? "_bytes" : "", size, root, reduction);
    return buf;
}

bool kvcl_coll_unlike_read(const void *data, size_t len, kvcl_coll_unlike_t *unlike)
{
    if (len != sizeof(*unlike)) {
        return false;
    }
    memcpy(unlike, data, sizeof(*unlike));
    return kvcl_coll_called_differs(&unlike->calls[0], &unlike->calls[1]);
}

kvcl_status_t kvcl_coll_unlike_fail(const kvcl_coll_unlike_t *unlike)
{
    char one[TEXT_MAX], other[TEXT_MAX];

    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %u called %s, rank %u called %s: all ranks of a communicator call "
                     "the same collectives in the same order", unlike->ranks[0],
                     text_of(&unlike->calls[0], one), unlike->ranks[1],
                     text_of(&unlike->calls[1], other));
}
