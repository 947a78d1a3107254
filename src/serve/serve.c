/*
 * Serving: the owner's side of a pull. Checks the request, then streams the bytes in frames.
 *
 * A frame is sent in place when one run fills it, otherwise gathered into a bounce buffer (a flight). At most `window`
 * frames are beyond the puller's credit; serves take turns, a few frames each. Where the puller gave generations, they
 * are compared after the last byte was copied, or has been sent: unequal means that the slot was reused meanwhile, and
 * the block's status says so. For exported memory, which may be revoked, the end is sent after its last frame has left,
 * so that no frame in flight carries bytes from after the revocation together with a good end. While a serve reads
 * memory, its region, cache or offer counts it and cannot be freed.
 */
#include "config.h"
#include "base/copy_racy.h"
#include "base/error.h"
#include "base/log.h"
#include "dir/slots.h"
#include "cache/cache.h"
#include "lane/lane.h"
#include "xfer/offer.h"
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>

enum { BACKGROUND_FLIGHTS = 2, ZERO_COPY_MIN = 64 * 1024 };

typedef struct flight {
    kvcl_xport_send_t send;
    kvcl_msg_data_t   hdr;
    kvcl_serve_t           *serve;
    unsigned char     bytes[] __attribute__((aligned(64)));
} flight_t;

static void hold(kvcl_serve_t *serve, int by)
{
    if ((serve->region != NULL) && (by > 0)) {
        kvcl_region_hold(serve->region, &serve->user);
    } else if (serve->region != NULL) {
        kvcl_region_release(serve->region, &serve->user);
    } else if (serve->cache != NULL) {
        serve->cache->serves += (uint32_t)by;
        if (by > 0) {
            kvcl_list_add_tail(&serve->cache->users, &serve->user.link);
        } else {
            kvcl_list_del(&serve->user.link);
        }
    } else if (serve->offer != NULL) {
        serve->offer->serves += (uint32_t)by;
    }
}

static void answer_done(kvcl_context_h ctx, kvcl_peer_t *peer, uint64_t op, kvcl_status_t status, const int32_t *each,
                        size_t n)
{
    kvcl_msg_pull_done_t out = {.msg = {.type = KVCL_MSG_PULL_DONE, .op = op}, .status = status, .n = (uint32_t)n};

    (void)ctx;
    if (kvcl_peer_post(peer, &out.msg, sizeof(out), each, n * sizeof(*each)) != KVCL_OK) {
        kvcl_log_debug("%s does not hear the end of its transfer: it is gone", peer->name);
    }
}

/* Which blocks still have the generation that was asked for. Returns whether all have. */
static bool gens_hold(const kvcl_serve_t *serve, int32_t *each)
{
    const uint32_t *gens = serve->ids + serve->n;
    bool           all   = true, one;
    size_t         i;

    for (i = 0; i < serve->n; ++i) {
        one = kvcl_slots_gen_is(&serve->cache->gens[serve->ids[i]], gens[i]);
        all = all && one;
        if (each != NULL) {
            each[i] = one ? KVCL_OK : KVCL_ERR_STALE;
        }
    }
    return all;
}

static void notify_end(kvcl_serve_t *serve, kvcl_status_t status, const int32_t *each, size_t n)
{
    if (serve->by_lane) { /* behind the last byte */
        kvcl_serve_lane_end(serve, status, each, n);
    } else {
        answer_done(serve->ctx, serve->peer, serve->op, status, each, n);
    }
}

static void say_end(kvcl_serve_t *serve)
{
    int32_t *each;

    if (serve->silent) {
        return;
    }
    if ((serve->status != KVCL_OK) || !serve->has_gens || gens_hold(serve, NULL)) {
        notify_end(serve, serve->status, NULL, 0);
        return;
    }
    each = calloc(serve->n, sizeof(*each));
    if (each == NULL) {
        notify_end(serve, KVCL_ERR_NO_MEMORY, NULL, 0);
        return;
    }
    (void)gens_hold(serve, each);
    notify_end(serve, KVCL_OK, each, serve->n);
    free(each);
}

static void discard(kvcl_serve_t *serve)
{
    free(serve->ids);
    free(serve);
}

static void unlink_serve(kvcl_serve_t *serve)
{
    kvcl_serve_state_t *state = kvcl_serve_state(serve->ctx);

    if (state->next == &serve->link) {
        state->next = serve->link.next;
    }
    kvcl_list_del(&serve->link);
}

static void end(kvcl_serve_t *serve)
{
    kvcl_offer_t *offer = serve->offer;

    unlink_serve(serve);
    serve->ctx->stats.bytes_out    += serve->pos;
    serve->ctx->stats.bytes_served += serve->pos;
    say_end(serve);
    hold(serve, -1);
    discard(serve);
    if ((offer != NULL) && (offer->id == 0) && (offer->serves == 0)) {
        offer->idle(offer);
    }
}

void kvcl_serve_end_if_over(kvcl_serve_t *serve)
{
    if ((serve->in_flight == 0) && ((serve->pos == serve->total) || (serve->status != KVCL_OK))) {
        end(serve);
    }
}

static void fail(kvcl_serve_t *serve, kvcl_status_t status, bool silent)
{
    if (serve->status == KVCL_OK) {
        serve->status = status;
    }
    serve->silent = serve->silent || silent;
    if (serve->by_lane) {
        kvcl_serve_lane_stop(serve);
    }
    kvcl_serve_end_if_over(serve);
}

static void revoked(kvcl_region_user_t *user)
{
    fail(kvcl_container_of(user, kvcl_serve_t, user), KVCL_ERR_ACCESS, false);
}

static void flight_done(kvcl_xport_send_t *send, kvcl_status_t status)
{
    flight_t *flight = kvcl_container_of(send, flight_t, send);
    kvcl_serve_t  *serve  = flight->serve;

    kvcl_mpool_put(&kvcl_serve_state(serve->ctx)->flights, flight);
    --serve->in_flight;
    if (status != KVCL_OK) {
        fail(serve, KVCL_ERR_RANK_FAILED, true);
        return;
    }
    kvcl_serve_end_if_over(serve);
}

static void cache_goes(kvcl_region_user_t *user)
{
    fail(kvcl_container_of(user, kvcl_serve_t, user), KVCL_ERR_NOT_REGISTERED, false);
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

/* Blocks with generations may be withdrawn while they are read: gens_hold() checks. */
static size_t gather(kvcl_serve_t *serve, void *buf, size_t len)
{
    return serve->has_gens ? kvcl_stream_gather_racy(&serve->stream, buf, len)
                           : kvcl_stream_gather(&serve->stream, buf, len);
}

/* One run that fills a frame goes from where it lies; otherwise gather. False: a device failed. */
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
            memcpy(flight->bytes, (const void *)addr, len);
        }
        len += gather(serve, flight->bytes + len, want - len);
        iov->buf = flight->bytes;
        iov->len = len;
    }
    return true;
}

/* May the last frame say that all is well? Of copies that are made the generations are known; what goes from where it
 * lies may change until it has left, and exported memory may be revoked until then. */
static bool says_end(const kvcl_serve_t *serve)
{
    return (serve->region == NULL) && (!serve->has_gens || (!serve->straight && gens_hold(serve, NULL)));
}

/* Returns whether a frame left. */
static bool send_frame(kvcl_serve_t *serve)
{
    size_t        left = serve->total - serve->pos;
    size_t        want = (left < serve->frame) ? (size_t)left : serve->frame;
    flight_t      *flight = new_flight(serve->ctx);
    kvcl_status_t status;
    kvcl_iov_t    iov;

    if (flight == NULL) {
        fail(serve, KVCL_ERR_NO_MEMORY, false);
        return false;
    }
    if (!fill(serve, flight, want, &iov)) {
        kvcl_mpool_put(&kvcl_serve_state(serve->ctx)->flights, flight);
        fail(serve, KVCL_ERR_IO, false);
        return false;
    }
    flight->serve     = serve;
    flight->send.done = flight_done;
    flight->hdr       = (kvcl_msg_data_t){.msg = {.type = KVCL_MSG_DATA, .op = serve->op}, .offset = serve->pos};
    serve->straight = serve->straight || (iov.buf != flight->bytes);
    if ((serve->pos + iov.len == serve->total) && says_end(serve)) {
        flight->hdr.msg.flags = KVCL_DATA_LAST;
        serve->silent         = true; /* the frame itself says the end */
    }
    serve->pos += iov.len;
    --serve->credits;
    ++serve->in_flight;
    status = kvcl_peer_send(serve->peer, &flight->hdr.msg, sizeof(flight->hdr), &iov, 1, &flight->send);
    if (status != KVCL_INPROGRESS) {
        flight_done(&flight->send, status); /* may end the serve */
        return status == KVCL_OK;
    }
    return true;
}

static bool wants(const kvcl_serve_t *serve)
{
    return (serve->status == KVCL_OK) && (serve->pos != serve->total) &&
           (serve->by_lane ? kvcl_serve_lane_wants(serve) : (serve->credits != 0));
}

/* A turn: short, so that the progress between two of them sees small requests soon.
 * The serve may be gone afterwards. */
static unsigned advance(kvcl_serve_t *serve)
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

/* May the lower class have turns now? Where the upper one cannot use its own, yes. */
static bool lower_may(kvcl_context_h ctx, kvcl_list_t *serves, bool *upper_p)
{
    bool    upper = false, lower = false;
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
 * place. Any serve may end meanwhile: unlink_serve() corrects the cursor. */
static unsigned turns(kvcl_context_h ctx, bool background, bool alone)
{
    kvcl_serve_state_t *state = kvcl_serve_state(ctx);
    unsigned           turn   = ++state->turn, n = 0;
    kvcl_serve_t      *serve;

    state->next = state->serves.next;
    while (state->next != &state->serves) {
        serve       = kvcl_container_of(state->next, kvcl_serve_t, link);
        state->next = serve->link.next;
        if (serve->turn == turn) {
            break;
        }
        serve->turn = turn;
        if ((serve->background == background) && wants(serve) && (alone || (serve->in_flight < BACKGROUND_FLIGHTS))) {
            kvcl_list_del(&serve->link);
            kvcl_list_add_tail(&state->serves, &serve->link);
            n += advance(serve);
        }
    }
    state->next = NULL;
    return n;
}

/* The lower class first, where it may: a lane that others find idle is busy afterwards. */
unsigned kvcl_serve_poll(kvcl_context_h ctx)
{
    kvcl_list_t *serves = &kvcl_serve_state(ctx)->serves;
    unsigned    n = 0;
    bool        upper;

    if (kvcl_list_is_empty(serves)) {
        return 0;
    }
    if (lower_may(ctx, serves, &upper)) {
        n += turns(ctx, true, !upper);
    }
    return n + turns(ctx, false, true);
}

/* A short answer needs no flight and no turn: gathered, checked and sent before return. */
static bool answer_small(kvcl_serve_t *serve)
{
    kvcl_msg_data_t out = {.msg = {.type = KVCL_MSG_DATA, .op = serve->op, .flags = KVCL_DATA_LAST}};
    unsigned char   bytes[KVCL_SERVE_SMALL];
    bool            whole;

    if (serve->total > sizeof(bytes)) {
        return false;
    }
    if (gather(serve, bytes, (size_t)serve->total) != serve->total) {
        answer_done(serve->ctx, serve->peer, serve->op, KVCL_ERR_IO, NULL, 0);
        return true;
    }
    whole = !serve->has_gens || gens_hold(serve, NULL);
    if (!whole) {
        out.msg.flags = 0;
    }
    if (kvcl_peer_post(serve->peer, &out.msg, sizeof(out), bytes, (size_t)serve->total) != KVCL_OK) {
        kvcl_log_debug("%s does not get its bytes: it is gone", serve->peer->name);
    }
    if (!whole) {
        say_end(serve);
    }
    serve->ctx->stats.bytes_out    += serve->total;
    serve->ctx->stats.bytes_served += serve->total;
    return true;
}

void kvcl_serve_on_pull(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                        size_t len)
{
    const kvcl_msg_pull_t *in    = (const kvcl_msg_pull_t *)msg;
    kvcl_serve_t               *serve = calloc(1, sizeof(*serve));
    kvcl_status_t         status;

    (void)hdr_len;
    if (serve == NULL) {
        answer_done(ctx, peer, msg->op, KVCL_ERR_NO_MEMORY, NULL, 0);
        return;
    }
    kvcl_list_init(&serve->link);
    serve->ctx   = ctx;
    serve->peer  = peer;
    serve->user.peer = peer;
    serve->op    = msg->op;
    serve->total = in->len;
    serve->frame = kvcl_context_frame(ctx, peer);
    serve->background = (msg->flags & KVCL_PULL_BACKGROUND) != 0;
    serve->credits = ((in->window == 0) || (in->window > 1024)) ? 1 : in->window;
    status = kvcl_serve_check(serve, in, data, len);
    serve->user.revoked = (serve->cache != NULL) ? cache_goes : revoked;
    if (status != KVCL_OK) {
        if (status == KVCL_ERR_PROTOCOL) {
            kvcl_am_malformed(ctx, peer, "a pull that makes no sense");
        }
        answer_done(ctx, peer, msg->op, status, NULL, 0);
        discard(serve);
        return;
    }
    if (answer_small(serve)) {
        discard(serve);
        return;
    }
    serve->by_lane = (msg->flags & KVCL_PULL_LANE) && (kvcl_lane_out(peer) != NULL) &&
                     kvcl_pull_lane_suits(ctx, &serve->stream);
    hold(serve, 1);
    kvcl_list_add_tail(&kvcl_serve_state(ctx)->serves, &serve->link);
    if (!serve->background) {
        (void)advance(serve);
    }
}

static kvcl_serve_t *find(kvcl_context_h ctx, const kvcl_peer_t *peer, uint64_t op)
{
    kvcl_serve_t *serve;

    kvcl_list_foreach (serve, &kvcl_serve_state(ctx)->serves, kvcl_serve_t, link) {
        if ((serve->peer == peer) && (serve->op == op)) {
            return serve;
        }
    }
    return NULL;
}

void kvcl_serve_on_credit(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len)
{
    kvcl_serve_t *serve = find(ctx, peer, msg->op);

    (void)hdr_len;
    (void)data;
    (void)len;
    if (serve != NULL) { /* else all is sent */
        uint32_t frames = ((const kvcl_msg_credit_t *)msg)->frames;
        serve->credits += (frames > 1024) ? 1024 : frames;
        serve->credits  = (serve->credits > 1024) ? 1024 : serve->credits;
    }
}

void kvcl_serve_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                        const void *data, size_t len)
{
    kvcl_serve_t *serve = find(ctx, peer, msg->op);

    (void)hdr_len;
    (void)data;
    (void)len;
    if (serve != NULL) {
        fail(serve, KVCL_ERR_CANCELED, true);
    }
}

/* The end of one may end others: so look from the first each time. */
static kvcl_serve_t *first_alive(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_offer_t *offer, bool lane_only)
{
    kvcl_serve_t *serve;

    kvcl_list_foreach (serve, &kvcl_serve_state(ctx)->serves, kvcl_serve_t, link) {
        if ((serve->status == KVCL_OK) && ((peer == NULL) || (serve->peer == peer)) &&
            ((offer == NULL) || (serve->offer == offer)) && (serve->by_lane || !lane_only)) {
            return serve;
        }
    }
    return NULL;
}

void kvcl_serve_abort(kvcl_context_h ctx, const kvcl_offer_t *offer)
{
    kvcl_serve_t *serve;

    while ((serve = first_alive(ctx, NULL, offer, false)) != NULL) {
        fail(serve, KVCL_ERR_CANCELED, false);
    }
}

static void fail_all(kvcl_context_h ctx, const kvcl_peer_t *peer, bool lane_only)
{
    kvcl_serve_t *serve;

    while ((serve = first_alive(ctx, peer, NULL, lane_only)) != NULL) {
        fail(serve, KVCL_ERR_RANK_FAILED, true);
    }
}

void kvcl_serve_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    fail_all(ctx, peer, false);
}

/* The puller asks again, or has all bytes. */
void kvcl_serve_lane_lost(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    fail_all(ctx, peer, true);
}

void kvcl_serve_fini(kvcl_context_h ctx)
{
    kvcl_serve_state_t *state = kvcl_serve_state(ctx);
    kvcl_list_t       *link;

    while ((link = kvcl_list_pop(&state->serves)) != NULL) {
        kvcl_serve_t *serve = kvcl_container_of(link, kvcl_serve_t, link);
        hold(serve, -1);
        discard(serve); /* the transport's sends have ended with its endpoints */
    }
    if (state->has_flights) {
        (void)kvcl_mpool_fini(&state->flights);
    }
}
