/*
 * Puts and gets of blocks whose bytes follow from their names (blocks.h). Every call has a deadline, and its end is
 * compared with it. One thread.
 */
#include "blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { UNIT = 4096, HERE = 0, THERE = 1, IDS = 2 };

uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ((uint64_t)ts.tv_sec * 1000000000u) + (uint64_t)ts.tv_nsec;
}

static void key_of(const name_t *name, kvcl_key_t *key)
{
    char text[80];
    int  len = snprintf(text, sizeof(text), "nemesis %" PRIu32 " %" PRIu32 " %" PRIu32, name->slot, name->life,
                        name->number);

    kvcl_key_from_string(text, (size_t)len, key);
}

static unsigned char byte_of(const kvcl_key_t *key, size_t i)
{
    return (unsigned char)(key->bytes[i % 32] + (i / 32));
}

static unsigned char *bytes_at(const blocks_t *blocks, uint32_t id)
{
    return (unsigned char *)kvcl_cache_base(blocks->cache, 0) + ((size_t)id * UNIT);
}

kvcl_status_t blocks_open(blocks_t *blocks, kvcl_context_h ctx, kvcl_comm_h comm, uint64_t pool_bytes,
                          uint64_t replicas, bool comes)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(IDS, UNIT);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    params.flags       = comes ? KVCL_STORE_JOIN : 0;
    params.dram_bytes  = pool_bytes;
    params.block_bytes = UNIT;
    params.replicas    = replicas;
    params.dir_entries = 1u << 16;
    if (blocks->cache == NULL) {
        KVCL_TRY(kvcl_cache_create(ctx, "nemesis", &layout, NULL, &blocks->cache));
    }
    return kvcl_store_open(comm, &params, &blocks->store);
}

void blocks_ended(const blocks_t *blocks, tally_t *tally, const char *what, kvcl_status_t status, uint64_t began_ns,
                  uint64_t deadline_ns)
{
    uint64_t took = now_ns() - began_ns, over = (took > deadline_ns) ? (took - deadline_ns) : 0;

    ++tally->calls;
    tally->ok     += (status == KVCL_OK);
    tally->misses += (status == KVCL_ERR_NOT_FOUND);
    tally->worst_ns = (over > tally->worst_ns) ? over : tally->worst_ns;
    if (over > blocks->slack_ns) {
        ++tally->late;
    }
    if ((over > blocks->slack_ns) || ((status != KVCL_OK) && (status != KVCL_ERR_NOT_FOUND))) {
        printf("{\"what\": \"failed\", \"call\": \"%s\", \"status\": \"%s\", \"ms\": %.1f, \"over_ms\": %.1f}\n", what,
               kvcl_status_name(status), (double)took / 1e6, (double)over / 1e6);
    }
}

kvcl_status_t blocks_put(blocks_t *blocks, const name_t *name, uint8_t *copies_p)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const uint32_t     id     = HERE;
    kvcl_req_h         req;
    kvcl_status_t      status;
    kvcl_key_t         key;
    uint64_t           began;
    size_t             i;

    key_of(name, &key);
    for (i = 0; i < UNIT; ++i) {
        bytes_at(blocks, id)[i] = byte_of(&key, i);
    }
    *copies_p         = 0;
    params.copies     = copies_p;
    params.timeout_ns = blocks->timeout_ns;
    began             = now_ns();
    status            = kvcl_store_put(blocks->store, &key, 1, blocks->cache, &id, &params, &req);
    status            = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    blocks_ended(blocks, &blocks->put, "put", status, began, blocks->timeout_ns);
    return status;
}

kvcl_status_t blocks_get(blocks_t *blocks, const name_t *name)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const uint32_t     id     = THERE;
    kvcl_req_h         req;
    kvcl_status_t      status;
    kvcl_key_t         key;
    uint64_t           began, wrong = 0;
    size_t             i;

    key_of(name, &key);
    memset(bytes_at(blocks, id), 0, UNIT);
    params.timeout_ns = blocks->timeout_ns;
    began             = now_ns();
    status            = kvcl_store_get(blocks->store, &key, 1, blocks->cache, &id, NULL, &params, &req);
    status            = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    blocks_ended(blocks, &blocks->get, "get", status, began, blocks->timeout_ns);
    for (i = 0; (status == KVCL_OK) && (i < UNIT); ++i) {
        wrong += (bytes_at(blocks, id)[i] != byte_of(&key, i));
    }
    if (wrong != 0) {
        ++blocks->get.wrong;
        printf("{\"what\": \"wrong\", \"slot\": %" PRIu32 ", \"life\": %" PRIu32 ", \"number\": %" PRIu32
               ", \"bytes\": %" PRIu64 "}\n", name->slot, name->life, name->number, wrong);
    }
    return status;
}

int blocks_copies(blocks_t *blocks, const name_t *name)
{
    kvcl_store_places_t places;
    kvcl_status_t       status;
    kvcl_key_t          key;

    key_of(name, &key);
    status = kvcl_store_where(blocks->store, &key, 1, &places, sizeof(places), NULL);
    return (status == KVCL_OK) ? (int)places.n : 0;
}
