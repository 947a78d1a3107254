/*
 * A run of sim_store.h: what happens at each step, and what must hold in the end.
 */
#include "config.h"

#include "sim_store.h"

#include <stddef.h>
#include <string.h>

part_t      parts[PROCS];
mail_t      mails[MAILS];
unsigned    n_mails;
kvcl_key_t  keys[KEYS];
key_state_t states[KEYS];
uint64_t    n_acked, n_removed, n_got, n_moved;
unsigned    n_lost;
uint64_t    n_come, n_left;
unsigned    handing[KEYS];
break_t     broken;
uint64_t    store_tick_ms, store_client_ends, store_give_up_ms;
void        (*store_on_post)(unsigned from, unsigned to);

static uint8_t  was_lost[PROCS];

/* Has a rank handed over, and is still a member? If one is lost meanwhile, both may take copies along. */
static bool one_goes(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if ((parts[i].leaving == GOES) && sim_is_member(&sim.procs[i])) {
            return true;
        }
    }
    return false;
}

static void count_lost(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *p = &sim.procs[i];

        if (!was_lost[i] && (parts[i].leaving != GOES) &&
            (p->dead || ((p->views.state != KVCL_VIEWS_JOINING) && is_excluded(p)))) {
            was_lost[i] = 1;
            n_lost     += one_goes() ? 2 : 1;
        }
    }
}

static void tick_parts(void)
{
    unsigned i, j;

    for (i = 0; i < sim.n_procs; ++i) {
        proc_t *p    = &sim.procs[i];
        part_t *part = &parts[i];

        follow(p);
        if (!sim_is_member(p) || p->paused || !part->begun || (sim.now < part->tick_at)) {
            continue;
        }
        part->tick_at = sim.now + (store_tick_ms * MS);
        for (j = 0; j < STORE_OPS; ++j) {
            if (part->ops[j].kind != OP_NONE) {
                run_op(p, &part->ops[j]);
            }
        }
        walk(p);
        sweep(p);
        say_again(p);
        grow(p);
        client(p);
    }
}

/* By a member of this rank's view: an excluded one may not know that it is. */
static bool is_held(const proc_t *p, unsigned key)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_is_member(&sim.procs[i]) && (parts[i].held[key] != 0) &&
            kvcl_view_has(&p->views.view, sim.procs[i].slot, sim.procs[i].incarnation)) {
            return true;
        }
    }
    return false;
}

/* Directly, without messages: whoever is asked lists a living holder. */
static bool is_found(const proc_t *p, unsigned key)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    uint32_t       home = asked(p, &parts[index_of(p)], &keys[key]);
    unsigned       i, j, n;

    for (i = 0; i < sim.n_procs; ++i) {
        if (!sim_is_member(&sim.procs[i]) || (sim.procs[i].slot != home)) {
            continue;
        }
        n = look_up(&sim.procs[i], key, locs);
        for (j = 0; j < n * sim.n_procs; ++j) {
            const proc_t *q = &sim.procs[j % sim.n_procs];

            if (sim_is_member(q) && (q->slot == locs[j / sim.n_procs].rank) &&
                ((uint16_t)q->incarnation == locs[j / sim.n_procs].incarnation) &&
                (parts[j % sim.n_procs].held[key] != 0)) {
                return true;
            }
        }
    }
    return false;
}

/* Does a member of this one's view have the store, that stays? */
static bool is_open(const proc_t *p)
{
    unsigned i, n = 0;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *q = &sim.procs[i];

        n += sim_is_member(q) && kvcl_view_has(&p->views.view, q->slot, q->incarnation) && (parts[i].stage == OPEN) &&
             (parts[i].leaving == STAYS);
    }
    return n != 0;
}

void store_check_end(void)
{
    unsigned i, j, k;

    for (i = 0; (i < sim.n_procs) && !sim.failed; ++i) {
        const proc_t *p = &sim.procs[i];

        if (!sim_is_member(p) || !kvcl_views_has_quorum(&p->views)) {
            continue;
        }
        for (j = 0; j < STORE_OPS; ++j) {
            if (parts[i].ops[j].kind != OP_NONE) {
                sim_broken("Ends", p, "an operation is left");
            }
        }
        if ((parts[i].stage != OPEN) && is_open(p)) {
            sim_broken("Ends", p, "it has not come to the store");
        }
        if ((parts[i].leaving != STAYS) && is_open(p)) {
            sim_broken("Ends", p, "it has not left");
        }
        if (parts[i].moving) {
            sim_broken("Ends", p, "shards still move");
        }
        for (k = 0; k < KEYS; ++k) {
            if ((states[k] == KEY_ACKED) && is_held(p, k) && !is_found(p, k)) {
                sim_broken("Kept", p, "an acknowledged key is not found");
            }
            if ((states[k] == KEY_REMOVED) && is_found(p, k)) {
                sim_broken("Kept", p, "a removed key is found");
            }
        }
    }
}

static void deliver_until(uint64_t now)
{
    unsigned i;

    while ((n_mails > 0) && (mails[n_mails - 1].at == 0)) {
        n_mails -= 1;
    }
    for (i = 0; i < n_mails; ++i) {
        if ((mails[i].at != 0) && (mails[i].at <= now)) {
            deliver(&mails[i]);
        }
    }
}

void store_run(void)
{
    count_lost();
    deliver_until(sim.now);
    tick_parts();
    check_owners();
}

uint64_t store_next(void)
{
    uint64_t next = UINT64_MAX;
    unsigned i;

    for (i = 0; i < n_mails; ++i) {
        next = ((mails[i].at != 0) && (mails[i].at < next)) ? mails[i].at : next;
    }
    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_is_member(&sim.procs[i]) && !sim.procs[i].paused) {
            next = (parts[i].tick_at < next) ? parts[i].tick_at : next;
        }
    }
    return next;
}

void store_begin(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) { /* of the run before; the rest when they begin */
        memset(&parts[i], 0, offsetof(part_t, map));
    }
    memset(mails, 0, n_mails * sizeof(mails[0]));
    memset(states, 0, sizeof(states));
    memset(was_lost, 0, sizeof(was_lost));
    memset(handing, 0, sizeof(handing));
    n_lost            = 0;
    n_mails           = 0;
    store_tick_ms     = 5;
    store_give_up_ms  = GIVE_UP_MS;
    store_client_ends = (END_MS - GIVE_UP_MS - 1500) * MS;
    store_on_post     = NULL;
}

void store_keys(void)
{
    unsigned i, j;

    for (i = 0; i < KEYS; ++i) {
        for (j = 0; j < sizeof(keys[i].bytes); ++j) {
            keys[i].bytes[j] = (unsigned char)kvcl_rand_next(&sim.rnd);
        }
    }
}
