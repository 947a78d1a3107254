/*
 * A pull that its owner serves (pull.h): the request to the owner, and the bytes that arrive in DATA messages or by a
 * lane.
 *
 * Fence: bytes land under the engine lock and only while the pull can be found by its id; completion removes the id
 * under the same lock.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "lane/lane.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_MIN = 2048 };

/* The kernel's cost of a piece is higher than that of packing it: at 1 KiB packed messages are a quarter faster. */
bool kvcl_pull_lane_suits(kvcl_context_h ctx, const kvcl_stream_t *stream)
{
    uint64_t least = (ctx->config.lane_min < PIECE_MIN) ? ctx->config.lane_min : PIECE_MIN;
    uint64_t run   = (stream->pieces == NULL) ? stream->run_bytes : stream->block_bytes;

    return (stream->copier == NULL) && (run >= least);
}

/* The order of the owner's stream, and of the local one. */
static uint32_t stream_order(const kvcl_pull_t *pull, uint32_t *unit_p)
{
    kvcl_side_t remote, local;

    *unit_p = pull->unit;
    if ((pull->from != KVCL_FROM_CACHE) || (pull->cache == NULL) || (pull->offer != 0)) {
        return KVCL_STREAM_CANONICAL;
    }
    remote  = kvcl_rcache_side(pull->rcache, &pull->remote);
    local   = kvcl_cache_side(pull->cache, &pull->local);
    *unit_p = kvcl_runs_unit(&local, &remote);
    return kvcl_runs_order_pick(&local, &remote);
}

/* Frames in flight: fewer for the lower class, because other transfers queue behind them. */
static uint32_t window(const kvcl_pull_t *pull)
{
    uint32_t frames = (uint32_t)pull->req.ctx->config.window;

    return (!pull->background || (frames < 8)) ? frames : frames / 4;
}

/* Does the owner answer at once? */
static bool is_quick(const kvcl_pull_t *pull)
{
    return pull->total <= KVCL_SERVE_SMALL;
}

/* What follows the request: the ids, with their generations, or the pieces. NULL: no memory. */
static void *list_of(const kvcl_pull_t *pull, size_t len)
{
    const size_t ids   = pull->remote.n_blocks * sizeof(uint32_t);
    char         *list = malloc(len + 1);

    if ((list != NULL) && (pull->far != NULL)) {
        kvcl_pieces_encode(pull->far, list);
    } else if (list != NULL) {
        kvcl_copy_bytes(list, pull->remote.blocks, ids);
        kvcl_copy_bytes(list + ids, pull->gens, ids);
    }
    return list;
}

static kvcl_status_t query_owner(kvcl_pull_t *pull)
{
    size_t          len = pull->remote.n_blocks * sizeof(uint32_t) * ((pull->gens != NULL) ? 2 : 1);
    const void      *payload = pull->remote.blocks;
    void            *list = NULL;
    kvcl_status_t   status;
    uint8_t         from = (pull->offer != 0) ? KVCL_FROM_OFFER : pull->from;
    kvcl_msg_pull_t out = {
        .msg      = {.type = KVCL_MSG_PULL, .op = pull->req.id, .flags = (pull->gens != NULL) ? KVCL_PULL_GENS : 0},
        .from     = from,
        .window   = window(pull),
        .offset   = (from == KVCL_FROM_REGION) ? pull->offset : pull->range_from,
        .len      = pull->total,
        .layers   = {pull->remote.layers.first, pull->remote.layers.end},
        .heads    = {pull->remote.heads.first, pull->remote.heads.end},
        .tokens   = {pull->remote.tokens.first, pull->remote.tokens.end}, .n_blocks = pull->remote.n_blocks,
    };

    out.order      = stream_order(pull, &out.unit);
    out.target     = (from == KVCL_FROM_CACHE) ? pull->rcache->id : (from == KVCL_FROM_REGION) ? pull->rregion->id : 0;
    out.key        = (from == KVCL_FROM_REGION) ? pull->rregion->keys[0] : pull->offer;
    out.msg.flags |= pull->background ? KVCL_PULL_BACKGROUND : 0;
    if (pull->far != NULL) {
        out.from     = KVCL_FROM_PIECES;
        out.n_blocks = pull->far->n;
        len          = pull->far->n * sizeof(kvcl_wire_piece_t);
    } else if (from != KVCL_FROM_CACHE) {
        out.n_blocks = 0;
        len          = 0;
    }
    if ((pull->gens != NULL) || (pull->far != NULL)) {
        list = list_of(pull, len);
        if (list == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the blocks of a transfer");
        }
        payload = list;
    }
    kvcl_pull_local_stream(pull, out.order, out.unit, &pull->dst);
    kvcl_stream_seek(&pull->dst, pull->range_from);
    pull->by_lane  = (pull->total >= pull->req.ctx->config.lane_min) &&
                     kvcl_pull_lane_suits(pull->req.ctx, &pull->dst) && kvcl_lane_in_ready(pull->peer);
    out.msg.flags |= pull->by_lane ? KVCL_PULL_LANE : 0;
    if (is_quick(pull)) {
        status = kvcl_peer_post_soon(pull->peer, &out.msg, sizeof(out), payload, len);
    } else {
        status = kvcl_peer_post(pull->peer, &out.msg, sizeof(out), payload, len);
    }
    free(list);
    return status;
}

/* May the owner send the remaining bytes, in frames of len bytes, without another credit? */
static bool covers_rest(const kvcl_pull_t *pull, size_t len)
{
    uint64_t granted = (uint64_t)window(pull) - pull->uncredited;

    return pull->total - pull->received <= granted * len;
}

void kvcl_pull_request(kvcl_pull_t *pull)
{
    kvcl_status_t status = kvcl_req_publish(&pull->req);

    pull->ended  = false;
    pull->summed = false;
    pull->state  = KVCL_PULL_SERVED;
    kvcl_timing_path(&pull->req.timing, KVCL_MEM_PATH_SERVED);
    if (status == KVCL_OK) {
        status = query_owner(pull);
    }
    if (is_quick(pull) && !pull->quick) {
        pull->quick = true;
        kvcl_peer_queried(pull->peer);
    }
    /* A message that the transport has refused: the peer fails soon, or its link is lost, and then the pull begins
     * again. */
    if ((status != KVCL_OK) && !(pull->peer->unsent && (pull->peer->state == KVCL_PEER_READY))) {
        kvcl_pull_finish(pull, status);
    }
}

/* Without memory for the message it is sent with the next frame, if there is one. */
static void give_credit(kvcl_pull_t *pull)
{
    kvcl_msg_credit_t out = {.msg = {.type = KVCL_MSG_CREDIT, .op = pull->req.id}, .frames = pull->uncredited};
    kvcl_status_t     status = kvcl_peer_post(pull->peer, &out.msg, sizeof(out), NULL, 0);

    if ((status == KVCL_ERR_NO_MEMORY) && (pull->uncredited < window(pull))) {
        return;
    }
    pull->uncredited = 0;
    if (status == KVCL_ERR_NO_MEMORY) {
        kvcl_pull_stop(pull, status);
    } else if (status != KVCL_OK) {
        kvcl_log_debug("%s has failed: CREDIT is not sent", pull->peer->name);
    }
}

/* A successful end may arrive before bytes that it has overtaken. */
static void end_if_all_arrived(kvcl_pull_t *pull)
{
    if (pull->ended && (pull->received == pull->total)) {
        kvcl_pull_all_here(pull);
    }
}

static void end_twice(kvcl_pull_t *pull)
{
    kvcl_am_malformed(pull->req.ctx, pull->peer, "a second end of a transfer");
    kvcl_pull_finish(pull, KVCL_ERR_PROTOCOL);
}

void kvcl_pull_on_data(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len)
{
    const kvcl_msg_data_t *in   = (const kvcl_msg_data_t *)msg;
    kvcl_pull_t           *pull = kvcl_pull_find(ctx, msg->op);
    size_t                moved;

    (void)hdr_len;
    if (pull == NULL) {
        ++ctx->stats.late;
        return;
    }
    if ((pull->peer != peer) || (pull->state != KVCL_PULL_SERVED) || (in->offset > pull->total) ||
        (len > pull->total - in->offset) || (len > pull->total - pull->received)) {
        kvcl_am_malformed(ctx, peer, "data outside its transfer");
        return;
    }
    if (pull->ended && (msg->flags & KVCL_DATA_LAST)) {
        end_twice(pull);
        return;
    }
    if (kvcl_stream_pos(&pull->dst) != pull->range_from + in->offset) {
        kvcl_stream_seek(&pull->dst, pull->range_from + in->offset);
    }
    moved = (kvcl_bulk_how(pull->total) == KVCL_BULK_LARGE) ? kvcl_stream_scatter_cold(&pull->dst, data, len)
                                                  : kvcl_stream_scatter(&pull->dst, data, len);
    if (moved != len) {
        kvcl_pull_stop(pull, KVCL_ERR_IO);
        return;
    }
    pull->received += len;
    pull->ended     = pull->ended || (msg->flags & KVCL_DATA_LAST);
    if (pull->ended) { /* nothing is left to be sent: no credit is needed */
        end_if_all_arrived(pull);
        return;
    }
    ++pull->uncredited;
    if ((pull->uncredited * 2 >= window(pull)) && !covers_rest(pull, len)) {
        give_credit(pull);
    }
}

void kvcl_pull_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len)
{
    const kvcl_msg_pull_done_t *in   = (const kvcl_msg_pull_done_t *)msg;
    kvcl_pull_t                *pull = kvcl_pull_find(ctx, msg->op);
    int32_t                    status;
    size_t                     i;

    (void)hdr_len;
    if (pull == NULL) {
        ++ctx->stats.late;
        return;
    }
    if (pull->peer != peer) {
        kvcl_am_malformed(ctx, peer, "the end of another peer's transfer");
        return;
    }
    if ((in->status > 0) || (len != in->n * sizeof(int32_t)) || ((in->n != 0) && (in->n != pull->remote.n_blocks))) {
        kvcl_am_malformed(ctx, peer, "the end of a transfer with a wrong status or length");
        kvcl_pull_finish(pull, KVCL_ERR_PROTOCOL);
        return;
    }
    if (pull->ended) {
        end_twice(pull);
        return;
    }
    for (i = 0; i < in->n; ++i) {
        memcpy(&status, (const char *)data + (i * sizeof(status)), sizeof(status));
        if (status != KVCL_OK) {
            kvcl_pull_fail_block(pull, i, (status < 0) ? (kvcl_status_t)status : KVCL_ERR_PROTOCOL);
        }
    }
    if (in->status == KVCL_OK) {
        pull->ended = true;
        end_if_all_arrived(pull);
        return;
    }
    if ((in->status == KVCL_ERR_NOT_REGISTERED) && (pull->rcache != NULL)) {
        kvcl_req_unpublish(&pull->req);
        pull->received = pull->uncredited = 0; /* the cache was destroyed after some bytes had arrived */
        if (kvcl_pull_try_again(pull)) {
            return;
        }
    }
    kvcl_pull_finish(pull, (kvcl_status_t)in->status);
}

/* ---- by a lane: the kernel writes into the stream's runs (lane/lane.h) ---- */

/* The pull that this frame belongs to, or NULL. */
static kvcl_pull_t *find_by_frame(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_lane_frame_t *frame)
{
    kvcl_pull_t *pull = kvcl_pull_find(ctx, frame->op);

    return ((pull != NULL) && (pull->peer == peer) && (pull->state == KVCL_PULL_SERVED) && pull->by_lane) ? pull : NULL;
}

static int place(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_lane_frame_t *frame, uint32_t at, struct iovec *iov,
                 int max)
{
    kvcl_pull_t *pull = find_by_frame(ctx, peer, frame);
    size_t      left  = frame->len - at;
    uint64_t    pos;

    if (pull == NULL) {
        ctx->stats.late += (at == 0);
        return 0;
    }
    if ((frame->offset > pull->total) || (frame->len > pull->total - frame->offset) ||
        (left > pull->total - pull->received)) {
        kvcl_am_malformed(ctx, peer, "data outside its transfer");
        return 0;
    }
    pos = pull->range_from + frame->offset + at;
    if (kvcl_stream_pos(&pull->dst) != pos) {
        kvcl_stream_seek(&pull->dst, pos);
    }
    return kvcl_stream_iov(&pull->dst, iov, max, left, &left);
}

static void placed(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_lane_frame_t *frame, uint32_t n)
{
    kvcl_pull_t *pull = find_by_frame(ctx, peer, frame);

    if (pull != NULL) {
        pull->received += n;
    }
}

/* A lane keeps the order of its frames: no byte is left. */
static void notified(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_lane_frame_t *frame, const void *payload)
{
    kvcl_msg_pull_done_t in = {.msg = {.type = KVCL_MSG_PULL_DONE, .op = frame->op}, .status = frame->status,
                               .n = frame->len / (uint32_t)sizeof(int32_t)};
    kvcl_pull_t          *pull = find_by_frame(ctx, peer, frame);

    if ((pull != NULL) && (frame->status == KVCL_OK) && (pull->received != pull->total)) {
        kvcl_am_malformed(ctx, peer, "the end of a lane's transfer before all its data");
        kvcl_pull_finish(pull, KVCL_ERR_PROTOCOL);
        return;
    }
    kvcl_pull_on_done(ctx, peer, &in.msg, sizeof(in), payload, frame->len);
}

static void query_again(kvcl_pull_t *pull)
{
    kvcl_msg_credit_t stop = {.msg = {.type = KVCL_MSG_PULL_STOP, .op = pull->req.id}};

    if (kvcl_peer_post(pull->peer, &stop.msg, sizeof(stop), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: PULL_STOP is not sent", pull->peer->name);
    }
    kvcl_req_unpublish(&pull->req);
    pull->by_lane  = false;
    pull->received = pull->uncredited = 0;
    kvcl_pull_request(pull);
}

static kvcl_pull_t *first_by_lane(const kvcl_peer_t *peer)
{
    kvcl_req_t  *req;
    kvcl_pull_t *pull;

    kvcl_list_foreach (req, &peer->reqs, kvcl_req_t, peer_link) {
        pull = kvcl_pull_of(req);
        if ((pull != NULL) && pull->by_lane && (pull->state == KVCL_PULL_SERVED)) {
            return pull;
        }
    }
    return NULL;
}

/* A new request may end other pulls: search from the first each time. */
static void lost(kvcl_context_h ctx, kvcl_peer_t *peer, bool in)
{
    kvcl_pull_t *pull;

    if (!in) {
        kvcl_xfer_state(ctx)->server->lane_lost(ctx, peer);
        return;
    }
    while ((pull = first_by_lane(peer)) != NULL) {
        query_again(pull);
    }
}

const kvcl_lane_user_t kvcl_pull_lane_user = {.place = place, .placed = placed, .notified = notified, .lost = lost};
