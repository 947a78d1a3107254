/*
 * The inside of the tcp transport; included by src/tcp and its tests only. Messages between ranks over authenticated
 * streams (sock/sock_stream.h): nothing that arrives is delivered before its sender has proven the job's secret.
 *
 * An instance has an id, 16 random bytes in its address. Connections are proven to be between two ids; an endpoint
 * leads to one id. An endpoint takes over an accepted connection of its id, or connects. If both sides connect at once,
 * the one with the lower id keeps the other's handshake waiting until its own has ended, and the other takes over the
 * connection that it accepts. Where that misses, each sends by its own connection and receives by both. A reply goes by
 * the same connection as the endpoint's messages.
 *
 * Files: tcp.c (the vtable, progress), tcp_open.c (open and close), tcp_addr.c (addresses, pure), tcp_conn.c
 * (connections begin and end), tcp_serve.c (they are opened and served), tcp_door.c (listeners and strangers), tcp_ep.c
 * (endpoints), tcp_send.c, tcp_queue.c, tcp_recv.c, tcp_self.c (messages to this instance), tcp_stream.c (streams
 * beside the messages), tcp_mem.c.
 * Locks: none of its own. The engine lock of the owning context serializes everything (see xport.h).
 */
#ifndef KVCL_TCP_TCP_H
#define KVCL_TCP_TCP_H

#include "base/list.h"
#include "base/map.h"
#include "base/mpool.h"
#include "core/xport.h"
#include "sock/sock_listen.h"
#include "sock/sock_stream.h"

enum {
    TCP_MAX_HDR      = 1024,
    TCP_INLINE_BYTES = 8192,
    TCP_FRAME_BYTES  = 124 << 10, /* fits two records; the receiver copies one frame while the next arrives */
    TCP_MSG_MAX      = 80 << 20,  /* payload: KVCL_FRAME and the other settings allow messages of up to 64 MiB */
    TCP_SCRATCH      = 512 << 10, /* bytes read at once */
    TCP_QUEUE_MAX    = 64 << 20,  /* memory of the copied messages that wait for one connection of an endpoint */
    TCP_REPLIES_MAX  = 64 << 10,  /* the same of a connection without an endpoint */
    TCP_SELF_MAX     = 256 << 20, /* memory of the messages to this instance itself */
    TCP_STRANGERS    = 64,        /* accepted connections that have not proven the secret */
    TCP_UNUSED       = 256,       /* proven connections that no endpoint uses */
    TCP_UNUSED_MSG   = 16 << 10,  /* payload of their messages: the core's handshake, which leads to an endpoint */
    TCP_ACCEPTS      = 8,         /* of one listener in one pass */
    TCP_HOT          = 2,
    TCP_HOT_READS    = 256,       /* without a byte, after which a connection is hot no longer */
    TCP_EVENTS       = 64,
    TCP_ADDRS        = KVCL_SOCK_LISTENERS,
    TCP_CONNS_OF_ID  = 8          /* accepted connections of one id, and as many streams */
};

#define TCP_SHAKE_NS    (UINT64_C(5) * 1000000000)  /* one attempt to connect, or an accepted connection's proof */
#define TCP_CONNECT_NS  (UINT64_C(30) * 1000000000) /* all attempts of an endpoint */
#define TCP_REFUSED_NS  (UINT64_C(1) * 1000000000)  /* of a peer that refuses at every address: it may connect itself */
#define TCP_PARK_NS     (UINT64_C(300) * 1000000)   /* how long an own attempt keeps the peer's waiting */
#define TCP_BACKOFF_NS  (UINT64_C(10) * 1000000)    /* after the first failed attempt; doubles */
#define TCP_BACKOFF_MAX (UINT64_C(1000) * 1000000)

/* How KVCL_WIRE restricts the connections. */
typedef enum { TCP_WIRE_AUTO, TCP_WIRE_PLAIN, TCP_WIRE_AEAD } tcp_wire_t;

/* What travels before each message; its header and its payload follow, each padded to 8 bytes. */
typedef struct tcp_frame {
    uint32_t magic;
    uint32_t seq;     /* consecutive in one direction of a connection */
    uint16_t hdr_len;
    uint16_t flags;   /* KVCL_XPORT_REPLY */
    uint32_t len;     /* payload */
} tcp_frame_t;
_Static_assert(sizeof(tcp_frame_t) == 16, "wire format");

#define TCP_FRAME_MAGIC UINT32_C(0x4d43564b)

/* An address, as tcp_addr.c packs it. */
typedef struct tcp_where {
    uint8_t  family;  /* 4 or 6 */
    uint8_t  wire;    /* kvcl_sock_wire_t: the least that its listener accepts */
    uint16_t port;
    uint8_t  addr[16];
} tcp_where_t;

typedef struct tcp_addr {
    uint8_t     id[KVCL_SOCK_ID_LEN];
    uint8_t     host[16]; /* loopback addresses are valid on this host only */
    unsigned    n;
    tcp_where_t at[TCP_ADDRS];
} tcp_addr_t;

enum { TCP_ADDR_BYTES = 44 + TCP_ADDRS * 20 };

/* What epoll's data points at. */
typedef enum { TCP_LISTENER, TCP_TIMER, TCP_CONN } tcp_kind_t;

typedef struct tcp_door {
    tcp_kind_t           kind; /* first */
    kvcl_sock_listener_t listener;
    kvcl_sock_side_t     side;    /* of the connections that it accepts, without random bytes */
    bool                 knocked; /* connections may wait */
} tcp_door_t;

/* A message, or the rest of one, that waits to be sent. */
typedef struct tcp_out {
    struct tcp_out    *next;
    kvcl_xport_send_t *send;   /* NULL: the bytes are a copy */
    size_t            copied;  /* memory of the copy; 0: the object is of tcp.gather */
    struct iovec      *iov;    /* fixed, or malloc'ed */
    unsigned          at, n;
    tcp_frame_t       frame;
    struct iovec      fixed[8];
    char              bytes[] __attribute__((aligned(8)));
} tcp_out_t;

typedef struct tcp_ep tcp_ep_t;

typedef struct tcp_conn {
    tcp_kind_t         kind; /* first */
    struct tcp         *tcp;
    kvcl_list_t        link;       /* in tcp.strangers, .conns or .dead */
    kvcl_list_t        ready_link; /* in tcp.ready, or alone */
    kvcl_sock_stream_t stream;
    tcp_ep_t           *ep;        /* whose peer is at the other end; NULL: a stranger, or no endpoint yet */
    bool               stranger;
    bool               dead;       /* in tcp.dead */
    bool               parked;     /* a stranger that waits for this side's own attempt to connect to its id */
    bool               is_stream;  /* it carries no messages: `user` is its user's */
    bool               held;       /* the user has not closed its stream: it is not freed */
    kvcl_xport_stream_t user;
    uint64_t           deadline_ns; /* until it is open, and until an endpoint uses it */
    uint32_t           seq_out, seq_in;
    unsigned           vain;       /* reads without an event since a message passed */
    tcp_out_t          *queue;
    tcp_out_t          **queue_end;
    bool               waits;      /* counted in tcp.waiting */
    bool               wide;       /* watched for room to send as well; counted in tcp.wide */
    size_t             queued;     /* memory of the copies in the queue */
    uint8_t            *in;        /* the beginning of a message that has not arrived whole */
    size_t             in_len, in_cap, in_need; /* in_need: its frame, 0 if not known yet */
} tcp_conn_t;

struct tcp_ep {
    kvcl_xport_ep_t super;
    kvcl_list_t     link;         /* in tcp.eps */
    kvcl_list_t     failed_link;  /* in tcp.failed, or alone */
    tcp_addr_t      addr;
    unsigned        at;           /* the next address to try */
    unsigned        stream_at;    /* of the address for the next stream */
    unsigned        refusals;     /* addresses of this round to which no connection could be made */
    tcp_conn_t      *out;         /* by which it sends; NULL: broken, or self */
    bool            self;         /* it leads to this instance */
    tcp_ep_t        *alike;       /* the next one in tcp.by_id, NULL: none */
    uint64_t        deadline_ns;  /* of all attempts to connect */
    uint64_t        refused_ns;   /* the first time that each address refused; 0: never */
    uint64_t        retry_ns;     /* the next attempt; 0: one is under way, or open */
    uint64_t        backoff_ns;
    bool            broken;
    kvcl_status_t   why;
};

typedef struct tcp {
    kvcl_xport_t       super;
    kvcl_xport_cbs_t   cbs;
    kvcl_sock_side_t   side;      /* secret: NULL until secure() */
    kvcl_sock_tuning_t tuning;
    tcp_wire_t         wire;
    tcp_addr_t         own;
    kvcl_net_addr_t    nets[TCP_ADDRS];
    uint8_t            packed[TCP_ADDR_BYTES];
    size_t             packed_len;
    char               text[64];  /* for ep_describe */
    kvcl_map_t         by_id;     /* the first of the endpoints whose ids begin with the same 8 bytes */
    int                epfd;
    int                timer_fd;
    tcp_kind_t         timer_kind;
    bool               timer_due;
    uint64_t           timer_ns;  /* when the timer is set to expire; 0: not set */
    bool               full;      /* the last accept found no descriptor */
    bool               inside;    /* progress() runs */
    bool               armed;     /* since the last progress() */
    uint64_t           looked;    /* when the epoll was read last, in ticks */
    tcp_door_t         doors[KVCL_SOCK_LISTENERS];
    unsigned           n_doors;
    kvcl_list_t        strangers; /* tcp_conn_t, oldest first */
    unsigned           n_strangers;
    kvcl_list_t        conns;     /* tcp_conn_t that are proven, or that an endpoint has begun */
    kvcl_list_t        dead;      /* tcp_conn_t, freed when progress() ends */
    kvcl_list_t        ready;     /* tcp_conn_t with work */
    kvcl_list_t        eps;
    kvcl_list_t        failed;    /* tcp_ep_t whose failure is to be reported */
    tcp_conn_t         *hot[TCP_HOT]; /* read without waiting for an event: messages passed lately */
    kvcl_list_t        selves;    /* messages to this instance itself */
    size_t             self_bytes;
    unsigned           waiting;   /* connections with a queue or an unsent record */
    unsigned           wide;      /* connections that are watched for room to send */
    kvcl_xport_send_t  *done_head;
    kvcl_xport_send_t  **done_tail;
    kvcl_mpool_t       gather;    /* tcp_out_t of sends that are not copied */
    uint8_t            *scratch;  /* TCP_SCRATCH */
} tcp_t;

static inline tcp_t *tcp_of(kvcl_xport_t *xport)
{
    return kvcl_container_of(xport, tcp_t, super);
}

/* tcp_addr.c, pure */
size_t        kvcl_tcp_addr_pack(const tcp_addr_t *addr, uint8_t buf[TCP_ADDR_BYTES]);
kvcl_status_t kvcl_tcp_addr_unpack(const void *buf, size_t len, tcp_addr_t *addr) KVCL_MUST_CHECK;
/* Drop the addresses that lead elsewhere from this host, and put the nearest first. */
void          kvcl_tcp_addr_sort(tcp_addr_t *addr, const tcp_addr_t *own, const kvcl_net_addr_t *nets, unsigned n_nets);

/* tcp_door.c */
kvcl_status_t kvcl_tcp_doors_open(tcp_t *tcp, const char *net) KVCL_MUST_CHECK;
kvcl_status_t kvcl_tcp_doors_watch(tcp_t *tcp) KVCL_MUST_CHECK; /* begin to accept */
void          kvcl_tcp_doors_close(tcp_t *tcp);
unsigned      kvcl_tcp_doors_accept(tcp_t *tcp);
void          kvcl_tcp_strangers_expire(tcp_t *tcp, uint64_t now, uint64_t *next_p);
/* A stranger has proven the secret, and no endpoint leads to it yet. */
void          kvcl_tcp_unused_bound(tcp_t *tcp, tcp_conn_t *conn);
void          kvcl_tcp_unused_expire(tcp_t *tcp, uint64_t now, uint64_t *next_p);

/* tcp_stream.c: the vtable's members of these names */
kvcl_status_t kvcl_tcp_stream_open(kvcl_xport_ep_t *ep, kvcl_xport_stream_t **stream_p);
ssize_t       kvcl_tcp_stream_send(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n);
ssize_t       kvcl_tcp_stream_recv(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n);
void          kvcl_tcp_stream_close(kvcl_xport_stream_t *stream);
void          kvcl_tcp_streams_expire(tcp_t *tcp, uint64_t now, uint64_t *next_p); /* those that do not become open */

/* tcp_ep.c */
/* Begin to connect to one of the endpoint's addresses. */
kvcl_status_t kvcl_tcp_ep_try(tcp_ep_t *ep, tcp_conn_t *conn, const tcp_where_t *where,
                              kvcl_sock_purpose_t purpose) KVCL_MUST_CHECK;
kvcl_status_t kvcl_tcp_ep_create(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p);
void          kvcl_tcp_ep_close(kvcl_xport_ep_t *ep);
void          kvcl_tcp_ep_describe(kvcl_xport_ep_t *ep, char *buf, size_t cap);
/* The endpoint of an id that has not failed; NULL: none. */
tcp_ep_t      *kvcl_tcp_ep_of(const tcp_t *tcp, const uint8_t id[KVCL_SOCK_ID_LEN]);
/* The attempt to connect failed: the next one, now or later, unless the failure is final. */
void          kvcl_tcp_ep_again(tcp_ep_t *ep, kvcl_status_t status);
/* The peer has proven itself by a connection of its own: the endpoint uses it if its own attempt leads nowhere. */
void          kvcl_tcp_ep_offer(tcp_ep_t *ep, tcp_conn_t *conn);
void          kvcl_tcp_eps_retry(tcp_t *tcp, uint64_t now, uint64_t *next_p);

/* tcp_conn.c */
tcp_conn_t   *kvcl_tcp_conn_new(tcp_t *tcp);
kvcl_status_t kvcl_tcp_conn_watch(tcp_conn_t *conn) KVCL_MUST_CHECK; /* for everything */
/* Watch an OPEN connection for room to send as well, or no longer. There always is room but while it waits, so each
 * event would leave an epoll that seems to have another one, and a sleeper would have to read it first. */
void          kvcl_tcp_conn_widen(tcp_conn_t *conn, bool wide);
/* Its stream ends; sends in the queue complete with status, from progress. It is freed later. */
void          kvcl_tcp_conn_kill(tcp_conn_t *conn, kvcl_status_t status);
/* The connection has failed, and with it its endpoint, if it has one. */
void          kvcl_tcp_conn_fail(tcp_conn_t *conn, kvcl_status_t status, const char *why);
/* The endpoint has failed: its connections end, and progress reports it. */
void          kvcl_tcp_ep_fail(tcp_ep_t *ep, kvcl_status_t status);
void          kvcl_tcp_conns_bury(tcp_t *tcp);
void          kvcl_tcp_conn_ready(tcp_conn_t *conn); /* it has work: progress() serves it */
void          kvcl_tcp_conn_hot(tcp_conn_t *conn); /* a message passes */
void          kvcl_tcp_timer_at(tcp_t *tcp, uint64_t ns); /* progress() looks at deadlines at this time at the latest */

/* tcp_serve.c */
/* Everything that can be done now; returns the number of events. */
unsigned      kvcl_tcp_conn_serve(tcp_conn_t *conn);
bool          kvcl_tcp_conn_has_work(const tcp_conn_t *conn);

/* tcp_open.c */
kvcl_status_t kvcl_tcp_init(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p);
void          kvcl_tcp_fini(kvcl_xport_t *xport);

/* tcp_send.c */
kvcl_status_t kvcl_tcp_am_send(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                               size_t n_iov, unsigned flags, kvcl_xport_send_t *send);
kvcl_status_t kvcl_tcp_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len);

/* tcp_queue.c */
void          kvcl_tcp_pass(struct iovec *iov, unsigned *at, size_t len); /* advance by len bytes */
void          kvcl_tcp_queue_add(tcp_conn_t *conn, tcp_out_t *out);
void          kvcl_tcp_queue_note(tcp_conn_t *conn); /* count it in tcp.waiting, or no longer */
kvcl_status_t kvcl_tcp_broken(tcp_conn_t *conn);     /* a send has failed, with errno: end it, and return why */
unsigned      kvcl_tcp_push(tcp_conn_t *conn);     /* send what waits; returns the number of events */
void          kvcl_tcp_queue_move(tcp_conn_t *from, tcp_conn_t *to); /* neither has sent a message */
void          kvcl_tcp_queue_drop(tcp_conn_t *conn, kvcl_status_t status);
unsigned      kvcl_tcp_report_done(tcp_t *tcp);

/* tcp_recv.c */
typedef struct kvcl_tcp_reply {
    kvcl_xport_reply_t super;
    tcp_conn_t         *conn; /* NULL: from this instance itself, or without KVCL_XPORT_REPLY */
    bool               self;  /* from this instance itself, with KVCL_XPORT_REPLY */
} tcp_reply_t;

unsigned      kvcl_tcp_take(tcp_conn_t *conn);     /* receive and deliver */

/* tcp_self.c */
kvcl_status_t kvcl_tcp_self_send(tcp_t *tcp, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                                 size_t payload, unsigned flags) KVCL_MUST_CHECK;
unsigned      kvcl_tcp_self_deliver(tcp_t *tcp);
void          kvcl_tcp_self_drop(tcp_t *tcp);

/* tcp_mem.c: memory that only messages reach */
kvcl_status_t kvcl_tcp_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
void          kvcl_tcp_mem_free(kvcl_xport_mem_t *mem);
kvcl_status_t kvcl_tcp_mem_pack(kvcl_xport_mem_t *mem, void *buf, size_t *len_p);
kvcl_status_t kvcl_tcp_rmem_open(kvcl_xport_ep_t *ep, const void *packed, size_t len, uint64_t addr, uint64_t size,
                                 kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr);
void          kvcl_tcp_rmem_close(kvcl_xport_rmem_t *rmem);

#endif
