/*
 * Which ranks receive the copies of a block.
 */
#ifndef KVCL_STORE_PLACE_CHOOSE_H
#define KVCL_STORE_PLACE_CHOOSE_H

#include "store/store.h"

/** The number of other ranks that could take copies of blocks of this size, with those that are awaited. Lock held. */
unsigned      kvcl_store_places(kvcl_store_h store, uint64_t bytes);
/** With views: is there a member that could take some, but does not answer? It does later, or a view excludes it. Lock
 * held. */
bool          kvcl_store_awaits_place(kvcl_store_h store, uint64_t bytes);
/** Chooses n of them, at most KVCL_DIR_LOCS_MAX, that are not in skip[] (a byte a rank), by place.h: first those on
 * other hosts than this rank's and each other's. Returns how many. Lock held. */
unsigned      kvcl_store_place(kvcl_store_h store, uint64_t bytes, const uint8_t *skip, unsigned n, uint16_t *ranks);
/** The same, but the first is the nearest one, on this host if possible. It is set in skip[]. Lock held. */
unsigned      kvcl_store_place_near(kvcl_store_h store, uint64_t bytes, uint8_t *skip, unsigned n, uint16_t *ranks);

#endif
