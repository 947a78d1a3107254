/*
 * Requests of one rank about another rank's own part of the store (events, lists, statistics, pins, ...), in contrast
 * to queries to homes. Each is one message and one answer. A rank makes requests about its own part in the same way,
 * without a message.
 */
#ifndef KVCL_STORE_ADMIN_OPS_H
#define KVCL_STORE_ADMIN_OPS_H

#include "store/home/find.h"

enum { KVCL_OP_ANSWER_MAX = 65536, KVCL_OP_PAYLOAD_MAX = 65536 };

/* The buffer of an answer. */
typedef struct kvcl_op_out {
    uint8_t  *buf;
    size_t   cap;
    size_t   len;
    uint32_t n;   /* items; their meaning depends on the kind */
} kvcl_op_out_t;

/* A call (home/call.h) that makes requests about ranks' own parts. */
typedef struct kvcl_op kvcl_op_t;
struct kvcl_op {
    kvcl_call_t call;
    /* Lock held; called once a request. tag: the request's. KVCL_OK: data is the answer, of any length, valid until
     * the function returns. KVCL_ERR_RANK_FAILED: the rank has failed. KVCL_ERR_TIMED_OUT: the rank is silent, or the
     * call's time is over. KVCL_ERR_UNREACHABLE: this rank has excluded it. */
    void        (*answered)(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data,
                            size_t len);
};

/** Lock held, in a call's next(). Sends a request to a rank, or makes this rank's own answer. grace_ns: how long an
 * answer takes if the rank is well. answered() may be called before this returns. */
void kvcl_op_rpc(kvcl_op_t *op, uint32_t rank, uint8_t kind, const void *in, size_t len, uint64_t tag,
                 uint64_t grace_ns);

/** No lock; blocks. Sends a request to one rank, which may be this one, and writes its answer to out->buf.
 * KVCL_ERR_RANK_FAILED: the rank has failed. */
kvcl_status_t kvcl_op_call(kvcl_store_h store, int rank, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                           kvcl_op_out_t *out, const char *call) KVCL_MUST_CHECK;

/** No lock; blocks. Sends the same request to all ranks at the same time, this one included, except to ranks whose
 * status[i] is not KVCL_OK at the call. Afterwards status[i] is the rank's status and outs[i] its answer. */
kvcl_status_t kvcl_op_call_all(kvcl_store_h store, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                               kvcl_op_out_t *outs, kvcl_status_t *status) KVCL_MUST_CHECK;

/** Lock held, in end(): sets the error sentence for the status of a rank's request. Returns status. */
kvcl_status_t kvcl_op_why(kvcl_call_t *call, kvcl_status_t status, int rank);
/** KVCL_ERR_UNKNOWN_RANK, with the error sentence: the store has no such rank. */
kvcl_status_t kvcl_op_check_rank(kvcl_store_h store, int rank, const char *call) KVCL_MUST_CHECK;

/** A row of kinds.c: answers by the row's op(). */
bool kvcl_op_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len);

/* ---- the kinds: lock held; `in` is hostile. None returns KVCL_ERR_NOT_FOUND, which means that the rank has no such
 * store. ---- */

kvcl_status_t kvcl_op_list(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_pin(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_quota(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_clear(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_stats(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_discard(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_held(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);
kvcl_status_t kvcl_op_events(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out);

/* ---- pins and copies, for other calls ---- */

/** No lock; blocks. Like kvcl_store_pin, or like kvcl_store_unpin if ttl_ns is 0. Pins that ranks have not confirmed by
 * the deadline count as not made. */
kvcl_status_t kvcl_pin_until(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder, uint64_t ttl_ns,
                             uint64_t deadline_ns) KVCL_MUST_CHECK;

enum { KVCL_HELD_MAX = 256 };

/** No lock; blocks. held[i]: does another rank, which is not drained, have the block of keys[i], n <= KVCL_HELD_MAX? An
 * entry of the directory may outlive its block for a moment. So the ranks that found[] names are asked. */
kvcl_status_t kvcl_held(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n,
                        uint64_t timeout_ns, uint8_t *held) KVCL_MUST_CHECK;

/** No lock; blocks. The ranks that found[] names, except to_rank, discard their copies of the keys, because to_rank has
 * them now. *discarded_p: the number of copies discarded. */
kvcl_status_t kvcl_discard(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n, int to_rank,
                           uint64_t *discarded_p) KVCL_MUST_CHECK;
/** No lock; blocks. All ranks discard all their copies of the keys, listed or not, and the keys are removed from the
 * directory. timeout_ns (0: KVCL_TIMEOUT) bounds the discard, and then the removal. */
kvcl_status_t kvcl_discard_all(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                               uint64_t timeout_ns) KVCL_MUST_CHECK;
/** Lock held. Discards this rank's copies of the key, except in the tier, and drops copies in transit to it. Returns
 * the number of copies discarded. */
uint64_t      kvcl_discard_key(kvcl_store_h store, const kvcl_key_t *key);

/* ---- following (admin/follow.c): lock held ---- */

/** A row of kinds.c: answers a request for events now, or when there are some. */
bool kvcl_follow_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                            size_t len);
/** kvcl_store_listener_t.event: adds an event and wakes the followers of this rank. */
void kvcl_follow_event(kvcl_owner_t *owner, uint32_t slot, kvcl_store_event_kind_t kind, int to_rank);
void kvcl_follow_stop(kvcl_store_h store); /* the store is being closed */

#endif
