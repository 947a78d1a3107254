/*
 * Peers: other contexts, known by their uuid (a new incarnation is a new peer), and the sessions with them.
 *
 * Handshake, initiator A, target B, all fields little-endian, MAC = HMAC-SHA256 under the key of the pair, which comes
 * from the job's secret and both uuids:
 *   A -> B HELLO      nonce_a (it rises with each handshake of A), uuid_a, uuid_b
 *   B -> A CHALLENGE  nonce_b, MAC("B", ...): B knows the secret. nonce_b is a MAC under B's own cookie key of what A
 *                     sent and the half-minute, so that B keeps nothing yet
 *   A -> B PROOF      MAC("A", ..., A's address, A's index for B): only now does B make a peer. A PROOF that is not
 *                     newer than A's last one is a recording, and is dropped
 *   B -> A WELCOME    B's index for A, MAC
 * Both then know two session tokens, MAC("A>B") and MAC("B>A") of the nonces, which every later message carries; a
 * message whose token is not that of the peer index it names is dropped and counted (stats.strangers).
 * If both sides begin at once, both handshakes succeed: a peer accepts the tokens of its last two.
 *
 * States: NEW -> CONNECTING -> READY -> FAILED. A FAILED peer stays so. Where a transport says that an endpoint that
 * fails is a lost link, a READY peer is CONNECTING again: the next session (link/link.c). PROOF and WELCOME carry its
 * number. A PROOF whose session is higher than that of a READY peer ends all operations of the lower session; a PROOF
 * of a lower session is dropped; a PROOF of the same session is from a side that began at the same time. A peer that is
 * not READY accepts any session, and both sides go on with the higher number. All under the engine lock.
 */
#ifndef KVCL_CORE_PEER_H
#define KVCL_CORE_PEER_H

#include "base/error.h"
#include "base/latency.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/address.h"
#include "wire/wire.h"
#include "core/xport.h"

struct kvcl_context;
struct kvcl_request;
struct kvcl_bundle;

enum { KVCL_RDMA_PAIRS = KVCL_RDMA_PORTS * KVCL_RDMA_PORTS };

typedef enum { KVCL_PEER_NEW, KVCL_PEER_CONNECTING, KVCL_PEER_READY, KVCL_PEER_FAILED } kvcl_peer_state_t;

/* peer_pairs.c: an endpoint that is neither settled nor in use, and the nonce of the last HELLO that it carried. */
typedef struct kvcl_kept_ep {
    kvcl_xport_ep_t *ep;
    uint8_t         nonce[16];
} kvcl_kept_ep_t;

typedef struct kvcl_peer {
    struct kvcl_context    *ctx;
    kvcl_peer_state_t      state;
    kvcl_status_t          why;               /* FAILED: the status */
    kvcl_sentence_t        why_unreachable;   /* why no endpoint was made, and what to do; zeroed: one was */
    uint32_t               index;             /* in ctx->peers */
    uint32_t               remote_index;
    uint64_t               out_token;
    uint64_t               in_tokens[2];
    uint8_t                uuid[16];
    uint8_t                nonce[16];         /* of the handshake that this rank began */
    uint32_t               session;           /* rises with each try to make the link again */
    bool                   met;               /* was READY: remote_index is known */
    uint64_t               next_token;        /* CONNECTING: out_token once the peer has accepted the PROOF; 0: none */
    struct kvcl_relink     *relink;           /* link/link.c: the link was lost; NULL: it was not */
    uint64_t               sessions_ns;       /* link/link.c: bounds how often a session begins */
    kvcl_list_t            ended_link;        /* FAILED: in ctx->peers.ended until its endpoints are closed */
    uint64_t               ended_ns;          /* FAILED: since when */
    uint64_t               proven;            /* kvcl_hs_nonce_order() of the last accepted PROOF; 0: none */
    uint8_t                *address;          /* packed; NULL until known */
    size_t                 address_len;
    unsigned               suspicions;        /* stores, and the views, that suspect it to be silent */
    uint64_t               messages;          /* that came of it */
    bool                   left;              /* FAILED: it has sent BYE */
    bool                   parting;           /* was sent BYE, and has not replied yet */
    bool                   unmappable;        /* logged: /proc does not permit to map its memory */
    int8_t                 maps;              /* are its caches mapped here: 1, 0, or -1 not known yet */
    kvcl_xport_ep_t        *ep;
    const kvcl_xport_ops_t *ops;              /* ep's transport */
    unsigned               part;              /* of the peer's address, to which ep leads */
    unsigned               pairs_tried;       /* peer_pairs.c: how many pairs, at first contact */
    unsigned               spent;             /* peer_pairs.c: pairs of RDMA that were used, as bits */
    unsigned               round_tried;       /* peer_pairs.c: after a loss, the pairs of this round, as bits */
    kvcl_kept_ep_t         kept[KVCL_RDMA_PAIRS]; /* peer_pairs.c: beside ep */
    kvcl_xport_attr_t      attr;
    kvcl_list_t            waiters;           /* kvcl_peer_waiter_t */
    kvcl_list_t            reqs;              /* kvcl_req_watch */
    kvcl_map_t             rcaches;           /* cache/rcache.c: by hash of name or id */
    kvcl_list_t            stale_rcaches;
    struct kvcl_rcache     *_Atomic direct;   /* its cache mapped last, for gets without the lock; NULL: none */
    struct kvcl_lane       *lane_in;          /* lane/lane.h: by which this rank pulls from it; NULL: none */
    struct kvcl_lane       *lane_out;         /* by which it pulls from this rank */
    uint64_t               lane_retry_ns;     /* no lane is opened before this time */
    struct kvcl_bundle     *bundle;           /* bundle.h: messages that wait to be sent; NULL: none yet */
    struct kvcl_peer       *next_bundled;
    bool                   unsent;            /* the transport refused a message: the peer fails soon (bundle.h) */
    bool                   is_bundled;        /* in the context's list of those with a bundle that waits */
    unsigned               answers_due;       /* queries that it answers at once, still unanswered */
    struct kvcl_serve_peer *serves;           /* serve/serve_peer.h: what it makes this rank serve; NULL: nothing yet */
    size_t                 arrived_bytes;     /* p2p/p2p_match.c: of its sends that no recv has matched */
    char                   name[32];          /* for logs */
    size_t                 taking_bytes;      /* xfer/put_take.c: of its puts that this rank pulls */
    size_t                 notice_bytes;      /* notify/inbox.c: of its notifications that were not taken */
    struct kvcl_older      *older;            /* link/heal.c: its addresses before that, which stay valid */
    bool                   anew;              /* link/heal.c: it is reached again over the same part of its address */
} kvcl_peer_t;

typedef struct kvcl_peers {
    kvcl_peer_t        **v;
    uint32_t           count, capacity;
    kvcl_map_t         by_uuid;
    kvcl_list_t        ended;     /* failed peers whose endpoints are still open, in the order of their failures */
    kvcl_peer_t        *bundled;  /* list of the peers with messages that wait */
    bool               bundling;  /* posted messages wait */
    struct kvcl_bundle *spares;
    unsigned           n_spares;
    uint64_t           n_bundles; /* sent */
    uint64_t           lost_links; /* links that were lost, and pairs of ports over which a peer did not answer */
    bool               bye;        /* said to all: the context is being closed, and peers drop what it sends */
} kvcl_peers_t;

/* link/link.c: lost links. Lock held. */
typedef struct kvcl_link_ops {
    /* The endpoint has failed, or a message could not be sent. False: it is not a lost link. */
    bool          (*lost)(kvcl_peer_t *peer);
    void          (*over)(kvcl_peer_t *peer); /* the peer is ready, or has failed */
    void          (*answered)(kvcl_peer_t *peer); /* a CHALLENGE arrived: no other pair is tried soon */
    /* May a PROOF of this session be accepted now? */
    bool          (*session_may)(kvcl_peer_t *peer, uint32_t session);
    /* An accepted PROOF: its session, the sender's address, and kvcl_peer_make_ep_back(). */
    kvcl_status_t (*take_session)(kvcl_peer_t *peer, kvcl_xport_t *xport, unsigned part, uint32_t session,
                                  const void *address, size_t len);
    /* heal.c: is a transport deaf (xport.h)? Takes messages first. */
    bool          (*is_deaf)(struct kvcl_context *ctx);
    /* Those that are deaf get another queue, and their peers are reached again. @return whether one did. */
    bool          (*heal)(struct kvcl_context *ctx);
    /* A peer that is searched may have this address by now, as another one says: it is tried. */
    void          (*try_at)(kvcl_peer_t *peer, const void *address, size_t len);
    void          (*forget)(kvcl_peer_t *peer); /* older addresses */
} kvcl_link_ops_t;

extern const kvcl_link_ops_t *const kvcl_links; /* rooms.c */

/* Called once, lock held, when the peer is ready or has failed. */
typedef struct kvcl_peer_waiter kvcl_peer_waiter_t;
struct kvcl_peer_waiter {
    kvcl_list_t link;
    void        (*fn)(kvcl_peer_waiter_t *waiter, kvcl_status_t status);
};

/** Lock held. The peer of a packed address, made if new. KVCL_ERR_PROTOCOL, KVCL_ERR_VERSION, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_peer_by_address(struct kvcl_context *ctx, const void *address, size_t len, kvcl_peer_t **peer_p)
    KVCL_MUST_CHECK;

/** Lock held. Why no transport leads to it, and which setting to change: "that rank ...". Owned by the peer, for every
 * thread that meets its KVCL_ERR_UNREACHABLE. NULL: a transport does, or none was needed yet. */
const char *kvcl_peer_why_unreachable(kvcl_peer_t *peer);

/** Lock held. KVCL_OK: ready now, the waiter is not used. KVCL_INPROGRESS: the waiter will be called. Else: failed. */
kvcl_status_t kvcl_peer_ready(kvcl_peer_t *peer, kvcl_peer_waiter_t *waiter) KVCL_MUST_CHECK;
/** Lock held: forget a waiter that has not been called. */
void          kvcl_peer_unwait(kvcl_peer_waiter_t *waiter);

/**
 * Lock held, peer READY. Fills msg's common fields (type, op are the caller's) and sends; as xport am_send, flags too.
 * An error fails nothing by itself.
 */
kvcl_status_t kvcl_peer_send(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                             unsigned flags, kvcl_xport_send_t *send) KVCL_MUST_CHECK;
/** The same, copying, any size up to a few MiB: the transport copies small payloads, KVCL larger ones. */
kvcl_status_t kvcl_peer_post(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len)
    KVCL_MUST_CHECK;

/** The same, small, for a query that the peer answers at once: it may wait for the answer to an earlier one. */
kvcl_status_t kvcl_peer_post_soon(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len)
    KVCL_MUST_CHECK;
/** Lock held: such a request was sent, or waits to be; its reply arrived, or no thread waits for it any more. */
void          kvcl_peer_queried(kvcl_peer_t *peer);
void          kvcl_peer_answered(kvcl_peer_t *peer);

/** How its memory is reached where it is mapped here. */
static inline kvcl_mem_path_t kvcl_mem_path_mapped(const kvcl_peer_t *peer)
{
    return (peer->ops == &kvcl_xport_loop) ? KVCL_MEM_PATH_LOOP : KVCL_MEM_PATH_MAPPED;
}

/** Lock held. The peer has failed: its waiters and requests end with status. Idempotent. */
void kvcl_peer_fail(kvcl_peer_t *peer, kvcl_status_t status);

/* Between peer.c, peer_pairs.c, link/link.c, peer_send.c, bundle.c and peer_handshake.c; lock held. */
/* Sends at once: messages that wait in the bundle are not sent before it. */
kvcl_status_t kvcl_peer_send_now(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const kvcl_iov_t *iov,
                                 size_t n_iov, unsigned flags, kvcl_xport_send_t *send) KVCL_MUST_CHECK;
kvcl_peer_t  *kvcl_peer_by_uuid(struct kvcl_context *ctx, const uint8_t uuid[16]);
/* Makes the endpoint over the next pair that was not tried yet; the peer has no endpoint. */
kvcl_status_t kvcl_peer_make_ep(kvcl_peer_t *peer) KVCL_MUST_CHECK;
/* The same for a peer whose link was lost: the pairs that are left, in turn, again and again. */
kvcl_status_t kvcl_peer_next_ep(kvcl_peer_t *peer) KVCL_MUST_CHECK;
unsigned      kvcl_peer_pairs_left(const kvcl_peer_t *peer, bool doubtful); /* doubtful: count those as well */
/* The peer has proven itself over xport, from that part of its address. Makes an endpoint if the peer has none; where
 * RDMA is one of the paths, over the same pair. stay: a present one over which the peer has answered stays. */
kvcl_status_t kvcl_peer_make_ep_back(kvcl_peer_t *peer, kvcl_xport_t *xport, unsigned part, bool stay) KVCL_MUST_CHECK;
/* KVCL_ERR_PROTOCOL: the peer cannot have proven itself over xport from that part of its address. */
kvcl_status_t kvcl_peer_check_pair(const kvcl_peer_t *peer, const kvcl_xport_t *xport, unsigned part) KVCL_MUST_CHECK;
/* Closes the peer's endpoint, or keeps it aside while it is not settled. */
void          kvcl_peer_drop_ep(kvcl_peer_t *peer);
/* Is an endpoint kept aside over which the HELLO with this nonce was sent? */
bool          kvcl_peer_is_kept(const kvcl_peer_t *peer, const uint8_t nonce[16]);
/* That endpoint, which is kept, becomes the peer's. */
kvcl_status_t kvcl_peer_take_back(kvcl_peer_t *peer, const uint8_t nonce[16]) KVCL_MUST_CHECK;
/* Closes the endpoints that are kept aside: only this one, or all (NULL). */
void          kvcl_peer_close_kept(kvcl_peer_t *peer, const kvcl_xport_ep_t *only);
/* Sends HELLO over the first pair that accepts it. */
kvcl_status_t kvcl_peer_greet(kvcl_peer_t *peer) KVCL_MUST_CHECK;
/* Sends HELLO over the peer's present endpoint. */
kvcl_status_t kvcl_peer_hello(kvcl_peer_t *peer) KVCL_MUST_CHECK;
/* Would the failure of the peer's endpoint be a lost link? */
bool          kvcl_peer_has_link(const kvcl_peer_t *peer);
/* The endpoint has failed: begin again over the next pair if the handshake is under way, or fail with status. */
void          kvcl_peer_try_next(kvcl_peer_t *peer, kvcl_status_t status);
void          kvcl_peer_set_ready(kvcl_peer_t *peer, uint32_t remote_index, uint64_t out_token);

/* am.c, transports: */
void kvcl_peer_handshake(struct kvcl_context *ctx, const kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len,
                         kvcl_xport_reply_t *reply);
kvcl_peer_t *kvcl_peer_check(struct kvcl_context *ctx, const kvcl_msg_t *msg); /* NULL: not authenticated */
void kvcl_peer_ep_failed(void *ctx, kvcl_xport_ep_t *ep, kvcl_status_t status);
void kvcl_peers_goodbye(struct kvcl_context *ctx); /* lock held: BYE to all */
bool kvcl_peers_parted(struct kvcl_context *ctx);  /* lock held: all that have not failed have answered it */
void kvcl_peer_on_bye(kvcl_peer_t *peer, const kvcl_msg_t *msg);
unsigned kvcl_peers_poll(struct kvcl_context *ctx, uint64_t now_ns); /* lock held: close endpoints of failed peers */
void kvcl_peers_close(struct kvcl_context *ctx);   /* lock held: close endpoints */
void kvcl_peers_fini(struct kvcl_context *ctx);

#endif
