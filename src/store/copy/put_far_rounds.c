/*
 * The rounds of a put into other ranks' pools: which ranks are requested to fetch the blocks, and their answers.
 *
 * Invariant: a rank is requested once for each put, unless it answers that it is busy, or the put waits for room or for
 * a member that does not answer.
 * Locks: the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "member/lease.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/put_far_impl.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"

#include <string.h>

#define BUSY_PAUSE_NS (5 * KVCL_NS_PER_MS)
#define ROOM_PAUSE_NS (20 * KVCL_NS_PER_MS)

void kvcl_far_lacking(kvcl_far_put_t *far, unsigned *most_p)
{
    size_t i;

    *most_p      = 0;
    far->n_order = 0;
    for (i = 0; i < far->n; ++i) {
        if (far->made[i] < far->copies) {
            far->order[far->n_order++] = (uint32_t)i;
            *most_p = (far->copies - far->made[i] > *most_p) ? far->copies - far->made[i] : *most_p;
        }
    }
}

static void on_copied(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_far_put_t   *far  = rpc->arg;
    const uint8_t    *made = (const uint8_t *)data + sizeof(kvcl_copy_tail_t);
    kvcl_copy_tail_t tail;
    uint32_t         taken = 0, i;

    (void)len; /* kinds.c: checked lengths */
    if (status == KVCL_OK) {
        memcpy(&tail, data, sizeof(tail));
        for (i = 0; i < rpc->n; ++i) {
            uint8_t *at = &far->made[rpc->order[i]];
            *at = (uint8_t)((made[i] < far->copies - *at) ? *at + made[i] : far->copies);
            taken += (made[i] != 0) ? 1 : 0;
        }
        kvcl_place_took(&far->call.store->places[rpc->rank], taken * far->bytes, tail.pool_free);
        status = (taken < rpc->n) ? KVCL_ERR_NO_SPACE : KVCL_OK;
    } else if (status == KVCL_ERR_BUSY) {
        far->busy             = true;
        far->tried[rpc->rank] = 0;
    } else if ((status == KVCL_ERR_TIMED_OUT) && (far->call.stopped == KVCL_OK)) {
        kvcl_store_suspect(far->call.store, rpc->rank);
    }
    if (status != KVCL_OK) {
        far->refused    = status;
        far->refused_by = (int)rpc->rank;
    }
    kvcl_call_over(&far->call);
}

/* Post one chain: the blocks of this round, these ranks. */
static void post_chain(kvcl_far_put_t *far, const uint16_t *ranks, unsigned places)
{
    const uint32_t   n    = far->n_order;
    kvcl_copy_head_t head = {.copies = (uint8_t)far->copies, .tenant = far->tenant, .n_next = (uint8_t)(places - 1),
                             .flags = KVCL_COPY_UNLISTED};
    uint32_t         from, some;
    kvcl_rpc_t       *rpc;

    memcpy(head.next, ranks + 1, head.n_next * sizeof(ranks[0]));
    for (from = 0; from < n; from += some) {
        some = (n - from < KVCL_COPY_MAX) ? n - from : KVCL_COPY_MAX;
        rpc  = kvcl_copy_request(far->call.store, ranks[0], &head, far->recs, far->order + from, some);
        if (rpc == NULL) {
            far->refused    = KVCL_ERR_NO_MEMORY;
            far->refused_by = (int)ranks[0];
            break;
        }
        rpc->arg  = far;
        rpc->done = on_copied;
        /* the rank makes the copies of one request after those of the requests before */
        kvcl_call_post(&far->call, rpc, places * kvcl_copy_time(far->call.store, from + some, far->bytes), true);
    }
}

static void after_pause(void *arg)
{
    kvcl_far_put_t *far = arg;

    far->pause = NULL;
    kvcl_call_over(&far->call);
}

static bool pause_for(kvcl_far_put_t *far, uint64_t pause_ns)
{
    far->busy  = false;
    far->pause = kvcl_store_timer_start(far->call.store, pause_ns, after_pause, far);
    far->call.outstanding += (far->pause != NULL) ? 1 : 0;
    return far->pause != NULL;
}

/* Choose the ranks of the next chain. A named rank is the first, and no other rank replaces it. */
static unsigned choose(kvcl_far_put_t *far, unsigned most, uint16_t *ranks)
{
    kvcl_store_h store = far->call.store;

    most = (most < KVCL_DIR_LOCS_MAX - 1) ? most : KVCL_DIR_LOCS_MAX - 1;
    if (far->to_rank < 0) {
        return kvcl_store_place_near(store, far->bytes, far->tried, most, ranks);
    }
    if (far->tried[far->to_rank]) {
        return 0;
    }
    far->tried[far->to_rank] = 1;
    ranks[0]                 = (uint16_t)far->to_rank;
    return 1 + ((most > 1) ? kvcl_store_place(store, far->bytes, far->tried, most - 1, ranks + 1) : 0);
}

bool kvcl_far_round(kvcl_far_put_t *far)
{
    uint16_t ranks[KVCL_DIR_LOCS_MAX];
    unsigned most, places, i;

    kvcl_far_lacking(far, &most);
    if (far->n_order == 0) {
        return false;
    }
    if (far->busy) {
        return pause_for(far, BUSY_PAUSE_NS);
    }
    places = choose(far, most, ranks);
    if ((places == 0) && ((far->waits && (far->refused == KVCL_ERR_NO_SPACE)) ||
                          ((far->to_rank < 0) && kvcl_store_awaits_place(far->call.store, far->bytes)))) {
        memset(far->tried, 0, far->call.store->n_ranks);
        return pause_for(far, ROOM_PAUSE_NS);
    }
    for (i = 0; i < places; ++i) {
        far->tried[ranks[i]] = 1;
    }
    if (places != 0) {
        post_chain(far, ranks, places);
    }
    return places != 0;
}
void kvcl_far_halt(kvcl_far_put_t *far)
{
    if (far->pause != NULL) {
        kvcl_store_timer_stop(far->pause);
        after_pause(far);
    }
}

/* Fewer ranks than copies is no error; fewer copies than the ranks could hold is one. Without a quorum this rank does
 * not know which ranks there are. */
kvcl_status_t kvcl_far_verdict(kvcl_far_put_t *far)
{
    unsigned can = kvcl_store_places(far->call.store, far->bytes);
    size_t   i;

    can = (can < far->copies) ? can : far->copies;
    can = (can == 0) ? 1 : can;
    for (i = 0; i < far->n; ++i) {
        if (far->made[i] < can) {
            if (far->refused_by < 0) {
                kvcl_req_why(&far->call.req, "no rank that has a pool for such blocks answers");
            } else {
                kvcl_req_why(&far->call.req, "block %zu of the put has %u of %u copies; rank %d refused one: %s", i,
                             far->made[i], can, far->refused_by, kvcl_status_text(far->refused));
            }
            return kvcl_member_is_excluded(far->call.store->ctx) ? KVCL_ERR_STALE
                   : (far->refused != KVCL_OK)                   ? far->refused
                                                                 : KVCL_ERR_NO_SPACE;
        }
        if ((far->made[i] < far->copies) && !kvcl_views_may_own(far->call.store)) {
            return KVCL_ERR_NO_QUORUM;
        }
    }
    return KVCL_OK;
}
