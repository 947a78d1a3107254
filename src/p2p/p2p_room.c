/*
 * The room of sends and recvs: its state in a context and its list of message handlers.
 */
#include "config.h"
#include "base/error.h"
#include "p2p/layers.h"
#include "p2p/p2p.h"

#include <stdlib.h>

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_p2p_state_t *p2p = calloc(1, sizeof(*p2p));

    (void)ctx;
    if (p2p == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for sends and recvs");
    }
    kvcl_list_init(&p2p->recvs);
    kvcl_list_init(&p2p->arrived);
    kvcl_list_init(&p2p->layers_out);
    kvcl_list_init(&p2p->layers_in);
    *state_p = p2p;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_p2p_fini(ctx);
    free(state);
}

static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    (void)state;
    return kvcl_layers_poll(ctx);
}

static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    (void)state;
    kvcl_p2p_peer_failed(ctx, peer);
}

static void peer_reset(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    (void)state;
    kvcl_p2p_peer_reset(ctx, peer);
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_SEND, sizeof(kvcl_msg_send_t), kvcl_p2p_on_send},
    {KVCL_MSG_SEND_DONE, sizeof(kvcl_msg_done_t), kvcl_p2p_on_done},
    {KVCL_MSG_SEND_STOP, sizeof(kvcl_msg_done_t), kvcl_p2p_on_stop},
    {KVCL_MSG_LAYERS_WANT, sizeof(kvcl_msg_layers_want_t), kvcl_p2p_on_layers_want},
    {KVCL_MSG_LAYERS, sizeof(kvcl_msg_layers_t), kvcl_p2p_on_layers},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_p2p = {
    .name        = "p2p",
    .handlers    = handlers,
    .init        = room_init,
    .fini        = room_fini,
    .poll        = room_poll,
    .peer_failed = peer_failed,
    .peer_reset  = peer_reset,
};
