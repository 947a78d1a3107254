/*
 * Keys of an engine's blocks (kvcl_sched_index.h has the formulas). Pure.
 */
#ifndef KVCL_SCHED_EVENTS_EV_KEYS_H
#define KVCL_SCHED_EVENTS_EV_KEYS_H

#include "sched/events/ev_event.h"

#include <kvcl/kvcl_key.h>

enum { KVCL_EV_TEXT_MAX = 1024, KVCL_EV_EXTRA_MAX = 4096 };

/** The root of an event's chain. @return false: a text is longer than KVCL_EV_TEXT_MAX. */
bool kvcl_ev_root(const kvcl_key_t *base, const kvcl_ev_t *ev, kvcl_key_t *root);
/** Continue from parent with the extra keys that extra->mp is at (one value), if there are any but the adapter's name.
 * @return false: they are no list, or have more than KVCL_EV_EXTRA_MAX bytes. */
bool kvcl_ev_extra(kvcl_ev_list_t *extra, const kvcl_ev_text_t *lora, kvcl_key_t *parent);
/** The key of a block that is known by its hash alone. */
void kvcl_ev_hash_key(const kvcl_key_t *root, uint64_t hash, kvcl_key_t *key);

#endif
