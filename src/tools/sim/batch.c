/*
 * Owns the heap of members and the list of spans. Invariant: step is at most the end of each member; the spans cover,
 * without a gap, all steps since the oldest member joined. Each span counts its steps as equally long: within one,
 * each step is longer than the one before by slope x n, which is microseconds.
 */
#include "config.h"
#include "tools/sim/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPANS_KEPT  4096u
#define STEPS_MOST  1e15
#define SPANS_TAKEN 1024u /* looked at for one request: the latest */

void sim_batch_init(sim_batch_t *batch)
{
    memset(batch, 0, sizeof(*batch));
}

void sim_batch_free(sim_batch_t *batch)
{
    free(batch->members);
    free(batch->spans);
    sim_batch_init(batch);
}

double sim_batch_seconds(const sim_batch_t *batch, uint64_t k)
{
    const double steps = (double)k;

    return (steps * batch->base) +
           (batch->slope * ((steps * batch->context) + (batch->n * steps * (steps - 1) / 2)));
}

uint64_t sim_batch_steps(const sim_batch_t *batch, double now)
{
    const double a = batch->slope * batch->n / 2, b = batch->base + (batch->slope * batch->context) - a;
    const double span = now - batch->at;
    double       k;
    uint64_t     steps;

    if (span <= 0) {
        return 0;
    }
    k     = 2 * span / (b + sqrt((b * b) + (4 * a * span))); /* the root of a k^2 + b k = span, without cancellation */
    if (!(k < STEPS_MOST)) {
        return (uint64_t)STEPS_MOST;
    }
    steps = (k > 1) ? (uint64_t)k - 1 : 0;
    while (batch->at + sim_batch_seconds(batch, steps) < now) {
        ++steps;
    }
    return steps;
}

uint64_t sim_batch_left(const sim_batch_t *batch)
{
    return (batch->n != 0) ? batch->members[0].end - batch->step : 0;
}

/* Forget spans that ended before any member can have joined: the older half, when the list is full. */
static bool reserve_span(sim_batch_t *batch)
{
    sim_span_t *spans;
    size_t     half;

    if (batch->n_spans < batch->cap_spans) {
        return true;
    }
    if (batch->cap_spans == SPANS_KEPT) {
        half = SPANS_KEPT / 2;
        memmove(batch->spans, batch->spans + half, (batch->n_spans - half) * sizeof(*spans));
        batch->n_spans -= half;
        return true;
    }
    half  = (batch->cap_spans != 0) ? batch->cap_spans * 2 : 64;
    spans = realloc(batch->spans, half * sizeof(*spans));
    if (spans == NULL) {
        return false;
    }
    batch->spans     = spans;
    batch->cap_spans = half;
    return true;
}

bool sim_batch_advance(sim_batch_t *batch, uint64_t k)
{
    const double seconds = sim_batch_seconds(batch, k);

    if (k == 0) {
        return true;
    }
    if (!reserve_span(batch)) {
        return false;
    }
    batch->spans[batch->n_spans++] = (sim_span_t){batch->step, k, seconds / (double)k};
    batch->at += seconds;
    batch->busy_s += seconds;
    batch->step += k;
    batch->context += (double)k * batch->n;
    return true;
}

bool sim_batch_stall(sim_batch_t *batch, double until)
{
    const double seconds = until - batch->at;

    if ((seconds <= 0) || !reserve_span(batch)) {
        return seconds <= 0;
    }
    batch->spans[batch->n_spans++] = (sim_span_t){batch->step, 0, seconds}; /* no step: lengthens the next one */
    batch->at                      = until;
    return true;
}

bool sim_batch_join(sim_batch_t *batch, double now, uint32_t request, uint32_t context, uint32_t tokens)
{
    const sim_member_t added = {batch->step + tokens, request, context - (uint32_t)batch->step};
    sim_member_t       *members;
    uint32_t           cap, i, parent;

    if (batch->n == batch->cap) {
        cap     = (batch->cap != 0) ? batch->cap * 2 : 16;
        members = realloc(batch->members, cap * sizeof(*members));
        if (members == NULL) {
            return false;
        }
        batch->members = members;
        batch->cap     = cap;
    }
    if (batch->n == 0) {
        batch->at      = now;
        batch->context = 0;
        batch->n_spans = 0;
    }
    for (i = batch->n++; i > 0; i = parent) {
        parent = (i - 1) / 2;
        if (added.end >= batch->members[parent].end) {
            break;
        }
        batch->members[i] = batch->members[parent];
    }
    batch->members[i] = added;
    batch->context += context;
    return true;
}

bool sim_batch_ended(sim_batch_t *batch, uint32_t *request_p)
{
    sim_member_t *heap = batch->members, last;
    uint32_t     i, child;

    if ((batch->n == 0) || (heap[0].end > batch->step)) {
        return false;
    }
    *request_p = heap[0].request;
    batch->context -= (uint32_t)(heap[0].tokens + (uint32_t)batch->step);
    last = heap[--batch->n];
    for (i = 0; (child = (2 * i) + 1) < batch->n; i = child) {
        child += ((child + 1 < batch->n) && (heap[child + 1].end < heap[child].end)) ? 1 : 0;
        if (heap[child].end >= last.end) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = last;
    return true;
}

static int by_length(const void *a, const void *b)
{
    const sim_span_t *x = a, *y = b;

    return (x->step_s < y->step_s) - (x->step_s > y->step_s);
}

double sim_batch_longest(const sim_batch_t *batch, uint64_t steps, double first_s, double *mean_p)
{
    sim_span_t taken[SPANS_TAKEN];
    uint64_t   left = steps, tenth = (steps + 9) / 10, k;
    size_t     i = batch->n_spans, n = 0;
    double     sum = 0, all = 0, waits = first_s;

    while ((i > 0) && (left > 0) && (n + 2 < SPANS_TAKEN)) {
        --i;
        k = (batch->spans[i].steps < left) ? batch->spans[i].steps : left;
        if (k == 0) {
            waits += batch->spans[i].step_s;
            /* The step behind it was the longer one: it is a span of its own. */
            if ((n != 0) && (taken[n - 1].steps > 0)) {
                taken[n] = (sim_span_t){0, 1, taken[n - 1].step_s + batch->spans[i].step_s};
                --taken[n - 1].steps;
                ++n;
            }
            continue;
        }
        taken[n++] = (sim_span_t){0, k, batch->spans[i].step_s};
        all += (double)k * batch->spans[i].step_s;
        left -= k;
    }
    if ((n != 0) && (taken[n - 1].steps > 0)) {
        taken[n] = (sim_span_t){0, 1, taken[n - 1].step_s + first_s};
        --taken[n - 1].steps;
        ++n;
    }
    qsort(taken, n, sizeof(taken[0]), by_length);
    *mean_p = (steps > left) ? (all + waits) / (double)(steps - left) : 0;
    left    = tenth;
    for (i = 0; (i < n) && (left > 0); ++i) {
        k = (taken[i].steps < left) ? taken[i].steps : left;
        sum += (double)k * taken[i].step_s;
        left -= k;
    }
    return (tenth > left) ? sum / (double)(tenth - left) : 0;
}
