/*
 * Shared by the files of the floor: floor.c owns opening and closing, floor_rma.c shared memory, floor_am.c messages.
 */
#ifndef KVCL_TOOLS_PERF_FLOOR_IMPL_H
#define KVCL_TOOLS_PERF_FLOOR_IMPL_H

#include "tools/perf/floor.h"
#include "ucx_glue/ucp.h"

#define FLOOR_TIMEOUT_NS UINT64_C(30000000000)

/* Header of every message of the floor. */
typedef struct floor_msg {
    uint64_t op;
    uint64_t remote; /* offset in the target's memory */
    uint64_t len;
    uint64_t local;  /* the initiator's address, which the target returns unchanged */
} floor_msg_t;

#define FLOOR_SENDS 64u

/* An outgoing message, whose header must stay until UCX has sent it; or an incoming one by rendezvous. */
typedef struct floor_send {
    kvcl_floor_t *floor;
    floor_msg_t  msg;
    bool         busy;
} floor_send_t;

struct kvcl_floor {
    bool          initiator;
    bool          tcp;
    uint64_t      spin_ns;
    ucp_context_h ctx;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    ucp_mem_h     memh;   /* NULL: private memory */
    void          *memory;
    size_t        bytes;
    ucp_rkey_h    rkey;   /* shared memory: the target's */
    uint64_t      remote; /* the address at the target */
    void          *mapped; /* the local mapping, or NULL */
    int           efd;
    /* transfers */
    uint64_t      done;     /* pieces that have arrived */
    uint64_t      posted;
    bool          broken;   /* an operation or the peer failed */
    bool          released; /* target: the initiator has finished */
    floor_send_t  sends[FLOOR_SENDS];
};

/* Progress UCX; after spin_ns without events, sleep until there is one. Returns at once if progress was made. */
typedef struct floor_wait {
    uint64_t idle_since;
} floor_wait_t;
void kvcl_floor_wait_start(floor_wait_t *wait);
/* @return false after timeout_ns without progress. */
bool kvcl_floor_wait_step(kvcl_floor_t *floor, floor_wait_t *wait, uint64_t timeout_ns);

/* Wait until at most left transfers are in flight. */
bool kvcl_floor_drain(kvcl_floor_t *floor, uint64_t left);

bool kvcl_floor_fail(const char *what, ucs_status_t status);

bool kvcl_floor_am_init(kvcl_floor_t *floor);
bool kvcl_floor_am_transfer(kvcl_floor_t *floor, bool rndv, bool put, const kvcl_floor_run_t *runs, size_t n);
bool kvcl_floor_rma_transfer(kvcl_floor_t *floor, bool put, const kvcl_floor_run_t *runs, size_t n);
void kvcl_floor_map_transfer(kvcl_floor_t *floor, bool put, const kvcl_floor_run_t *runs, size_t n);

#endif
