/*
 * kvcl_ep_restore: the moves of this rank, fetched pass by pass (kvcl_ep_restore.h). A pass asks each source for all
 * that is to come from it at once; first the rounds of the plan, then the further tries of what failed.
 *
 * Invariant: a block is done only if its sum is right. No lock is held.
 */
#include "config.h"

#include "experts/restore.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

typedef enum { WAITS, DONE, MISSING } job_state_t;

/* A move of this rank that fetches. */
typedef struct job {
    const kvcl_ep_move_t *move;
    size_t               index; /* of the move */
    uint32_t             block; /* spare */
    uint32_t             tries;
    int32_t              source;
    bool                 now;   /* in this pass */
    job_state_t          state;
} job_t;

typedef struct restore {
    const kvcl_ep_restore_t *r;
    job_t                   *jobs;
    size_t                  n;
    uint64_t                deadline_ns;
    /* Of the requests of a pass, each part of them one behind another. */
    uint32_t                *remote, *local;
    kvcl_key_t              *keys;
    kvcl_status_t           *statuses;
    size_t                  *order; /* the job of each entry */
    uint64_t                *sums;  /* of each entry, where its request has summed */
    kvcl_ep_sums_t          *asked; /* [ranks + 1], as reqs */
    kvcl_req_h              *reqs;  /* [ranks + 1]: the store's, then each rank's */
    size_t                  used;
    bool                    *gone;  /* [ranks]: failed, or silent for a whole try: not asked again */
} restore_t;

static uint64_t sum_of(const restore_t *s, const job_t *job)
{
    return s->r->w.sums[((size_t)job->move->layer * s->r->shape.experts) + job->move->expert];
}

/* The next source; a store that is not given is none. */
static void next_source(const restore_t *s, job_t *job)
{
    const int32_t *old = s->r->old + ((size_t)job->move->layer * s->r->shape.slots);

    do {
        job->source = kvcl_ep_source(&s->r->shape, old, job->move, job->tries++);
    } while ((job->source >= 0) && s->gone[(uint32_t)job->source / s->r->shape.per_rank]);
    if ((job->source == KVCL_EP_SOURCE_NONE) ||
        ((job->source == KVCL_EP_SOURCE_STORE) && (s->r->w.store == NULL))) {
        job->state = MISSING;
    }
}

/* -1: the store. */
static int64_t rank_of(const restore_t *s, const job_t *job)
{
    return (job->source < 0) ? -1 : (int64_t)((uint32_t)job->source / s->r->shape.per_rank);
}

/* Ask one source for all jobs of this pass that are for it. */
static void ask(restore_t *s, int64_t rank)
{
    const kvcl_ep_restore_t *r     = s->r;
    const size_t            first  = s->used;
    kvcl_req_h              *req   = &s->reqs[rank + 1];
    kvcl_xfer_params_t      p      = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t           status = KVCL_OK;
    kvcl_sel_t              remote, local;
    size_t                  i;

    for (i = 0; i < s->n; ++i) {
        job_t *job = &s->jobs[i];

        if (!job->now || (rank_of(s, job) != rank)) {
            continue;
        }
        s->order[s->used] = i;
        s->local[s->used] = job->block;
        if (rank < 0) {
            s->keys[s->used] = r->w.keys[((size_t)job->move->layer * r->shape.experts) + job->move->expert];
        } else {
            s->remote[s->used] = (job->move->layer * r->shape.per_rank) + ((uint32_t)job->source % r->shape.per_rank);
        }
        s->statuses[s->used++] = KVCL_ERR_TIMED_OUT; /* where the request ends without a word about it */
    }
    if (s->used == first) {
        return;
    }
    s->asked[rank + 1] = (kvcl_ep_sums_t){.sums = s->sums + first};
    p.timeout_ns       = kvcl_deadline_left(s->deadline_ns);
    p.timeout_ns       = (p.timeout_ns < r->w.try_ns) ? p.timeout_ns + 1 : r->w.try_ns;
    if (rank < 0) {
        status = kvcl_store_get(r->w.store, s->keys + first, s->used - first, r->w.cache, s->local + first,
                                s->statuses + first, &p, req);
    } else {
        remote   = kvcl_sel_of(s->remote + first, s->used - first);
        local    = kvcl_sel_of(s->local + first, s->used - first);
        p.status = s->statuses + first;
        status   = kvcl_ep_fetch(r->w.comm, (int)rank, r->w.cache, &remote, &local, &p, &s->asked[rank + 1], req);
    }
    if (status != KVCL_OK) {
        *req = NULL; /* the entries say that nothing came */
    }
}

/* One entry of a pass has ended. */
static void judge(restore_t *s, size_t entry)
{
    job_t         *job   = &s->jobs[s->order[entry]];
    kvcl_status_t status = s->statuses[entry];
    uint64_t      sum    = s->sums[entry];

    if ((status == KVCL_OK) && !s->asked[rank_of(s, job) + 1].summed) {
        status = kvcl_ep_weights_sum(s->r->w.cache, job->block, &sum);
    }
    if ((status == KVCL_OK) && (sum == sum_of(s, job))) {
        job->state = DONE;
        return;
    }
    if ((job->source >= 0) && ((status == KVCL_ERR_TIMED_OUT) || (status == KVCL_ERR_RANK_FAILED) ||
                               (status == KVCL_ERR_UNREACHABLE))) {
        s->gone[rank_of(s, job)] = true;
    }
    kvcl_log_info("kvcl_ep_restore: expert %u of layer %u, slot %d: %s", job->move->expert, job->move->layer,
                  (int)job->source, (status == KVCL_OK) ? "its bytes have another sum" : kvcl_status_text(status));
    next_source(s, job);
}

/* Fetch all jobs that are marked, from where they may still come from. */
static void pass(restore_t *s)
{
    int64_t  rank;
    size_t   i;
    uint32_t ranks = s->r->shape.ranks;

    for (i = 0; i < s->n; ++i) {
        if (s->jobs[i].now && (s->jobs[i].source >= 0) && s->gone[rank_of(s, &s->jobs[i])]) {
            next_source(s, &s->jobs[i]);
            s->jobs[i].now = (s->jobs[i].state == WAITS);
        }
    }
    s->used = 0;
    for (rank = -1; rank < (int64_t)ranks; ++rank) {
        s->reqs[rank + 1] = NULL;
        ask(s, rank);
    }
    for (i = 0; i <= ranks; ++i) {
        if (s->reqs[i] != NULL) {
            (void)!kvcl_req_wait(s->reqs[i], KVCL_WAIT_FOREVER); /* by its own deadline; the entries have the outcome */
        }
    }
    for (i = 0; i < s->used; ++i) {
        judge(s, i);
    }
}

static void fetch(restore_t *s)
{
    uint32_t round, next;
    size_t   i;
    bool     some = true;

    for (i = 0; i < s->n; ++i) {
        next_source(s, &s->jobs[i]);
    }
    for (round = 0; round != UINT32_MAX; round = next) {
        next = UINT32_MAX;
        for (i = 0; i < s->n; ++i) {
            s->jobs[i].now = (s->jobs[i].move->round == round) && (s->jobs[i].state == WAITS);
            if ((s->jobs[i].move->round > round) && (s->jobs[i].move->round < next)) {
                next = s->jobs[i].move->round;
            }
        }
        pass(s);
    }
    while (some && !kvcl_deadline_passed(s->deadline_ns)) {
        for (i = 0, some = false; i < s->n; ++i) {
            s->jobs[i].now = (s->jobs[i].state == WAITS);
            some           = some || s->jobs[i].now;
        }
        pass(s);
    }
}

/* ---- the call ---- */

static kvcl_status_t make(restore_t *s, size_t n)
{
    s->jobs     = calloc(n + 1, sizeof(*s->jobs));
    s->remote   = calloc(n + 1, sizeof(*s->remote));
    s->local    = calloc(n + 1, sizeof(*s->local));
    s->keys     = calloc(n + 1, sizeof(*s->keys));
    s->statuses = calloc(n + 1, sizeof(*s->statuses));
    s->order    = calloc(n + 1, sizeof(*s->order));
    s->sums     = calloc(n + 1, sizeof(*s->sums));
    s->asked    = calloc((size_t)s->r->shape.ranks + 1, sizeof(*s->asked));
    s->reqs     = calloc((size_t)s->r->shape.ranks + 1, sizeof(*s->reqs));
    s->gone     = calloc(s->r->shape.ranks, sizeof(*s->gone));
    if ((s->jobs == NULL) || (s->remote == NULL) || (s->local == NULL) || (s->keys == NULL) || (s->statuses == NULL) ||
        (s->order == NULL) || (s->sums == NULL) || (s->asked == NULL) || (s->reqs == NULL) || (s->gone == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_restore: no memory for %zu moves", n);
    }
    return KVCL_OK;
}

static void fini(restore_t *s)
{
    free(s->jobs);
    free(s->remote);
    free(s->local);
    free(s->keys);
    free(s->statuses);
    free(s->order);
    free(s->sums);
    free(s->asked);
    free(s->reqs);
    free(s->gone);
}

/* Does this rank have another move that fetches for the slot where this one takes its weights? */
static bool shares(const kvcl_ep_restore_t *r, const kvcl_ep_move_t *move)
{
    return (move->kind == KVCL_EP_FROM_MOVE) && kvcl_ep_restore_is_mine(r, move);
}

static size_t count(const kvcl_ep_restore_t *r)
{
    const kvcl_ep_move_t *move;
    size_t               i, n = 0;

    for (i = 0; i < r->n; ++i) {
        move = kvcl_ep_move_at(r->moves, r->stride, i);
        n   += kvcl_ep_restore_is_mine(r, move) && !shares(r, move);
    }
    return n;
}

/* The block of the move whose weights another one shares: it is this rank's, and earlier in the list. */
static uint32_t shared_block(const kvcl_ep_restore_t *r, size_t of, const uint32_t *blocks)
{
    const kvcl_ep_move_t *move = kvcl_ep_move_at(r->moves, r->stride, of), *other;
    size_t               i;

    for (i = 0; i < of; ++i) {
        other = kvcl_ep_move_at(r->moves, r->stride, i);
        if (kvcl_ep_restore_is_mine(r, other) && (other->layer == move->layer) &&
            ((int32_t)other->destination == move->source) && (other->expert == move->expert)) {
            return blocks[i];
        }
    }
    return KVCL_EP_BLOCK_MISSING;
}

static kvcl_status_t report(const restore_t *s, uint32_t *blocks, size_t *missing_p)
{
    const kvcl_ep_restore_t *r = s->r;
    const kvcl_ep_move_t    *move, *first = NULL;
    size_t                  i, missing = 0;

    for (i = 0; i < r->n; ++i) {
        blocks[i] = KVCL_EP_BLOCK_OTHER;
    }
    for (i = 0; i < s->n; ++i) {
        blocks[s->jobs[i].index] = (s->jobs[i].state == DONE) ? s->jobs[i].block : KVCL_EP_BLOCK_MISSING;
    }
    for (i = 0; i < r->n; ++i) {
        move = kvcl_ep_move_at(r->moves, r->stride, i);
        if (shares(r, move)) {
            blocks[i] = shared_block(r, i, blocks);
        }
        if (blocks[i] == KVCL_EP_BLOCK_MISSING) {
            first = (first == NULL) ? move : first;
            ++missing;
        }
    }
    if (missing_p != NULL) {
        *missing_p = missing;
    }
    if (missing != 0) {
        return kvcl_fail(KVCL_ERR_NOT_FOUND, "ep_restore: %zu of %zu moves have no source with the right weights; the "
                         "first is expert %u of layer %u for slot %u", missing, s->n, first->expert, first->layer,
                         first->destination);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_restore(const kvcl_ep_params_t *params, const kvcl_ep_weights_t *weights, const int32_t *old,
                              const kvcl_ep_move_t *moves, size_t stride, size_t n, uint32_t *blocks,
                              size_t *missing_p)
{
    kvcl_ep_restore_t r;
    restore_t         s      = {.r = &r};
    kvcl_status_t     status = kvcl_ep_restore_take(params, weights, old, moves, stride, n, "ep_restore", &r);
    size_t            i;

    if ((status == KVCL_OK) && (blocks == NULL) && (n != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_restore: blocks is NULL");
    }
    if (status != KVCL_OK) {
        return status;
    }
    s.n           = count(&r);
    s.deadline_ns = kvcl_deadline_after(r.w.timeout_ns);
    if (s.n > r.spare) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "ep_restore: this rank gets %zu experts, and the cache has %zu spare "
                         "blocks", s.n, r.spare);
    }
    status = make(&s, s.n);
    if (status == KVCL_OK) {
        for (i = 0, s.n = 0; i < n; ++i) {
            const kvcl_ep_move_t *move = kvcl_ep_move_at(moves, stride, i);

            if (kvcl_ep_restore_is_mine(&r, move) && !shares(&r, move)) {
                s.jobs[s.n] = (job_t){.move = move, .index = i, .block = r.first_spare + (uint32_t)s.n};
                ++s.n;
            }
        }
        fetch(&s);
        status = report(&s, blocks, missing_p);
    }
    fini(&s);
    return status;
}
