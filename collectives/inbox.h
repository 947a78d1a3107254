/*
 * What peers said about collectives that this rank has not started yet.
 *
 * A caller numbers the collectives of a communicator (seq, the same on all ranks) and keeps, on top of
 * this room, which seq is running and which is over. A message about seq goes
 *   running      to the executor;
 *   not started  into the inbox; when the collective starts, kvcl_inbox_drain feeds the executor;
 *                answer an ABORT with an ABORT at once: nothing of the peer's buffer is being read;
 *   over         nowhere, but answer an announcement with an ABORT (KVCL_ERR_INVALID_PARAM): a rank that
 *                announces to one that is done called the collective with another length.
 *
 * Bound: a rank with at most A collectives open and a window of W announcements has at most A * W
 * announced and not acked at any peer, so a quota of A * (W + 1) entries per peer refuses no honest
 * rank. Fixed memory of the caller's, entries in order of arrival, searched from the start. No lock.
 */
#ifndef KVCL_COLLECTIVES_INBOX_H
#define KVCL_COLLECTIVES_INBOX_H

#include "collectives/exec.h"

#include <kvcl/kvcl_status.h>

#include <stdint.h>

typedef struct kvcl_inbox_entry {
    uint64_t      seq;
    uint64_t      off;
    uint64_t      len;
    uint32_t      peer;
    uint32_t      k;      /* KVCL_STEP_NONE: an ABORT */
    uint32_t      signature;
    kvcl_status_t status; /* ABORT */
} kvcl_inbox_entry_t;

typedef struct kvcl_inbox {
    kvcl_inbox_entry_t *entries;
    uint32_t            count;
    uint32_t            capacity;
    uint32_t            quota; /* entries per peer */
} kvcl_inbox_t;

void kvcl_inbox_init(kvcl_inbox_t *inbox, kvcl_inbox_entry_t *entries, uint32_t capacity, uint32_t quota);

/** Hold an event. @return KVCL_OK; KVCL_ERR_PROTOCOL (it came twice); KVCL_ERR_NO_SPACE (the peer's
 *  quota or the inbox is full). Nothing changes on error. */
kvcl_status_t kvcl_inbox_announced(kvcl_inbox_t *inbox, uint64_t seq, uint32_t peer, uint32_t k, uint64_t off,
                                   uint64_t len, uint32_t signature) KVCL_MUST_CHECK;
kvcl_status_t kvcl_inbox_aborted(kvcl_inbox_t *inbox, uint64_t seq, uint32_t peer,
                                 kvcl_status_t status) KVCL_MUST_CHECK;

/** Feed what was held for @a seq to the executor, in order of arrival, and forget it.
 *  @return how many events the executor refused. */
uint32_t kvcl_inbox_drain(kvcl_inbox_t *inbox, uint64_t seq, kvcl_exec_t *exec);

/** Forget what a rank said that is gone. */
void kvcl_inbox_forget(kvcl_inbox_t *inbox, uint32_t peer);

#endif
