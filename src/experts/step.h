/*
 * The handle of kvcl_ep_open, and what its calls share: messages over a communicator of its own, which the machine of
 * ep/ep_turn.h asks for (step_msgs.c). Tags name activation, step and kind, so a message of one step matches no
 * receive of another.
 *
 * Rows lie in caches, a block each, so that ranks of a host copy them straight from each other's memory.
 *
 * Thread: the calls of one handle run one at a time (busy).
 */
#ifndef KVCL_EXPERTS_STEP_H
#define KVCL_EXPERTS_STEP_H

#include "ep/ep_map.h"
#include "ep/ep_step.h"
#include "ep/ep_turn.h"
#include "experts/mask.h"
#include <kvcl/kvcl_xfer.h>

#include <stdatomic.h>

/* What is in flight with one peer; ends that come together are reported in this order. From the fourth on, they end
 * with their call. */
enum {
    KVCL_EP_OP_TAKE_WORD, /* always posted while the peer is active: it waits, it skips this rank, or it has died */
    KVCL_EP_OP_SEND_SKIP,
    KVCL_EP_OP_SEND_BEAT,
    KVCL_EP_OP_TAKE_NOTICE,
    KVCL_EP_OP_SEND_NOTICE,
    KVCL_EP_OP_TAKE_ROWS,
    KVCL_EP_OP_SEND_ROWS,
    KVCL_EP_OPS,
    KVCL_EP_OP_OF_CALL = KVCL_EP_OP_TAKE_NOTICE
};

/* What a rank tells another beside its calls; on the wire, little-endian. */
typedef struct kvcl_ep_word {
    uint64_t what;
    uint64_t call; /* the sender's, kvcl_ep_turn_call() */
} kvcl_ep_word_t;
_Static_assert(sizeof(kvcl_ep_word_t) == 16, "wire format");
enum { KVCL_EP_WORD_SKIP = 1, KVCL_EP_WORD_BEAT = 2 };

/* Memory for rows, as a cache of one block a row. */
typedef struct kvcl_ep_rows {
    kvcl_cache_h cache;
    void         *own; /* NULL: the library's memory, which ranks of this host map */
    char         *base;
} kvcl_ep_rows_t;

struct kvcl_ep {
    kvcl_comm_h     comm;
    kvcl_ep_dims_t  dims;
    uint64_t        timeout_ns, first_timeout_ns;
    uint32_t        first_steps;
    atomic_flag     busy;
    kvcl_ep_turn_t  turn;
    kvcl_ep_masks_t masks;
    kvcl_ep_map_t   maps[2];
    unsigned        map;            /* of maps: the current one */
    kvcl_ep_route_t route;
    kvcl_ep_inbox_t inbox;
    kvcl_ep_rows_t  x, in, y, back; /* this rank's tokens; others' tokens here; their outputs; this rank's outputs */
    uint32_t        *numbers;       /* 0, 1, ...: blocks of back, as many as it has */
    uint32_t        *rows_to;       /* [ranks]: of this step */
    uint8_t         *members;       /* [ranks]: of the view */
    char            *notices;       /* [2][ranks]: sent, received; kvcl_ep_notice_bytes() each */
    uint32_t        *counts;        /* [local]: of a notice that is read */
    kvcl_recv_info_t *infos;        /* [ranks]: the lengths of the received ones */
    kvcl_ep_word_t  *words;         /* [3][ranks]: received, skips sent, beats sent */
    kvcl_req_h      *reqs;          /* [KVCL_EP_OPS][ranks] */
    size_t          *done;          /* [KVCL_EP_OPS * ranks]: indices that have ended */
    kvcl_status_t   *statuses;      /* the same */
};

/* ---- step_msgs.c ---- */

extern const kvcl_ep_acts_t kvcl_ep_msgs_acts;

/** Begin to listen for ranks that skip this one: once for each activation. */
void kvcl_ep_msgs_listen(kvcl_ep_h ep);
/** Stop what is posted for an activation; tell active ranks that this one leaves, if @a leave. Blocks for a moment. */
void kvcl_ep_msgs_stop(kvcl_ep_h ep, bool leave);
/** Skip the ranks that have failed. */
void kvcl_ep_msgs_learn(kvcl_ep_h ep);
/** Run the call that the machine has begun until it is over; then nothing of it is in flight, and the mask shows the
 * outcome. */
void kvcl_ep_msgs_run(kvcl_ep_h ep);

/** How long a call of a step waits for a rank of which it hears nothing. */
static inline uint64_t kvcl_ep_limit(const struct kvcl_ep *ep, uint64_t step)
{
    return (step <= ep->first_steps) ? ep->first_timeout_ns : ep->timeout_ns;
}

/* ---- open.c ---- */

/** First of each call: checks the handle, and that no other call runs. kvcl_ep_leave() follows on KVCL_OK. */
kvcl_status_t kvcl_ep_enter(kvcl_ep_h ep, const char *call) KVCL_MUST_CHECK;

static inline void kvcl_ep_leave(kvcl_ep_h ep)
{
    atomic_flag_clear_explicit(&ep->busy, memory_order_release);
}

static inline char *kvcl_ep_row(const struct kvcl_ep *ep, const kvcl_ep_rows_t *rows, uint32_t row)
{
    return rows->base + ((size_t)row * ep->dims.row_bytes);
}

#endif
