/*
 * Copy, then compare: how a block's bytes are read, by a one-sided reader and by an owner that serves a peer.
 *
 * The bytes are copied without holding anything (a word per step, so that the owner may withdraw and write the slot
 * between any two). Then the generation word is read, which decides. kvcl_get_now(), pull.c and serve.c do the same. A
 * native reader's words complete in any order, and the word is requested when all have (rma.c).
 */
#include "config.h"

#include "sim.h"

void sim_copy_begin(const sim_t *sim, sim_copy_t *copy, bool one_sided)
{
    kvcl_rand_seed(&copy->order, sim->step + 1);
    copy->i      = 0;
    copy->done   = 0;
    copy->native = one_sided && (kvcl_rand_below(&copy->order, 2) != 0);
    copy->early  = false;
}

/* The mutations: the word is read before the bytes, before the last of them, or by the network among them. */
static bool reads_early(const sim_t *sim, const sim_copy_t *copy)
{
    return ((sim->broken == BREAK_COMPARE_FIRST) && (copy->i == 0)) ||
           ((sim->broken == BREAK_NO_READ_FENCE) && (copy->i == SIM_WORDS - 1)) ||
           ((sim->broken == BREAK_GENS_WITH_BYTES) && copy->native && (copy->i == SIM_WORDS / 2));
}

/* The word that is copied now. */
static unsigned next_word(sim_copy_t *copy)
{
    unsigned at = copy->native ? (unsigned)kvcl_rand_below(&copy->order, SIM_WORDS) : copy->i;

    while (copy->native && (copy->done & (1u << at))) {
        at = (at + 1) % SIM_WORDS;
    }
    copy->done |= 1u << at;
    return at;
}

bool sim_copy_step(const sim_t *sim, sim_copy_t *copy, const sim_mem_t *mem, const kvcl_dir_loc_t *loc)
{
    unsigned at;

    if (copy->i == SIM_WORDS) {
        return true;
    }
    if (copy->i == 0) {
        copy->touched = mem->touched[loc->slot];
    }
    if (reads_early(sim, copy)) {
        copy->early = kvcl_slots_gen_is(&mem->gens[loc->slot], loc->gen);
    }
    at              = next_word(copy);
    copy->words[at] = mem->words[loc->slot][at];
    ++copy->i;
    return false;
}

static bool generation_holds(const sim_t *sim, const sim_copy_t *copy, const sim_mem_t *mem, const kvcl_dir_loc_t *loc)
{
    switch (sim->broken) {
    case BREAK_SKIP_GEN_CHECK:
        return true;
    case BREAK_COMPARE_FIRST:
    case BREAK_NO_READ_FENCE:
        return copy->early;
    case BREAK_GENS_WITH_BYTES:
        return copy->native ? copy->early : kvcl_slots_gen_is(&mem->gens[loc->slot], loc->gen);
    default:
        return kvcl_slots_gen_is(&mem->gens[loc->slot], loc->gen);
    }
}

bool sim_copy_holds(sim_t *sim, const sim_copy_t *copy, const sim_mem_t *mem, const kvcl_dir_loc_t *loc,
                    const char *how)
{
    if (!generation_holds(sim, copy, mem, loc)) {
        return false;
    }
    if (mem->touched[loc->slot] != copy->touched) {
        sim_fail(sim, "NoReadAfterReuse", "slot %u of rank %u is accepted %s, and was written meanwhile", loc->slot,
                 loc->rank, how);
    }
    return true;
}
