/*
 * The experts of sim_job.h: which map follows from which.
 *
 * The first operation of a communicator tells all ranks whose map is the latest, the second brings it to them. From it
 * each computes the next one, and the moves that make it, alone. Ranks that do not have the latest map hold nothing
 * of it. An operation may end well on some ranks only: these have a map of that number, others have not.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

enum { MAPS = 1024, MOVES_MAX = SLOTS * LOCAL };

unsigned job_experts;

static struct {
    uint64_t comm, digest;
} maps[MAPS];

static uint32_t n_places(void)
{
    return sim.n_slots * LOCAL;
}

static void open_ep(proc_t *p)
{
    job_ep_t              *ep   = &job_of(p)->ep;
    kvcl_ep_open_params_t params = KVCL_EP_OPEN_PARAMS_INIT;

    params.slots      = n_places();
    params.max_tokens = TOKENS;
    params.top_k      = TOP_K;
    params.hidden     = 1;
    if ((kvcl_ep_dims_take(&params, sim.n_slots, p->slot, &ep->dims) != KVCL_OK) ||
        (kvcl_ep_route_init(&ep->route, &ep->dims) != KVCL_OK) ||
        (kvcl_ep_inbox_init(&ep->inbox, &ep->dims) != KVCL_OK)) {
        abort();
    }
    kvcl_ep_turn_init(&ep->turn, sim.n_slots, p->slot, ep->peers, &job_step_acts, p);
    ep->is_open = true;
}

void job_ep_begin(proc_t *p)
{
    job_ep_t *ep = &job_of(p)->ep;

    if (!ep->is_open) {
        open_ep(p);
    }
    ep->learns = 0;
    ep->donor  = 0;
}

void job_ep_drop(job_t *job)
{
    if (job->ep.is_open) {
        kvcl_ep_map_fini(&job->ep.map);
        kvcl_ep_route_fini(&job->ep.route);
        kvcl_ep_inbox_fini(&job->ep.inbox);
        job->ep.is_open = false;
    }
}

void job_ep_give(job_t *job, uint32_t seq, uint8_t *bytes, uint64_t len)
{
    const job_ep_t *ep = &job->ep;
    uint32_t       i;

    for (i = 0; i < len; ++i) {
        bytes[i] = (uint8_t)((seq == 0) ? ep->has >> (8 * i)
                                        : ((ep->learns != 0) ? (uint32_t)(ep->placement[i] + 1) : 0));
    }
}

static void learn_latest(job_t *job, const uint8_t *bytes)
{
    job_ep_t *ep = &job->ep;
    uint32_t has[SLOTS], r;

    for (r = 0; r < job->size; ++r) {
        has[r] = bytes[4 * r] | ((uint32_t)bytes[(4 * r) + 1] << 8) | ((uint32_t)bytes[(4 * r) + 2] << 16);
        if (has[r] > ep->learns) {
            ep->learns = has[r];
            ep->donor  = r;
        }
    }
    for (r = 0; r < job->size; ++r) {
        ep->fresh[r] = (has[r] != ep->learns);
    }
}

/* ---- the next map ---- */

/* Does a rank that takes part hold nothing? Then the experts are placed anew, else only what is lost. */
static bool has_grown(const job_t *job)
{
    uint32_t r, i, n;

    for (r = 0; r < job->size; ++r) {
        for (i = n = 0; i < LOCAL; ++i) {
            n += (job->ep.old[(job->slots[r] * LOCAL) + i] != KVCL_EP_NONE);
        }
        if (n == 0) {
            return true;
        }
    }
    return false;
}

static kvcl_ep_params_t params_of(const job_ep_t *ep)
{
    kvcl_ep_params_t params = KVCL_EP_PARAMS_INIT;

    params.flags   = KVCL_EP_HOLES;
    params.experts = job_experts;
    params.slots   = n_places();
    params.ranks   = sim.n_slots;
    params.active  = ep->active;
    return params;
}

static kvcl_status_t make_placement(job_t *job, int32_t *placement)
{
    kvcl_ep_params_t params = params_of(&job->ep);
    uint64_t         loads[EXPERTS_MAX];
    uint32_t         e;

    if (has_grown(job) && (job->size * LOCAL >= job_experts)) {
        for (e = 0; e < job_experts; ++e) {
            loads[e] = 1 + (e % 5);
        }
        params.flags = 0;
        return kvcl_ep_place(&params, loads, placement);
    }
    return kvcl_ep_repair(&params, job->ep.old, placement, NULL, NULL);
}

/* The process that this rank knows in a slot of the map has what it is to send. */
static bool is_held(const job_t *job, const kvcl_ep_move_t *move)
{
    const uint32_t slot = (uint32_t)move->source / LOCAL;
    uint32_t       r;
    unsigned       i;

    for (r = 0; (r < job->size) && (job->slots[r] != slot); ++r) {
    }
    if ((r == job->size) || (job->ep.old[move->source] != (int32_t)move->expert)) {
        return false;
    }
    for (i = 0; i < sim.n_procs; ++i) { /* a rank that is further already has had it */
        if ((sim.procs[i].slot == slot) && (sim.procs[i].incarnation == job->incarnations[r])) {
            return (jobs[i].ep.has > job->ep.learns) ||
                   ((jobs[i].ep.has == job->ep.learns) &&
                    (jobs[i].ep.placement[move->source] == (int32_t)move->expert));
        }
    }
    return false;
}

static void check_moves(proc_t *p, const int32_t *placement)
{
    static kvcl_ep_move_t  moves[MOVES_MAX];
    const job_t            *job  = job_of(p);
    const kvcl_ep_params_t params = params_of(&job->ep);
    int32_t                made[SLOTS * LOCAL];
    size_t                 n, i;

    if (kvcl_ep_moves(&params, job->ep.old, placement, moves, sizeof(moves[0]), MOVES_MAX, &n, NULL) != KVCL_OK) {
        sim_broken("OneMap", p, kvcl_last_error());
        return;
    }
    memcpy(made, job->ep.old, sizeof(made));
    for (i = 0; i < n_places(); ++i) {
        made[i] = (job->ep.active[i / LOCAL] != 0) ? made[i] : KVCL_EP_NONE;
    }
    for (i = 0; i < n; ++i) {
        if ((moves[i].kind != KVCL_EP_FROM_STORE) && (moves[i].kind != KVCL_EP_FROM_MOVE) &&
            !is_held(job, &moves[i])) {
            sim_broken("OneMap", p, "a move begins where the expert is not");
        }
        made[moves[i].destination] = (int32_t)moves[i].expert;
    }
    for (i = 0; i < n_places(); ++i) {
        if ((placement[i] != KVCL_EP_NONE) && (made[i] != placement[i])) {
            sim_broken("OneMap", p, "the moves do not make the map");
        }
    }
}

static void check_map(proc_t *p, const int32_t *placement)
{
    uint64_t comm = job_of(p)->comm ^ sim.seed, digest = 0, i;

    comm = kvcl_splitmix64(&comm);
    for (i = 0; i < n_places(); ++i) {
        digest ^= (uint64_t)(placement[i] + 1) | (job_of(p)->ep.active[i / LOCAL] ? UINT64_C(1) << 32 : 0);
        digest  = kvcl_splitmix64(&digest);
    }
    if ((maps[comm % MAPS].comm == comm) && (maps[comm % MAPS].digest != digest)) {
        sim_broken("OneMap", p, "another rank has another map of this number");
    }
    maps[comm % MAPS].comm   = comm;
    maps[comm % MAPS].digest = digest;
}

static void activate(proc_t *p)
{
    job_t            *job = job_of(p);
    job_ep_t         *ep  = &job->ep;
    int32_t          placement[SLOTS * LOCAL];
    kvcl_ep_params_t params;
    kvcl_ep_shape_t  shape;
    uint32_t         slot;

    for (slot = 0; slot < sim.n_slots; ++slot) {
        ep->active[slot] = kvcl_rankset_has((job_broken == JOB_BREAK_VIEW_MAP) ? &p->views.view.members
                                                                               : &job->members, slot);
    }
    params = params_of(ep);
    if ((make_placement(job, placement) != KVCL_OK) || (kvcl_ep_take(&params, "sim_job", &shape) != KVCL_OK) ||
        (kvcl_ep_map_make(&ep->map, &shape, placement, "sim_job") != KVCL_OK)) {
        sim_broken("OneMap", p, kvcl_last_error());
        return;
    }
    check_map(p, placement);
    check_moves(p, placement);
    memcpy(ep->placement, placement, sizeof(ep->placement));
    ep->has = job->round;
    kvcl_ep_turn_activate(&ep->turn, job->round, ep->active);
    memset(ep->takes, 0, sizeof(ep->takes));
    memset(ep->send_id, 0, sizeof(ep->send_id));
    for (slot = 0; slot < sim.n_slots; ++slot) {
        ep->takes[TAKE_WORD][slot]    = true;
        ep->take_tag[TAKE_WORD][slot] = kvcl_ep_tag(job->round, 0, KVCL_EP_TAG_WORD);
    }
}

void job_ep_learn(proc_t *p, uint32_t seq, const uint8_t *bytes, uint64_t len)
{
    job_t    *job = job_of(p);
    job_ep_t *ep  = &job->ep;
    uint32_t i, r;

    if (seq == 0) {
        learn_latest(job, bytes);
        return;
    }
    for (i = 0; i < len; ++i) {
        ep->old[i] = (int32_t)bytes[i] - 1;
    }
    for (r = 0; r < job->size; ++r) {
        for (i = 0; (job_broken != JOB_BREAK_TRUST_ALL) && ep->fresh[r] && (i < LOCAL); ++i) {
            ep->old[(job->slots[r] * LOCAL) + i] = KVCL_EP_NONE;
        }
    }
    if ((job_broken == JOB_BREAK_OWN_MAP) && (ep->has != ep->learns) && (ep->has != 0)) {
        memcpy(ep->old, ep->placement, sizeof(ep->old));
    }
    activate(p);
}
