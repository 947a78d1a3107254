/*
 * Faults of the loop transport for tests: those of a network, which a queue in memory lacks.
 *
 * Process-wide, as the loop itself. Set them while no context uses the loop, or from a test that progresses all
 * contexts from one thread. Zero in every field: no fault, the state at start.
 */
#ifndef KVCL_XPORT_LOOP_H
#define KVCL_XPORT_LOOP_H

#include "core/xport.h"

typedef struct kvcl_loop_faults {
    uint64_t drop_nth;       /* lose the n-th message sent from now on (1 is the next), once */
    uint64_t delay_progress; /* a message is delivered only at the receiver's n-th progress call after its arrival */
    uint64_t reorder_seed;   /* not 0: a new message is put at a random position of the receiver's queue */
    uint64_t overtake_seed;  /* not 0: up to 8 later messages overtake each one with KVCL_XPORT_UNORDERED, no other */
    uint64_t lose_link_nth;  /* lose the n-th message sent from now on, handshakes not counted, and its link: the
                              * endpoint takes no further message and has failed, and another one works; once */
    bool     lose_both;      /* with it: the receiver's endpoint back has failed as well */
    uint64_t fail_alloc_nth; /* the n-th allocation of the transport from now on fails, once */
    bool     async_sends;    /* every send with an object completes from progress, never at once */
    bool     no_map;         /* rmem_open gives no .map: callers use get and put */
    bool     no_rma;         /* no .map, .get or .put: callers request the bytes by message */
    bool     stall_rma;      /* gets and puts end by rma_end alone; until then each progress call may write bytes */
    bool     break_rma;      /* one to memory that was unregistered ends all in flight between the two contexts */
    bool     keep_keys;      /* mem_fence fails: memory that was freed is said to be reached still */
} kvcl_loop_faults_t;

void     kvcl_loop_set_faults(const kvcl_loop_faults_t *faults); /* NULL: none */
uint64_t kvcl_loop_breaks(void); /* how often break_rma has ended them, since the process began */

#endif
