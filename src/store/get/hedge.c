/*
 * Hedging: a get drops a request that has not moved for KVCL_STORE_HEDGE, if there is another path.
 *
 * For a request to a home the other path is the backup home, in a store in which every key has two homes. For a pull it
 * is another copy, at a rank that answers, of at least one of its blocks; the pull's other blocks are then waited for
 * by themselves. Two pulls never write the same block: the first is stopped, which fences it, before the next begins.
 * The silent rank is suspected from then on (home/ranks.c), so the next get does not wait for it. Without another path
 * the get's deadline decides, as it does for pulls that make progress.
 *
 * With KVCL_STORE_HEDGE_AUTO the limit is the p99 latency of the request's class, if that is shorter. The classes are:
 * requests to homes, and served transfers of about the same size, each on this host or on another (delay.h). Each time
 * that an item is dropped for silence its delay doubles. A rank that was silent may be used again once it answers: it
 * may only have been slow, while the rank of the other copy is the one that is stopped.
 */
#include "config.h"
#include "base/clock.h"
#include "store/get/get.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "xfer/pull.h"

enum { DISK_TIMES = 5 }; /* a disk may take this many times as long as a rank */
enum { DOUBLINGS_MAX = 20 };
#define AUTO_LEAST_NS KVCL_NS_PER_MS

static void check(void *arg);

/* ---- limits ---- */

static kvcl_delay_t *delays_of(kvcl_store_h store, uint32_t rank)
{
    return store->delays[(store->places[rank].host == store->places[store->me].host) ? 0 : 1];
}

/* Silence in ns after which a request is dropped; 0: never. before: how often the item was dropped already; such drops
 * may have been wrong, so the limit doubles with each. */
static uint64_t hedge_after(kvcl_store_h store, uint32_t rank, unsigned class, unsigned before)
{
    uint64_t most = store->ctx->config.store_hedge_ns, p99;

    if ((most == 0) || !store->ctx->config.store_hedge_auto) {
        return most;
    }
    p99 = kvcl_delay_p99_of(delays_of(store, rank), class);
    p99 = ((p99 != 0) && (p99 < AUTO_LEAST_NS)) ? AUTO_LEAST_NS : p99;
    return ((p99 != 0) && (before < DOUBLINGS_MAX) && (p99 < most >> before)) ? p99 << before : most;
}

static uint64_t hedge_rpc(const kvcl_get_t *get, uint32_t rank)
{
    return hedge_after(get->store, rank, KVCL_DELAY_QUERY, get->hedges);
}

static uint32_t rank_of(const kvcl_get_fetch_t *fetch)
{
    const kvcl_get_item_t *item = &fetch->get->items[fetch->items[0]];

    return kvcl_get_loc(item)->rank;
}

static uint64_t hedge_fetch(const kvcl_get_fetch_t *fetch)
{
    return hedge_after(fetch->get->store, rank_of(fetch), kvcl_delay_class(fetch->pull->total),
                       fetch->get->items[fetch->items[0]].hedges);
}

bool kvcl_hedge_stays(const kvcl_get_t *get, kvcl_get_item_t *item)
{
    kvcl_assert_locked(get->store->ctx);
    if (!kvcl_get_has_other(get, item)) {
        return true;
    }
    item->silent |= (uint8_t)(1u << item->cur);
    item->hedges  = (uint8_t)(item->hedges + ((item->hedges < DOUBLINGS_MAX) ? 1 : 0));
    return false;
}

void kvcl_hedge_fetched(const kvcl_get_fetch_t *fetch, kvcl_status_t status)
{
    kvcl_store_h store = fetch->get->store;

    kvcl_assert_locked(store->ctx);
    if ((status == KVCL_OK) && store->ctx->config.store_hedge_auto && (fetch->pull->received == fetch->pull->total)) {
        kvcl_delay_add(&delays_of(store, rank_of(fetch))[kvcl_delay_class(fetch->pull->total)],
                       kvcl_now_ns() - fetch->begun_ns);
    }
}

void kvcl_hedge_answered(const kvcl_rpc_t *rpc, kvcl_status_t status)
{
    if ((status == KVCL_OK) && rpc->store->ctx->config.store_hedge_auto) {
        kvcl_delay_add(&delays_of(rpc->store, rpc->rank)[KVCL_DELAY_QUERY], kvcl_now_ns() - rpc->posted_ns);
    }
}

/* ---- the check ---- */

/* The shortest limit of all requests in flight. */
static uint64_t shortest(const kvcl_get_t *get)
{
    uint64_t         least = get->store->ctx->config.store_hedge_ns, one;
    kvcl_get_fetch_t *fetch;
    kvcl_rpc_t       *rpc;

    if (!get->store->ctx->config.store_hedge_auto) {
        return least;
    }
    kvcl_list_foreach (fetch, &get->pulls, kvcl_get_fetch_t, link) {
        one   = hedge_fetch(fetch);
        least = (one < least) ? one : least;
    }
    kvcl_list_foreach (rpc, &get->rpcs, kvcl_rpc_t, link) {
        one   = hedge_rpc(get, rpc->rank);
        least = (one < least) ? one : least;
    }
    return least;
}

void kvcl_hedge_arm(kvcl_get_t *get)
{
    kvcl_assert_locked(get->store->ctx);
    if ((get->hedge == NULL) && (get->store->ctx->config.store_hedge_ns != 0) && (get->stopping == KVCL_OK) &&
        (!kvcl_list_is_empty(&get->rpcs) || !kvcl_list_is_empty(&get->pulls) || !kvcl_list_is_empty(&get->stages))) {
        get->hedge = kvcl_store_timer_start(get->store, (shortest(get) / 2) + 1, check, get); /* NULL: no hedging */
    }
}

void kvcl_hedge_disarm(kvcl_get_t *get)
{
    kvcl_store_timer_stop(get->hedge);
    get->hedge = NULL;
}

static bool has_other_path(const kvcl_get_fetch_t *fetch)
{
    size_t i;

    for (i = 0; i < fetch->n; ++i) {
        if (kvcl_get_has_other(fetch->get, &fetch->get->items[fetch->items[i]])) {
            return true;
        }
    }
    return false;
}

static void check_pulls(kvcl_get_t *get, uint64_t now_ns)
{
    kvcl_get_fetch_t *fetch, *next;

    kvcl_list_foreach_safe (fetch, next, &get->pulls, kvcl_get_fetch_t, link) {
        if (fetch->pull->received != fetch->seen) {
            fetch->seen    = fetch->pull->received;
            fetch->seen_ns = now_ns;
        }
        if ((now_ns - fetch->seen_ns < hedge_fetch(fetch)) || (fetch->pull->state == KVCL_PULL_COPY) ||
            (fetch->pull->state == KVCL_PULL_RMA) || !has_other_path(fetch)) {
            continue; /* one-sided transfers are slow for other reasons than a silent owner */
        }
        fetch->hedged = true;
        kvcl_store_suspect(get->store, rank_of(fetch));
        kvcl_pull_stop(fetch->pull, KVCL_ERR_TIMED_OUT);
    }
}

/* Is there another home to query? A rank that was known to be silent was queried only because the keys' other home was
 * silent as well. */
static bool has_other_home(const kvcl_get_t *get, const kvcl_rpc_t *rpc)
{
    const kvcl_get_item_t *item = &get->items[rpc->order[0]];

    return !rpc->was_suspect || (kvcl_store_home(get->store, kvcl_store_shards(get->store), &item->key) != rpc->rank);
}

/* Stopping one rpc may end several, but cannot begin the next round: check() holds get->outstanding. */
static void check_rpcs(kvcl_get_t *get, uint64_t now_ns)
{
    kvcl_list_t silent;
    kvcl_rpc_t  *rpc, *next;

    kvcl_list_init(&silent);
    kvcl_list_foreach_safe (rpc, next, &get->rpcs, kvcl_rpc_t, link) {
        if ((now_ns - rpc->posted_ns >= hedge_rpc(get, rpc->rank)) && has_other_home(get, rpc)) {
            kvcl_list_del(&rpc->link);
            kvcl_list_add_tail(&silent, &rpc->link);
        }
    }
    if (!kvcl_list_is_empty(&silent)) { /* querying the other home does not count as another lookup */
        ++get->hedges;
        get->lookups -= (get->lookups != 0) ? 1 : 0;
    }
    kvcl_list_foreach (rpc, &silent, kvcl_rpc_t, link) {
        rpc->hedged = true;
        kvcl_store_suspect(get->store, rpc->rank);
    }
    kvcl_rpcs_stop(&silent, KVCL_ERR_TIMED_OUT);
}

static void check(void *arg)
{
    kvcl_get_t *get    = arg;
    uint64_t   now_ns  = kvcl_now_ns(), hedge_ns = get->store->ctx->config.store_hedge_ns;

    get->hedge = NULL;
    if (get->stopping != KVCL_OK) {
        return;
    }
    ++get->outstanding; /* requests that end in here must not begin the next round yet */
    check_pulls(get, now_ns);
    kvcl_get_stage_hedge(get, now_ns, DISK_TIMES * hedge_ns);
    if (get->store->replicas > 1) {
        check_rpcs(get, now_ns);
    }
    --get->outstanding;
    kvcl_hedge_arm(get);
    get->advance(get);
}
