/*
 * Sending the bytes of serves: in frames, in turns, or at once where they are few.
 *
 * Owns: the frames in flight with their bounce buffers, and the bytes of them for each peer. A frame is sent in place
 * when one run fills it, otherwise gathered into a flight. Invariants: at most `window` frames are beyond the puller's
 * credit; serves take turns, a few frames each, a peer's have a bounded part of a round, and the lower class has its
 * share of them. A serve may end in any turn. Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "base/log.h"
#include "serve/serve.h"
#include "weave/copy_racy.h"
#include "weave/user_memory.h"
#include "weave/pieces.h"

enum { BACKGROUND_FLIGHTS = 2, ZERO_COPY_MIN = 64 * 1024 };

typedef struct flight {
    kvcl_xport_send_t send;
    kvcl_msg_data_t   hdr;
    kvcl_serve_t      *serve;
    size_t            len;
    unsigned char     bytes[] __attribute__((aligned(64)));
} flight_t;

static void flight_done(kvcl_xport_send_t *send, kvcl_status_t status)
{
    flight_t *flight = kvcl_container_of(send, flight_t, send);
    kvcl_serve_t *serve = flight->serve;

    serve->peer->serves->flight -= flight->len;
    kvcl_mpool_put(&kvcl_serve_state(serve->ctx)->flights, flight);
    --serve->in_flight;
    if (status == KVCL_ERR_NO_MEMORY) { /* the peer waits for it */
        serve->silent = false;
        kvcl_serve_fail(serve, status, false);
        return;
    }
    if (status != KVCL_OK) {
        kvcl_serve_fail(serve, KVCL_ERR_RANK_FAILED, true);
        return;
    }
    kvcl_serve_end_if_over(serve);
}

/* Room for the largest frame of any endpoint. */
static size_t flight_room(kvcl_context_h ctx)
{
    kvcl_xport_attr_t attr;
    size_t            room = (size_t)ctx->config.frame;
    unsigned          i;

    for (i = 0; i < ctx->engine.n_xports; ++i) {
        ctx->engine.xports[i]->ops->query(ctx->engine.xports[i], &attr);
        room = (attr.frame_bytes > room) ? attr.frame_bytes : room;
    }
    return room;
}

static flight_t *new_flight(kvcl_context_h ctx)
{
    kvcl_serve_state_t *state = kvcl_serve_state(ctx);

    if (!state->has_flights) {
        state->has_flights = true;
        kvcl_mpool_init(&state->flights, "data frames", sizeof(flight_t) + flight_room(ctx), 64, 4);
    }
    return kvcl_mpool_get(&state->flights);
}

/* Blocks with generations may be withdrawn while they are read: kvcl_serve_gens_hold() checks. */
static size_t gather(kvcl_serve_t *serve, void *buf, size_t len)
{
    return serve->has_gens ? kvcl_stream_gather_racy(&serve->stream, buf, len)
                           : kvcl_stream_gather(&serve->stream, buf, len);
}

/* A run that fills a frame is sent in place; otherwise gather. False: a device failed. A user's pages are touched
 * first: where a transport waits for one while it copies to the peer's queue of shared memory, no other rank's message
 * behind it in that queue arrives. */
static bool fill(kvcl_serve_t *serve, flight_t *flight, size_t want, kvcl_iov_t *iov)
{
    uintptr_t addr = 0;
    size_t    len;

    if (serve->stream.copier != NULL) {
        iov->buf = flight->bytes;
        iov->len = kvcl_stream_gather(&serve->stream, flight->bytes, want);
        return iov->len == want;
    }
    len = kvcl_stream_next(&serve->stream, want, &addr);
    iov->buf = (const void *)addr;
    iov->len = len;
    if ((len == want) ? (len < KVCL_SERVE_SMALL) : (len < ZERO_COPY_MIN)) {
        if (serve->has_gens) {
            kvcl_copy_racy(flight->bytes, (const void *)addr, len);
        } else {
            kvcl_copy_bytes(flight->bytes, (const void *)addr, len);
        }
        len += gather(serve, flight->bytes + len, want - len);
        iov->buf = flight->bytes;
        iov->len = len;
    } else if ((serve->offer != NULL) && (serve->offer->plain != NULL)) {
        kvcl_touch_pages(iov->buf, len);
    }
    return true;
}

/* Whether the last frame may report success. The generations of bytes that were copied have been compared by then;
 * bytes sent in place may change until they have been sent, and exported memory may be revoked until then. */
static bool reports_end(const kvcl_serve_t *serve)
{
    return (serve->region == NULL) && (!serve->has_gens || (!serve->straight && kvcl_serve_gens_hold(serve, NULL)));
}

/* Returns whether a frame was sent. */
static bool send_frame(kvcl_serve_t *serve)
{
    size_t        left = serve->total - serve->pos;
    size_t        want = (left < serve->frame) ? (size_t)left : serve->frame;
    flight_t      *flight = new_flight(serve->ctx);
    kvcl_status_t status;
    kvcl_iov_t    iov;

    if (flight == NULL) {
        kvcl_serve_fail(serve, KVCL_ERR_NO_MEMORY, false);
        return false;
    }
    if (!fill(serve, flight, want, &iov)) {
        kvcl_mpool_put(&kvcl_serve_state(serve->ctx)->flights, flight);
        kvcl_serve_fail(serve, KVCL_ERR_IO, false);
        return false;
    }
    flight->serve     = serve;
    flight->send.done = flight_done;
    flight->hdr       = (kvcl_msg_data_t){.msg = {.type = KVCL_MSG_DATA, .op = serve->op}, .offset = serve->pos};
    serve->straight   = serve->straight || (iov.buf != flight->bytes);
    if ((serve->pos + iov.len == serve->total) && reports_end(serve)) {
        flight->hdr.msg.flags = KVCL_DATA_LAST;
        serve->silent         = true; /* the frame itself reports the end */
    }
    flight->len                  = iov.len;
    serve->peer->serves->flight += iov.len;
    serve->peer->serves->sent   += iov.len;
    serve->pos                  += iov.len;
    --serve->credits;
    ++serve->in_flight;
    status = kvcl_peer_send(serve->peer, &flight->hdr.msg, sizeof(flight->hdr), &iov, 1, KVCL_XPORT_UNORDERED,
                            &flight->send);
    if (status != KVCL_INPROGRESS) {
        flight_done(&flight->send, status); /* may end the serve */
        return status == KVCL_OK;
    }
    return true;
}

static bool wants(const kvcl_serve_t *serve)
{
    return (serve->status == KVCL_OK) && (serve->pos != serve->total) &&
           (serve->by_lane ? kvcl_serve_lane_wants(serve)
                           : (serve->credits != 0) && (serve->peer->serves->flight < KVCL_SERVE_FLIGHT));
}

unsigned kvcl_serve_advance(kvcl_serve_t *serve)
{
    unsigned frames = (serve->frame < KVCL_SERVE_TURN) ? (unsigned)(KVCL_SERVE_TURN / serve->frame) : 1;
    unsigned n;
    bool     last;

    if (serve->by_lane) {
        return wants(serve) ? kvcl_serve_lane_turn(serve) : 0;
    }
    for (n = 0; n < frames; ++n) {
        if (!wants(serve)) {
            break;
        }
        last = (serve->total - serve->pos <= serve->frame);
        if (!send_frame(serve) || last) {
            return n + 1;
        }
    }
    return n;
}

/* May the lower class have turns now? Always where the upper one cannot use its own. */
static bool lower_may(kvcl_context_h ctx, kvcl_list_t *serves, bool *upper_p)
{
    bool         upper = false, lower = false;
    kvcl_serve_t *serve;

    *upper_p = false;
    kvcl_list_foreach (serve, serves, kvcl_serve_t, link) {
        *upper_p = *upper_p || !serve->background;
        upper    = upper || (!serve->background && wants(serve));
        lower    = lower || (serve->background && wants(serve));
    }
    return !upper || !lower ||
           kvcl_share_lower(&kvcl_serve_state(ctx)->share, (unsigned)ctx->config.background_share);
}

/* Each serve of a class once. A serve that progressed moves to the end of the queue; one whose lane is busy keeps its
 * place. Any serve may end meanwhile: serve_end.c then corrects the cursor. */
static unsigned turns(kvcl_context_h ctx, bool background, bool alone)
{
    kvcl_serve_state_t *state = kvcl_serve_state(ctx);
    unsigned           turn   = ++state->turn, n = 0;
    kvcl_serve_t       *serve;

    state->next = state->serves.next;
    while (state->next != &state->serves) {
        serve       = kvcl_container_of(state->next, kvcl_serve_t, link);
        state->next = serve->link.next;
        if (serve->turn == turn) {
            break;
        }
        serve->turn = turn;
        if ((serve->background == background) && kvcl_serve_peer_has_turn(serve->peer->serves, turn) && wants(serve) &&
            (alone || (serve->in_flight < BACKGROUND_FLIGHTS))) {
            kvcl_list_del(&serve->link);
            kvcl_list_add_tail(&state->serves, &serve->link);
            n += kvcl_serve_advance(serve);
        }
    }
    state->next = NULL;
    return n;
}

/* The lower class first, where it may have turns: the upper class would make a lane busy. */
unsigned kvcl_serve_poll(kvcl_context_h ctx)
{
    kvcl_list_t *serves = &kvcl_serve_state(ctx)->serves;
    unsigned    n = 0;
    bool        upper;

    kvcl_serve_state(ctx)->activated = false;
    if (kvcl_list_is_empty(serves)) {
        return 0;
    }
    if (lower_may(ctx, serves, &upper)) {
        n += turns(ctx, true, !upper);
    }
    return n + turns(ctx, false, true);
}

/* Without a flight, and outside the turns. */
bool kvcl_serve_answer_small(kvcl_serve_t *serve)
{
    kvcl_msg_data_t out = {.msg = {.type = KVCL_MSG_DATA, .op = serve->op, .flags = KVCL_DATA_LAST}};
    unsigned char   bytes[KVCL_SERVE_SMALL];
    kvcl_status_t   status;
    bool            whole;

    if (serve->total > sizeof(bytes)) {
        return false;
    }
    if (gather(serve, bytes, (size_t)serve->total) != serve->total) {
        kvcl_serve_answer(serve->peer, serve->op, KVCL_ERR_IO, NULL, 0);
        return true;
    }
    whole = !serve->has_gens || kvcl_serve_gens_hold(serve, NULL);
    if (!whole) {
        out.msg.flags = 0;
    }
    status = kvcl_peer_post(serve->peer, &out.msg, sizeof(out), bytes, (size_t)serve->total);
    if (status == KVCL_ERR_NO_MEMORY) {
        kvcl_serve_answer(serve->peer, serve->op, status, NULL, 0);
        return true;
    }
    if (status != KVCL_OK) {
        kvcl_log_debug("%s has failed: its bytes are not sent", serve->peer->name);
    }
    if (!whole) {
        kvcl_serve_report_end(serve);
    }
    serve->ctx->stats.bytes_out    += serve->total;
    serve->ctx->stats.bytes_served += serve->total;
    return true;
}
