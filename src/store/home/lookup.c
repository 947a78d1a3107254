/*
 * Match and exists: who has these keys?
 *
 * Keys whose home's table is memory here (mine, or mapped) are read at once, without a lock or an allocation, some
 * keys ahead prefetched; for the others each home is asked once, all homes at the same time. If a home is found to be
 * gone, or silent, whoever else is home to its keys is read or asked in a next round.
 */
#include "config.h"
#include "base/error.h"
#include "core/context.h"
#include "store/store.h"
#include "store/home/ways.h"

enum { AHEAD = 16, ROUNDS_MAX = 4 };

static const kvcl_dir_view_t *view_of(kvcl_store_h store, uint32_t home, bool *gone_p)
{
    kvcl_store_rank_t *rank = &store->ranks[home];

    *gone_p = false;
    if (home == store->me) {
        return &store->table.view;
    }
    if (atomic_load_explicit(&rank->incarnation, memory_order_relaxed) == 0) {
        *gone_p = true;
        return NULL;
    }
    if (atomic_load_explicit(&rank->view_state, memory_order_acquire) != KVCL_VIEW_MAPPED) {
        return NULL;
    }
    if (!kvcl_rregion_live(&rank->region)) {
        *gone_p = true; /* closed: the mapping stays, what it says is over */
        return NULL;
    }
    return &rank->view;
}

const kvcl_dir_view_t *kvcl_store_view(kvcl_store_h store, const kvcl_key_t *key, bool *gone_p)
{
    const kvcl_shard_map_t *map   = kvcl_store_shards(store);
    uint32_t               home   = kvcl_shard_home(map, key), backup = kvcl_shard_backup(map, key);
    const kvcl_dir_view_t  *view  = view_of(store, home, gone_p);

    if ((view == NULL) && (backup != KVCL_SHARD_NO_RANK) &&
        (*gone_p || (kvcl_store_home(store, map, key) == backup))) { /* dead, or silent */
        view = view_of(store, backup, gone_p);
    }
    return view;
}

/* One key, now. Returns KVCL_PRESENT_*, or -1 if its home must be asked. */
static int look(kvcl_store_h store, const kvcl_key_t *key)
{
    kvcl_dir_loc_t        locs[KVCL_DIR_LOCS_MAX];
    bool                  gone;
    const kvcl_dir_view_t *view = kvcl_store_view(store, key, &gone);
    unsigned              n, i;
    int                   flags = 0;

    if (view == NULL) {
        return gone ? 0 : -1;
    }
    n = kvcl_dir_read(view, key, locs);
    for (i = 0; i < n; ++i) {
        if (kvcl_store_loc_lives(store, &locs[i])) {
            flags |= KVCL_PRESENT_SOMEWHERE | ((locs[i].rank == store->me) ? KVCL_PRESENT_YOURS : 0);
        }
    }
    return flags;
}

static void prefetch(kvcl_store_h store, const kvcl_key_t *key)
{
    bool                  gone;
    const kvcl_dir_view_t *view = kvcl_store_view(store, key, &gone);

    if (view != NULL) {
        kvcl_dir_prefetch(view, key);
    }
}

/* Keys that are left to be asked get flags TO_ASK. With stop_at_miss: reads up to the first absent key.
 * Returns how many keys matter; *ask_p: some must be asked. */
enum { TO_ASK = 0x80 };

static size_t look_all(kvcl_store_h store, const kvcl_key_t *keys, size_t n, bool stop_at_miss, uint8_t *flags,
                       bool *ask_p)
{
    size_t i;
    int    found;

    *ask_p = false;
    for (i = 0; (i < AHEAD) && (i < n); ++i) {
        prefetch(store, &keys[i]);
    }
    for (i = 0; i < n; ++i) {
        if (i + AHEAD < n) {
            prefetch(store, &keys[i + AHEAD]);
        }
        found    = look(store, &keys[i]);
        flags[i] = (found < 0) ? TO_ASK : (uint8_t)found;
        *ask_p   = *ask_p || (found < 0);
        if ((found == 0) && stop_at_miss) {
            return i;
        }
    }
    return n;
}

/* ---- asking homes ---- */

typedef struct round {
    uint8_t       *flags;
    unsigned      outstanding;
    bool          again;
    bool          hedged; /* where a home is silent, the backup knows as much */
    kvcl_status_t status;
} round_t;

static void on_present(kvcl_ask_t *ask, kvcl_status_t status, const void *data, size_t len)
{
    round_t       *round = ask->arg;
    const uint8_t *found = data;
    bool          gone   = (ask->store->incarnations[ask->rank] == 0);
    uint32_t      i;

    (void)len;
    if ((status == KVCL_ERR_TIMED_OUT) && ((round_t *)ask->arg)->hedged && !ask->patient) {
        kvcl_store_suspect(ask->store, ask->rank);
        gone   = true; /* as good as */
        status = KVCL_ERR_RANK_FAILED;
    }
    for (i = 0; i < ask->n; ++i) {
        round->flags[ask->order[i]] = (status == KVCL_OK) ? (found[i] & ~TO_ASK) : gone ? TO_ASK : 0;
    }
    round->again = round->again || ((status != KVCL_OK) && gone);
    if ((status == KVCL_ERR_TIMED_OUT) || (status == KVCL_ERR_NO_MEMORY) || (status == KVCL_ERR_CANCELED)) {
        round->status = status;
    }
    --round->outstanding;
}

static bool round_over(void *arg)
{
    return ((round_t *)arg)->outstanding == 0;
}

/* Those whose flags are TO_ASK; some may be so again afterwards. */
static kvcl_status_t ask_round(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *flags, bool *again_p)
{
    uint64_t      hedge_ns = (store->replicas > 1) ? store->ctx->config.store_hedge_ns : 0;
    round_t       round = {.flags = flags, .hedged = (hedge_ns != 0), .status = KVCL_OK};
    kvcl_list_t   asks, *link;
    kvcl_deal_t   deal;
    kvcl_status_t status;
    uint32_t      home;
    size_t        i;

    for (i = 0; i < n; ++i) {
        flags[i] ^= TO_ASK; /* kvcl_deal skips what is not 0; nothing else has that bit */
    }
    status = kvcl_deal(store, keys, sizeof(*keys), n, flags, &deal);
    for (i = 0; i < n; ++i) {
        flags[i] ^= TO_ASK; /* as it was; those asked are answered one by one */
    }
    if ((status == KVCL_OK) && (deal.starts[store->me] != deal.starts[store->me + 1])) {
        round.again = true; /* I have become their home meanwhile */
    }
    kvcl_list_init(&asks);
    for (home = 0; (status == KVCL_OK) && (home < store->n_ranks); ++home) {
        if (home == store->me) {
            continue;
        }
        status = kvcl_asks_make(store, home, KVCL_ASK_PRESENT, keys, sizeof(*keys), &deal, &asks);
    }
    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        ++round.outstanding;
        while ((link = kvcl_list_first(&asks)) != NULL) {
            kvcl_ask_t *ask = kvcl_container_of(link, kvcl_ask_t, link);
            ask->arg  = &round;
            ask->done = on_present;
            ++round.outstanding;
            home = ask->rank;
            kvcl_ask_post(ask, kvcl_store_suspects(store, home) ? 0 : hedge_ns, NULL);
            kvcl_store_learn(store, home);
        }
        --round.outstanding;
        kvcl_unlock(store->ctx);
        (void)kvcl_engine_wait(store->ctx, round_over, &round, UINT64_MAX); /* each ask has its deadline */
        status   = round.status;
        *again_p = round.again;
    }
    kvcl_deal_free(&deal);
    return (status == KVCL_OK) ? KVCL_OK : kvcl_fail(status, "the directory could not be asked: %s",
                                                     kvcl_status_text(status));
}

static kvcl_status_t ask_homes(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *flags)
{
    kvcl_status_t status;
    bool          again = false;
    unsigned      turn;
    size_t        i;
    int           found;

    status = ask_round(store, keys, n, flags, &again);
    for (turn = 1; (status == KVCL_OK) && again && (turn < ROUNDS_MAX); ++turn) {
        for (i = 0; i < n; ++i) {
            if (flags[i] & TO_ASK) {
                found    = look(store, &keys[i]);
                flags[i] = (found < 0) ? TO_ASK : (uint8_t)found;
            }
        }
        again  = false;
        status = ask_round(store, keys, n, flags, &again);
    }
    for (i = 0; i < n; ++i) {
        flags[i] &= (uint8_t)~TO_ASK; /* nobody could be asked: a miss */
    }
    return status;
}

/* Hits that lie here are in use: their eviction order learns of it, the end of a chain first. */
static void touch(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const uint8_t *flags)
{
    kvcl_owner_node_t *node;
    size_t            i = n;

    while ((i > 0) && !(flags[i - 1] & KVCL_PRESENT_YOURS)) {
        --i;
    }
    if ((i == 0) || ((store->own == NULL) && (store->pool == NULL))) {
        return;
    }
    kvcl_lock(store->ctx);
    while (i-- > 0) {
        if (flags[i] & KVCL_PRESENT_YOURS) {
            node = kvcl_owner_find(store, &keys[i], NULL);
            if (node != NULL) {
                kvcl_owner_touch(node->owner, kvcl_owner_slot(node));
            }
        }
    }
    pthread_mutex_unlock(&store->ctx->engine.lock);
}

enum { ON_STACK = 4096 };

/* Which ranks' tables were read, or asked: their homes'. */
static void end_timing(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_timing_t *timing)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(store);
    size_t                 i;

    kvcl_lock(store->ctx);
    for (i = 0; i < n; ++i) {
        kvcl_timing_way(timing, kvcl_store_way(store, kvcl_store_home(store, map, &keys[i])));
    }
    kvcl_unlock(store->ctx);
    kvcl_timing_note(&store->ctx->latency, timing);
}

static kvcl_status_t look_up(kvcl_store_h store, const kvcl_key_t *keys, size_t n, bool match, uint8_t *flags,
                             size_t *hit_p)
{
    kvcl_timing_t timing = match ? kvcl_timing_sample(&store->ctx->latency, KVCL_LATENCY_STORE_MATCH)
                                 : (kvcl_timing_t){0};
    kvcl_status_t status = KVCL_OK;
    size_t        hit;
    bool          ask;

    atomic_fetch_add_explicit(&store->lookups, n, memory_order_relaxed);
    n = look_all(store, keys, n, match, flags, &ask);
    if (ask) {
        timing = match ? kvcl_timing_begin(KVCL_LATENCY_STORE_MATCH) : timing; /* worth a clock */
        status = ask_homes(store, keys, n, flags);
        if (status != KVCL_OK) {
            return status;
        }
    }
    hit = n;
    if (match) {
        for (hit = 0; (hit < n) && (flags[hit] != 0); ++hit) {
        }
        *hit_p = hit;
    }
    touch(store, keys, hit, flags);
    if (timing.begun_ns != 0) {
        end_timing(store, keys, n, &timing);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_store_match(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, "kvcl_store_match");
    uint8_t       few[ON_STACK];
    uint8_t       *flags = few;

    if ((status == KVCL_OK) && (hit_p == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_match: hit_p is NULL");
    }
    if ((status == KVCL_OK) && (n > sizeof(few))) {
        flags = malloc(n);
        if (flags == NULL) {
            status = kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_match: no memory for %zu keys", n);
        }
    }
    if (status == KVCL_OK) {
        status = look_up(store, keys, n, true, flags, hit_p);
    }
    if (flags != few) {
        free(flags);
    }
    return status;
}

kvcl_status_t kvcl_store_exists(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, "kvcl_store_exists");
    size_t        i;

    if ((status == KVCL_OK) && (present == NULL) && (n != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_exists: present is NULL");
    }
    if (status == KVCL_OK) {
        status = look_up(store, keys, n, false, present, NULL);
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        present[i] &= KVCL_PRESENT_SOMEWHERE;
    }
    return status;
}
