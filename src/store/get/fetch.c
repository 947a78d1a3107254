/*
 * Lookups whose answers carry small blocks (fetch.h).
 *
 * The rules of a served get hold: the home copies a block only while it is published under the generation that the
 * location lists, and compares the generation again after the last byte. The getter takes the bytes only if it would
 * have fetched that copy, if it knows that the cache's layout fits, and if their checksum is the one listed. Everything
 * here runs under the engine lock.
 */
#include "config.h"
#include "store/get/fetch.h"
#include "store/home/home_answer.h"
#include "base/checksum.h"
#include "base/error.h"

/* ---- the message ---- */

kvcl_status_t kvcl_fetch_unpack(kvcl_fetched_t *fetched, const void *data, size_t len, uint32_t n, uint64_t bytes)
{
    const uint8_t  *at  = data;
    uint32_t       head = 0, i;
    uint64_t       some = 0;
    kvcl_fetched_t f;
    kvcl_status_t  status;

    if (len >= KVCL_DIR_MSG_HEADER_BYTES) {
        memcpy(&head, at + 4, sizeof(head)); /* its own length */
    }
    if ((head > len) || (n > len - head)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a lookup's answer of %zu bytes, for %u keys, is cut off", len, n);
    }
    status = kvcl_dir_msg_unpack(&f.reply, at, head);
    if (status != KVCL_OK) {
        return status;
    }
    if ((f.reply.type != KVCL_DIR_MSG_LOOKUP_REPLY) || (f.reply.n != n)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a lookup of %u keys is answered by message type %u for %u keys", n,
                         (unsigned)f.reply.type, f.reply.n);
    }
    f.which = at + head;
    f.bytes = f.which + n;
    for (i = 0; i < n; ++i) {
        if (f.which[i] > f.reply.items[i]) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "a lookup's answer has bytes of location %u of %u", f.which[i],
                             f.reply.items[i]);
        }
        some += (f.which[i] != 0) ? 1 : 0;
    }
    len -= head + (size_t)n;
    if ((some != 0) ? ((bytes == 0) || (some > len / bytes) || (len != some * bytes)) : (len != 0)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a lookup's answer has %zu bytes for %llu blocks", len,
                         (unsigned long long)some);
    }
    *fetched = f;
    return KVCL_OK;
}

/* ---- the request ---- */

uint8_t kvcl_fetch_kind(const kvcl_get_t *get, uint32_t home)
{
    const kvcl_peer_t *peer = get->store->ranks[home].peer;
    uint32_t          n     = get->scatter.starts[home + 1] - get->scatter.starts[home];
    bool              suits = (peer != NULL) && (peer->maps == 0) &&
                              (n <= KVCL_FETCH_MAX / get->cache->shape.block_bytes);

    return suits ? KVCL_RPC_FETCH : KVCL_RPC_LOOKUP;
}

void kvcl_fetch_finish_rpc(kvcl_rpc_t *rpc, uint64_t bytes)
{
    memcpy(rpc->payload + rpc->len, &bytes, sizeof(bytes));
    rpc->len += sizeof(bytes);
}

uint64_t kvcl_fetch_requested(const kvcl_rpc_t *rpc)
{
    uint64_t bytes;

    memcpy(&bytes, rpc->payload + rpc->len - sizeof(bytes), sizeof(bytes));
    return bytes;
}

bool kvcl_fetch_fits(const kvcl_rpc_t *rpc, const void *data, size_t len)
{
    kvcl_fetched_t fetched;

    return kvcl_fetch_unpack(&fetched, data, len, rpc->n, kvcl_fetch_requested(rpc)) == KVCL_OK;
}

/* ---- the home ---- */

/* Copy the bytes of a location of this rank, if the slot still holds that block. */
static bool copy_out(kvcl_store_h store, const kvcl_key_t *key, const kvcl_dir_loc_t *loc, uint64_t bytes, void *buf)
{
    kvcl_sel_t    sel = {.blocks = &loc->slot, .n_blocks = 1};
    kvcl_owner_t  *owner;
    kvcl_stream_t stream;
    kvcl_side_t   side;

    if ((loc->rank != store->me) || (loc->len != bytes) || !kvcl_store_loc_lives(store, loc) ||
        ((loc->flags & KVCL_DIR_TIER_MASK) == KVCL_DIR_TIER_NVME)) {
        return false;
    }
    owner = kvcl_owner_by_cache_id(store, loc->cache);
    if ((owner == NULL) || owner->cache->closing || (owner->cache->copier != NULL) ||
        (kvcl_owner_bytes(owner) != bytes) ||
        (kvcl_slots_check(&owner->slots, loc->slot, loc->gen, key) != KVCL_OK)) {
        return false;
    }
    side = kvcl_cache_side(owner->cache, &sel);
    kvcl_stream_init(&stream, &side, KVCL_STREAM_CANONICAL);
    return (kvcl_stream_gather_racy(&stream, buf, (size_t)bytes) == bytes) &&
           kvcl_slots_gen_is(&owner->cache->gens[loc->slot], loc->gen);
}

/* Append the blocks to the lookup's reply, whose head bytes are in buf; returns the length of the whole answer. */
static size_t add_bytes(kvcl_store_h store, const kvcl_key_t *keys, uint32_t n, uint64_t bytes, uint8_t *buf,
                        size_t head)
{
    uint8_t        *which = buf + head, *at = which + n;
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    kvcl_dir_msg_t reply;
    uint32_t       next = 0, i;
    unsigned       n_locs, j;

    memset(which, 0, n);
    if (kvcl_dir_msg_unpack(&reply, buf, head) != KVCL_OK) {
        return head + n;
    }
    for (i = 0; i < n; ++i) {
        n_locs = kvcl_dir_msg_locs(&reply, i, &next, locs);
        for (j = 0; (j < n_locs) && (which[i] == 0); ++j) {
            if (copy_out(store, &keys[i], &locs[j], bytes, at)) {
                which[i] = (uint8_t)(j + 1);
                at += bytes;
            }
        }
    }
    store->ctx->stats.bytes_out    += (uint64_t)(at - (which + n));
    store->ctx->stats.bytes_served += (uint64_t)(at - (which + n));
    return (size_t)(at - buf);
}

bool kvcl_fetch_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                           size_t len)
{
    kvcl_dir_msg_t    request = {.type = KVCL_DIR_MSG_LOOKUP, .n = in->n, .items = data};
    kvcl_home_event_t event   = {.type = KVCL_HOME_REQUEST, .u.request = &request};
    kvcl_home_out_t   out;
    kvcl_status_t     status;
    uint64_t          bytes;
    size_t            keys = (size_t)in->n * KVCL_DIR_KEY_BYTES;

    (void)len;
    memcpy(&bytes, (const char *)data + keys, sizeof(bytes));
    if ((bytes == 0) || (bytes > KVCL_FETCH_MAX / in->n)) {
        return false;
    }
    out.cap = kvcl_dir_reply_bytes_max(KVCL_DIR_MSG_LOOKUP, in->n);
    out.buf = kvcl_home_scratch(store->ctx, out.cap + in->n + (in->n * bytes));
    status  = (out.buf != NULL) ? kvcl_home_step(&store->home, &event, &out) : KVCL_ERR_NO_MEMORY;
    if (status != KVCL_OK) {
        kvcl_rpc_answer(peer, in, status, 0, NULL, 0);
        return true;
    }
    kvcl_rpc_answer(peer, in, KVCL_OK, in->n, out.buf, add_bytes(store, data, in->n, bytes, out.buf, out.len));
    return true;
}

/* ---- the getter ---- */

/* Would a pull accept this block's layout? */
static bool layout_fits(const kvcl_get_t *get, const kvcl_get_item_t *item, const kvcl_dir_loc_t *loc)
{
    kvcl_peer_t   *peer   = get->store->ranks[loc->rank].peer;
    kvcl_rcache_t *rcache = kvcl_rcache_ready(peer, kvcl_cache_id_key(loc->cache));
    kvcl_sel_t    from    = {.blocks = &loc->slot, .n_blocks = 1};
    kvcl_sel_t    to      = {.blocks = &item->id, .n_blocks = 1};
    kvcl_side_t   src, dst;

    if (rcache == NULL) {
        return false; /* the cache's description has not arrived: a pull requests it */
    }
    src = kvcl_rcache_side(rcache, &from);
    dst = kvcl_cache_side(get->cache, &to);
    return (kvcl_side_check(&src) == KVCL_OK) && (kvcl_runs_check(&dst, &src) == KVCL_OK);
}

static kvcl_status_t take_one(const kvcl_get_t *get, kvcl_get_item_t *item, const void *data, size_t bytes)
{
    const kvcl_dir_loc_t *loc = kvcl_get_loc(item);
    kvcl_sel_t           sel  = {.blocks = &item->id, .n_blocks = 1};
    kvcl_side_t          side = kvcl_cache_side(get->cache, &sel);
    kvcl_stream_t        stream;

    item->wrong = (loc->flags & KVCL_LOC_SUMMED) && (kvcl_checksum(data, bytes) != loc->checksum);
    if (item->wrong) {
        return KVCL_ERR_IO;
    }
    kvcl_stream_init(&stream, &side, KVCL_STREAM_CANONICAL);
    if (kvcl_stream_scatter(&stream, data, bytes) != bytes) {
        return KVCL_ERR_IO;
    }
    get->store->ctx->stats.bytes_in += bytes;
    ++get->store->n_brought;
    return KVCL_OK;
}

void kvcl_fetch_take(kvcl_get_t *get, const kvcl_rpc_t *rpc, const kvcl_fetched_t *fetched)
{
    const size_t  bytes = (size_t)kvcl_fetch_requested(rpc);
    const uint8_t *at   = fetched->bytes;
    uint32_t      i;
    unsigned      j;

    kvcl_assert_locked(get->store->ctx);
    for (i = 0; (i < rpc->n) && (get->stopping == KVCL_OK); ++i) {
        kvcl_get_item_t *item = &get->items[rpc->order[i]];
        if (fetched->which[i] == 0) {
            continue;
        }
        j = fetched->which[i] - 1u;
        if ((item->state == KVCL_GET_READY) && (item->locs[j].rank == rpc->rank) && kvcl_get_may_take(get, item, j) &&
            layout_fits(get, item, &item->locs[j])) {
            item->cur = (uint8_t)j;
            kvcl_get_result(get, rpc->order[i], take_one(get, item, at, bytes));
        }
        at += bytes;
    }
}
