/*
 * Peers' caches (cache.h): requesting a description and decoding it (hostile). The answer is in cache_describe.c.
 */
#include "config.h"
#include "cache/cache.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wirebuf.h"
#include "core/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wake(kvcl_rcache_t *rcache, kvcl_status_t status)
{
    kvcl_list_t waiters, *link;

    kvcl_list_init(&waiters);
    kvcl_list_splice_tail(&waiters, &rcache->waiters);
    while ((link = kvcl_list_pop(&waiters)) != NULL) {
        kvcl_rcache_waiter_t *waiter = kvcl_container_of(link, kvcl_rcache_waiter_t, link);
        waiter->fn(waiter, rcache, status);
    }
}

static kvcl_status_t request(kvcl_rcache_t *rcache, const char *name, uint32_t id)
{
    kvcl_msg_describe_t out = {.msg = {.type = KVCL_MSG_DESCRIBE, .op = rcache->key}, .id = id};

    return kvcl_peer_post(rcache->peer, &out.msg, sizeof(out), name, (id == 0) ? strlen(name) : 0);
}

static void forget(kvcl_rcache_t *rcache)
{
    uint32_t i;

    for (i = 0; i < rcache->n_regions; ++i) {
        kvcl_rregion_close(&rcache->regions[i]);
    }
    kvcl_rregion_close(&rcache->gens_region);
    free(rcache->regions);
    free(rcache->bases);
    free(rcache->base_region);
    rcache->regions     = NULL;
    rcache->bases       = NULL;
    rcache->base_region = NULL;
    rcache->n_regions   = 0;
    rcache->why_served  = NULL;
    rcache->why_put     = NULL;
}

kvcl_rcache_t *kvcl_rcache_ready(kvcl_peer_t *peer, uint64_t key)
{
    kvcl_rcache_t *rcache = kvcl_map_get(&peer->rcaches, key);

    kvcl_assert_locked(peer->ctx);
    return ((rcache != NULL) && (rcache->state == KVCL_RCACHE_READY)) ? rcache : NULL;
}

/* Lock held, as both of its callers. */
static kvcl_status_t get(kvcl_peer_t *peer, uint64_t key, const char *name, uint32_t id, kvcl_rcache_t **rcache_p,
                         kvcl_rcache_waiter_t *waiter)
{
    kvcl_rcache_t *rcache = kvcl_map_get(&peer->rcaches, key);
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    if ((rcache != NULL) && (rcache->state == KVCL_RCACHE_READY) && !kvcl_rregion_live(&rcache->gens_region)) {
        kvcl_rcache_stale(rcache); /* its owner destroyed it; there may be another of that name */
        rcache = NULL;
    }
    if (rcache == NULL) {
        rcache = calloc(1, sizeof(*rcache));
        if ((rcache == NULL) || (kvcl_map_put(&peer->rcaches, key, rcache) != KVCL_OK)) {
            free(rcache);
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a peer's cache");
        }
        rcache->peer  = peer;
        rcache->key   = key;
        rcache->state = KVCL_RCACHE_FAILED;
        snprintf(rcache->name, sizeof(rcache->name), "%s", (id == 0) ? name : "");
        kvcl_list_init(&rcache->waiters);
        kvcl_list_init(&rcache->stale_link);
    }
    if (rcache->state == KVCL_RCACHE_FAILED) { /* new, or absent at the last request: it may exist now */
        status = request(rcache, name, id);
        if (status != KVCL_OK) {
            return status;
        }
        rcache->state = KVCL_RCACHE_REQUESTED;
    }
    if (rcache->state == KVCL_RCACHE_READY) {
        *rcache_p = rcache;
        return KVCL_OK;
    }
    kvcl_list_add_tail(&rcache->waiters, &waiter->link);
    return KVCL_INPROGRESS;
}

kvcl_status_t kvcl_rcache_get(kvcl_peer_t *peer, const char *name, uint64_t name_key, uint32_t id,
                              kvcl_rcache_t **rcache_p, kvcl_rcache_waiter_t *waiter)
{
    kvcl_assert_locked(peer->ctx);
    return get(peer, (id != 0) ? kvcl_cache_id_key(id) : name_key, name, id, rcache_p, waiter);
}

kvcl_status_t kvcl_rcache_page(kvcl_peer_t *peer, kvcl_rcache_t **rcache_p, kvcl_rcache_waiter_t *waiter)
{
    kvcl_assert_locked(peer->ctx);
    return get(peer, KVCL_RCACHE_PAGE, "", KVCL_CACHE_ID_PAGE, rcache_p, waiter);
}

kvcl_mem_path_t kvcl_rcache_path(const kvcl_rcache_t *rcache, bool put)
{
    kvcl_assert_locked(rcache->peer->ctx);
    return rcache->mapped                              ? kvcl_mem_path_mapped(rcache->peer)
           : (put ? rcache->put : rcache->get) ? KVCL_MEM_PATH_NATIVE : KVCL_MEM_PATH_SERVED;
}

void kvcl_rcache_stale(kvcl_rcache_t *rcache)
{
    kvcl_assert_locked(rcache->peer->ctx);
    atomic_store_explicit(&rcache->peer->direct, NULL, memory_order_release);
    if ((rcache->state == KVCL_RCACHE_READY) && (kvcl_map_get(&rcache->peer->rcaches, rcache->key) == rcache)) {
        (void)kvcl_map_del(&rcache->peer->rcaches, rcache->key);
        kvcl_list_add_tail(&rcache->peer->stale_rcaches, &rcache->stale_link);
    }
}

void kvcl_rcache_unwait(kvcl_rcache_waiter_t *waiter)
{
    kvcl_list_del(&waiter->link);
}

static kvcl_status_t decode_regions(kvcl_rcache_t *rcache, const uint8_t *data, size_t len)
{
    kvcl_status_t status;
    size_t        used;
    uint32_t      i;

    status = kvcl_rregion_open(rcache->peer, data, len, &rcache->gens_region, &used);
    rcache->n_regions = 0;
    for (i = 0; (status == KVCL_OK) && (i < rcache->shape.n_bases + 1); ++i) {
        data += used;
        len  -= used;
        if (len == 0) {
            break;
        }
        if (i == rcache->shape.n_bases) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "more regions than bases");
        }
        status = kvcl_rregion_open(rcache->peer, data, len, &rcache->regions[i], &used);
        if (status == KVCL_OK) {
            rcache->n_regions = i + 1;
        }
    }
    return status;
}

/* The first of its regions that only the owner reaches. */
static const char *why_served(const kvcl_rcache_t *rcache, bool put)
{
    const char *why = kvcl_rregion_why(&rcache->gens_region, put);
    uint32_t   i;

    for (i = 0; (why == NULL) && (i < rcache->n_regions); ++i) {
        why = kvcl_rregion_why(&rcache->regions[i], put);
    }
    return (rcache->mapped || (put ? rcache->put : rcache->get)) ? NULL
           : (why != NULL) ? why : "its regions are reached in different ways";
}

/* Every base must lie in its region with all its bytes: afterwards runs need no check. */
static kvcl_status_t decode_bases(kvcl_rcache_t *rcache, const uint8_t *data)
{
    uint64_t gens_bytes = rcache->shape.blocks * sizeof(uint32_t);
    uint64_t addr;
    uint32_t i, r;

    rcache->mapped = (rcache->gens_region.attr.map != NULL) && (rcache->gens_region.kind == KVCL_MEM_HOST);
    rcache->get    = rcache->mapped || rcache->gens_region.attr.get;
    rcache->put    = rcache->mapped || rcache->gens_region.attr.put;
    rcache->writable = true;
    for (i = 0; i < rcache->shape.n_bases; ++i, data += 12) {
        memcpy(&r, data, sizeof(r));
        memcpy(&addr, data + 4, sizeof(addr));
        if ((r >= rcache->n_regions) || (addr < rcache->regions[r].addr) ||
            (rcache->regions[r].len < rcache->shape.base_bytes) ||
            (addr - rcache->regions[r].addr > rcache->regions[r].len - rcache->shape.base_bytes)) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "base %u lies outside its region", i);
        }
        rcache->bases[i]       = (uintptr_t)addr;
        rcache->base_region[i] = r;
        rcache->writable       = rcache->writable && ((rcache->regions[r].rights & KVCL_WRITE) != 0);
        rcache->mapped         = rcache->mapped && (rcache->regions[r].attr.map != NULL);
        rcache->get            = rcache->get && rcache->regions[r].attr.get;
        rcache->put            = rcache->put && rcache->regions[r].attr.put;
        rcache->mapped         = rcache->mapped && (rcache->regions[r].copier == rcache->regions[0].copier);
        if (rcache->regions[r].kind != rcache->regions[0].kind) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "base %u is memory of another kind than base 0", i);
        }
    }
    rcache->kind   = rcache->regions[0].kind;
    rcache->copier = rcache->mapped ? rcache->regions[0].copier : NULL;
    if (rcache->gens_region.len < gens_bytes) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "the generation table is too short");
    }
    for (i = 0; rcache->mapped && (i < rcache->shape.n_bases); ++i) {
        kvcl_rregion_t *region = &rcache->regions[rcache->base_region[i]];
        rcache->bases[i] = (uintptr_t)region->attr.map + (rcache->bases[i] - (uintptr_t)region->addr);
    }
    rcache->peer->maps = rcache->mapped ? 1 : 0;
    rcache->why_served = why_served(rcache, false);
    rcache->why_put    = why_served(rcache, true);
    if (rcache->gens_region.kind == KVCL_MEM_HOST) {
        rcache->gens = rcache->gens_region.attr.map;
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_rcache_check(const kvcl_rcache_t *rcache, const kvcl_side_t *remote, bool push)
{
    char who[48];

    kvcl_assert_locked(rcache->peer->ctx);
    if (push && !rcache->writable) {
        return kvcl_fail(KVCL_ERR_ACCESS, "%s lets no peer write into its cache: create it there with "
                         "KVCL_CACHE_WRITABLE", kvcl_comm_peer_name(rcache->peer, who, sizeof(who)));
    }
    return kvcl_side_check(remote);
}

static kvcl_status_t decode(kvcl_rcache_t *rcache, const kvcl_msg_description_t *in, const uint8_t *data, size_t len)
{
    kvcl_status_t status;
    size_t        bases_len;

    if (in->status != KVCL_OK) {
        return kvcl_fail((in->status < 0) ? (kvcl_status_t)in->status : KVCL_ERR_PROTOCOL,
                         "%s has no cache of that name", rcache->peer->name);
    }
    if (len < KVCL_SHAPE_WIRE_BYTES) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a description of %zu bytes", len);
    }
    status = kvcl_shape_unpack(&rcache->shape, data, KVCL_SHAPE_WIRE_BYTES);
    if (status != KVCL_OK) {
        return status;
    }
    data += KVCL_SHAPE_WIRE_BYTES;
    len -= KVCL_SHAPE_WIRE_BYTES;
    bases_len = 12ul * rcache->shape.n_bases;
    if (len < bases_len) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "the description is cut off");
    }
    rcache->bases       = calloc(rcache->shape.n_bases, sizeof(*rcache->bases));
    rcache->base_region = calloc(rcache->shape.n_bases, sizeof(*rcache->base_region));
    rcache->regions     = calloc(rcache->shape.n_bases, sizeof(*rcache->regions));
    if ((rcache->bases == NULL) || (rcache->base_region == NULL) || (rcache->regions == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a peer's cache");
    }
    status = decode_regions(rcache, data + bases_len, len - bases_len);
    return (status == KVCL_OK) ? decode_bases(rcache, data) : status;
}

static kvcl_status_t decode_page(kvcl_rcache_t *rcache, const kvcl_msg_description_t *in, const uint8_t *data,
                                 size_t len)
{
    const kvcl_rregion_t *page = &rcache->gens_region;
    kvcl_status_t        status;
    size_t               used;

    if (in->status != KVCL_OK) {
        return kvcl_fail((in->status < 0) ? (kvcl_status_t)in->status : KVCL_ERR_PROTOCOL,
                         "%s does not describe its control page", rcache->peer->name);
    }
    status = kvcl_rregion_open(rcache->peer, data, len, &rcache->gens_region, &used);
    if (status == KVCL_OK) {
        rcache->mapped     = (page->attr.map != NULL);
        rcache->get        = page->attr.get;
        rcache->why_served = page->why;
    }
    return status;
}

void kvcl_rcache_on_description(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                const void *data, size_t len)
{
    const kvcl_msg_description_t *in     = (const kvcl_msg_description_t *)msg;
    kvcl_rcache_t                *rcache = kvcl_map_get(&peer->rcaches, msg->op);
    kvcl_status_t                status;

    (void)hdr_len;
    if ((rcache == NULL) || (rcache->state != KVCL_RCACHE_REQUESTED)) {
        kvcl_am_malformed(ctx, peer, "a description nobody asked for");
        return;
    }
    rcache->id = in->id;
    status     = (rcache->key == KVCL_RCACHE_PAGE) ? decode_page(rcache, in, data, len)
                                                   : decode(rcache, in, data, len);
    if (status != KVCL_OK) {
        forget(rcache);
        rcache->state = KVCL_RCACHE_FAILED;
        rcache->why   = status;
    } else {
        rcache->state = KVCL_RCACHE_READY;
    }
    kvcl_log_debug("%s described %s: %s%s%s%s", peer->name,
                   (rcache->key == KVCL_RCACHE_PAGE) ? "its control page" : "a cache", kvcl_status_text(status),
                   (status != KVCL_OK) ? "" : rcache->mapped ? ", mapped" : rcache->get ? ", native" : ", served",
                   (rcache->why_served != NULL) ? ": " : "", (rcache->why_served != NULL) ? rcache->why_served : "");
    wake(rcache, status);
}

static void fail_requested(kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_rcache_t *rcache;
    uint64_t      key;
    void          *value;
    size_t        it;

    kvcl_map_foreach(&peer->rcaches, it, key, value) {
        rcache = value;
        if (rcache->state == KVCL_RCACHE_REQUESTED) {
            rcache->state = KVCL_RCACHE_FAILED;
            rcache->why   = status;
            wake(rcache, status);
        }
    }
}

void kvcl_caches_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    (void)ctx;
    fail_requested(peer, peer->why);
}

/* Its regions belong to the lost link. A transfer that still waits for its native operations to end reads none of what
 * is freed here: it begins again, or fails (xfer/pull.c). */
void kvcl_caches_peer_reset(kvcl_peer_t *peer)
{
    kvcl_rcache_t *rcache;
    uint64_t      key;
    void          *value;
    size_t        it;

    kvcl_assert_locked(peer->ctx);
    kvcl_map_foreach(&peer->rcaches, it, key, value) {
        rcache = value;
        if ((rcache->state == KVCL_RCACHE_READY) && !rcache->mapped) {
            forget(rcache);
            rcache->gens  = NULL;
            rcache->state = KVCL_RCACHE_FAILED;
            rcache->why   = KVCL_ERR_UNREACHABLE;
        }
    }
    kvcl_list_foreach (rcache, &peer->stale_rcaches, kvcl_rcache_t, stale_link) {
        if (!rcache->mapped) {
            forget(rcache);
        }
    }
    fail_requested(peer, KVCL_ERR_UNREACHABLE);
}

void kvcl_rcaches_close(kvcl_peer_t *peer)
{
    kvcl_list_t *link;
    uint64_t    key;
    void        *value;
    size_t      it;

    kvcl_map_foreach(&peer->rcaches, it, key, value) {
        forget(value);
        free(value);
    }
    kvcl_map_clear(&peer->rcaches);
    while ((link = kvcl_list_pop(&peer->stale_rcaches)) != NULL) {
        kvcl_rcache_t *rcache = kvcl_container_of(link, kvcl_rcache_t, stale_link);
        forget(rcache);
        free(rcache);
    }
}
