/*
 * Blocks on their way into the tier, what is known of those it holds, and forgetting them.
 *
 * A block's bytes are copied into the staging chunks without the lock, between reserve and commit; the tail of a file
 * with a key is made from that copy.
 */
#include "config.h"

#include "base/error.h"
#include "tier/tier_impl.h"
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

typedef struct gather {
    const struct iovec *iov;
    size_t             at; /* in iov[0] */
} gather_t;

/* A kvcl_tier_fill_t over a gather_t: the next len bytes. */
static bool copy_in(void *arg, uint8_t *dst, uint64_t off, size_t len)
{
    gather_t *from = arg;

    (void)off;
    while (len > 0) {
        size_t k = from->iov->iov_len - from->at;

        k = (k < len) ? k : len;
        kvcl_copy_bytes(dst, (const uint8_t *)from->iov->iov_base + from->at, k);
        dst      += k;
        len      -= k;
        from->at += k;
        if (from->at == from->iov->iov_len) {
            ++from->iov;
            from->at = 0;
        }
    }
    return true;
}

/* The data's part of fragment i, which begins at off. */
static size_t data_of(const kvcl_seglog_put_t *put, unsigned i, uint64_t off)
{
    uint64_t left = (off < put->loc.len) ? put->loc.len - off : 0;

    return (put->frag[i].len < left) ? put->frag[i].len : left;
}

/* The tail of the data in frag[]: a nonce, and the tag. */
static void put_tail(kvcl_tier_t *tier, const uint8_t *key, const kvcl_seglog_put_t *put)
{
    struct iovec data[KVCL_SEGLOG_CHUNKS_MAX + 1];
    uint8_t      tail[KVCL_SEG_TAIL];
    uint64_t     off = 0;
    size_t       len, k, done = 0;
    unsigned     i;

    for (i = 0; i < put->n; ++i) {
        data[i] = (struct iovec){put->frag[i].ptr, data_of(put, i, off)};
        off    += put->frag[i].len;
    }
    kvcl_tier_nonce(tier, tail);
    kvcl_tier_key_tag(&tier->key, &tier->file.super, key, &put->loc, tail, data, put->n, tail + KVCL_TIER_NONCE);
    for (i = 0; i < put->n; ++i) {
        len = data[i].iov_len;
        k   = put->frag[i].len - len;
        kvcl_copy_bytes(put->frag[i].ptr + len, tail + done, k);
        done += k;
    }
}

static bool fill_all(kvcl_tier_t *tier, const uint8_t *key, const kvcl_seglog_put_t *put, kvcl_tier_fill_t fill,
                     void *arg)
{
    uint64_t off  = 0;
    size_t   len;
    bool     good = true;
    unsigned i;

    for (i = 0; good && (i < put->n); ++i) {
        len  = data_of(put, i, off);
        good = (len == 0) || fill(arg, put->frag[i].ptr, off, len);
        off += put->frag[i].len;
    }
    if (good && tier->keyed) {
        put_tail(tier, key, put);
    }
    return good;
}

static uint64_t iov_bytes(const struct iovec *iov, unsigned n)
{
    uint64_t bytes = 0;
    unsigned i;

    for (i = 0; i < n; ++i) {
        bytes = (iov[i].iov_len > UINT32_MAX) ? UINT64_MAX / 2 : bytes + iov[i].iov_len;
    }
    return bytes;
}

/* Lock held. */
static kvcl_status_t reserve(kvcl_tier_t *tier, const uint8_t *key, uint64_t len, uint64_t checksum,
                             kvcl_seglog_put_t *put)
{
    kvcl_tier_loc_t have;

    if (tier->closing) {
        return KVCL_ERR_IO;
    }
    if ((kvcl_seglog_find(&tier->log, key, &have) == KVCL_OK) && (have.len == len) && (have.checksum == checksum)) {
        put->loc = have;
        return KVCL_ERR_EXISTS;
    }
    return kvcl_seglog_reserve(&tier->log, key, (uint32_t)((len > UINT32_MAX) ? UINT32_MAX : len), checksum, put);
}

kvcl_status_t kvcl_tier_append_by(kvcl_tier_t *tier, const uint8_t *key, uint64_t checksum, uint64_t len,
                                  kvcl_tier_fill_t fill, void *fill_arg, kvcl_tier_cb_t cb, void *arg,
                                  kvcl_tier_loc_t *loc_p)
{
    kvcl_tier_waiter_t *waiter = (cb != NULL) ? new_waiter(cb, arg) : NULL;
    kvcl_seglog_put_t  put;
    kvcl_status_t      status;
    bool               good;

    if ((cb != NULL) && (waiter == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an append");
    }
    pthread_mutex_lock(&tier->lock);
    status = reserve(tier, key, len, checksum, &put);
    if (((status == KVCL_OK) || (status == KVCL_ERR_EXISTS)) && (loc_p != NULL)) {
        *loc_p = put.loc;
    }
    if (status != KVCL_OK) {
        free(waiter);
        kvcl_tier_go_on(tier);
        return status;
    }
    pthread_mutex_unlock(&tier->lock);
    good = fill_all(tier, key, &put, fill, fill_arg);
    pthread_mutex_lock(&tier->lock);
    if (good) {
        kvcl_seglog_commit(&tier->log, &put);
    } else {
        kvcl_seglog_abort(&tier->log, &put);
        status = KVCL_ERR_STALE;
    }
    if (good && (waiter != NULL)) {
        waiter->ticket = put.ticket;
        add_waiter(&tier->appends, waiter);
    } else {
        free(waiter);
    }
    kvcl_tier_go_on(tier);
    return status;
}

kvcl_status_t kvcl_tier_append(kvcl_tier_t *tier, const uint8_t *key, uint64_t checksum, const struct iovec *iov,
                               unsigned n_iov, kvcl_tier_cb_t cb, void *arg, kvcl_tier_loc_t *loc_p)
{
    gather_t from = {.iov = iov};

    return kvcl_tier_append_by(tier, key, checksum, iov_bytes(iov, n_iov), copy_in, &from, cb, arg, loc_p);
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
