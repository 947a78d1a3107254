/*
 * Blocks on their way into the tier, what is known of those it holds, and forgetting them.
 *
 * Blocks' bytes are copied into the staging chunks without the lock, between reserve and commit, several blocks side by
 * side (weave/blocks.h): past the caches if they are a large transfer, for then only the disk reads them, unless the
 * tail of a file with a key is made from that copy.
 */
#include "config.h"

#include "base/error.h"
#include "tier/tier_impl.h"
#include "weave/blocks.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

static kvcl_tier_waiter_t *new_waiter(kvcl_tier_cb_t cb, void *arg)
{
    kvcl_tier_waiter_t *waiter = malloc(sizeof(*waiter));

    if (waiter != NULL) {
        waiter->cb  = cb;
        waiter->arg = arg;
    }
    return waiter;
}

/* Waiters are sorted by ticket; appends may commit in another order. */
static void add_waiter(kvcl_list_t *waiters, kvcl_tier_waiter_t *waiter)
{
    kvcl_list_t *at = waiters;

    while ((at->prev != waiters) && (kvcl_container_of(at->prev, kvcl_tier_waiter_t, link)->ticket > waiter->ticket)) {
        at = at->prev;
    }
    kvcl_list_insert_before(at, &waiter->link);
}

/* GROUP blocks at most are copied together; four at least, more until they have KVCL_BULK_PROBE bytes. */
enum { GROUP = 16, GROUP_LEAST = 4 };

/* Where a block's bytes go. */
typedef struct place {
    kvcl_seglog_put_t put;
    kvcl_tier_block_t *block;
    struct iovec      data[KVCL_SEGLOG_CHUNKS_MAX + 1]; /* the data's part of put.frag */
    unsigned          n;
} place_t;

static void find_data(place_t *place)
{
    size_t left = place->put.loc.len;

    for (place->n = 0; left > 0; ++place->n) {
        const kvcl_seglog_frag_t *frag = &place->put.frag[place->n];

        place->data[place->n] = (struct iovec){frag->ptr, (frag->len < left) ? frag->len : left};
        left                 -= place->data[place->n].iov_len;
    }
}

/* The tail behind the data: a nonce, and the tag. */
static void put_tail(kvcl_tier_t *tier, const place_t *place)
{
    uint8_t  tail[KVCL_SEG_TAIL];
    size_t   len, k, done = 0;
    unsigned i;

    kvcl_tier_nonce(tier, tail);
    kvcl_tier_key_tag(&tier->key, &tier->file.super, place->block->key, &place->put.loc, tail, place->data, place->n,
                      tail + KVCL_TIER_NONCE);
    for (i = 0; i < place->put.n; ++i) {
        len = (i < place->n) ? place->data[i].iov_len : 0;
        k   = place->put.frag[i].len - len;
        kvcl_copy_bytes(place->put.frag[i].ptr + len, tail + done, k);
        done += k;
    }
}

static void fill(kvcl_tier_t *tier, place_t *places, unsigned n, kvcl_bulk_how_t *how_p)
{
    kvcl_weave_block_t copies[GROUP];
    uint64_t           bytes = 0, begun = kvcl_bulk_part_begin(*how_p);
    unsigned           i;

    for (i = 0; i < n; ++i) {
        const kvcl_tier_block_t *block = places[i].block;

        copies[i] = (kvcl_weave_block_t){.src = block->bytes, .len = block->len, .dst = places[i].data,
                                         .n_dst = places[i].n, .summing = !block->summed};
        bytes    += block->len;
    }
    kvcl_blocks_copy(copies, n, (*how_p == KVCL_BULK_LARGE) && !tier->keyed);
    *how_p = kvcl_bulk_part_end(*how_p, bytes, begun);
    for (i = 0; i < n; ++i) {
        if (copies[i].summing) {
            places[i].block->checksum = places[i].block->loc.checksum = places[i].put.loc.checksum = copies[i].sum;
        }
        if (tier->keyed) {
            put_tail(tier, &places[i]);
        }
    }
}

/* Lock held. */
static kvcl_status_t reserve(kvcl_tier_t *tier, const kvcl_tier_block_t *block, kvcl_seglog_put_t *put)
{
    kvcl_tier_loc_t have;

    if (tier->closing) {
        return KVCL_ERR_IO;
    }
    if (block->summed && (kvcl_seglog_find(&tier->log, block->key, &have) == KVCL_OK) && (have.len == block->len) &&
        (have.checksum == block->checksum)) {
        put->loc = have;
        return KVCL_ERR_EXISTS;
    }
    return kvcl_seglog_reserve(&tier->log, block->key, (uint32_t)((block->len > UINT32_MAX) ? UINT32_MAX : block->len),
                               block->summed ? block->checksum : 0, put);
}

/* Lock held. @return how many blocks have got places. */
static unsigned reserve_all(kvcl_tier_t *tier, kvcl_tier_block_t *blocks, unsigned n, place_t *places)
{
    bool     busy  = false;
    unsigned found = 0, i;

    for (i = 0; i < n; ++i) {
        blocks[i].status = busy ? KVCL_ERR_BUSY : reserve(tier, &blocks[i], &places[found].put);
        busy             = (blocks[i].status == KVCL_ERR_BUSY);
        if ((blocks[i].status == KVCL_OK) || (blocks[i].status == KVCL_ERR_EXISTS)) {
            blocks[i].loc = places[found].put.loc;
        }
        if (blocks[i].status == KVCL_OK) {
            places[found].block = &blocks[i];
            find_data(&places[found++]);
        }
    }
    return found;
}

/* At most GROUP blocks. still may be NULL. waiter is for the one block that has a place, and may be NULL. */
static void append_group(kvcl_tier_t *tier, kvcl_tier_block_t *blocks, unsigned n, kvcl_tier_still_t still,
                         kvcl_bulk_how_t *how_p, kvcl_tier_waiter_t *waiter)
{
    place_t  places[GROUP];
    unsigned i;

    pthread_mutex_lock(&tier->lock);
    n = reserve_all(tier, blocks, n, places);
    if (n == 0) {
        kvcl_tier_go_on(tier);
        return;
    }
    pthread_mutex_unlock(&tier->lock);
    fill(tier, places, n, how_p);
    for (i = 0; (still != NULL) && (i < n); ++i) {
        places[i].block->status = still(places[i].block->arg) ? KVCL_OK : KVCL_ERR_STALE;
    }
    pthread_mutex_lock(&tier->lock);
    for (i = 0; i < n; ++i) {
        if (places[i].block->status == KVCL_OK) {
            kvcl_seglog_commit(&tier->log, &places[i].put);
        } else {
            kvcl_seglog_abort(&tier->log, &places[i].put);
        }
    }
    if (waiter != NULL) {
        waiter->ticket = places[0].put.ticket;
        add_waiter(&tier->appends, waiter);
    }
    kvcl_tier_go_on(tier);
}

/* Of the blocks at the front, how many are copied together. */
static unsigned group_of(const kvcl_tier_block_t *blocks, unsigned n)
{
    uint64_t bytes = 0;
    unsigned i;

    for (i = 0; (i < n) && (i < GROUP) && ((i < GROUP_LEAST) || (bytes < KVCL_BULK_PROBE)); ++i) {
        bytes += blocks[i].len;
    }
    return i;
}

void kvcl_tier_append_all(kvcl_tier_t *tier, kvcl_tier_block_t *blocks, unsigned n, kvcl_tier_still_t still,
                          kvcl_bulk_how_t *how_p)
{
    unsigned at = 0, k;
    bool     busy = false;

    while ((at < n) && !busy) {
        k = group_of(blocks + at, n - at);
        append_group(tier, blocks + at, k, still, how_p, NULL);
        at  += k;
        busy = (blocks[at - 1].status == KVCL_ERR_BUSY);
    }
    for (; at < n; ++at) {
        blocks[at].status = KVCL_ERR_BUSY;
    }
}

kvcl_status_t kvcl_tier_append(kvcl_tier_t *tier, const uint8_t *key, uint64_t checksum, const void *bytes, size_t len,
                               kvcl_tier_cb_t cb, void *arg, kvcl_tier_loc_t *loc_p)
{
    kvcl_tier_waiter_t *waiter = (cb != NULL) ? new_waiter(cb, arg) : NULL;
    kvcl_tier_block_t  block   = {.key = key, .bytes = bytes, .len = len, .checksum = checksum, .summed = true};
    kvcl_bulk_how_t    how     = KVCL_BULK_CACHED;

    if ((cb != NULL) && (waiter == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an append");
    }
    append_group(tier, &block, 1, NULL, &how, waiter);
    if (block.status != KVCL_OK) {
        free(waiter);
    }
    if ((loc_p != NULL) && ((block.status == KVCL_OK) || (block.status == KVCL_ERR_EXISTS))) {
        *loc_p = block.loc;
    }
    return block.status;
}

kvcl_status_t kvcl_tier_drop(kvcl_tier_t *tier, const uint8_t *key)
{
    kvcl_status_t status;
    uint64_t      ticket;

    pthread_mutex_lock(&tier->lock);
    status = kvcl_seglog_drop(&tier->log, key, &ticket);
    kvcl_tier_go_on(tier);
    return status;
}

kvcl_status_t kvcl_tier_find(kvcl_tier_t *tier, const uint8_t *key, kvcl_tier_loc_t *loc_p)
{
    kvcl_status_t status = KVCL_ERR_NOT_FOUND;

    pthread_mutex_lock(&tier->lock);
    if (!tier->blind) {
        status = kvcl_seglog_find(&tier->log, key, loc_p);
    }
    pthread_mutex_unlock(&tier->lock);
    return status;
}

kvcl_status_t kvcl_tier_flush(kvcl_tier_t *tier, kvcl_tier_cb_t cb, void *arg)
{
    kvcl_tier_waiter_t *waiter = new_waiter(cb, arg);

    if (waiter == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a flush");
    }
    pthread_mutex_lock(&tier->lock);
    waiter->ticket = kvcl_seglog_flush(&tier->log);
    kvcl_list_add_tail(&tier->flushes, &waiter->link);
    kvcl_tier_go_on(tier);
    return KVCL_OK;
}

size_t kvcl_tier_walk(kvcl_tier_t *tier, uint64_t *it_p, kvcl_tier_item_t *items, size_t room)
{
    const uint8_t *key;
    size_t        n = 0;

    pthread_mutex_lock(&tier->lock);
    while ((n < room) && !tier->blind && kvcl_seglog_walk(&tier->log, it_p, &key, &items[n].loc)) {
        memcpy(items[n++].key, key, KVCL_SEG_KEY);
    }
    pthread_mutex_unlock(&tier->lock);
    return n;
}

void kvcl_tier_stats(kvcl_tier_t *tier, kvcl_tier_stats_t *stats)
{
    pthread_mutex_lock(&tier->lock);
    *stats           = tier->stats;
    stats->blocks    = tier->blind ? 0 : kvcl_map_count(&tier->log.index);
    stats->bytes     = tier->blind ? 0 : tier->log.live_bytes;
    stats->bytes_in  = tier->log.bytes_in;
    stats->bytes_out = tier->log.bytes_out;
    stats->segments  = tier->file.super.n;
    stats->direct    = tier->file.direct;
    stats->off       = tier->log.off || tier->blind;
    stats->io        = tier->io->ops->name;
    pthread_mutex_unlock(&tier->lock);
}
