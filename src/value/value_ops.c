/*
 * What is known of values: their heads, sizes and keys; and their removal. These block.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "req/timeout.h"
#include "store/admin/ops.h"
#include "value/value.h"

#include <stdlib.h>

enum { HEADS_BYTES = 16 << 20, DROP_KEYS = 4096 };

/* ---- heads ---- */

typedef struct wait {
    kvcl_context_h ctx;
    bool           over;
} wait_t;

static void on_got(void *arg, kvcl_status_t status)
{
    wait_t *wait = arg;

    (void)status; /* each block has its own */
    kvcl_lock(wait->ctx);
    wait->over = true;
    kvcl_engine_notify(wait->ctx);
    kvcl_unlock(wait->ctx);
}

static bool is_over(void *arg)
{
    return ((const wait_t *)arg)->over;
}

/* Blocks of these records, into a buffer; each has its status. */
static kvcl_status_t get_blocks(kvcl_store_h store, const kvcl_store_rec_t *recs, const uint32_t *ids, size_t n,
                                uint8_t *buf, kvcl_status_t *status, uint64_t deadline_ns)
{
    kvcl_view_t   view = {.base = (uintptr_t)buf};
    wait_t        wait = {.ctx = store->ctx};
    kvcl_req_t    *req;
    kvcl_status_t result;

    view.cache = (struct kvcl_cache){.ctx = store->ctx, .name = "plain memory", .bases = &view.base};
    result     = kvcl_view_shape(kvcl_value_block(store), &view.cache.shape);
    if (result != KVCL_OK) {
        return result;
    }
    kvcl_lock(store->ctx);
    result = store->closing ? KVCL_ERR_SHUTDOWN
                            : kvcl_get_recs(store, recs, n, &view.cache, ids, status, NULL,
                                            kvcl_deadline_left(deadline_ns) + 1, false, on_got, &wait, &req);
    kvcl_unlock(store->ctx);
    while ((result == KVCL_OK) && /* it has a deadline */
           !kvcl_engine_wait(store->ctx, is_over, &wait, kvcl_deadline_after(KVCL_NS_PER_SEC))) {
    }
    return result;
}

/* As many as have room in buf. */
static kvcl_status_t some_heads(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *buf,
                                kvcl_store_rec_t *recs, uint32_t *ids, kvcl_value_head_t *heads, kvcl_status_t *status,
                                uint64_t deadline_ns)
{
    uint64_t      block = kvcl_value_block(store);
    kvcl_status_t result;
    size_t        i;

    memset(recs, 0, n * sizeof(*recs));
    for (i = 0; i < n; ++i) {
        kvcl_store_value_key(&keys[i], &recs[i].key);
        ids[i] = (uint32_t)i;
    }
    result = get_blocks(store, recs, ids, n, buf, status, deadline_ns);
    for (i = 0; (result == KVCL_OK) && (i < n); ++i) {
        if ((status[i] == KVCL_OK) && !kvcl_value_head_read(buf + (i * block), block, &keys[i], &heads[i])) {
            status[i] = KVCL_ERR_NOT_FOUND;
        }
    }
    return result;
}

/* Those without a head may be plain blocks. */
static kvcl_status_t look_plain(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_value_head_t *heads,
                                kvcl_status_t *status, uint64_t deadline_ns)
{
    kvcl_found_t  *found;
    kvcl_status_t result = KVCL_ERR_NO_MEMORY;
    size_t        i;
    unsigned      j;

    for (i = 0; (i < n) && (status[i] != KVCL_ERR_NOT_FOUND); ++i) {
    }
    if (i == n) {
        return KVCL_OK;
    }
    found = malloc(n * sizeof(*found));
    if (found != NULL) {
        result = kvcl_locate(store, keys, n, found, kvcl_deadline_left(deadline_ns) + 1);
    }
    for (i = 0; (result == KVCL_OK) && (i < n); ++i) {
        for (j = 0; (status[i] == KVCL_ERR_NOT_FOUND) && (j < found[i].n); ++j) {
            if (found[i].locs[j].len == kvcl_value_block(store)) {
                heads[i]  = (kvcl_value_head_t){.bytes = kvcl_value_block(store), .key = keys[i]};
                status[i] = KVCL_OK;
            }
        }
    }
    free(found);
    return result;
}

kvcl_status_t kvcl_value_heads(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_value_head_t *heads,
                               kvcl_status_t *status, uint64_t deadline_ns)
{
    uint64_t         block = kvcl_value_block(store), most = (block != 0) ? HEADS_BYTES / block : 0;
    kvcl_store_rec_t *recs;
    uint32_t         *ids;
    uint8_t          *buf;
    kvcl_status_t    result = KVCL_OK;
    size_t           from, some, i;

    for (i = 0; i < n; ++i) {
        status[i] = KVCL_ERR_NOT_FOUND;
    }
    if ((block == 0) || (n == 0)) {
        return KVCL_OK;
    }
    most = (most == 0) ? 1 : (most < n) ? most : n;
    buf  = malloc(most * block);
    recs = malloc(most * (sizeof(*recs) + sizeof(*ids)));
    if ((buf == NULL) || (recs == NULL)) {
        free(buf);
        free(recs);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to look at %zu values", n);
    }
    ids = (uint32_t *)(void *)(recs + most);
    for (from = 0; (from < n) && (result == KVCL_OK); from += some) {
        some   = (n - from < most) ? n - from : most;
        result = some_heads(store, keys + from, some, buf, recs, ids, heads + from, status + from, deadline_ns);
        if (result == KVCL_OK) {
            result = look_plain(store, keys + from, some, heads + from, status + from, deadline_ns);
        }
    }
    free(buf);
    free(recs);
    return result;
}

/* ---- parts ---- */

/* No lock. The keys of a value's parts; NULL: no memory. */
static kvcl_key_t *part_keys(const kvcl_value_head_t *head, uint64_t from, uint64_t n)
{
    kvcl_key_t *keys = malloc((n + 1) * sizeof(*keys)), seed;
    uint64_t   i;

    if (keys != NULL) {
        kvcl_value_seed(head, &seed);
        for (i = 0; i < n; ++i) {
            kvcl_value_part_key(&seed, from + i, &keys[i]);
        }
    }
    return keys;
}

void kvcl_value_drop_parts(kvcl_store_h store, const kvcl_value_head_t *head)
{
    kvcl_key_t *keys;
    uint64_t   from, n;

    for (from = 0; from < head->parts; from += n) {
        n    = (head->parts - from < DROP_KEYS) ? head->parts - from : DROP_KEYS;
        keys = part_keys(head, from, n);
        if (keys != NULL) {
            (void)!kvcl_store_remove(store, keys, n, NULL, NULL); /* else they are evicted some time */
        }
        free(keys);
    }
}

bool kvcl_value_has_parts(kvcl_store_h store, const kvcl_value_head_t *head, uint64_t deadline_ns)
{
    enum { SOME = 4096 };
    kvcl_xfer_params_t p        = {.size = sizeof(p)};
    uint8_t            *present = malloc(SOME);
    bool               all      = (present != NULL);
    kvcl_key_t         *keys;
    uint64_t           from, n;

    for (from = 0; all && (from < head->parts); from += n) {
        n            = (head->parts - from < SOME) ? head->parts - from : SOME;
        keys         = part_keys(head, from, n);
        p.timeout_ns = kvcl_deadline_left(deadline_ns) + 1;
        all          = (keys != NULL) && (kvcl_store_exists(store, keys, n, present, &p) == KVCL_OK) &&
              (memchr(present, 0, n) == NULL);
        free(keys);
    }
    free(present);
    return all;
}

/* ---- the calls ---- */

static kvcl_status_t begin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const char *call,
                           uint64_t *timeout_ns, kvcl_value_head_t **heads_p, kvcl_status_t **status_p)
{
    kvcl_status_t result = kvcl_store_check(store, keys, n, call);

    if (result == KVCL_OK) {
        result = kvcl_call_timeout(store->ctx, *timeout_ns, call, timeout_ns);
    }
    if (result != KVCL_OK) {
        return result;
    }
    *heads_p = calloc(n + 1, sizeof(**heads_p) + sizeof(**status_p));
    if (*heads_p == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", call, n);
    }
    *status_p = (kvcl_status_t *)(void *)(*heads_p + n + 1);
    result    = kvcl_store_hold(store);
    if (result != KVCL_OK) {
        free(*heads_p);
    }
    return result;
}

static void end(kvcl_store_h store, kvcl_value_head_t *heads)
{
    free(heads);
    kvcl_store_release(store);
}

kvcl_status_t kvcl_store_value_sizes(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t *bytes,
                                     kvcl_status_t *status, uint64_t timeout_ns)
{
    kvcl_value_head_t *heads;
    kvcl_status_t     *found, result, first = KVCL_OK;
    size_t            i;

    if ((bytes == NULL) && (n != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_value_sizes: bytes is NULL");
    }
    result = begin(store, keys, n, "kvcl_store_value_sizes", &timeout_ns, &heads, &found);
    if (result != KVCL_OK) {
        return result;
    }
    result = kvcl_value_heads(store, keys, n, heads, found, kvcl_deadline_after(timeout_ns));
    for (i = 0; (result == KVCL_OK) && (i < n); ++i) {
        bytes[i] = (found[i] == KVCL_OK) ? heads[i].bytes : 0;
        first    = (first == KVCL_OK) ? found[i] : first;
        if (status != NULL) {
            status[i] = found[i];
        }
    }
    end(store, heads);
    return (result == KVCL_OK) ? first : result;
}

kvcl_status_t kvcl_store_value_keys(kvcl_store_h store, const kvcl_key_t *key, kvcl_key_t *keys, size_t cap,
                                    size_t *n_p, uint64_t timeout_ns)
{
    kvcl_value_head_t *heads;
    kvcl_status_t     *found, result;
    kvcl_key_t        seed, own;
    uint64_t          i;

    if ((n_p == NULL) || ((keys == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_value_keys: n_p is NULL, or keys");
    }
    result = begin(store, key, 1, "kvcl_store_value_keys", &timeout_ns, &heads, &found);
    if (result != KVCL_OK) {
        return result;
    }
    result = kvcl_value_heads(store, key, 1, heads, found, kvcl_deadline_after(timeout_ns));
    result = (result == KVCL_OK) ? found[0] : result;
    if (result == KVCL_OK) {
        *n_p = 1 + (size_t)heads[0].parts;
        own  = *key;
        if (!kvcl_value_is_plain(&heads[0])) {
            kvcl_store_value_key(key, &own);
            kvcl_value_seed(&heads[0], &seed);
        }
        for (i = 0; (i < cap) && (i < *n_p); ++i) {
            if (i == 0) {
                keys[0] = own;
            } else {
                kvcl_value_part_key(&seed, i - 1, &keys[i]);
            }
        }
        result = (*n_p > cap) ? KVCL_ERR_NO_SPACE : KVCL_OK;
    }
    end(store, heads);
    return result;
}

kvcl_status_t kvcl_store_remove_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t timeout_ns)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_value_head_t  *heads;
    kvcl_key_t         *both = NULL;
    kvcl_status_t      *found, result;
    kvcl_req_h         req;
    uint64_t           deadline;
    size_t             i;

    result = begin(store, keys, n, "kvcl_store_remove_values", &timeout_ns, &heads, &found);
    if (result != KVCL_OK) {
        return result;
    }
    deadline = kvcl_deadline_after(timeout_ns);
    result   = kvcl_value_heads(store, keys, n, heads, found, deadline);
    both     = malloc(((2 * n) + 1) * sizeof(*both));
    result   = ((result == KVCL_OK) && (both == NULL)) ? KVCL_ERR_NO_MEMORY : result;
    for (i = 0; (result == KVCL_OK) && (i < n); ++i) {
        both[2 * i] = keys[i];
        kvcl_store_value_key(&keys[i], &both[(2 * i) + 1]);
    }
    if (result == KVCL_OK) {
        p.timeout_ns = kvcl_deadline_left(deadline) + 1;
        result       = kvcl_store_remove(store, both, 2 * n, &p, &req);
    }
    if (result == KVCL_OK) {
        result = kvcl_req_wait(req, KVCL_WAIT_FOREVER);
    }
    for (i = 0; (result == KVCL_OK) && (i < n); ++i) {
        if (found[i] == KVCL_OK) {
            kvcl_value_drop_parts(store, &heads[i]);
        }
    }
    free(both);
    end(store, heads);
    return result;
}
