/*
 * Owns when requests arrive, and which of them belong to one session.
 */
#include "config.h"
#include "tools/sim/work/work.h"

#include "base/rand.h"

#include <math.h>
#include <stdlib.h>

double work_rate(const work_t *work)
{
    const double span = (work->n > 1) ? work->requests[work->n - 1].arrival : 0;

    return (span > 0) ? (double)(work->n - 1) / span : 0;
}

/* Those of one time are put at equal distances until the next time. */
static void spread(work_t *work)
{
    double step = 0, at;
    size_t i, end, k;

    for (i = 0; i < work->n; i = end) {
        at = work->requests[i].arrival;
        for (end = i + 1; (end < work->n) && (work->requests[end].arrival <= at); ++end) {
        }
        step = (end < work->n) ? work->requests[end].arrival - at : step;
        for (k = i; k < end; ++k) {
            work->requests[k].arrival = at + (step * (double)(k - i) / (double)(end - i));
        }
    }
}

static void poisson(work_t *work, double rate, uint64_t seed)
{
    kvcl_rand_t random;
    double      at = 0;
    size_t      i;

    kvcl_rand_seed(&random, seed);
    for (i = 0; i < work->n; ++i) {
        work->requests[i].arrival = at;
        at -= log(((double)(kvcl_rand_next(&random) >> 11) + 1) / 9007199254740993.0) / rate;
    }
}

void work_arrive(work_t *work, work_arrivals_t how, double speed, double rate, uint64_t seed)
{
    size_t i;

    if ((how == WORK_POISSON) && (rate <= 0)) {
        rate = work_rate(work) * speed;
    }
    if (how == WORK_POISSON) {
        poisson(work, (rate > 0) ? rate : 1, seed);
        return;
    }
    if (how == WORK_SPREAD) {
        spread(work);
    }
    for (i = 0; i < work->n; ++i) {
        work->requests[i].arrival /= speed;
    }
}

bool work_sessions(work_t *work)
{
    uint32_t       *last, *session, block, i;
    work_request_t *r;

    last    = malloc((work->distinct + UINT64_C(1)) * sizeof(*last));
    session = malloc((work->distinct + UINT64_C(1)) * sizeof(*session));
    for (i = 0; (last != NULL) && (session != NULL) && (i < work->distinct); ++i) {
        last[i] = session[i] = WORK_NONE;
    }
    for (i = 0; (last != NULL) && (session != NULL) && (i < work->n); ++i) {
        r = &work->requests[i];
        if (r->n == 0) {
            r->session = work->sessions++;
            continue;
        }
        /* Block 0 of a trace may be the system prompt of all. */
        block      = work->blocks[r->first + ((r->n > 1) ? 1 : 0)];
        r->session = (session[block] != WORK_NONE) ? session[block] : work->sessions++;
        if (last[block] != WORK_NONE) {
            work->requests[last[block]].next = i;
        }
        session[block] = r->session;
        last[block]    = i;
    }
    free(last);
    free(session);
    return i == work->n;
}
