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
#include "mem/rmem.h"
#include "query/why_no_port.h"
#include "req/req.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const path_words[KVCL_MEM_PATHS] = {"loop", "mapped", "native", "served"};

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

/* Lock held. page_p NULL: not needed. KVCL_INPROGRESS: wait->over will be set. */
static kvcl_status_t get_ready(kvcl_peer_t *peer, wait_t *wait, kvcl_rcache_t **page_p)
{
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    *wait = (wait_t){.peer = {.fn = on_peer}, .page = {.fn = on_page}, .ctx = peer->ctx};
    kvcl_list_init(&wait->peer.link);
    kvcl_list_init(&wait->page.link);
    status = kvcl_peer_ready(peer, &wait->peer);
    return ((status == KVCL_OK) && (page_p != NULL)) ? kvcl_rcache_page(peer, page_p, &wait->page) : status;
}

/* No lock held; KVCL_OK: the lock is held. The peer is ready, and its control page is open. */
static kvcl_status_t await(kvcl_peer_t *peer, kvcl_rcache_t **page_p)
{
    kvcl_context_h ctx      = peer->ctx;
    uint64_t       deadline = kvcl_deadline_after(kvcl_timeout(ctx, 0));
    kvcl_status_t  status;
    wait_t         wait;

    for (;;) {
        kvcl_lock(ctx);
        status = get_ready(peer, &wait, page_p);
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
    const kvcl_peer_t        *peer = page->peer;
    kvcl_mem_path_t          path = kvcl_rcache_path(page, false);
    bool                     loop = (peer->ops == &kvcl_xport_loop), rdma = (peer->ops == &kvcl_xport_rdma);
    const char               *why = NULL;
    char                     transport[128];

    if (peer->ep == NULL) {
        snprintf(buf, cap, "no connection");
        return;
    }
    peer->ops->ep_describe(peer->ep, transport, sizeof(transport));
    if (path == KVCL_MEM_PATH_SERVED) { /* over TCP nothing else is possible */
        why = peer->ep->sockets ? kvcl_why_no_port(peer) : page->why_served;
    }
    if (path == KVCL_MEM_PATH_LOOP) {
        snprintf(buf, cap, "loop");
        return;
    }
    snprintf(buf, cap, "%s%s%s%s%s%s%s", rdma ? "rdma, " : loop ? "loop, " : "", path_words[path], loop ? "" : " (",
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
        ((status = await(peer, &page)) != KVCL_OK)) {
        return status;
    }
    print_path(page, buf, cap);
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

/* ---- memory ---- */

typedef struct found {
    kvcl_memory_info_t info;
    char               name[KVCL_CACHE_NAME_MAX + 1]; /* the cache may be closed before the callback */
} found_t;

typedef struct found_list {
    found_t *v; /* NULL: they are only counted */
    size_t  n;
    size_t  room; /* of v */
} found_list_t;

static const char *path_word(kvcl_mem_path_t path, bool right)
{
    return right ? path_words[path] : "";
}

/* region: the first one of a cache. */
static const char *why_of(kvcl_mem_path_t path, const kvcl_rregion_t *region, const char *why_served)
{
    return (path == KVCL_MEM_PATH_NATIVE)                             ? kvcl_rregion_mechanism(region)
           : ((path == KVCL_MEM_PATH_SERVED) && (why_served != NULL)) ? why_served : "";
}

/* NULL: the entries are counted only, or there are more than were counted: whether a cache still exists is read from
 * its owner's memory, which may say another thing each time. */
static found_t *next(found_list_t *list)
{
    if ((list->v != NULL) && (list->n == list->room)) {
        return NULL;
    }
    ++list->n;
    return (list->v != NULL) ? &list->v[list->n - 1] : NULL;
}

static void add_cache(found_list_t *list, const kvcl_rcache_t *rcache)
{
    found_t *one = next(list);

    if (one == NULL) {
        return;
    }
    memcpy(one->name, rcache->name, sizeof(one->name));
    one->info = (kvcl_memory_info_t){
        .size     = sizeof(one->info),
        .what     = "cache",
        .name     = one->name,
        .bytes    = rcache->shape.blocks * rcache->shape.block_bytes,
        .get_path = path_word(kvcl_rcache_path(rcache, false), true),
        .put_path = path_word(kvcl_rcache_path(rcache, true), rcache->writable),
        .why      = why_of(kvcl_rcache_path(rcache, false), &rcache->regions[0], rcache->why_served),
        .put_why  = rcache->writable ? why_of(kvcl_rcache_path(rcache, true), &rcache->regions[0], rcache->why_put)
                                     : "",
    };
}

/* status: that of kvcl_rregion_ready(). */
static void add_memory(found_list_t *list, const kvcl_rregion_t *region, kvcl_status_t status)
{
    found_t *one  = next(list);
    bool    reads = (region->rights & KVCL_READ) != 0, writes = (region->rights & KVCL_WRITE) != 0;

    if (one == NULL) {
        return;
    }
    one->info = (kvcl_memory_info_t){.size = sizeof(one->info), .what = "memory", .name = "", .bytes = region->len,
                                     .get_path = "", .put_path = "", .put_why = ""};
    if (status != KVCL_OK) {
        one->info.why = (status == KVCL_ERR_PROTOCOL) ? "its description is not true: each get and put fails"
                                                      : kvcl_status_text(status);
        return;
    }
    if (region->peer == NULL) {
        one->info.why = "the connection was lost";
        return;
    }
    one->info.get_path = path_word(kvcl_rregion_path(region, false), reads);
    one->info.put_path = path_word(kvcl_rregion_path(region, true), writes);
    one->info.why      = why_of(kvcl_rregion_path(region, !reads), region, kvcl_rregion_why(region, !reads));
    one->info.put_why  = writes ? why_of(kvcl_rregion_path(region, true), region, kvcl_rregion_why(region, true)) : "";
}

/* Lock held, peer READY. */
static void find_all(kvcl_peer_t *peer, found_list_t *list)
{
    kvcl_rmem_h rmem;
    uint64_t    key;
    void        *value;
    size_t      it;

    kvcl_assert_locked(peer->ctx);
    list->n = 0;
    kvcl_map_foreach(&peer->rcaches, it, key, value) {
        const kvcl_rcache_t *rcache = value;
        if ((key != KVCL_RCACHE_PAGE) && (rcache->state == KVCL_RCACHE_READY) &&
            kvcl_rregion_live(&rcache->gens_region)) {
            add_cache(list, rcache);
        }
    }
    kvcl_list_foreach (rmem, kvcl_context_rmems(peer->ctx), struct kvcl_rmem, link) {
        if (rmem->peer == peer) {
            add_memory(list, &rmem->rregion, kvcl_rregion_ready(&rmem->rregion, peer));
        }
    }
}

kvcl_status_t kvcl_query_memory(kvcl_comm_h comm, int rank, kvcl_memory_cb_t cb, void *arg)
{
    kvcl_status_t status = kvcl_comm_check(comm, rank, "kvcl_query_memory");
    found_list_t  list   = {NULL, 0, 0};
    kvcl_peer_t   *peer;
    size_t        i;

    if ((status == KVCL_OK) && (cb == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_memory: cb is NULL");
    }
    if ((status != KVCL_OK) || ((status = kvcl_comm_peer(comm, rank, &peer)) != KVCL_OK) ||
        ((status = await(peer, NULL)) != KVCL_OK)) {
        return status;
    }
    find_all(peer, &list);
    list.room = list.n;
    list.v    = (list.n > 0) ? calloc(list.n, sizeof(*list.v)) : NULL;
    if (list.v != NULL) {
        find_all(peer, &list);
    } else if (list.n > 0) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_query_memory: no memory for a list of %zu", list.n);
    }
    kvcl_unlock(comm->ctx);
    for (i = 0; (status == KVCL_OK) && (i < list.n); ++i) {
        cb(arg, &list.v[i].info);
    }
    free(list.v);
    return status;
}
