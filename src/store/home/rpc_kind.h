/*
 * What there is to know of a kind of question (KVCL_RPC_*) between ranks of a store: one row a kind, all rows in
 * store/kinds.c. Whoever asks and whoever answers finds the row in the room's state, so the rooms below kinds.c do not
 * name the functions of those above them.
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
    bool       quick;       /* it is answered at once: kvcl_peer_post_soon() */
    /* A question's payload: head_bytes and, for each of its n_min to n_max items, item_bytes. n_max 0: its function
     * looks by itself. */
    uint32_t   n_min, n_max;
    uint16_t   head_bytes, item_bytes;
    /* An answer's: the same, with as many items as the question; item 0: fits(), or whoever asked, looks. */
    uint16_t   answer_head, answer_item;
    bool       (*fits)(const struct kvcl_rpc *request, const void *data, size_t len);
    /* Engine lock held; data is hostile but for what the row says of it. False: it makes no sense, and nothing was
     * answered. */
    bool       (*on_request)(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                             size_t len);
    /* Of questions about a rank's own part (admin/ops.h): what answers, for the rank itself as well. */
    kvcl_status_t (*op)(kvcl_store_h store, const void *in, size_t len, struct kvcl_op_out *out);
} kvcl_rpc_kind_t;

#endif
