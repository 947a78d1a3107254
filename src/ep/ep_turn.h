/*
 * The machine of one rank's steps: what it awaits from each peer in a dispatch and in a combine, which peers it skips,
 * and when the call is over. It posts nothing by itself: it calls the functions of kvcl_ep_acts_t, and is told what
 * came of them. The driver (src/experts) does them by messages, the simulator (test/sim/sim_ep.c) in its own network.
 *
 *   dispatch   to each active peer: a notice, then rows if there are any; from it: a notice, then the rows that the
 *              notice announces
 *   combine    the rows go back: each rank knows how many from the dispatch. 0 rows are a message, too: each call waits
 *              for all active peers, so ranks that wait for a late one do not become late for those that need not
 *
 * A peer is late when it has done nothing for the limit since this rank began to wait. A rank that waits tells all
 * others so twice in a limit (beat). Who is a call further on then gives it a limit more, since it may wait for a rank
 * whose part the other has already; without that, one dead rank would make the living late for each other. In the same
 * call a beat gives nothing: its sender has done its part. As all wait for all in each call, no rank is more than a
 * call behind, and what it waits for is not behind, so that wait ends; after KVCL_EP_LIMITS limits it ends in any case.
 *
 * A peer is lost once, and stays so until the next activation: with `why`. The messages of a step name its activation
 * and its number; a notice of another step is refused, and the tags of all messages (kvcl_ep_tag) differ.
 *
 * Pure: no lock, no clock: times are the caller's, of any origin. An act may report its end, or a loss, before it
 * returns.
 */
#ifndef KVCL_EP_EP_TURN_H
#define KVCL_EP_EP_TURN_H

#include "kvcl/kvcl_status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum kvcl_ep_phase {
    KVCL_EP_IDLE,     /* a dispatch may begin */
    KVCL_EP_DISPATCH,
    KVCL_EP_COMPUTE,  /* a combine is due */
    KVCL_EP_COMBINE
} kvcl_ep_phase_t;

typedef enum kvcl_ep_await { KVCL_EP_AWAIT_NOTHING, KVCL_EP_AWAIT_NOTICE, KVCL_EP_AWAIT_ROWS } kvcl_ep_await_t;

/* What the machine has done with one peer. */
typedef struct kvcl_ep_acts {
    void (*send_notice)(void *arg, uint32_t peer);
    void (*send_rows)(void *arg, uint32_t peer);
    void (*take_notice)(void *arg, uint32_t peer); /* kvcl_ep_turn_notice follows */
    void (*take_rows)(void *arg, uint32_t peer);   /* kvcl_ep_turn_rows follows. In a combine, 0 rows too */
    void (*beat)(void *arg, uint32_t peer);        /* tell it that this rank is in kvcl_ep_turn_call() */
    void (*lost)(void *arg, uint32_t peer);        /* stop what was posted with it, and tell it that it is skipped */
} kvcl_ep_acts_t;

typedef struct kvcl_ep_peer {
    kvcl_status_t why;   /* KVCL_OK: active */
    uint8_t       await; /* kvcl_ep_await_t */
    uint8_t       sends; /* of this call, in flight */
    uint64_t      heard; /* the last beat in this call, or when the call began */
    bool          back;  /* all rows of the combine are here, whatever befalls the peer afterwards */
} kvcl_ep_peer_t;

typedef struct kvcl_ep_turn {
    const kvcl_ep_acts_t *acts;
    void                 *arg;
    kvcl_ep_peer_t       *peers;  /* [ranks] */
    uint32_t             ranks, self;
    uint32_t             pending; /* peers of which something is in flight */
    kvcl_ep_phase_t      phase;
    uint64_t             number;  /* of the activation */
    uint64_t             step;    /* of the activation: the first has 1 */
    uint64_t             begun, limit, beats; /* of the call: times; beats: the next one */
} kvcl_ep_turn_t;

enum { KVCL_EP_LIMITS = 3 };

/* The kinds of messages. */
enum { KVCL_EP_TAG_NOTICE = 1, KVCL_EP_TAG_ROWS = 2, KVCL_EP_TAG_BACK = 3, KVCL_EP_TAG_WORD = 4 };

/** The tag of a message; step 0: of the whole activation. Numbers beyond 2^20 and steps beyond 2^40 begin again. */
static inline uint64_t kvcl_ep_tag(uint64_t number, uint64_t step, unsigned kind)
{
    return ((number & 0xfffff) << 43) | ((step & UINT64_C(0xffffffffff)) << 3) | kind;
}

/** @a peers: [ranks], the caller's. Nobody takes part before kvcl_ep_turn_activate. */
void kvcl_ep_turn_init(kvcl_ep_turn_t *turn, uint32_t ranks, uint32_t self, kvcl_ep_peer_t *peers,
                       const kvcl_ep_acts_t *acts, void *arg);
/** Begin an activation, in phase IDLE. @a active: [ranks]: 0: is skipped; NULL: all take part. */
void kvcl_ep_turn_activate(kvcl_ep_turn_t *turn, uint64_t number, const uint8_t *active);

/** Begin a step, in phase IDLE. @a rows_to: [ranks]. The step is counted first, so acts may use its tags.
 *  @a limit: of this call, in the unit of now. */
void kvcl_ep_turn_dispatch(kvcl_ep_turn_t *turn, const uint32_t *rows_to, uint64_t now, uint64_t limit);
/** In phase COMPUTE. */
void kvcl_ep_turn_combine(kvcl_ep_turn_t *turn, uint64_t now, uint64_t limit);

/** A notice was received and is well-formed. @return KVCL_OK: take it; KVCL_ERR_STALE: of another step, ignore it;
 *  KVCL_ERR_EXISTS: a second one, ignore it. */
kvcl_status_t kvcl_ep_turn_notice(kvcl_ep_turn_t *turn, uint32_t peer, uint64_t number, uint64_t step);
/** A notice that was taken announces these rows; their places are known. */
void          kvcl_ep_turn_announced(kvcl_ep_turn_t *turn, uint32_t peer, uint32_t rows);
/** The rows of a peer are here. */
void          kvcl_ep_turn_rows(kvcl_ep_turn_t *turn, uint32_t peer);
/** A send to it has ended well. */
void          kvcl_ep_turn_sent(kvcl_ep_turn_t *turn, uint32_t peer);
/** Skip a peer from now on. Nothing happens if it is skipped already. */
void          kvcl_ep_turn_lose(kvcl_ep_turn_t *turn, uint32_t peer, kvcl_status_t why);
/** A beat of a peer that is in that call. */
void          kvcl_ep_turn_beat(kvcl_ep_turn_t *turn, uint32_t peer, uint64_t call, uint64_t now);
/** Time has passed: lose who is late, beat if it is time. @return when to call it again, while something is pending. */
uint64_t      kvcl_ep_turn_tick(kvcl_ep_turn_t *turn, uint64_t now);
/** The call is over: phase COMPUTE after a dispatch, IDLE after a combine. Only if nothing is pending. */
void          kvcl_ep_turn_end(kvcl_ep_turn_t *turn);

/** The number of the call: two in a step. */
static inline uint64_t kvcl_ep_turn_call(const kvcl_ep_turn_t *turn)
{
    return (2 * turn->step) + (turn->phase >= KVCL_EP_COMBINE);
}

static inline bool kvcl_ep_turn_is_over(const kvcl_ep_turn_t *turn)
{
    return turn->pending == 0;
}

static inline bool kvcl_ep_turn_active(const kvcl_ep_turn_t *turn, uint32_t peer)
{
    return turn->peers[peer].why == KVCL_OK;
}

#endif
