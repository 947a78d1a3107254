/*
 * What an authenticated peer may write into a lane: whole frames, broken ones, any bytes, in pieces of any size, while
 * a pull waits for bytes. Nothing may crash or leak, no byte may be written outside the pull's buffer, and none at all
 * after the pull has ended.
 *
 * An input is a sequence of items: a byte that selects the kind (a DATA or END frame of the pull, one of no pull, or
 * plain bytes), three for offset, length and status, and bytes. Each item is written and received.
 */
#include "config.h"
#include "base/error.h"
#include "core/context.h"
#include "lane/lane_impl.h"
#include "../unit/stream_pair.h"
#include "xfer/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOTAL = 600, AROUND = 64, ITEMS_MAX = 32, TAKES_MAX = 64 };

static kvcl_context_h ctx;
static kvcl_peer_t    *self;

static void must(int truth)
{
    if (!truth) {
        fprintf(stderr, "%s\n", kvcl_last_error());
        abort();
    }
}

static void is_ready(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    (void)waiter;
    must(status == KVCL_OK);
}

static void begin(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_peer_waiter_t waiter = {.fn = is_ready};
    kvcl_status_t      status;

    (void)setenv("KVCL_LOG", "error", 0);
    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    must(kvcl_init(&params, &ctx) == KVCL_OK);
    kvcl_lock(ctx);
    must(kvcl_peer_by_address(ctx, ctx->address, ctx->address_len, &self) == KVCL_OK);
    status = kvcl_peer_ready(self, &waiter);
    kvcl_unlock(ctx);
    must((status == KVCL_OK) || (status == KVCL_INPROGRESS));
    while (self->state != KVCL_PEER_READY) {
        (void)kvcl_progress(ctx);
    }
}

static void done(kvcl_pull_t *pull, kvcl_status_t status)
{
    *(kvcl_status_t *)pull->arg = status;
}

/* A pull that has sent its request to the owner, which never receives it: the context is not polled. */
static kvcl_pull_t *wait_for_bytes(char *buf, kvcl_status_t *status)
{
    kvcl_pull_t *pull = kvcl_pull_new();

    must(pull != NULL);
    pull->peer    = self;
    pull->from    = KVCL_FROM_OFFER;
    pull->offer   = 1;
    pull->buf     = buf;
    pull->total   = TOTAL;
    pull->on_done = done;
    pull->arg     = status;
    *status       = KVCL_INPROGRESS;
    must(kvcl_pull_start(ctx, pull, UINT64_C(1) << 62) == KVCL_OK);
    must((*status == KVCL_INPROGRESS) && (pull->state == KVCL_PULL_SERVED));
    pull->by_lane = true;
    return pull;
}

/* The bytes of one item. Return the number of input bytes used. */
static size_t item(const uint8_t *data, size_t size, uint64_t op, uint8_t *out, size_t *out_len)
{
    kvcl_lane_frame_t frame = {.magic = KVCL_LANE_MAGIC, .op = (data[0] & 4) ? op + 1 : op};
    size_t            len   = size - 4;

    if ((data[0] & 3) == 3) { /* anything */
        len = (len < data[1]) ? len : data[1];
        memcpy(out, data + 4, len);
        *out_len = len;
        return 4 + len;
    }
    frame.kind   = ((data[0] & 3) == 2) ? KVCL_LANE_END : KVCL_LANE_DATA;
    frame.offset = (frame.kind == KVCL_LANE_DATA) ? data[1] * 4u : 0;
    frame.len    = data[2] * 4u;
    frame.status = (int8_t)data[3] / 16;
    len          = (len < frame.len) ? len : frame.len;
    frame.len    = (data[0] & 8) ? frame.len : (uint32_t)len; /* the frame announces more bytes than follow */
    memcpy(out, &frame, sizeof(frame));
    memcpy(out + sizeof(frame), data + 4, len);
    *out_len = sizeof(frame) + len;
    return 4 + len;
}

static void write_and_take(kvcl_lane_t *lane, int fd, const uint8_t *bytes, size_t len, size_t piece)
{
    size_t n;
    int    i;

    while ((len > 0) && (lane->state == KVCL_LANE_OPEN)) {
        n = (len < piece) ? len : piece;
        must(write(fd, bytes, n) == (ssize_t)n);
        bytes += n;
        len   -= n;
        for (i = 0; (i < TAKES_MAX) && (lane->state == KVCL_LANE_OPEN) && (kvcl_lane_take(lane) != 0); ++i) {
        }
        must(i < TAKES_MAX);
    }
}

static void play(kvcl_lane_t *lane, int fd, const uint8_t *data, size_t size)
{
    char          buf[AROUND + TOTAL + AROUND], was[sizeof(buf)];
    kvcl_status_t status;
    uint8_t       bytes[8192];
    kvcl_pull_t   *pull = wait_for_bytes(buf + AROUND, &status);
    uint64_t      op = pull->req.id;
    size_t        len = 0, taken;
    bool          over = false;
    int           i;

    memset(buf, 0x5a, sizeof(buf));
    for (i = 0; (i < ITEMS_MAX) && (size >= 4) && (lane->state == KVCL_LANE_OPEN); ++i) {
        over = (status != KVCL_INPROGRESS);
        memcpy(was, buf, sizeof(buf));
        taken = item(data, size, op, bytes, &len);
        write_and_take(lane, fd, bytes, len, 5u + (data[0] >> 4) * 40u);
        must(!over || (memcmp(was, buf, sizeof(buf)) == 0));
        data += taken;
        size -= taken;
    }
    for (i = 0; i < AROUND; ++i) {
        must((buf[i] == 0x5a) && (buf[AROUND + TOTAL + i] == 0x5a));
    }
    if (status == KVCL_INPROGRESS) {
        kvcl_pull_stop(pull, KVCL_ERR_CANCELED); /* the pull may be requested again: the lane is lost */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fake_stream_t stream;
    kvcl_lane_t   *lane;
    int           fds[2], i;

    if (ctx == NULL) {
        begin();
    }
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    kvcl_lock(ctx);
    stream = fake_stream(fds[0]);
    lane   = kvcl_lane_new(self, KVCL_LANE_IN, &stream.super);
    must(lane != NULL);
    self->lane_in = lane;
    lane->state   = KVCL_LANE_OPEN;
    play(lane, fds[1], data, (size < 4096) ? size : 4096);
    if (lane->state != KVCL_LANE_LOST) {
        lane->state = KVCL_LANE_OPENING; /* no peer needs a notification */
        kvcl_lane_lose(lane, "the end");
    }
    kvcl_lane_bury(kvcl_lane_room(ctx));
    kvcl_unlock(ctx);
    close(fds[1]);
    for (i = 0; i < 8; ++i) {
        (void)kvcl_progress(ctx);
    }
    return 0;
}
