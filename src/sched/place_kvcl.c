/*
 * KVCL's placement. Each instance compares computing with fetching, block by block, while the fetch overlaps its queue:
 * max(queue, fetch) + prefill. There is no threshold. Runs are gathered from several holders. Three prices keep one
 * request from costing the others more than it gains: work, for the seconds of prefill that others then wait for;
 * price, for the transfers of a sender that a fetch slows down; room, for a copy that stays and drives others out of
 * the pool, which are prefilled again. Seconds of prefill cost the more the longer the queues are. Pure.
 */
#include "config.h"
#include "sched/gather.h"
#include "sched/policies.h"
#include "sched/replicate.h"

enum { WORK, PRICE, ROOM, HOLDERS, REPLICATE };
enum { USUAL_TOKENS = 8192, WAITING_MAX = 16 };

/* Requests that wait at an instance before this one, in the mean: seconds of the queue that run before it, over those
 * of a prefill of late. A second of prefill that is put into a queue delays about as many. Bounded: above that, the
 * queue is what costs, and instances must stay even. */
static double waiting(const kvcl_job_t *job)
{
    double   queue = 0, n;
    uint32_t i;

    for (i = 0; i < job->n_cand; ++i) {
        queue += job->cand[i].queue_s / job->cand[i].factor;
    }
    n = (job->s->learn.mean_s > 0) ? queue / (job->n_cand * job->s->learn.mean_s) : 0;
    return (n < WAITING_MAX) ? n : WAITING_MAX;
}

/* Seconds for each byte of KV that is computed, of a prompt of usual length: what a copy drives out is worth about as
 * much. 0: not known. */
static double computed(const kvcl_job_t *job)
{
    const kvcl_cand_t *cand   = &job->cand[0];
    const double      seconds = kvcl_model_prefill(kvcl_job_model(job, kvcl_job_inst(job, cand)), USUAL_TOKENS, 0);

    return ((seconds > 0) && (job->kv_bytes > 0)) ? seconds * cand->factor / (USUAL_TOKENS * job->kv_bytes) : 0;
}

/* The least that a candidate can cost: all that can be fetched is there already. */
static double bound(const kvcl_job_t *job, const kvcl_gather_t *gather, const kvcl_cand_t *cand, double work)
{
    const uint32_t reach = (gather->n > 0) ? gather->seg[gather->n - 1].end : 0;
    const double   all   = kvcl_job_prefill(job, cand, (reach > cand->own) ? reach : cand->own);

    return cand->queue_s + (work * ((all < cand->prefill_s) ? all : cand->prefill_s));
}

static void place(kvcl_job_t *job, const double *arg)
{
    const double        weight = 1 + (arg[WORK] * waiting(job));
    const double        room   = arg[ROOM] * computed(job);
    const kvcl_prices_t idle   = {.work = 1, .sender = arg[PRICE], .room = room};
    const kvcl_prices_t prices = {.work = weight, .sender = arg[PRICE], .room = weight * room};
    kvcl_gather_t gather;
    kvcl_reach_t  reach;
    kvcl_cand_t   *cand;
    double        best = 1e300, second = 1e300, least;
    uint32_t      i;

    kvcl_gather_make(job, &gather, (uint32_t)arg[HOLDERS]);
    for (i = 0; i < job->n_cand; ++i) {
        cand  = &job->cand[i];
        least = bound(job, &gather, cand, prices.work);
        if (least > second * (1 + 1e-6)) {
            cand->score = least; /* neither the best nor the second */
            continue;
        }
        kvcl_gather_reach(job, &gather, cand, &prices, &reach);
        cand->upto      = reach.upto;
        cand->fetch_s   = reach.fetch_s;
        cand->prefill_s = reach.prefill_s;
        cand->score     = reach.cost_s;
        second          = (cand->score < best) ? best : ((cand->score < second) ? cand->score : second);
        best            = (cand->score < best) ? cand->score : best;
    }
    kvcl_pick_least(job);
    job->keep = true;
    kvcl_gather_pieces(job, &gather, &job->cand[job->pick]);
    kvcl_replicate(job, &idle, arg[REPLICATE]);
}

const kvcl_policy_t kvcl_policy_place_kvcl = {
    .name   = "kvcl",
    .kind   = KVCL_POLICY_PREFILL,
    .desc   = "the least max(queue, fetch) + prefill; work=1, price=0.25 of senders, room=0.15 in pools; holders=4, "
              "replicate=60 s",
    .source = "KVCL, contrib/doc/scheduling",
    .keys   = {{"work", 1, 0, 100},
               {"price", 0.25, 0, 1e6},
               {"room", 0.15, 0, 1e6},
               {"holders", 4, 1, KVCL_GATHER_HOLDERS},
               {"replicate", 60, 0, 1e6}},
    .timed  = true,
    .place  = place};
