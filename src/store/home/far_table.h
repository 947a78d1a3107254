/*
 * Lookups in another rank's table that is not memory of this rank, but that the network reads without that rank's
 * processor (a region with attr.get): one read of 4 KiB a key (dir/table.h).
 *
 * A read takes the place of an RPC's message, under the RPC's deadline. Whatever goes wrong, the message is sent: a
 * table that was closed, a connection that broke, an entry that was being written each time. Engine lock held.
 */
#ifndef KVCL_STORE_HOME_FAR_TABLE_H
#define KVCL_STORE_HOME_FAR_TABLE_H

#include "store/home/rpc.h"

enum { KVCL_FAR_KEYS_MAX = 64 }; /* of one read: 256 KiB */

typedef struct kvcl_far kvcl_far_t;

/** The region of the rank's table has just been opened, with attr.get: reads its header, in the background. */
void kvcl_far_learn(kvcl_store_h store, uint32_t rank);
/** Reads what the RPC queries if the table can be read, and if that pays (KVCL_NATIVE_TABLE, kind dir). @return true:
 * rpc->far is set until ended() is called, at once or later, unless kvcl_far_leave() is called before. ended: data is
 * the answer's payload, as from the home; NULL: the message must be sent. */
bool kvcl_far_start(kvcl_rpc_t *rpc, void (*ended)(kvcl_rpc_t *rpc, const void *data, size_t len));
/** The RPC has ended: the read completes into memory of its own. */
void kvcl_far_leave(kvcl_far_t *far);
/** The store is being closed: the reads in flight end soon, whether or not the ranks answer. */
void kvcl_far_stop(kvcl_store_h store);
/** The link to the rank was lost, and another one is being made: reads in flight fail, and how its table can be read is
 * found out again. */
void kvcl_far_lost(kvcl_store_h store, uint32_t rank);
/** The rank's table is not read any more; its region is closed as soon as no read is in flight. */
void kvcl_far_close(kvcl_store_h store, uint32_t rank);

#endif
