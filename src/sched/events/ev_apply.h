/*
 * A decoded event applied to the index. The index's lock is held.
 */
#ifndef KVCL_SCHED_EVENTS_EV_APPLY_H
#define KVCL_SCHED_EVENTS_EV_APPLY_H

#include "sched/events/ev_event.h"
#include "sched/index/idx.h"

/** The tiers that a medium names, of those that the source speaks for; 0: none. No medium: the device. */
uint32_t kvcl_ev_tiers(const kvcl_idx_source_t *source, const kvcl_ev_t *ev);
/** Is the event about what the source is for? */
bool     kvcl_ev_is_ours(const kvcl_idx_source_t *source, const kvcl_ev_t *ev);
/** @return false: it cannot be read; what came before that is applied. */
bool     kvcl_ev_stored(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers);
bool     kvcl_ev_removed(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers);

#endif
