/*
 * The calls of a simulation to the scheduler. Each is written to the decision log, if there is one, with all that it
 * was given and what it answered. A call that fails ends the run (sim_t.failed).
 */
#ifndef KVCL_TOOLS_SIM_CALLS_H
#define KVCL_TOOLS_SIM_CALLS_H

#include "tools/sim/sim.h"

/* The decision is in sim->decision. False: the run has failed. */
bool sim_call_decide(sim_t *sim, uint32_t request, size_t n_views, size_t n_holds);
bool sim_call_decode(sim_t *sim, uint32_t request);

/* Which of an instance's queue is next: its index, or n_queue; sim->late has the indices of those refused. */
bool sim_call_order(sim_t *sim, uint32_t inst, size_t *next_p, size_t *n_late_p);

void sim_call_prefill_done(sim_t *sim, uint32_t request);
void sim_call_first_token(sim_t *sim, uint32_t request);
void sim_call_finished(sim_t *sim, uint32_t request);
void sim_call_given_up(sim_t *sim, uint32_t request); /* it was refused in a queue */
void sim_call_gone(sim_t *sim, uint32_t inst);

#endif
