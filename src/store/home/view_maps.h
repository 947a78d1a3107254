/*
 * The maps of a store that follows views (view_maps.c). Engine lock held. NULL: no memory; it is logged.
 */
#ifndef KVCL_STORE_HOME_VIEW_MAPS_H
#define KVCL_STORE_HOME_VIEW_MAPS_H

#include "store/home/follow_views.h"

/** Of the ranks that take part, and are not to leave. */
kvcl_store_map_t *kvcl_view_map_make(kvcl_store_h store);
/** That from which shards move: of the last settled state, less the ranks that have gone since. Not logged. */
kvcl_shard_map_t *kvcl_view_map_old(kvcl_store_h store);
/** A copy of the present one: all have switched, or (over) nothing moves any more. */
kvcl_store_map_t *kvcl_view_map_next(kvcl_store_h store, bool over);
void              kvcl_view_map_set(kvcl_store_h store, kvcl_store_map_t *map);

#endif
