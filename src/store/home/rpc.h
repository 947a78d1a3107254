/*
 * Asks: questions to other ranks of a store, and dealing keys to their homes.
 *
 * An ask is a request of its own, so deadlines and dead peers end it as any other; its poster hears of the end once, by
 * done(). Engine lock, but for what is marked otherwise.
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
    kvcl_list_t        link;   /* for the poster: kvcl_rpcs_stop() */
    kvcl_peer_t        *peer;
    uint32_t           rank;
    uint64_t           posted_ns;
    bool               hedged;  /* stopped for its home's silence: by the poster */
    bool               quick;   /* counted among those that its peer answers at once */
    bool               patient; /* its home was known to be silent when it was asked */
    bool               silent;  /* ended because its rank does not answer: home/silence.c */
    uint64_t           grace_ns; /* its answer takes so long if all is well */
    uint64_t           least_ns; /* silence ends it no sooner, not even that of a suspect */
    uint64_t           tag;     /* the poster's */
    kvcl_list_t        watch_link; /* store->watched */
    uint8_t            kind;
    bool               over;
    uint32_t           n;
    const uint32_t     *order; /* item i of the ask is the poster's item order[i]; the poster's */
    kvcl_peer_waiter_t waiter;
    /* Lock held, once. status OK: data is the answer's payload, of the right kind and number. */
    void               (*done)(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len);
    void               *arg;
    size_t             len;
    unsigned char      payload[] __attribute__((aligned(8)));
};

/** No lock. payload_room bytes of payload to be filled; len and n by the poster. Freed by kvcl_rpc_discard. */
kvcl_rpc_t   *kvcl_rpc_new(kvcl_store_h store, uint32_t rank, uint8_t kind, size_t payload_room);
void          kvcl_rpc_discard(kvcl_rpc_t *rpc);
/** Lock held. done() comes later, or has come when this returns; the ask is freed after it. */
void          kvcl_rpc_post(kvcl_rpc_t *rpc, uint64_t timeout_ns, kvcl_list_t *rpcs);
/** The same, and it ends with KVCL_ERR_TIMED_OUT, ask->silent set, when its rank is found to be silent. */
void          kvcl_rpc_post_watched(kvcl_rpc_t *rpc, uint64_t timeout_ns, kvcl_list_t *rpcs);
void          kvcl_rpc_abandon(kvcl_rpc_t *rpc); /* lock held: so, now */
void          kvcl_rpcs_stop(kvcl_list_t *rpcs, kvcl_status_t status); /* lock held */
/** kvcl_rpc_kind_t.fits of kinds whose question and answer are messages of dir_wire.h. */
bool          kvcl_rpc_fits_dir(const kvcl_rpc_t *rpc, const void *data, size_t len);
void          kvcl_rpc_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                 const void *data, size_t len);
/** Lock held: find out how this rank's table can be read, once, in the background. */
void          kvcl_store_learn(kvcl_store_h store, uint32_t rank);

/* ---- silent ranks (home/silence.c): lock held ---- */

void kvcl_silence_watch(kvcl_rpc_t *rpc);
/** Is it suspected, and has it answered nothing for four hedges? */
bool kvcl_silence_is_sure(const struct kvcl_store *store, uint32_t rank);
void kvcl_silence_found(kvcl_store_h store); /* a rank is suspected now */
void kvcl_silence_stop(kvcl_store_h store);  /* the store is being closed */

/* Items dealt to their homes: those of rank r are order[starts[r] .. starts[r + 1]). */
typedef struct kvcl_scatter {
    uint32_t *starts; /* n_ranks + 1; owns both arrays */
    uint32_t *order;
} kvcl_scatter_t;
/** keys: n items, stride bytes apart. skip (may be NULL): items with a nonzero byte are left out. Any thread. */
kvcl_status_t kvcl_scatter(kvcl_store_h store, const void *keys, size_t stride, size_t n, const uint8_t *skip,
                           kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
/** Keys, each to its home and, in a store where each has two, to its backup, silent or not. */
kvcl_status_t kvcl_scatter_both(kvcl_store_h store, const void *keys, size_t stride, size_t n,
                                kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
/** Records, each to all of its homes. */
kvcl_status_t kvcl_scatter_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n,
                                kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
/** n items, item i to the ranks to[i * per .. (i + 1) * per), of which KVCL_SHARD_NO_RANK is nobody. Any thread. */
kvcl_status_t kvcl_scatter_to(uint32_t n_ranks, const uint32_t *to, unsigned per, size_t n,
                              kvcl_scatter_t *scatter) KVCL_MUST_CHECK;
void          kvcl_scatter_free(kvcl_scatter_t *scatter);

/** Make asks for the items of deal that rank homes, in pieces; each takes its keys from keys[] (stride as above) and,
 * where kind has records, its locations too. Links them into list, unposted. */
kvcl_status_t kvcl_rpcs_make(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *keys, size_t stride,
                             const kvcl_scatter_t *scatter, kvcl_list_t *list) KVCL_MUST_CHECK;

#endif
