/*
 * Copy, then compare: how a block's bytes are read, by a one-sided reader and by an owner that serves a peer.
 *
 * The bytes are copied without holding anything (a word per step, so that the owner may withdraw and write the slot
 * between any two). Then the generation word is read, which decides. kvcl_get_now(), pull.c and serve.c do the same.
 */
#include "config.h"

#include "sim.h"

void sim_copy_begin(sim_copy_t *copy)
{
    copy->i     = 0;
    copy->early = false;
}

/* The mutations: the word is read before the bytes, or before the last of them. */
static bool reads_early(const sim_t *sim, unsigned i)
{
    return ((sim->broken == BREAK_COMPARE_FIRST) && (i == 0)) ||
           ((sim->broken == BREAK_NO_READ_FENCE) && (i == SIM_WORDS - 1));
}

bool sim_copy_step(const sim_t *sim, sim_copy_t *copy, const sim_mem_t *mem, const kvcl_dir_loc_t *loc)
{
    if (copy->i == SIM_WORDS) {
        return true;
    }
    if (copy->i == 0) {
        copy->touched = mem->touched[loc->slot];
    }
    if (reads_early(sim, copy->i)) {
        copy->early = kvcl_slots_gen_is(&mem->gens[loc->slot], loc->gen);
    }
    copy->words[copy->i] = mem->words[loc->slot][copy->i];
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
