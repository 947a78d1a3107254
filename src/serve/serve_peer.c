/*
 * What one peer makes this rank serve (serve_peer.h): its counts, and the pulls that wait for others of it to end.
 *
 * Owns: kvcl_peer_t.serves. Invariants: a pull waits only while KVCL_SERVE_ACTIVE others of its peer take turns; held
 * is the memory of both. Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "base/log.h"
#include "serve/serve.h"

#include <stdlib.h>

kvcl_serve_peer_t *kvcl_serve_peer(kvcl_peer_t *peer)
{
    if (peer->serves == NULL) {
        peer->serves = calloc(1, sizeof(*peer->serves));
        if (peer->serves != NULL) {
            kvcl_list_init(&peer->serves->waiting);
        }
    }
    return peer->serves;
}

void kvcl_serve_peers_fini(kvcl_context_h ctx)
{
    uint32_t i;

    for (i = 0; i < ctx->peers.count; ++i) {
        free(ctx->peers.v[i]->serves);
        ctx->peers.v[i]->serves = NULL;
    }
}

bool kvcl_serve_peer_may(kvcl_peer_t *peer, size_t bytes)
{
    const kvcl_serve_peer_t *serves = peer->serves;
    uint64_t                n;

    if ((serves->active + serves->n_waiting < KVCL_SERVE_PULLS) &&
        (serves->active + serves->n_waiting == 0 || (serves->held + bytes <= KVCL_SERVE_HELD))) {
        return true;
    }
    n = ++peer->ctx->stats.refused;
    if ((n & (n - 1)) == 0) {
        kvcl_log_warn("%s has %u gets in progress here, of %zu bytes: one more is refused (%llu sends and gets refused "
                      "so far)", peer->name, serves->active + serves->n_waiting, serves->held, (unsigned long long)n);
    }
    return false;
}

static void activate(kvcl_serve_state_t *state, kvcl_serve_t *serve)
{
    serve->waits = false;
    ++serve->peer->serves->active;
    kvcl_list_add_tail(&state->serves, &serve->link);
}

void kvcl_serve_peer_enter(kvcl_serve_t *serve)
{
    kvcl_serve_state_t *state = kvcl_serve_state(serve->ctx);
    kvcl_serve_peer_t  *peer  = serve->peer->serves;

    peer->held += serve->held;
    kvcl_list_add_tail(&state->all, &serve->all);
    if (peer->active < KVCL_SERVE_ACTIVE) {
        activate(state, serve);
    } else {
        serve->waits = true;
        ++peer->n_waiting;
        kvcl_list_add_tail(&peer->waiting, &serve->link);
    }
}

void kvcl_serve_peer_leave(kvcl_serve_t *serve)
{
    kvcl_serve_state_t *state = kvcl_serve_state(serve->ctx);
    kvcl_serve_peer_t  *peer  = serve->peer->serves;

    if (state->next == &serve->link) {
        state->next = serve->link.next;
    }
    kvcl_list_del(&serve->link);
    kvcl_list_del(&serve->all);
    peer->held -= serve->held;
    if (serve->waits) {
        --peer->n_waiting;
        return;
    }
    --peer->active;
    if (peer->n_waiting > 0) {
        --peer->n_waiting;
        activate(state, kvcl_container_of(kvcl_list_pop(&peer->waiting), kvcl_serve_t, link));
        state->activated = true;
    }
}
