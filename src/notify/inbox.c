/*
 * The inbox of notifications (inbox.h). No state of its own; engine lock.
 */
#include "config.h"
#include "notify/inbox.h"
#include "weave/pieces.h"

#include <stdlib.h>

static size_t cost_of(size_t len)
{
    const size_t bytes = sizeof(kvcl_notice_t) + len;

    return (bytes > KVCL_INBOX_LEAST) ? bytes : KVCL_INBOX_LEAST;
}

kvcl_status_t kvcl_inbox_keep(kvcl_inbox_t *inbox, kvcl_peer_t *peer, uint64_t comm, int source, const void *data,
                              size_t len)
{
    const size_t  cost = cost_of(len);
    kvcl_notice_t *notice;

    if ((peer->notice_bytes + cost > KVCL_INBOX_PEER) || (inbox->bytes + cost > KVCL_INBOX_ALL)) {
        return KVCL_ERR_NO_SPACE;
    }
    notice = malloc(sizeof(*notice) + len);
    if (notice == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    notice->peer   = peer;
    notice->comm   = comm;
    notice->source = source;
    notice->len    = len;
    if (len > 0) {
        kvcl_copy_bytes(notice->bytes, data, len);
    }
    inbox->bytes       += cost;
    peer->notice_bytes += cost;
    kvcl_list_add_tail(&inbox->all, &notice->link);
    return KVCL_OK;
}

kvcl_notice_t *kvcl_inbox_first(kvcl_inbox_t *inbox, uint64_t comm)
{
    kvcl_notice_t *notice;

    kvcl_list_foreach (notice, &inbox->all, kvcl_notice_t, link) {
        if (notice->comm == comm) {
            return notice;
        }
    }
    return NULL;
}

void kvcl_inbox_drop(kvcl_inbox_t *inbox, kvcl_notice_t *notice)
{
    const size_t cost = cost_of(notice->len);

    kvcl_list_del(&notice->link);
    inbox->bytes               -= cost;
    notice->peer->notice_bytes -= cost;
    free(notice);
}
