/*
 * Not waiting for a silent rank: a get gives up what has not moved for KVCL_STORE_HEDGE, where there is another way.
 *
 * A question to a home: the backup knows as much, in a store of which every key has two homes. A pull: another copy of
 * at least one of its blocks lies with a rank that answers; the others of its blocks are then waited for by themselves.
 * Two pulls never write one block: the first is stopped, which fences it, before the next begins. The rank is suspected
 * from then on (store_ranks.c), so the next get does not wait again. Where there is no other way, the get's deadline
 * decides, as it does for pulls that move.
 */
#include "config.h"
#include "base/clock.h"
#include "store/get.h"
#include "xfer/pull.h"

enum { DISK_TIMES = 5 }; /* a disk may take so much longer than a rank */

static void look(void *arg);

void kvcl_hedge_arm(kvcl_get_t *get)
{
    uint64_t hedge_ns = get->store->ctx->config.store_hedge_ns;

    if ((get->hedge == NULL) && (hedge_ns != 0) && (get->stopping == KVCL_OK) &&
        (!kvcl_list_is_empty(&get->asks) || !kvcl_list_is_empty(&get->pulls) || !kvcl_list_is_empty(&get->stages))) {
        get->hedge = kvcl_store_timer_start(get->store, (hedge_ns / 2) + 1, look, get); /* none: the deadline is left */
    }
}

void kvcl_hedge_disarm(kvcl_get_t *get)
{
    kvcl_store_timer_stop(get->hedge);
    get->hedge = NULL;
}

static bool has_other_way(const kvcl_get_fetch_t *fetch)
{
    size_t i;

    for (i = 0; i < fetch->n; ++i) {
        if (kvcl_get_has_other(fetch->get, &fetch->get->items[fetch->items[i]])) {
            return true;
        }
    }
    return false;
}

static void look_at_pulls(kvcl_get_t *get, uint64_t now_ns, uint64_t hedge_ns)
{
    kvcl_get_fetch_t *fetch, *next;
    uint32_t         rank;

    kvcl_list_foreach_safe (fetch, next, &get->pulls, kvcl_get_fetch_t, link) {
        if (fetch->pull->received != fetch->seen) {
            fetch->seen    = fetch->pull->received;
            fetch->seen_ns = now_ns;
        }
        if ((now_ns - fetch->seen_ns < hedge_ns) || (fetch->pull->state == KVCL_PULL_COPY) ||
            (fetch->pull->state == KVCL_PULL_RMA) || !has_other_way(fetch)) {
            continue; /* what needs no word of its owner is slow for other reasons */
        }
        rank          = get->items[fetch->items[0]].locs[get->items[fetch->items[0]].cur].rank;
        fetch->hedged = true;
        kvcl_store_suspect(get->store, rank);
        kvcl_pull_stop(fetch->pull, KVCL_ERR_TIMED_OUT);
    }
}

/* Several asks may end with the stop of one, never begin: the get's turn is held. */
static void look_at_asks(kvcl_get_t *get, uint64_t now_ns, uint64_t hedge_ns)
{
    kvcl_list_t silent;
    kvcl_ask_t  *ask, *next;

    kvcl_list_init(&silent);
    kvcl_list_foreach_safe (ask, next, &get->asks, kvcl_ask_t, link) {
        if ((now_ns - ask->posted_ns >= hedge_ns) && !ask->patient) {
            kvcl_list_del(&ask->link);
            kvcl_list_add_tail(&silent, &ask->link);
        }
    }
    kvcl_list_foreach (ask, &silent, kvcl_ask_t, link) {
        ask->hedged = true;
        kvcl_store_suspect(get->store, ask->rank);
    }
    kvcl_asks_stop(&silent, KVCL_ERR_TIMED_OUT);
}

static void look(void *arg)
{
    kvcl_get_t *get    = arg;
    uint64_t   now_ns  = kvcl_now_ns(), hedge_ns = get->store->ctx->config.store_hedge_ns;

    get->hedge = NULL;
    if (get->stopping != KVCL_OK) {
        return;
    }
    ++get->outstanding; /* what ends in here must not begin the next round yet */
    look_at_pulls(get, now_ns, hedge_ns);
    kvcl_get_stage_hedge(get, now_ns, DISK_TIMES * hedge_ns);
    if (get->store->replicas > 1) {
        look_at_asks(get, now_ns, hedge_ns);
    }
    --get->outstanding;
    kvcl_hedge_arm(get);
    kvcl_get_advance(get);
}
