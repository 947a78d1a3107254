/*
 * The bytes of a matched send (p2p_recv.h): the check that they fit, then a copy, a read of the sender's memory
 * (near/near.h), a pull, or a pull layer by layer.
 *
 * Owns: a recv's pull, its read and its layers, from the match on. Invariant: the message is hostile; its lengths and
 * layout are compared with the recv's before a byte is copied. Locks: the engine lock.
 */
#include "config.h"
#include "p2p/p2p.h"
#include "p2p/p2p_recv.h"
#include "p2p/p2p_words.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structs.h"
#include "xfer/describe.h"
#include "xfer/params.h"
#include "xfer/xfer.h"
#include "weave/user_memory.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { CHECK_MIN = 128 << 10 };

void kvcl_p2p_recv_finish(kvcl_p2p_recv_t *recv, kvcl_status_t status)
{
    if (recv->peer != NULL) {
        kvcl_p2p_send_done(recv->peer, recv->msg.msg.op, status);
    }
    recv->req.timing.bytes = (status == KVCL_OK) ? recv->msg.len : 0;
    kvcl_req_complete(&recv->req, status);
}

static void recv_pulled(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_p2p_recv_t *recv = pull->arg;

    recv->pull = NULL;
    if ((status == KVCL_ERR_ACCESS) && (recv->cache == NULL)) {
        kvcl_req_why(&recv->req, "the sender's buffer is not mapped any more: keep it until the send completes");
    } else if (status < 0) {
        kvcl_req_take_why(&recv->req, &pull->req);
    }
    kvcl_p2p_recv_finish(recv, status);
}

static kvcl_status_t buffer_is_bad(kvcl_p2p_recv_t *recv)
{
    kvcl_req_why(&recv->req, "the buffer of %llu bytes is not writable memory: keep it mapped and writable until the "
                 "recv completes", (unsigned long long)recv->cap);
    return KVCL_ERR_ACCESS;
}

/* Both ends of it: the messages of a pull are copied here, and a failed copy is a signal. */
static bool is_writable(const kvcl_p2p_recv_t *recv)
{
    return (recv->cache != NULL) || (recv->msg.len < CHECK_MIN) ||
           (kvcl_is_writable(recv->buf) && kvcl_is_writable((char *)recv->buf + (recv->msg.len - 1)));
}

/* One size of blocks must divide the other. The sender's numbers are hostile. */
static bool blocks_fit(const kvcl_p2p_recv_t *recv)
{
    const kvcl_msg_send_t *msg = &recv->msg;
    uint32_t              each = recv->cache->shape.tokens;

    return (msg->unit != 0) && ((msg->each % msg->unit) == 0) && (msg->each != 0) &&
           (((msg->each % each) == 0) || ((each % msg->each) == 0));
}

static bool tokens_fit(const kvcl_p2p_recv_t *recv)
{
    kvcl_token_t token = kvcl_token_of(&recv->cache->shape, &recv->sel);

    return memcmp(&token, &recv->msg.token, sizeof(token)) == 0;
}

static kvcl_status_t fits(kvcl_p2p_recv_t *recv)
{
    const kvcl_msg_send_t *msg = &recv->msg;
    char                  text[KVCL_ERROR_MAX];

    if ((recv->cache != NULL) && (msg->token.layers != 0) && (!tokens_fit(recv) || !blocks_fit(recv))) {
        kvcl_req_why(&recv->req, "%s", kvcl_describe_layouts(msg, recv->cache, &recv->sel, text, sizeof(text)));
        return KVCL_ERR_BAD_LAYOUT;
    }
    if ((recv->cache != NULL) ? (msg->len != recv->cap) : (msg->len > recv->cap)) {
        kvcl_req_why(&recv->req, "%s",
                     kvcl_describe_sizes(msg, recv->cache, &recv->sel, recv->cap, text, sizeof(text)));
        return KVCL_ERR_TRUNCATED;
    }
    return KVCL_OK;
}

static kvcl_status_t recv_copy(kvcl_p2p_recv_t *recv, const void *data)
{
    uint32_t      unit   = kvcl_send_unit(&recv->msg, recv->cache, &recv->sel);
    kvcl_status_t status = KVCL_OK;
    kvcl_stream_t stream;
    kvcl_side_t   side;

    if (recv->cache == NULL) {
        kvcl_copy_bytes(recv->buf, data, (size_t)recv->msg.len);
    } else {
        side = kvcl_cache_side(recv->cache, &recv->sel);
        if ((unit == 0) || (unit == recv->msg.unit)) {
            kvcl_stream_init_units(&stream, &side, KVCL_STREAM_CANONICAL, unit);
            if (kvcl_stream_scatter(&stream, data, (size_t)recv->msg.len) != recv->msg.len) {
                status = KVCL_ERR_IO;
            }
        } else { /* the sender's blocks are larger */
            status = kvcl_runs_unpack(&side, data, recv->msg.unit);
        }
    }
    if (status == KVCL_OK) {
        recv->req.ctx->stats.bytes_in += recv->msg.len;
    }
    return status;
}

/* The pull of a matched send: from the sender's cache if it can be mapped here, else from its offer. */
static kvcl_status_t recv_pull(kvcl_p2p_recv_t *recv, const void *data, size_t len)
{
    const kvcl_msg_send_t *msg   = &recv->msg;
    kvcl_pull_t           *pull  = kvcl_pull_new();
    kvcl_status_t         status = (pull != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
    uint32_t              *ids;

    if (status != KVCL_OK) {
        return status;
    }
    if (!is_writable(recv)) {
        kvcl_pull_discard(pull);
        return buffer_is_bad(recv);
    }
    pull->peer    = recv->peer;
    pull->from    = KVCL_FROM_OFFER;
    pull->offer   = msg->offer;
    pull->unit    = kvcl_send_unit(msg, recv->cache, &recv->sel);
    pull->total   = msg->len;
    pull->buf     = recv->buf;
    pull->on_done = recv_pulled;
    pull->arg     = recv;
    if (recv->cache != NULL) {
        status = kvcl_pull_set_local(pull, recv->cache, &recv->sel);
    }
    if ((status == KVCL_OK) && (msg->msg.flags & KVCL_SEND_CACHE)) {
        ids = malloc(len + 1);
        if (ids == NULL) {
            status = KVCL_ERR_NO_MEMORY;
        } else {
            kvcl_copy_bytes(ids, data, len);
            pull->from     = KVCL_FROM_CACHE;
            pull->guarded  = true;
            pull->revoked  = msg->revoked;
            pull->cache_id = msg->cache;
            pull->remote   = (kvcl_sel_t){.blocks = ids, .n_blocks = (size_t)msg->n_blocks,
                                          .layers = {msg->layers[0], msg->layers[1]},
                                          .heads = {msg->heads[0], msg->heads[1]},
                                          .tokens = {msg->tokens[0], msg->tokens[1]}};
        }
    }
    if (status == KVCL_OK) {
        recv->pull = pull;
        status     = kvcl_pull_start(recv->req.ctx, pull, UINT64_MAX);
    }
    if (status != KVCL_OK) {
        recv->pull = NULL;
        kvcl_pull_discard(pull);
    }
    return status;
}

/* The sender's own memory was read, or could not be: then its offer is pulled. */
static void near_done(kvcl_near_read_t *near, kvcl_status_t status)
{
    kvcl_p2p_recv_t *recv = kvcl_container_of(near, kvcl_p2p_recv_t, near);

    if (recv->stopped != KVCL_OK) {
        kvcl_p2p_recv_finish(recv, recv->stopped);
        return;
    }
    if (status == KVCL_ERR_INVALID_PARAM) {
        kvcl_p2p_recv_finish(recv, buffer_is_bad(recv));
        return;
    }
    if (status == KVCL_OK) {
        recv->req.ctx->stats.bytes_in     += recv->msg.len;
        recv->req.ctx->stats.bytes_native += recv->msg.len;
        kvcl_p2p_recv_finish(recv, KVCL_OK);
        return;
    }
    kvcl_log_debug("%s: reading its memory failed (%s): it serves the bytes", recv->peer->name,
                   kvcl_status_text(status));
    status = recv_pull(recv, NULL, 0);
    if (status != KVCL_OK) {
        kvcl_p2p_recv_finish(recv, status);
    }
}

/* data: the description, or nothing. False: not this way. */
static bool recv_near(kvcl_p2p_recv_t *recv, const void *data, size_t len)
{
    const kvcl_rma_table_t *table = &kvcl_xfer_state(recv->req.ctx)->rma_table;
    kvcl_near_wire_t       from;

    if (!(recv->msg.msg.flags & KVCL_SEND_NEAR) || (recv->cache != NULL) || (len != sizeof(from)) ||
        !kvcl_rma_table_native(table, "cma", recv->msg.len, 1)) {
        return false;
    }
    memcpy(&from, data, sizeof(from));
    recv->near.done = near_done;
    if (kvcl_near_start(&recv->near, recv->peer, &from, 0, recv->buf, (size_t)recv->msg.len) != KVCL_OK) {
        return false;
    }
    kvcl_timing_path(&recv->req.timing, KVCL_MEM_PATH_NATIVE);
    return true;
}

static void layers_ended(kvcl_layers_in_t *in, kvcl_status_t status)
{
    kvcl_p2p_recv_finish(in->owner, status);
}

static void recv_layers(kvcl_p2p_recv_t *recv, const void *data, size_t len)
{
    kvcl_layers_in_t *in;
    kvcl_status_t    status = kvcl_req_publish(&recv->req);

    if (status == KVCL_OK) {
        in = kvcl_layers_in_new(recv->req.ctx, recv->peer, &recv->msg, data, len, recv->cache, &recv->sel, recv->buf,
                                &status);
    }
    if (status != KVCL_OK) {
        kvcl_p2p_recv_finish(recv, status);
        return;
    }
    in->owner    = recv;
    in->ended    = layers_ended;
    recv->layers = in;
    kvcl_layers_in_begin(in, recv->req.id);
}

void kvcl_p2p_recv_take(kvcl_p2p_recv_t *recv, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data,
                        size_t len)
{
    kvcl_status_t status;

    recv->peer = peer;
    recv->msg  = *msg;
    if (recv->info != NULL) {
        const kvcl_recv_info_t info = {.size = sizeof(info), .source = msg->source, .tag = msg->tag, .bytes = msg->len};
        kvcl_struct_out(recv->info, &info, sizeof(info));
    }
    kvcl_req_watch(&recv->req, peer);
    status = fits(recv);
    if (status != KVCL_OK) {
        kvcl_p2p_recv_finish(recv, status);
    } else if (msg->msg.flags & KVCL_SEND_EAGER) {
        kvcl_p2p_recv_finish(recv, recv_copy(recv, data));
    } else if (msg->msg.flags & KVCL_SEND_LAYERS) {
        recv_layers(recv, data, len);
    } else if (!recv_near(recv, data, len)) {
        status = recv_pull(recv, data, len);
        if (status != KVCL_OK) {
            kvcl_p2p_recv_finish(recv, status);
        }
    }
}
