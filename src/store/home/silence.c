/*
 * Ranks that do not answer: how they are found, and what waits for them ends.
 *
 * A watched ask that has waited for KVCL_STORE_HEDGE (100 ms at least) makes this rank doubt the asked one: a small
 * question is sent that a rank answers at once, whatever else it does. An answer says that the ask is only slow, and it
 * goes on. No answer after four times as long makes the rank suspected: each watched ask to it ends with
 * KVCL_ERR_TIMED_OUT (ask->silent). A rank may be suspected sooner, by a get's hedge: its silence is sure when it has
 * not answered a question for as long. A watched ask to a rank whose silence is sure waits for one hedge. A suspect is
 * probed in the background and is trusted again when it answers (home/ranks.c).
 *
 * One timer for all asks of a store; it runs only while something is watched. Engine lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "store/store.h"

enum { DOUBT_TIMES = 4, MEETING_TIMES = 16 }; /* a rank that has not been met yet has more to do */
#define LEAST_NS (100 * KVCL_NS_PER_MS) /* a rank that is merely slow is not to fail a put */

/* How long an ask waits before its rank is doubted. */
static uint64_t patience(const struct kvcl_store *store)
{
    uint64_t hedge_ns = store->ctx->config.store_hedge_ns;

    return (hedge_ns < LEAST_NS) ? LEAST_NS : hedge_ns;
}

static void look(void *arg);

static void wake_after(kvcl_store_h store, uint64_t after_ns)
{
    if (store->silence_timer == NULL) {
        store->silence_timer = kvcl_store_timer_start(store, after_ns, look, store);
    }
}

static void on_doubt(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_store_rank_t *rank = &rpc->store->ranks[rpc->rank];

    (void)data;
    (void)len;
    if ((status == KVCL_ERR_TIMED_OUT) && !rpc->store->closing) {
        kvcl_store_suspect(rpc->store, rpc->rank);
    } else {
        rank->heard_ns = kvcl_now_ns();
    }
    rank->doubted = false;
}

static void doubt(kvcl_store_h store, uint32_t rank)
{
    kvcl_rpc_t *rpc   = kvcl_rpc_new(store, rank, KVCL_RPC_TABLE, 0);
    unsigned   times = (store->ranks[rank].peer->state == KVCL_PEER_READY) ? DOUBT_TIMES : MEETING_TIMES;

    if (rpc != NULL) {
        store->ranks[rank].doubted  = true;
        store->ranks[rank].quiet_ns = kvcl_now_ns();
        rpc->done                   = on_doubt;
        kvcl_rpc_post(rpc, times * patience(store), &store->probes);
    }
}

static bool is_sure(const struct kvcl_store *store, uint32_t rank, uint64_t now_ns)
{
    return kvcl_store_suspects(store, rank) &&
           (now_ns >= store->ranks[rank].quiet_ns + (DOUBT_TIMES * patience(store)));
}

bool kvcl_silence_is_sure(const struct kvcl_store *store, uint32_t rank)
{
    return (store->ctx->config.store_hedge_ns != 0) && is_sure(store, rank, kvcl_now_ns());
}

/* What an ask that nobody answers leads to now. */
static bool is_over(kvcl_store_h store, const kvcl_rpc_t *rpc, uint64_t now_ns)
{
    kvcl_store_rank_t *rank = &store->ranks[rpc->rank];
    uint64_t          since = rpc->posted_ns + rpc->grace_ns;

    if (kvcl_store_suspects(store, rpc->rank)) { /* its probe is not answered either */
        return (now_ns >= rpc->posted_ns + patience(store)) && (now_ns >= rpc->posted_ns + rpc->least_ns) &&
               is_sure(store, rpc->rank, now_ns);
    }
    since = (since < rank->heard_ns) ? rank->heard_ns : since;
    if ((now_ns >= since + patience(store)) && !rank->doubted) {
        doubt(store, rpc->rank);
    }
    return false;
}

static void look(void *arg)
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
    while ((link = kvcl_list_first(&seen)) != NULL) { /* a doubt may end at once, and asks with it */
        rpc = kvcl_container_of(link, kvcl_rpc_t, watch_link);
        kvcl_list_del(&rpc->watch_link);
        kvcl_list_add_tail(&store->watched, &rpc->watch_link);
        if (is_over(store, rpc, now_ns)) {
            kvcl_list_del(&rpc->watch_link);
            kvcl_list_add_tail(&over, &rpc->watch_link);
        }
    }
    while ((link = kvcl_list_first(&over)) != NULL) { /* its end takes it out of the list, perhaps others too */
        kvcl_rpc_abandon(kvcl_container_of(link, kvcl_rpc_t, watch_link));
    }
    if (!kvcl_list_is_empty(&store->watched)) {
        wake_after(store, patience(store) / 2);
    }
}

void kvcl_silence_watch(kvcl_rpc_t *rpc)
{
    kvcl_store_h store = rpc->store;

    if ((store->ctx->config.store_hedge_ns != 0) && !rpc->over) {
        kvcl_list_del(&rpc->watch_link);
        kvcl_list_add_tail(&store->watched, &rpc->watch_link);
        wake_after(store, patience(store) / 2);
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
