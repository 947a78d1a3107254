/*
 * Who does not belong, once contexts run: a stranger on a bare transport sends every type of message without a
 * handshake, handshakes that are wrong in every way, and one that is right; contexts of two secrets refuse each other.
 * What is dropped is counted, nobody becomes a peer before he has proven the secret, and the context goes on.
 */
#include "config.h"
#include "xport_pair.h"
#include "base/clock.h"
#include "base/rand.h"
#include "core/address.h"
#include "core/comm.h"
#include "core/context.h"
#include "core/handshake.h"
#include "kv/cache.h"
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
    uint32_t       peers;    /* of ctx, before anybody came */
} scene_t;

static const pair_kind_t kinds[] = {PAIR_LOOP, PAIR_SHM, PAIR_TCP};

static kvcl_context_h alone(pair_kind_t kind, const char *secret_file, uint64_t flags)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = NULL;
    kvcl_status_t      status;

    params.boot        = "self";
    params.path        = pair_name(kind);
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
    kvcl_context_stats_t stats;

    kvcl_context_stats(ctx, &stats);
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

/* As any stranger would come: by the address that the context prints. */
static void scene_open(scene_t *scene, pair_kind_t kind)
{
    char           text[2 * KVCL_ADDRESS_MAX];
    uint8_t        packed[KVCL_ADDRESS_MAX];
    kvcl_address_t theirs, mine;
    unsigned       part = (kind == PAIR_LOOP) ? KVCL_ADDRESS_LOOP : KVCL_ADDRESS_UCX;
    size_t         len  = 0;

    memset(scene, 0, sizeof(*scene));
    scene->ctx   = alone(kind, NULL, KVCL_INIT_NO_THREAD);
    scene->peers = peers(scene->ctx);
    printed_address(scene->ctx, text, sizeof(text));
    ck_assert_int_eq(kvcl_address_parse(text, packed, sizeof(packed), &len), KVCL_OK);
    ck_assert_int_eq(kvcl_address_unpack(packed, len, &theirs), KVCL_OK);
    ck_assert_mem_eq(theirs.uuid, scene->ctx->uuid, 16);
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
        uint64_t deadline_ = kvcl_deadline_after(10 * KVCL_NS_PER_SEC);                                                \
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

/* It is dropped, counted once, and nobody becomes a peer. */
static void dropped(scene_t *scene, const void *hdr, size_t hdr_len, const void *data, size_t len)
{
    uint32_t before = peers(scene->ctx);

    send_raw(scene, hdr, hdr_len, data, len);
    ++scene->expected;
    SCENE_UNTIL(scene, strangers(scene->ctx) >= scene->expected);
    ck_assert_uint_eq(strangers(scene->ctx), scene->expected);
    ck_assert_uint_eq(peers(scene->ctx), before);
}

/* Send it and wait for the answer, which is of the given type. */
static kvcl_hs_msg_t asked(scene_t *scene, const kvcl_hs_msg_t *hs, const void *data, size_t len, kvcl_msg_type_t type)
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

/* The answer is a refusal that says why; nobody becomes a peer. */
static void refused(scene_t *scene, const kvcl_hs_msg_t *hs, const void *data, size_t len, kvcl_status_t why,
                    bool counted)
{
    uint32_t      before = peers(scene->ctx);
    kvcl_hs_msg_t out    = asked(scene, hs, data, len, KVCL_MSG_REFUSE);

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
    ck_assert_int_eq(kvcl_random_bytes(hs.ids.nonce_a, 16), KVCL_OK);
    return hs;
}

static void sign(scene_t *scene, kvcl_hs_msg_t *proof)
{
    kvcl_hs_mac(scene->ctx->secret, "A", &proof->ids, proof->index, scene->address, scene->address_len, proof->mac);
}

/* HELLO, and the right PROOF that answers the challenge. */
static kvcl_hs_msg_t challenged(scene_t *scene)
{
    kvcl_hs_msg_t hs    = hello(scene);
    kvcl_hs_msg_t proof = asked(scene, &hs, NULL, 0, KVCL_MSG_CHALLENGE);
    uint8_t       mac[32];

    kvcl_hs_mac(scene->ctx->secret, "B", &proof.ids, 0, NULL, 0, mac);
    ck_assert_mem_eq(mac, proof.mac, sizeof(mac));
    ck_assert_mem_eq(&proof.ids, &hs.ids, 48);
    ck_assert_uint_eq(peers(scene->ctx), scene->peers); /* it keeps nothing of a HELLO */
    proof.msg   = message(KVCL_MSG_PROOF);
    proof.index = 7;
    sign(scene, &proof);
    return proof;
}

/* The right handshake. Returns the WELCOME; *token is what the stranger's messages carry from here. */
static kvcl_hs_msg_t proven(scene_t *scene, uint64_t *token)
{
    kvcl_hs_msg_t proof   = challenged(scene);
    kvcl_hs_msg_t welcome = asked(scene, &proof, scene->address, scene->address_len, KVCL_MSG_WELCOME);
    uint8_t       mac[32];

    kvcl_hs_mac(scene->ctx->secret, "W", &welcome.ids, welcome.index, NULL, 0, mac);
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

START_TEST(every_type_is_dropped_without_a_handshake)
{
    static const uint64_t tokens[] = {0, 1, UINT64_MAX};
    static const uint32_t indices[] = {0, 1, 1u << 20, UINT32_MAX};
    char                  hdr[200];
    kvcl_msg_t            msg;
    scene_t               scene;
    unsigned              type, i;

    scene_open(&scene, kinds[_i]);
    for (type = 0; type < 256; ++type) {
        memset(hdr, (int)type, sizeof(hdr));
        msg       = message(type);
        msg.token = tokens[type % 3];
        msg.peer  = indices[type % 4];
        memcpy(hdr, &msg, sizeof(msg));
        if ((type < KVCL_MSG_HELLO) || (type > KVCL_MSG_REFUSE)) {
            dropped(&scene, hdr, sizeof(hdr), hdr, sizeof(hdr));
            dropped(&scene, hdr, sizeof(msg), NULL, 0);
        } else if ((type != KVCL_MSG_HELLO) && (type != KVCL_MSG_PROOF)) {
            dropped(&scene, hdr, sizeof(hdr), hdr, sizeof(hdr));
        } else { /* garbage behind the header: another uuid_b */
            kvcl_hs_msg_t hs;
            memcpy(&hs, hdr, sizeof(hs));
            refused(&scene, &hs, NULL, 0, (type == KVCL_MSG_HELLO) ? KVCL_ERR_STALE : KVCL_ERR_AUTH,
                    type == KVCL_MSG_PROOF);
        }
    }
    for (i = 0; i < 4; ++i) { /* a token that somebody guesses */
        msg = message(KVCL_MSG_PULL);
        ck_assert_int_eq(kvcl_random_bytes(&msg.token, sizeof(msg.token)), KVCL_OK);
        msg.peer = indices[i];
        dropped(&scene, &msg, sizeof(msg), NULL, 0);
    }
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

START_TEST(what_is_no_message_is_dropped)
{
    char       hdr[sizeof(kvcl_hs_msg_t)];
    kvcl_msg_t msg;
    scene_t    scene;
    size_t     len;
    unsigned   type;

    scene_open(&scene, kinds[_i]);
    memset(hdr, 0, sizeof(hdr));
    for (type = 0; type <= KVCL_MSG_LAST; ++type) {
        msg       = message(type);
        msg.magic = 0x564b;
        memcpy(hdr, &msg, sizeof(msg));
        dropped(&scene, hdr, sizeof(hdr), NULL, 0);
    }
    for (type = KVCL_MSG_HELLO; type <= KVCL_MSG_REFUSE; ++type) {
        msg = message(type);
        memcpy(hdr, &msg, sizeof(msg));
        for (len = 1; len < sizeof(hdr); ++len) {
            dropped(&scene, hdr, len, NULL, 0);
        }
    }
    ck_assert_uint_eq(scene.side.received, 0); /* not worth an answer */
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

START_TEST(a_hello_to_somebody_else_is_stale)
{
    kvcl_hs_msg_t hs;
    scene_t       scene;

    scene_open(&scene, kinds[_i]);
    hs = hello(&scene);
    hs.ids.uuid_b[15] ^= 1;
    refused(&scene, &hs, NULL, 0, KVCL_ERR_STALE, false);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

START_TEST(another_wire_version_is_told_so)
{
    static const uint16_t versions[] = {0, KVCL_WIRE_VERSION + 1, 0x100 | KVCL_WIRE_VERSION, 0xffff};
    kvcl_hs_msg_t         hs;
    kvcl_msg_t            msg;
    scene_t               scene;
    unsigned              i;

    scene_open(&scene, kinds[_i]);
    for (i = 0; i < 4; ++i) {
        hs             = hello(&scene);
        hs.msg.version = versions[i];
        refused(&scene, &hs, NULL, 0, KVCL_ERR_VERSION, true);
        hs             = challenged(&scene);
        hs.msg.version = versions[i];
        refused(&scene, &hs, scene.address, scene.address_len, KVCL_ERR_VERSION, true);
        msg         = message(KVCL_MSG_SEND);
        msg.version = versions[i];
        dropped(&scene, &msg, sizeof(msg), NULL, 0);
    }
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

static void refused_proof(scene_t *scene, const kvcl_hs_msg_t *proof)
{
    refused(scene, proof, scene->address, scene->address_len, KVCL_ERR_AUTH, true);
}

START_TEST(a_wrong_proof_is_refused)
{
    kvcl_hs_msg_t right, proof;
    scene_t       scene;
    unsigned      i;

    scene_open(&scene, kinds[_i]);
    right = challenged(&scene);
    for (i = 0; i < 32; ++i) {
        proof         = right;
        proof.mac[i] ^= (uint8_t)(1u << (i % 8));
        refused_proof(&scene, &proof);
    }
    proof = right;
    memset(proof.mac, 0, sizeof(proof.mac));
    refused_proof(&scene, &proof);
    proof = right; /* reflected: what the context said itself */
    kvcl_hs_mac(scene.ctx->secret, "B", &proof.ids, 0, NULL, 0, proof.mac);
    refused_proof(&scene, &proof);
    proof = right;
    ++proof.index;
    refused_proof(&scene, &proof);
    proof = right; /* the address is covered */
    refused(&scene, &proof, scene.address, scene.address_len - 1, KVCL_ERR_AUTH, true);
    refused(&scene, &proof, NULL, 0, KVCL_ERR_AUTH, true);
    proof = right; /* replayed by another, who cannot sign */
    proof.ids.uuid_a[0] ^= 1;
    refused_proof(&scene, &proof);
    proof = right; /* to another */
    proof.ids.uuid_b[0] ^= 1;
    refused_proof(&scene, &proof);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

/* Even who knows the secret must have asked this context, lately, as himself. */
START_TEST(a_cookie_is_for_one_who_asked_lately)
{
    kvcl_hs_msg_t right, proof;
    scene_t       scene;
    int           shift;

    scene_open(&scene, kinds[_i]);
    right = challenged(&scene);
    for (shift = -3; shift <= 2; ++shift) {
        if ((shift == 0) || (shift == -1)) { /* -1 is taken, see below; +1 could come true meanwhile */
            continue;
        }
        proof         = right;
        proof.window += (uint32_t)((shift > 0) ? shift + 2 : shift);
        kvcl_hs_cookie(scene.ctx->cookie, &proof.ids, proof.window, proof.ids.nonce_b);
        sign(&scene, &proof);
        refused_proof(&scene, &proof);
    }
    proof         = right; /* the window alone */
    proof.window -= 1;
    sign(&scene, &proof);
    refused_proof(&scene, &proof);
    proof = right; /* another's cookie */
    proof.ids.uuid_a[3] ^= 1;
    sign(&scene, &proof);
    refused_proof(&scene, &proof);
    proof = right; /* for another question */
    proof.ids.nonce_a[3] ^= 1;
    sign(&scene, &proof);
    refused_proof(&scene, &proof);
    proof = right; /* a nonce of one's own choice */
    memset(proof.ids.nonce_b, 0, 16);
    sign(&scene, &proof);
    refused_proof(&scene, &proof);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

/* He knows the secret, but his address makes no sense: nothing of it is kept. */
START_TEST(a_proof_names_its_own_address)
{
    uint8_t       right[KVCL_ADDRESS_MAX];
    kvcl_hs_msg_t proof;
    scene_t       scene;

    scene_open(&scene, kinds[_i]);
    memcpy(right, scene.address, sizeof(right));
    scene.address[8] ^= 1; /* another's uuid */
    proof = challenged(&scene);
    refused(&scene, &proof, scene.address, scene.address_len, KVCL_ERR_UNREACHABLE, false);
    memcpy(scene.address, right, sizeof(right));
    scene.address[0] ^= 1; /* no address */
    proof = challenged(&scene);
    refused(&scene, &proof, scene.address, scene.address_len, KVCL_ERR_UNREACHABLE, false);
    scene_close(&scene);
}
END_TEST

START_TEST(the_right_handshake_succeeds)
{
    kvcl_msg_describe_t    ask;
    kvcl_msg_description_t answer;
    kvcl_hs_msg_t          welcome;
    kvcl_msg_t             msg;
    kvcl_peer_t            *peer;
    scene_t                scene;
    uint64_t               token, received;
    unsigned               type;

    scene_open(&scene, kinds[_i]);
    welcome = proven(&scene, &token);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers + 1);
    ck_assert_uint_eq(welcome.index, scene.peers);
    peer = scene.ctx->peers.v[welcome.index];
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    ck_assert_mem_eq(peer->uuid, scene.uuid, 16);
    ck_assert_uint_eq(strangers(scene.ctx), scene.expected);

    memset(&ask, 0, sizeof(ask));
    ask.msg       = message(KVCL_MSG_DESCRIBE);
    ask.msg.peer  = welcome.index;
    ask.msg.token = token;
    ask.msg.op    = 99;
    received      = scene.side.received;
    send_raw(&scene, &ask, sizeof(ask), "nobody", 6);
    SCENE_UNTIL(&scene, scene.side.received > received);
    memcpy(&answer, scene.side.hdr, sizeof(answer));
    ck_assert_uint_eq(answer.msg.type, KVCL_MSG_DESCRIPTION);
    ck_assert_uint_eq(answer.msg.peer, 7);
    ck_assert_uint_eq(answer.msg.op, 99);
    ck_assert_uint_eq(answer.msg.token, kvcl_hs_token(scene.ctx->secret, &welcome.ids, false));
    ck_assert_int_eq(answer.status, KVCL_ERR_NOT_REGISTERED);

    for (type = KVCL_MSG_BYE; type <= KVCL_MSG_LAST; ++type) { /* his index with another token, another's with his */
        msg       = message(type);
        msg.peer  = welcome.index;
        dropped(&scene, &msg, sizeof(msg), NULL, 0);
        msg.token = token ^ 1;
        dropped(&scene, &msg, sizeof(msg), NULL, 0);
        msg.token = answer.msg.token;
        dropped(&scene, &msg, sizeof(msg), NULL, 0);
        msg.token = token;
        msg.peer  = welcome.index + 1;
        dropped(&scene, &msg, sizeof(msg), NULL, 0);
        if (welcome.index > 0) {
            msg.peer = welcome.index - 1;
            dropped(&scene, &msg, sizeof(msg), NULL, 0);
        }
    }
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    msg       = message(KVCL_MSG_BYE);
    msg.peer  = welcome.index;
    msg.token = token;
    send_raw(&scene, &msg, sizeof(msg), NULL, 0);
    SCENE_UNTIL(&scene, peer->state == KVCL_PEER_FAILED);
    scene_close(&scene);
}
END_TEST

typedef struct call {
    pthread_t      thread;
    kvcl_context_h ctx;
    const char     *address; /* NULL: accept */
    kvcl_status_t  status;
    char           error[512];
    _Atomic bool   done;
} call_t;

static void *call_main(void *arg)
{
    call_t      *call = arg;
    kvcl_comm_h world, inter = NULL;

    call->status = kvcl_comm_world(call->ctx, &world);
    if (call->status == KVCL_OK) {
        call->status = (call->address != NULL) ? kvcl_comm_connect(world, call->address, 2 * KVCL_NS_PER_SEC, &inter)
                                               : kvcl_comm_accept(world, KVCL_NS_PER_SEC, &inter);
    }
    snprintf(call->error, sizeof(call->error), "%s", kvcl_last_error());
    if (call->status == KVCL_OK) {
        kvcl_comm_free(inter);
    }
    call->done = true;
    return NULL;
}

/* A context begins a handshake with the stranger, who answers its HELLO so. */
static void answered(pair_kind_t kind, kvcl_hs_msg_t *answer, uint64_t counted, kvcl_status_t expected)
{
    char          text[2 * KVCL_ADDRESS_MAX];
    kvcl_hs_msg_t in;
    scene_t       scene;
    call_t        call;

    scene_open(&scene, kind);
    ck_assert_uint_le(kvcl_address_print(scene.address, scene.address_len, text, sizeof(text)), sizeof(text));
    memset(&call, 0, sizeof(call));
    call.ctx     = scene.ctx;
    call.address = text;
    ck_assert_int_eq(pthread_create(&call.thread, NULL, call_main, &call), 0);
    while ((scene.side.received == 0) && !call.done) {
        (void)scene.side.ops->progress(scene.side.xport);
    }
    ck_assert_uint_eq(scene.side.received, 1);
    memcpy(&in, scene.side.hdr, sizeof(in));
    ck_assert_uint_eq(in.msg.type, KVCL_MSG_HELLO);
    ck_assert_mem_eq(in.ids.uuid_a, scene.ctx->uuid, 16);
    answer->ids = in.ids;
    send_raw(&scene, answer, sizeof(*answer), NULL, 0);
    while (!call.done) {
        (void)scene.side.ops->progress(scene.side.xport);
    }
    pthread_join(call.thread, NULL);
    ck_assert_msg(call.status == expected, "%s: %s", kvcl_status_text(call.status), call.error);
    ck_assert((expected == KVCL_ERR_UNREACHABLE) || (strstr(call.error, "kvcl_comm_connect: the ") != NULL));
    scene.expected = counted;
    scene_close(&scene);
}

START_TEST(a_context_believes_no_stranger_that_it_greets)
{
    kvcl_hs_msg_t answer;

    memset(&answer, 0, sizeof(answer));
    answer.msg = message(KVCL_MSG_CHALLENGE);
    memset(answer.mac, 1, sizeof(answer.mac));
    answered(kinds[_i], &answer, 1, KVCL_ERR_AUTH);
    answer.msg         = message(KVCL_MSG_REFUSE);
    answer.msg.version = KVCL_WIRE_VERSION + 1;
    answer.index       = (uint32_t)KVCL_ERR_VERSION;
    answered(kinds[_i], &answer, 1, KVCL_ERR_VERSION);
    answer.msg   = message(KVCL_MSG_REFUSE);
    answer.index = (uint32_t)KVCL_ERR_STALE;
    answered(kinds[_i], &answer, 0, KVCL_ERR_STALE);
    answer.index = (uint32_t)KVCL_OK; /* no reason is none to go on */
    answered(kinds[_i], &answer, 0, KVCL_ERR_UNREACHABLE);
}
END_TEST

static void secret_file(char *path, const char *text)
{
    int fd;

    strcpy(path, "/tmp/kvcl-stranger-XXXXXX"); /* 0600 */
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(contexts_of_two_secrets_refuse_each_other)
{
    char           path[2][64], text[2][2 * KVCL_ADDRESS_MAX];
    kvcl_context_h ctx[3];
    call_t         from, to;
    uint32_t       before;
    unsigned       i;

    secret_file(path[0], "the first secret of two, no. 1");
    secret_file(path[1], "the other secret of two, no. 2");
    for (i = 0; i < 2; ++i) {
        ctx[i] = alone(kinds[_i], path[i], 0);
        printed_address(ctx[i], text[i], sizeof(text[i]));
    }
    for (i = 0; i < 2; ++i) { /* in both directions */
        before = peers(ctx[!i]);
        memset(&from, 0, sizeof(from));
        memset(&to, 0, sizeof(to));
        to.ctx       = ctx[!i];
        from.ctx     = ctx[i];
        from.address = text[!i];
        ck_assert_int_eq(pthread_create(&to.thread, NULL, call_main, &to), 0);
        ck_assert_int_eq(pthread_create(&from.thread, NULL, call_main, &from), 0);
        pthread_join(from.thread, NULL);
        pthread_join(to.thread, NULL);
        ck_assert_msg(from.status == KVCL_ERR_AUTH, "%s: %s", kvcl_status_text(from.status), from.error);
        ck_assert_ptr_nonnull(strstr(from.error, "KVCL_SECRET_FILE"));
        ck_assert_int_eq(to.status, KVCL_ERR_TIMED_OUT);
        ck_assert_ptr_nonnull(strstr(to.error, "nobody connected"));
        ck_assert_uint_ge(strangers(ctx[i]), 1);
        ck_assert_uint_eq(peers(ctx[!i]), before);
    }
    ctx[2] = alone(kinds[_i], path[0], 0); /* the same secret is welcome, whatever was tried before */
    memset(&from, 0, sizeof(from));
    memset(&to, 0, sizeof(to));
    to.ctx       = ctx[0];
    from.ctx     = ctx[2];
    from.address = text[0];
    ck_assert_int_eq(pthread_create(&to.thread, NULL, call_main, &to), 0);
    ck_assert_int_eq(pthread_create(&from.thread, NULL, call_main, &from), 0);
    pthread_join(from.thread, NULL);
    pthread_join(to.thread, NULL);
    ck_assert_msg(from.status == KVCL_OK, "%s", from.error);
    ck_assert_msg(to.status == KVCL_OK, "%s", to.error);
    for (i = 0; i < 3; ++i) {
        still_works(ctx[i]);
        kvcl_finalize(ctx[i]);
    }
    unlink(path[0]);
    unlink(path[1]);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("core stranger");
    TCase   *tcase = tcase_create("stranger");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_type_is_dropped_without_a_handshake, 0, 3);
    tcase_add_loop_test(tcase, what_is_no_message_is_dropped, 0, 3);
    tcase_add_loop_test(tcase, a_hello_to_somebody_else_is_stale, 0, 3);
    tcase_add_loop_test(tcase, another_wire_version_is_told_so, 0, 3);
    tcase_add_loop_test(tcase, a_wrong_proof_is_refused, 0, 3);
    tcase_add_loop_test(tcase, a_cookie_is_for_one_who_asked_lately, 0, 3);
    tcase_add_loop_test(tcase, a_proof_names_its_own_address, 0, 3);
    tcase_add_loop_test(tcase, the_right_handshake_succeeds, 0, 3);
    tcase_add_loop_test(tcase, a_context_believes_no_stranger_that_it_greets, 0, 3);
    tcase_add_loop_test(tcase, contexts_of_two_secrets_refuse_each_other, 0, 3);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
