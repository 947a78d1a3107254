/*
 * Every message handler, before a peer that has proven the secret and then says anything: descriptions of caches and
 * regions, pulls, puts, sends, their ends, collectives, the directory. The context has things in flight with that peer
 * whose ids are small numbers, and memory that was exported to it; half of the inputs name them rightly.
 * Input: type, flags, op, how the header is mended, header length, then the header's own fields and the payload.
 */
#include "config.h"
#include "base/rand.h"
#include "core/xport_loop.h"
#include "kv/cache.h"
#include "mem/rmem.h"
#include "test/unit/test_core.h"
#include "xfer/xfer_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PER_CONTEXT = 400, HDR_MAX = 160, CACHE_BLOCKS = 8, BLOCK = 96 };

static kvcl_context_h ctx;
static stranger_t     s;
static kvcl_comm_h    comm;
static kvcl_cache_h   cache;
static kvcl_mem_h     mem;
static kvcl_rmem_h    rmem;
static unsigned       used;
static char           sink[4096];

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

static void ok(kvcl_status_t status)
{
    require(status == KVCL_OK);
}

/* What the peer may answer to: every kind of operation, detached. */
static void post_some(void)
{
    static const uint32_t ids[] = {1, 2};
    kvcl_sel_t            sel   = {.blocks = ids, .n_blocks = 2};
    kvcl_xfer_params_t    named = KVCL_XFER_PARAMS_INIT;

    named.remote_cache = "far";
    ok(kvcl_get(comm, 1, cache, &sel, &sel, &named, NULL));
    ok(kvcl_put(comm, 1, cache, &sel, &sel, &named, NULL));
    named.remote_cache = "farther";
    ok(kvcl_get(comm, 1, cache, &sel, &sel, &named, NULL));
    ok(kvcl_get_bytes(rmem, 0, sink, 1024, NULL, NULL));
    ok(kvcl_put_bytes(rmem, 0, sink, 1024, NULL, NULL));
    ok(kvcl_send_bytes(comm, 1, 1, sink, 16, NULL, NULL));
    ok(kvcl_send_bytes(comm, 1, 2, sink, sizeof(sink), NULL, NULL));
    ok(kvcl_send(comm, 1, 3, cache, &sel, NULL, NULL));
    ok(kvcl_recv_bytes(comm, 1, 1, sink, sizeof(sink), NULL, NULL));
    ok(kvcl_recv_bytes(comm, KVCL_ANY_SOURCE, 2, sink, 64, NULL, NULL));
    ok(kvcl_recv(comm, 1, 3, cache, &sel, NULL, NULL));
}

static void begin(void)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(CACHE_BLOCKS, BLOCK);
    kvcl_peer_t   *peer;
    char          desc[KVCL_REGION_DESC_MAX];
    size_t        len = sizeof(desc);

    setenv("KVCL_EAGER", "64", 1);
    setenv("KVCL_LOG", "error", 1);
    kvcl_loop_set_faults(&(kvcl_loop_faults_t){.no_rma = true}); /* what could be mapped is asked for by message */
    ctx = lone_context();
    stranger_open(&s, ctx);
    stranger_enter(&s);
    ok(kvcl_comm_make(ctx, 77, 0, 2, &comm));
    kvcl_lock(ctx);
    ok(kvcl_peer_by_address(ctx, s.address, s.address_len, &peer));
    comm->peers[0] = comm->peers[1] = peer;
    kvcl_unlock(ctx);
    ok(kvcl_cache_create(ctx, "near", &layout, NULL, KVCL_MEM_HOST, &cache));
    ok(kvcl_mem_alloc(ctx, 4096, NULL, &mem));
    ok(kvcl_mem_export(mem, KVCL_READ_WRITE, desc, &len));
    ok(kvcl_rmem_import(comm, 1, desc, len, &rmem));
    post_some();
    stranger_move(&s);
}

static void end(void)
{
    kvcl_msg_t bye = {.magic = KVCL_WIRE_MAGIC, .version = KVCL_WIRE_VERSION, .type = KVCL_MSG_BYE, .peer = s.index,
                      .token = s.token};

    stranger_say(&s, &bye, sizeof(bye), NULL, 0); /* or the context would wait for it when it leaves */
    kvcl_finalize(ctx); /* frees what is left, and says so at the level of warnings */
    stranger_close(&s);
    ctx  = NULL;
    used = 0;
}

/* Put ids and keys right where the input says so: what stands behind their check is reached too. */
static void mend(uint8_t *hdr, uint8_t how, kvcl_msg_t *msg)
{
    kvcl_region_t *region = mem->region;

    switch (msg->type) {
    case KVCL_MSG_PULL: {
        kvcl_msg_pull_t *pull = (kvcl_msg_pull_t *)(void *)hdr;
        pull->from            = (uint8_t)(1 + how % 3);
        pull->target          = (pull->from == KVCL_FROM_CACHE) ? cache->id : region->id;
        pull->key             = (pull->from == KVCL_FROM_REGION) ? region->keys[0] : 1u + how % 8u;
        pull->order           = (how & 64) ? pull->order : KVCL_STREAM_CANONICAL;
        pull->len             = (how & 64) ? pull->len % 5000 : 2 * BLOCK;
        pull->n_blocks        = (how & 32) ? pull->n_blocks % 9 : 2;
        memset(pull->layers, 0, (how & 16) ? 0 : sizeof(pull->layers));
        memset(pull->heads, 0, (how & 16) ? 0 : sizeof(pull->heads));
        break;
    }
    case KVCL_MSG_PUT: {
        kvcl_msg_put_t *put = (kvcl_msg_put_t *)(void *)hdr;
        put->target         = (msg->flags & KVCL_PUT_CACHE) ? cache->id : region->id;
        put->key            = region->keys[1];
        put->len            = (how & 64) ? put->len % 5000 : 2 * BLOCK;
        put->n_blocks       = (how & 32) ? put->n_blocks % 9 : 2;
        put->offset %= 5000;
        put->signal_region = region->id;
        put->signal_key    = region->keys[1];
        put->signal_offset %= 4100;
        memset(put->layers, 0, (how & 16) ? 0 : sizeof(put->layers));
        memset(put->heads, 0, (how & 16) ? 0 : sizeof(put->heads));
        break;
    }
    case KVCL_MSG_SIGNAL: {
        kvcl_msg_signal_t *signal = (kvcl_msg_signal_t *)(void *)hdr;
        signal->region            = region->id;
        signal->key               = region->keys[1];
        signal->offset %= 4100;
        break;
    }
    case KVCL_MSG_SEND: {
        kvcl_msg_send_t *send = (kvcl_msg_send_t *)(void *)hdr;
        send->comm            = comm->id;
        send->source          = 1;
        send->tag             = 1 + how % 4;
        send->len %= 5000;
        send->n_blocks %= 9;
        send->cache = (how & 64) ? cache->id : send->cache;
        break;
    }
    case KVCL_MSG_DATA:
        ((kvcl_msg_data_t *)(void *)hdr)->offset %= 2000;
        break;
    case KVCL_MSG_DESCRIPTION: {
        kvcl_msg_description_t *desc = (kvcl_msg_description_t *)(void *)hdr;
        msg->op                      = kvcl_cache_name_key((how & 1) ? "far" : "farther");
        desc->status                 = (how & 64) ? desc->status : 0;
        break;
    }
    default:
        break;
    }
}

/* A description that is mostly right: of my own cache, as if it were the peer's, with a few bytes changed. */
static size_t describe(uint8_t *buf, size_t cap, const uint8_t *data, size_t size)
{
    size_t at = KVCL_SHAPE_WIRE_BYTES, n, i;

    kvcl_shape_pack(&cache->shape, buf);
    memset(buf + at, 0, 4);
    memcpy(buf + at + 4, &cache->bases[0], 8);
    at += 12;
    n = kvcl_region_pack(cache->gens_region, KVCL_READ, buf + at, cap - at);
    at += n;
    n = kvcl_region_pack(cache->regions[0], KVCL_READ_WRITE, buf + at, cap - at);
    at += n;
    for (i = 0; i + 3 <= size && i < 24; i += 3) {
        buf[((size_t)data[i] * 256 + data[i + 1]) % at] ^= (data[i + 2] % 3 == 0) ? data[i + 2] : 0;
    }
    return at;
}

/* Block ids that exist, and as many bytes behind them as the header says. */
static size_t payload(const kvcl_msg_t *msg, uint8_t *hdr, uint8_t how, uint8_t *buf, const uint8_t *data, size_t size)
{
    uint32_t ids[4] = {how % CACHE_BLOCKS, (how / 8u) % CACHE_BLOCKS, 0, 1};
    size_t   len    = 0;

    if (msg->type == KVCL_MSG_PULL) {
        len = (msg->flags & KVCL_PULL_GENS) ? 16 : 8;
        memcpy(buf, ids, len);
    } else if (msg->type == KVCL_MSG_PUT) {
        len = (msg->flags & KVCL_PUT_CACHE) ? 8 : 0;
        memcpy(buf, ids, len);
        len += (msg->flags & KVCL_PUT_EAGER) ? 2 * BLOCK : 0;
    } else if (msg->type == KVCL_MSG_SEND) {
        kvcl_msg_send_t *send = (kvcl_msg_send_t *)(void *)hdr;
        send->n_blocks        = 2;
        memcpy(buf, ids, 8);
        len = (msg->flags & KVCL_SEND_EAGER) ? (size_t)send->len : (msg->flags & KVCL_SEND_CACHE) ? 8 : 0;
    } else if (msg->type == KVCL_MSG_DATA) {
        len = (how & 32) ? 1024 : 2 * BLOCK; /* the whole of what was asked for, in one */
        ((kvcl_msg_data_t *)(void *)hdr)->offset = 0;
    } else {
        memcpy(buf, data, (size < 4096) ? size : 4096);
        len = (size < 4096) ? size : 4096;
    }
    return len;
}

static const uint8_t types[] = {
    KVCL_MSG_PULL,     KVCL_MSG_PULL,      KVCL_MSG_DATA,   KVCL_MSG_DATA,      KVCL_MSG_PULL_DONE,   KVCL_MSG_CREDIT,
    KVCL_MSG_PULL_STOP, KVCL_MSG_PUT,      KVCL_MSG_PUT,    KVCL_MSG_PUT_DONE,  KVCL_MSG_SEND,        KVCL_MSG_SEND,
    KVCL_MSG_SEND_DONE, KVCL_MSG_SEND_STOP, KVCL_MSG_SIGNAL, KVCL_MSG_SIGNALED, KVCL_MSG_DESCRIPTION, KVCL_MSG_DESCRIBE,
};

static void say(const uint8_t *data, size_t size)
{
    static _Alignas(8) uint8_t hdr[HDR_MAX];
    static uint8_t             desc[8192];
    kvcl_msg_t                 *msg    = (kvcl_msg_t *)(void *)hdr;
    kvcl_xport_reply_t         nowhere = {s.xport};
    uint8_t                    how     = data[3];
    size_t                     hdr_len = sizeof(*msg) + (data[4] % 4 ? HDR_MAX - sizeof(*msg) : data[4] / 2u), fields;

    memset(hdr, 0, sizeof(hdr));
    *msg = (kvcl_msg_t){.magic = KVCL_WIRE_MAGIC, .version = KVCL_WIRE_VERSION, .peer = s.index, .token = s.token,
                        .type = (data[0] & 1) ? types[data[0] / 2u % sizeof(types)]
                                                 : (uint8_t)(KVCL_MSG_BYE + 1 + data[0] % (KVCL_MSG_LAST - KVCL_MSG_BYE)),
                        .flags = data[1] % 16, .op = data[2] % 40};
    data += 5;
    size -= 5;
    fields = (size < HDR_MAX - sizeof(*msg)) ? size : HDR_MAX - sizeof(*msg);
    memcpy(hdr + sizeof(*msg), data, fields);
    if (how & 128) {
        mend(hdr, how, msg);
    }
    data += fields;
    size -= fields;
    kvcl_lock(ctx);
    if ((how & 136) == 136) {
        size = payload(msg, hdr, how, desc, data, size);
        data = desc;
    }
    if ((msg->type == KVCL_MSG_DESCRIPTION) && (how & 32)) {
        size = describe(desc, sizeof(desc), data, size);
        data = desc;
    }
    kvcl_am_recv(ctx, hdr, hdr_len, data, size, &nowhere);
    kvcl_unlock(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvcl_rregion_t rregion;
    size_t         len;

    if (kvcl_region_parse(data, size, &rregion, &len) == KVCL_OK) {
        require((len <= size) && (rregion.addr + rregion.len >= rregion.addr));
    }
    if (size < 5) {
        return 0;
    }
    if (ctx == NULL) {
        begin();
    }
    say(data, size);
    stranger_move(&s);
    if (++used % 50 == 0) {
        post_some();
    }
    if (used == PER_CONTEXT) {
        end();
    }
    return 0;
}
