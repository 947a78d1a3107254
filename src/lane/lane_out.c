/*
 * A lane's out side: one frame at a time, and notes (END frames) between frames, as far as the socket accepts them.
 * Engine lock held.
 */
#include "config.h"
#include "lane/lane_impl.h"
#include "weave/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ZEROS = 64 * 1024 };

static const unsigned char zeros[ZEROS];

bool kvcl_lane_idle(const kvcl_lane_t *lane)
{
    return lane->ready && (lane->first == lane->end) && (lane->zeros == 0) && kvcl_list_is_empty(&lane->notes);
}

struct iovec *kvcl_lane_pieces(kvcl_lane_t *lane)
{
    return lane->iov + 1;
}

/* Bytes sent, 0 if the stream is full or the lane lost. Blocks may be withdrawn while they are read; their generations
 * are compared afterwards. */
static size_t push(kvcl_lane_t *lane, struct iovec *iov, int n)
{
    ssize_t sent = lane->stream->xport->ops->stream_send(lane->stream, iov, (size_t)n);

    if (sent < 0) {
        kvcl_lane_lose(lane, strerror(errno));
        return 0;
    }
    kvcl_lane_set_ready(lane, lane->stream->writable);
    return (size_t)sent;
}

static void pass(kvcl_lane_t *lane, size_t n)
{
    struct iovec *iov;

    while (n > 0) {
        iov = &lane->iov[lane->first];
        if (n < iov->iov_len) {
            iov->iov_base = (char *)iov->iov_base + n;
            iov->iov_len -= n;
            return;
        }
        n -= iov->iov_len;
        ++lane->first;
    }
}

static size_t push_frame(kvcl_lane_t *lane)
{
    void   (*sent)(void *arg) = lane->sent;
    size_t n = push(lane, lane->iov + lane->first, lane->end - lane->first);

    pass(lane, n);
    if ((n > 0) && (lane->first == lane->end) && (sent != NULL)) {
        lane->first = lane->end = 0;
        lane->sent  = NULL;
        sent(lane->arg);
    }
    return n;
}

static size_t push_zeros(kvcl_lane_t *lane)
{
    struct iovec iov = {(void *)zeros, (lane->zeros < ZEROS) ? lane->zeros : ZEROS};
    size_t       n   = push(lane, &iov, 1);

    lane->zeros -= (uint32_t)n;
    return n;
}

static size_t push_note(kvcl_lane_t *lane)
{
    kvcl_lane_note_t *note = kvcl_list_head(&lane->notes, kvcl_lane_note_t, link);
    struct iovec     iov   = {(char *)&note->frame + lane->note_at, note->len - lane->note_at};
    size_t           n     = push(lane, &iov, 1);

    if (n == 0) { /* the lane may be lost, and its notes freed */
        return 0;
    }
    lane->note_at += n;
    if (lane->note_at == note->len) {
        lane->note_at = 0;
        kvcl_list_del(&note->link);
        free(note);
    }
    return n;
}

unsigned kvcl_lane_push(kvcl_lane_t *lane)
{
    unsigned moved = 0;
    size_t   n     = 1;

    while ((n > 0) && lane->ready && (lane->state == KVCL_LANE_OPEN)) {
        if (lane->first != lane->end) {
            n = push_frame(lane);
        } else if (lane->zeros > 0) {
            n = push_zeros(lane);
        } else if (!kvcl_list_is_empty(&lane->notes)) {
            n = push_note(lane);
        } else {
            break;
        }
        moved += (n > 0);
    }
    return moved;
}

void kvcl_lane_send(kvcl_lane_t *lane, uint64_t op, uint64_t offset, uint32_t len, int n, void (*sent)(void *arg),
                    void *arg)
{
    lane->frame  = (kvcl_lane_frame_t){.magic = KVCL_LANE_MAGIC, .kind = KVCL_LANE_DATA, .op = op, .offset = offset,
                                       .len = len};
    lane->iov[0] = (struct iovec){&lane->frame, sizeof(lane->frame)};
    lane->first  = 0;
    lane->end    = n + 1;
    lane->sent   = sent;
    lane->arg    = arg;
    (void)kvcl_lane_push(lane);
}

bool kvcl_lane_abandon(kvcl_lane_t *lane, const void *arg)
{
    int i;

    if ((lane->first == lane->end) || (lane->sent == NULL) || (lane->arg != arg)) {
        return false;
    }
    lane->sent = NULL;
    for (i = (lane->first == 0) ? 1 : lane->first; i < lane->end; ++i) {
        lane->zeros += (uint32_t)lane->iov[i].iov_len;
    }
    lane->end = (lane->first == 0) ? 1 : lane->first; /* the rest of the head is still sent */
    if (lane->first == lane->end) {
        lane->first = lane->end = 0;
    }
    return true;
}

kvcl_status_t kvcl_lane_tell(kvcl_lane_t *lane, uint64_t op, kvcl_status_t status, const void *payload, uint32_t len)
{
    kvcl_lane_note_t *note = malloc(sizeof(*note) + len);

    if (note == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    note->frame = (kvcl_lane_frame_t){.magic = KVCL_LANE_MAGIC, .kind = KVCL_LANE_END, .op = op, .len = len,
                                      .status = (int32_t)status};
    note->len   = sizeof(note->frame) + len;
    if (len > 0) {
        kvcl_copy_bytes(note->payload, payload, len);
    }
    kvcl_list_add_tail(&lane->notes, &note->link);
    (void)kvcl_lane_push(lane);
    return (lane->state == KVCL_LANE_OPEN) ? KVCL_OK : KVCL_ERR_RANK_FAILED;
}

void kvcl_lane_out_drop(kvcl_lane_t *lane)
{
    kvcl_list_t *link;

    while ((link = kvcl_list_pop(&lane->notes)) != NULL) {
        free(kvcl_container_of(link, kvcl_lane_note_t, link));
    }
    lane->sent   = NULL;
    lane->first  = lane->end = 0;
    lane->zeros  = 0;
}
