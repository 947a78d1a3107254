/*
 * A lane's in side: receives frames; the kernel writes their bytes to the destination that the room above sets, or to a
 * buffer that is dropped. Engine lock held.
 */
#include "config.h"
#include "base/log.h"
#include "lane/lane_impl.h"
#include "weave/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of frames that no transfer waits for. */
static int drop(const kvcl_lane_t *lane, struct iovec *iov)
{
    size_t left = lane->frame.len - lane->at;

    iov->iov_base = kvcl_lane_room(lane->ctx)->dropped;
    iov->iov_len  = (left < KVCL_LANE_DROP) ? left : KVCL_LANE_DROP;
    return 1;
}

static int place(kvcl_lane_t *lane, struct iovec *iov)
{
    int n = 0;

    lane->placing = false;
    if (lane->payload != NULL) {
        iov->iov_base = lane->payload + lane->at;
        iov->iov_len  = lane->frame.len - lane->at;
        return 1;
    }
    if (lane->frame.kind == KVCL_LANE_DATA) {
        n = kvcl_lane_room(lane->ctx)->user->place(lane->ctx, lane->peer, &lane->frame, lane->at, iov, KVCL_LANE_IOVS);
    }
    lane->placing = (n > 0);
    return lane->placing ? n : drop(lane, iov);
}

static size_t sum(const struct iovec *iov, int n)
{
    size_t len = 0;
    int    i;

    for (i = 0; i < n; ++i) {
        len += iov[i].iov_len;
    }
    return len;
}

static bool sane(const kvcl_lane_frame_t *frame)
{
    if (frame->magic != KVCL_LANE_MAGIC) {
        return false;
    }
    return (frame->kind == KVCL_LANE_DATA) ? (frame->len > 0) && (frame->len <= KVCL_LANE_FRAME_MAX)
                                           : (frame->kind == KVCL_LANE_END) && (frame->len <= KVCL_LANE_END_MAX);
}

static void frame_over(kvcl_lane_t *lane)
{
    unsigned char *payload = lane->payload;

    lane->payload = NULL;
    lane->head    = 0;
    lane->at      = 0;
    if (lane->frame.kind == KVCL_LANE_END) {
        kvcl_lane_frame_t frame = lane->frame;
        kvcl_lane_room(lane->ctx)->user->notified(lane->ctx, lane->peer, &frame, payload);
    }
    free(payload);
}

/* A head is complete. False: the lane is lost. */
static bool frame_begins(kvcl_lane_t *lane)
{
    if (!sane(&lane->frame)) {
        kvcl_am_malformed(lane->ctx, lane->peer, "an invalid frame of a lane");
        kvcl_lane_lose(lane, "an invalid frame");
        return false;
    }
    if (lane->frame.kind == KVCL_LANE_END) {
        lane->payload = malloc(lane->frame.len + 1);
        if (lane->payload == NULL) {
            kvcl_lane_lose(lane, "no memory");
            return false;
        }
    }
    if (lane->frame.len == 0) {
        frame_over(lane);
    }
    return true;
}

/* n bytes have arrived: of the frame's payload, then of the next head. */
static void account(kvcl_lane_t *lane, size_t n)
{
    size_t part = lane->frame.len - lane->at;

    if (lane->head < sizeof(lane->frame)) {
        lane->head += (uint32_t)n;
    } else {
        part = (n < part) ? n : part;
        if (lane->placing) {
            kvcl_lane_room(lane->ctx)->user->placed(lane->ctx, lane->peer, &lane->frame, (uint32_t)part);
        }
        lane->at += (uint32_t)part;
        if (lane->at < lane->frame.len) {
            return;
        }
        frame_over(lane);
        if (lane->state != KVCL_LANE_OPEN) {
            return;
        }
        kvcl_copy_bytes(&lane->frame, &lane->next, n - part);
        lane->head = (uint32_t)(n - part);
    }
    if (lane->head == sizeof(lane->frame)) {
        (void)frame_begins(lane);
    }
}

/* The destination of the next bytes: the rest of a head; or a part of a frame; or its rest, and the next head. */
static int want(kvcl_lane_t *lane, struct iovec *iov)
{
    int n;

    if (lane->head < sizeof(lane->frame)) {
        iov->iov_base = (char *)&lane->frame + lane->head;
        iov->iov_len  = sizeof(lane->frame) - lane->head;
        return 1;
    }
    n = place(lane, iov);
    if (sum(iov, n) == lane->frame.len - lane->at) {
        iov[n].iov_base = &lane->next;
        iov[n].iov_len  = sizeof(lane->next);
        ++n;
    }
    return n;
}

/* One call, so that a peer that sends continuously shares the pass with the others. */
unsigned kvcl_lane_take(kvcl_lane_t *lane)
{
    struct iovec  iov[KVCL_LANE_IOVS + 1];
    int           n   = want(lane, iov);
    ssize_t       got = lane->stream->xport->ops->stream_recv(lane->stream, iov, (size_t)n);

    if (got >= 0) {
        kvcl_lane_set_ready(lane, lane->stream->readable);
        if (got > 0) {
            account(lane, (size_t)got);
        }
        return got > 0;
    }
    kvcl_lane_lose(lane, (errno == 0) ? "closed by the peer" : strerror(errno));
    return 1;
}
