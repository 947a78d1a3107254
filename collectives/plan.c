/*
 * Appending to a plan, indexing it, checking it.
 *
 * Seal sorts the steps by (peer, op, order of appending); that order is k. It then links each step
 * to those that wait for it, lowest index first, so that events start them in the plan's order.
 */
#include "config.h"

#include "collectives/plan.h"

#include "base/error.h"
#include "base/rand.h"

#include <stdlib.h>
#include <string.h>

void kvcl_plan_init(kvcl_plan_t *plan)
{
    memset(plan, 0, sizeof(*plan));
}

void kvcl_plan_fini(kvcl_plan_t *plan)
{
    free(plan->steps);
    free(plan->index);
    free(plan->peers);
    memset(plan, 0, sizeof(*plan));
}

static kvcl_status_t reserve(kvcl_plan_t *plan)
{
    uint32_t     capacity = (plan->capacity == 0) ? 16 : (plan->capacity * 2);
    kvcl_step_t *steps;

    if (plan->count < plan->capacity) {
        return KVCL_OK;
    }
    if (capacity > KVCL_PLAN_MAX_STEPS) {
        return kvcl_fail(KVCL_ERR_INTERNAL, "a collective's plan has more than %d steps",
                         KVCL_PLAN_MAX_STEPS);
    }
    steps = realloc(plan->steps, capacity * sizeof(*steps));
    if (steps == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a plan of %u steps", capacity);
    }
    plan->steps    = steps;
    plan->capacity = capacity;
    return KVCL_OK;
}

static uint32_t append(kvcl_plan_t *plan, kvcl_step_t step)
{
    if ((plan->status == KVCL_OK) && (step.after != KVCL_STEP_NONE) && (step.after >= plan->count)) {
        plan->status = kvcl_fail(KVCL_ERR_INTERNAL, "step %u of a plan waits for step %u, a later one",
                                 plan->count, step.after);
    }
    if (plan->status == KVCL_OK) {
        plan->status = reserve(plan);
    }
    if (plan->status != KVCL_OK) {
        return KVCL_STEP_NONE;
    }
    step.first_dep            = KVCL_STEP_NONE;
    step.next_dep             = KVCL_STEP_NONE;
    plan->steps[plan->count] = step;
    return plan->count++;
}

uint32_t kvcl_plan_send(kvcl_plan_t *plan, uint32_t peer, uint64_t off, uint64_t len, uint32_t after)
{
    return append(plan, (kvcl_step_t){.op = KVCL_STEP_SEND, .peer = peer, .off = off, .len = len,
                                      .with = KVCL_PLAN_COPY, .after = after});
}

uint32_t kvcl_plan_recv(kvcl_plan_t *plan, uint32_t peer, uint64_t off, uint64_t len, uint32_t after)
{
    return kvcl_plan_recv_from(plan, peer, off, off, len, after);
}

uint32_t kvcl_plan_recv_from(kvcl_plan_t *plan, uint32_t peer, uint64_t peer_off, uint64_t off, uint64_t len,
                             uint32_t after)
{
    return kvcl_plan_reduce(plan, peer, peer_off, KVCL_PLAN_COPY, off, len, after);
}

uint32_t kvcl_plan_reduce(kvcl_plan_t *plan, uint32_t peer, uint64_t peer_off, uint64_t with, uint64_t off,
                          uint64_t len, uint32_t after)
{
    return append(plan, (kvcl_step_t){.op = KVCL_STEP_RECV, .peer = peer, .peer_off = peer_off, .with = with,
                                      .off = off, .len = len, .after = after});
}

/* What qsort compares: it has no argument for the plan. */
typedef struct sort_key {
    uint32_t peer;
    uint32_t op;
    uint32_t step;
} sort_key_t;

static int compare_keys(const void *a, const void *b)
{
    const sort_key_t *x = a;
    const sort_key_t *y = b;

    if (x->peer != y->peer) {
        return (x->peer < y->peer) ? -1 : 1;
    }
    if (x->op != y->op) {
        return (x->op < y->op) ? -1 : 1;
    }
    return (x->step < y->step) ? -1 : (x->step > y->step);
}

/* Fill index, peers and each step's k from the sorted keys. */
static void index_steps(kvcl_plan_t *plan, const sort_key_t *keys)
{
    kvcl_plan_peer_t *peer = NULL;
    uint32_t          i;

    for (i = 0; i < plan->count; ++i) {
        kvcl_step_t *step = &plan->steps[keys[i].step];

        if ((peer == NULL) || (peer->rank != step->peer)) {
            peer  = &plan->peers[plan->npeers++];
            *peer = (kvcl_plan_peer_t){.rank = step->peer, .first_send = i, .first_recv = i};
        }
        plan->index[i] = keys[i].step;
        if (step->op == KVCL_STEP_SEND) {
            step->k          = peer->sends++;
            peer->first_recv = i + 1;
        } else {
            step->k = peer->recvs++;
        }
    }
}

/* The pair's bytes, mixed into the signature: the two ranks of a pair learn by any announcement that theirs differ. */
static uint32_t sign_pair(const kvcl_plan_t *plan, uint32_t first, uint32_t n)
{
    uint64_t state = plan->signature, bytes = 0;
    uint32_t i;

    for (i = 0; i < n; ++i) {
        bytes += plan->steps[plan->index[first + i]].len;
    }
    state ^= bytes << 8;
    return plan->uneven ? (uint32_t)(kvcl_splitmix64(&state) >> 32) : plan->signature;
}

static void sign_pairs(kvcl_plan_t *plan)
{
    uint32_t i;

    for (i = 0; i < plan->npeers; ++i) {
        kvcl_plan_peer_t *peer = &plan->peers[i];

        peer->send_signature = sign_pair(plan, peer->first_send, peer->sends);
        peer->recv_signature = sign_pair(plan, peer->first_recv, peer->recvs);
    }
}

static void link_dependents(kvcl_plan_t *plan)
{
    uint32_t i;

    for (i = plan->count; i-- > 0;) {
        kvcl_step_t *step = &plan->steps[i];

        if (step->after != KVCL_STEP_NONE) {
            step->next_dep                      = plan->steps[step->after].first_dep;
            plan->steps[step->after].first_dep = i;
        }
    }
}

kvcl_status_t kvcl_plan_seal(kvcl_plan_t *plan)
{
    sort_key_t *keys;
    uint32_t    i;

    if ((plan->status != KVCL_OK) || (plan->count == 0)) {
        return plan->status;
    }
    keys        = calloc(plan->count, sizeof(*keys));
    plan->index = calloc(plan->count, sizeof(*plan->index));
    plan->peers = calloc(plan->count, sizeof(*plan->peers));
    if ((keys == NULL) || (plan->index == NULL) || (plan->peers == NULL)) {
        free(keys); /* the rest is freed by fini */
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a plan of %u steps", plan->count);
    }
    for (i = 0; i < plan->count; ++i) {
        keys[i] = (sort_key_t){plan->steps[i].peer, plan->steps[i].op, i};
    }
    qsort(keys, plan->count, sizeof(*keys), compare_keys);
    index_steps(plan, keys);
    sign_pairs(plan);
    link_dependents(plan);
    free(keys);
    return KVCL_OK;
}

uint32_t kvcl_plan_find_peer(const kvcl_plan_t *plan, uint32_t rank)
{
    uint32_t low = 0, high = plan->npeers;

    while (low < high) {
        uint32_t mid = low + ((high - low) / 2);

        if (plan->peers[mid].rank == rank) {
            return mid;
        }
        if (plan->peers[mid].rank < rank) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return KVCL_STEP_NONE;
}

static int range_is_inside(uint64_t off, uint64_t len, uint64_t bytes)
{
    return (off <= bytes) && (len <= bytes - off);
}

kvcl_status_t kvcl_plan_check(const kvcl_plan_t *plan, uint32_t rank, uint32_t size, uint64_t send_bytes,
                              uint64_t recv_bytes)
{
    const char *what = NULL;
    uint32_t    i;

    for (i = 0; (i < plan->count) && (what == NULL); ++i) {
        const kvcl_step_t *step  = &plan->steps[i];
        const uint64_t     bytes = (step->op == KVCL_STEP_SEND) ? send_bytes : recv_bytes;

        if ((unsigned)step->op > KVCL_STEP_RECV) {
            what = "has no known operation";
        } else if ((step->peer >= size) || (step->peer == rank)) {
            what = "names a peer that is no other rank";
        } else if (!range_is_inside(step->off, step->len, bytes)) {
            what = "lies outside the buffer";
        } else if ((step->with != KVCL_PLAN_COPY) && !range_is_inside(step->with, step->len, recv_bytes)) {
            what = "has an operand outside the buffer";
        } else if ((step->after != KVCL_STEP_NONE) && (step->after >= i)) {
            what = "waits for a later step";
        }
    }
    return (what == NULL) ? KVCL_OK :
                            kvcl_fail(KVCL_ERR_INTERNAL, "step %u of rank %u's plan %s", i - 1, rank, what);
}
