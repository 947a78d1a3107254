/*
 * The transport contract. Four transports implement it: loop (loop/xport_loop.c, contexts inside one process, and the
 * reference for the others), ucx (ucx_glue/: shared memory and devices), rdma (ucx_glue/ as well: one port of an RDMA
 * device an instance), and tcp (tcp/tcp.c, messages over KVCL's own authenticated connections).
 *
 * Locks: every function is called with the engine lock of the owning context held, from any thread, and must not
 * block, except init, fini and mem_register (no lock held, may block) and where said. Callbacks (kvcl_xport_cbs_t,
 * kvcl_xport_send_t done) are called from progress() only, with that lock held; they may call back into the transport.
 *
 * A transport offers
 *   messages:   am_send to an endpoint; delivered once, or the endpoint fails; in the order of the calls, those with
 *               KVCL_XPORT_UNORDERED excepted. The core's handshake authenticates the sender, whether or not the
 *               transport does so as well.
 *   native RMA: memory that a peer registered can be mapped (rmem attr .map, within one process: plain loads, stores
 *               and memcpy reach it without the owner's processor), or got (.get) and put (.put). Never emulated: a
 *               transport that would need the owner's processor for a get sets neither, and the core requests the
 *               bytes by message. Memory that KVCL allocates is mapped by the processes of a host without a transport
 *               (mem/segment.h).
 */
#ifndef KVCL_CORE_XPORT_H
#define KVCL_CORE_XPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <kvcl/kvcl_status.h>

typedef struct kvcl_xport      kvcl_xport_t;      /* one per context and transport; implementations embed it first */
typedef struct kvcl_xport_ep   kvcl_xport_ep_t;   /* one per peer */
typedef struct kvcl_xport_mem  kvcl_xport_mem_t;  /* local memory */
typedef struct kvcl_xport_rmem kvcl_xport_rmem_t; /* memory of a peer, as one endpoint sees it */
typedef struct kvcl_xport_stream kvcl_xport_stream_t; /* a byte stream to a peer, beside its messages */
typedef struct kvcl_xport_reply kvcl_xport_reply_t; /* replies to a message's sender, during its recv callback */

typedef struct kvcl_iov {
    const void *buf;
    size_t     len;
} kvcl_iov_t;

/* One send or RMA operation in flight; embedded in the caller's object, untouched by it until done. The caller sets
 * done only; the other members are the transport's while the operation is in flight. */
typedef struct kvcl_xport_send kvcl_xport_send_t;
struct kvcl_xport_send {
    void              (*done)(kvcl_xport_send_t *send, kvcl_status_t status); /* buffers are free; get: data arrived */
    void              *priv;
    kvcl_xport_send_t *next;
    kvcl_status_t     status;
    unsigned          phase; /* ucx_glue/glue_keys.c */
};

enum {
    /* Of am_send. */
    KVCL_XPORT_REPLY     = 1, /* the receiver may answer with reply() (8 bytes and some ns more: handshakes only) */
    KVCL_XPORT_UNORDERED = 2  /* the message may overtake earlier ones, and later ones may overtake it */
};

typedef struct kvcl_xport_cbs {
    void *arg;
    /* A message. hdr (aligned to 8) and data live during the call only. reply is never NULL. */
    void (*recv)(void *arg, const void *hdr, size_t hdr_len, const void *data, size_t len, kvcl_xport_reply_t *reply);
    /* The peer failed or is unreachable; called once per endpoint, never from inside a call on it. Its sends in flight
     * complete with an error before or after. The endpoint must still be closed. */
    void (*ep_failed)(void *arg, kvcl_xport_ep_t *ep, kvcl_status_t status);
    /* Optional. A connection has ended that had not proven the job's secret. */
    void (*stranger)(void *arg);
    /* Optional. The peer of ep has opened a stream. The callee owns it, and may close it at once. */
    void (*stream)(void *arg, kvcl_xport_ep_t *ep, kvcl_xport_stream_t *stream);
    /* Optional. The state of a stream has changed: open, readable, writable, ended. */
    void (*stream_event)(void *arg, kvcl_xport_stream_t *stream);
} kvcl_xport_cbs_t;

/* What the user must do where the system does not lock memory (RLIMIT_MEMLOCK): the last part of an error sentence. */
#define KVCL_RAISE_MEMLOCK "raise the limit of locked memory (ulimit -l; in a container --cap-add IPC_LOCK)"

typedef struct kvcl_xport_params {
    kvcl_xport_cbs_t cbs;
    const char       *path;      /* "auto", "shm", "tcp" ("loop" uses no ucx): which transports may be used */
    const char       *net;       /* interfaces to listen on, comma separated; NULL: listen nowhere */
    const char       *wire;      /* tcp: "auto", "plain", "aead" */
    bool             beside_tcp; /* ucx: other transports carry the messages of peers that it does not reach */
    const char       *port;      /* rdma: the port, "mlx5_0:1" */
    int              gid;        /* rdma: the index of its GID; -1: InfiniBand */
    bool             gpudirect;  /* rdma: this host's ports may reach the memory of its GPUs */
    uint64_t         keepalive_ns; /* how soon a silent death is noticed, where the transport can */
} kvcl_xport_params_t;

typedef struct kvcl_xport_attr {
    const char *name;          /* "ucx", "rdma", "tcp", "loop" */
    size_t     frame_bytes;    /* largest frame_bytes that an endpoint may have */
    size_t     inline_bytes;   /* largest payload of a copying am_send (send == NULL) */
    size_t     max_hdr;        /* largest header, at least 256 */
} kvcl_xport_attr_t;

typedef struct kvcl_xport_rmem_attr {
    void       *map;     /* the region's first byte, mapped here; NULL: cannot be mapped */
    bool       get;      /* get works natively */
    bool       put;      /* put and flush work natively, and never reach memory whose owner unregistered it */
    const char *native;  /* get or put: the mechanism, "rdma", "cma" or "loop" */
    const char *why;     /* neither map, get nor put: the reason, a static text; NULL: messages only */
    const char *why_put; /* get, and not put: the reason, a static text */
} kvcl_xport_rmem_attr_t;

typedef struct kvcl_xport_ops {
    size_t     size;   /* sizeof(*this) as the transport was built */
    const char *name;
    bool       messages_only; /* no peer maps, gets or puts: memory is registered with the other transports only */
    bool       links;  /* an endpoint that fails is a lost link: another endpoint may reach the peer */
    /* No lock held; may block. On failure nothing is left allocated. */
    kvcl_status_t (*init)(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p);
    /* No lock held, no other call under way; all endpoints and memory are closed. */
    void          (*fini)(kvcl_xport_t *xport);
    void          (*query)(kvcl_xport_t *xport, kvcl_xport_attr_t *attr);
    /* The local address, opaque bytes for a peer's ep_create. Valid until fini or renew. At most 4 KiB. */
    void          (*address)(kvcl_xport_t *xport, const void **buf_p, size_t *len_p);
    /* Optional. No lock held, once, before the first endpoint: the job's secret, 32 bytes that stay until fini. The
     * transport accepts connections from now on. */
    kvcl_status_t (*secure)(kvcl_xport_t *xport, const uint8_t *secret);

    /* Hostile bytes are refused with KVCL_ERR_PROTOCOL. KVCL_ERR_UNREACHABLE if no transport leads there. */
    kvcl_status_t (*ep_create)(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p);
    /* Send BYE first: tcp notifies the peer, shared memory only when a process ends. Sends in flight complete
     * (canceled) before return or from later progress() calls; the transport owns ep from now on. Remote regions may
     * still be open: their .map stays valid, and rmem_close is still required. */
    void          (*ep_close)(kvcl_xport_ep_t *ep);
    /* One short text, such as "posix", "tcp/lo aead", "loop". */
    void          (*ep_describe)(kvcl_xport_ep_t *ep, char *buf, size_t cap);

    /* Send header and the concatenated iov (the array itself is free on return). send == NULL: everything is copied
     * before return (payload at most inline_bytes); returns KVCL_OK or an error. Else: KVCL_OK, finished, send is not
     * touched again and done is not called; KVCL_INPROGRESS, hdr and buffers stay untouched until done; or an error,
     * done is not called. */
    kvcl_status_t (*am_send)(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                             unsigned flags, kvcl_xport_send_t *send);
    /* Reply to a message's sender without an endpoint to it: copying, small. Only during its recv callback;
     * KVCL_ERR_UNSUPPORTED if the message was sent without KVCL_XPORT_REPLY. */
    kvcl_status_t (*reply)(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len);

    /* Optional. Open a byte stream to the peer, as authentic and as confidential as the messages, beside them and in no
     * order with them. It is not open yet. It ends without a failure of the endpoint; it must be closed before that. */
    kvcl_status_t (*stream_open)(kvcl_xport_ep_t *ep, kvcl_xport_stream_t **stream_p);
    /* Once open. The first bytes of the pieces; their memory is free on return. Returns how many; 0: none now, and no
     * longer writable (readable); -1: the stream has failed, or the peer has closed it (errno 0). */
    ssize_t       (*stream_send)(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n);
    ssize_t       (*stream_recv)(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n);
    void          (*stream_close)(kvcl_xport_stream_t *stream);

    /* Memory of this process that peers may reach. Called without the lock, from any thread, several at once; may
     * block. Of a transport with links, an error means that only messages reach the memory. */
    kvcl_status_t (*mem_register)(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
    /* All kinds. When it returns, no peer gets or puts the memory, unless mem_fence returns an error. It may overlap
     * other registered memory; then that holds when all have been freed. */
    void          (*mem_free)(kvcl_xport_mem_t *mem);
    /* Optional; absent where mem_free suffices. KVCL_OK: no peer gets or puts memory that was freed before. On error
     * peers may; it can be called again. Quick where nothing has failed. */
    kvcl_status_t (*mem_fence)(kvcl_xport_t *xport);
    /* Optional. Device memory: the processor never accesses it; a peer's .map of it is an address for its driver. On
     * error, or if absent, only messages reach it. As mem_register otherwise. */
    kvcl_status_t (*mem_register_device)(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
    /* The bytes that a peer's rmem_open needs; at most 512. *len_p in: room, out: bytes (0: only messages reach it). */
    kvcl_status_t (*mem_pack)(kvcl_xport_mem_t *mem, void *buf, size_t *len_p);

    /* addr is the region's address at its owner, size its length. KVCL_ERR_PROTOCOL for hostile bytes. */
    kvcl_status_t (*rmem_open)(kvcl_xport_ep_t *ep, const void *packed, size_t len, uint64_t addr, uint64_t size,
                               kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr);
    void          (*rmem_close)(kvcl_xport_rmem_t *rmem);
    /* Where attr.get, attr.put: one run. Same return rules as am_send. A put is visible at the owner after a later
     * flush. If the owner has unregistered the memory, all gets and puts in flight on the endpoint may fail with this
     * one. That is no failure of the peer: ep_failed is not called, and later ones use a new connection. */
    kvcl_status_t (*get)(kvcl_xport_rmem_t *rmem, uint64_t offset, void *buf, size_t len, kvcl_xport_send_t *send);
    kvcl_status_t (*put)(kvcl_xport_rmem_t *rmem, uint64_t offset, const void *buf, size_t len,
                         kvcl_xport_send_t *send);
    kvcl_status_t (*flush)(kvcl_xport_rmem_t *rmem, kvcl_xport_send_t *send);
    /* Optional; absent where gets and puts end without the peer. Ends all gets, puts and flushes in flight on ep: each
     * completes from a later progress(), and once it has completed, it moves no byte. Later ones use a new
     * connection. */
    void          (*rma_end)(kvcl_xport_ep_t *ep);

    /* Optional. Are there sends or RMA that only progress() can finish? Cheap: called after every post. */
    bool          (*outstanding)(kvcl_xport_t *xport);
    /* Advance all operations. Returns the number of events (0: idle). */
    unsigned      (*progress)(kvcl_xport_t *xport);
    /* Descriptor that polls readable while there is work, once arm() returned KVCL_OK; -1 if none is needed. arm
     * returns KVCL_ERR_BUSY if there is work that the descriptor does not show: progress and try again. */
    int           (*event_fd)(kvcl_xport_t *xport);
    kvcl_status_t (*arm)(kvcl_xport_t *xport);
    /* Optional. Are there closed endpoints whose sends progress() has not ended yet? */
    bool          (*closing)(kvcl_xport_t *xport);
    const struct kvcl_near_ops *near; /* optional: near/near_ops.h */
    /* Optional. Does a message that is not complete keep this instance from reading those behind it? True for a moment
     * now and then: ask several times, each after a progress() without events. */
    bool          (*is_deaf)(kvcl_xport_t *xport);
    /* With is_deaf. Another queue is opened, in some ms: address() differs, and what is sent to the old one is lost.
     * Endpoints made before are to be closed. KVCL_ERR_UNSUPPORTED: not here, or too often. */
    kvcl_status_t (*renew)(kvcl_xport_t *xport);
} kvcl_xport_ops_t;

struct kvcl_xport {
    const kvcl_xport_ops_t *ops;
    unsigned               part; /* in addresses and descriptions of memory, KVCL_ADDRESS_*; the core sets it */
};
struct kvcl_xport_ep {
    kvcl_xport_t *xport;
    void         *arg;        /* the core's peer; set by the core after ep_create */
    size_t       frame_bytes; /* payload that is best in one message on this path; larger ones may be, and are slower */
    bool         lost;        /* its failure is a lost link, even where the transport has no links (a test's) */
    bool         settled;     /* the core's: the peer has answered over it, or it has failed (core/peer_pairs.c) */
    bool         sockets;     /* messages go through the kernel's sockets: a TCP connection beside it is as good */
};
struct kvcl_xport_mem {
    kvcl_xport_t *xport;
};
struct kvcl_xport_rmem {
    kvcl_xport_ep_t *ep;
};
struct kvcl_xport_stream {
    kvcl_xport_t *xport;    /* implementations embed it first, as the others */
    void         *arg;      /* the user's */
    bool         open;      /* the peer has been proven */
    bool         readable;  /* bytes may wait */
    bool         writable;  /* it may take bytes */
    bool         ended;     /* nothing can be sent any more; received bytes may still wait */
};
struct kvcl_xport_reply {
    kvcl_xport_t *xport; /* implementations embed it first, as the others */
};

static inline kvcl_status_t kvcl_xport_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len)
{
    return reply->xport->ops->reply(reply, hdr, hdr_len);
}

extern const kvcl_xport_ops_t kvcl_xport_ucx;  /* ucx_glue/glue.c */
extern const kvcl_xport_ops_t kvcl_xport_rdma; /* the same functions. KVCL_ERR_UNSUPPORTED of init: not by this UCX */
/** "1.13.1", of the UCX library that is loaded. */
void kvcl_ucx_version(char *buf, size_t cap);

extern const kvcl_xport_ops_t kvcl_xport_loop; /* loop/xport_loop.c */
extern const kvcl_xport_ops_t kvcl_xport_tcp;  /* tcp/tcp.c */

#endif
