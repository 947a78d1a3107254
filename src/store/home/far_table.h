/*
 * Lookups in another rank's table that this process cannot map, but that the network reads without that rank's
 * processor (a region with attr.get): one read of 4 KiB a key (dir/table.h).
 *
 * A read replaces the message of an RPC, under the RPC's deadline. If the read fails, the message is sent: the table
 * was closed, the connection was lost, or an entry was being written at each try. Engine lock held.
 */
#ifndef KVCL_STORE_HOME_FAR_TABLE_H
#define KVCL_STORE_HOME_FAR_TABLE_H

#include "store/home/rpc.h"

enum { KVCL_FAR_KEYS_MAX = 64 }; /* of one read: 256 KiB */

typedef struct kvcl_far kvcl_far_t;

/** Call it when the region of the rank's table has been opened, with attr.get: reads the header in the background. */
void kvcl_far_learn(kvcl_store_h store, uint32_t rank);
/** Reads the windows of the RPC's keys if the table can be read, and if that pays (KVCL_NATIVE_TABLE, kind dir).
 * @return true: rpc->far is set until ended() is called, at once or later, unless kvcl_far_leave() is called before.
 * ended: data is the answer's payload, as from the home; NULL: the message must be sent. */
bool kvcl_far_start(kvcl_rpc_t *rpc, void (*ended)(kvcl_rpc_t *rpc, const void *data, size_t len));
/** The RPC has ended: the read completes without it, into its own memory. */
void kvcl_far_leave(kvcl_far_t *far);
/** The store is being closed: the reads in flight end soon, whether or not the ranks answer. */
void kvcl_far_stop(kvcl_store_h store);
/** The link to the rank was lost, and another one is being made: reads in flight fail, and a later query finds out
 * again how its table can be read. */
void kvcl_far_lost(kvcl_store_h store, uint32_t rank);
/** Stops reading the rank's table; its region is closed when no read is in flight. */
void kvcl_far_close(kvcl_store_h store, uint32_t rank);
/** Another process has the rank: its table is not known yet. False: reads of the old one are in flight. */
bool kvcl_far_renew(kvcl_store_h store, uint32_t rank);

#endif
