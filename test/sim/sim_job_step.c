/*
 * Steps of experts in sim_job.h: their choices, their ends, and what must hold of their rows.
 */
#include "config.h"

#include "sim_job_rows.h"

static void learn_gone(proc_t *p)
{
    job_t    *job = job_of(p);
    uint32_t r;

    for (r = 0; r < job->size; ++r) {
        if ((r != job->rank) && job_is_gone(p, r)) {
            kvcl_ep_turn_lose(&job->ep.turn, job->slots[r], KVCL_ERR_RANK_FAILED);
        }
    }
}

void job_step_gone(proc_t *p, uint32_t slot)
{
    if ((job_of(p)->phase == JOB_WORKS) && job_of(p)->ep.in_call && (slot != p->slot)) {
        learn_gone(p);
    }
}

void job_step_stop(proc_t *p)
{
    job_t    *job = job_of(p);
    uint32_t r;

    for (r = 0; job->ep.in_call && (r < job->size); ++r) {
        kvcl_ep_turn_lose(&job->ep.turn, job->slots[r], KVCL_ERR_REVOKED);
    }
}

static void choose(proc_t *p)
{
    job_ep_t *ep = &job_of(p)->ep;
    int32_t  all[SLOTS];
    uint32_t slot, i;

    for (slot = 0; slot < sim.n_slots; ++slot) {
        ep->mask[slot] = kvcl_ep_turn_active(&ep->turn, slot);
        all[slot]      = 1;
    }
    for (i = 0; i < ROWS; ++i) {
        ep->experts[i] = sim_below(job_experts);
        if ((i % TOP_K == 1) && (ep->experts[i] == ep->experts[i - 1])) {
            ep->experts[i] = (ep->experts[i] + 1) % job_experts;
        }
        ep->ids[i] = kvcl_ep_map_choose(&ep->map, 0, (uint32_t)ep->experts[i], (i / TOP_K) + p->slot,
                                        (job_broken == JOB_BREAK_NO_MASK) ? all : ep->mask, LOCAL);
        ep->ids[i] = (ep->ids[i] < 0) ? KVCL_EP_ID_LOST : ep->ids[i];
    }
    kvcl_ep_route_make(&ep->route, &ep->dims, ep->ids, TOKENS, TOP_K,
                       (job_broken == JOB_BREAK_NO_MASK) ? all : ep->mask);
}

/* Each choice is a row for a rank of the mask that has its expert, or is lost. */
static void check_route(proc_t *p)
{
    const job_t    *job = job_of(p);
    const job_ep_t *ep  = &job->ep;
    uint32_t       i, place;

    for (i = 0; i < ROWS; ++i) {
        if (ep->route.place[i] >= KVCL_EP_ROW_LOST) {
            job_counts.lost_rows += 1;
            if (ep->ids[i] >= 0) {
                sim_broken("Masked", p, "a row is lost whose rank is active");
            }
            continue;
        }
        place = job_row_place(ep, ep->route.place[i]);
        if (!kvcl_rankset_has(&job->members, place / LOCAL) || (ep->mask[place / LOCAL] == 0)) {
            sim_broken("Masked", p, "a row goes to a rank that is not active");
        }
        if (ep->placement[place] != (int32_t)ep->experts[i]) {
            sim_broken("Masked", p, "a row goes to a slot with another expert");
        }
    }
}

void job_step_begin(proc_t *p)
{
    job_t    *job = job_of(p);
    job_ep_t *ep  = &job->ep;
    uint32_t slot;

    learn_gone(p);
    choose(p);
    check_route(p);
    kvcl_ep_inbox_clear(&ep->inbox, &ep->dims);
    for (slot = 0; slot < sim.n_slots; ++slot) {
        ep->rows_to[slot] = kvcl_ep_route_rows(&ep->route, &ep->dims, slot);
    }
    ep->in_call = true;
    ep->slept   = false;
    ep->begun   = ep->seen = ep->ticks = sim.now;
    kvcl_ep_turn_dispatch(&ep->turn, ep->rows_to, sim.now, EP_LIMIT_MS * MS);
    job_look_again(p);
}

/* What came was for this rank, in this step, and for what lies there. */
static void check_in(proc_t *p)
{
    job_t          *job = job_of(p);
    job_ep_t       *ep  = &job->ep;
    const uint32_t *blocks;
    uint32_t       r, i, place;
    uint64_t       row;

    for (r = 0; r < sim.n_slots; ++r) {
        blocks = kvcl_ep_inbox_blocks(&ep->inbox, &ep->dims, r);
        for (i = 0; kvcl_ep_turn_active(&ep->turn, r) && (r != p->slot) && (i < ep->inbox.n_from[r]); ++i) {
            row   = ep->in[blocks[i]];
            place = (blocks[i] / ep->dims.rows) + (p->slot * LOCAL);
            if (row != job_row_of(job, r, ep->placement[place], (uint32_t)(row >> 16) & 0xff, place)) {
                sim_broken("Masked", p, "a row of another step, or for another expert, came");
            }
        }
    }
}

static void check_back(proc_t *p)
{
    const job_ep_t *ep = &job_of(p)->ep;
    uint32_t       i, row, rank;

    for (i = 0; i < ROWS; ++i) {
        row  = ep->route.place[i];
        rank = (row < KVCL_EP_ROW_LOST) ? job_row_place(ep, row) / LOCAL : p->slot;
        if (rank == p->slot) {
            continue;
        }
        if (!ep->peers[rank].back) {
            job_counts.lost_rows += 1;
        } else if (ep->back[row] != job_row_own(p, row)) {
            sim_broken("Masked", p, "another row came back");
        }
    }
}

static void end_call(proc_t *p)
{
    job_ep_t *ep = &job_of(p)->ep;

    if (!ep->slept && (sim.now - ep->begun > (((uint64_t)KVCL_EP_LIMITS * EP_LIMIT_MS) + 300) * MS)) {
        sim_broken("Ends", p, "a step has outlived its deadlines");
    }
    if (ep->turn.phase == KVCL_EP_DISPATCH) {
        check_in(p);
        kvcl_ep_turn_end(&ep->turn);
        ep->begun = ep->ticks = sim.now;
        kvcl_ep_turn_combine(&ep->turn, sim.now, EP_LIMIT_MS * MS);
        job_look_again(p);
        return;
    }
    check_back(p);
    kvcl_ep_turn_end(&ep->turn);
    ep->in_call      = false;
    job_counts.steps += 1;
    job_ended(p, KVCL_OK);
}

void job_step_tick(proc_t *p)
{
    job_ep_t *ep = &job_of(p)->ep;

    while (ep->in_call && !sim.failed) {
        ep->slept = job_has_slept(p, ep->slept, &ep->seen);
        if (!kvcl_ep_turn_is_over(&ep->turn) && (sim.now >= ep->ticks)) {
            ep->ticks = kvcl_ep_turn_tick(&ep->turn, sim.now);
        }
        if (!kvcl_ep_turn_is_over(&ep->turn)) {
            return;
        }
        end_call(p);
    }
}
