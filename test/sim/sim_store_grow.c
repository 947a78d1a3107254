/*
 * Processes of sim_store.h that come to the open store after they have joined the job, and ranks that leave it: the
 * rounds of ASK and TAKE of src/store/grow.
 */
#include "config.h"

#include "sim_store.h"

/* ---- what is asked ---- */

/* Posts one to each rank that is to answer still. Returns how many of these have the store, as far as it knows. */
static unsigned ask_round(proc_t *p, kind_t kind, unsigned flags, bool all_members)
{
    part_t   *part = &parts[index_of(p)];
    bool     due   = (sim.now >= part->round_at);
    unsigned n     = 0;
    uint32_t slot;
    mail_t   *mail;

    part->round_at = due ? sim.now + (RETRY_MS * MS) : part->round_at;
    for (slot = 0; slot < sim.n_slots; ++slot) {
        bool is = all_members ? kvcl_rankset_has(&p->views.view.members, slot) : (part->ranks[slot].incarnation != 0);

        if (!is || (slot == p->slot) || has_failed(p, slot) || ((part->answered >> slot) & 1)) {
            continue;
        }
        n += ((part->absent >> slot) & 1) ^ 1;
        if (due) {
            mail       = post(p, slot, kind);
            mail->step = flags;
            mail->id   = part->stage;
        }
    }
    return n;
}

/* ---- coming ---- */

static void come(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    uint32_t slot;

    part->ranks[p->slot].incarnation = (uint16_t)p->incarnation;
    for (slot = 0; slot < sim.n_slots; ++slot) {
        if (has_failed(p, slot) ||
            ((part->ranks[slot].incarnation != 0) &&
             !kvcl_view_has(&p->views.view, slot, part->ranks[slot].incarnation))) {
            part->ranks[slot].incarnation = 0;
        }
    }
    part->stage    = COMES;
    part->answered = part->absent = 0;
    part->sure     = false;
    move(p, true);
}

void grow(proc_t *p)
{
    part_t *part = &parts[index_of(p)];

    if (part->stage == ASKS) {
        (void)ask_round(p, MAIL_ASK, 0, true);
    } else if ((part->stage == IS_TAKEN) && (ask_round(p, MAIL_TAKE, part->sure ? SURE : 0, true) == 0)) {
        if (part->sure) {
            come(p);
        } else { /* the others have all gone */
            part->stage    = ASKS;
            part->answered = part->absent = 0;
        }
    }
    leave(p);
}

/* ---- leaving ---- */

/* Other ranks that have shards if this one has none. */
static unsigned others_stay(const part_t *part, uint32_t but)
{
    uint32_t slot;
    unsigned n = 0;

    for (slot = 0; slot < sim.n_slots; ++slot) {
        n += (slot != but) && (part->ranks[slot].incarnation != 0) && !part->ranks[slot].leaves;
    }
    return n;
}

static void give_shards(proc_t *p)
{
    part_t   *part = &parts[index_of(p)];
    bool     mine  = part->ranks[p->slot].leaves;
    unsigned left;

    if (!mine && (others_stay(part, p->slot) == 0)) {
        part->leaving = STAYS;
        return;
    }
    left = ask_round(p, MAIL_TAKE, LEAVES | (part->sure ? SURE : 0), false);
    if (!mine && (part->sure || !part->moving)) {
        part->ranks[p->slot].leaves = part->sure = mine = true;
        move(p, true);
    }
    if (mine && (((left == 0) && !part->moving) || (others_stay(part, p->slot) == 0))) {
        part->leaving   = GIVES_BLOCKS;
        part->handed    = 0;
        part->hand_view = part->view_id;
    }
}

static void go(proc_t *p)
{
    part_t         *part = &parts[index_of(p)];
    const unsigned stay  = others_stay(part, p->slot);

    part->leaving = GOES;
    n_left       += 1;
    n_lost       += 2 - ((stay < 2) ? stay : 2); /* copies that stay */
    sim_leave(p, p->slot);
}

void leave(proc_t *p)
{
    part_t *part = &parts[index_of(p)];

    if ((part->leaving == GIVES_SHARDS) && (part->stage == OPEN)) {
        give_shards(p);
    } else if ((part->leaving == GIVES_BLOCKS) && (part->hand_view != part->view_id)) {
        part->handed    = 0; /* other copies may have gone */
        part->hand_view = part->view_id;
    } else if ((part->leaving == GIVES_BLOCKS) && hand_over(p) && !part->moving) {
        go(p);
    }
    if ((part->leaving == GIVES_BLOCKS) && (others_stay(part, p->slot) == 0)) {
        go(p); /* none hands anything over */
    }
}

/* ---- answers ---- */

/* As in store/grow/take.c. */
static kvcl_status_t take(proc_t *p, const proc_t *from, unsigned flags)
{
    part_t            *part   = &parts[index_of(p)];
    kvcl_moves_rank_t *known  = &part->ranks[from->slot];
    bool              leaves  = (flags & LEAVES) != 0;
    bool              is_here = (known->incarnation == (uint16_t)from->incarnation);

    if (part->stage == ASKS) {
        return KVCL_ERR_NOT_FOUND;
    }
    if (is_here && (known->leaves == leaves)) {
        return KVCL_OK;
    }
    if ((part->stage >= COMES) && part->moving && !(flags & SURE) && (broken != BREAK_TAKE_UNSETTLED)) {
        return KVCL_ERR_BUSY;
    }
    if (leaves && !is_here) {
        return KVCL_ERR_BUSY;
    }
    part->fresh       |= is_here ? 0 : UINT64_C(1) << from->slot;
    known->incarnation = (uint16_t)from->incarnation;
    known->leaves      = leaves;
    if (part->stage >= COMES) {
        move(p, true);
    }
    return KVCL_OK;
}

static void take_reply(proc_t *p, const mail_t *mail)
{
    part_t         *part = &parts[index_of(p)];
    const proc_t   *from = &sim.procs[mail->from];
    const uint64_t bit   = UINT64_C(1) << from->slot;

    if (mail->kind == MAIL_ASK_REPLY) {
        part->stage = ((part->stage == ASKS) && (mail->status == KVCL_OK)) ? IS_TAKEN : part->stage;
        return;
    }
    if (mail->id != part->stage) {
        return; /* of a round before */
    }
    part->absent = (mail->status == KVCL_ERR_NOT_FOUND) ? part->absent | bit : part->absent & ~bit;
    if (mail->status != KVCL_OK) {
        return;
    }
    part->sure      = part->sure || (mail->step & SURE) || (broken == BREAK_SURE_OF_NONE);
    part->answered |= part->sure ? bit : 0;
    if (part->stage == IS_TAKEN) {
        part->ranks[from->slot].incarnation = (uint16_t)from->incarnation;
        part->ranks[from->slot].leaves      = (mail->step & LEAVES) != 0;
    }
}

void take_grow(proc_t *p, const mail_t *mail)
{
    const part_t  *part   = &parts[index_of(p)];
    const proc_t  *from   = &sim.procs[mail->from];
    kvcl_status_t  status = (part->stage >= COMES) ? KVCL_OK
                            : (part->stage == ASKS) ? KVCL_ERR_NOT_FOUND : KVCL_ERR_BUSY;
    mail_t         *back;

    if ((mail->kind == MAIL_ASK_REPLY) || (mail->kind == MAIL_TAKE_REPLY)) {
        take_reply(p, mail);
        return;
    }
    status       = (mail->kind == MAIL_TAKE) ? take(p, from, mail->step) : status;
    back         = post(p, from->slot, (mail->kind == MAIL_ASK) ? MAIL_ASK_REPLY : MAIL_TAKE_REPLY);
    back->status = status;
    back->id     = mail->id;
    back->step   = (part->ranks[p->slot].leaves ? LEAVES : 0) | (((part->stage >= COMES) || part->sure) ? SURE : 0);
}
