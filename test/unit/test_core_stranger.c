/*
 * Strangers and running contexts. A stranger on a bare transport sends every type of message without a handshake, every
 * kind of wrong handshake, and a right one; contexts with two secrets refuse each other. Dropped messages are counted,
 * no sender becomes a peer before it has proven the secret, and the context continues.
 */
#include "core_scene.h"
#include "base/hkdf.h"

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
        } else { /* garbage after the header: another uuid_b */
            kvcl_hs_msg_t hs;
            memcpy(&hs, hdr, sizeof(hs));
            refused(&scene, &hs, NULL, 0, (type == KVCL_MSG_HELLO) ? KVCL_ERR_STALE : KVCL_ERR_AUTH,
                    type == KVCL_MSG_PROOF);
        }
    }
    for (i = 0; i < 4; ++i) { /* a guessed token */
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

/* As kvcl_hs_mac() for a PROOF, with this key. */
static void sign_by(scene_t *scene, kvcl_hs_msg_t *proof, const uint8_t key[32])
{
    struct iovec parts[] = {{(void *)(uintptr_t)"kvcl-hs-3", 10}, {(void *)(uintptr_t)"A", 2},
                            {&proof->ids, sizeof(proof->ids)}, {&proof->index, sizeof(proof->index)},
                            {&proof->part, sizeof(proof->part)}, {&proof->session, sizeof(proof->session)},
                            {scene->address, scene->address_len}};

    kvcl_hmac_sha256(key, 32, parts, 7, proof->mac);
}

/* The key of a proof is that of the pair: neither the secret itself, nor that of another pair or another purpose. */
START_TEST(a_proof_by_another_key_is_refused)
{
    kvcl_hs_msg_t right, proof;
    scene_t       scene;
    uint8_t       key[32], other[16] = {1};

    scene_open(&scene, kinds[_i]);
    right = challenged(&scene);
    proof = right;
    sign_by(&scene, &proof, scene.ctx->secret);
    refused_proof(&scene, &proof);
    proof = right;
    kvcl_pair_key(scene.ctx->secret, "core", scene.uuid, other, key);
    sign_by(&scene, &proof, key);
    refused_proof(&scene, &proof);
    proof = right;
    kvcl_pair_key(scene.ctx->secret, "sock", scene.uuid, scene.ctx->uuid, key);
    sign_by(&scene, &proof, key);
    refused_proof(&scene, &proof);
    proof = right;
    kvcl_pair_key(scene.ctx->secret, "core", scene.uuid, scene.ctx->uuid, key);
    sign_by(&scene, &proof, key);
    ck_assert_mem_eq(proof.mac, right.mac, sizeof(proof.mac));
    scene_close(&scene);
}
END_TEST

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
    proof = right; /* reflected: the context's own message */
    kvcl_hs_mac(scene.ctx->secret, "B", &proof.ids, 0, 0, 0, NULL, 0, proof.mac);
    refused_proof(&scene, &proof);
    proof = right;
    ++proof.index;
    refused_proof(&scene, &proof);
    proof = right;
    ++proof.part;
    refused_proof(&scene, &proof);
    proof = right; /* the MAC covers the address */
    refused(&scene, &proof, scene.address, scene.address_len - 1, KVCL_ERR_AUTH, true);
    refused(&scene, &proof, NULL, 0, KVCL_ERR_AUTH, true);
    proof = right; /* replayed by another sender, which cannot sign */
    proof.ids.uuid_a[0] ^= 1;
    refused_proof(&scene, &proof);
    proof = right; /* to another */
    proof.ids.uuid_b[0] ^= 1;
    refused_proof(&scene, &proof);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

/* A sender with the secret must also have sent a recent HELLO to this context under its own identity. */
START_TEST(a_cookie_is_for_one_who_asked_lately)
{
    kvcl_hs_msg_t right, proof;
    scene_t       scene;
    int           shift;

    scene_open(&scene, kinds[_i]);
    right = challenged(&scene);
    for (shift = -3; shift <= 2; ++shift) {
        if ((shift == 0) || (shift == -1)) { /* -1 is accepted, see below; +1 could become valid meanwhile */
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
    proof = right; /* a nonce of the sender's choice */
    memset(proof.ids.nonce_b, 0, 16);
    sign(&scene, &proof);
    refused_proof(&scene, &proof);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    scene_close(&scene);
}
END_TEST

/* The sender has the secret, but its address is malformed: nothing of it is stored. */
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

/* Who recorded a PROOF sends it again, while its cookie is good: the session that it began goes on undisturbed. */
START_TEST(a_recorded_proof_is_dropped)
{
    kvcl_hs_msg_t first, second, welcome;
    kvcl_peer_t   *peer;
    scene_t       scene;
    uint64_t      out_token;

    scene_open(&scene, kinds[_i]);
    first   = challenged(&scene);
    second  = challenged(&scene);
    welcome = requested(&scene, &second, scene.address, scene.address_len, KVCL_MSG_WELCOME);
    peer    = scene.ctx->peers.v[welcome.index];
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    out_token = peer->out_token;
    dropped(&scene, &second, sizeof(second), scene.address, scene.address_len);
    dropped(&scene, &first, sizeof(first), scene.address, scene.address_len); /* it is older */
    ck_assert_uint_eq(peer->out_token, out_token);
    ck_assert_uint_eq(peer->in_tokens[0], kvcl_hs_token(scene.ctx->secret, &second.ids, true));
    ck_assert_uint_eq(peer->in_tokens[1], 0);
    ++scene.peers;
    second  = challenged(&scene); /* a new one is welcome */
    welcome = requested(&scene, &second, scene.address, scene.address_len, KVCL_MSG_WELCOME);
    ck_assert_uint_eq(peer->in_tokens[0], kvcl_hs_token(scene.ctx->secret, &second.ids, true));
    scene_close(&scene);
}
END_TEST

START_TEST(the_right_handshake_succeeds)
{
    kvcl_msg_describe_t    request;
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

    memset(&request, 0, sizeof(request));
    request.msg       = message(KVCL_MSG_DESCRIBE);
    request.msg.peer  = welcome.index;
    request.msg.token = token;
    request.msg.op    = 99;
    received      = scene.side.received;
    send_raw(&scene, &request, sizeof(request), "nobody", 6);
    SCENE_UNTIL(&scene, scene.side.received > received);
    memcpy(&answer, scene.side.hdr, sizeof(answer));
    ck_assert_uint_eq(answer.msg.type, KVCL_MSG_DESCRIPTION);
    ck_assert_uint_eq(answer.msg.peer, 7);
    ck_assert_uint_eq(answer.msg.op, 99);
    ck_assert_uint_eq(answer.msg.token, kvcl_hs_token(scene.ctx->secret, &welcome.ids, false));
    ck_assert_int_eq(answer.status, KVCL_ERR_NOT_REGISTERED);

    for (type = KVCL_MSG_BYE; type <= KVCL_MSG_LAST; ++type) { /* index and token of different peers */
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
    uint64_t       timeout_ns;
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
        call->status = (call->address != NULL) ? kvcl_comm_connect(world, call->address, call->timeout_ns, &inter)
                                               : kvcl_comm_accept(world, call->timeout_ns, &inter);
    }
    snprintf(call->error, sizeof(call->error), "%s", kvcl_last_error());
    if (call->status == KVCL_OK) {
        kvcl_comm_free(inter);
    }
    call->done = true;
    return NULL;
}

/* A context starts a handshake with the stranger, which answers its HELLO with this message. */
static void answered(pair_kind_t kind, kvcl_hs_msg_t *answer, uint64_t counted, kvcl_status_t expected)
{
    char          text[2 * KVCL_ADDRESS_MAX];
    kvcl_hs_msg_t in;
    scene_t       scene;
    call_t        call;

    scene_open(&scene, kind);
    print_for(scene.ctx, scene.address, scene.address_len, text, sizeof(text));
    call = (call_t){.ctx = scene.ctx, .address = text, .timeout_ns = 50 * KVCL_NS_PER_SEC};
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
    answer.index = (uint32_t)KVCL_OK; /* a refusal without a reason must not continue the handshake */
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
    char           path[2][64], text[2 * KVCL_ADDRESS_MAX], forged[2 * KVCL_ADDRESS_MAX];
    kvcl_context_h ctx[3];
    call_t         from, to;
    uint32_t       before;
    unsigned       i;

    secret_file(path[0], "the first secret of two, no. 1");
    secret_file(path[1], "the other secret of two, no. 2");
    ctx[0] = alone(kinds[_i], path[0], 0);
    ctx[1] = alone(kinds[_i], path[1], 0);
    printed_address(ctx[0], text, sizeof(text));
    for (i = 0; i < 2; ++i) { /* in both directions */
        print_for(ctx[i], ctx[!i]->address, ctx[!i]->address_len, forged, sizeof(forged));
        before = peers(ctx[!i]);
        to   = (call_t){.ctx = ctx[!i], .timeout_ns = KVCL_NS_PER_SEC}; /* nobody comes */
        from = (call_t){.ctx = ctx[i], .address = forged, .timeout_ns = 50 * KVCL_NS_PER_SEC};
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
    ctx[2] = alone(kinds[_i], path[0], 0); /* the same secret is accepted, whatever was tried before */
    to   = (call_t){.ctx = ctx[0], .timeout_ns = 50 * KVCL_NS_PER_SEC};
    from = (call_t){.ctx = ctx[2], .address = text, .timeout_ns = 50 * KVCL_NS_PER_SEC};
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

/* The handshake of neither kind begins. */
START_TEST(wires_of_two_kinds_are_named)
{
    static const pair_kind_t kind[2] = {PAIR_PLAIN, PAIR_TCP};
    kvcl_context_h           from    = alone(kind[_i], NULL, 0), to = alone(kind[1 - _i], NULL, 0);
    char                     text[2 * KVCL_ADDRESS_MAX];
    kvcl_comm_h              world, inter;

    print_for(from, to->address, to->address_len, text, sizeof(text));
    ck_assert_int_eq(kvcl_comm_world(from, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_connect(world, text, 50 * KVCL_NS_PER_SEC, &inter), KVCL_ERR_UNREACHABLE);
    ck_assert_msg(strstr(kvcl_last_error(), "KVCL_WIRE differs: give all ranks the same kind") != NULL, "%s",
                  kvcl_last_error());
    kvcl_finalize(from);
    kvcl_finalize(to);
}
END_TEST

/* The wires are of one kind: that the other rank has no network interface is named as well. */
START_TEST(a_peer_without_a_network_is_named)
{
    kvcl_context_h from = alone(PAIR_PLAIN, NULL, 0), to = alone(PAIR_SHM, NULL, 0);
    char           text[2 * KVCL_ADDRESS_MAX];
    kvcl_comm_h    world, inter;

    print_for(from, to->address, to->address_len, text, sizeof(text));
    ck_assert_int_eq(kvcl_comm_world(from, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_connect(world, text, 50 * KVCL_NS_PER_SEC, &inter), KVCL_ERR_UNREACHABLE);
    ck_assert_msg(strstr(kvcl_last_error(), "KVCL_NET is not set there") != NULL, "%s", kvcl_last_error());
    kvcl_finalize(from);
    kvcl_finalize(to);
}
END_TEST

/* On whichever thread a request fails, and also long after the peer has failed. */
static void *send_there(void *arg)
{
    kvcl_comm_h   world  = arg;
    kvcl_req_h    req    = NULL;
    kvcl_status_t status = kvcl_send_bytes(world, 0, 5, "bytes", 5, NULL, &req);

    (void)kvcl_fail(KVCL_ERR_INTERNAL, "another sentence of this thread");
    status = (status >= KVCL_OK) ? kvcl_req_wait(req, 10 * KVCL_NS_PER_SEC) : status;
    ck_assert_msg(status == KVCL_ERR_UNREACHABLE, "%s: %s", kvcl_status_text(status), kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), " to rank 0, 5 bytes: that rank") != NULL, "%s", kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), ": that rank does not use KVCL's own TCP connections") != NULL, "%s",
                  kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), "KVCL_NET is not set there") != NULL, "%s", kvcl_last_error());
    return NULL;
}

START_TEST(requests_to_a_peer_that_no_way_leads_to_say_why)
{
    kvcl_context_h from = alone(PAIR_PLAIN, NULL, 0), to = alone(PAIR_SHM, NULL, 0);
    kvcl_peer_t    *peer, *own;
    kvcl_comm_h    world;
    pthread_t      thread;
    unsigned       i;

    ck_assert_int_eq(kvcl_comm_world(from, &world), KVCL_OK);
    kvcl_lock(from);
    ck_assert_int_eq(kvcl_peer_by_address(from, to->address, to->address_len, &peer), KVCL_OK);
    own             = world->peers[0];
    world->peers[0] = peer;
    kvcl_unlock(from);
    for (i = 0; i < 2; ++i) {
        (void)send_there(world);
        ck_assert_int_eq(pthread_create(&thread, NULL, send_there, world), 0);
        pthread_join(thread, NULL);
    }
    kvcl_lock(from);
    world->peers[0] = own;
    kvcl_unlock(from);
    still_works(from);
    kvcl_finalize(from);
    kvcl_finalize(to);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("core stranger");
    TCase   *tcase = tcase_create("stranger");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_type_is_dropped_without_a_handshake, 0, KINDS);
    tcase_add_loop_test(tcase, what_is_no_message_is_dropped, 0, KINDS);
    tcase_add_loop_test(tcase, a_hello_to_somebody_else_is_stale, 0, KINDS);
    tcase_add_loop_test(tcase, another_wire_version_is_told_so, 0, KINDS);
    tcase_add_loop_test(tcase, a_wrong_proof_is_refused, 0, KINDS);
    tcase_add_loop_test(tcase, a_proof_by_another_key_is_refused, 0, KINDS);
    tcase_add_loop_test(tcase, a_cookie_is_for_one_who_asked_lately, 0, KINDS);
    tcase_add_loop_test(tcase, a_proof_names_its_own_address, 0, KINDS);
    tcase_add_loop_test(tcase, a_recorded_proof_is_dropped, 0, KINDS);
    tcase_add_loop_test(tcase, the_right_handshake_succeeds, 0, KINDS);
    tcase_add_loop_test(tcase, a_context_believes_no_stranger_that_it_greets, 0, KINDS);
    tcase_add_loop_test(tcase, contexts_of_two_secrets_refuse_each_other, 0, KINDS);
    tcase_add_loop_test(tcase, wires_of_two_kinds_are_named, 0, 2);
    tcase_add_test(tcase, a_peer_without_a_network_is_named);
    tcase_add_test(tcase, requests_to_a_peer_that_no_way_leads_to_say_why);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
