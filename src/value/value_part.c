/*
 * Blocks of values into pools. Parts go first into this rank's pool, by the caller's thread. A run of parts that
 * belongs to another rank is then fetched by that rank as copies (copy/copy_jobs.c); once it has listed them, the local
 * ones are removed.
 *
 * A run is some MiB of a value's parts that go to one rank, so a get has several holders at work. A few runs are in
 * flight at a time, so a value needs room for these in the local pool, and not for all of it. A run whose rank has no
 * room, or has failed, stays in the local pool. Until the head is published no part may be evicted: local parts are
 * pinned in the pool, those at other ranks by pins with a holder (kvcl_store_pin), which end by themselves at the
 * deadline. A value that evicted its own parts would be acknowledged and lost.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"
#include "store/admin/ops.h"
#include "store/copy/chain.h"
#include "store/copy/copy_jobs.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"
#include "value/value.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

enum { RUN_BYTES = 4 << 20, RUNS_MAX = 8 };
#define BUSY_PAUSE_NS (5 * KVCL_NS_PER_MS)
#define PIN_SPARE_NS  KVCL_NS_PER_SEC

/* Parts that go to one rank. */
typedef struct run {
    kvcl_list_t      link;      /* in put->runs, then in put->kept */
    kvcl_store_h     store;
    uint32_t         rank;
    kvcl_req_h       req;       /* local: the listing and the copies */
    kvcl_list_t      rpcs;      /* remote */
    bool             requested; /* the answer is outstanding */
    bool             local;     /* the blocks in the local pool are the value's */
    bool             pinned;    /* by put->holder, at the ranks that hold them */
    kvcl_status_t    status;    /* of the answer */
    uint32_t         n;
    kvcl_store_rec_t *recs;
    uint32_t         *slots;    /* then: the items of kvcl_chain_start */
    kvcl_key_t       *keys;
    uint8_t          made[KVCL_COPY_MAX];
} run_t;

void kvcl_value_put_init(kvcl_value_put_t *put, kvcl_store_h store)
{
    memset(put, 0, sizeof(*put));
    put->store = store;
    kvcl_list_init(&put->runs);
    kvcl_list_init(&put->kept);
}

static uint64_t time_left(const kvcl_value_put_t *put)
{
    return kvcl_deadline_left(put->deadline_ns) + 1;
}

/* ---- a run ---- */

static run_t *make_run(kvcl_store_h store, uint32_t rank, uint32_t n)
{
    run_t *run = calloc(1, sizeof(*run) + (n * (sizeof(*run->recs) + sizeof(*run->keys) + sizeof(*run->slots))));

    if (run != NULL) {
        kvcl_list_init(&run->link);
        kvcl_list_init(&run->rpcs);
        run->store = store;
        run->rank  = rank;
        run->n     = n;
        run->recs  = (kvcl_store_rec_t *)(void *)(run + 1);
        run->keys  = (kvcl_key_t *)(void *)(run->recs + n);
        run->slots = (uint32_t *)(void *)(run->keys + n);
    }
    return run;
}

/* The parts stay in the local pool: list them and start their other copies. */
static kvcl_status_t list_local(const kvcl_value_put_t *put, run_t *run)
{
    kvcl_xfer_params_t p = {.size = sizeof(p), .timeout_ns = time_left(put), .tenant = put->tenant};
    kvcl_status_t      status;
    uint32_t           i;

    for (i = 0; i < run->n; ++i) {
        run->slots[i] = i;
    }
    run->local = true;
    kvcl_lock(put->store->ctx);
    status = kvcl_chain_start(put->store->value_pool, run->recs, run->slots, run->n, put->copies, NULL, &p, &run->req);
    kvcl_unlock(put->store->ctx);
    return status;
}

static void on_copied(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    run_t            *run = rpc->arg;
    kvcl_copy_tail_t tail;

    (void)len; /* kinds.c: checked lengths */
    if (status == KVCL_OK) {
        memcpy(&tail, data, sizeof(tail));
        memcpy(run->made, (const uint8_t *)data + sizeof(tail), run->n);
        kvcl_place_took(&run->store->places[run->rank], run->n * run->store->value_block, tail.pool_free);
    }
    run->status    = status;
    run->requested = false;
    kvcl_engine_notify(run->store->ctx);
}

/* Request that the run's rank fetches the parts, and that others fetch them from it. */
static void query_rank(const kvcl_value_put_t *put, run_t *run)
{
    kvcl_store_h     store = put->store;
    kvcl_copy_head_t head  = {.copies = (uint8_t)put->copies, .there = (uint8_t)put->copies, .tenant = put->tenant};
    uint8_t          *skip = calloc(store->n_ranks, 1);
    kvcl_rpc_t       *rpc  = NULL;
    uint64_t         most;
    unsigned         n     = put->copies - 1;

    memset(run->made, 0, sizeof(run->made));
    kvcl_lock(store->ctx);
    run->status = KVCL_ERR_NO_MEMORY;
    if (skip != NULL) {
        skip[run->rank] = 1;
        n               = (n < KVCL_DIR_LOCS_MAX - 2) ? n : KVCL_DIR_LOCS_MAX - 2;
        head.n_next     = (uint8_t)((n != 0) ? kvcl_store_place(store, store->value_block, skip, n, head.next) : 0);
        rpc             = kvcl_copy_request(store, run->rank, &head, run->recs, NULL, run->n);
    }
    if (store->incarnations[run->rank] == 0) {
        run->status = KVCL_ERR_RANK_FAILED;
        kvcl_rpc_discard(rpc);
    } else if (rpc != NULL) {
        most           = (head.n_next + 1) * kvcl_copy_time(store, run->n, store->value_block);
        rpc->arg       = run;
        rpc->done      = on_copied;
        run->requested = true;
        kvcl_rpc_post(rpc, (most < time_left(put)) ? most : time_left(put), &run->rpcs);
    }
    kvcl_unlock(store->ctx);
    free(skip);
}

static bool is_answered(void *arg)
{
    return !((const run_t *)arg)->requested;
}

static bool is_closing(void *arg)
{
    return ((const struct kvcl_store *)arg)->closing;
}

/* Another rank holds the parts, listed: remove the local ones. */
static void remove_local(run_t *run)
{
    kvcl_owner_t     *pool = run->store->value_pool;
    kvcl_store_rec_t removed;
    uint32_t         i;

    kvcl_lock(run->store->ctx);
    for (i = 0; !run->store->closing && (i < run->n); ++i) {
        const kvcl_dir_loc_t *loc = &run->recs[i].loc;
        if ((kvcl_slots_check(&pool->slots, loc->slot, loc->gen, &run->recs[i].key) == KVCL_OK) &&
            (kvcl_owner_discard(pool, loc->slot, KVCL_SLOT_FREE, KVCL_STORE_MOVED, (int)run->rank, &removed) ==
             KVCL_OK)) {
            ++run->store->n_moved;
        }
    }
    kvcl_unlock(run->store->ctx);
}

/* No lock. Wait for the local request, which has a deadline. */
static kvcl_status_t wait_local(run_t *run)
{
    kvcl_status_t status = kvcl_req_wait(run->req, KVCL_WAIT_FOREVER);

    run->req = NULL;
    return status;
}

/* No lock. Wait for the rank's answer; a busy rank is tried again. Parts that it did not take stay in the local
 * pool. */
static kvcl_status_t wait_remote(const kvcl_value_put_t *put, run_t *run)
{
    kvcl_status_t status;
    uint32_t      i;

    for (;;) {
        while (!kvcl_engine_wait(run->store->ctx, is_answered, run, kvcl_deadline_after(KVCL_NS_PER_SEC))) {
        }
        if ((run->status != KVCL_ERR_BUSY) || kvcl_deadline_passed(put->deadline_ns) ||
            kvcl_engine_wait(run->store->ctx, is_closing, run->store, kvcl_deadline_after(BUSY_PAUSE_NS))) {
            break;
        }
        query_rank(put, run);
    }
    for (i = 0; (run->status == KVCL_OK) && (i < run->n) && (run->made[i] >= put->copies); ++i) {
    }
    if ((run->status == KVCL_OK) && (i == run->n)) {
        remove_local(run);
        return KVCL_OK;
    }
    status = list_local(put, run);
    return (status == KVCL_OK) ? wait_local(run) : status;
}

/* Wait for the oldest run. Its parts, at any rank, then stay until kvcl_value_parts_end. */
static kvcl_status_t reap(kvcl_value_put_t *put)
{
    run_t         *run   = kvcl_container_of(kvcl_list_pop(&put->runs), run_t, link);
    kvcl_status_t status = (run->req != NULL) ? wait_local(run) : wait_remote(put, run);
    uint32_t      i;

    --put->n_runs;
    kvcl_list_add_tail(&put->kept, &run->link);
    if ((status == KVCL_OK) && (!run->local || (put->copies > 1))) {
        for (i = 0; i < run->n; ++i) {
            run->keys[i] = run->recs[i].key;
        }
        run->pinned = true;
        status = kvcl_pin_until(put->store, run->keys, run->n, put->holder, time_left(put) + PIN_SPARE_NS,
                                put->deadline_ns);
        if ((status != KVCL_OK) && kvcl_deadline_passed(put->deadline_ns)) {
            status = kvcl_fail(KVCL_ERR_TIMED_OUT, "the deadline has passed before rank %u kept parts", run->rank);
        } else if (status != KVCL_OK) {
            status = kvcl_fail(KVCL_ERR_NO_SPACE, "a value is too large for the pool of rank %u, or that has too many "
                               "pins", run->rank);
        }
    }
    return status;
}

kvcl_status_t kvcl_value_parts_wait(kvcl_value_put_t *put)
{
    kvcl_sentence_t first  = {0};
    kvcl_status_t   status = KVCL_OK, one;

    while (!kvcl_list_is_empty(&put->runs)) {
        one = reap(put);
        if ((status == KVCL_OK) && (one != KVCL_OK)) {
            status = one;
            kvcl_sentence_keep(&first);
        }
    }
    kvcl_sentence_report(&first);
    kvcl_sentence_free(&first);
    return status;
}

void kvcl_value_parts_end(kvcl_value_put_t *put)
{
    run_t *run;

    (void)!kvcl_value_parts_wait(put);
    while (!kvcl_list_is_empty(&put->kept)) {
        run = kvcl_container_of(kvcl_list_pop(&put->kept), run_t, link);
        if (run->pinned && !kvcl_deadline_passed(put->deadline_ns)) {
            /* at the deadline the pins end by themselves */
            (void)!kvcl_pin_until(put->store, run->keys, run->n, put->holder, 0, put->deadline_ns);
        }
        kvcl_lock(put->store->ctx);
        if (!put->store->closing) {
            kvcl_owner_pin_recs(put->store->value_pool, run->recs, run->n, false);
        }
        kvcl_unlock(put->store->ctx);
        free(run);
    }
}

/* ---- all parts of a value ---- */

typedef struct source {
    kvcl_value_at_t at;
    uint64_t        left, block;
} source_t;

static kvcl_value_holds_t next_part(void *arg, size_t i)
{
    source_t           *source = arg;
    kvcl_value_holds_t part    = {.at = source->at};

    (void)i;
    part.bytes = (source->left < source->block) ? source->left : source->block;
    kvcl_value_skip(&source->at, part.bytes);
    source->left -= part.bytes;
    return part;
}

/* Choose the ranks that take runs of a value of this size; [0] is this rank. It is the only one if fewer other ranks
 * than copies exist. */
static unsigned choose_ranks(const kvcl_value_put_t *put, uint64_t bytes, uint16_t *ranks)
{
    kvcl_store_h   store   = put->store;
    const uint64_t least   = store->ctx->config.store_stripe;
    unsigned       n       = (unsigned)store->ctx->config.store_stripe_ranks;
    uint8_t        *skip   = calloc(store->n_ranks, 1);

    ranks[0] = (uint16_t)store->me;
    if ((least == 0) || (bytes <= least) || (n < 2) || (skip == NULL)) {
        free(skip);
        return 1;
    }
    kvcl_lock(store->ctx);
    n = (kvcl_store_places(store, store->value_block) >= put->copies)
            ? 1 + kvcl_store_place(store, store->value_block, skip, n - 1, ranks + 1)
            : 1;
    kvcl_unlock(store->ctx);
    free(skip);
    return n;
}

/* Take room for a run; while there is none, waiting for older runs that go to other ranks makes some. */
static kvcl_status_t take_room(kvcl_value_put_t *put, run_t *run)
{
    kvcl_value_put_t at_once = *put;
    kvcl_status_t    status, one;

    at_once.flags = 0;
    while (((status = kvcl_value_take(&at_once, run->n, run->slots)) == KVCL_ERR_NO_SPACE) &&
           !kvcl_list_is_empty(&put->runs)) {
        one = reap(put);
        if (one != KVCL_OK) {
            return one;
        }
    }
    return ((status == KVCL_ERR_NO_SPACE) && (put->flags & KVCL_PUT_WAIT)) ? kvcl_value_take(put, run->n, run->slots)
                                                                           : status;
}

static kvcl_status_t begin_run(kvcl_value_put_t *put, run_t *run, source_t *source)
{
    kvcl_status_t status = take_room(put, run);
    size_t        n;

    if (status != KVCL_OK) {
        free(run);
        return status;
    }
    kvcl_value_fill(put->store, run->slots, run->n, next_part, source, run->recs);
    kvcl_lock(put->store->ctx);
    n = kvcl_value_publish(put, run->slots, run->n, run->recs, NULL);
    kvcl_owner_pin_recs(put->store->value_pool, run->recs, n, true);
    kvcl_unlock(put->store->ctx);
    run->n = (uint32_t)n; /* fewer only where the store is being closed: keys of parts are new */
    kvcl_list_add_tail(&put->runs, &run->link);
    ++put->n_runs;
    if (put->store->closing) {
        return kvcl_fail(KVCL_ERR_SHUTDOWN, "the store is being closed");
    }
    if (run->rank != put->store->me) {
        query_rank(put, run);
        return KVCL_OK;
    }
    status = list_local(put, run);
    if (status != KVCL_OK) { /* nothing is in flight: no need to wait for it */
        kvcl_list_del(&run->link);
        --put->n_runs;
        kvcl_list_add_tail(&put->kept, &run->link);
    }
    return status;
}

kvcl_status_t kvcl_value_put_parts(kvcl_value_put_t *put, const kvcl_value_head_t *head, const kvcl_value_t *value)
{
    source_t      source  = {.at = {.value = value}, .left = head->bytes, .block = head->part_bytes};
    uint64_t      per_run = RUN_BYTES / head->part_bytes, from, i, n;
    uint16_t      ranks[KVCL_VALUE_RANKS_MAX];
    unsigned      n_ranks = choose_ranks(put, head->bytes, ranks);
    kvcl_status_t status  = KVCL_OK;
    kvcl_key_t    seed;
    run_t         *run;

    per_run = (per_run == 0) ? 1 : (per_run < KVCL_COPY_MAX) ? per_run : KVCL_COPY_MAX;
    kvcl_value_seed(head, &seed);
    for (from = 0; (from < head->parts) && (status == KVCL_OK); from += n) {
        n   = (head->parts - from < per_run) ? head->parts - from : per_run;
        run = make_run(put->store, ranks[(from / per_run) % n_ranks], (uint32_t)n);
        if (run == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to put %llu parts of a value", (unsigned long long)n);
        }
        for (i = 0; i < n; ++i) {
            kvcl_value_part_key(&seed, from + i, &run->recs[i].key);
        }
        kvcl_tenant_keys_at(put->for_tenant, run->recs, sizeof(run->recs[0]), n);
        status = (put->n_runs >= RUNS_MAX) ? reap(put) : KVCL_OK;
        if (status != KVCL_OK) {
            free(run);
        } else {
            status = begin_run(put, run, &source);
        }
        if ((status == KVCL_OK) && kvcl_deadline_passed(put->deadline_ns)) {
            status = kvcl_fail(KVCL_ERR_TIMED_OUT, "the deadline of a put has passed while its parts were copied");
        }
    }
    return status;
}
