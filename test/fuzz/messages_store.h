/*
 * The store of fuzz_messages.c: a pool with a few known blocks, requests of every kind of the table of kinds with
 * plausible contents, and requests of the context's own, whose answers an input may forge.
 */
#ifndef KVCL_FUZZ_MESSAGES_STORE_H
#define KVCL_FUZZ_MESSAGES_STORE_H

#include "core/context.h"
#include "dir/dir_wire.h"
#include "store/kinds.h"
#include "store/store.h"
#include "store/store_wire.h"
#include <kvcl/kvcl_store.h>

#include <stdlib.h>
#include <string.h>

enum { KNOWN = 8, BLOCK = 64, POOL_BLOCKS = 16 };

/* Key number i; the first half of them is put into the pool. */
static inline kvcl_key_t known_key(unsigned i)
{
    kvcl_key_t key;

    memset(&key, (int)(i % KNOWN) + 1, sizeof(key));
    return key;
}

/* cache: blocks of BLOCK bytes. Returns the first error. */
static inline kvcl_status_t open_store(kvcl_comm_h comm, kvcl_cache_h cache, kvcl_store_h *store_p)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_key_t          keys[KNOWN / 2];
    uint32_t            ids[KNOWN / 2];
    kvcl_req_h          req = NULL;
    kvcl_status_t       status;
    unsigned            i;

    params.dir_entries = 256;
    params.dram_bytes  = (uint64_t)POOL_BLOCKS * BLOCK;
    params.block_bytes = BLOCK;
    status             = kvcl_store_open(comm, &params, store_p);
    for (i = 0; i < KNOWN / 2; ++i) {
        keys[i] = known_key(i);
        ids[i]  = i;
    }
    if (status == KVCL_OK) {
        status = kvcl_store_put(*store_p, keys, KNOWN / 2, cache, ids, NULL, &req);
    }
    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

/* The n-th kind that has a row, from 0 and round again. */
static inline uint8_t kind_number(uint8_t n)
{
    const kvcl_rpc_kind_t *kinds = kvcl_rpc_kinds();
    unsigned              rows = 0, i;

    for (i = 0; i < KVCL_RPC_KINDS; ++i) {
        rows += (kinds[i].name != NULL);
    }
    n = (uint8_t)(n % rows);
    for (i = 0; (kinds[i].name == NULL) || (n-- > 0); ++i) {
    }
    return (uint8_t)i;
}

static inline bool is_dir_kind(uint8_t kind)
{
    return (kind == KVCL_RPC_PUBLISH) || (kind == KVCL_RPC_REMOVE) || (kind == KVCL_RPC_LOOKUP);
}

/* Heads of requests about a rank's own part. Those of pins and discards end with a u64, the number of items. */
enum { PIN_HEAD = 32, DISCARD_HEAD = 16, EVENTS_HEAD = 24, OTHER_HEAD = 16 };

static inline size_t item_bytes(uint8_t kind)
{
    if (is_dir_kind(kind)) {
        return (kind == KVCL_RPC_LOOKUP) ? KVCL_DIR_KEY_BYTES : KVCL_DIR_REC_BYTES;
    }
    if ((kind == KVCL_RPC_PIN) || (kind == KVCL_RPC_DISCARD)) {
        return (kind == KVCL_RPC_PIN) ? KVCL_DIR_KEY_BYTES : KVCL_DIR_REC_BYTES;
    }
    return (kvcl_rpc_kinds()[kind].item_bytes > 0) ? kvcl_rpc_kinds()[kind].item_bytes : 1;
}

static inline size_t head_bytes(uint8_t kind)
{
    switch (kind) {
    case KVCL_RPC_PUBLISH:
    case KVCL_RPC_REMOVE:
    case KVCL_RPC_LOOKUP:
        return KVCL_DIR_MSG_HEADER_BYTES;
    case KVCL_RPC_PIN:
        return PIN_HEAD;
    case KVCL_RPC_DISCARD:
        return DISCARD_HEAD;
    case KVCL_RPC_EVENTS:
        return EVENTS_HEAD;
    case KVCL_RPC_LIST:
    case KVCL_RPC_QUOTA:
    case KVCL_RPC_CLEAR:
        return OTHER_HEAD;
    default:
        return kvcl_rpc_kinds()[kind].head_bytes;
    }
}

/* Of a request whose length is fixed: no items follow its head. */
static inline bool is_fixed(uint8_t kind)
{
    return (kvcl_rpc_kinds()[kind].op != NULL) && (kind != KVCL_RPC_PIN) && (kind != KVCL_RPC_DISCARD);
}

/* Items that begin with a byte below 0x80 get a known key, and records a location in the pool. */
static inline void plausible_items(uint8_t kind, uint8_t *items, uint32_t n)
{
    size_t         size = item_bytes(kind);
    kvcl_dir_loc_t loc;
    kvcl_key_t     key;

    for (; (n > 0) && (size >= KVCL_DIR_KEY_BYTES); --n, items += size) {
        if (items[0] >= 0x80) {
            continue;
        }
        key = known_key(items[0]);
        memcpy(items, &key, sizeof(key));
        if (size == KVCL_DIR_REC_BYTES) {
            memcpy(&loc, items + KVCL_DIR_KEY_BYTES, sizeof(loc));
            loc.rank    = 0;
            loc.cache   = (uint16_t)(loc.cache % 4);
            loc.slot   %= POOL_BLOCKS + 2;
            loc.len     = (loc.len & 1) ? BLOCK : loc.len % (2 * BLOCK);
            loc.gen     = 1 + loc.gen % 8;
            loc.flags  &= 0xff;
            memcpy(items + KVCL_DIR_KEY_BYTES, &loc, sizeof(loc));
        }
    }
}

/* The numbers beside the items: the header of dir_wire.h, the count of a pin or a discard, the bytes of a fetch's
 * blocks (behind its keys). */
static inline void plausible_head(uint8_t kind, uint8_t *payload, uint32_t n, uint32_t len)
{
    static const uint8_t types[] = {[KVCL_RPC_PUBLISH] = KVCL_DIR_MSG_PUBLISH, [KVCL_RPC_REMOVE] = KVCL_DIR_MSG_REMOVE,
                                    [KVCL_RPC_LOOKUP]  = KVCL_DIR_MSG_LOOKUP};
    uint64_t             count   = n;

    if (!is_dir_kind(kind)) {
        if (kind == KVCL_RPC_FETCH) {
            count = (n > 0) ? 1 + payload[len - 1] % (2 * BLOCK) : 0;
            memcpy(payload + len - sizeof(count), &count, sizeof(count));
        } else if ((kind == KVCL_RPC_PIN) || (kind == KVCL_RPC_DISCARD)) {
            memcpy(payload + head_bytes(kind) - sizeof(count), &count, sizeof(count));
        }
        return;
    }
    payload[0] = KVCL_DIR_MSG_MAGIC & 0xff;
    payload[1] = KVCL_DIR_MSG_MAGIC >> 8;
    payload[2] = KVCL_DIR_MSG_VERSION;
    payload[3] = types[kind];
    memcpy(payload + 4, &len, sizeof(len));
    memcpy(payload + 24, &n, sizeof(n));
    memset(payload + 28, 0, 4);
}

/* A request of any kind; deep: its payload and n fit, at most *len_p bytes of it are used. */
static inline void plausible_request(kvcl_msg_dir_request_t *request, const kvcl_store_h store, bool deep,
                                     uint8_t *payload, size_t *len_p)
{
    uint8_t  kind = kind_number(request->msg.flags);
    size_t   head = head_bytes(kind), size = item_bytes(kind);
    uint32_t n    = (*len_p > head) && !is_fixed(kind) ? (uint32_t)((*len_p - head) / size) : 0;

    request->msg.flags = kind;
    request->store     = store->id;
    request->rank      = 0;
    request->n         = n;
    if (deep && (*len_p >= head)) {
        *len_p = head + ((size_t)n * size);
        plausible_items(kind, payload + ((kind == KVCL_RPC_FETCH) ? 0 : head), n);
        plausible_head(kind, payload, n, (uint32_t)*len_p);
    }
}

/* ---- requests of the context's own ---- */

static inline void own_done(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    uint8_t sum = 0;
    size_t  i;

    for (i = 0; (status == KVCL_OK) && (i < len); ++i) { /* a sanitizer detects a length that is not there */
        sum ^= ((const uint8_t *)data)[i];
    }
    *(volatile uint8_t *)rpc->arg = sum;
}

/* Sends itself a request of the n-th kind about two known keys. Lock held. False: no memory. */
static inline bool post_own(kvcl_store_h store, kvcl_peer_t *self, uint8_t number)
{
    static uint8_t sink;
    uint8_t        kind = kind_number(number);
    size_t         head = head_bytes(kind), size = item_bytes(kind);
    kvcl_rpc_t     *rpc;

    if (kind == KVCL_RPC_USED) { /* it has no answer */
        return true;
    }
    rpc = kvcl_rpc_new(store, 0, kind, head + 2 * size);
    if (rpc == NULL) {
        return false;
    }
    rpc->peer = self;
    rpc->done = own_done;
    rpc->arg  = &sink;
    rpc->n    = 2;
    rpc->len  = head + (2 * size);
    memset(rpc->payload, 0, rpc->len);
    plausible_items(kind, rpc->payload + ((kind == KVCL_RPC_FETCH) ? 0 : head), 2);
    plausible_head(kind, rpc->payload, 2, (uint32_t)rpc->len);
    kvcl_rpc_post(rpc, KVCL_WAIT_FOREVER, NULL);
    return true;
}

#endif
