/*
 * Events that were read, as a caller gets them: all, or those of one tenant under the keys that it knows.
 */
#ifndef KVCL_STORE_ADMIN_EVENTS_OUT_H
#define KVCL_STORE_ADMIN_EVENTS_OUT_H

#include "store/admin/rows_wire.h"
#include "store/tenant.h"

/** Writes the rows to the caller's array; returns how many events it has then. tenant: NULL: all events. *last_p: the
 * number of the last row, if there is one, written or not. */
size_t kvcl_events_out(const kvcl_rows_t *rows, const kvcl_store_tenant_t *tenant, kvcl_store_event_t *events,
                       size_t stride, uint64_t *last_p);
/** Writes one event: events up to this number are others'. */
void   kvcl_events_skipped(const kvcl_store_tenant_t *tenant, uint64_t seq, kvcl_store_event_t *events, size_t stride);

#endif
