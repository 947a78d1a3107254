/*
 * The inside of the transports ucx and rdma; included by ucx_glue/ and its tests only. The only room that includes
 * ucp.h. A KVCL context has one instance of ucx, for shared memory and devices, which never uses a port of RDMA, and
 * one of rdma for each port in use, which uses nothing else: if one fails, the others continue.
 *
 * An instance has two UCP contexts, each with one worker ("side"):
 *   am    messages: UCP_FEATURE_AM, any transport. It has no RMA feature, because UCX emulates put and get over tcp
 *         without checking that the memory is registered.
 *   data  UCP_FEATURE_RMA, only transports with native RMA (rc, cuda), never tcp. Absent (ctx NULL) where the machine
 *         has none. Only this side makes and unpacks UCX's keys (rkeys), whose parser trusts its input.
 * Memory that a process of this host registered is read without UCX (glue_cma.c).
 * Locks: none of its own. The engine lock of the owning context serializes everything (see xport.h).
 */
#ifndef KVCL_UCX_GLUE_GLUE_H
#define KVCL_UCX_GLUE_GLUE_H

#include "base/list.h"
#include "base/map.h"
#include "base/mpool.h"
#include "core/xport.h"
#include "life/ends.h"
#include "near/near_ops.h"
#include "ucx_glue/ucp.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
    GLUE_MAX_HDR      = 1024,
    GLUE_INLINE_BYTES = 8192,
    GLUE_FRAME_MAX    = 248 << 10,
    GLUE_SMALL_BYTES  = 512, /* header and payload of a copying send from the small pool */
    GLUE_IOV_MAX      = 16,  /* pieces of a gathering send from the pool; more are malloc'ed */
    GLUE_ADDR_MAX     = 4096,
    GLUE_PACK_MAX     = 512,
    GLUE_TLS_MAX      = 256,
    GLUE_DEVICES_MAX  = 1024, /* bytes of names: interfaces of KVCL_NET, or an RDMA port */
    GLUE_COPIES_MAX   = 64 << 20, /* memory of the copied messages that wait for one endpoint's peer */
    GLUE_REPLIES_MAX  = 64 << 10, /* the same of the replies to one sender */
    GLUE_RENEWALS     = 8, /* queues that a process may leave behind; 4 MiB each, until the end of the instance */
    GLUE_AM_ID        = 1,
    GLUE_PROBE_ID     = 2 /* an empty message, dropped on arrival (glue_probe.c) */
};

typedef enum { GLUE_PATH_AUTO, GLUE_PATH_SHM, GLUE_PATH_TCP } glue_path_t;

/* The transports and devices that may be used, in the format of UCX's TLS and NET_DEVICES; decided once at init. */
typedef struct glue_plan {
    glue_path_t path;
    bool        listens; /* KVCL_NET names interfaces: tcp may be used and listens there; UCX_TLS overrides */
    char        am_tls[GLUE_TLS_MAX];
    char        data_tls[GLUE_TLS_MAX]; /* "": no data side */
    char        devices[GLUE_DEVICES_MAX]; /* NET_DEVICES */
    bool        cma; /* may read the memory of processes of this host */
    bool        rdma; /* an instance of rdma: devices is one port */
    bool        gpudirect; /* rdma: the port can reach device memory */
    int         gid;  /* rdma: index; -1: UCX's choice */
    uint64_t    keepalive_ns;
} glue_plan_t;

typedef struct glue_side {
    ucp_context_h ctx;
    ucp_worker_h  worker;
    ucp_address_t *addr;
    size_t        addr_len;
    uint64_t      features; /* UCP_FEATURE_* */
    int           efd;      /* owned by the worker: not to be closed */
} glue_side_t;

typedef struct glue_timer { /* glue_timer.c */
    int      fd;     /* -1: not open */
    uint64_t due_ns; /* 0: not set */
} glue_timer_t;

typedef struct glue_keys { /* of freed memory: glue_keys.c */
    char      *pages;    /* two; NULL: not an instance of rdma */
    ucp_mem_h part;      /* of page at; NULL: it could not be registered */
    ucp_mem_h whole;     /* of the other page; NULL: it could not be registered */
    unsigned  at;        /* 0, 1 */
    bool      stale;     /* the last sweep failed: freed memory may have keys still */
    unsigned  phase;     /* 0, 1: gets, puts and flushes that are posted now are counted in moving[phase] */
    size_t    moving[2]; /* those in flight */
    bool      due;       /* a sweep is due when those of the other phase have ended */
    bool      again;     /* memory was freed since this phase began */
} glue_keys_t;

typedef struct glue {
    kvcl_xport_t      super;
    kvcl_xport_cbs_t  cbs;
    glue_plan_t       plan;
    glue_side_t       am;
    glue_side_t       data;
    glue_side_t       deaf[GLUE_RENEWALS]; /* glue_renew.c: workers before am, whose context is am's */
    unsigned          n_deaf;
    struct glue       *kept;   /* list of the transports that outlive their fini */
    int               epfd;    /* holds both sides' descriptors, and that of ends */
    kvcl_ends_t       *ends;   /* of processes reached by shared memory; NULL: none is seen */
    void              *addr;
    size_t            addr_len;
    kvcl_list_t       eps;     /* glue_ep_t not freed yet, closed ones too */
    kvcl_list_t       failed;  /* glue_ep_t whose failure is to be reported, when what was sent before is read */
    unsigned          unread;  /* passes in a row that brought events while these wait */
    kvcl_list_t       ending;  /* glue_ep_t whose data endpoint is to be closed, and opened again when it is needed */
    kvcl_list_t       closing; /* closed glue_ep_t, until UCX and the caller have released them */
    kvcl_list_t       aside;   /* closed glue_ep_t whose data endpoint is not connected yet */
    kvcl_list_t       waiting; /* glue_ep_t with operations that wait for their data endpoint */
    bool              leaving; /* fini was called: endpoints are closed as they are */
    kvcl_xport_send_t *done_head; /* completions made outside progress */
    kvcl_xport_send_t **done_tail;
    kvcl_map_t        replies; /* by their UCX endpoint: memory of the replies that UCX holds */
    kvcl_mpool_t      small;
    kvcl_mpool_t      large;
    kvcl_mpool_t      gather;
    kvcl_mpool_t      reads;
    kvcl_mpool_t      waits;
    struct glue_read  *read_head; /* reads of other processes' memory, not made yet */
    struct glue_read  **read_tail;
    bool              reads_stopped; /* some of them */
    bool              direct;  /* inside progress: completions may be reported at once */
    unsigned          linger;  /* progress calls still needed: UCX frees closed endpoints only there */
    glue_timer_t      probe_timer; /* fd -1: no probes; not set: no endpoint */
    glue_timer_t      wait_timer;  /* not set: nothing waits */
    glue_keys_t       keys;
    bool              counted; /* kvcl_glue_lock_port() has counted this port */
    size_t            inflight; /* of all endpoints */
    uint64_t          refused; /* messages that KVCL never sends */
} glue_t;

typedef struct glue_data { /* an endpoint for data: glue_data.c */
    void        *addr;       /* NULL: no native path to the peer by UCX */
    size_t      addr_len;
    ucp_ep_h    ucp_ep;      /* opened by the first rmem_open; NULL: closed */
    bool        opening;     /* not connected yet: UCX has not completed the flush that was posted first */
    bool        flushed;     /* in glue.aside: connected, and flushed again */
    kvcl_list_t waiting;     /* gets, puts and flushes, to be posted once it is connected: glue_wait.c */
    kvcl_list_t wait_link;   /* in glue.waiting, or alone */
    uint64_t    wait_ns;     /* the time until which they wait */
    kvcl_list_t link;        /* in glue.ending while it is being closed to be opened again, or alone */
    kvcl_list_t rmems;       /* glue_rmem_t; their keys are of the endpoint that is open now */
    void        *close_req;
    size_t      inflight;    /* gets, puts and flushes that UCX holds */
    bool        native;      /* gets and puts need no processor of the owner, and end with its registration */
    bool        failed;      /* UCX has reported its failure since it was opened */
    uint64_t    retry_ns;    /* the time before which it is not opened */
    uint64_t    back_off_ns; /* the wait after the next failure */
} glue_data_t;

/* A process of this host whose memory is read. */
typedef struct glue_process {
    int32_t  pid;
    uint32_t reserved;
    uint64_t cookie_addr; /* where it has the cookie */
    uint64_t cookie[2];   /* random: the process with that pid is the one that wrote this */
} glue_process_t;

/* Its pages: glue_look.c. */
typedef struct glue_look {
    glue_process_t process;
    int            fd;    /* its page map; -1: it could not be opened */
    bool           scans; /* as far as is known, the kernel has PAGEMAP_SCAN */
    struct {
        uint64_t first, n;
    } seen[256]; /* without it: pages that were present, by address */
} glue_look_t;

typedef struct glue_ep {
    kvcl_xport_ep_t super;
    kvcl_list_t     link;       /* in glue.eps */
    kvcl_list_t     stage_link; /* in glue.failed, glue.closing or glue.aside, one after the other, or alone */
    ucp_ep_h        am;
    glue_data_t     data;
    void            *close_req;
    size_t          inflight;   /* sends and RMA operations that UCX holds */
    size_t          copied;     /* memory of the copied messages that UCX holds */
    char            transport[16]; /* of messages, as UCX calls it */
    bool            probing;    /* UCX has not completed the last probe yet */
    glue_look_t     *look;      /* owned; NULL: nothing was read yet */
    bool            near;       /* a process of this host, reached by shared memory */
    bool            unreadable; /* the kernel has refused to read its memory */
    bool            broken;     /* UCX reported a failure */
    bool            closed;     /* ep_close was called */
    bool            is_tcp;     /* messages travel over tcp */
    uint32_t        end;        /* its number in glue.ends, from ep_create to ep_close; 0: it has none */
} glue_ep_t;

typedef struct glue_read {
    struct glue_read     *next;
    glue_ep_t            *ep;
    const glue_process_t *process;
    uint64_t             from;
    char                 *to;
    size_t               len; /* left */
    kvcl_xport_send_t    *send;
    bool                 near;    /* only present pages are copied */
    bool                 stopped; /* it ends before the next copy */
} glue_read_t;

typedef enum { GLUE_GET, GLUE_PUT, GLUE_FLUSH } glue_kind_t;

/* A get, a put, or a flush of puts. */
typedef struct glue_op {
    glue_kind_t       kind;
    kvcl_xport_rmem_t *rmem;
    uint64_t          offset;
    void              *buf; /* a put only reads it */
    size_t            len;
    kvcl_xport_send_t *send;
} glue_op_t;

typedef struct glue_mem {
    kvcl_xport_mem_t super;
    ucp_mem_h        memh;   /* NULL: not registered with UCX */
    void             *addr;
    size_t           len;
    bool             device; /* no processor reads it */
} glue_mem_t;

static inline glue_t *glue_of(kvcl_xport_t *xport)
{
    return kvcl_container_of(xport, glue_t, super);
}

/* An operation is in flight from here on; it has ended. */
static inline void glue_begin_op(glue_ep_t *ep)
{
    ++ep->inflight;
    ++glue_of(ep->super.xport)->inflight;
}

static inline void glue_end_op(glue_ep_t *ep)
{
    --ep->inflight;
    --glue_of(ep->super.xport)->inflight;
}

/* It has failed: reported by progress, once. */
static inline void glue_break_ep(glue_ep_t *ep)
{
    if (!ep->closed && !ep->broken) {
        ep->broken = true;
        kvcl_list_add_tail(&glue_of(ep->super.xport)->failed, &ep->stage_link);
    }
}

/* glue_status.c: the one place that maps a UCX status to a kvcl_status_t. */
kvcl_status_t kvcl_glue_status(ucs_status_t status);

/* glue_plan.c: which transports and devices. */
kvcl_status_t kvcl_glue_plan(const kvcl_xport_params_t *params, glue_plan_t *plan);
kvcl_status_t kvcl_glue_plan_rdma(const kvcl_xport_params_t *params, glue_plan_t *plan);
/* Does the am side use this transport ("posix", "tcp")? Where the plan listens, UCX_TLS overrides am_tls. */
bool          kvcl_glue_am_uses(const glue_plan_t *plan, const char *name);

/* glue_signal.c: note the sockets of this process before UCX opens a worker; guard those that it opened. */
typedef struct glue_signals {
    ino_t  *inodes;
    size_t n;
    bool   known; /* the list is complete */
} glue_signals_t;
void kvcl_glue_signals_note(glue_signals_t *signals);
void kvcl_glue_signals_guard(glue_signals_t *signals);

/* glue_queues.c: the directory for UCX's shared memory; NULL: UCX's own choice. Lives as long as the environment. */
const char    *kvcl_glue_queue_dir(void);

/* glue_side.c: open and close a context and its worker with KVCL's settings. */
kvcl_status_t kvcl_glue_side_open(glue_side_t *side, uint64_t features, const char *tls, const glue_plan_t *plan);
void          kvcl_glue_side_close(glue_side_t *side);
/* The transports of a context or an endpoint, each once, comma separated, from what UCX prints. */
void          kvcl_glue_ctx_transports(ucp_context_h ctx, char *buf, size_t cap);
void          kvcl_glue_ep_transports(ucp_ep_h ep, char *buf, size_t cap);
bool          kvcl_glue_list_has(const char *list, const char *prefix);

/* glue_ep.c */
kvcl_status_t kvcl_glue_make_address(glue_t *g);
kvcl_status_t kvcl_glue_ep_create(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p);
void          kvcl_glue_ep_close(kvcl_xport_ep_t *ep);
void          kvcl_glue_ep_describe(kvcl_xport_ep_t *ep, char *buf, size_t cap);
/* Opens a UCP endpoint whose failure calls failed(ep, ...). */
ucs_status_t  kvcl_glue_ucp_ep_open(ucp_worker_h worker, const void *addr, glue_ep_t *ep, ucp_err_handler_cb_t failed,
                                    ucp_ep_h *ucp_ep_p);
/* Starts or polls the forced close; true when UCX has released it. Never inside a UCX callback. */
bool          kvcl_glue_ucp_ep_close(ucp_ep_h *ucp_ep, void **req);
unsigned      kvcl_glue_ep_progress(glue_t *g, bool failures); /* outside UCX's progress: report them, close, free */

/* glue_am.c */
kvcl_status_t kvcl_glue_am_init(glue_t *g);
void          kvcl_glue_am_fini(glue_t *g);
kvcl_status_t kvcl_glue_am_send(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                size_t n_iov, unsigned flags, kvcl_xport_send_t *send);
kvcl_status_t kvcl_glue_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len);
/* Maps UCX's return value of an operation to the contract's: KVCL_OK, KVCL_INPROGRESS, or an error. */
kvcl_status_t kvcl_glue_posted(glue_ep_t *ep, ucs_status_ptr_t ptr, const char *what);
void          kvcl_glue_send_done(void *request, ucs_status_t status, void *user_data); /* user_data: the send */
void          kvcl_glue_complete(glue_t *g, kvcl_xport_send_t *send, kvcl_status_t status); /* now if inside progress */
void          kvcl_glue_complete_later(glue_t *g, kvcl_xport_send_t *send, kvcl_status_t status);
unsigned      kvcl_glue_am_progress(glue_t *g); /* report completions made outside progress */

/* glue_timer.c: a timer that wakes a sleeping owner of the context after due_ns, in the time of kvcl_now_ns(). */
kvcl_status_t kvcl_glue_timer_open(glue_t *g, glue_timer_t *timer);
void          kvcl_glue_timer_close(glue_timer_t *timer);
void          kvcl_glue_timer_set(glue_timer_t *timer, uint64_t due_ns); /* 0: stop */

/* glue_probe.c: probes of rdma's endpoints. */
kvcl_status_t kvcl_glue_probe_open(glue_t *g);
void          kvcl_glue_probe_begin(glue_t *g); /* an endpoint was made */
void          kvcl_glue_probe(glue_t *g);       /* in progress: probe what is due */

/* glue_mem.c */
kvcl_status_t kvcl_glue_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
kvcl_status_t kvcl_glue_mem_register_device(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
void          kvcl_glue_mem_free(kvcl_xport_mem_t *mem);
kvcl_status_t kvcl_glue_mem_pack(kvcl_xport_mem_t *mem, void *buf, size_t *len_p);

/* glue_locked.c: one more port of RDMA, or bytes of users that are registered with one. KVCL_ERR_NO_MEMORY: the process
 * may not lock as much; otherwise it is counted until the unlock. */
kvcl_status_t kvcl_glue_lock_port(void);
void          kvcl_glue_unlock_port(void);
kvcl_status_t kvcl_glue_lock_bytes(uint64_t bytes);
void          kvcl_glue_unlock_bytes(uint64_t bytes);
uint64_t      kvcl_glue_pinned_bytes(void); /* that this process has locked for devices */

/* glue_keys.c */
kvcl_status_t kvcl_glue_keys_open(glue_t *g);
void          kvcl_glue_keys_close(glue_t *g);
void          kvcl_glue_keys_freed(glue_t *g);    /* memory was unmapped: makes its key invalid, or sets keys.stale */
kvcl_status_t kvcl_glue_mem_fence(kvcl_xport_t *xport);
void          kvcl_glue_keys_progress(glue_t *g); /* if keys.due */

/* glue_cma.c: reading the memory of a process of this host */
kvcl_status_t kvcl_glue_cma_self(glue_process_t *self);
bool          kvcl_glue_cma_reaches(const glue_process_t *process); /* it lives and permits to be read */
/* read: ep, process (which lives until send is done), from, to, len, send, near. Copied by progress; KVCL_INPROGRESS or
 * an error. */
kvcl_status_t kvcl_glue_cma_get(const glue_read_t *read);
unsigned      kvcl_glue_cma_progress(glue_t *g);
/* glue_look.c: are all its pages at len bytes, not 0, from addr on present? True where the kernel does not say. */
bool          kvcl_glue_look(glue_ep_t *ep, const glue_process_t *process, uint64_t addr, size_t len);
void          kvcl_glue_look_end(glue_ep_t *ep);
bool          kvcl_glue_near_self(kvcl_xport_t *xport, void *buf);
bool          kvcl_glue_near_reaches(const kvcl_xport_ep_t *ep);
kvcl_status_t kvcl_glue_near_get(kvcl_xport_ep_t *ep, const void *self, uint64_t addr, void *buf, size_t len,
                                 kvcl_xport_send_t *send);
void          kvcl_glue_near_stop(kvcl_xport_ep_t *ep, const kvcl_xport_send_t *send);

/* glue_data.c: the endpoint for data, which may be closed and opened again while its peer is reached by messages */
/* Opens the endpoint if it is closed. KVCL_INPROGRESS: it is not connected yet, so nothing is posted on it;
 * KVCL_ERR_UNSUPPORTED: no native path; KVCL_ERR_UNREACHABLE: not now. */
kvcl_status_t kvcl_glue_data_open(glue_ep_t *ep);
void          kvcl_glue_data_end(kvcl_xport_ep_t *ep); /* rma_end */
kvcl_status_t kvcl_glue_data_posted(glue_ep_t *ep, ucs_status_ptr_t ptr, const char *what);
void          kvcl_glue_data_done(void *request, ucs_status_t status, void *user_data); /* user_data: the send */
bool          kvcl_glue_data_close(glue_ep_t *ep); /* the peer's endpoint is closed: true when it is done */
bool          kvcl_glue_data_must_stay(const glue_ep_t *ep); /* may not be closed yet: it is not connected */
unsigned      kvcl_glue_data_progress(glue_t *g);

/* glue_wait.c: operations that wait until their endpoint for data is connected */
void          kvcl_glue_wait_init(glue_t *g);
void          kvcl_glue_wait_close(glue_t *g);
void          kvcl_glue_wait_begin(glue_ep_t *ep); /* the endpoint is being opened: the time of the wait begins */
/* KVCL_INPROGRESS: the operation waits. KVCL_ERR_UNREACHABLE: the time of the wait is over. */
kvcl_status_t kvcl_glue_wait(glue_ep_t *ep, const glue_op_t *op);
/* The operations of this region, or all of them (NULL), wait no longer: they complete with status, from progress. */
void          kvcl_glue_wait_end(glue_ep_t *ep, const kvcl_xport_rmem_t *rmem, kvcl_status_t status);
unsigned      kvcl_glue_wait_progress(glue_t *g); /* if g->waiting is not empty or g->wait_timer is set */

/* glue_rma.c */
/* Releases the keys of the peer's regions: they are unpacked again for the next endpoint. */
void          kvcl_glue_rmems_unkey(glue_ep_t *ep);
void          kvcl_glue_rmems_drop(glue_ep_t *ep); /* frees the regions that the core has closed */
bool          kvcl_glue_rmems_open(const glue_ep_t *ep); /* has the core regions open? */
kvcl_status_t kvcl_glue_rmem_open(kvcl_xport_ep_t *ep, const void *packed, size_t len, uint64_t addr, uint64_t size,
                                  kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr);
void          kvcl_glue_rmem_close(kvcl_xport_rmem_t *rmem);
kvcl_status_t kvcl_glue_rma(const glue_op_t *op);
kvcl_status_t kvcl_glue_get(kvcl_xport_rmem_t *rmem, uint64_t offset, void *buf, size_t len, kvcl_xport_send_t *send);
kvcl_status_t kvcl_glue_put(kvcl_xport_rmem_t *rmem, uint64_t offset, const void *buf, size_t len,
                            kvcl_xport_send_t *send);
kvcl_status_t kvcl_glue_flush(kvcl_xport_rmem_t *rmem, kvcl_xport_send_t *send);

/* glue_log.c: a transport is being opened; its opening is over; it is closed, or was never opened. */
void kvcl_glue_log_opening(void);
void kvcl_glue_log_opened(void);
void kvcl_glue_log_closed(void);

/* A region as mem_pack writes it, before the packed rkey; host byte order: a job's hosts are of one kind. */
typedef struct glue_packed {
    uint32_t magic;
    uint32_t check; /* kvcl_check32 over all that follows it */
    uint64_t addr;
    uint64_t len;
    uint32_t flags; /* GLUE_PACKED_* */
    uint32_t rkey_len;
    glue_process_t process; /* with GLUE_PACKED_CMA: the owner */
} glue_packed_t;

#define GLUE_PACKED_MAGIC UINT32_C(0x4b56524b)
enum { GLUE_PACKED_CMA = 1 /* processes of its host may read it */ };

#endif
