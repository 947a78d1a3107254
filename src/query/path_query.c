/*
 * How this rank reaches another one, and each memory of it (kvcl_query.h): from the decisions that transfers follow.
 *
 * kvcl_query_path: the peer's control page is memory that its KVCL allocated, as caches are. It is described once
 * (kvcl_rcache_page) and opened as the memory of a cache is. Locks: the engine lock while decisions are read; none
 * while a thread waits for the peer, or for the user's callback.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "cache/cache.h"
#include "core/comm.h"
#include "req/req.h"

#include <stdio.h>
#include <string.h>

typedef struct wait {
    kvcl_peer_waiter_t   peer;
    kvcl_rcache_waiter_t page;
    kvcl_context_h       ctx;
    kvcl_status_t        status;
    bool                 over;
} wait_t;

static void end(wait_t *wait, kvcl_status_t status)
{
    wait->over   = true;
    wait->status = status;
    kvcl_engine_notify(wait->ctx);
}

static void on_peer(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    end(kvcl_container_of(waiter, wait_t, peer), status);
}

static void on_page(kvcl_rcache_waiter_t *waiter, kvcl_rcache_t *page, kvcl_status_t status)
{
    (void)page;
    end(kvcl_container_of(waiter, wait_t, page), status);
}

static bool is_over(void *arg)
{
    return ((wait_t *)arg)->over;
}

/* Lock held. KVCL_INPROGRESS: wait->over will be set. */
static kvcl_status_t get_page(kvcl_peer_t *peer, wait_t *wait, kvcl_rcache_t **page_p)
{
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    *wait = (wait_t){.peer = {.fn = on_peer}, .page = {.fn = on_page}, .ctx = peer->ctx};
    kvcl_list_init(&wait->peer.link);
    kvcl_list_init(&wait->page.link);
    status = kvcl_peer_ready(peer, &wait->peer);
    return (status == KVCL_OK) ? kvcl_rcache_page(peer, page_p, &wait->page) : status;
}

/* No lock held; KVCL_OK: the lock is held. The peer is ready, and its control page is open. */
static kvcl_status_t await_page(kvcl_peer_t *peer, kvcl_rcache_t **page_p)
{
    kvcl_context_h ctx      = peer->ctx;
    uint64_t       deadline = kvcl_deadline_after(kvcl_timeout(ctx, 0));
    kvcl_status_t  status;
    wait_t         wait;

    for (;;) {
        kvcl_lock(ctx);
        status = get_page(peer, &wait, page_p);
        if (status == KVCL_OK) {
            return KVCL_OK;
        }
        kvcl_unlock(ctx);
        if (status != KVCL_INPROGRESS) {
            return status;
        }
        (void)kvcl_engine_wait(ctx, is_over, &wait, deadline);
        kvcl_lock(ctx);
        kvcl_peer_unwait(&wait.peer);
        kvcl_rcache_unwait(&wait.page);
        kvcl_unlock(ctx);
        if (!wait.over) {
            return kvcl_fail(KVCL_ERR_TIMED_OUT, "%s does not answer", peer->name);
        }
        if (wait.status != KVCL_OK) {
            return kvcl_fail(wait.status, "%s: %s", peer->name, kvcl_status_text(wait.status));
        }
    }
}

/* ---- the text of a path ---- */

static void print_path(const kvcl_rcache_t *page, char *buf, size_t cap)
{
    static const char *const words[KVCL_MEM_PATHS] = {"mapped", "mapped", "native", "served"};
    const kvcl_peer_t        *peer = page->peer;
    kvcl_mem_path_t          path = kvcl_rcache_path(page, false);
    bool                     loop = (peer->ops == &kvcl_xport_loop), rdma = (peer->ops == &kvcl_xport_rdma);
    const char               *why = NULL;
    char                     transport[128];

    peer->ops->ep_describe(peer->ep, transport, sizeof(transport));
    if (path == KVCL_MEM_PATH_SERVED) { /* over TCP nothing else is possible */
        why = peer->ep->sockets ? kvcl_peer_why_no_port(peer) : page->why_served;
    }
    if (path == KVCL_MEM_PATH_LOOP) {
        snprintf(buf, cap, "loop");
        return;
    }
    snprintf(buf, cap, "%s%s%s%s%s%s%s", rdma ? "rdma, " : loop ? "loop, " : "", words[path], loop ? "" : " (",
             loop ? "" : transport, loop ? "" : ")", (why != NULL) ? ": " : "", (why != NULL) ? why : "");
}

kvcl_status_t kvcl_query_path(kvcl_comm_h comm, int rank, char *buf, size_t cap)
{
    kvcl_status_t status = kvcl_comm_check(comm, rank, "kvcl_query_path");
    kvcl_rcache_t *page;
    kvcl_peer_t   *peer;

    if ((status == KVCL_OK) && (buf == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_path: buf is NULL");
    }
    if ((status != KVCL_OK) || ((status = kvcl_comm_peer(comm, rank, &peer)) != KVCL_OK) ||
        ((status = await_page(peer, &page)) != KVCL_OK)) {
        return status;
    }
    print_path(page, buf, cap);
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}
