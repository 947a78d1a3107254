/*
 * The invariants.
 *
 *  NoWrongBytes      a get that reports success holds exactly the bytes of its key.
 *  NoReadAfterReuse  the slot was not written between the get's first byte and its acceptance.
 *  AckedIsFindable   a location whose publish was acknowledged is in its home's table while the owner holds it, if home
 *                    and owner have the same view and the home did not restart.
 *  Whole             tables, slots and eviction orders pass their own checkers.
 */
#include "config.h"

#include "sim.h"

#include <string.h>

uint64_t sim_content(unsigned key, unsigned i)
{
    uint64_t state = (uint64_t)key * SIM_WORDS + i + 1;

    return kvcl_splitmix64(&state);
}

void sim_check_bytes(sim_t *sim, const sim_node_t *reader, unsigned key, const uint64_t *words,
                     const char *how)
{
    unsigned i;

    for (i = 0; i < SIM_WORDS; ++i) {
        if (words[i] != sim_content(key, i)) {
            sim_fail(sim, "NoWrongBytes", "rank %u got key %u %s: word %u is not the key's", reader->rank,
                     key, how, i);
            return;
        }
    }
}

static bool is_there(sim_t *sim, const sim_node_t *home, const sim_pub_t *pub)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n = kvcl_dir_table_find(&home->table, &sim->keys[pub->key], locs), i;

    for (i = 0; i < n; ++i) {
        if (memcmp(&locs[i], &pub->loc, sizeof(locs[i])) == 0) {
            return true;
        }
    }
    return false;
}

void sim_check_findable(sim_t *sim, sim_node_t *home)
{
    const sim_node_t *owner;
    const sim_pub_t  *pub;
    unsigned          r, s;

    for (r = 0; r < sim->n_ranks; ++r) {
        owner = &sim->nodes[r];
        if (!owner->up || (owner->view != home->view) ||
            (sim->views[owner->view].inc[home->rank] != home->inc)) {
            continue;
        }
        for (s = 0; s < SIM_SLOTS; ++s) {
            pub = &owner->pub[s];
            if (pub->live && pub->acked && (pub->home == home->rank)) {
                ++sim->counts.checks;
                if (!is_there(sim, home, pub)) {
                    sim_fail(sim, "AckedIsFindable", "key %u, rank %u slot %u gen %u is not in the table of rank %u",
                             pub->key, r, s, pub->loc.gen, home->rank);
                }
            }
        }
    }
}

void sim_check_nodes(sim_t *sim)
{
    const sim_node_t *node;
    unsigned          r;

    for (r = 0; r < sim->n_ranks; ++r) {
        node = &sim->nodes[r];
        if (!kvcl_dir_table_check(&node->table) || !kvcl_slots_check_all(&node->slots) ||
            !kvcl_evict_check(&node->evict)) {
            sim_fail(sim, "Whole", "a structure of rank %u is broken", r);
        }
    }
}

/* After the faults ended and all messages were delivered: every publish has its reply, and all acknowledged blocks are
 * available. */
void sim_check_end(sim_t *sim)
{
    const sim_mem_t *mem;
    const sim_pub_t *pub;
    sim_node_t      *owner;
    unsigned         r, s;

    for (r = 0; r < sim->n_ranks; ++r) {
        owner = &sim->nodes[r];
        mem   = &sim->mems[r][owner->inc];
        for (s = 0; s < SIM_SLOTS; ++s) {
            pub = &owner->pub[s];
            if (!pub->live) {
                continue;
            }
            if (!pub->acked && !pub->refused) {
                sim_fail(sim, "AckedIsFindable", "rank %u slot %u: its publish is never answered", r, s);
            } else if (pub->acked) {
                sim_check_bytes(sim, owner, pub->key, mem->words[s], "in the end");
                if (!kvcl_slots_gen_is(&mem->gens[s], pub->loc.gen)) {
                    sim_fail(sim, "AckedIsFindable", "rank %u slot %u: acknowledged, but no longer valid", r, s);
                }
            }
        }
        sim_check_findable(sim, owner);
    }
    sim_check_nodes(sim);
}
