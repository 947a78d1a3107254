/*
 * What a caller gets of the rows of events (events_out.h). Owns nothing; any thread. Any rank may have sent the rows: a
 * row with the tenant's number and a key that is not the tenant's becomes a key that names no block.
 */
#include "config.h"
#include "store/admin/events_out.h"
#include "base/structs.h"

size_t kvcl_events_out(const kvcl_rows_t *rows, const kvcl_store_tenant_t *tenant, kvcl_store_event_t *events,
                       size_t stride, uint64_t *last_p)
{
    kvcl_store_event_t event;
    size_t             n = 0, i;

    for (i = 0; i < rows->n; ++i) {
        kvcl_rows_event(rows, i, &event);
        *last_p = event.seq;
        if ((tenant == NULL) || (event.tenant == tenant->number)) {
            kvcl_tenant_keys_back(tenant, &event.key, 1);
            kvcl_struct_out_at(events, n++, stride, &event, sizeof(event));
        }
    }
    return n;
}

void kvcl_events_skipped(const kvcl_store_tenant_t *tenant, uint64_t seq, kvcl_store_event_t *events, size_t stride)
{
    const kvcl_store_event_t event = {.seq = seq, .kind = KVCL_STORE_SKIPPED, .tenant = tenant->number, .to_rank = -1};

    kvcl_struct_out_at(events, 0, stride, &event, sizeof(event));
}
