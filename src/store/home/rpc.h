/*
 * RPCs: queries to other ranks of a store, one message in each direction.
 *
 * An RPC is a request of its own, so deadlines and failed peers end it like any other request. Its poster is notified
 * of the end once, by done(). Engine lock held, except where marked.
 */
#ifndef KVCL_STORE_HOME_RPC_H
#define KVCL_STORE_HOME_RPC_H

#include "core/peer.h"
#include "req/req.h"
#include "store/store_wire.h"
#include <kvcl/kvcl_store.h>

typedef struct kvcl_rpc kvcl_rpc_t;
struct kvcl_rpc {
    kvcl_req_t         req;
    kvcl_store_h       store;
    kvcl_list_t        link;        /* in the poster's list, for kvcl_rpcs_stop() */
    kvcl_peer_t        *peer;
    uint32_t           rank;
    uint64_t           posted_ns;
    bool               hedged;      /* set by a poster that stops it because its home is silent */
    bool               quick;       /* counted among the queries that the peer answers at once */
    bool               was_suspect; /* the rank was suspected when the RPC was posted */
    bool               silent;      /* ended because the rank does not answer (silence.c) */
    bool               read;        /* answered by a read of its table: the rank's processor took no part */
    uint64_t           grace_ns;    /* how long the answer takes if the rank is well */
    uint64_t           least_ns;    /* silence, even of a suspect, does not end the RPC sooner */
    uint64_t           tag;         /* the poster's */
    struct kvcl_far    *far;        /* its table is read instead (far_table.h) */
    kvcl_list_t        watch_link;  /* store->watched */
    uint8_t            kind;        /* KVCL_RPC_* */
    bool               over;
    uint32_t           n;           /* items */
    const uint32_t     *order;      /* item i of the RPC is the poster's item order[i]; the poster's memory */
    kvcl_peer_waiter_t waiter;
    /* Lock held; called once. KVCL_OK: data is the answer's payload, checked against the kind and n. */
    void               (*done)(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len);
    void               *arg;
    size_t             len;         /* bytes of the payload */
    unsigned char      payload[] __attribute__((aligned(8)));
};

/** No lock. The poster fills the payload (payload_room bytes), len and n. kvcl_rpc_discard frees an RPC that was not
 * posted. NULL: no memory. */
kvcl_rpc_t   *kvcl_rpc_new(kvcl_store_h store, uint32_t rank, uint8_t kind, size_t payload_room);
void          kvcl_rpc_discard(kvcl_rpc_t *rpc);
/** Lock held. done() is called later, or before this returns; the RPC is freed after it. rpcs: a list that holds the
 * RPC until its end, or NULL. */
void          kvcl_rpc_post(kvcl_rpc_t *rpc, uint64_t timeout_ns, kvcl_list_t *rpcs);
/** The same; if its rank is found to be silent, the RPC ends with KVCL_ERR_TIMED_OUT and rpc->silent set. */
void          kvcl_rpc_post_watched(kvcl_rpc_t *rpc, uint64_t timeout_ns, kvcl_list_t *rpcs);
void          kvcl_rpc_abandon(kvcl_rpc_t *rpc); /* lock held: ends a watched RPC as silent, now */
void          kvcl_rpcs_stop(kvcl_list_t *rpcs, kvcl_status_t status); /* lock held */
/** kvcl_rpc_kind_t.fits of kinds whose request and answer are messages of dir_wire.h. */
bool          kvcl_rpc_fits_dir(const kvcl_rpc_t *rpc, const void *data, size_t len);
void          kvcl_rpc_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                 const void *data, size_t len);
/** Lock held. Finds out once, in the background, how the rank's table can be read: mapped, natively or by message. */
void          kvcl_store_learn(kvcl_store_h store, uint32_t rank);

/* ---- silent ranks (home/silence.c): lock held ---- */

void kvcl_silence_watch(kvcl_rpc_t *rpc);
/** Is the rank suspected, and has it answered nothing for four hedges? */
bool kvcl_silence_is_sure(const struct kvcl_store *store, uint32_t rank);
void kvcl_silence_found(kvcl_store_h store); /* call it when a rank has become suspected or excluded */
void kvcl_silence_stop(kvcl_store_h store);  /* the store is being closed */

/* Items assigned to ranks: those of rank r are order[starts[r] .. starts[r + 1]). */
typedef struct kvcl_scatter {
    uint32_t *starts; /* n_ranks + 1; one allocation with order */
    uint32_t *order;
} kvcl_scatter_t;
/** Assigns each key to its home. keys: n items, stride bytes apart. skip (may be NULL): items with a nonzero byte are
 * left out. Any thread. */
kvcl_status_t kvcl_scatter_keys(kvcl_store_h store, const void *keys, size_t stride, size_t n, const uint8_t *skip,
                                kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
/** Assigns each key to its home and, in a store with two homes a key, to its backup, silent or not. */
kvcl_status_t kvcl_scatter_both(kvcl_store_h store, const void *keys, size_t stride, size_t n,
                                kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
/** Assigns each record to all of its homes. */
kvcl_status_t kvcl_scatter_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n,
                                kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
/** Assigns item i of n to the ranks to[i * per .. (i + 1) * per); KVCL_SHARD_NO_RANK is skipped. Any thread. */
kvcl_status_t kvcl_scatter_to(uint32_t n_ranks, const uint32_t *to, unsigned per, size_t n,
                              kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
void          kvcl_scatter_free(kvcl_scatter_t *scatter);

/** Makes RPCs for the scattered items of this rank, KVCL_RPC_KEYS_MAX items each. Each takes its keys from keys[]
 * (stride as above), and its locations as well if the kind carries records. Links them into list, unposted. On failure
 * the list is empty. */
kvcl_status_t kvcl_rpcs_make(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *keys, size_t stride,
                             const kvcl_scatter_t *scatter, kvcl_list_t *list) KVCL_MUST_CHECK;

#endif
