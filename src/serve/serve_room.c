/*
 * The room that serves pulls: its state in a context and its list of message handlers.
 */
#include "config.h"
#include "base/error.h"
#include "serve/serve.h"

#include <stdlib.h>

static const kvcl_xfer_server_t server = {.abort = kvcl_serve_abort, .lane_lost = kvcl_serve_lane_lost};

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_serve_state_t *state = calloc(1, sizeof(*state));

    if (state == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for served transfers");
    }
    kvcl_list_init(&state->serves);
    kvcl_list_init(&state->all);
    kvcl_xfer_state(ctx)->server = &server;
    *state_p = state;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_serve_fini(ctx);
    free(state);
}

static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    (void)state;
    return kvcl_serve_poll(ctx);
}

static bool outstanding(kvcl_context_h ctx, void *state)
{
    const kvcl_serve_state_t *serve = state;

    return serve->activated || kvcl_serve_lane_outstanding(ctx);
}

static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    (void)state;
    kvcl_serve_peer_failed(ctx, peer);
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_PULL, sizeof(kvcl_msg_pull_t), kvcl_serve_on_pull},
    {KVCL_MSG_CREDIT, sizeof(kvcl_msg_credit_t), kvcl_serve_on_credit},
    {KVCL_MSG_PULL_STOP, sizeof(kvcl_msg_credit_t), kvcl_serve_on_stop},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_serve = {
    .name        = "serve",
    .handlers    = handlers,
    .init        = room_init,
    .fini        = room_fini,
    .poll        = room_poll,
    .outstanding = outstanding,
    .peer_failed = peer_failed,
    .peer_reset  = peer_failed,
};
