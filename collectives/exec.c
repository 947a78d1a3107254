/*
 * The executor's state machine; the contract is in exec.h.
 *
 * Life of a step:  (none) -> ENABLED [-> ACTIVE] -> DONE, and ANNOUNCED beside it for a RECV.
 *   SEND  enabled: in its peer's waiting queue or in announces; ACTIVE once announced; DONE by ACK.
 *   RECV  enabled and announced: in pulls; ACTIVE while pulled; then LANDED, in acks; DONE when acked.
 * What waits for a RECV starts when it has landed, not when it was acked.
 *
 * Invariants: open is the number of steps not DONE; unacked of a peer never exceeds the limit; no queue
 * is looked at after a failure. Starting a step only queues it, so nothing recurses.
 */
#include "config.h"

#include "collectives/exec.h"

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

enum {
    STEP_ENABLED   = 1 << 0,
    STEP_ANNOUNCED = 1 << 1,
    STEP_ACTIVE    = 1 << 2,
    STEP_LANDED    = 1 << 3,
    STEP_DONE      = 1 << 4,
    STEP_HERE      = 1 << 5  /* a RECV whose bytes came with the announcement */
};

enum {
    PEER_ABORT_OWED  = 1 << 0, /* this rank failed: the peer is to be notified */
    PEER_SILENT      = 1 << 1  /* it aborted or failed: it no longer reads the local buffer */
};

static void queue_init(kvcl_exec_queue_t *queue)
{
    queue->head = KVCL_STEP_NONE;
    queue->tail = KVCL_STEP_NONE;
}

static void queue_push(kvcl_exec_t *exec, kvcl_exec_queue_t *queue, uint32_t step)
{
    exec->steps[step].next = KVCL_STEP_NONE;
    if (queue->head == KVCL_STEP_NONE) {
        queue->head = step;
    } else {
        exec->steps[queue->tail].next = step;
    }
    queue->tail = step;
}

/* Returns KVCL_STEP_NONE if empty. */
static uint32_t queue_pop(kvcl_exec_t *exec, kvcl_exec_queue_t *queue)
{
    uint32_t step = queue->head;

    if (step != KVCL_STEP_NONE) {
        queue->head = exec->steps[step].next;
    }
    return step;
}

static kvcl_exec_peer_t *peer_of(kvcl_exec_t *exec, uint32_t step)
{
    return &exec->peers[kvcl_plan_find_peer(exec->plan, exec->plan->steps[step].peer)];
}

static void enable_send(kvcl_exec_t *exec, uint32_t index)
{
    kvcl_exec_peer_t *peer = peer_of(exec, index);

    if (exec->plan->steps[index].len == 0) {
        queue_push(exec, &exec->announces, index); /* never acked: no window */
    } else if (peer->unacked < exec->limits.announces) {
        ++peer->unacked;
        queue_push(exec, &exec->announces, index);
    } else {
        queue_push(exec, &peer->waiting, index);
    }
}

static void enable(kvcl_exec_t *exec, uint32_t index)
{
    kvcl_exec_step_t *step = &exec->steps[index];

    step->flags |= STEP_ENABLED;
    switch (exec->plan->steps[index].op) {
    case KVCL_STEP_SEND:
        enable_send(exec, index);
        break;
    case KVCL_STEP_RECV:
        if (step->flags & STEP_ANNOUNCED) {
            queue_push(exec, &exec->pulls, index);
        }
        break;
    }
}

static void enable_dependents(kvcl_exec_t *exec, uint32_t index)
{
    uint32_t dep;

    for (dep = exec->plan->steps[index].first_dep; dep != KVCL_STEP_NONE; dep = exec->plan->steps[dep].next_dep) {
        enable(exec, dep);
    }
}

/* A RECV of nothing, or of bytes that are here: its peer has done its part with the announcement, and may leave before
 * this step's turn. */
static bool is_notice(const kvcl_exec_t *exec, uint32_t index)
{
    return (exec->plan->steps[index].op == KVCL_STEP_RECV) &&
           ((exec->plan->steps[index].len == 0) || (exec->steps[index].flags & STEP_HERE));
}

static void set_done(kvcl_exec_t *exec, uint32_t index)
{
    exec->steps[index].flags |= STEP_DONE;
    --exec->open;
    if (!is_notice(exec, index)) {
        --peer_of(exec, index)->open;
    }
}

static size_t steps_bytes(const kvcl_plan_t *plan)
{
    return plan->count * sizeof(kvcl_exec_step_t); /* at most 2^20 of them */
}

size_t kvcl_exec_bytes(const kvcl_plan_t *plan)
{
    return steps_bytes(plan) + (plan->npeers * sizeof(kvcl_exec_peer_t));
}

void kvcl_exec_init(kvcl_exec_t *exec, const kvcl_plan_t *plan, void *memory, const kvcl_exec_limits_t *limits)
{
    uint32_t i;

    memset(exec, 0, sizeof(*exec));
    if (plan->count > 0) {
        memset(memory, 0, kvcl_exec_bytes(plan));
    }
    exec->plan             = plan;
    exec->steps            = memory;
    exec->peers            = (plan->count > 0) ? (void *)((char *)memory + steps_bytes(plan)) : NULL;
    exec->open             = plan->count;
    exec->limits.pulls     = ((limits != NULL) && limits->pulls) ? limits->pulls : KVCL_EXEC_PULLS;
    exec->limits.announces = ((limits != NULL) && limits->announces) ? limits->announces : KVCL_EXEC_ANNOUNCES;
    queue_init(&exec->acks);
    queue_init(&exec->announces);
    queue_init(&exec->pulls);
    for (i = 0; i < plan->npeers; ++i) {
        queue_init(&exec->peers[i].waiting);
        exec->peers[i].open = plan->peers[i].sends + plan->peers[i].recvs;
    }
    for (i = 0; i < plan->count; ++i) {
        if (plan->steps[i].after == KVCL_STEP_NONE) {
            enable(exec, i);
        }
    }
}

static void fill(const kvcl_exec_t *exec, kvcl_exec_op_t op, uint32_t index, kvcl_exec_action_t *action)
{
    const kvcl_step_t *step = &exec->plan->steps[index];

    *action = (kvcl_exec_action_t){
        .op        = op,
        .peer      = step->peer,
        .k         = step->k,
        .step      = index,
        .off       = step->off,
        .peer_off  = exec->steps[index].peer_off,
        .with      = step->with,
        .len       = step->len,
        .signature = exec->plan->signature,
        .status    = KVCL_OK,
    };
}

static int next_ack(kvcl_exec_t *exec, kvcl_exec_action_t *action)
{
    uint32_t index = queue_pop(exec, &exec->acks);

    if (index == KVCL_STEP_NONE) {
        return 0;
    }
    fill(exec, KVCL_EXEC_ACK, index, action);
    set_done(exec, index);
    return 1;
}

static int next_announce(kvcl_exec_t *exec, kvcl_exec_action_t *action)
{
    uint32_t index = queue_pop(exec, &exec->announces);

    if (index == KVCL_STEP_NONE) {
        return 0;
    }
    fill(exec, KVCL_EXEC_ANNOUNCE, index, action);
    action->signature = exec->plan->peers[kvcl_plan_find_peer(exec->plan, action->peer)].send_signature;
    exec->steps[index].flags |= STEP_ACTIVE;
    if (exec->plan->steps[index].len == 0) {
        set_done(exec, index);
        enable_dependents(exec, index);
    }
    return 1;
}

/* Start a pull. Notifications are finished on the way; *waked_p: one enabled other steps. */
static int next_pull(kvcl_exec_t *exec, kvcl_exec_action_t *action, int *waked_p)
{
    uint32_t index;

    *waked_p = 0;
    while ((exec->pulling < exec->limits.pulls) && ((index = queue_pop(exec, &exec->pulls)) != KVCL_STEP_NONE)) {
        const kvcl_step_t *step = &exec->plan->steps[index];

        if (step->len == 0) {
            set_done(exec, index);
            enable_dependents(exec, index);
            *waked_p = 1;
            continue;
        }
        fill(exec, KVCL_EXEC_PULL, index, action);
        exec->steps[index].flags |= STEP_ACTIVE;
        ++exec->pulling;
        ++peer_of(exec, index)->pulls;
        return 1;
    }
    return 0;
}

/* After a failure: an ABORT to a peer that is owed one and is not being pulled from. */
static int next_abort(kvcl_exec_t *exec, kvcl_exec_action_t *action)
{
    uint32_t i;

    for (i = 0; (exec->aborts > 0) && (i < exec->plan->npeers); ++i) {
        kvcl_exec_peer_t *peer = &exec->peers[i];

        if ((peer->flags & PEER_ABORT_OWED) && (peer->pulls == 0)) {
            peer->flags &= (uint8_t)~PEER_ABORT_OWED;
            --exec->aborts;
            *action = (kvcl_exec_action_t){
                .op        = KVCL_EXEC_ABORT,
                .peer      = exec->plan->peers[i].rank,
                .step      = KVCL_STEP_NONE,
                .signature = exec->plan->signature,
                .status    = exec->status,
            };
            return 1;
        }
    }
    return 0;
}

int kvcl_exec_next(kvcl_exec_t *exec, kvcl_exec_action_t *action)
{
    int waked;

    if (exec->status != KVCL_OK) {
        return next_abort(exec, action);
    }
    /* ACKs and announcements first: others wait for them. */
    do {
        if (next_ack(exec, action) || next_announce(exec, action) || next_pull(exec, action, &waked)) {
            return 1;
        }
    } while (waked);
    return 0;
}

/* The step of the k-th SEND to or RECV from a peer. */
static kvcl_status_t find_step(kvcl_exec_t *exec, const char *what, kvcl_step_op_t op, uint32_t rank, uint32_t k,
                               uint32_t *index_p)
{
    const kvcl_plan_t      *plan = exec->plan;
    uint32_t                i    = kvcl_plan_find_peer(plan, rank);
    const kvcl_plan_peer_t *peer;

    if (i == KVCL_STEP_NONE) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s from rank %u, which has no part in this collective here", what,
                         rank);
    }
    peer = &plan->peers[i];
    if (k >= ((op == KVCL_STEP_SEND) ? peer->sends : peer->recvs)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "%s %u from rank %u, but only %u are due", what, k, rank,
                         (op == KVCL_STEP_SEND) ? peer->sends : peer->recvs);
    }
    *index_p = plan->index[((op == KVCL_STEP_SEND) ? peer->first_send : peer->first_recv) + k];
    return KVCL_OK;
}

static kvcl_status_t check_same_plan(kvcl_exec_t *exec, uint32_t rank, uint32_t signature)
{
    const kvcl_plan_t *plan   = exec->plan;
    const uint32_t     i      = kvcl_plan_find_peer(plan, rank);
    const int          no_due = plan->uneven && ((i == KVCL_STEP_NONE) || (plan->peers[i].recvs == 0));
    const uint32_t     due    = (i == KVCL_STEP_NONE) ? plan->signature : plan->peers[i].recv_signature;

    if (no_due || (signature != due)) {
        kvcl_exec_fail(exec, KVCL_ERR_INVALID_PARAM);
        return no_due ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %u gives bytes, and this rank takes none from it", rank)
                      : kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %u called this collective with another operation, root "
                                  "or length, or chose another algorithm (KVCL_COLL_TABLE must be equal on all ranks)",
                                  rank);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_exec_announced(kvcl_exec_t *exec, uint32_t peer, uint32_t k, uint64_t off, uint64_t len,
                                  uint32_t signature)
{
    kvcl_status_t     status;
    kvcl_exec_step_t *step;
    uint32_t          index;

    if (exec->status != KVCL_OK) {
        return KVCL_OK;
    }
    status = check_same_plan(exec, peer, signature);
    if (status == KVCL_OK) {
        status = find_step(exec, "announcement", KVCL_STEP_RECV, peer, k, &index);
    }
    if (status != KVCL_OK) {
        return status;
    }
    step = &exec->steps[index];
    if (step->flags & STEP_ANNOUNCED) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "announcement %u from rank %u arrived twice", k, peer);
    }
    if (len != exec->plan->steps[index].len) {
        kvcl_exec_fail(exec, KVCL_ERR_INVALID_PARAM);
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %u gives %llu bytes where %llu are due", peer,
                         (unsigned long long)len, (unsigned long long)exec->plan->steps[index].len);
    }
    if ((len > 0) && (exec->plan->steps[index].peer_off != KVCL_PLAN_ANY) &&
        (off != exec->plan->steps[index].peer_off)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "announcement %u from rank %u is of bytes at %llu, not at %llu", k, peer,
                         (unsigned long long)off, (unsigned long long)exec->plan->steps[index].peer_off);
    }
    step->flags |= STEP_ANNOUNCED;
    step->peer_off = off;
    if (is_notice(exec, index)) {
        --peer_of(exec, index)->open;
    }
    if (step->flags & STEP_ENABLED) {
        queue_push(exec, &exec->pulls, index);
    }
    return KVCL_OK;
}

int kvcl_exec_was_announced(const kvcl_exec_t *exec, uint32_t peer, uint32_t k)
{
    const kvcl_plan_t *plan = exec->plan;
    const uint32_t     i    = kvcl_plan_find_peer(plan, peer);

    return (i != KVCL_STEP_NONE) && (k < plan->peers[i].recvs) &&
           ((exec->steps[plan->index[plan->peers[i].first_recv + k]].flags & STEP_ANNOUNCED) != 0);
}

void kvcl_exec_has_bytes(kvcl_exec_t *exec, uint32_t peer, uint32_t k)
{
    const kvcl_plan_peer_t *from  = &exec->plan->peers[kvcl_plan_find_peer(exec->plan, peer)];
    const uint32_t          index = exec->plan->index[from->first_recv + k];

    exec->steps[index].flags |= STEP_HERE;
    --peer_of(exec, index)->open;
}

kvcl_status_t kvcl_exec_acked(kvcl_exec_t *exec, uint32_t peer, uint32_t k)
{
    kvcl_exec_peer_t *state;
    kvcl_status_t     status;
    uint32_t          index, waiting;

    status = find_step(exec, "acknowledgement", KVCL_STEP_SEND, peer, k, &index);
    if (status != KVCL_OK) {
        return status;
    }
    if ((exec->steps[index].flags & (STEP_ACTIVE | STEP_DONE)) != STEP_ACTIVE) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "acknowledgement %u from rank %u, but step %u is not announced to it", k,
                         peer, index);
    }
    state = peer_of(exec, index);
    --state->unacked;
    set_done(exec, index);
    if (exec->status != KVCL_OK) {
        return KVCL_OK; /* it counts for released() only */
    }
    waiting = queue_pop(exec, &state->waiting);
    if (waiting != KVCL_STEP_NONE) {
        enable_send(exec, waiting);
    }
    enable_dependents(exec, index);
    return KVCL_OK;
}

kvcl_status_t kvcl_exec_pulled(kvcl_exec_t *exec, uint32_t index, kvcl_status_t status)
{
    if ((index >= exec->plan->count) || (exec->plan->steps[index].op == KVCL_STEP_SEND) ||
        ((exec->steps[index].flags & (STEP_ACTIVE | STEP_LANDED | STEP_DONE)) != STEP_ACTIVE)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "step %u is no pull under way", index);
    }
    --exec->pulling;
    exec->steps[index].flags |= STEP_LANDED;
    --peer_of(exec, index)->pulls;
    if (status != KVCL_OK) {
        kvcl_exec_fail(exec, status);
    }
    if (exec->status != KVCL_OK) {
        return KVCL_OK;
    }
    queue_push(exec, &exec->acks, index);
    enable_dependents(exec, index);
    return KVCL_OK;
}

void kvcl_exec_fail(kvcl_exec_t *exec, kvcl_status_t status)
{
    uint32_t i;

    if ((exec->status != KVCL_OK) || (exec->open == 0)) {
        return;
    }
    exec->status = (status < 0) ? status : KVCL_ERR_CANCELED;
    while ((i = queue_pop(exec, &exec->announces)) != KVCL_STEP_NONE) {
        peer_of(exec, i)->unacked -= (exec->plan->steps[i].len > 0); /* was never announced */
    }
    for (i = 0; i < exec->plan->npeers; ++i) {
        if (exec->peers[i].open > 0) {
            exec->peers[i].flags |= PEER_ABORT_OWED;
            ++exec->aborts;
        }
    }
}

kvcl_status_t kvcl_exec_aborted(kvcl_exec_t *exec, uint32_t rank, kvcl_status_t status)
{
    uint32_t i = kvcl_plan_find_peer(exec->plan, rank);

    if (i == KVCL_STEP_NONE) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "abort from rank %u, which has no part in this collective here", rank);
    }
    kvcl_exec_fail(exec, status);
    exec->peers[i].flags |= PEER_SILENT;
    return KVCL_OK;
}

void kvcl_exec_peer_failed(kvcl_exec_t *exec, uint32_t rank, kvcl_status_t status)
{
    uint32_t i = kvcl_plan_find_peer(exec->plan, rank);

    if (i == KVCL_STEP_NONE) {
        return;
    }
    if (exec->peers[i].open > 0) { /* else it has done its part, and left */
        kvcl_exec_fail(exec, status);
    }
    if (exec->peers[i].flags & PEER_ABORT_OWED) {
        --exec->aborts;
    }
    exec->peers[i].flags = PEER_SILENT;
}

int kvcl_exec_is_settled(const kvcl_exec_t *exec, uint32_t peer)
{
    const uint32_t i = kvcl_plan_find_peer(exec->plan, peer);

    return (i == KVCL_STEP_NONE) || (exec->peers[i].open == 0);
}

kvcl_status_t kvcl_exec_status(const kvcl_exec_t *exec)
{
    if (exec->status != KVCL_OK) {
        return ((exec->pulling > 0) || (exec->aborts > 0)) ? KVCL_INPROGRESS : exec->status;
    }
    return (exec->open > 0) ? KVCL_INPROGRESS : KVCL_OK;
}

int kvcl_exec_released(const kvcl_exec_t *exec)
{
    uint32_t i;

    if (kvcl_exec_status(exec) == KVCL_INPROGRESS) {
        return 0;
    }
    for (i = 0; i < exec->plan->npeers; ++i) {
        if ((exec->peers[i].unacked > 0) && !(exec->peers[i].flags & PEER_SILENT)) {
            return 0;
        }
    }
    return 1;
}
