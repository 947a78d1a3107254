/*
 * Puts of values by a rank without a pool: their blocks go to ranks that have pools (store/copy/put_far.h).
 *
 * The blocks are built in a small cache of the store's own, the stage, one lot at a time, and each lot is waited for.
 * So the call blocks, the values' memory may change when it returns, and parts are listed before the head that names
 * them. One put at a time owns the stage. A value that a rank holds already, with the same length and all of its parts,
 * is skipped.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/copy/put_far.h"
#include "store/home/call.h"
#include "value/value.h"

#include <stdio.h>
#include <stdlib.h>

enum { STAGE_BYTES = 8 << 20, STAGE_BLOCKS_MAX = 1024 };

/* A put in progress, inside its call. */
typedef struct far_put {
    kvcl_store_h             store;
    const kvcl_value_far_t   *of;
    kvcl_cache_h             stage;
    uint64_t                 block;   /* bytes of one */
    uint32_t                 room;    /* blocks of the stage */
    uint64_t                 deadline_ns;
    kvcl_value_head_t        *before; /* n: the values that the keys name now */
    kvcl_status_t            *found;  /* n */
    uint8_t                  *skip;   /* n */
    uint8_t                  *copies; /* room: copies of the blocks of one lot */
    uint32_t                 *ids;    /* room */
    kvcl_key_t               *keys;   /* room */
    uint32_t                 *item;   /* room: index of the value whose own block it is */
} far_put_t;

/* ---- the stage ---- */

static bool is_free(void *arg)
{
    kvcl_store_h store = arg;

    if (store->stage_taken) {
        return false;
    }
    store->stage_taken = true;
    return true;
}

static kvcl_status_t take_stage(far_put_t *put)
{
    kvcl_store_h  store  = put->store;
    uint64_t      n      = STAGE_BYTES / put->block;
    kvcl_layout_t layout;
    kvcl_status_t status = KVCL_OK;
    char          name[48];

    if (!kvcl_engine_wait(store->ctx, is_free, store, put->deadline_ns)) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "%s: another put of values by this rank ran until the deadline: put "
                         "them together, or with a longer timeout_ns", put->of->call);
    }
    n         = (n < STAGE_BLOCKS_MAX) ? n : STAGE_BLOCKS_MAX;
    put->room = (uint32_t)((n != 0) ? n : 1);
    if (store->stage == NULL) {
        layout = (kvcl_layout_t)KVCL_LAYOUT_BYTES(put->room, (uint32_t)put->block);
        snprintf(name, sizeof(name), "kvcl values of store %llx", (unsigned long long)store->id);
        status = kvcl_cache_create(store->ctx, name, &layout, NULL, &store->stage);
    }
    put->stage = store->stage;
    return status;
}

static void release_stage(kvcl_store_h store)
{
    kvcl_lock(store->ctx);
    store->stage_taken = false;
    kvcl_engine_notify(store->ctx);
    kvcl_unlock(store->ctx);
}

static uint8_t *block_at(const far_put_t *put, uint32_t id)
{
    uint64_t stride = put->stage->shape.block_stride;

    return (uint8_t *)put->stage->bases[0] + (id * ((stride != 0) ? stride : put->block));
}

/* Put the first n blocks of the stage under keys[], and wait. */
static kvcl_status_t put_lot(far_put_t *put, uint32_t n)
{
    const kvcl_xfer_params_t *p    = put->of->params;
    kvcl_xfer_params_t       inner = {.size = sizeof(inner), .flags = p->flags, .replicas = p->replicas,
                                      .tenant = p->tenant, .copies = put->copies,
                                      .timeout_ns = kvcl_deadline_left(put->deadline_ns) + 1};
    kvcl_req_h               req;
    kvcl_status_t            status;

    if (n == 0) {
        return KVCL_OK;
    }
    status = kvcl_put_far(put->store, put->keys, n, put->stage, put->ids, &inner, true, put->of->call, &req);
    return kvcl_call_wait(status, &req);
}

/* ---- a value ---- */

static kvcl_status_t put_parts(far_put_t *put, size_t i)
{
    const kvcl_value_head_t *head  = &put->of->heads[i];
    kvcl_value_at_t         at     = {.value = &put->of->values[i]};
    uint64_t                left   = head->bytes, from, n, len, j;
    kvcl_status_t           status = KVCL_OK;
    kvcl_key_t              seed;

    kvcl_value_seed(head, &seed);
    for (from = 0; (from < head->parts) && (status == KVCL_OK); from += n) {
        n = (head->parts - from < put->room) ? head->parts - from : put->room;
        for (j = 0; j < n; ++j) {
            len = (left < put->block) ? left : put->block;
            kvcl_value_read(&at, block_at(put, (uint32_t)j), len, NULL);
            memset(block_at(put, (uint32_t)j) + len, 0, put->block - len);
            kvcl_value_part_key(&seed, from + j, &put->keys[j]);
            left -= len;
        }
        kvcl_tenant_keys(put->of->for_tenant, put->keys, n);
        status = put_lot(put, (uint32_t)n);
    }
    return status;
}

/* Build the block under the value's own key. */
static void fill_own(const far_put_t *put, size_t i, uint32_t id)
{
    const kvcl_value_head_t *head = &put->of->heads[i];
    kvcl_value_at_t         at    = {.value = &put->of->values[i]};
    uint8_t                 *to   = block_at(put, id);
    uint64_t                used  = 0;

    put->keys[id] = head->key;
    if (!kvcl_value_is_plain(head)) {
        kvcl_store_value_key(&head->key, &put->keys[id]);
        memcpy(to, head, sizeof(*head));
        used = sizeof(*head);
    }
    kvcl_tenant_keys(put->of->for_tenant, &put->keys[id], 1);
    if (head->parts == 0) {
        kvcl_value_read(&at, to + used, head->bytes, NULL);
        used += head->bytes;
    }
    memset(to + used, 0, put->block - used);
}

static kvcl_status_t put_owns(far_put_t *put)
{
    uint8_t         *copies = put->of->params->copies;
    kvcl_status_t   first   = KVCL_OK, status;
    kvcl_sentence_t why     = {0};
    size_t          at      = 0;
    uint32_t        n, j;

    while (at < put->of->n) {
        for (n = 0; (at < put->of->n) && (n < put->room); ++at) {
            if (!put->skip[at]) {
                put->item[n] = (uint32_t)at;
                fill_own(put, at, n++);
            }
        }
        status = put_lot(put, n);
        if ((first == KVCL_OK) && (status != KVCL_OK)) {
            first = kvcl_value_put_failed(status, put->of->call, put->item[0], put->of->n,
                                          &put->of->heads[put->item[0]]);
            kvcl_sentence_keep(&why);
        }
        for (j = 0; (copies != NULL) && (j < n); ++j) {
            copies[put->item[j]] = put->copies[j];
        }
    }
    kvcl_sentence_report(&why);
    kvcl_sentence_free(&why);
    return first;
}

/* ---- what the keys name now ---- */

static kvcl_status_t read_before(far_put_t *put)
{
    const kvcl_value_far_t *of = put->of;
    kvcl_key_t             *keys = malloc(of->n * sizeof(*keys));
    kvcl_status_t          status;
    size_t                 i;

    if (keys == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", of->call, of->n);
    }
    for (i = 0; i < of->n; ++i) {
        keys[i] = of->heads[i].key;
    }
    status = kvcl_value_heads(put->store, of->for_tenant, keys, of->n, put->before, put->found, put->deadline_ns);
    for (i = 0; (status == KVCL_OK) && (i < of->n); ++i) {
        put->skip[i] = !of->instead && (put->found[i] == KVCL_OK) && (put->before[i].bytes == of->heads[i].bytes) &&
                       kvcl_value_has_parts(put->store, of->for_tenant, &put->before[i], put->deadline_ns);
        if (of->params->copies != NULL) {
            of->params->copies[i] = put->skip[i] ? 1 : 0; /* its number of copies was not queried */
        }
    }
    free(keys);
    return status;
}

/* Remove what the keys named so far, at every rank; drop() removes its parts afterwards. */
static kvcl_status_t leave(far_put_t *put)
{
    const kvcl_value_far_t *of    = put->of;
    kvcl_key_t             *keys  = malloc(2 * of->n * sizeof(*keys));
    kvcl_status_t          status = KVCL_OK;
    size_t                 n      = 0, i;

    if (keys == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", of->call, of->n);
    }
    for (i = 0; i < of->n; ++i) {
        if (!put->skip[i] && (of->instead || (put->found[i] == KVCL_OK))) {
            keys[n++] = of->heads[i].key;
            kvcl_store_value_key(&of->heads[i].key, &keys[n++]);
        }
    }
    if (n != 0) {
        kvcl_tenant_keys(of->for_tenant, keys, n);
        status = kvcl_discard_all(put->store, keys, n, kvcl_deadline_left(put->deadline_ns) + 1);
    }
    free(keys);
    return status;
}

static void drop(far_put_t *put, const kvcl_value_head_t *heads, bool found_only)
{
    size_t i;

    for (i = 0; i < put->of->n; ++i) {
        if (!put->skip[i] && (heads[i].parts != 0) && (!found_only || (put->found[i] == KVCL_OK))) {
            kvcl_value_drop_parts(put->store, put->of->for_tenant, &heads[i]);
        }
    }
}

static kvcl_status_t put_all(far_put_t *put)
{
    kvcl_sentence_t why    = {0};
    kvcl_status_t   status = read_before(put);
    bool            failed;
    size_t          i;

    for (i = 0; (status == KVCL_OK) && (i < put->of->n); ++i) {
        if (!put->skip[i] && (put->of->heads[i].parts != 0)) {
            status = put_parts(put, i);
            status = (status == KVCL_OK) ? KVCL_OK
                                         : kvcl_value_put_failed(status, put->of->call, i, put->of->n,
                                                                 &put->of->heads[i]);
        }
    }
    status = (status == KVCL_OK) ? leave(put) : status;
    failed = (status != KVCL_OK);
    status = failed ? status : put_owns(put);
    if (status != KVCL_OK) {
        kvcl_sentence_keep(&why); /* the removals below may fail as well */
    }
    drop(put, failed ? put->of->heads : put->before, !failed);
    kvcl_sentence_report(&why);
    kvcl_sentence_free(&why);
    return status;
}

/* ---- the call ---- */

static kvcl_status_t make(far_put_t *put)
{
    size_t   n = put->of->n;
    uint32_t i;

    put->before = calloc(n, sizeof(*put->before) + sizeof(*put->found) + sizeof(*put->skip));
    put->keys   = calloc(put->room, sizeof(*put->keys) + sizeof(*put->ids) + sizeof(*put->item) + sizeof(*put->copies));
    if ((put->before == NULL) || (put->keys == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu values", put->of->call, n);
    }
    put->found  = (kvcl_status_t *)(void *)(put->before + n);
    put->skip   = (uint8_t *)(put->found + n);
    put->ids    = (uint32_t *)(void *)(put->keys + put->room);
    put->item   = put->ids + put->room;
    put->copies = (uint8_t *)(put->item + put->room);
    for (i = 0; i < put->room; ++i) {
        put->ids[i] = i;
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_value_put_far(kvcl_store_h store, const kvcl_value_far_t *of, uint64_t deadline_ns,
                                 kvcl_req_h *req_p)
{
    far_put_t     put    = {.store = store, .of = of, .block = kvcl_value_block(store), .deadline_ns = deadline_ns};
    kvcl_status_t status = take_stage(&put);
    uint64_t      bytes  = 0;
    size_t        i;

    if (put.stage == NULL) {
        if (status != KVCL_ERR_TIMED_OUT) {
            release_stage(store);
        }
        return status;
    }
    status = make(&put);
    status = (status == KVCL_OK) ? put_all(&put) : status;
    release_stage(store);
    for (i = 0; (status == KVCL_OK) && (i < of->n); ++i) {
        bytes += put.skip[i] ? 0 : of->heads[i].bytes;
        if (of->params->status != NULL) {
            of->params->status[i] = KVCL_OK;
        }
    }
    free(put.before);
    free(put.keys);
    return (status == KVCL_OK) ? kvcl_req_instant(store->ctx, KVCL_OK, bytes, of->params, req_p) : status;
}
