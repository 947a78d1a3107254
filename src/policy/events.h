/*
 * The ring of what changed among this rank's blocks (kvcl/kvcl_store_events.h says what followers make of it). Pure:
 * no lock, no clock. The numbers have no gaps, so a reader knows from the number alone whether it has missed any.
 */
#ifndef KVCL_POLICY_EVENTS_H
#define KVCL_POLICY_EVENTS_H

#include <kvcl/kvcl_store_events.h>

typedef struct kvcl_events {
    kvcl_store_event_t *ring; /* NULL: none are kept, only counted */
    uint64_t           room;  /* a power of two */
    uint64_t           newest;
} kvcl_events_t;

enum { KVCL_EVENTS_DEFAULT = 65536, KVCL_EVENTS_MAX = 1 << 26 };

/** Room for n events at least, at most KVCL_EVENTS_MAX. @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_events_init(kvcl_events_t *events, uint64_t n) KVCL_MUST_CHECK;
void          kvcl_events_fini(kvcl_events_t *events); /* zeroed or initialized */

/** Gives it the next number. */
void          kvcl_events_add(kvcl_events_t *events, const kvcl_store_event_t *event);

/** Those after number since, at most cap. @return KVCL_OK, KVCL_ERR_STALE (some are gone, or since never was),
 * KVCL_ERR_UNSUPPORTED (none are kept). */
kvcl_status_t kvcl_events_read(const kvcl_events_t *events, uint64_t since, kvcl_store_event_t *out, size_t cap,
                               size_t *n_p) KVCL_MUST_CHECK;

#endif
