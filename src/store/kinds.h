/*
 * The table of RPC kinds between ranks of a store (home/rpc_kind.h), for the room that registers it (store.c).
 */
#ifndef KVCL_STORE_KINDS_H
#define KVCL_STORE_KINDS_H

#include "store/store.h"

/** The KVCL_RPC_KINDS rows, by KVCL_RPC_*. */
const kvcl_rpc_kind_t *kvcl_rpc_kinds(void);

/** The handler of KVCL_MSG_DIR_REQUEST. */
void kvcl_kinds_on_request(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len);

#endif
