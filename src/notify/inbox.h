/*
 * The notifications that have arrived and were not taken, in the order of their arrival.
 *
 * Bounded, so that a program that never takes them, or a peer that sends without end, does not fill this rank's memory:
 * KVCL_INBOX_PEER bytes of each peer and KVCL_INBOX_ALL of all; a notification counts as 1 KiB at least. One beyond
 * that is refused, and its sender is told. Engine lock held everywhere.
 */
#ifndef KVCL_NOTIFY_INBOX_H
#define KVCL_NOTIFY_INBOX_H

#include "base/list.h"
#include "core/peer.h"

enum { KVCL_INBOX_PEER = 4 << 20, KVCL_INBOX_ALL = 64 << 20, KVCL_INBOX_LEAST = 1024 };

typedef struct kvcl_inbox {
    kvcl_list_t all; /* kvcl_notice_t */
    size_t      bytes;
} kvcl_inbox_t;

typedef struct kvcl_notice {
    kvcl_list_t   link;
    kvcl_peer_t   *peer;
    uint64_t      comm;
    int           source;
    size_t        len;
    unsigned char bytes[];
} kvcl_notice_t;

/** @return KVCL_OK, KVCL_ERR_NO_SPACE, KVCL_ERR_NO_MEMORY; without a sentence. */
kvcl_status_t  kvcl_inbox_keep(kvcl_inbox_t *inbox, kvcl_peer_t *peer, uint64_t comm, int source, const void *data,
                               size_t len) KVCL_MUST_CHECK;
/** The first one over this communicator, or NULL. It stays. */
kvcl_notice_t *kvcl_inbox_first(kvcl_inbox_t *inbox, uint64_t comm);
void           kvcl_inbox_drop(kvcl_inbox_t *inbox, kvcl_notice_t *notice);

#endif
