/*
 * What one peer makes this rank serve: bounded, so that an evil or broken rank neither fills this rank's memory nor
 * takes the turns of others. Engine lock held everywhere.
 *
 * Of a peer's pulls KVCL_SERVE_ACTIVE take turns; the others wait, in their order. Pulls beyond KVCL_SERVE_PULLS, or
 * KVCL_SERVE_HELD bytes of their lists, are refused with KVCL_ERR_NO_SPACE and counted. Frames in flight to a peer are
 * at most KVCL_SERVE_FLIGHT bytes and one frame. In a round a peer's pulls send at most KVCL_SERVE_ROUND bytes and one
 * turn, then the other peers have theirs.
 */
#ifndef KVCL_SERVE_SERVE_PEER_H
#define KVCL_SERVE_SERVE_PEER_H

#include "core/context.h"

enum {
    KVCL_SERVE_ACTIVE = 64,
    KVCL_SERVE_PULLS  = 16384,
    KVCL_SERVE_HELD   = 64 << 20,
    KVCL_SERVE_FLIGHT = 64 << 20,
    KVCL_SERVE_ROUND  = 1 << 20
};

struct kvcl_serve;

typedef struct kvcl_serve_peer {
    kvcl_list_t waiting;     /* kvcl_serve_t.link */
    unsigned    active, n_waiting;
    size_t      held;        /* bytes of its pulls' memory here */
    size_t      flight;      /* bytes of frames in flight */
    uint64_t    sent;        /* bytes of frames so far */
    unsigned    turn;        /* the round of turn_from */
    uint64_t    turn_from;   /* sent at its begin */
} kvcl_serve_peer_t;

/** The peer's, made by its first pull. NULL: no memory. */
kvcl_serve_peer_t *kvcl_serve_peer(kvcl_peer_t *peer);
void              kvcl_serve_peers_fini(kvcl_context_h ctx);
/** May it have one more pull, with `bytes` of memory? Otherwise it is counted and logged. */
bool              kvcl_serve_peer_may(kvcl_peer_t *peer, size_t bytes);
/** A checked pull enters the turns, or waits for them. */
void              kvcl_serve_peer_enter(struct kvcl_serve *serve);
/** A pull that ends leaves both; the next one that waits enters the turns. */
void              kvcl_serve_peer_leave(struct kvcl_serve *serve);

/* May its pulls send in this round? */
static inline bool kvcl_serve_peer_has_turn(kvcl_serve_peer_t *peer, unsigned turn)
{
    if (peer->turn != turn) {
        peer->turn      = turn;
        peer->turn_from = peer->sent;
    }
    return peer->sent - peer->turn_from < KVCL_SERVE_ROUND;
}

#endif
