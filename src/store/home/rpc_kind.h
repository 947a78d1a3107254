/*
 * A kind of RPC (KVCL_RPC_*) between ranks of a store: one row a kind, all rows in store/kinds.c. Sender and receiver
 * find the row in the room's state, so the rooms below kinds.c do not name functions of those above them.
 */
#ifndef KVCL_STORE_HOME_RPC_KIND_H
#define KVCL_STORE_HOME_RPC_KIND_H

#include "core/peer.h"
#include "store/store_wire.h"
#include <kvcl/kvcl_store.h>

struct kvcl_rpc;
struct kvcl_op_out;

typedef struct kvcl_rpc_kind {
    const char *name;       /* NULL: no such kind */
    bool       quick;       /* the receiver answers at once: kvcl_peer_post_soon() */
    /* The request's payload: head_bytes, then item_bytes for each of its n_min to n_max items. n_max 0: on_request()
     * checks the length itself. */
    uint32_t   n_min, n_max;
    uint16_t   head_bytes, item_bytes;
    /* The answer's payload: the same, with as many items as the request. answer_item 0: fits(), or the sender of the
     * request, checks the length. */
    uint16_t   answer_head, answer_item;
    bool       (*fits)(const struct kvcl_rpc *request, const void *data, size_t len);
    /* Engine lock held; data is hostile, but its length matches the row. False: the request is malformed, and no answer
     * was sent. */
    bool       (*on_request)(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                             size_t len);
    /* Of requests about a rank's own part (admin/ops.h): makes the answer, also for the rank itself. */
    kvcl_status_t (*op)(kvcl_store_h store, const void *in, size_t len, struct kvcl_op_out *out);
} kvcl_rpc_kind_t;

#endif
