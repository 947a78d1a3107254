/*
 * A batch of blocks that another rank is to hold, sent and waited for (send.c).
 */
#ifndef KVCL_STORE_COPY_SEND_H
#define KVCL_STORE_COPY_SEND_H

#include "store/store.h"

enum { KVCL_SEND_BATCH = 256 };

/* Records that one request sends to one rank. */
typedef struct kvcl_send {
    kvcl_context_h   ctx;
    kvcl_store_rec_t recs[KVCL_SEND_BATCH];
    uint32_t         n;
    uint8_t          made[KVCL_SEND_BATCH];
    kvcl_status_t    status;
    bool             over;
    bool             unlisted; /* a drain: no home lists some of them */
    uint64_t         room;     /* if status is OK: bytes of such blocks that fit there without evicting */
} kvcl_send_t;

/** No lock; blocks. made[] says which blocks the rank has afterwards. A busy rank is tried again until the
 * deadline. The blocks have one size and one number of copies. */
kvcl_status_t kvcl_send_batch(kvcl_store_h store, uint32_t rank, uint64_t tenant, uint64_t deadline_ns,
                              kvcl_send_t *batch) KVCL_MUST_CHECK;

#endif
