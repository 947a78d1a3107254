/*
 * Matching of sends that arrive with recvs that are posted, by (communicator, source, tag), each in its order. Engine
 * lock held.
 */
#ifndef KVCL_P2P_P2P_MATCH_H
#define KVCL_P2P_P2P_MATCH_H

#include "core/context.h"
#include "xfer/xfer_wire.h"
#include <kvcl/kvcl_xfer.h>

/* A recv that waits for a send; embedded in the recv. */
typedef struct kvcl_posted kvcl_posted_t;
struct kvcl_posted {
    kvcl_list_t link;   /* kvcl_p2p_state_t.recvs, or none */
    uint64_t    comm;
    int         source; /* or KVCL_ANY_SOURCE */
    uint64_t    tag;    /* or KVCL_ANY_TAG */
    /* Called once, after the recv was removed from the list. data is valid until return. */
    void        (*matched)(kvcl_posted_t *posted, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data,
                           size_t len);
};

/** Match the first arrived send. @return false: there is none. */
bool kvcl_match_arrived(kvcl_context_h ctx, kvcl_posted_t *posted);
/** The first arrived send that would match, which stays; NULL: there is none. */
const kvcl_msg_send_t *kvcl_match_look(kvcl_context_h ctx, const kvcl_posted_t *posted);
/** Without an arrived send: wait for one, until kvcl_list_del(&posted->link). */
void kvcl_match_post(kvcl_context_h ctx, kvcl_posted_t *posted);
/** SEND_DONE to the sender. */
void kvcl_p2p_send_done(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status);

#endif
