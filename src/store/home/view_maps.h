/*
 * The maps of a store that follows views (view_maps.c). Engine lock held. NULL: no memory; it is logged.
 */
#ifndef KVCL_STORE_HOME_VIEW_MAPS_H
#define KVCL_STORE_HOME_VIEW_MAPS_H

#include "store/home/follow_views.h"

/** Of the ranks that take part, and are not to leave; and the maps from which shards move to it, less the ranks that
 * have gone since. grows: as kvcl_moves_next(). */
kvcl_store_map_t *kvcl_view_map_move(kvcl_store_h store, bool grows);
/** A copy of the present one: all have switched, or (over) nothing moves any more. */
kvcl_store_map_t *kvcl_view_map_next(kvcl_store_h store, bool over);
void              kvcl_view_map_set(kvcl_store_h store, kvcl_store_map_t *map);

#endif
