/*
 * The calls of UCX for memory, keys, endpoints, gets and puts, by this process itself: no port is needed. Registrations
 * follow the rules of UCX 1.13's cache with RCACHE_MAX_REGIONS=0, which ucx_glue/glue_keys.c depends on.
 */
#ifndef KVCL_TEST_FAKE_UCP_H
#define KVCL_TEST_FAKE_UCP_H

#include "ucx_glue/glue.h"

typedef struct fake_ucp {
    /* registrations */
    uint64_t limit_pages; /* that may be locked at a time */
    unsigned fail_nth;    /* the nth registration from now on fails, once; 0: none does */
    /* gets and puts: none completes before fake_complete() */
    unsigned keys;        /* that exist */
    unsigned in_flight;
    unsigned used_after;  /* operations that were in flight when their key was destroyed, and their endpoint was open */
    /* endpoints of fake_data_worker(): each is connected by fake_connect(), or from the start */
    bool     connected;   /* from the start */
    bool     unsent;      /* a connected one has a message to send: a flush is in flight until fake_complete() */
    unsigned created;
    unsigned closed;
    unsigned closed_early; /* before they were connected or had failed */
    unsigned posted_early; /* gets and puts on them, before they were connected */
    ucp_am_handler_param_t handler; /* of KVCL's messages */
    unsigned left;        /* with an operation in flight when their worker was destroyed: UCX ends the process */
} fake_ucp_t;

extern fake_ucp_t fake_ucp;

void     fake_reset(void);
/* An instance of rdma without a port, after fake_reset(); kvcl_xport_rdma.fini() frees it. It has no callbacks. data: a
 * context and a worker for data as well, of which the context is gone when this returns. */
glue_t   *fake_open_port(bool data);
uint64_t fake_locked_pages(void);
/* Does a registration have this byte, so that a port accepts its key? */
bool     fake_has_key(const void *addr);
/* An operation of this process uses the registration of this memory: it is not evicted until the second call. */
void     fake_use(const void *addr);
void     fake_unuse(const void *addr);
/* The oldest operation in flight completes. */
void     fake_complete(ucs_status_t status);
ucp_worker_h fake_data_worker(void);
/* Of its endpoints, the one that was created last. */
void     fake_connect(void);
void     fake_fail(void); /* before it is connected; its flush completes when it is closed */
/* A region of so many bytes of the peer that an endpoint of rdma leads to. */
kvcl_xport_rmem_t *fake_open_region(kvcl_xport_ep_t *ep, uint64_t bytes);

#endif
