/*
 * The state of a tcp meeting at the serving rank, apart from its sockets: which ranks have joined, published a blob,
 * left. Pure state, no I/O, no clock; used by the serving thread only.
 *
 * Owns the blobs, and after the last one the table: all BLOB frames in one buffer, in rank order, which
 * never changes from then on. Every refusal leaves its sentence in kvcl_last_error().
 */
#ifndef KVCL_BOOT_MEETING_H
#define KVCL_BOOT_MEETING_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_meeting_member {
    int     joined;
    int     put;
    int     left;
    void   *blob;
    size_t  blob_len;
} kvcl_meeting_member_t;

typedef struct kvcl_meeting {
    int                    size;
    int                    joined;
    int                    put;
    int                    left;
    int                    first_left; /* the rank that left first; -1: none */
    kvcl_meeting_member_t *members;
    uint8_t               *table;      /* NULL until all blobs are there */
    size_t                 table_len;
} kvcl_meeting_t;

kvcl_status_t kvcl_meeting_init(kvcl_meeting_t *meeting, int size) KVCL_MUST_CHECK;
void          kvcl_meeting_fini(kvcl_meeting_t *meeting);

/**
 * An authenticated member requests a rank (-1: the lowest free one).
 * @return KVCL_OK, KVCL_ERR_EXISTS (taken, or all are here), KVCL_ERR_INVALID_PARAM (another size).
 */
kvcl_status_t kvcl_meeting_join(kvcl_meeting_t *meeting, int rank, uint32_t size, int *rank_p)
        KVCL_MUST_CHECK;

/** Copy a rank's blob; the last one makes the table. @return KVCL_OK, PROTOCOL (twice), RANK_FAILED, NO_MEMORY. */
kvcl_status_t kvcl_meeting_put(kvcl_meeting_t *meeting, int rank, const void *blob, size_t len)
        KVCL_MUST_CHECK;

/**
 * A rank has left. @return KVCL_OK if no member needs it any more, KVCL_ERR_RANK_FAILED if the table that members wait
 * for can no longer be completed.
 */
kvcl_status_t kvcl_meeting_leave(kvcl_meeting_t *meeting, int rank);

/**
 * A member has waited wait_ns. Sets the sentence of KVCL_ERR_TIMED_OUT, which names the missing ranks, and how many
 * connections were refused because they had another secret.
 */
kvcl_status_t kvcl_meeting_timed_out(const kvcl_meeting_t *meeting, uint64_t wait_ns, uint64_t refused);

#endif
