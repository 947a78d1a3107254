/*
 * One-shot timers of a store (home/timer.c). Lock held.
 */
#ifndef KVCL_STORE_HOME_TIMER_H
#define KVCL_STORE_HOME_TIMER_H

#include "store/store.h"

/** Calls fn once, lock held, after after_ns; the timer is freed afterwards. NULL: no memory, or the store is being
 * closed. */
kvcl_store_timer_t *kvcl_store_timer_start(kvcl_store_h store, uint64_t after_ns, void (*fn)(void *arg), void *arg);
void                kvcl_store_timer_stop(kvcl_store_timer_t *timer); /* a timer that has not fired yet, or NULL */

#endif
