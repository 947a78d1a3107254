/*
 * Repair after a rank has failed, in the background: the part of this rank as a home.
 *
 * It walks its table, a bounded number of cells at a time. Entries of failed ranks are removed. An entry with two homes
 * is sent to the other home if that one is new to the key, but by its owner where maps follow views. For a block with
 * fewer copies than its entry demands, the home (not its backup) requests a copy from a rank that has none, as a put's
 * chain does (copy/copy_jobs.c). One batch is in flight at a time, and the bytes stay below KVCL_STORE_REPAIR a second.
 * Failed steps (a rank was busy, or did not know of the failure yet) are repeated in a later pass. There are at least
 * two passes, for blocks that were published before every rank knew of the failure, and at most PASSES_MAX.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/repair.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/place/choose.h"
#include "store/pool/pool.h"

#include <stdlib.h>

enum { CELLS = 4096, BATCH = 256, PASSES_MAX = 20 };
#define STEP_NS  (1 * KVCL_NS_PER_MS)
#define FIRST_NS (50 * KVCL_NS_PER_MS)
#define PASS_NS  (500 * KVCL_NS_PER_MS)

/* Records for other ranks. */
typedef struct batch {
    uint32_t         n;
    kvcl_store_rec_t recs[BATCH];
    uint32_t         to[BATCH];
} batch_t;

struct kvcl_repair {
    kvcl_store_h       store;
    kvcl_store_timer_t *timer;
    kvcl_list_t        rpcs;
    kvcl_scatter_t     scatters[2]; /* of the rpcs in flight: records sent to homes, copies requested */
    unsigned           outstanding;
    unsigned           passes;
    bool               retry;       /* a step failed: another pass is needed */
    uint64_t           cursor;
    uint64_t           pause_ns;    /* keeps the copied bytes below the rate */
    uint64_t           n_copied;
    uint8_t            *skip;       /* one byte a rank */
    batch_t            listed, copied;
};

static void turn(void *arg);

static void wake_after(kvcl_repair_t *repair, uint64_t after_ns)
{
    if ((repair->timer == NULL) && !repair->store->closing) {
        repair->timer = kvcl_store_timer_start(repair->store, after_ns, turn, repair);
    }
}

static void over(kvcl_repair_t *repair)
{
    if (--repair->outstanding == 0) {
        kvcl_scatter_free(&repair->scatters[0]);
        kvcl_scatter_free(&repair->scatters[1]);
        wake_after(repair, STEP_NS + repair->pause_ns);
    }
}

static void on_listed(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_repair_t  *repair = rpc->arg;
    kvcl_dir_msg_t reply;
    uint32_t       i;

    repair->retry = repair->retry || (status != KVCL_OK);
    if ((status == KVCL_OK) && (kvcl_dir_msg_unpack(&reply, data, len) == KVCL_OK)) {
        for (i = 0; i < rpc->n; ++i) {
            repair->retry = repair->retry || (kvcl_dir_msg_status(&reply, i) == KVCL_ERR_STALE);
        }
    }
    over(repair);
}

static void on_copied(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_repair_t *repair = rpc->arg;
    const uint8_t *made   = (const uint8_t *)data + sizeof(kvcl_copy_tail_t);
    uint32_t      i;

    (void)len;
    repair->retry = repair->retry || (status != KVCL_OK);
    for (i = 0; (status == KVCL_OK) && (i < rpc->n); ++i) {
        repair->n_copied += (made[i] != 0) ? 1 : 0;
        repair->retry     = repair->retry || (made[i] == 0);
    }
    over(repair);
}

/* ---- the steps for an entry ---- */

static void add(batch_t *batch, const kvcl_key_t *key, const kvcl_dir_loc_t *loc, uint32_t to)
{
    batch->recs[batch->n] = (kvcl_store_rec_t){.key = *key, .loc = *loc};
    batch->to[batch->n++] = to;
}

/* Add the entry to the batch of the other home if that one is new to this key. */
static void notify_other_home(kvcl_repair_t *repair, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    const struct kvcl_store *store = repair->store;
    const kvcl_shard_map_t  *map   = kvcl_store_shards(store);
    uint32_t                home   = kvcl_shard_home(map, key), backup = kvcl_shard_backup(map, key);
    uint32_t                other  = (home == store->me) ? backup : home;

    if ((store->views == NULL) && ((home == store->me) || (backup == store->me)) && (other != KVCL_SHARD_NO_RANK) &&
        kvcl_store_two_homes(store, loc->flags) && !kvcl_store_has_all(store, key, other)) {
        add(&repair->listed, key, loc, other);
    }
}

/* Add a request for one more copy, at a rank that has none; at this rank if there is no other. */
static void request_copy(kvcl_repair_t *repair, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    kvcl_store_h   store = repair->store;
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n = kvcl_dir_table_find(&store->table, key, locs), live = 0, seen = 0, i;
    bool           first = true;
    uint16_t       to;

    memset(repair->skip, 0, store->n_ranks);
    for (i = 0; i < n; ++i) {
        if (kvcl_store_loc_lives(store, &locs[i])) {
            first = first && ((seen++ != 0) || ((locs[i].rank == loc->rank) && (locs[i].cache == loc->cache)));
            /* A pool and its tier fail together, and a rank that leaves takes its copies along. */
            live += (repair->skip[locs[i].rank] || kvcl_views_leaves(store, locs[i].rank)) ? 0 : 1;
            repair->skip[locs[i].rank] = 1;
        }
    }
    if (!first || (live >= kvcl_loc_copies(loc->flags))) { /* once a key, by its first location */
        return;
    }
    if (kvcl_store_place(store, loc->len, repair->skip, 1, &to) == 1) {
        add(&repair->copied, key, loc, to);
    } else if (!repair->skip[store->me] && (kvcl_pool_for(store, loc->len) != NULL)) {
        add(&repair->copied, key, loc, store->me);
    }
}

/* Where the map follows views, shards come back, and must not find old records. */
static bool is_wanted(const struct kvcl_store *store, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    return (store->views == NULL) || kvcl_home_keeps(&store->home, key, loc);
}

static void scan(kvcl_repair_t *repair)
{
    kvcl_store_h   store = repair->store;
    const uint64_t end   = repair->cursor + CELLS;
    kvcl_dir_loc_t loc;
    kvcl_key_t     key;

    while ((repair->listed.n < BATCH) && (repair->copied.n < BATCH) &&
           kvcl_dir_table_next_to(&store->table, &repair->cursor, end, &key, &loc)) {
        if (!kvcl_store_loc_lives(store, &loc) || !is_wanted(store, &key, &loc)) {
            (void)!kvcl_dir_table_remove(&store->table, &key, &loc);
            continue;
        }
        notify_other_home(repair, &key, &loc);
        if ((kvcl_loc_copies(loc.flags) > 1) && (kvcl_shard_home(kvcl_store_shards(store), &key) == store->me)) {
            request_copy(repair, &key, &loc);
        }
    }
}

/* ---- sending ---- */

static void post(kvcl_repair_t *repair, kvcl_rpc_t *rpc, void (*done)(kvcl_rpc_t *rpc, kvcl_status_t status,
                                                                      const void *data, size_t len), uint64_t time_ns)
{
    rpc->arg  = repair;
    rpc->done = done;
    ++repair->outstanding;
    kvcl_rpc_post(rpc, time_ns, &repair->rpcs);
}

static void send_listed(kvcl_repair_t *repair)
{
    kvcl_store_h store = repair->store;
    kvcl_list_t  rpcs, *link;
    uint32_t     rank;

    kvcl_list_init(&rpcs);
    if (kvcl_scatter_to(store->n_ranks, repair->listed.to, 1, repair->listed.n, &repair->scatters[0]) != KVCL_OK) {
        repair->retry = true;
        return;
    }
    for (rank = 0; rank < store->n_ranks; ++rank) {
        if (kvcl_rpcs_make(store, rank, KVCL_RPC_PUBLISH, repair->listed.recs, sizeof(repair->listed.recs[0]),
                           &repair->scatters[0], &rpcs) != KVCL_OK) {
            repair->retry = true;
        }
    }
    while ((link = kvcl_list_first(&rpcs)) != NULL) {
        post(repair, kvcl_container_of(link, kvcl_rpc_t, link), on_listed, 0);
    }
}

static bool alike(const batch_t *batch, uint32_t a, uint32_t b)
{
    return (kvcl_loc_copies(batch->recs[a].loc.flags) == kvcl_loc_copies(batch->recs[b].loc.flags)) &&
           (batch->recs[a].loc.len == batch->recs[b].loc.len);
}

static void send_copied(kvcl_repair_t *repair)
{
    kvcl_store_h     store = repair->store;
    kvcl_copy_head_t head  = {0};
    const uint32_t   *order;
    uint32_t         rank, n, i, some;
    kvcl_rpc_t       *rpc;

    if (kvcl_scatter_to(store->n_ranks, repair->copied.to, 1, repair->copied.n, &repair->scatters[1]) != KVCL_OK) {
        repair->retry = true;
        return;
    }
    for (rank = 0; rank < store->n_ranks; ++rank) {
        order = repair->scatters[1].order + repair->scatters[1].starts[rank];
        n     = repair->scatters[1].starts[rank + 1] - repair->scatters[1].starts[rank];
        for (i = 0; i < n; i += some) { /* all blocks of one request have the same size and number of copies */
            head.copies = (uint8_t)kvcl_loc_copies(repair->copied.recs[order[i]].loc.flags);
            for (some = 1; (i + some < n) && alike(&repair->copied, order[i], order[i + some]); ++some) {
            }
            if (rank == store->me) {
                if (kvcl_copy_here(store, &head, repair->copied.recs, order + i, some, NULL) == KVCL_OK) {
                    repair->n_copied += some;
                } else {
                    repair->retry = true;
                }
                continue;
            }
            rpc = kvcl_copy_request(store, rank, &head, repair->copied.recs, order + i, some);
            if (rpc == NULL) {
                repair->retry = true;
                continue;
            }
            post(repair, rpc, on_copied, kvcl_copy_time(store, some, repair->copied.recs[order[i]].loc.len));
        }
    }
}

/* A pass is over. */
static void next_pass(kvcl_repair_t *repair)
{
    repair->cursor = 0;
    if ((repair->retry || (repair->passes < 2)) && (++repair->passes < PASSES_MAX)) {
        repair->retry = false;
        wake_after(repair, (repair->passes < 2) ? 4 * PASS_NS : PASS_NS);
        return;
    }
    kvcl_log_info("repair after failed ranks is done: %llu blocks copied so far",
                  (unsigned long long)repair->n_copied);
}

/* Lock held, by the timer. */
static void turn(void *arg)
{
    kvcl_repair_t *repair = arg;
    kvcl_store_h  store   = repair->store;
    uint64_t      rate    = store->ctx->config.store_repair_bytes, bytes = 0;
    uint32_t      i;

    kvcl_assert_locked(store->ctx);
    repair->timer = NULL;
    if (store->closing || (repair->outstanding != 0)) {
        return;
    }
    repair->listed.n = repair->copied.n = 0;
    scan(repair);
    for (i = 0; i < repair->copied.n; ++i) {
        bytes += repair->copied.recs[i].loc.len;
    }
    repair->pause_ns = (bytes * 1000 / rate) * KVCL_NS_PER_MS;
    repair->outstanding = 1;
    if (repair->listed.n != 0) {
        send_listed(repair);
    }
    if (repair->copied.n != 0) {
        send_copied(repair);
    }
    if ((repair->listed.n == 0) && (repair->copied.n == 0) && (repair->cursor >= store->table.view.capacity)) {
        repair->outstanding = 0;
        next_pass(repair);
        return;
    }
    over(repair);
}

/* ---- start and stop ---- */

void kvcl_repair_start(kvcl_store_h store)
{
    kvcl_repair_t *repair = store->repair;
    unsigned      i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; (store->views == NULL) && (store->pool != NULL) && (i < store->pool->n); ++i) {
        kvcl_owner_unlist(store->pool->owners[i]); /* the next put of each block lists it at its new homes */
    }
    if (store->closing || (store->ctx->config.store_repair_bytes == 0)) {
        return;
    }
    if (repair == NULL) {
        repair = calloc(1, sizeof(*repair) + store->n_ranks);
        if (repair == NULL) {
            kvcl_log_warn("no memory to repair after a failed rank: its blocks keep fewer copies");
            return;
        }
        repair->store = store;
        repair->skip  = (uint8_t *)(repair + 1);
        kvcl_list_init(&repair->rpcs);
        store->repair = repair;
    }
    repair->cursor = repair->passes = 0; /* a walk in progress starts again */
    if (repair->outstanding == 0) {
        kvcl_store_timer_stop(repair->timer);
        repair->timer = NULL;
        wake_after(repair, FIRST_NS);
    }
}

void kvcl_repair_stop(kvcl_store_h store)
{
    if (store->repair != NULL) {
        kvcl_store_timer_stop(store->repair->timer);
        store->repair->timer = NULL;
        kvcl_rpcs_stop(&store->repair->rpcs, KVCL_ERR_SHUTDOWN);
    }
}
