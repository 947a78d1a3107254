/*
 * The machine of one rank's steps (ep_turn.h).
 *
 * Invariants: pending counts the peers that are active and of which something is awaited or in flight; of a lost peer
 * nothing is. The rank itself awaits nothing of itself. Pure; no lock.
 */
#include "config.h"

#include "ep/ep_turn.h"

#include <assert.h>

static bool is_busy(const kvcl_ep_peer_t *peer)
{
    return (peer->await != KVCL_EP_AWAIT_NOTHING) || (peer->sends != 0);
}

static void awaits(kvcl_ep_turn_t *turn, uint32_t peer, kvcl_ep_await_t await, int sends)
{
    kvcl_ep_peer_t *p   = &turn->peers[peer];
    const bool     was = is_busy(p);

    p->await = (uint8_t)await;
    p->sends = (uint8_t)(p->sends + sends);
    turn->pending += (uint32_t)is_busy(p) - (uint32_t)was;
}

void kvcl_ep_turn_init(kvcl_ep_turn_t *turn, uint32_t ranks, uint32_t self, kvcl_ep_peer_t *peers,
                       const kvcl_ep_acts_t *acts, void *arg)
{
    uint32_t r;

    *turn = (kvcl_ep_turn_t){.acts = acts, .arg = arg, .peers = peers, .ranks = ranks, .self = self};
    for (r = 0; r < ranks; ++r) {
        peers[r] = (kvcl_ep_peer_t){.why = KVCL_ERR_STALE};
    }
}

void kvcl_ep_turn_activate(kvcl_ep_turn_t *turn, uint64_t number, const uint8_t *active)
{
    uint32_t r;

    assert(turn->phase == KVCL_EP_IDLE);
    turn->number = number;
    turn->step   = 0;
    for (r = 0; r < turn->ranks; ++r) {
        turn->peers[r] = (kvcl_ep_peer_t){.why = ((active == NULL) || (active[r] != 0)) ? KVCL_OK : KVCL_ERR_STALE};
    }
    turn->peers[turn->self].why = KVCL_OK;
}

static void begin(kvcl_ep_turn_t *turn, kvcl_ep_phase_t phase, uint64_t now, uint64_t limit)
{
    uint32_t peer;

    turn->phase = phase;
    turn->begun = now;
    turn->limit = limit;
    turn->beats = now + (limit / 2);
    for (peer = 0; peer < turn->ranks; ++peer) {
        turn->peers[peer].back  = false;
        turn->peers[peer].heard = now;
    }
}

void kvcl_ep_turn_dispatch(kvcl_ep_turn_t *turn, const uint32_t *rows_to, uint64_t now, uint64_t limit)
{
    uint32_t i, peer;

    assert(turn->phase == KVCL_EP_IDLE);
    ++turn->step;
    begin(turn, KVCL_EP_DISPATCH, now, limit);
    for (i = 1; i < turn->ranks; ++i) { /* each begins with its next rank, so not all send to one */
        peer = (turn->self + i) % turn->ranks;
        if (kvcl_ep_turn_active(turn, peer)) {
            awaits(turn, peer, KVCL_EP_AWAIT_NOTICE, 1);
            turn->acts->take_notice(turn->arg, peer);
        }
        if (kvcl_ep_turn_active(turn, peer)) {
            turn->acts->send_notice(turn->arg, peer);
        }
        if (kvcl_ep_turn_active(turn, peer) && (rows_to[peer] != 0)) {
            awaits(turn, peer, turn->peers[peer].await, 1);
            turn->acts->send_rows(turn->arg, peer);
        }
    }
}

void kvcl_ep_turn_combine(kvcl_ep_turn_t *turn, uint64_t now, uint64_t limit)
{
    uint32_t i, peer;

    assert(turn->phase == KVCL_EP_COMPUTE);
    begin(turn, KVCL_EP_COMBINE, now, limit);
    for (i = 1; i < turn->ranks; ++i) {
        peer = (turn->self + i) % turn->ranks;
        if (kvcl_ep_turn_active(turn, peer)) {
            awaits(turn, peer, KVCL_EP_AWAIT_ROWS, 1);
            turn->acts->take_rows(turn->arg, peer);
        }
        if (kvcl_ep_turn_active(turn, peer)) {
            turn->acts->send_rows(turn->arg, peer);
        }
    }
}

kvcl_status_t kvcl_ep_turn_notice(kvcl_ep_turn_t *turn, uint32_t peer, uint64_t number, uint64_t step)
{
    if ((number != turn->number) || (step != turn->step) || (turn->phase != KVCL_EP_DISPATCH) ||
        !kvcl_ep_turn_active(turn, peer)) {
        return KVCL_ERR_STALE;
    }
    return (turn->peers[peer].await == KVCL_EP_AWAIT_NOTICE) ? KVCL_OK : KVCL_ERR_EXISTS;
}

void kvcl_ep_turn_announced(kvcl_ep_turn_t *turn, uint32_t peer, uint32_t rows)
{
    assert(turn->peers[peer].await == KVCL_EP_AWAIT_NOTICE);
    awaits(turn, peer, (rows != 0) ? KVCL_EP_AWAIT_ROWS : KVCL_EP_AWAIT_NOTHING, 0);
    if (rows != 0) {
        turn->acts->take_rows(turn->arg, peer);
    }
}

void kvcl_ep_turn_rows(kvcl_ep_turn_t *turn, uint32_t peer)
{
    if (turn->peers[peer].await == KVCL_EP_AWAIT_ROWS) {
        turn->peers[peer].back = (turn->phase == KVCL_EP_COMBINE);
        awaits(turn, peer, KVCL_EP_AWAIT_NOTHING, 0);
    }
}

void kvcl_ep_turn_sent(kvcl_ep_turn_t *turn, uint32_t peer)
{
    if (turn->peers[peer].sends != 0) {
        awaits(turn, peer, turn->peers[peer].await, -1);
    }
}

void kvcl_ep_turn_lose(kvcl_ep_turn_t *turn, uint32_t peer, kvcl_status_t why)
{
    if (!kvcl_ep_turn_active(turn, peer) || (peer == turn->self)) {
        return;
    }
    awaits(turn, peer, KVCL_EP_AWAIT_NOTHING, -(int)turn->peers[peer].sends);
    turn->peers[peer].why = why;
    turn->acts->lost(turn->arg, peer);
}

void kvcl_ep_turn_beat(kvcl_ep_turn_t *turn, uint32_t peer, uint64_t call, uint64_t now)
{
    if (call + 1 == kvcl_ep_turn_call(turn)) {
        turn->peers[peer].heard = now;
    }
}

uint64_t kvcl_ep_turn_tick(kvcl_ep_turn_t *turn, uint64_t now)
{
    const uint64_t last = turn->begun + (KVCL_EP_LIMITS * turn->limit);
    uint64_t       next = last, end;
    uint32_t       r;

    for (r = 0; r < turn->ranks; ++r) {
        end = turn->peers[r].heard + turn->limit;
        end = (end < last) ? end : last;
        if (is_busy(&turn->peers[r]) && (now >= end)) {
            kvcl_ep_turn_lose(turn, r, KVCL_ERR_TIMED_OUT);
        } else if (is_busy(&turn->peers[r])) {
            next = (end < next) ? end : next;
        }
    }
    if (now >= turn->beats) {
        turn->beats = now + (turn->limit / 2);
        for (r = 0; r < turn->ranks; ++r) {
            if ((r != turn->self) && kvcl_ep_turn_active(turn, r)) {
                turn->acts->beat(turn->arg, r);
            }
        }
    }
    return (turn->beats < next) ? turn->beats : next;
}

void kvcl_ep_turn_end(kvcl_ep_turn_t *turn)
{
    assert(kvcl_ep_turn_is_over(turn));
    turn->phase = (turn->phase == KVCL_EP_DISPATCH) ? KVCL_EP_COMPUTE : KVCL_EP_IDLE;
}
