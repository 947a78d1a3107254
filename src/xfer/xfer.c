/*
 * The transfer room: its state in a context and its list of message handlers.
 */
#include "config.h"
#include "xfer/xfer.h"
#include "base/error.h"
#include "base/log.h"
#include "lane/lane.h"
#include "xfer/copy.h"
#include "xfer/pull.h"
#include "xfer/xfer_wire.h"

#include <stdlib.h>

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_xfer_state_t *xfer = calloc(1, sizeof(*xfer));
    char              text[KVCL_RMA_TABLE_TEXT];
    kvcl_status_t     status;

    if (xfer == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for transfers");
    }
    status = kvcl_rma_table_parse(ctx->config.native_table, &xfer->rma_table);
    if (status != KVCL_OK) {
        free(xfer);
        return kvcl_fail(status, "KVCL_NATIVE_TABLE: %s", kvcl_last_error());
    }
    kvcl_log_debug("native transfers: %s", kvcl_rma_table_format(&xfer->rma_table, text, sizeof(text)));
    kvcl_list_init(&xfer->copies[0]);
    kvcl_list_init(&xfer->copies[1]);
    kvcl_list_init(&xfer->rmas);
    kvcl_map_init(&xfer->offers);
    kvcl_lane_register(ctx, &kvcl_pull_lane_user);
    *state_p = xfer;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_xfer_state_t *xfer = state;

    (void)ctx;
    kvcl_map_fini(&xfer->offers);
    free(xfer);
}

static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    (void)state;
    return kvcl_rma_poll(ctx);
}

static bool room_work(kvcl_context_h ctx, void *state)
{
    (void)state;
    return kvcl_copy_work(ctx);
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_DATA, sizeof(kvcl_msg_data_t), kvcl_pull_on_data},
    {KVCL_MSG_PULL_DONE, sizeof(kvcl_msg_pull_done_t), kvcl_pull_on_done},
    {KVCL_MSG_PUT, sizeof(kvcl_msg_put_t), kvcl_put_on_put},
    {KVCL_MSG_PUT_DONE, sizeof(kvcl_msg_done_t), kvcl_put_on_done},
    {KVCL_MSG_SIGNAL, sizeof(kvcl_msg_signal_t), kvcl_put_on_signal},
    {KVCL_MSG_SIGNALED, sizeof(kvcl_msg_done_t), kvcl_put_on_done},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_xfer = {
    .name     = "xfer",
    .handlers = handlers,
    .init     = room_init,
    .fini     = room_fini,
    .poll     = room_poll,
    .work     = room_work,
};
