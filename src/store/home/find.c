/*
 * Finds (find.h): reading the tables that are memory of this rank, and the rounds of queries to other homes.
 *
 * A query to a home that has a backup ends after KVCL_STORE_HEDGE, since the backup lists the same blocks. A query to a
 * home without one ends when the home is found to be silent (silence.c). A suspected home is not queried.
 *
 * Owns nothing. The functions above the rounds take no lock; the rounds hold the engine lock.
 */
#include "config.h"
#include "store/home/find.h"
#include "store/home/lookup.h"
#include "store/home/paths.h"
#include "store/home/ranks.h"
#include "base/error.h"

#include <stdlib.h>

enum { AHEAD = 16, ROUNDS_MAX = 4 };

static const kvcl_dir_view_t *view_of(kvcl_store_h store, uint32_t home, bool *failed_p)
{
    kvcl_store_rank_t         *rank = &store->ranks[home];
    const kvcl_store_mapped_t *mapped;

    *failed_p = false;
    if (home == store->me) {
        return &store->table.view;
    }
    if (atomic_load_explicit(&rank->incarnation, memory_order_relaxed) == 0) {
        *failed_p = true;
        return NULL;
    }
    if (atomic_load_explicit(&rank->view_state, memory_order_acquire) != KVCL_VIEW_MAPPED) {
        *failed_p = kvcl_store_excludes(store, home); /* an excluded rank must not be queried */
        return NULL;
    }
    mapped = atomic_load_explicit(&rank->mapped, memory_order_acquire);
    if (!kvcl_rregion_live(&mapped->region)) {
        *failed_p = true; /* the table was closed: it stays mapped, but its entries are no longer valid */
        return NULL;
    }
    return &mapped->view;
}

const kvcl_dir_view_t *kvcl_store_view(kvcl_store_h store, const kvcl_key_t *key, bool *failed_p)
{
    const kvcl_shard_map_t *map   = kvcl_store_shards(store);
    uint32_t               first  = kvcl_shard_home(map, key), backup;
    const kvcl_dir_view_t  *view;

    if (__builtin_expect(kvcl_store_reads_old(map) || kvcl_store_suspects(store, first), 0)) {
        first = kvcl_store_home(store, map, key); /* a silent home's table lacks new entries, and so does a new one's */
    }
    view = view_of(store, first, failed_p);
    if ((view == NULL) && *failed_p) {
        backup = kvcl_shard_backup(map, key);
        view   = ((first != backup) && (backup != KVCL_SHARD_NO_RANK)) ? view_of(store, backup, failed_p) : NULL;
    }
    return view;
}

void kvcl_store_prefetch(kvcl_store_h store, const kvcl_key_t *key)
{
    bool                  failed;
    const kvcl_dir_view_t *view = kvcl_store_view(store, key, &failed);

    if (view != NULL) {
        kvcl_dir_prefetch(view, key);
    }
}

/* ---- tables in memory ---- */

/* Keeps the copies of live ranks, in place. Returns their number. */
static unsigned keep_living(const struct kvcl_store *store, kvcl_dir_loc_t *locs, unsigned n)
{
    unsigned kept = 0, i;

    for (i = 0; i < n; ++i) {
        if (kvcl_store_loc_lives(store, &locs[i])) {
            locs[kept++] = locs[i];
        }
    }
    return kept;
}

static uint8_t flags_of(const struct kvcl_store *store, const kvcl_dir_loc_t *locs, unsigned n)
{
    unsigned flags = 0, i;

    for (i = 0; i < n; ++i) {
        flags |= KVCL_PRESENT_SOMEWHERE | ((locs[i].rank == store->me) ? KVCL_PRESENT_YOURS : 0);
    }
    return (uint8_t)flags;
}

/* The table of one key's home, or of its backup; NULL and failed: it cannot be read, nor queried. */
typedef struct key_table {
    const kvcl_dir_view_t *view;
    bool                  failed;
} key_table_t;

/* Reads one key's entry; returns its flags. Most callers want these alone: no location is kept for them. */
static inline uint8_t read_key(kvcl_store_h store, const key_table_t *table, const kvcl_key_t *key,
                               kvcl_found_t *found)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       flags = 0, n, i;

    if (found != NULL) {
        found->n = (table->view == NULL)
                       ? 0 : (uint8_t)keep_living(store, found->locs, kvcl_dir_read(table->view, key, found->locs));
        return ((table->view == NULL) && !table->failed) ? KVCL_FIND_QUERY : flags_of(store, found->locs, found->n);
    }
    if (table->view == NULL) {
        return table->failed ? 0 : KVCL_FIND_QUERY;
    }
    n = kvcl_dir_read(table->view, key, locs);
    for (i = 0; i < n; ++i) {
        if (kvcl_store_loc_lives(store, &locs[i])) {
            flags |= KVCL_PRESENT_SOMEWHERE | ((locs[i].rank == store->me) ? KVCL_PRESENT_YOURS : 0);
        }
    }
    return (uint8_t)flags;
}

static uint8_t look_up(kvcl_store_h store, const kvcl_key_t *key, kvcl_found_t *found)
{
    key_table_t table;

    table.view = kvcl_store_view(store, key, &table.failed);
    return read_key(store, &table, key, found);
}

static inline void prefetch(kvcl_store_h store, const kvcl_key_t *key, key_table_t *table)
{
    table->view = kvcl_store_view(store, key, &table->failed);
    if (table->view != NULL) {
        kvcl_dir_prefetch(table->view, key);
    }
}

size_t kvcl_find_here(kvcl_store_h store, const kvcl_key_t *keys, size_t n, bool stop_at_miss, uint8_t *flags,
                      kvcl_found_t *found, bool *query_p)
{
    key_table_t ahead[AHEAD]; /* of the key being read and of those prefetched */
    size_t      i;

    *query_p = false;
    for (i = 0; (i < AHEAD) && (i < n); ++i) {
        prefetch(store, &keys[i], &ahead[i]);
    }
    for (i = 0; i < n; ++i) {
        flags[i] = read_key(store, &ahead[i % AHEAD], &keys[i], (found != NULL) ? &found[i] : NULL);
        *query_p = *query_p || (flags[i] == KVCL_FIND_QUERY);
        if ((flags[i] == 0) && stop_at_miss) {
            return i;
        }
        if (i + AHEAD < n) {
            prefetch(store, &keys[i + AHEAD], &ahead[i % AHEAD]);
        }
    }
    return n;
}

/* ---- queries to homes ---- */

static void take_answer(kvcl_find_t *find, const kvcl_rpc_t *rpc, const void *data, size_t len)
{
    const uint8_t  *present = data;
    kvcl_dir_msg_t reply;
    uint32_t       at = 0, i, item;

    if ((find->found != NULL) && (kvcl_dir_msg_unpack(&reply, data, len) != KVCL_OK)) {
        return; /* cannot happen: rpc.c has checked the answer */
    }
    for (i = 0; i < rpc->n; ++i) {
        item = rpc->order[i];
        if (find->found != NULL) {
            kvcl_found_t *found = &find->found[item];
            found->n          = (uint8_t)kvcl_dir_msg_locs(&reply, i, &at, found->locs);
            found->n          = (uint8_t)keep_living(rpc->store, found->locs, found->n);
            find->flags[item] = flags_of(rpc->store, found->locs, found->n);
        } else {
            find->flags[item] = (uint8_t)(present[i] & ~(unsigned)KVCL_FIND_QUERY);
        }
    }
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_find_t  *find = rpc->arg;
    kvcl_store_h store = rpc->store;
    const bool   failed = (store->incarnations[rpc->rank] == 0);
    const bool   silent = rpc->silent || ((status == KVCL_ERR_TIMED_OUT) && (rpc->tag != 0));
    uint32_t     i;

    if (silent && (find->call->stopped == KVCL_OK)) { /* the query's time is over, not the call's */
        kvcl_store_suspect(store, rpc->rank);
    } else if ((status == KVCL_ERR_TIMED_OUT) || (status == KVCL_ERR_NO_MEMORY) || (status == KVCL_ERR_CANCELED)) {
        find->status = (find->status == KVCL_OK) ? status : find->status;
    }
    if (status == KVCL_OK) {
        kvcl_timing_path(&find->call->req.timing, kvcl_rpc_path(rpc));
        take_answer(find, rpc, data, len);
    } else {
        for (i = 0; i < rpc->n; ++i) {
            find->flags[rpc->order[i]] = (failed || silent) ? KVCL_FIND_QUERY : 0;
        }
    }
    find->again = find->again || ((status != KVCL_OK) && (failed || silent));
    kvcl_call_over(find->call);
}

/* A query to a home with a backup ends after one hedge. If both are suspected, it waits for the call's deadline: the
 * suspicion may be wrong. */
static void post(kvcl_find_t *find, kvcl_rpc_t *rpc)
{
    kvcl_store_h store    = find->call->store;
    uint32_t     home     = rpc->rank;
    uint64_t     hedge_ns = ((store->replicas > 1) && !kvcl_store_suspects(store, home))
                                ? store->ctx->config.store_hedge_ns : 0;

    rpc->arg  = find;
    rpc->done = on_answer;
    rpc->tag  = (hedge_ns != 0) && (hedge_ns < kvcl_call_time_left(find->call));
    kvcl_call_post(find->call, rpc, (rpc->tag != 0) ? hedge_ns : 0, true);
    kvcl_store_learn(store, home);
}

/* The keys of a home that is certainly silent are absent. With KVCL_STORE_HEDGE=0 no home is. */
static void drop_keys(kvcl_find_t *find, uint32_t home)
{
    uint32_t i;

    for (i = find->scatter.starts[home]; i < find->scatter.starts[home + 1]; ++i) {
        find->flags[find->scatter.order[i]] = 0;
    }
}

static kvcl_status_t query_homes(kvcl_find_t *find)
{
    kvcl_store_h  store = find->call->store;
    uint8_t       kind  = (find->found != NULL) ? KVCL_RPC_LOOKUP : KVCL_RPC_PRESENT;
    kvcl_list_t   rpcs, *link;
    kvcl_status_t status;
    uint32_t      home;
    size_t        i;

    kvcl_scatter_free(&find->scatter);
    for (i = 0; i < find->n; ++i) {
        find->flags[i] ^= KVCL_FIND_QUERY; /* those with a flag are skipped; no other flag has this bit */
    }
    status = kvcl_scatter_keys(store, find->keys, sizeof(*find->keys), find->n, find->flags, &find->scatter);
    for (i = 0; i < find->n; ++i) {
        find->flags[i] ^= KVCL_FIND_QUERY; /* restored; each answer clears the bit of its keys */
    }
    if ((status == KVCL_OK) && (find->scatter.starts[store->me] != find->scatter.starts[store->me + 1])) {
        find->again = true; /* this rank has become the home of some keys meanwhile */
    }
    kvcl_list_init(&rpcs);
    for (home = 0; (status == KVCL_OK) && (home < store->n_ranks); ++home) {
        if (kvcl_silence_is_sure(store, home)) {
            drop_keys(find, home);
        } else if (home != store->me) {
            status = kvcl_rpcs_make(store, home, kind, find->keys, sizeof(*find->keys), &find->scatter, &rpcs);
        }
    }
    while ((status == KVCL_OK) && ((link = kvcl_list_first(&rpcs)) != NULL)) {
        post(find, kvcl_container_of(link, kvcl_rpc_t, link));
    }
    return status;
}

/* Reads the keys whose query failed: the tables of their homes may be memory of this rank now. */
static void look_again(kvcl_find_t *find)
{
    kvcl_store_h store = find->call->store;
    size_t       i;

    for (i = 0; i < find->n; ++i) {
        if (find->flags[i] & KVCL_FIND_QUERY) {
            find->flags[i] = look_up(store, &find->keys[i], (find->found != NULL) ? &find->found[i] : NULL);
        }
        if (find->turn >= ROUNDS_MAX) {
            find->flags[i] &= (uint8_t)~KVCL_FIND_QUERY; /* none of its homes can be queried: it is absent */
        }
    }
}

static bool needs_query(const kvcl_find_t *find)
{
    size_t i;

    for (i = 0; i < find->n; ++i) {
        if (find->flags[i] & KVCL_FIND_QUERY) {
            return true;
        }
    }
    return false;
}

bool kvcl_find_round(kvcl_find_t *find)
{
    kvcl_assert_locked(find->call->store->ctx);
    if ((find->status != KVCL_OK) || ((find->turn != 0) && !find->again)) {
        return false;
    }
    find->again = false;
    if (find->turn != 0) { /* the caller has just read the tables (kvcl_find_here) */
        look_again(find);
    }
    if (!needs_query(find)) {
        return false;
    }
    ++find->turn;
    find->status = query_homes(find);
    return find->status == KVCL_OK;
}

void kvcl_find_free(kvcl_find_t *find)
{
    kvcl_scatter_free(&find->scatter);
}

/* ---- a blocking find ---- */

typedef struct locate {
    kvcl_call_t call;
    kvcl_find_t find;
    uint8_t     flags[];
} locate_t;

static bool next(kvcl_call_t *call)
{
    return kvcl_find_round(&kvcl_container_of(call, locate_t, call)->find);
}

static kvcl_status_t end(kvcl_call_t *call)
{
    kvcl_status_t status = (call->stopped != KVCL_OK) ? call->stopped
                                                      : kvcl_container_of(call, locate_t, call)->find.status;

    return (status == KVCL_ERR_TIMED_OUT) ? KVCL_OK : status; /* keys without an answer in time count as absent */
}

static void free_locate(kvcl_call_t *call)
{
    locate_t *locate = kvcl_container_of(call, locate_t, call);

    kvcl_find_free(&locate->find);
    free(locate);
}

kvcl_status_t kvcl_locate(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_found_t *found,
                          uint64_t timeout_ns)
{
    kvcl_xfer_params_t p       = {.size = sizeof(p), .timeout_ns = timeout_ns};
    locate_t           *locate = calloc(1, sizeof(*locate) + n + 1);
    bool               query;

    if (locate == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to look up %zu keys", n);
    }
    (void)kvcl_find_here(store, keys, n, false, locate->flags, found, &query);
    if (!query) {
        free(locate);
        return KVCL_OK;
    }
    locate->find      = (kvcl_find_t){.call = &locate->call, .keys = keys, .n = n, .flags = locate->flags,
                                      .found = found};
    locate->call.next = next;
    locate->call.end  = end;
    locate->call.free = free_locate;
    return kvcl_call_run(&locate->call, store, "a lookup of keys", &p);
}
