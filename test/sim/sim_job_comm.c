/*
 * The program of sim_job.h: communicators and revocations. As src/member does it: what the machines say takes effect
 * when they have returned.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

job_t        jobs[PROCS];
job_break_t  job_broken;
job_counts_t job_counts;
bool         job_one_fault;
uint64_t     job_calm_at;

/* ---- revocations ---- */

static bool tell_revoked(void *arg, uint32_t to, uint64_t comm, const kvcl_rankset_t *members)
{
    proc_t     *p = arg;
    job_mail_t *mail;

    if (kvcl_rankset_has(&p->views.view.members, to) && !has_failed(p, to)) {
        mail            = job_post(p, to, p->views.view.incarnation[to], JOB_REVOKE);
        mail->comm      = comm;
        mail->u.members = *members;
    }
    return true;
}

static const kvcl_revokes_ops_t revokes_ops = {.tell = tell_revoked};

void job_take_revoke(proc_t *p, const job_mail_t *mail)
{
    job_t          *job    = job_of(p);
    kvcl_rankset_t members = mail->u.members; /* the message may be taken for another one meanwhile */

    if (kvcl_revokes_take(&job->revokes, mail->comm, &members, sim.procs[mail->from].slot) &&
        (mail->comm == job->comm) && (job->phase == JOB_WORKS)) {
        job_op_fail(p, KVCL_ERR_REVOKED);
        job_step_stop(p);
    }
}

/* ---- communicators ---- */

bool job_is_gone(const proc_t *p, uint32_t rank)
{
    const job_t *job = job_of(p);

    return !kvcl_view_has(&p->views.view, job->slots[rank], job->incarnations[rank]) ||
           has_failed(p, job->slots[rank]);
}

static void make_comm(proc_t *p)
{
    job_t                *job     = job_of(p);
    const kvcl_rankset_t *members = &job->value.members;
    uint64_t             seed     = (1 + job->lineage) ^ (job->awaited * UINT64_C(0x9e3779b97f4a7c15));
    uint32_t             slot;

    job->comm      = kvcl_splitmix64(&seed) | 2;
    job->round     = job->awaited;
    job->comm_view = job->gave_view;
    job->members   = *members;
    job->size      = 0;
    job->rank      = SLOTS;
    KVCL_RANKSET_EACH(members, slot) {
        job->slots[job->size]        = slot;
        job->incarnations[job->size] = kvcl_rankset_has(&p->views.view.members, slot)
                                           ? p->views.view.incarnation[slot] : 0;
        job->rank                    = (slot == p->slot) ? job->size : job->rank;
        job->size                   += 1;
    }
    job->seq    = job->ok = 0;
    job->failed = false;
}

static void enter_comm(proc_t *p)
{
    job_t *job = job_of(p);

    make_comm(p);
    job_counts.agreed += 1;
    if (job->rank == SLOTS) { /* it has come since */
        job->round = 0;
        job_give(p);
        return;
    }
    job->phase = JOB_WORKS;
    job_ep_begin(p);
    job_look_again(p);
    job_wake(p, sim_below(MS));
}

/* What all members have agreed on says nothing false about this one. */
static void check_known(proc_t *p)
{
    const job_t *job = job_of(p);

    if ((job->round != 0) && kvcl_rankset_has(&job->value.members, p->slot) &&
        ((job->value.flags & OP_BITS & ~job->ok) != 0)) {
        sim_broken("Known", p, "all have agreed that an operation ended well which did not here");
    }
}

static void quit_comm(proc_t *p, bool revokes)
{
    job_t *job = job_of(p);

    if (revokes && (job_broken != JOB_BREAK_NO_REVOKE)) {
        (void)kvcl_revokes_take(&job->revokes, job->comm, &job->members, KVCL_SLOT_NONE);
    }
    job_give(p);
}

/* An operation has ended. */
void job_ended(proc_t *p, kvcl_status_t status)
{
    job_t *job = job_of(p);

    if (status == KVCL_OK) {
        job->ok      |= UINT64_C(1) << job->seq;
        job->seq     += 1;
        job->well_at = sim.now;
        job_wake(p, sim_below(((sim.now < job_calm_at) ? 4 : 160) * MS));
    } else if (job->phase == JOB_WORKS) {
        job->failed = true;
        quit_comm(p, true);
    }
}

void job_act(proc_t *p)
{
    job_t *job = job_of(p);

    if ((job->phase != JOB_WORKS) || job->op.runs || job->ep.in_call || (sim.now < job->wakes)) {
        return;
    }
    if (kvcl_revokes_has(&job->revokes, job->comm) || (job->comm_view != p->views.view.id)) {
        quit_comm(p, true);
    } else if (job->seq == OPS) {
        quit_comm(p, false);
    } else if ((job->seq > 1) && (job->seq % 3 == 2)) {
        job_step_begin(p);
    } else {
        job_op_begin(p);
    }
}

/* ---- what happens ---- */

void job_on_event(proc_t *p, kvcl_views_event_t event, const kvcl_rankset_t *ranks)
{
    job_t *job = job_of(p);

    if ((event == KVCL_VIEWS_FAILED) || (event == KVCL_VIEWS_LEFT)) {
        kvcl_rankset_join(&job->gone, ranks);
        job->news = true;
    } else if (event == KVCL_VIEWS_VIEW) {
        kvcl_rankset_join(&job->joined, ranks);
        job->news = true;
    } else if (event == KVCL_VIEWS_EXCLUDED) {
        job->news = true;
    }
}

static void start(proc_t *p)
{
    job_t *job = job_of(p);

    job_agree_start(p);
    kvcl_revokes_init(&job->revokes, p->slot, &revokes_ops, p);
    job->view_id = p->views.view.id;
    job_give(p);
}

static void follow_view(proc_t *p)
{
    job_t    *job = job_of(p);
    uint32_t slot, r;

    for (r = 0; r < job->size; ++r) { /* of the communicator, as it was when they failed */
        if (kvcl_rankset_has(&job->gone, job->slots[r]) && (job->phase == JOB_WORKS)) {
            job_op_gone(p, r, KVCL_ERR_RANK_FAILED);
        }
    }
    KVCL_RANKSET_EACH(&job->gone, slot) {
        job_step_gone(p, slot);
    }
    KVCL_RANKSET_EACH(&job->joined, slot) {
        kvcl_revokes_lost(&job->revokes, slot);
    }
    memset(&job->gone, 0, sizeof(job->gone));
    memset(&job->joined, 0, sizeof(job->joined));
    if (job->view_id != p->views.view.id) {
        job->view_id = p->views.view.id;
        kvcl_agree_view(&job->agree, p->views.view.number, &p->views.view.members);
    }
}

static void go_out(proc_t *p)
{
    job_t    *job = job_of(p);
    uint32_t r;

    for (r = 0; (job->phase == JOB_WORKS) && (r < job->size); ++r) {
        job_op_gone(p, r, KVCL_ERR_STALE);
    }
    job->phase = JOB_OUT;
    job_drop_held(job);
}

void job_after(proc_t *p)
{
    job_t *job = job_of(p);

    if (p->dead || (job->phase == JOB_OUT)) {
        return;
    }
    if (p->views.state == KVCL_VIEWS_OUT) {
        go_out(p);
        return;
    }
    if (!sim_is_member(p)) {
        return;
    }
    if (job->phase == JOB_NEW) {
        start(p);
    }
    do {
        while (job->news) {
            job->news = false;
            follow_view(p);
            if (job->decided) {
                job->decided = false;
                check_known(p);
                enter_comm(p);
            }
        }
        job_op_tick(p);
        job_step_tick(p);
        job_look(p);
    } while (job->news);
    if (sim.now >= job->again) {
        job->again = sim.now + (AGAIN_MS * MS);
        kvcl_agree_again(&job->agree);
        kvcl_revokes_again(&job->revokes);
    }
}

void job_begin(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) { /* of the run before */
        job_op_drop(&jobs[i]);
        job_ep_drop(&jobs[i]);
        memset(&jobs[i], 0, sizeof(jobs[i]));
    }
    job_agree_begin();
    job_net_begin();
}
