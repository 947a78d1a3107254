/*
 * The inside of a context, and the rooms that keep their state in it.
 *
 * A room (KVCL_ROOM_MAP) has one kvcl_room_t: the init and fini of its state in a context, its message handlers, its
 * share of polling, and its reaction to the failure of a peer.
 */
#ifndef KVCL_CORE_CONTEXT_H
#define KVCL_CORE_CONTEXT_H

#include "boot/boot.h"
#include "conf/conf.h"
#include "core/engine.h"
#include "core/peer.h"
#include "slots/rank_slots.h"
#include "wire/address.h"
#include "topo/net_parse.h"
#include "wire/wire.h"
#include <kvcl/kvcl_query.h>

/* X(NAME, room): each has a kvcl_room_<room>. In the order of their init; fini runs in reverse. */
#define KVCL_ROOM_MAP(X)                                                                                               \
    X(COMM, comm)                                                                                                      \
    X(MEM, mem)                                                                                                        \
    X(LANE, lane)                                                                                                      \
    X(GATE, gate)                                                                                                      \
    X(XFER, xfer)                                                                                                      \
    X(SERVE, serve)                                                                                                    \
    X(NOTIFY, notify)                                                                                                  \
    X(P2P, p2p)                                                                                                        \
    X(COLL, coll)                                                                                                      \
    X(DEVCOLL, devcoll)                                                                                                \
    X(DOOR, door)                                                                                                      \
    X(MEMBER, member)                                                                                                  \
    X(STORE, store)                                                                                                    \
    X(METRICS, metrics)

#define KVCL_ROOM_ENUM(_name, _room) KVCL_ROOM_##_name,
enum { KVCL_ROOM_MAP(KVCL_ROOM_ENUM) KVCL_ROOMS };
#undef KVCL_ROOM_ENUM

/* Engine lock held. hdr has at least sizeof(kvcl_msg_t) bytes, all of hdr_len are readable and aligned to 8; the
 * content beyond is hostile. Both buffers live during the call only. */
typedef void (*kvcl_msg_fn_t)(struct kvcl_context *ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                              const void *data, size_t len);

typedef struct kvcl_msg_handler {
    uint8_t       type;
    uint16_t      min_hdr; /* shorter headers are dropped as malformed */
    kvcl_msg_fn_t fn;
} kvcl_msg_handler_t;

struct kvcl_view;    /* view/view.h */
struct kvcl_rankset; /* view/rankset.h */

typedef struct kvcl_room {
    const char               *name;
    const kvcl_msg_handler_t *handlers; /* ends with type 0; NULL: none */
    kvcl_status_t (*init)(struct kvcl_context *ctx, void **state_p); /* no lock held */
    kvcl_status_t (*start)(struct kvcl_context *ctx, void *state);   /* optional; the same; the engine runs */
    void          (*fini)(struct kvcl_context *ctx, void *state);    /* no lock held, engine stopped */
    /* Optional. Lock held; must not block. Returns how much moved. */
    unsigned      (*poll)(struct kvcl_context *ctx, void *state);
    /* Optional. Lock held. Is there work for poll() that no descriptor reports? Cheap. */
    bool          (*outstanding)(struct kvcl_context *ctx, void *state);
    /* Optional. Lock held; may drop and retake it to copy bytes. Returns whether it did anything. */
    bool          (*work)(struct kvcl_context *ctx, void *state);
    /* Optional. Lock held. */
    void          (*peer_failed)(struct kvcl_context *ctx, void *state, kvcl_peer_t *peer);
    /* Optional. Lock held. The link to the peer was lost, and the peer is reached again in the next session: what ran
     * with it is over on both sides, and the endpoint is about to be closed. Requests that watch it have ended or have
     * begun again. */
    void          (*peer_reset)(struct kvcl_context *ctx, void *state, kvcl_peer_t *peer);
    /* Optional. Lock held. The endpoint is about to be closed: release everything opened on it. */
    void          (*peer_closing)(struct kvcl_context *ctx, void *state, kvcl_peer_t *peer);
    /* Optional. Lock held. This rank has a new view, and its communicators have the peers of those who have joined by
     * it, which are in joined. The peers of those who have failed have failed. */
    void          (*view)(struct kvcl_context *ctx, void *state, const struct kvcl_view *view,
                          const struct kvcl_rankset *joined);
    /* Optional. No lock held; blocks until the deadline at most. This rank is about to leave: others get what only it
     * has. Not KVCL_OK: it stays, and kvcl_leave() fails with that. */
    kvcl_status_t (*leave)(struct kvcl_context *ctx, void *state, uint64_t deadline_ns);
    /* Optional. Lock held. The communicator is being freed: release its state. */
    void          (*comm_freed)(struct kvcl_context *ctx, void *state, struct kvcl_comm *comm);
} kvcl_room_t;

#define KVCL_ROOM_EXTERN(_name, _room) extern const kvcl_room_t kvcl_room_##_room;
KVCL_ROOM_MAP(KVCL_ROOM_EXTERN)
#undef KVCL_ROOM_EXTERN

extern const kvcl_room_t *const kvcl_rooms[KVCL_ROOMS]; /* rooms.c */

/* The room that uses the transports' streams; lock held in its callbacks. */
typedef struct kvcl_stream_user {
    void (*opened)(kvcl_xport_ep_t *ep, kvcl_xport_stream_t *stream); /* by the peer; may close it */
    void (*event)(kvcl_xport_stream_t *stream);
} kvcl_stream_user_t;

struct kvcl_context {
    kvcl_config_t         config;
    kvcl_setting_source_t sources[KVCL_CONFIG_ROWS];
    kvcl_boot_t           *boot;
    pthread_mutex_t       boot_lock;  /* boot calls; taken before, never inside, the engine lock */
    uint8_t               uuid[16];   /* this context's incarnation, random */
    const uint8_t         *secret;    /* the job's, 32 bytes: the boot's copy, the only one; NULL before the exchange */
    uint8_t               cookie[32]; /* local: makes the handshake's first half stateless */
    uint8_t               *address;   /* packed, see address.h */
    size_t                address_len;
    kvcl_net_t            net;        /* what KVCL_NET names, where KVCL_PATH may use it */
    kvcl_engine_t         engine;
    kvcl_peers_t          peers;
    kvcl_msg_handler_t    handlers[KVCL_MSG_LAST + 1];
    void                  *rooms[KVCL_ROOMS];
    unsigned              n_rooms;    /* initialized */
    kvcl_rank_slots_t     slots;      /* the ranks of the world */
    kvcl_comm_h           world;
    kvcl_list_t           comms;      /* all of them, the world too */
    _Atomic bool          warned_served; /* logged: memory that cannot be registered is served */
    const kvcl_stream_user_t *streams; /* NULL: streams that peers open are closed */
    /* member/revoke.c: lock held; NULL: no communicator can be. */
    bool                  (*is_revoked)(struct kvcl_context *ctx, uint64_t comm);
    bool                  revoked_late; /* a request of a revoked one was begun */
    bool                  closing;    /* peers are closed: messages that arrive are dropped */
    kvcl_map_t            comm_ids;   /* hash of a list of ranks -> number of communicators made over it */
    kvcl_context_stats_t  stats;      /* under the engine lock, but bytes copied inside posts: atomic adds */
    _Atomic uint64_t      instant_ops; /* operations that ended inside their posts */
    _Atomic uint64_t      bytes_in;
    _Atomic uint64_t      bytes_out;
    kvcl_latency_table_t  latency;
};

/* The transport frames that served transfers use, settings applied. */
size_t kvcl_context_frame(struct kvcl_context *ctx, const kvcl_peer_t *peer);

static inline uint64_t kvcl_timeout(const struct kvcl_context *ctx, uint64_t timeout_ns)
{
    return (timeout_ns != 0) ? timeout_ns : ctx->config.timeout_ns;
}

/* context_xports.c: no lock held, in kvcl_init only. The secret is known from boot's exchange on. */
kvcl_status_t kvcl_xports_open(struct kvcl_context *ctx) KVCL_MUST_CHECK;
kvcl_status_t kvcl_xports_secure(struct kvcl_context *ctx) KVCL_MUST_CHECK;

/* am.c: the transports' receive callback. */
void kvcl_am_recv(void *ctx, const void *hdr, size_t hdr_len, const void *data, size_t len,
                  kvcl_xport_reply_t *reply);
/** A malformed message: counted, and logged at powers of two. */
void kvcl_am_malformed(struct kvcl_context *ctx, kvcl_peer_t *peer, const char *what);

#endif
