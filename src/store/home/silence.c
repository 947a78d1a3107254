/*
 * Silent ranks: how they are detected, and how the RPCs that wait for them end.
 *
 * When a watched RPC has waited for KVCL_STORE_HEDGE (100 ms at least), its rank is checked by a small query that every
 * rank answers at once. If the answer arrives, the RPC is only slow, and continues. If none arrives within four hedges,
 * the rank is suspected, and each watched RPC to it ends with KVCL_ERR_TIMED_OUT (rpc->silent). A get's hedge may
 * suspect a rank sooner; its silence is then certain when it has answered no query for four hedges. A watched RPC to a
 * rank whose silence is certain waits for one hedge. A suspect is probed in the background and trusted again when it
 * answers (ranks.c).
 *
 * One timer serves all RPCs of a store; it runs only while an RPC is watched. Engine lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/store.h"

enum { CHECK_HEDGES = 4, CONNECT_HEDGES = 16 }; /* a rank without a connection has to set one up first */
#define LEAST_NS (100 * KVCL_NS_PER_MS) /* a rank that is merely slow must not fail a put */

/* How long an RPC waits before its rank is checked. */
static uint64_t hedge_of(const struct kvcl_store *store)
{
    uint64_t hedge_ns = store->ctx->config.store_hedge_ns;

    return (hedge_ns < LEAST_NS) ? LEAST_NS : hedge_ns;
}

static void on_timer(void *arg);

static void wake_after(kvcl_store_h store, uint64_t after_ns)
{
    if (store->silence_timer == NULL) {
        store->silence_timer = kvcl_store_timer_start(store, after_ns, on_timer, store);
    }
}

static void on_check(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_store_rank_t *rank = &rpc->store->ranks[rpc->rank];

    (void)data;
    (void)len;
    if ((status == KVCL_ERR_TIMED_OUT) && !rpc->store->closing) {
        kvcl_store_suspect(rpc->store, rpc->rank);
    } else {
        rank->answered_ns = kvcl_now_ns();
    }
    rank->checking = false;
}

static void start_check(kvcl_store_h store, uint32_t rank)
{
    kvcl_rpc_t *rpc   = kvcl_rpc_new(store, rank, KVCL_RPC_TABLE, 0);
    unsigned   hedges = (store->ranks[rank].peer->state == KVCL_PEER_READY) ? CHECK_HEDGES : CONNECT_HEDGES;

    if (rpc != NULL) {
        store->ranks[rank].checking        = true;
        store->ranks[rank].silent_since_ns = kvcl_now_ns();
        rpc->done                          = on_check;
        kvcl_rpc_post(rpc, hedges * hedge_of(store), &store->probes);
    }
}

static bool is_sure(const struct kvcl_store *store, uint32_t rank, uint64_t now_ns)
{
    return kvcl_store_suspects(store, rank) &&
           (now_ns >= store->ranks[rank].silent_since_ns + (CHECK_HEDGES * hedge_of(store)));
}

bool kvcl_silence_is_sure(const struct kvcl_store *store, uint32_t rank)
{
    return (store->ctx->config.store_hedge_ns != 0) && kvcl_store_suspects(store, rank) &&
           is_sure(store, rank, kvcl_now_ns()); /* most callers have many keys: no clock for a rank that answers */
}

/* Is the RPC to end as silent now? If it is only slow, its rank is checked. */
static bool is_over(kvcl_store_h store, const kvcl_rpc_t *rpc, uint64_t now_ns)
{
    kvcl_store_rank_t *rank = &store->ranks[rpc->rank];
    uint64_t          since = rpc->posted_ns + rpc->grace_ns;

    if (kvcl_store_suspects(store, rpc->rank)) { /* it has not answered its probe either */
        return (now_ns >= rpc->posted_ns + hedge_of(store)) && (now_ns >= rpc->posted_ns + rpc->least_ns) &&
               is_sure(store, rpc->rank, now_ns);
    }
    since = (since < rank->answered_ns) ? rank->answered_ns : since;
    if ((now_ns >= since + hedge_of(store)) && !rank->checking) {
        start_check(store, rpc->rank);
    }
    return false;
}

static void on_timer(void *arg)
{
    kvcl_store_h store    = arg;
    uint64_t     now_ns   = kvcl_now_ns();
    kvcl_list_t  seen, over, *link;
    kvcl_rpc_t   *rpc;

    store->silence_timer = NULL;
    if (store->closing) {
        return;
    }
    kvcl_list_init(&seen);
    kvcl_list_init(&over);
    kvcl_list_splice_tail(&seen, &store->watched);
    while ((link = kvcl_list_first(&seen)) != NULL) { /* a check may end at once, and RPCs with it */
        rpc = kvcl_container_of(link, kvcl_rpc_t, watch_link);
        kvcl_list_del(&rpc->watch_link);
        kvcl_list_add_tail(&store->watched, &rpc->watch_link);
        if (is_over(store, rpc, now_ns)) {
            kvcl_list_del(&rpc->watch_link);
            kvcl_list_add_tail(&over, &rpc->watch_link);
        }
    }
    while ((link = kvcl_list_first(&over)) != NULL) { /* its end unlinks it, and perhaps others */
        kvcl_rpc_abandon(kvcl_container_of(link, kvcl_rpc_t, watch_link));
    }
    if (!kvcl_list_is_empty(&store->watched)) {
        wake_after(store, hedge_of(store) / 2);
    }
}

void kvcl_silence_watch(kvcl_rpc_t *rpc)
{
    kvcl_store_h store = rpc->store;

    if ((store->ctx->config.store_hedge_ns != 0) && !rpc->over) {
        kvcl_list_del(&rpc->watch_link);
        kvcl_list_add_tail(&store->watched, &rpc->watch_link);
        wake_after(store, hedge_of(store) / 2);
    }
}

void kvcl_silence_found(kvcl_store_h store)
{
    if (!kvcl_list_is_empty(&store->watched)) {
        kvcl_store_timer_stop(store->silence_timer);
        store->silence_timer = NULL;
        wake_after(store, 1);
    }
}

void kvcl_silence_stop(kvcl_store_h store)
{
    kvcl_store_timer_stop(store->silence_timer);
    store->silence_timer = NULL;
}
