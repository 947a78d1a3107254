/*
 * Serving by a lane: the kernel gathers each frame from the blocks in place, and bytes that it has accepted are sent.
 * Engine lock held.
 */
#include "config.h"
#include "base/log.h"
#include "lane/lane.h"
#include "serve/serve.h"

enum { FRAME_BYTES = 124 * 1024 }; /* with its head it fills whole records of an encrypted stream, but for the last */

bool kvcl_serve_lane_wants(const kvcl_serve_t *serve)
{
    const kvcl_lane_t *lane = kvcl_lane_out(serve->peer);

    return (lane != NULL) && kvcl_lane_idle(lane);
}

bool kvcl_serve_lane_outstanding(kvcl_context_h ctx)
{
    const kvcl_serve_t *serve;

    kvcl_list_foreach (serve, &kvcl_serve_state(ctx)->serves, kvcl_serve_t, link) {
        if (serve->by_lane && kvcl_serve_lane_wants(serve)) {
            return true;
        }
    }
    return false;
}

static void sent(void *arg)
{
    kvcl_serve_t *serve = arg;

    --serve->in_flight;
    kvcl_serve_end_if_over(serve);
}

/* One frame. The serve may be freed on return. */
unsigned kvcl_serve_lane_turn(kvcl_serve_t *serve)
{
    kvcl_lane_t *lane = kvcl_lane_out(serve->peer);
    uint64_t    from  = serve->pos;
    size_t      len   = 0;
    uint64_t    left  = serve->total - serve->pos; /* a part of an offer may be requested */
    size_t      most  = (left < FRAME_BYTES) ? (size_t)left : FRAME_BYTES;
    int         n     = kvcl_stream_iov(&serve->stream, kvcl_lane_pieces(lane), KVCL_LANE_IOVS, most, &len);

    serve->pos                += len;
    serve->peer->serves->sent += len;
    ++serve->in_flight;
    kvcl_lane_send(lane, serve->op, from, (uint32_t)len, n, sent, serve);
    return 1;
}

void kvcl_serve_lane_stop(kvcl_serve_t *serve)
{
    kvcl_lane_t *lane = kvcl_lane_out(serve->peer);

    if ((lane == NULL) || kvcl_lane_abandon(lane, serve)) {
        serve->in_flight = 0;
    }
}

/* Without memory for the message, close the lane, so that the puller requests the bytes again and does not wait. */
void kvcl_serve_lane_end(kvcl_serve_t *serve, kvcl_status_t status, const int32_t *each, size_t n)
{
    kvcl_lane_t   *lane = kvcl_lane_out(serve->peer);
    kvcl_status_t notified = KVCL_ERR_RANK_FAILED;

    if (lane != NULL) {
        notified = kvcl_lane_tell(lane, serve->op, status, each, (uint32_t)(n * sizeof(*each)));
    }
    if (notified == KVCL_ERR_NO_MEMORY) {
        kvcl_lane_lose(lane, "no memory");
    } else if (notified != KVCL_OK) {
        kvcl_log_debug("the end of a transfer is not sent to %s", serve->peer->name);
    }
}
