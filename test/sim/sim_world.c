/*
 * Everything outside the ranks: the network (a bag: any order, loss, duplicates), pauses, crashes, restarts with a new
 * incarnation, true and false suspicion, and the list of views.
 *
 * A message may be delivered to a later incarnation than it was sent to. A rank that is excluded from a view while it
 * still runs continues until it applies that view, then ends. Views are applied one by one, in order (home.h gives the
 * reason).
 */
#include "config.h"

#include "sim.h"

#include <string.h>

static kvcl_shard_map_t map_of_view[SIM_VIEWS];

static const kvcl_shard_map_t *map_of_ranks(uint32_t mask)
{
    static kvcl_shard_map_t maps[1u << SIM_RANKS];
    uint32_t                ranks[SIM_RANKS], n = 0, r;

    if (maps[mask].n_ranks == 0) {
        for (r = 0; r < SIM_RANKS; ++r) {
            if ((mask & (1u << r)) != 0) {
                ranks[n++] = r;
            }
        }
        if (kvcl_shard_map_build(&maps[mask], mask, ranks, n) != KVCL_OK) {
            return NULL;
        }
    }
    return &maps[mask];
}

/* The last view is complete: give it its map. */
static void make_map(sim_t *sim)
{
    const unsigned          view = sim->n_views - 1;
    const kvcl_shard_map_t *map  = map_of_ranks(sim->views[view].mask);

    if (map == NULL) {
        sim_fail(sim, "Internal", "view %u has no map", view);
        return;
    }
    map_of_view[view]      = *map;
    map_of_view[view].view = view;
}

const kvcl_shard_map_t *sim_map(unsigned view)
{
    return &map_of_view[view];
}

uint32_t sim_home_of(sim_t *sim, const sim_node_t *node, unsigned key)
{
    return kvcl_shard_home(sim_map(node->view), &sim->keys[key]);
}

sim_msg_t *sim_send(sim_t *sim, uint32_t from, uint32_t to, sim_msg_kind_t kind)
{
    sim_msg_t *msg;
    unsigned   i = sim->n_msgs;

    if (i == SIM_MSGS) {
        i = sim_below(sim, SIM_MSGS);
        ++sim->counts.lost;
    } else {
        ++sim->n_msgs;
    }
    ++sim->counts.sent;
    msg       = &sim->msgs[i];
    msg->kind = kind;
    msg->from = from;
    msg->to   = to;
    msg->len  = 0;
    return msg;
}

static void receive(sim_t *sim, sim_node_t *node, const sim_msg_t *msg)
{
    kvcl_dir_msg_t dir;

    if (msg->kind == MSG_GET) {
        sim_serve_begin(sim, node, msg);
    } else if (msg->kind == MSG_GET_REPLY) {
        sim_get_served(sim, node, msg);
    } else if (kvcl_dir_msg_unpack(&dir, msg->bytes, msg->len) != KVCL_OK) {
        sim_fail(sim, "Internal", "rank %u cannot unpack a message of rank %u", node->rank, msg->from);
    } else if (dir.type <= KVCL_DIR_MSG_LOOKUP) {
        sim_home_request(sim, node, msg, &dir);
    } else if (dir.type == KVCL_DIR_MSG_LOOKUP_REPLY) {
        sim_get_reply(sim, node, &dir);
    } else {
        sim_owner_reply(sim, node, &dir);
    }
}

static void deliver(sim_t *sim)
{
    unsigned    i    = sim_below(sim, sim->n_msgs);
    sim_msg_t   msg  = sim->msgs[i];
    sim_node_t *node = &sim->nodes[msg.to];
    bool        lost = !node->up || sim_chance(sim, sim->loss);

    if (node->up && (sim->step < node->paused_until)) {
        return;
    }
    if (lost || !sim_chance(sim, sim->dup)) {
        sim->msgs[i] = sim->msgs[--sim->n_msgs];
        sim->counts.lost += lost;
    } else {
        ++sim->counts.doubled;
    }
    if (!lost) {
        receive(sim, node, &msg);
    }
}

static bool next_view(sim_t *sim, uint32_t rank, uint16_t inc)
{
    sim_view_t *v = &sim->views[sim->n_views];

    if (sim->n_views == SIM_VIEWS) {
        return false;
    }
    *v           = sim->views[sim->n_views - 1];
    v->inc[rank] = inc;
    v->mask      = (inc == 0) ? v->mask & ~(1u << rank) : v->mask | (1u << rank);
    if (v->mask == 0) {
        return false;
    }
    ++sim->n_views;
    ++sim->counts.views;
    make_map(sim);
    sim_log(sim, "view %u: rank %u incarnation %u, members 0x%x", sim->n_views - 1, rank, inc, v->mask);
    return true;
}

static void restart(sim_t *sim, sim_node_t *node)
{
    if (next_view(sim, node->rank, (uint16_t)(node->inc + 1))) {
        ++sim->counts.restarts;
        sim_node_start(sim, node->rank, (uint16_t)(node->inc + 1), sim->n_views - 1);
    }
}

/* A rank crashes, is suspected, restarts, or pauses. */
static void fault(sim_t *sim)
{
    sim_node_t *node   = &sim->nodes[sim_below(sim, sim->n_ranks)];
    bool        spare  = (node->inc + 1 < SIM_INCS) && (sim->n_views + SIM_RANKS < SIM_VIEWS);
    bool        member = sim->views[sim->n_views - 1].inc[node->rank] == node->inc;

    if (node->up) {
        if (spare && sim_chance(sim, sim->crash)) {
            ++sim->counts.crashes;
            sim_log(sim, "rank %u crashes", node->rank);
            node->up = false;
        } else if (spare && member && sim_chance(sim, sim->crash / 3)) {
            sim->counts.suspicions += next_view(sim, node->rank, 0);
        } else if (sim_chance(sim, sim->pause)) {
            ++sim->counts.pauses;
            node->paused_until = sim->step + 20 + sim_below(sim, 150);
        }
    } else if (member && sim_chance(sim, 300) && (sim->n_views + SIM_RANKS < SIM_VIEWS)) {
        (void)next_view(sim, node->rank, 0);
    } else if (sim_chance(sim, 300)) {
        restart(sim, node);
    }
}

static void act(sim_t *sim, sim_node_t *node)
{
    unsigned what = sim_below(sim, 100);

    if (!node->up || (sim->step < node->paused_until)) {
        return;
    }
    if (what < 45) {
        sim_get_step(sim, node);
    } else if (what < 66) {
        sim_owner_step(sim, node);
    } else if (what < 74) {
        sim_owner_retry(sim, node);
    } else if (what < 96) {
        sim_serve_step(sim, node);
    } else if (node->view + 1 < sim->n_views) {
        sim_node_view(sim, node);
    }
}

void sim_step(sim_t *sim)
{
    unsigned what = sim_below(sim, 100);

    ++sim->step;
    ++sim->counts.steps;
    if ((sim->n_msgs > 0) && (what < 30)) {
        deliver(sim);
    } else if ((what >= 97) && !sim->quiet_end) {
        fault(sim);
    } else {
        act(sim, &sim->nodes[sim_below(sim, sim->n_ranks)]);
    }
    if (sim->step % 32 == 0) {
        sim_check_nodes(sim);
    }
}

void sim_start(sim_t *sim, uint64_t seed)
{
    static const unsigned losses[4] = {0, 0, 50, 200}, dups[4] = {0, 50, 200, 400};
    uint64_t              word;
    unsigned              k, i;

    kvcl_rand_seed(&sim->rnd, seed);
    sim->seed    = seed;
    sim->n_ranks = 2 + sim_below(sim, SIM_RANKS - 1);
    sim->loss    = losses[sim_below(sim, 4)];
    sim->dup     = dups[sim_below(sim, 4)];
    sim->crash   = 120 * sim_below(sim, 3);
    sim->pause   = 100 * sim_below(sim, 3);
    sim->n_views = 1;
    sim->views[0].mask = (1u << sim->n_ranks) - 1;
    make_map(sim);
    for (k = 0; k < SIM_KEYS; ++k) {
        for (i = 0; i < sizeof(kvcl_key_t); i += sizeof(word)) {
            word = kvcl_rand_next(&sim->rnd);
            memcpy(sim->keys[k].bytes + i, &word, sizeof(word));
        }
    }
    for (i = 0; i < sim->n_ranks; ++i) {
        sim->views[0].inc[i] = 1;
    }
    for (i = 0; i < sim->n_ranks; ++i) {
        sim_node_start(sim, i, 1, 0);
    }
}

static bool is_quiet(const sim_t *sim)
{
    const sim_node_t *node;
    unsigned          r, i;

    for (r = 0; r < sim->n_ranks; ++r) {
        node = &sim->nodes[r];
        for (i = 0; i < SIM_SLOTS; ++i) {
            if (node->pub[i].filling || (node->pub[i].live && !node->pub[i].acked && !node->pub[i].refused)) {
                return false;
            }
        }
    }
    return sim->n_msgs == 0;
}

/* No more faults and no new work: all ranks resume, all views are applied, all messages arrive. */
void sim_quiet_end(sim_t *sim)
{
    sim_node_t *node;
    unsigned    r, i;

    sim->quiet_end = true;
    sim->loss      = 0;
    sim->dup       = 0;
    for (i = 0; i < 2 * SIM_RANKS; ++i) {
        for (r = 0; r < sim->n_ranks; ++r) {
            node               = &sim->nodes[r];
            node->paused_until = 0;
            while (node->up && (node->view + 1 < sim->n_views)) {
                sim_node_view(sim, node);
            }
            if (!node->up) {
                restart(sim, node);
            }
        }
    }
    for (i = 0; (i < 20000) && !sim->failed && !is_quiet(sim); ++i) {
        sim_step(sim);
    }
    if (!sim->failed) {
        sim_check_end(sim);
    }
}
