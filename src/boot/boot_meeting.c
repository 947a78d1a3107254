/*
 * The decisions of a tcp meeting, see boot_meeting.h.
 */
#include "config.h"
#include "boot/boot_meeting.h"
#include "boot/boot_wire.h"
#include "base/error.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_meeting_init(kvcl_meeting_t *meeting, int size)
{
    memset(meeting, 0, sizeof(*meeting));
    meeting->size       = size;
    meeting->first_left = -1;
    meeting->members    = (kvcl_meeting_member_t *)calloc((size_t)size, sizeof(*meeting->members));
    return (meeting->members != NULL) ? KVCL_OK
                                      : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a meeting of %d ranks", size);
}

void kvcl_meeting_fini(kvcl_meeting_t *meeting)
{
    int rank;

    for (rank = 0; rank < meeting->size; ++rank) {
        free(meeting->members[rank].blob);
    }
    free(meeting->members);
    free(meeting->table);
}

kvcl_status_t kvcl_meeting_join(kvcl_meeting_t *meeting, int rank, uint32_t size, int *rank_p)
{
    if (size != (uint32_t)meeting->size) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "this meeting is for %d ranks, not %u: KVCL_SIZE must be the same on "
                         "all", meeting->size, (unsigned)size);
    }
    if (meeting->joined == meeting->size) {
        return kvcl_fail(KVCL_ERR_EXISTS, "all %d ranks of this meeting have joined already", meeting->size);
    }
    if ((rank < -1) || (rank >= meeting->size)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "there is no rank %d in a meeting of %d", rank, meeting->size);
    }
    if (rank == -1) {
        for (rank = 0; meeting->members[rank].joined; ++rank) {
        }
    } else if (meeting->members[rank].joined) {
        return kvcl_fail(KVCL_ERR_EXISTS, "rank %d is taken by another process: KVCL_RANK must differ", rank);
    }
    meeting->members[rank].joined = 1;
    ++meeting->joined;
    *rank_p = rank;
    return KVCL_OK;
}

static kvcl_status_t somebody_left(const kvcl_meeting_t *meeting)
{
    return kvcl_fail(KVCL_ERR_RANK_FAILED, "rank %d left the meeting before all blobs were there",
                     meeting->first_left);
}

/* All blobs are here: frame them into one buffer, which every member is sent. */
static kvcl_status_t make_table(kvcl_meeting_t *meeting)
{
    kvcl_boot_msg_t msg   = {.type = KVCL_BOOT_BLOB};
    size_t          total = 0;
    size_t          used  = 0;
    int             rank;

    for (rank = 0; rank < meeting->size; ++rank) {
        total += KVCL_BOOT_HEAD_LEN + 4 + meeting->members[rank].blob_len;
    }
    meeting->table = (uint8_t *)malloc(total);
    if (meeting->table == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the blobs of %d ranks (%zu bytes)", meeting->size, total);
    }
    for (rank = 0; rank < meeting->size; ++rank) {
        msg.rank     = rank;
        msg.blob     = meeting->members[rank].blob;
        msg.blob_len = meeting->members[rank].blob_len;
        used += kvcl_boot_msg_pack(&msg, meeting->table + used, total - used);
        free(meeting->members[rank].blob);
        meeting->members[rank].blob = NULL;
    }
    meeting->table_len = used;
    return KVCL_OK;
}

kvcl_status_t kvcl_meeting_put(kvcl_meeting_t *meeting, int rank, const void *blob, size_t len)
{
    kvcl_meeting_member_t *member = &meeting->members[rank];

    if (member->put) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "rank %d gave its blob twice", rank);
    }
    if (meeting->left > 0) {
        return somebody_left(meeting);
    }
    member->blob = malloc((len == 0) ? 1 : len);
    if (member->blob == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the blob of rank %d", rank);
    }
    if (len > 0) {
        memcpy(member->blob, blob, len);
    }
    member->blob_len = len;
    member->put      = 1;
    return (++meeting->put == meeting->size) ? make_table(meeting) : KVCL_OK;
}

kvcl_status_t kvcl_meeting_leave(kvcl_meeting_t *meeting, int rank)
{
    kvcl_meeting_member_t *member = &meeting->members[rank];

    if (member->left) {
        return KVCL_OK;
    }
    member->left = 1;
    ++meeting->left;
    if (meeting->first_left < 0) {
        meeting->first_left = rank;
    }
    return (meeting->table == NULL) ? somebody_left(meeting) : KVCL_OK;
}

kvcl_status_t kvcl_meeting_timed_out(const kvcl_meeting_t *meeting, uint64_t wait_ns, uint64_t refused)
{
    char        list[96] = "", wait[32], advice[160];
    size_t      used     = 0;
    int         missing  = 0;
    int         rank;
    const char *what     = (meeting->joined < meeting->size) ? "arrive" : "send an address";

    for (rank = 0; rank < meeting->size; ++rank) {
        const kvcl_meeting_member_t *member = &meeting->members[rank];
        int                          absent = (meeting->joined < meeting->size) ? !member->joined : !member->put;

        if (!absent) {
            continue;
        }
        if (++missing <= 8) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", (missing == 1) ? "" : ", ", rank);
        } else if (missing == 9) {
            snprintf(list + used, sizeof(list) - used, ", ...");
        }
    }
    if (refused > 0) {
        snprintf(advice, sizeof(advice), "%llu with another secret came and %s refused: give all ranks the same "
                 "KVCL_SECRET_FILE", (unsigned long long)refused, (refused == 1) ? "was" : "were");
    } else {
        snprintf(advice, sizeof(advice), "see that all are started with this KVCL_RENDEZVOUS and secret, or raise "
                 "KVCL_BOOT_TIMEOUT");
    }
    return kvcl_fail(KVCL_ERR_TIMED_OUT, "%s %s did not %s within %s, %d of %d did: %s", (missing == 1) ? "rank" :
                     "ranks", list, what, kvcl_time_format(wait, sizeof(wait), wait_ns), meeting->size - missing,
                     meeting->size, advice);
}
