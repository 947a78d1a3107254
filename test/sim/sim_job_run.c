/*
 * A run of sim_job.h: its beginning, its steps, and what must hold in the end.
 */
#include "config.h"

#include "sim_job.h"

static uint64_t store_at; /* of sim.now: when something is due in the directory */

void job_run_begin(uint64_t seed, unsigned n, unsigned drift)
{
    static const kvcl_views_times_t times = KVCL_VIEWS_TIMES;

    store_begin();
    job_begin();
    sim_begin(seed, n, drift, &times);
    store_keys();
    sim.rests        = true;
    sim.more         = (sim_more_t){.event = job_on_event, .after = job_after};
    job_on_send      = NULL;
    store_at         = 0;
    job_experts      = n + 1;
    store_tick_ms    = (n <= FEW_SLOTS) ? 5 : 50;
    store_give_up_ms = 1000;
}

void job_run_step(uint64_t until)
{
    uint64_t at = job_net_at();

    at = (store_at < at) ? store_at : at;
    sim_step((at < until) ? at : until);
    while ((job_net_at() <= sim.now) && !sim.failed) {
        job_net_deliver();
    }
    if (store_at <= sim.now) {
        store_run();
        at       = store_next();
        store_at = (at > sim.now + MS) ? at : sim.now + MS;
        store_at = (store_at > sim.now + (5 * MS)) ? sim.now + (5 * MS) : store_at;
    }
}

void job_prove(const proc_t *p, unsigned percent, unsigned within_ms)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_lives(&sim.procs[i]) && (sim_below(100) < percent)) {
            sim_prove(i, index_of(p), 1 + sim_below(within_ms));
        }
    }
}

/* ---- what must hold in the end ---- */

static const proc_t *latest_member(void)
{
    const proc_t *latest = NULL;
    unsigned     i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_is_member(&sim.procs[i]) &&
            ((latest == NULL) || (sim.procs[i].views.view.number > latest->views.view.number))) {
            latest = &sim.procs[i];
        }
    }
    return latest;
}

static void check_goes_on(void)
{
    const proc_t *latest = latest_member();
    unsigned     i;

    for (i = 0; (i < sim.n_procs) && (latest != NULL); ++i) {
        const proc_t *p = &sim.procs[i];

        if (!sim_is_member(p) || !kvcl_view_has(&latest->views.view, p->slot, p->incarnation) ||
            !kvcl_views_has_quorum(&p->views)) {
            continue;
        }
        if ((jobs[i].phase == JOB_WORKS) && !kvcl_rankset_equal(&jobs[i].members, &p->views.view.members)) {
            sim_broken("GoesOn", p, "its communicator does not have the members of its view");
        }
        if (sim.now - jobs[i].well_at > 1500 * MS) {
            sim_broken("GoesOn", p, "no operation ends well any more");
        }
    }
}

void job_check_end(void)
{
    sim_check_together();
    store_check_end();
    check_goes_on();
}
