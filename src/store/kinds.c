/*
 * The kinds of RPCs between ranks of a store, one row each (home/rpc_kind.h), and the handler that finds the row.
 *
 * All input is hostile: a request of an unknown kind, or one whose length does not fit its row, is answered with
 * KVCL_ERR_PROTOCOL and changes nothing. Owns nothing but the table. Engine lock held.
 */
#include "config.h"
#include "store/admin/ops.h"
#include "store/cold/cold.h"
#include "store/copy/copy_jobs.h"
#include "store/get/fetch.h"
#include "store/get/uses.h"
#include "store/grow/part.h"
#include "store/home/home_answer.h"
#include "store/kinds.h"

enum { REC = sizeof(kvcl_store_rec_t), KEY = KVCL_DIR_KEY_BYTES };

static const kvcl_rpc_kind_t kinds[KVCL_RPC_KINDS] = {
    [KVCL_RPC_PUBLISH]     = {.name = "publish", .quick = true, .on_request = kvcl_home_on_dir,
                              .fits = kvcl_rpc_fits_dir},
    [KVCL_RPC_REMOVE]      = {.name = "remove", .on_request = kvcl_home_on_dir, .fits = kvcl_rpc_fits_dir},
    [KVCL_RPC_LOOKUP]      = {.name = "lookup", .quick = true, .on_request = kvcl_home_on_dir,
                              .fits = kvcl_rpc_fits_dir},
    [KVCL_RPC_PRESENT]     = {.name = "present", .quick = true, .n_max = KVCL_RPC_KEYS_MAX, .item_bytes = KEY,
                              .answer_item = 1, .on_request = kvcl_home_on_present},
    [KVCL_RPC_REMOVE_KEYS] = {.name = "remove-keys", .n_max = KVCL_RPC_KEYS_MAX, .item_bytes = KEY,
                              .on_request = kvcl_home_on_remove_keys},
    [KVCL_RPC_TABLE]       = {.name = "table", .on_request = kvcl_home_on_table},
    [KVCL_RPC_COPY]        = {.name = "copy", .n_min = 1, .n_max = KVCL_COPY_MAX, .item_bytes = REC,
                              .head_bytes = sizeof(kvcl_copy_head_t), .answer_head = sizeof(kvcl_copy_tail_t),
                              .answer_item = 1, .on_request = kvcl_copy_on_request},
    [KVCL_RPC_USED]        = {.name = "used", .n_max = KVCL_USES_MAX, .item_bytes = sizeof(kvcl_store_use_t),
                              .on_request = kvcl_uses_on_request},
    [KVCL_RPC_FETCH]       = {.name = "fetch", .quick = true, .n_min = 1, .n_max = KVCL_RPC_KEYS_MAX,
                              .head_bytes = sizeof(uint64_t), .item_bytes = KEY, .on_request = kvcl_fetch_on_request,
                              .fits = kvcl_fetch_fits},
    [KVCL_RPC_MOVED]       = {.name = "moved", .n_min = 1, .n_max = 1, .item_bytes = sizeof(kvcl_moved_t),
                              .on_request = kvcl_grow_on_moved},
    [KVCL_RPC_ASK]         = {.name = "ask", .on_request = kvcl_grow_on_ask},
    [KVCL_RPC_TAKE]        = {.name = "take", .n_min = 1, .n_max = 1, .item_bytes = sizeof(kvcl_part_t),
                              .answer_item = sizeof(kvcl_part_t), .on_request = kvcl_grow_on_take},
    [KVCL_RPC_EVENTS]      = {.name = "events", .on_request = kvcl_follow_on_request, .op = kvcl_op_events},
    [KVCL_RPC_LIST]        = {.name = "list", .on_request = kvcl_op_on_request, .op = kvcl_op_list},
    [KVCL_RPC_PIN]         = {.name = "pin", .on_request = kvcl_op_on_request, .op = kvcl_op_pin},
    [KVCL_RPC_QUOTA]       = {.name = "quota", .on_request = kvcl_op_on_request, .op = kvcl_op_quota},
    [KVCL_RPC_CLEAR]       = {.name = "clear", .on_request = kvcl_op_on_request, .op = kvcl_op_clear},
    [KVCL_RPC_DISCARD]     = {.name = "discard", .on_request = kvcl_op_on_request, .op = kvcl_op_discard},
    [KVCL_RPC_STATS]       = {.name = "stats", .on_request = kvcl_op_on_request, .op = kvcl_op_stats},
    [KVCL_RPC_HELD]        = {.name = "held", .on_request = kvcl_op_on_request, .op = kvcl_op_held},
    [KVCL_RPC_STAGE]       = {.name = "stage", .n_min = 1, .n_max = KVCL_STAGE_MAX, .item_bytes = REC,
                              .answer_item = sizeof(kvcl_stage_got_t), .on_request = kvcl_stage_on_request},
    [KVCL_RPC_RELEASE]     = {.name = "release", .n_max = KVCL_STAGE_MAX, .item_bytes = sizeof(kvcl_stage_got_t),
                              .on_request = kvcl_stage_on_release},
    [KVCL_RPC_FORGET]      = {.name = "forget", .n_max = KVCL_RPC_KEYS_MAX, .item_bytes = KEY,
                              .on_request = kvcl_relist_on_forget},
    [KVCL_RPC_ALL_LISTED]  = {.name = "all-listed", .on_request = kvcl_relist_on_all_listed},
};

const kvcl_rpc_kind_t *kvcl_rpc_kinds(void)
{
    return kinds;
}

static bool size_fits(const kvcl_rpc_kind_t *kind, uint32_t n, size_t len)
{
    return (kind->n_max == 0) || ((n >= kind->n_min) && (n <= kind->n_max) &&
                                  (len == kind->head_bytes + ((size_t)n * kind->item_bytes)));
}

void kvcl_kinds_on_request(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len)
{
    const kvcl_msg_dir_request_t *in   = (const kvcl_msg_dir_request_t *)msg;
    kvcl_store_h                 store = (in->msg.flags == KVCL_RPC_ASK) ? kvcl_grow_find(ctx, peer, in)
                                                                         : kvcl_store_by_id(ctx, in->store);
    const kvcl_rpc_kind_t        *kind = (in->msg.flags < KVCL_RPC_KINDS) ? &kinds[in->msg.flags] : &kinds[0];
    char                         what[64];

    (void)hdr_len;
    if ((store == NULL) || store->closing) {
        kvcl_rpc_answer(peer, in, KVCL_ERR_NOT_FOUND, 0, NULL, 0);
        return;
    }
    if ((kind->name != NULL) && size_fits(kind, in->n, len) && kind->on_request(store, peer, in, data, len)) {
        return;
    }
    snprintf(what, sizeof(what), "a malformed request between stores (%s)",
             (kind->name != NULL) ? kind->name : "unknown kind");
    kvcl_am_malformed(ctx, peer, what);
    kvcl_rpc_answer(peer, in, KVCL_ERR_PROTOCOL, 0, NULL, 0);
}
