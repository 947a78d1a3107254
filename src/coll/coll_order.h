/*
 * The order of a communicator's collectives among its other collective calls, the agreements of src/member: this rank's
 * call at a place, and the end of collectives at whose place other ranks have called an agreement. Engine lock
 * throughout.
 */
#ifndef KVCL_COLL_ORDER_H
#define KVCL_COLL_ORDER_H

#include "coll/coll_wire.h"
#include "core/comm.h"

/** Has this rank called a collective as number seq, and does one from there on still run well? Then *called_p is number
 * seq; its kind is 0 where that is not known any more. */
bool kvcl_coll_order_called(kvcl_comm_h comm, uint64_t seq, kvcl_coll_called_t *called_p);

/** The collectives from number seq on end with KVCL_ERR_INVALID_PARAM and the sentence about these two calls (NULL:
 * they are not known); those before go on. The next ones are numbered anew, in this epoch. All ranks of the
 * communicator do so at this point of its order. */
void kvcl_coll_order_end(kvcl_comm_h comm, uint64_t seq, const kvcl_coll_unlike_t *unlike, uint64_t epoch);

#endif
