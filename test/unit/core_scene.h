/*
 * The scene of the tests of strangers: a context, and a bare transport endpoint that sends to it as a stranger would.
 */
#ifndef KVCL_TEST_CORE_SCENE_H
#define KVCL_TEST_CORE_SCENE_H
#include "config.h"
#include "xport_pair.h"
#include "base/clock.h"
#include "base/rand.h"
#include "wire/address.h"
#include "core/comm.h"
#include "core/context.h"
#include "wire/handshake.h"
#include "cache/cache.h"
#include <kvcl/kvcl_xfer.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

typedef struct scene {
    kvcl_context_h ctx;
    side_t         side; /* the stranger's transport; its endpoint leads to ctx */
    uint8_t        uuid[16];
    uint8_t        address[KVCL_ADDRESS_MAX]; /* the stranger's */
    size_t         address_len;
    uint64_t       expected; /* strangers counted so far */
    uint32_t       peers;    /* peers of ctx before the stranger connected */
} scene_t;

static const pair_kind_t kinds[] = {PAIR_LOOP, PAIR_SHM, PAIR_TCP, PAIR_PLAIN, PAIR_AEAD};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static kvcl_context_h alone(pair_kind_t kind, const char *secret_file, uint64_t flags)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = NULL;
    kvcl_status_t      status;

    params.boot        = "self";
    params.path        = pair_name(kind);
    ck_assert_int_eq((strcmp(params.path, "tcp") == 0) ? setenv("KVCL_NET", "lo", 1) : unsetenv("KVCL_NET"), 0);
    ck_assert_int_eq(setenv("KVCL_WIRE", (kind == PAIR_TCP) ? "ucx" : (kind == PAIR_AEAD) ? "aead" : "plain", 1), 0);
    params.secret_file = secret_file;
    params.flags       = flags;
    status             = kvcl_init(&params, &ctx);
    ck_assert_msg(status == KVCL_OK, "%s", kvcl_last_error());
    return ctx;
}

static void printed_address(kvcl_context_h ctx, char *text, size_t cap)
{
    size_t len = 0;

    ck_assert_int_eq(kvcl_context_address(ctx, text, cap, &len), KVCL_OK);
    ck_assert_uint_eq(len, strlen(text) + 1);
}

static uint64_t strangers(kvcl_context_h ctx)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    KVCL_TRY(kvcl_context_stats(ctx, &stats));
    return stats.strangers;
}

static uint32_t peers(kvcl_context_h ctx)
{
    uint32_t n;

    kvcl_lock(ctx);
    n = ctx->peers.count;
    kvcl_unlock(ctx);
    return n;
}

/* An address as text, made under the secret of a context. */
static inline void print_for(kvcl_context_h ctx, const void *address, size_t len, char *text, size_t cap)
{
    ck_assert_uint_le(kvcl_address_print(ctx->secret, address, len, text, cap), cap);
}

/* Connect as any stranger: by the address that the context prints. */
static void scene_open(scene_t *scene, pair_kind_t kind)
{
    char           text[2 * KVCL_ADDRESS_MAX];
    uint8_t        packed[KVCL_ADDRESS_MAX];
    kvcl_address_t theirs, mine;
    unsigned       part = (kind == PAIR_LOOP) ? KVCL_ADDRESS_LOOP : (kind >= PAIR_PLAIN) ? KVCL_ADDRESS_TCP
                                                                                         : KVCL_ADDRESS_UCX;
    size_t         len  = 0;

    memset(scene, 0, sizeof(*scene));
    scene->ctx   = alone(kind, NULL, KVCL_INIT_NO_THREAD);
    scene->peers = peers(scene->ctx);
    printed_address(scene->ctx, text, sizeof(text));
    ck_assert_int_eq(kvcl_address_parse(scene->ctx->secret, text, packed, sizeof(packed), &len), KVCL_OK);
    ck_assert_int_eq(kvcl_address_unpack(packed, len, &theirs), KVCL_OK);
    ck_assert_mem_eq(theirs.uuid, scene->ctx->uuid, 16);
    memcpy(pair_secret, scene->ctx->secret, sizeof(pair_secret)); /* it gets past the transport */
    side_open(&scene->side, kind);
    ck_assert_int_eq(scene->side.ops->ep_create(scene->side.xport, theirs.part[part].buf, theirs.part[part].len,
                                                &scene->side.ep), KVCL_OK);
    ck_assert_int_eq(kvcl_random_bytes(scene->uuid, sizeof(scene->uuid)), KVCL_OK);
    memset(&mine, 0, sizeof(mine));
    memcpy(mine.uuid, scene->uuid, 16);
    memcpy(mine.process, scene->uuid, 16);
    memcpy(mine.host, theirs.host, 16);
    scene->side.ops->address(scene->side.xport, &mine.part[part].buf, &mine.part[part].len);
    scene->address_len = kvcl_address_pack(&mine, scene->address, sizeof(scene->address));
    ck_assert_uint_gt(scene->address_len, 0);
}

static void turn(scene_t *scene)
{
    (void)kvcl_progress(scene->ctx);
    (void)scene->side.ops->progress(scene->side.xport);
}

#define SCENE_UNTIL(_scene, _cond)                                                                                     \
    do {                                                                                                               \
        uint64_t deadline_ = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);                                                \
        while (!(_cond)) {                                                                                             \
            turn(_scene);                                                                                              \
            ck_assert_msg(!kvcl_deadline_passed(deadline_), "not in 10 s: %s", #_cond);                                \
        }                                                                                                              \
    } while (0)

static void send_raw(scene_t *scene, const void *hdr, size_t hdr_len, const void *data, size_t len)
{
    _Alignas(8) char copy[256];
    kvcl_iov_t       iov = {data, len};

    memcpy(copy, hdr, hdr_len);
    ck_assert_int_eq(scene->side.ops->am_send(scene->side.ep, copy, hdr_len, &iov, (len > 0) ? 1 : 0, KVCL_XPORT_REPLY,
                                              NULL), KVCL_OK);
}

/* The message is dropped and counted once, and no peer is added. */
static inline void dropped(scene_t *scene, const void *hdr, size_t hdr_len, const void *data, size_t len)
{
    uint32_t before = peers(scene->ctx);

    send_raw(scene, hdr, hdr_len, data, len);
    ++scene->expected;
    SCENE_UNTIL(scene, strangers(scene->ctx) >= scene->expected);
    ck_assert_uint_eq(strangers(scene->ctx), scene->expected);
    ck_assert_uint_eq(peers(scene->ctx), before);
}

/* Send it and wait for the answer, which has the given type. */
static kvcl_hs_msg_t requested(scene_t *scene, const kvcl_hs_msg_t *hs, const void *data, size_t len,
                               kvcl_msg_type_t type)
{
    uint64_t      received = scene->side.received;
    kvcl_hs_msg_t out;

    send_raw(scene, hs, sizeof(*hs), data, len);
    SCENE_UNTIL(scene, scene->side.received > received);
    ck_assert_uint_eq(scene->side.received, received + 1);
    ck_assert_uint_eq(scene->side.hdr_len, sizeof(out));
    memcpy(&out, scene->side.hdr, sizeof(out));
    ck_assert_uint_eq(out.msg.magic, KVCL_WIRE_MAGIC);
    ck_assert_uint_eq(out.msg.version, KVCL_WIRE_VERSION);
    ck_assert_uint_eq(out.msg.type, (unsigned)type);
    ck_assert_mem_eq(out.ids.nonce_a, hs->ids.nonce_a, 16);
    return out;
}

/* The answer is a refusal with its reason; no peer is added. */
static inline void refused(scene_t *scene, const kvcl_hs_msg_t *hs, const void *data, size_t len, kvcl_status_t why,
                           bool counted)
{
    uint32_t      before = peers(scene->ctx);
    kvcl_hs_msg_t out    = requested(scene, hs, data, len, KVCL_MSG_REFUSE);

    ck_assert_int_eq((kvcl_status_t)(int32_t)out.index, why);
    scene->expected += counted;
    ck_assert_uint_eq(strangers(scene->ctx), scene->expected);
    ck_assert_uint_eq(peers(scene->ctx), before);
}

static kvcl_msg_t message(unsigned type)
{
    kvcl_msg_t msg = {.magic = KVCL_WIRE_MAGIC, .version = KVCL_WIRE_VERSION, .type = (uint8_t)type};

    return msg;
}

static kvcl_hs_msg_t hello(scene_t *scene)
{
    kvcl_hs_msg_t hs;

    memset(&hs, 0, sizeof(hs));
    hs.msg = message(KVCL_MSG_HELLO);
    memcpy(hs.ids.uuid_a, scene->uuid, 16);
    memcpy(hs.ids.uuid_b, scene->ctx->uuid, 16);
    ck_assert_int_eq(kvcl_hs_nonce(hs.ids.nonce_a), KVCL_OK);
    return hs;
}

static void sign(scene_t *scene, kvcl_hs_msg_t *proof)
{
    kvcl_hs_mac(scene->ctx->secret, "A", &proof->ids, proof->index, proof->part, proof->session, scene->address,
                scene->address_len, proof->mac);
}

/* Send HELLO. Return the right PROOF that answers the challenge. */
static kvcl_hs_msg_t challenged(scene_t *scene)
{
    kvcl_hs_msg_t hs    = hello(scene);
    kvcl_hs_msg_t proof = requested(scene, &hs, NULL, 0, KVCL_MSG_CHALLENGE);
    uint8_t       mac[32];

    kvcl_hs_mac(scene->ctx->secret, "B", &proof.ids, 0, 0, 0, NULL, 0, mac);
    ck_assert_mem_eq(mac, proof.mac, sizeof(mac));
    ck_assert_mem_eq(&proof.ids, &hs.ids, 48);
    ck_assert_uint_eq(peers(scene->ctx), scene->peers); /* the context stores nothing of a HELLO */
    proof.msg   = message(KVCL_MSG_PROOF);
    proof.index = 7;
    sign(scene, &proof);
    return proof;
}

/* Do the right handshake. Return the WELCOME; *token is the token of the stranger's messages from then on. */
static kvcl_hs_msg_t proven(scene_t *scene, uint64_t *token)
{
    kvcl_hs_msg_t proof   = challenged(scene);
    kvcl_hs_msg_t welcome = requested(scene, &proof, scene->address, scene->address_len, KVCL_MSG_WELCOME);
    uint8_t       mac[32];

    kvcl_hs_mac(scene->ctx->secret, "W", &welcome.ids, welcome.index, 0, welcome.session, NULL, 0, mac);
    ck_assert_mem_eq(mac, welcome.mac, sizeof(mac));
    *token = kvcl_hs_token(scene->ctx->secret, &welcome.ids, true);
    return welcome;
}

static void still_works(kvcl_context_h ctx)
{
    char        out[5000], in[5000];
    kvcl_comm_h world;
    kvcl_req_h  reqs[2] = {NULL, NULL};

    fill(out, sizeof(out), 3);
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    ck_assert_int_ge(kvcl_recv_bytes(world, 0, 5, in, sizeof(in), NULL, &reqs[0]), KVCL_OK);
    ck_assert_int_ge(kvcl_send_bytes(world, 0, 5, out, sizeof(out), NULL, &reqs[1]), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait_all(reqs, 2, 10 * KVCL_NS_PER_SEC), KVCL_OK);
    ck_assert(filled(in, sizeof(in), 3));
}

static void scene_close(scene_t *scene)
{
    unsigned i;

    for (i = 0; i < 100; ++i) {
        turn(scene);
    }
    ck_assert_uint_eq(strangers(scene->ctx), scene->expected);
    ck_assert_uint_eq(scene->side.wrong, 0);
    still_works(scene->ctx);
    ck_assert_uint_eq(strangers(scene->ctx), scene->expected);
    side_close(&scene->side);
    kvcl_finalize(scene->ctx);
}

#endif
