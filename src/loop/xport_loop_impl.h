/*
 * The inside of the loop transport, shared by its files only: xport_loop.c (contexts and endpoints), xport_loop_msg.c,
 * xport_loop_mem.c, xport_loop_rma.c, xport_loop_registry.c.
 * Locks: kvcl_loop.lock guards everything here that is not marked otherwise; see xport_loop_registry.c.
 */
#ifndef KVCL_XPORT_LOOP_IMPL_H
#define KVCL_XPORT_LOOP_IMPL_H

#include "loop/xport_loop.h"

#include "base/list.h"
#include "base/rand.h"

#include <pthread.h>
#include <sys/types.h>

enum {
    LOOP_INLINE_BYTES = 8192,
    LOOP_FRAME_BYTES  = 1 << 20,
    LOOP_MAX_HDR      = 1024,
    LOOP_BURST        = 64, /* messages delivered by one progress call */
    LOOP_OVERTAKES    = 8,  /* messages that overtake an unordered one, at most */
    LOOP_HOLD_ROUNDS  = 64  /* progress calls of the receiver that it waits for them, at most */
};

typedef struct loop_xport {
    kvcl_xport_t      super;
    kvcl_xport_cbs_t  cbs;
    kvcl_list_t       link;   /* in loop.xports */
    kvcl_list_t       inbox;  /* loop_msg_t */
    kvcl_list_t       held;   /* loop_msg_t that later ones are to overtake */
    kvcl_list_t       eps;    /* loop_ep_t, all that are open */
    kvcl_list_t       failed; /* loop_ep_t whose failure is to be reported */
    kvcl_list_t       mems;   /* loop_mem_t */
    kvcl_list_t       stalled; /* loop_stalled_t; the engine's lock */
    kvcl_xport_send_t *done_head;
    kvcl_xport_send_t **done_tail;
    uint64_t          id;
    uint64_t          rounds; /* progress calls so far */
    int               efd;
    bool              broken; /* an endpoint's gets and puts are to be ended: ep.rma_broken */
    bool              armed;
    bool              signaled; /* efd is readable */
    struct loop_addr {
        uint64_t magic;
        uint64_t uuid[2];
        uint64_t id;
        uint32_t pad;
        uint32_t check;       /* over all before it */
    } addr;
} loop_xport_t;

typedef struct loop_ep {
    kvcl_xport_ep_t super;
    kvcl_list_t     link;        /* in xport->eps */
    kvcl_list_t     failed_link; /* in xport->failed, or alone */
    uint64_t        target;
    bool            broken;
    bool            rma_broken;  /* its gets and puts in flight are to fail */
} loop_ep_t;

typedef struct loop_msg {
    kvcl_list_t link;
    uint64_t    from;  /* xport to reply to, 0: none */
    uint64_t    after; /* deliver when the receiver's rounds reach it; held: and no longer than that */
    unsigned    behind; /* held: messages that are still to overtake it */
    bool        unordered;
    size_t      hdr_len;
    size_t      len;
    uint64_t    bytes[]; /* header padded to 8, then payload */
} loop_msg_t;

typedef struct loop_mem {
    kvcl_xport_mem_t super;
    kvcl_list_t      link;
    uint64_t         id;
    char             *addr;
    size_t           len;
    bool             device;
} loop_mem_t;

typedef struct loop_rmem {
    kvcl_xport_rmem_t super;
    uint64_t          xport, mem; /* the owner's ids: not found means unregistered */
    char              *addr;
    uint64_t          size;
} loop_rmem_t;

typedef struct loop_registry {
    pthread_mutex_t    lock;
    kvcl_list_t        xports;
    uint64_t           uuid[2];
    uint64_t           last_id; /* of xports and regions */
    pid_t              pid;     /* a forked child has another uuid and no xports */
    kvcl_loop_faults_t faults;
    kvcl_rand_t        rnd;
    uint64_t           breaks;  /* by break_rma */
} loop_registry_t;

extern loop_registry_t kvcl_loop;

/* xport_loop_registry.c */
void         *kvcl_loop_alloc(size_t len); /* zeroed; fails at fail_alloc_nth */
loop_xport_t *kvcl_loop_find(uint64_t id); /* lock held */
void         kvcl_loop_wake(loop_xport_t *x); /* lock held: there is a message or a failure to deliver */
bool         kvcl_loop_fault_hits(uint64_t *nth); /* lock held: counts down to the event that *nth names; true once */

/* xport_loop_msg.c: the vtable's members of these names */
/* ep: of a get or put, NULL: a message. Returns KVCL_INPROGRESS. */
kvcl_status_t kvcl_loop_complete_later(loop_xport_t *x, loop_ep_t *ep, kvcl_xport_send_t *send, kvcl_status_t status);
kvcl_status_t kvcl_loop_am_send(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                size_t n_iov, unsigned flags, kvcl_xport_send_t *send);
kvcl_status_t kvcl_loop_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len);
unsigned      kvcl_loop_progress(kvcl_xport_t *xport);
kvcl_status_t kvcl_loop_arm(kvcl_xport_t *xport);
bool          kvcl_loop_outstanding(kvcl_xport_t *xport);

/* xport_loop_mem.c: the vtable's members of these names */
kvcl_status_t kvcl_loop_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
kvcl_status_t kvcl_loop_mem_register_device(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p);
void          kvcl_loop_mem_free(kvcl_xport_mem_t *mem);
kvcl_status_t kvcl_loop_mem_fence(kvcl_xport_t *xport);
kvcl_status_t kvcl_loop_mem_pack(kvcl_xport_mem_t *mem, void *buf, size_t *len_p);
kvcl_status_t kvcl_loop_rmem_open(kvcl_xport_ep_t *ep, const void *buf, size_t len, uint64_t addr, uint64_t size,
                                  kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr);
void          kvcl_loop_rmem_close(kvcl_xport_rmem_t *rmem);
loop_mem_t   *kvcl_loop_find_mem(uint64_t xport_id, uint64_t mem_id); /* lock held; NULL: unregistered */

/* xport_loop_rma.c: the vtable's members of these names */
kvcl_status_t kvcl_loop_get(kvcl_xport_rmem_t *rmem, uint64_t offset, void *buf, size_t len, kvcl_xport_send_t *send);
kvcl_status_t kvcl_loop_put(kvcl_xport_rmem_t *rmem, uint64_t offset, const void *buf, size_t len,
                            kvcl_xport_send_t *send);
kvcl_status_t kvcl_loop_flush(kvcl_xport_rmem_t *rmem, kvcl_xport_send_t *send);
void          kvcl_loop_rma_end(kvcl_xport_ep_t *ep);
void          kvcl_loop_rma_forget(loop_ep_t *ep); /* it is about to be closed */
void          kvcl_loop_rma_progress(loop_xport_t *x);

#endif
