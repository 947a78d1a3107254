/*
 * A reader: it finds the locations of a key (in the home's mapped table, or by a LOOKUP message), then tries them one
 * by one, one-sided (mapped, or native) or served by the owner. All copy a word per step, then check the generation
 * word. A stale location is reported to the home by a remove.
 */
#include "config.h"

#include "sim.h"

#include <string.h>

static void finish(sim_t *sim, sim_get_t *get, bool hit)
{
    sim->counts.misses += !hit;
    get->state = GET_IDLE;
}

static void request(sim_t *sim, sim_node_t *node, sim_get_t *get)
{
    kvcl_dir_pack_t pack;
    sim_msg_t       *msg;

    get->state = GET_ASKED;
    get->id    = ++node->next_id;
    msg        = sim_send(sim, node->rank, get->home, MSG_DIR);
    if ((kvcl_dir_pack_begin(&pack, msg->bytes, SIM_BYTES, KVCL_DIR_MSG_LOOKUP, node->view, get->id) != KVCL_OK) ||
        (kvcl_dir_pack_add(&pack, &sim->keys[get->key], NULL) != KVCL_OK)) {
        sim_fail(sim, "Internal", "cannot pack a lookup");
    }
    msg->len = kvcl_dir_pack_end(&pack);
}

/* Meanwhile the reader's own rank may end, and restart. */
static void read_table(sim_t *sim, sim_node_t *node, sim_get_t *get)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    uint16_t       inc = node->inc;
    unsigned       n;

    get->state = GET_READ;
    n          = sim_table_read(sim, get->home, get->key, locs);
    if ((node->inc == inc) && (get->state == GET_READ)) {
        memcpy(get->locs, locs, n * sizeof(locs[0]));
        get->n_locs = n;
        get->state  = GET_TRY;
    }
}

static void begin(sim_t *sim, sim_node_t *node, sim_get_t *get)
{
    memset(get, 0, sizeof(*get));
    get->key        = sim_below(sim, SIM_KEYS);
    get->home       = sim_home_of(sim, node, get->key);
    get->give_up_at = sim->step + 3 * SIM_TIMEOUT;
    if (sim_chance(sim, 600) && !sim->reading) {
        read_table(sim, node, get);
    } else {
        request(sim, node, get);
    }
}

/* Start with location `at`, or end with a miss. */
static void try_step(sim_t *sim, sim_node_t *node, sim_get_t *get)
{
    const kvcl_dir_loc_t *loc = &get->locs[get->at];
    sim_msg_t            *msg;

    if (get->at >= get->n_locs) {
        finish(sim, get, false);
        return;
    }
    get->inc = loc->incarnation;
    if (sim->broken == BREAK_STALE_INCARNATION) {
        get->inc = sim->nodes[loc->rank].inc; /* whatever is mapped at that rank now */
    } else if (sim->views[node->view].inc[loc->rank] != loc->incarnation) {
        ++get->at; /* dead, or restarted: completion would prove nothing */
        return;
    }
    sim_copy_begin(sim, &get->copy, true);
    if (sim_chance(sim, 600)) {
        get->state = GET_COPY;
        return;
    }
    get->state      = GET_SERVED;
    get->id         = ++node->next_id;
    get->give_up_at = sim->step + 10 * SIM_TIMEOUT;
    msg             = sim_send(sim, node->rank, loc->rank, MSG_GET);
    msg->id         = get->id;
    msg->key        = get->key;
    msg->loc        = *loc;
}

static void stale(sim_t *sim, sim_node_t *node, sim_get_t *get)
{
    ++sim->counts.stale;
    sim_owner_remove(sim, node, get->key, &get->locs[get->at]);
    ++get->at;
    get->state = GET_TRY;
}

/* Copy a word; after the last, the generation word decides. */
static void copy_step(sim_t *sim, sim_node_t *node, sim_get_t *get)
{
    const kvcl_dir_loc_t *loc = &get->locs[get->at];
    const sim_mem_t      *mem = &sim->mems[loc->rank][get->inc];

    if (!sim_copy_step(sim, &get->copy, mem, loc)) {
        return;
    }
    if (!sim_copy_holds(sim, &get->copy, mem, loc, "one-sided")) {
        stale(sim, node, get);
        return;
    }
    sim_log(sim, "rank %u got key %u from rank %u slot %u gen %u", node->rank, get->key, loc->rank,
            loc->slot, loc->gen);
    sim_check_bytes(sim, node, get->key, get->copy.words, "one-sided");
    ++sim->counts.gets_ok;
    finish(sim, get, true);
}

void sim_get_step(sim_t *sim, sim_node_t *node)
{
    sim_get_t *get = &node->gets[sim_below(sim, SIM_GETS)];

    switch (get->state) {
    case GET_IDLE:
        if (!sim->quiet_end) {
            begin(sim, node, get);
        }
        break;
    case GET_READ:
        break; /* it is in progress */
    case GET_TRY:
        try_step(sim, node, get);
        break;
    case GET_COPY:
        copy_step(sim, node, get);
        break;
    case GET_ASKED:
        if (sim->step > get->give_up_at) {
            finish(sim, get, false);
        }
        break;
    case GET_SERVED:
        if (sim->step > get->give_up_at) {
            ++get->at;
            get->state = GET_TRY;
        }
        break;
    }
}

void sim_get_reply(sim_t *sim, sim_node_t *node, const kvcl_dir_msg_t *reply)
{
    sim_get_t *get;
    unsigned   i;
    uint32_t   at = 0;

    for (i = 0; i < SIM_GETS; ++i) {
        get = &node->gets[i];
        if ((get->state == GET_ASKED) && (get->id == reply->id) && (reply->n == 1)) {
            get->n_locs = kvcl_dir_msg_locs(reply, 0, &at, get->locs);
            get->at     = 0;
            get->state  = GET_TRY;
            sim_log(sim, "rank %u: key %u has %u locations", node->rank, get->key, get->n_locs);
        }
    }
}

void sim_get_served(sim_t *sim, sim_node_t *node, const sim_msg_t *msg)
{
    sim_get_t *get;
    unsigned   i;

    for (i = 0; i < SIM_GETS; ++i) {
        get = &node->gets[i];
        if ((get->state != GET_SERVED) || (get->id != msg->id)) {
            continue;
        }
        if (msg->status == KVCL_OK) {
            sim_check_bytes(sim, node, get->key, msg->words, "served");
            ++sim->counts.gets_served_ok;
            finish(sim, get, true);
        } else if (msg->status == KVCL_ERR_STALE) {
            stale(sim, node, get);
        } else {
            ++get->at;
            get->state = GET_TRY;
        }
    }
}
