/*
 * What an authenticated peer may send: a context that has shaken hands with itself over loop receives headers and
 * payloads of every type, whole or cut off, replies included. Regions, caches, a store, communicators and operations in
 * flight exist as targets. Nothing may crash, leak or keep the context busy. messages_store.h has the store's part:
 * requests of each kind, and requests of the context's own, which forged replies may answer.
 *
 * An input is a sequence of messages: a byte for the type, one that selects the fields to make plausible, one for the
 * flags (or the header's length), one for the payload's length, and the bytes of both. Some messages travel in a bundle
 * (is_bundled).
 *
 * A cache and a region belong to others: the peer may read the cache, and was given no right to write either. After
 * each input their bytes must be the ones that the context wrote. At its end the process prints how many messages it
 * delivered.
 *
 * A context that a message has ended is replaced. Each takes three of the 65,535 numbers that a process has for caches,
 * so a long run restarts the process after some 100,000 inputs (libFuzzer: -runs).
 */
#include "config.h"
#include "base/error.h"
#include "core/comm.h"
#include "join/meet.h"
#include "core/context.h"
#include "wire/handshake.h"
#include "cache/cache.h"
#include "kv/pieces.h"
#include "mem/region.h"
#include "coll/coll_wire.h"
#include "notify/notify.h"
#include "xfer/xfer_wire.h"
#include "messages_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES_MAX = 64, HDR_MAX = 255, INPUTS_MAX = 2000, PASSES_MAX = 10000, OTHERS_BLOCKS = 16 };

typedef struct world {
    kvcl_context_h ctx;
    kvcl_peer_t    *peer; /* the context itself */
    kvcl_comm_h    comm;
    kvcl_region_t  *region;
    kvcl_cache_h   cache;
    kvcl_store_h   store;
    kvcl_cache_h   others;         /* the peer may read it, */
    kvcl_region_t  *others_region; /* and has no key of this */
    kvcl_req_h     recv;  /* from any source, at any time: bytes of tag 1, */
    kvcl_req_h     take;  /* blocks of tag 0 */
    kvcl_req_h     give;  /* a layer-wise send of tag 2, whose layer is ready */
    char           in[512];
    unsigned       inputs;
} world_t;

static world_t  world;
static uint64_t messages; /* delivered by this process */

static const uint8_t types[] = {
#define X(_name, _value) _value,
    KVCL_MSG_MAP(X)
#undef X
};

static void must(int truth)
{
    if (!truth) {
        fprintf(stderr, "%s\n", kvcl_last_error());
        abort();
    }
}

static kvcl_status_t no_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len)
{
    (void)reply;
    must((hdr != NULL) && (hdr_len == sizeof(kvcl_hs_msg_t)));
    return KVCL_OK;
}

static const kvcl_xport_ops_t no_ops = {.size = sizeof(no_ops), .name = "fuzz", .reply = no_reply};

static void is_ready(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    (void)waiter;
    must(status == KVCL_OK);
}

static void shake_hands(void)
{
    kvcl_peer_waiter_t waiter = {.fn = is_ready};
    kvcl_status_t      status;

    kvcl_lock(world.ctx);
    must(kvcl_peer_by_address(world.ctx, world.ctx->address, world.ctx->address_len, &world.peer) == KVCL_OK);
    status = kvcl_peer_ready(world.peer, &waiter);
    kvcl_unlock(world.ctx);
    must((status == KVCL_OK) || (status == KVCL_INPROGRESS));
    while (world.peer->state != KVCL_PEER_READY) {
        (void)kvcl_progress(world.ctx);
    }
}

static bool is_free(kvcl_req_h *req)
{
    if ((*req != NULL) && (kvcl_req_test(*req) == KVCL_INPROGRESS)) {
        return false;
    }
    *req = NULL;
    return true;
}

static void listen_again(void)
{
    static const uint32_t ids[]  = {3, 1};
    kvcl_sel_t            sel    = {.blocks = ids, .n_blocks = 2};
    kvcl_xfer_params_t    params = KVCL_XFER_PARAMS_INIT;

    params.flags = KVCL_LAYERWISE;
    if (is_free(&world.recv)) {
        must(kvcl_recv_bytes(world.comm, KVCL_ANY_SOURCE, 1, world.in, sizeof(world.in), NULL, &world.recv) !=
             KVCL_ERR_INVALID_PARAM);
    }
    if (is_free(&world.take)) {
        must(kvcl_recv(world.comm, KVCL_ANY_SOURCE, 0, world.cache, &sel, NULL, &world.take) != KVCL_ERR_INVALID_PARAM);
    }
    if (is_free(&world.give)) {
        must(kvcl_send(world.comm, 0, 2, world.cache, &sel, &params, &world.give) != KVCL_ERR_INVALID_PARAM);
        must((world.give == NULL) || (kvcl_req_layer_ready(world.give, 0) <= KVCL_OK));
    }
}

static void stop(kvcl_req_h *req)
{
    if (*req != NULL) {
        kvcl_req_cancel(*req);
        (void)!kvcl_req_wait(*req, UINT64_C(1000000000));
        *req = NULL;
    }
}

/* What the others' blocks and their region must contain. */
static uint8_t others_bytes[OTHERS_BLOCKS * BLOCK];

static void others_begin(void)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(OTHERS_BLOCKS, BLOCK);
    size_t        i;

    must(kvcl_cache_create(world.ctx, "others", &layout, NULL, &world.others) == KVCL_OK);
    must(kvcl_region_create(world.ctx, NULL, sizeof(others_bytes), NULL, &world.others_region) == KVCL_OK);
    for (i = 0; i < sizeof(others_bytes); ++i) {
        others_bytes[i] = (uint8_t)(1 + (i * 37) % 251);
    }
    memcpy(world.others->regions[0]->addr, others_bytes, sizeof(others_bytes));
    memcpy(world.others_region->addr, others_bytes, sizeof(others_bytes));
}

static void others_unchanged(void)
{
    if ((memcmp(world.others->regions[0]->addr, others_bytes, sizeof(others_bytes)) != 0) ||
        (memcmp(world.others_region->addr, others_bytes, sizeof(others_bytes)) != 0)) {
        fprintf(stderr, "a message has changed the others' memory\n");
        abort();
    }
}

static void print_messages(void)
{
    fprintf(stderr, "fuzz_messages: %" PRIu64 " messages delivered\n", messages);
}

static void begin(void)
{
    static bool printing;

    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};
    kvcl_init_params_t        params   = KVCL_INIT_PARAMS_INIT;
    kvcl_layout_t             layout   = KVCL_LAYOUT_BYTES(16, BLOCK);

    if (!printing) {
        must(atexit(print_messages) == 0);
        printing = true;
    }
    (void)setenv("KVCL_LOG", "error", 0);
    (void)setenv("KVCL_STORE_NVME", "", 1);
    memset(&world, 0, sizeof(world));
    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    must(kvcl_init(&params, &world.ctx) == KVCL_OK);
    must(kvcl_comm_world(world.ctx, &world.comm) == KVCL_OK);
    must(kvcl_region_create(world.ctx, NULL, 4096, NULL, &world.region) == KVCL_OK);
    must(kvcl_cache_create(world.ctx, "fuzz", &layout, &writable, &world.cache) == KVCL_OK);
    must(open_store(world.comm, world.cache, &world.store) == KVCL_OK);
    others_begin();
    shake_hands();
}

static void end(void)
{
    stop(&world.recv);
    stop(&world.take);
    stop(&world.give);
    kvcl_store_close(world.store);
    kvcl_cache_destroy(world.cache);
    kvcl_cache_destroy(world.others);
    must(kvcl_region_destroy(world.region));
    must(kvcl_region_destroy(world.others_region));
    kvcl_finalize(world.ctx);
    memset(&world, 0, sizeof(world));
}

/* Ids of operations that could exist: the last few, or one that does not. */
static uint64_t some_op(uint8_t seed)
{
    uint64_t last = world.ctx->engine.next_id;

    return (seed % 8 == 7) ? seed : (last > seed % 8) ? last - seed % 8 : last;
}

static void plausible_send(kvcl_msg_t *msg, uint8_t seed, size_t len)
{
    kvcl_msg_send_t   *send   = (kvcl_msg_send_t *)(void *)msg;
    kvcl_msg_layers_t *layers = (kvcl_msg_layers_t *)(void *)msg;

    if (msg->type == KVCL_MSG_LAYERS) {
        layers->status = (seed & 8) ? 0 : layers->status;
        layers->n      = (uint32_t)(len / sizeof(kvcl_layer_group_t));
        return;
    }
    send->comm   = world.comm->id;
    send->tag   &= 1;
    send->source = 0;
    send->len    = (msg->flags & KVCL_SEND_EAGER) ? len : send->len % 1024;
    if (seed & 8) { /* as the recv of blocks expects it */
        send->tag       = 0;
        send->token     = (kvcl_token_t){0};
        send->len       = 128;
        send->layers[0] = 0;
        send->layers[1] = 1;
        send->cache     = world.cache->id;
        send->n_blocks  = len / 4;
    }
}

/* Of a quarter of the numbers the others'. */
static uint32_t some_cache(uint32_t number)
{
    return ((number & 6) == 6) ? world.others->id : world.cache->id;
}

static uint32_t some_region(uint32_t number)
{
    if ((number & 6) == 6) {
        return world.others_region->id;
    }
    return ((number & 6) == 4) ? world.others->regions[0]->id : world.region->id;
}

/* n pieces, most of which lie in the region; rest: so many bytes in all, or 0. @return the sum of their lengths. */
static uint64_t plausible_pieces(uint8_t *payload, size_t n, uint64_t rest)
{
    kvcl_wire_piece_t piece;
    uint64_t          sum = 0;
    size_t            i;

    for (i = 0; i < n; ++i) {
        memcpy(&piece, payload + (i * sizeof(piece)), sizeof(piece));
        piece.offset %= 4200;
        piece.len     = (rest == 0) ? piece.len % 600 : (i + 1 == n) ? rest - sum : rest / n;
        sum          += piece.len;
        memcpy(payload + (i * sizeof(piece)), &piece, sizeof(piece));
    }
    return sum;
}

static void plausible_pull(kvcl_msg_pull_t *pull, uint8_t seed, uint8_t *payload, size_t len)
{
    pull->from     = (uint8_t)(1 + pull->from % 4);
    pull->target   = (pull->from == KVCL_FROM_CACHE) ? some_cache(pull->order) : some_region(pull->order);
    pull->order   &= 1;
    pull->key      = (pull->from == KVCL_FROM_OFFER) ? some_op(seed) : world.region->keys[0];
    pull->offset  %= 5000;
    pull->n_blocks = len / 4;
    pull->len      = (pull->from == KVCL_FROM_CACHE) ? 64 * pull->n_blocks : pull->len % 5000;
    if (pull->from == KVCL_FROM_PIECES) {
        pull->n_blocks = len / sizeof(kvcl_wire_piece_t);
        pull->len      = plausible_pieces(payload, pull->n_blocks, 0);
    }
    if (seed & 8) {
        pull->layers[0] = pull->heads[0] = 0;
        pull->layers[1] = pull->heads[1] = 1;
    }
}

static void plausible_put(kvcl_msg_put_t *put, uint8_t seed, uint8_t *payload, size_t len)
{
    bool cache = (put->msg.flags & KVCL_PUT_CACHE), eager = (put->msg.flags & KVCL_PUT_EAGER);

    put->target        = cache ? some_cache(put->order) : some_region(put->order);
    put->key           = world.region->keys[1];
    put->offset       %= 5000;
    put->n_blocks      = !cache ? 0 : eager ? len / 68 : len / 4;
    put->len           = cache ? 64 * put->n_blocks : eager ? len : put->len % 5000;
    if (!cache && (put->msg.flags & KVCL_PUT_PIECES)) { /* eager: the second half is the bytes */
        put->n_blocks = (eager ? len / 2 : len) / sizeof(kvcl_wire_piece_t);
        put->len      = plausible_pieces(payload, put->n_blocks,
                                         eager ? len - (put->n_blocks * sizeof(kvcl_wire_piece_t)) : 0);
    }
    put->signal_region = some_region(put->order >> 2);
    put->order        &= 1;
    put->signal_key    = world.region->keys[1];
    put->signal_offset %= 5000;
    if (seed & 8) {
        put->layers[0] = put->heads[0] = 0;
        put->layers[1] = put->heads[1] = 1;
    }
}

static void plausible_coll(kvcl_msg_coll_t *coll)
{
    coll->comm = world.comm->id;
    coll->rank = 0;
    coll->kind = coll->kind % 5;
    coll->seq %= 8;
    coll->k   %= 8;
}

static void plausible(kvcl_msg_t *msg, uint8_t seed, uint8_t *payload, size_t *len_p)
{
    size_t len = *len_p;

    switch (msg->type) {
    case KVCL_MSG_PULL:
        plausible_pull((kvcl_msg_pull_t *)(void *)msg, seed, payload, len);
        break;
    case KVCL_MSG_PUT:
        plausible_put((kvcl_msg_put_t *)(void *)msg, seed, payload, len);
        break;
    case KVCL_MSG_SIGNAL: {
        kvcl_msg_signal_t *signal = (kvcl_msg_signal_t *)(void *)msg;
        signal->region  = some_region((uint32_t)signal->offset);
        signal->key     = world.region->keys[1];
        signal->offset %= 5000;
        break;
    }
    case KVCL_MSG_NOTIFY:
        ((kvcl_msg_notify_t *)(void *)msg)->comm = world.comm->id;
        break;
    case KVCL_MSG_SEND:
    case KVCL_MSG_LAYERS:
        plausible_send(msg, seed, len);
        break;
    case KVCL_MSG_COLL:
        plausible_coll((kvcl_msg_coll_t *)(void *)msg);
        break;
    case KVCL_MSG_CONNECT: {
        kvcl_msg_connect_t *connect = (kvcl_msg_connect_t *)(void *)msg;
        connect->kind %= 4;
        connect->n    %= 4;
        break;
    }
    case KVCL_MSG_DIR_REQUEST:
        plausible_request((kvcl_msg_dir_request_t *)(void *)msg, world.store, (seed & 8) != 0, payload, len_p);
        break;
    case KVCL_MSG_DIR_ANSWER: {
        kvcl_msg_dir_answer_t *answer = (kvcl_msg_dir_answer_t *)(void *)msg;
        answer->status = (seed & 8) || (answer->status == KVCL_ERR_NOT_FOUND) ? KVCL_OK : answer->status;
        answer->n      = (answer->n & 1) ? 2 : answer->n;
        break;
    }
    case KVCL_MSG_WITHDRAW: {
        kvcl_msg_withdraw_t *withdraw = (kvcl_msg_withdraw_t *)(void *)msg;
        withdraw->store = world.store->id;
        withdraw->n     = (uint32_t)(len / sizeof(kvcl_store_rec_t));
        break;
    }
    case KVCL_MSG_DESCRIBE:
    case KVCL_MSG_DESCRIPTION: {
        kvcl_msg_description_t *description = (kvcl_msg_description_t *)(void *)msg;
        description->status    = 0;
        description->id        = world.cache->id;
        description->n_regions &= 3;
        break;
    }
    default:
        break;
    }
}

static void plausible_handshake(kvcl_hs_msg_t *hs, uint8_t seed, const void *data, size_t len)
{
    memcpy(hs->ids.uuid_a, world.ctx->uuid, 16);
    memcpy(hs->ids.uuid_b, world.ctx->uuid, 16);
    memcpy(hs->ids.nonce_a, world.peer->nonce, 16);
    if (seed & 8) { /* a peer with the secret sends anything */
        const char *role = (hs->msg.type == KVCL_MSG_PROOF) ? "A" : (hs->msg.type == KVCL_MSG_WELCOME) ? "W" : "B";
        uint32_t   part  = (hs->msg.type == KVCL_MSG_PROOF) ? hs->part : 0;
        uint32_t   session = (hs->msg.type == KVCL_MSG_CHALLENGE) ? 0 : hs->session;
        kvcl_hs_mac(world.ctx->secret, role, &hs->ids, hs->index, part, session, data, len, hs->mac);
    }
}

static void deliver(const void *hdr, size_t hdr_len, const void *payload, size_t len)
{
    kvcl_xport_t       none  = {.ops = &no_ops};
    kvcl_xport_reply_t reply = {.xport = &none};

    ++messages;
    kvcl_lock(world.ctx);
    kvcl_am_recv(world.ctx, hdr, hdr_len, payload, len, &reply);
    kvcl_unlock(world.ctx);
}

static bool is_bundled(uint8_t how)
{
    return (how & 0xe0) == 0x60;
}

/* The same message as the only one of a bundle. */
static void deliver_bundled(const kvcl_msg_t *msg, const void *hdr, size_t hdr_len, const void *payload, size_t len)
{
    kvcl_msg_t bundle = *msg;
    uint32_t   lens[] = {(uint32_t)hdr_len, (uint32_t)len};
    size_t     whole  = (sizeof(lens) + hdr_len + len + 7) & ~(size_t)7;
    uint8_t    *bytes = calloc(1, whole);

    must(bytes != NULL);
    memcpy(bytes, lens, sizeof(lens));
    memcpy(bytes + sizeof(lens), hdr, hdr_len);
    if (len > 0) {
        memcpy(bytes + sizeof(lens) + hdr_len, payload, len);
    }
    bundle.type  = KVCL_MSG_BUNDLE;
    bundle.flags = 0;
    deliver(&bundle, sizeof(bundle), bytes, whole);
    free(bytes);
}

/* Of exactly len bytes, so that a sanitizer detects a read past them. */
static uint8_t *cut(uint8_t *payload, size_t len)
{
    uint8_t *shorter = realloc(payload, (len > 0) ? len : 1);

    must(shorter != NULL);
    return shorter;
}

/* Return the number of bytes used. */
static size_t message(const uint8_t *data, size_t size)
{
    uint8_t            type = types[data[0] % sizeof(types)], how = data[1];
    size_t             hdr_len, len = data[3], at = 4, n;
    _Alignas(8) uint8_t full[sizeof(kvcl_hs_msg_t) + HDR_MAX];
    kvcl_msg_t         *msg = (kvcl_msg_t *)(void *)full;
    uint8_t            *hdr, *payload;

    if ((how & 0xf0) == 0xf0) {
        type = data[0]; /* any */
    }
    if ((type == KVCL_MSG_BYE) && (how % 64 != 0)) {
        type = KVCL_MSG_SEND; /* a BYE is slow, since a new context follows it */
    }
    if (how & 4) {
        hdr_len = data[2]; /* cut off, or too long */
    } else if ((type >= KVCL_MSG_HELLO) && (type <= KVCL_MSG_REFUSE)) {
        hdr_len = sizeof(kvcl_hs_msg_t);
    } else {
        hdr_len = (type <= KVCL_MSG_LAST) ? world.ctx->handlers[type].min_hdr : sizeof(*msg);
        hdr_len = (hdr_len < sizeof(*msg)) ? sizeof(*msg) : hdr_len;
    }
    memset(full, 0, sizeof(full));
    n = (hdr_len > sizeof(*msg)) ? hdr_len - sizeof(*msg) : 0;
    n = (size - at < n) ? size - at : n;
    memcpy(full + sizeof(*msg), data + at, n);
    at += n;
    len = (size - at < len) ? size - at : len;
    payload = malloc((len > 0) ? len : 1); /* both of exact length: a sanitizer detects a read past them */
    must(payload != NULL);
    memcpy(payload, data + at, len);
    at += len;
    msg->magic   = KVCL_WIRE_MAGIC;
    msg->version = KVCL_WIRE_VERSION;
    msg->type    = type;
    msg->flags   = data[2];
    msg->peer    = world.peer->index;
    msg->token   = world.peer->in_tokens[0];
    if (how & 1) {
        msg->op = some_op(how >> 4);
    }
    if ((how & 2) && (type >= KVCL_MSG_HELLO) && (type <= KVCL_MSG_REFUSE)) {
        plausible_handshake((kvcl_hs_msg_t *)(void *)full, how, payload, len);
    } else if (how & 2) {
        plausible(msg, how, payload, &len);
        payload = cut(payload, len);
    }
    hdr = aligned_alloc(8, (hdr_len + 8) & ~(size_t)7);
    must(hdr != NULL);
    memcpy(hdr, full, hdr_len);
    if (is_bundled(how)) {
        deliver_bundled(msg, hdr, hdr_len, payload, len);
    } else {
        deliver(hdr, hdr_len, payload, len);
    }
    free(hdr);
    free(payload);
    return at;
}

/* Run until the context has no more messages to send itself. */
static void settle(void)
{
    kvcl_xport_t *xport = world.ctx->engine.xports[0];
    unsigned     i, idle = 0;

    for (i = 0; idle < 3; ++i) {
        kvcl_lock(world.ctx);
        idle = (xport->ops->progress(xport) > 0) ? 0 : idle + 1;
        kvcl_unlock(world.ctx);
        (void)kvcl_progress(world.ctx);
        must(i < PASSES_MAX);
    }
}

/* Found once: an ABORT of a collective unknown to both sides was answered with another, for ever. */
static void unknown_abort(void)
{
    kvcl_msg_coll_t    gone = {.msg = {.type = KVCL_MSG_COLL}, .comm = 99, .kind = KVCL_COLL_ABORT};
    kvcl_xport_t       none     = {.ops = &no_ops};
    kvcl_xport_reply_t reply    = {.xport = &none};

    gone.msg.magic   = KVCL_WIRE_MAGIC;
    gone.msg.version = KVCL_WIRE_VERSION;
    gone.msg.peer    = world.peer->index;
    gone.msg.token   = world.peer->in_tokens[0];
    kvcl_lock(world.ctx);
    kvcl_am_recv(world.ctx, &gone, sizeof(gone), NULL, 0, &reply);
    kvcl_unlock(world.ctx);
    settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t   at = 0;
    unsigned n;

    if (world.ctx == NULL) {
        begin();
        unknown_abort();
    }
    listen_again();
    if ((size > 0) && (data[size - 1] & 1)) {
        kvcl_lock(world.ctx);
        must(post_own(world.store, world.peer, data[size - 1] >> 1));
        kvcl_unlock(world.ctx);
    }
    for (n = 0; (n < MESSAGES_MAX) && (size - at >= 4); ++n) {
        at += message(data + at, size - at);
    }
    settle();
    others_unchanged();
    if ((world.peer->state == KVCL_PEER_FAILED) || (++world.inputs == INPUTS_MAX)) {
        end();
    }
    return 0;
}
