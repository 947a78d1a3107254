/*
 * The inbox: a bounded array, kept dense and in order of arrival.
 */
#include "config.h"

#include "collectives/inbox.h"

#include "base/error.h"

#include <string.h>

void kvcl_inbox_init(kvcl_inbox_t *inbox, kvcl_inbox_entry_t *entries, uint32_t capacity, uint32_t quota)
{
    *inbox = (kvcl_inbox_t){.entries = entries, .capacity = capacity, .quota = quota};
}

static kvcl_status_t hold(kvcl_inbox_t *inbox, const kvcl_inbox_entry_t *entry)
{
    uint32_t i, held = 0;

    for (i = 0; i < inbox->count; ++i) {
        const kvcl_inbox_entry_t *other = &inbox->entries[i];

        if (other->peer == entry->peer) {
            ++held;
            if ((other->seq == entry->seq) && (other->k == entry->k)) {
                return kvcl_fail(KVCL_ERR_PROTOCOL, "rank %u said the same twice about collective %llu", entry->peer,
                                 (unsigned long long)entry->seq);
            }
        }
    }
    if ((held >= inbox->quota) || (inbox->count >= inbox->capacity)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "rank %u has %u messages about collectives not started here, no room for "
                         "another", entry->peer, held);
    }
    inbox->entries[inbox->count++] = *entry;
    return KVCL_OK;
}

kvcl_status_t kvcl_inbox_announced(kvcl_inbox_t *inbox, uint64_t seq, uint32_t peer, uint32_t k, uint64_t off,
                                   uint64_t len, uint32_t signature)
{
    if (k == KVCL_STEP_NONE) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "announcement %u from rank %u cannot be", k, peer);
    }
    return hold(inbox, &(kvcl_inbox_entry_t){
                               .seq       = seq,
                               .off       = off,
                               .len       = len,
                               .peer      = peer,
                               .k         = k,
                               .signature = signature,
                       });
}

kvcl_status_t kvcl_inbox_aborted(kvcl_inbox_t *inbox, uint64_t seq, uint32_t peer, kvcl_status_t status)
{
    return hold(inbox, &(kvcl_inbox_entry_t){.seq = seq, .peer = peer, .k = KVCL_STEP_NONE, .status = status});
}

uint32_t kvcl_inbox_drain(kvcl_inbox_t *inbox, uint64_t seq, kvcl_exec_t *exec)
{
    uint32_t i, kept = 0, refused = 0;

    for (i = 0; i < inbox->count; ++i) {
        const kvcl_inbox_entry_t *e = &inbox->entries[i];
        kvcl_status_t             status;

        if (e->seq != seq) {
            inbox->entries[kept++] = *e;
            continue;
        }
        status = (e->k == KVCL_STEP_NONE) ? kvcl_exec_aborted(exec, e->peer, e->status) :
                                            kvcl_exec_announced(exec, e->peer, e->k, e->off, e->len, e->signature);
        refused += (status != KVCL_OK);
    }
    inbox->count = kept;
    return refused;
}

void kvcl_inbox_forget(kvcl_inbox_t *inbox, uint32_t peer)
{
    uint32_t i, kept = 0;

    for (i = 0; i < inbox->count; ++i) {
        if (inbox->entries[i].peer != peer) {
            inbox->entries[kept++] = inbox->entries[i];
        }
    }
    inbox->count = kept;
}
