/*
 * The agreements of sim_job.h: what a rank gives, and that all who end one have the same value.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

enum { AGREED = 256 };

static uint64_t lineage; /* of rounds: they are counted from 1 again where nobody who knows them is left */
static struct {
    uint64_t           round;
    kvcl_agree_value_t value;
} agreed[AGREED];

static void send_agree(void *arg, uint32_t to, const kvcl_agree_msg_t *msg)
{
    proc_t *p = arg;

    job_post(p, to, p->views.view.incarnation[to], JOB_AGREE)->u.agree = *msg;
}

/* Does a member of this one's view know the numbers of rounds? */
static bool is_known(const proc_t *p)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *q = &sim.procs[i];

        if (sim_lives(q) && (jobs[i].phase != JOB_NEW) && !jobs[i].is_lost &&
            kvcl_view_has(&p->views.view, q->slot, q->incarnation)) {
            return true;
        }
    }
    return false;
}

static bool is_same(const kvcl_agree_value_t *a, const kvcl_agree_value_t *b)
{
    return (a->call == b->call) && (a->flags == b->flags) && (a->unlike == b->unlike) &&
           kvcl_rankset_equal(&a->acked, &b->acked) && kvcl_rankset_equal(&a->members, &b->members);
}

static void check_uniform(proc_t *p, uint64_t round, const kvcl_agree_value_t *value)
{
    if (job_of(p)->is_lost && !is_known(p)) {
        memset(agreed, 0, sizeof(agreed));
        lineage += 1;
    }
    if (job_of(p)->is_lost) {
        job_of(p)->is_lost = false;
        job_of(p)->lineage = lineage;
    }
    if (job_of(p)->lineage != lineage) {
        return; /* an excluded rank, that does not know */
    }
    if ((agreed[round % AGREED].round == round) && !is_same(&agreed[round % AGREED].value, value)) {
        sim_broken("Uniform", p, "it has agreed on another value than others in the same round");
    }
    agreed[round % AGREED].round = round;
    agreed[round % AGREED].value = *value;
}

static void on_decided(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    proc_t *p   = arg;
    job_t  *job = job_of(p);

    if (p->dead) {
        return;
    }
    check_uniform(p, round, value);
    if ((job->phase == JOB_AGREES) && ((round == job->awaited) || (job->awaited == 0))) {
        job->value   = *value;
        job->awaited = round;
        job->decided = true;
        job->news    = true;
    }
}

static const kvcl_agree_ops_t agree_ops = {.send = send_agree, .decided = on_decided};

void job_give(proc_t *p)
{
    job_t              *job   = job_of(p);
    kvcl_agree_value_t value = {.call = 1, .flags = ~OP_BITS};

    value.flags |= (job->round == 0) ? OP_BITS : job->ok; /* a rank without a communicator knows of no failure */
    value.acked  = job->agree.group;
    kvcl_rankset_drop(&value.acked, &p->views.view.members);
    job->phase     = JOB_AGREES;
    job->decided   = false;
    job->awaited   = kvcl_agree_next(&job->agree);
    job->gave_view = p->views.view.id;
    (void)kvcl_agree_give(&job->agree, &value, KVCL_AGREE_NOWHERE);
}

void job_take_agree(proc_t *p, const kvcl_agree_msg_t *msg)
{
    if (job_of(p)->phase != JOB_OUT) {
        kvcl_agree_take(&job_of(p)->agree, msg);
    }
}

void job_agree_start(proc_t *p)
{
    job_t          *job = job_of(p);
    kvcl_rankset_t all  = {{0}};
    uint32_t       slot;

    for (slot = 0; slot < sim.n_slots; ++slot) {
        kvcl_rankset_add(&all, slot);
    }
    kvcl_agree_init(&job->agree, p->slot, &all, &agree_ops, p);
    job->is_lost = (p->views.view.number != 1);
    job->lineage = lineage;
    if (job->is_lost) {
        kvcl_agree_join(&job->agree);
    }
    kvcl_agree_view(&job->agree, p->views.view.number, &p->views.view.members);
}

void job_agree_begin(void)
{
    lineage = 0;
    memset(agreed, 0, sizeof(agreed));
}
