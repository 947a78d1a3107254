/*
 * The kinds of questions between ranks of a store, a row each (home/ask_kind.h), and the handler that finds the row.
 *
 * Everything that arrives is hostile: a question of an unknown kind, or whose length does not fit its row, is answered
 * KVCL_ERR_PROTOCOL and changes nothing. Engine lock held.
 */
#include "config.h"
#include "store/admin/ops.h"
#include "store/cold/cold.h"
#include "store/get/fetch.h"
#include "store/kinds.h"

enum { REC = sizeof(kvcl_store_rec_t), KEY = KVCL_DIR_KEY_BYTES };

static const kvcl_ask_kind_t kinds[KVCL_ASK_KINDS] = {
    [KVCL_ASK_PUBLISH]     = {.name = "publish", .quick = true, .on_ask = kvcl_home_on_dir, .fits = kvcl_ask_fits_dir},
    [KVCL_ASK_REMOVE]      = {.name = "remove", .on_ask = kvcl_home_on_dir, .fits = kvcl_ask_fits_dir},
    [KVCL_ASK_LOOKUP]      = {.name = "lookup", .quick = true, .on_ask = kvcl_home_on_dir, .fits = kvcl_ask_fits_dir},
    [KVCL_ASK_PRESENT]     = {.name = "present", .quick = true, .n_max = KVCL_ASK_KEYS_MAX, .item_bytes = KEY,
                              .answer_item = 1, .on_ask = kvcl_home_on_present},
    [KVCL_ASK_REMOVE_KEYS] = {.name = "remove-keys", .n_max = KVCL_ASK_KEYS_MAX, .item_bytes = KEY,
                              .on_ask = kvcl_home_on_remove_keys},
    [KVCL_ASK_TABLE]       = {.name = "table", .on_ask = kvcl_home_on_table},
    [KVCL_ASK_COPY]        = {.name = "copy", .n_min = 1, .n_max = KVCL_COPY_MAX, .item_bytes = REC,
                              .head_bytes = sizeof(kvcl_copy_head_t), .answer_head = sizeof(kvcl_copy_tail_t),
                              .answer_item = 1, .on_ask = kvcl_copy_on_ask},
    [KVCL_ASK_USED]        = {.name = "used", .n_max = KVCL_USES_MAX, .item_bytes = sizeof(kvcl_store_use_t),
                              .on_ask = kvcl_uses_on_ask},
    [KVCL_ASK_FETCH]       = {.name = "fetch", .quick = true, .n_min = 1, .n_max = KVCL_ASK_KEYS_MAX,
                              .head_bytes = sizeof(uint64_t), .item_bytes = KEY, .on_ask = kvcl_fetch_on_ask,
                              .fits = kvcl_fetch_fits},
    [KVCL_ASK_EVENTS]      = {.name = "events", .on_ask = kvcl_follow_on_ask, .op = kvcl_op_events},
    [KVCL_ASK_LIST]        = {.name = "list", .on_ask = kvcl_op_on_ask, .op = kvcl_op_list},
    [KVCL_ASK_PIN]         = {.name = "pin", .on_ask = kvcl_op_on_ask, .op = kvcl_op_pin},
    [KVCL_ASK_QUOTA]       = {.name = "quota", .on_ask = kvcl_op_on_ask, .op = kvcl_op_quota},
    [KVCL_ASK_CLEAR]       = {.name = "clear", .on_ask = kvcl_op_on_ask, .op = kvcl_op_clear},
    [KVCL_ASK_LEAVE]       = {.name = "leave", .on_ask = kvcl_op_on_ask, .op = kvcl_op_leave},
    [KVCL_ASK_STATS]       = {.name = "stats", .on_ask = kvcl_op_on_ask, .op = kvcl_op_stats},
    [KVCL_ASK_STAGE]       = {.name = "stage", .n_min = 1, .n_max = KVCL_STAGE_MAX, .item_bytes = REC,
                              .answer_item = sizeof(kvcl_stage_got_t), .on_ask = kvcl_stage_on_ask},
    [KVCL_ASK_LET_GO]      = {.name = "let-go", .n_max = KVCL_STAGE_MAX, .item_bytes = sizeof(kvcl_stage_got_t),
                              .on_ask = kvcl_stage_on_let_go},
    [KVCL_ASK_FORGET]      = {.name = "forget", .n_max = KVCL_ASK_KEYS_MAX, .item_bytes = KEY,
                              .on_ask = kvcl_relist_on_forget},
    [KVCL_ASK_ALL_LISTED]  = {.name = "all-listed", .on_ask = kvcl_relist_on_all_listed},
};

const kvcl_ask_kind_t *kvcl_ask_kinds(void)
{
    return kinds;
}

static bool size_fits(const kvcl_ask_kind_t *kind, uint32_t n, size_t len)
{
    return (kind->n_max == 0) || ((n >= kind->n_min) && (n <= kind->n_max) &&
                                  (len == kind->head_bytes + ((size_t)n * kind->item_bytes)));
}

void kvcl_kinds_on_ask(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len)
{
    const kvcl_msg_dir_ask_t *in    = (const kvcl_msg_dir_ask_t *)msg;
    kvcl_store_h             store = kvcl_store_by_id(ctx, in->store);
    const kvcl_ask_kind_t    *kind = (in->msg.flags < KVCL_ASK_KINDS) ? &kinds[in->msg.flags] : &kinds[0];
    char                     what[64];

    (void)hdr_len;
    if ((store == NULL) || store->closing) {
        kvcl_ask_answer(peer, in, KVCL_ERR_NOT_FOUND, 0, NULL, 0);
        return;
    }
    if ((kind->name != NULL) && size_fits(kind, in->n, len) && kind->on_ask(store, peer, in, data, len)) {
        return;
    }
    snprintf(what, sizeof(what), "a question between stores (%s) that makes no sense",
             (kind->name != NULL) ? kind->name : "of no kind");
    kvcl_am_malformed(ctx, peer, what);
    kvcl_ask_answer(peer, in, KVCL_ERR_PROTOCOL, 0, NULL, 0);
}
