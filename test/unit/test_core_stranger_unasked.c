/*
 * Handshake messages that answer no greeting. Their sender need not know the secret: the uuids of a handshake, and the
 * nonce of one that is over, can be read on the wire. Each is dropped and counted, and no peer fails by it.
 */
#include "core_scene.h"
#include "test_base.h"

/* A stranger that the context has greeted, and which has proven itself. */
static kvcl_peer_t *greeted(scene_t *scene, kvcl_hs_ids_t *ids_p)
{
    kvcl_hs_msg_t hs;
    kvcl_peer_t   *peer = NULL;

    kvcl_lock(scene->ctx);
    ck_assert_int_eq(kvcl_peer_by_address(scene->ctx, scene->address, scene->address_len, &peer), KVCL_OK);
    ck_assert_int_eq(kvcl_peer_greet(peer), KVCL_OK);
    kvcl_unlock(scene->ctx);
    SCENE_UNTIL(scene, scene->side.received == 1);
    memcpy(&hs, scene->side.hdr, sizeof(hs));
    ck_assert_uint_eq(hs.msg.type, KVCL_MSG_HELLO);
    hs.msg = message(KVCL_MSG_CHALLENGE);
    ck_assert_int_eq(kvcl_random_bytes(hs.ids.nonce_b, sizeof(hs.ids.nonce_b)), KVCL_OK);
    kvcl_hs_mac(scene->ctx->secret, "B", &hs.ids, 0, 0, 0, NULL, 0, hs.mac);
    send_raw(scene, &hs, sizeof(hs), NULL, 0);
    SCENE_UNTIL(scene, scene->side.received == 2);
    memcpy(&hs, scene->side.hdr, sizeof(hs));
    ck_assert_uint_eq(hs.msg.type, KVCL_MSG_PROOF);
    hs.msg   = message(KVCL_MSG_WELCOME);
    hs.index = 7;
    hs.part  = 0;
    kvcl_hs_mac(scene->ctx->secret, "W", &hs.ids, hs.index, 0, hs.session, NULL, 0, hs.mac);
    send_raw(scene, &hs, sizeof(hs), NULL, 0);
    SCENE_UNTIL(scene, peer->state == KVCL_PEER_READY);
    *ids_p = hs.ids;
    return peer;
}

/* As dropped(). It is not answered either. */
static void ignored(scene_t *scene, const kvcl_hs_msg_t *hs)
{
    uint64_t received = scene->side.received;

    send_raw(scene, hs, sizeof(*hs), NULL, 0);
    ++scene->expected;
    SCENE_UNTIL(scene, (strangers(scene->ctx) >= scene->expected) || (scene->side.received > received));
    ck_assert_uint_eq(scene->side.received, received);
    ck_assert_uint_eq(strangers(scene->ctx), scene->expected);
}

/* One message with these ids and a wrong MAC, and one with the right MAC. */
static void ignored_both(scene_t *scene, unsigned type, const char *role, const kvcl_hs_ids_t *ids)
{
    kvcl_hs_msg_t hs;

    memset(&hs, 0, sizeof(hs));
    hs.msg = message(type);
    hs.ids = *ids;
    ignored(scene, &hs);
    kvcl_hs_mac(scene->ctx->secret, role, &hs.ids, 0, 0, 0, NULL, 0, hs.mac);
    ignored(scene, &hs);
}

/* The peer has greeted this context, which has never sent a nonce to it: zeros are no nonce. */
START_TEST(a_nonce_of_zeros_answers_no_greeting)
{
    kvcl_hs_msg_t welcome;
    kvcl_hs_ids_t ids;
    kvcl_peer_t   *peer;
    scene_t       scene;
    uint64_t      token;

    scene_open(&scene, kinds[_i]);
    welcome = proven(&scene, &token);
    peer    = scene.ctx->peers.v[welcome.index];
    memset(&ids, 0, sizeof(ids));
    memcpy(ids.uuid_a, scene.ctx->uuid, 16);
    memcpy(ids.uuid_b, scene.uuid, 16);
    ignored_both(&scene, KVCL_MSG_CHALLENGE, "B", &ids);
    ignored_both(&scene, KVCL_MSG_WELCOME, "W", &ids);
    ignored_both(&scene, KVCL_MSG_REFUSE, "B", &ids);
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    ck_assert_uint_eq(peer->out_token, kvcl_hs_token(scene.ctx->secret, &welcome.ids, false));
    scene_close(&scene);
}
END_TEST

/* The nonce is right and the MAC is not. While the handshake was open, that meant another secret. */
START_TEST(a_challenge_after_the_handshake_fails_no_peer)
{
    kvcl_hs_msg_t hs;
    kvcl_peer_t   *peer;
    scene_t       scene;

    scene_open(&scene, kinds[_i]);
    memset(&hs, 0, sizeof(hs));
    hs.msg = message(KVCL_MSG_CHALLENGE);
    peer   = greeted(&scene, &hs.ids);
    ignored(&scene, &hs);
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unasked");
    TCase *tc    = tcase_create("unasked");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_nonce_of_zeros_answers_no_greeting, 0, KINDS);
    tcase_add_loop_test(tc, a_challenge_after_the_handshake_fails_no_peer, 0, KINDS);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
