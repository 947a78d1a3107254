/*
 * Questions of one rank to another about the other's own part of the store (events, lists, statistics, pins, ...), as
 * against asks to homes: each is one message and one answer, its caller waits, and a rank asks itself in the same way.
 */
#ifndef KVCL_STORE_ADMIN_OPS_H
#define KVCL_STORE_ADMIN_OPS_H

#include "store/home/find.h"

enum { KVCL_OP_ANSWER_MAX = 65536, KVCL_OP_PAYLOAD_MAX = 65536 };

/* Where an answer goes. */
typedef struct kvcl_op_out {
    uint8_t *buf;
    size_t  cap;
    size_t  len;
    uint32_t n;   /* items, by kind */
} kvcl_op_out_t;

/* A call (home/call.h) that asks ranks about their own parts. */
typedef struct kvcl_op kvcl_op_t;
struct kvcl_op {
    kvcl_call_t call;
    /* Lock held, once a question. tag: the question's. KVCL_OK: data is the answer, of any length; it may change.
     * KVCL_ERR_RANK_FAILED: the rank is gone. KVCL_ERR_TIMED_OUT: it is silent, or the call's time is over.
     * KVCL_ERR_UNREACHABLE: this rank has excluded it. */
    void        (*answered)(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data,
                            size_t len);
};

/** Lock held, in a call's next(): ask a rank, or answer for this one. grace_ns: how long an answer takes if all is
 * well. The answer may come before this returns. */
void kvcl_op_rpc(kvcl_op_t *op, uint32_t rank, uint8_t kind, const void *in, size_t len, uint64_t tag,
                 uint64_t grace_ns);

/** No lock; blocks. Ask one rank, or this one, and put its answer into out->buf. KVCL_ERR_RANK_FAILED: it is gone. */
kvcl_status_t kvcl_op_call(kvcl_store_h store, int rank, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                           kvcl_op_out_t *out, const char *call) KVCL_MUST_CHECK;

/** No lock; blocks. Ask all ranks the same at the same time, this one too, but those whose status[i] is not KVCL_OK
 * when it is called; status[i] is then how it went, outs[i] the answer. */
kvcl_status_t kvcl_op_call_all(kvcl_store_h store, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                               kvcl_op_out_t *outs, kvcl_status_t *status) KVCL_MUST_CHECK;

/** Lock held, in end(): a rank's question ended so. Returns status. */
kvcl_status_t kvcl_op_why(kvcl_call_t *call, kvcl_status_t status, int rank);
/** KVCL_OK, or the sentence for a rank that a store has not. */
kvcl_status_t kvcl_op_check_rank(kvcl_store_h store, int rank, const char *call) KVCL_MUST_CHECK;

/** A row of kinds.c: its op answers. */
bool kvcl_op_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len);

/* ---- the kinds: lock held; in is hostile. They do not answer KVCL_ERR_NOT_FOUND: that means, no such store. ---- */

kvcl_status_t kvcl_op_list(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_pin(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_quota(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_clear(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_stats(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_leave(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_events(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);

/* ---- what other calls do with copies ---- */

/** No lock; blocks. As kvcl_store_pin, and unpin for ttl_ns 0; what ranks have not answered by the deadline counts as
 * not done. */
kvcl_status_t kvcl_pin_until(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder, uint64_t ttl_ns,
                             uint64_t deadline_ns) KVCL_MUST_CHECK;

/** No lock; blocks. The copies that found names are given up by whoever has them (but to_rank), because that rank has
 * them now. *left_p: how many were. */
kvcl_status_t kvcl_leave(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n, int to_rank,
                         uint64_t *left_p) KVCL_MUST_CHECK;
/** No lock; blocks. All copies of the keys are given up, listed or not, by all ranks at once: they are nowhere then,
 * and listed no more. timeout_ns (0: KVCL_TIMEOUT) is for the question, and again for the removal. */
kvcl_status_t kvcl_leave_all(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t timeout_ns) KVCL_MUST_CHECK;
/** Lock held: all that I have of a key, or that is on its way here as a copy, but in the tier. How many copies. */
uint64_t      kvcl_leave_key(kvcl_store_h store, const kvcl_key_t *key);

/* ---- following (admin/follow.c): lock held ---- */

/** A question for events: answered now or when there are some. */
bool kvcl_follow_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                            size_t len);
/** kvcl_store_listener_t.event: whoever follows this rank is told. */
void kvcl_follow_event(kvcl_owner_t *owner, uint32_t slot, kvcl_store_event_kind_t kind, int to_rank);
void kvcl_follow_stop(kvcl_store_h store); /* the store is being closed */

#endif
