/*
 * Rounds of queries about parts of a store (rounds.h). The peers of ranks are looked up anew before each round, since
 * other processes come as well.
 *
 * Owns the answers. Invariant: no query is in flight between two rounds. Locks: none on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/grow/rounds.h"
#include "store/home/follow_views.h"

#include <stdlib.h>

#define PAUSE_NS (20 * KVCL_NS_PER_MS)

kvcl_status_t kvcl_rounds_open(kvcl_rounds_t *rounds, kvcl_store_h store, uint64_t deadline_ns)
{
    *rounds = (kvcl_rounds_t){.store = store, .deadline_ns = deadline_ns,
                              .ranks = calloc(store->n_ranks, sizeof(*rounds->ranks))};
    return (rounds->ranks != NULL) ? KVCL_OK
                                   : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store over %u ranks",
                                               store->n_ranks);
}

void kvcl_rounds_close(kvcl_rounds_t *rounds)
{
    free(rounds->ranks);
    rounds->ranks = NULL;
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_rounds_t      *rounds = rpc->arg;
    kvcl_rounds_rank_t *rank   = &rounds->ranks[rpc->rank];

    if ((status == KVCL_OK) && !kvcl_part_read(data, len, &rank->part)) {
        status = KVCL_ERR_PROTOCOL;
    }
    rank->status = status;
    --rounds->outstanding;
    kvcl_engine_notify(rounds->store->ctx);
}

/* No lock. Those that have come since, too. */
static void find_peers(kvcl_rounds_t *rounds)
{
    kvcl_store_h store = rounds->store;
    kvcl_peer_t  *peer;
    uint32_t     i;

    for (i = 0; i < store->n_ranks; ++i) {
        if ((i == store->me) || rounds->ranks[i].over || (store->incarnations[i] != 0) ||
            (kvcl_comm_peer(store->comm, (int)i, &peer) != KVCL_OK)) {
            continue;
        }
        kvcl_lock(store->ctx);
        if ((store->views->view == 0) && (store->views->moves.ranks[i].incarnation == 0)) { /* it comes itself */
            store->ranks[i].peer = peer;
        }
        kvcl_unlock(store->ctx);
    }
}

/* Lock held. */
static void ask(kvcl_rounds_t *rounds, uint32_t rank, const kvcl_part_t *part)
{
    kvcl_store_h store = rounds->store;
    kvcl_rpc_t   *rpc  = kvcl_rpc_new(store, rank, (part != NULL) ? KVCL_RPC_TAKE : KVCL_RPC_ASK, sizeof(*part));
    uint64_t     left  = kvcl_deadline_left(rounds->deadline_ns);

    kvcl_assert_locked(store->ctx);
    rounds->ranks[rank].status = KVCL_ERR_NO_MEMORY;
    if (rpc == NULL) {
        return;
    }
    if (part != NULL) {
        memcpy(rpc->payload, part, sizeof(*part));
        rpc->len = sizeof(*part);
        rpc->n   = 1;
    }
    rpc->arg  = rounds;
    rpc->done = on_answer;
    ++rounds->outstanding;
    kvcl_rpc_post(rpc, (left != 0) ? left : 1, &store->op_rpcs); /* kvcl_store_close ends it */
}

static bool have_answered(void *arg)
{
    return ((const kvcl_rounds_t *)arg)->outstanding == 0;
}

unsigned kvcl_rounds_ask(kvcl_rounds_t *rounds, const kvcl_part_t *part)
{
    kvcl_store_h store = rounds->store;
    unsigned     n     = 0;
    uint32_t     i;

    find_peers(rounds);
    kvcl_lock(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        rounds->ranks[i].asked = !store->closing && (i != store->me) && !rounds->ranks[i].over &&
                                 kvcl_views_has(store, i) && (store->ranks[i].peer->state != KVCL_PEER_FAILED);
        if (rounds->ranks[i].asked) {
            ++n;
            ask(rounds, i, part);
        }
    }
    kvcl_unlock(store->ctx);
    (void)kvcl_engine_wait(store->ctx, have_answered, rounds, KVCL_DEADLINE_NONE); /* each has the deadline */
    return n;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

bool kvcl_rounds_pause(kvcl_rounds_t *rounds)
{
    uint64_t until = kvcl_deadline_after(PAUSE_NS);

    (void)kvcl_engine_wait(rounds->store->ctx, never, NULL, (until < rounds->deadline_ns) ? until
                                                                                         : rounds->deadline_ns);
    return !kvcl_deadline_passed(rounds->deadline_ns);
}

static bool has_settled(void *arg)
{
    const struct kvcl_store *store = arg;

    return store->closing || store->views->over;
}

bool kvcl_rounds_wait_settled(kvcl_store_h store, uint64_t deadline_ns)
{
    return kvcl_engine_wait(store->ctx, has_settled, store, deadline_ns);
}
