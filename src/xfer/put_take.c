/*
 * The owner's side of puts (put.h): checks the destination, copies eager bytes or pulls, adds the signal.
 *
 * Owns: a taking_t from PUT to PUT_DONE. Invariants: the message is hostile until checked; the region or cache is held
 * while the pull runs; the memory of the puts that one peer has under way is bounded, since the peer may never serve
 * the pulls. Locks: the engine lock.
 */
#include "config.h"
#include "base/log.h"
#include "mem/rmem.h"
#include "kv/flat.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { TAKING_MAX = 64 << 20 }; /* bytes of a peer's puts */

typedef struct taking {
    size_t             held;    /* counted in peer->taking_bytes */
    kvcl_context_h     ctx;
    kvcl_peer_t        *peer;
    kvcl_msg_put_t     in;
    kvcl_cache_h       cache;   /* counted as in use while the pull runs */
    kvcl_region_t      *region;
    kvcl_region_user_t user;    /* of the region */
    kvcl_pull_t        *pull;
    uint32_t           *ids;    /* owned copy: in the message they may be unaligned, and change */
    kvcl_pieces_t      *pieces; /* owned: of the region; NULL: none */
} taking_t;

static kvcl_status_t add_signal(kvcl_context_h ctx, uint32_t id, uint64_t key, uint64_t offset, uint64_t add)
{
    kvcl_region_t *region;
    kvcl_status_t status = kvcl_region_check(ctx, id, key, KVCL_WRITE, offset, 8, &region);

    if ((status == KVCL_OK) && ((offset % 8) != 0)) {
        status = KVCL_ERR_OUT_OF_RANGE;
    }
    if ((status == KVCL_OK) && (region->copier != NULL)) {
        status = KVCL_ERR_UNSUPPORTED;
    }
    if (status == KVCL_OK) {
        atomic_fetch_add_explicit((_Atomic uint64_t *)((char *)region->addr + offset), add, memory_order_release);
        kvcl_engine_notify(ctx);
    }
    return status;
}

static void answer(kvcl_peer_t *peer, uint8_t type, uint64_t op, kvcl_status_t status)
{
    kvcl_msg_done_t out = {.msg = {.type = type, .op = op}, .status = status};

    if (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: the end of its put is not sent", peer->name);
    }
}

/* The end: signal, answer, free. */
static void taken(taking_t *taking, kvcl_status_t status)
{
    const kvcl_msg_put_t *in = &taking->in;

    if ((status == KVCL_OK) && (in->msg.flags & KVCL_PUT_SIGNAL)) {
        status = add_signal(taking->ctx, in->signal_region, in->signal_key, in->signal_offset, in->signal_add);
    }
    answer(taking->peer, KVCL_MSG_PUT_DONE, in->msg.op, status);
    taking->peer->taking_bytes -= taking->held;
    free(taking->ids);
    free(taking->pieces);
    free(taking);
}

static void take_done(kvcl_pull_t *pull, kvcl_status_t status)
{
    taking_t *taking = pull->arg;

    if (taking->cache != NULL) {
        --taking->cache->serves;
    } else {
        kvcl_region_release(taking->region, &taking->user);
    }
    taken(taking, status);
}

static void revoked(kvcl_region_user_t *user)
{
    kvcl_pull_stop(kvcl_container_of(user, taking_t, user)->pull, KVCL_ERR_ACCESS);
}

/* Pieces of a region, which then have addresses. */
static kvcl_status_t check_pieces(taking_t *taking, const void *data, size_t len, size_t *list_p)
{
    const kvcl_msg_put_t *in    = &taking->in;
    kvcl_status_t        status = kvcl_region_check(taking->ctx, in->target, in->key, KVCL_WRITE, 0, 0,
                                                    &taking->region);

    if (status == KVCL_OK) {
        status  = kvcl_pieces_decode(data, len, in->n_blocks, taking->region->len, in->len, &taking->pieces);
        *list_p = (status == KVCL_OK) ? (size_t)in->n_blocks * sizeof(kvcl_wire_piece_t) : 0;
    }
    if (status == KVCL_OK) {
        kvcl_pieces_move(taking->pieces, (uintptr_t)taking->region->addr);
    }
    return status;
}

/* The destination of the bytes: hostile until checked. */
static kvcl_status_t check_target(taking_t *taking, const void *data, size_t len, kvcl_sel_t *sel, size_t *ids_p)
{
    const kvcl_msg_put_t *in = &taking->in;
    kvcl_side_t          side;
    kvcl_status_t        status;

    *ids_p = 0;
    if ((in->msg.flags & (KVCL_PUT_CACHE | KVCL_PUT_PIECES)) == KVCL_PUT_PIECES) {
        return check_pieces(taking, data, len, ids_p);
    }
    if ((in->msg.flags & KVCL_PUT_CACHE) == 0) {
        return kvcl_region_check(taking->ctx, in->target, in->key, KVCL_WRITE, in->offset, in->len, &taking->region);
    }
    if ((status = kvcl_cache_for_put(taking->ctx, in->target, &taking->cache)) != KVCL_OK) {
        return status;
    }
    if ((in->n_blocks == 0) || (in->n_blocks > len / sizeof(uint32_t))) {
        return KVCL_ERR_PROTOCOL;
    }
    *ids_p      = (size_t)in->n_blocks * sizeof(uint32_t);
    taking->ids = malloc(*ids_p);
    if (taking->ids == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    kvcl_copy_bytes(taking->ids, data, *ids_p);
    *sel   = (kvcl_sel_t){.blocks = taking->ids, .n_blocks = (size_t)in->n_blocks,
                          .layers = {in->layers[0], in->layers[1]}, .heads = {in->heads[0], in->heads[1]},
                          .tokens = {in->tokens[0], in->tokens[1]}};
    side   = kvcl_cache_side(taking->cache, sel);
    if (kvcl_side_check(&side) != KVCL_OK) {
        return KVCL_ERR_OUT_OF_RANGE;
    }
    if ((in->unit != 0) && ((kvcl_sel_unit(side.shape, sel) % in->unit) != 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    return (kvcl_sel_bytes(side.shape, sel) == in->len) ? KVCL_OK : KVCL_ERR_TRUNCATED;
}

static kvcl_status_t take_eager(taking_t *taking, const void *data, size_t len, const kvcl_sel_t *sel)
{
    const kvcl_msg_put_t *in = &taking->in;
    kvcl_stream_t        stream;
    kvcl_side_t          side;

    if (len != in->len) {
        return KVCL_ERR_PROTOCOL;
    }
    if (taking->cache != NULL) {
        side = kvcl_cache_side(taking->cache, sel);
        kvcl_stream_init_units(&stream, &side, KVCL_STREAM_CANONICAL, in->unit);
    } else if (taking->pieces != NULL) {
        kvcl_stream_pieces(&stream, taking->pieces, 0);
    } else {
        kvcl_stream_flat(&stream, (char *)taking->region->addr + in->offset, len);
    }
    if (taking->cache == NULL) {
        stream.copier = taking->region->copier;
    }
    return (kvcl_stream_scatter(&stream, data, len) == len) ? KVCL_OK : KVCL_ERR_IO;
}

static kvcl_status_t take_offered(taking_t *taking, const kvcl_sel_t *sel)
{
    kvcl_pull_t   *pull = kvcl_pull_new();
    kvcl_status_t status = (pull != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;

    if ((status == KVCL_OK) && (taking->cache != NULL)) {
        status = kvcl_pull_set_local(pull, taking->cache, sel);
    }
    if (status == KVCL_OK) {
        pull->peer       = taking->peer;
        pull->from       = KVCL_FROM_OFFER;
        pull->offer      = taking->in.offer;
        pull->unit       = (taking->cache != NULL) ? taking->in.unit : 0;
        pull->total      = taking->in.len;
        pull->buf        = (taking->cache == NULL) ? (char *)taking->region->addr + taking->in.offset : NULL;
        pull->near       = taking->pieces;
        pull->background = (taking->in.msg.flags & KVCL_PUT_BACKGROUND) != 0;
        pull->buf_copier = (taking->cache == NULL) ? taking->region->copier : NULL;
        pull->on_done    = take_done;
        pull->arg        = taking;
        if (taking->cache != NULL) {
            ++taking->cache->serves;
        } else {
            taking->pull         = pull;
            taking->user.revoked = revoked;
            kvcl_region_hold(taking->region, &taking->user);
        }
        status = kvcl_pull_start(taking->ctx, pull, 0);
        if (status == KVCL_OK) {
            return KVCL_INPROGRESS;
        }
        if (taking->cache != NULL) {
            --taking->cache->serves;
        } else {
            kvcl_region_release(taking->region, &taking->user);
        }
    }
    kvcl_pull_discard(pull);
    return status;
}

/* Logged for the first and at each doubling, since a peer can cause as many as it likes. */
static bool has_room(kvcl_peer_t *peer, size_t held)
{
    uint64_t n;

    if ((peer->taking_bytes == 0) || (peer->taking_bytes + held <= TAKING_MAX)) {
        return true;
    }
    n = ++peer->ctx->stats.refused;
    if ((n & (n - 1)) == 0) {
        kvcl_log_warn("%s has puts in progress here that hold %zu bytes: one more is refused (%llu refused so far)",
                      peer->name, peer->taking_bytes, (unsigned long long)n);
    }
    return false;
}

void kvcl_put_on_put(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                     size_t len)
{
    size_t        held    = (msg->flags & KVCL_PUT_EAGER) ? 0 : sizeof(taking_t) + sizeof(kvcl_pull_t) + (2 * len);
    bool          room    = has_room(peer, held);
    taking_t      *taking = room ? calloc(1, sizeof(*taking)) : NULL;
    kvcl_status_t status;
    kvcl_sel_t    sel;
    size_t        ids;

    (void)hdr_len;
    if (taking == NULL) {
        answer(peer, KVCL_MSG_PUT_DONE, msg->op, room ? KVCL_ERR_NO_MEMORY : KVCL_ERR_NO_SPACE);
        return;
    }
    peer->taking_bytes += held;
    taking->held = held;
    taking->ctx  = ctx;
    taking->peer = peer;
    memcpy(&taking->in, msg, sizeof(taking->in));
    status = check_target(taking, data, len, &sel, &ids);
    if (status == KVCL_OK) {
        status = (msg->flags & KVCL_PUT_EAGER) ? take_eager(taking, (const char *)data + ids, len - ids, &sel)
                                               : take_offered(taking, &sel);
    }
    if (status == KVCL_ERR_PROTOCOL) {
        kvcl_am_malformed(ctx, peer, "a put with invalid blocks or length");
    }
    if (status != KVCL_INPROGRESS) {
        taken(taking, status);
    }
}

void kvcl_put_on_signal(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                        size_t len)
{
    const kvcl_msg_signal_t *in = (const kvcl_msg_signal_t *)msg;

    (void)hdr_len;
    (void)data;
    (void)len;
    answer(peer, KVCL_MSG_SIGNALED, msg->op, add_signal(ctx, in->region, in->key, in->offset, in->add));
}
