/*
 * The owner's side of descriptions (cache.h): the answer to a peer that requests one, and the check of its puts.
 *
 * Owns nothing. Locks: the engine lock.
 */
#include "config.h"
#include "cache/cache.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static void answer(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status, const void *data, size_t len,
                   kvcl_cache_h cache)
{
    kvcl_msg_description_t out = {.msg = {.type = KVCL_MSG_DESCRIPTION, .op = op}, .status = status};
    kvcl_status_t          sent;

    if (cache != NULL) {
        out.id        = cache->id;
        out.n_regions = cache->n_regions;
        out.n_bases   = cache->shape.n_bases;
    }
    sent = kvcl_peer_post(peer, &out.msg, sizeof(out), data, len);
    if (sent == KVCL_ERR_NO_MEMORY) { /* a peer without an answer would wait, now and with each later get */
        out.status = sent;
        sent       = kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0);
    }
    if (sent != KVCL_OK) {
        kvcl_log_info("cannot answer %s: %s", peer->name, kvcl_last_error());
    }
}

static size_t describe(kvcl_cache_h cache, uint8_t *buf, size_t cap)
{
    size_t   at = KVCL_SHAPE_WIRE_BYTES, n;
    uint32_t i, region;

    kvcl_shape_pack(&cache->shape, buf);
    for (i = 0; i < cache->shape.n_bases; ++i) {
        region = (cache->n_regions == 1) ? 0 : i;
        memcpy(buf + at, &region, sizeof(region));
        memcpy(buf + at + 4, &cache->bases[i], sizeof(uint64_t));
        at += 12;
    }
    n = kvcl_region_pack(cache->gens_region, KVCL_READ, buf + at, cap - at);
    for (i = 0; (i < cache->n_regions) && (n != 0); ++i) {
        at += n;
        n = kvcl_region_pack(cache->regions[i], cache->writable ? KVCL_READ_WRITE : KVCL_READ, buf + at, cap - at);
    }
    return (n != 0) ? at + n : 0;
}

static void describe_page(kvcl_context_h ctx, kvcl_peer_t *peer, uint64_t op)
{
    uint8_t buf[KVCL_REGION_DESC_MAX];
    size_t  n = kvcl_ctl_pack(ctx, buf, sizeof(buf));

    answer(peer, op, (n != 0) ? KVCL_OK : KVCL_ERR_NO_MEMORY, buf, n, NULL);
}

void kvcl_rcache_on_describe(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len)
{
    const kvcl_msg_describe_t *in = (const kvcl_msg_describe_t *)msg;
    kvcl_cache_h              cache;
    uint8_t                   *buf;
    size_t                    cap, n;

    (void)hdr_len;
    if (in->id == KVCL_CACHE_ID_PAGE) {
        describe_page(ctx, peer, msg->op);
        return;
    }
    cache = (in->id != 0) ? kvcl_cache_by_id(ctx, in->id) : kvcl_cache_by_name(ctx, data, len);
    if (cache == NULL) {
        answer(peer, msg->op, KVCL_ERR_NOT_REGISTERED, NULL, 0, NULL);
        return;
    }
    cap = KVCL_SHAPE_WIRE_BYTES + (12ul * cache->shape.n_bases) + ((cache->n_regions + 1ul) * KVCL_REGION_DESC_MAX);
    buf = malloc(cap);
    n   = (buf != NULL) ? describe(cache, buf, cap) : 0;
    answer(peer, msg->op, (n != 0) ? KVCL_OK : KVCL_ERR_NO_MEMORY, buf, n, cache);
    free(buf);
}

kvcl_status_t kvcl_cache_for_put(kvcl_context_h ctx, uint32_t id, kvcl_cache_h *cache_p)
{
    kvcl_cache_h cache = kvcl_cache_by_id(ctx, id);

    kvcl_assert_locked(ctx);
    *cache_p = ((cache != NULL) && cache->writable) ? cache : NULL;
    return (cache == NULL) ? KVCL_ERR_NOT_REGISTERED : cache->writable ? KVCL_OK : KVCL_ERR_ACCESS;
}
