/* Sessions that a rank of the job begins by itself (link/link.c), by its PROOFs over loop. */
#include "config.h"
#include "core_scene.h"
#include "test_base.h"
#include "req/req.h"

#include <stdlib.h>
#include <string.h>

/* A rank of the job proves itself in one higher session after the other. */
START_TEST(sessions_that_rise_in_a_loop_are_bounded)
{
    kvcl_hs_msg_t welcome, proof;
    kvcl_peer_t   *peer;
    scene_t       scene;
    uint64_t      token, received;
    uint32_t      i, taken = 0, lower;

    scene_open(&scene, PAIR_LOOP);
    welcome = proven(&scene, &token);
    peer    = scene.ctx->peers.v[welcome.index];
    scene.peers = peers(scene.ctx);
    for (i = 1; i <= 200; ++i) {
        proof         = challenged(&scene);
        proof.part    = KVCL_ADDRESS_LOOP;
        proof.session = i;
        sign(&scene, &proof);
        received = scene.side.received;
        send_raw(&scene, &proof, sizeof(proof), scene.address, scene.address_len);
        SCENE_UNTIL(&scene, (scene.side.received > received) || (strangers(scene.ctx) > scene.expected));
        scene.expected += (scene.side.received == received);
        taken          += (scene.side.received > received);
    }
    ck_assert_uint_ge(taken, 4);
    ck_assert_uint_lt(taken, 150);
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    ck_assert_uint_eq(peers(scene.ctx), scene.peers);
    lower         = peer->session - 1;
    proof         = challenged(&scene);
    proof.part    = KVCL_ADDRESS_LOOP;
    proof.session = lower;
    sign(&scene, &proof);
    dropped(&scene, &proof, sizeof(proof), scene.address, scene.address_len);
    ck_assert_uint_eq(peer->session, lower + 1);
    scene_close(&scene);
}
END_TEST

/* What a recorded message of an earlier session would say. */
START_TEST(tokens_of_an_earlier_session_are_void)
{
    kvcl_hs_msg_t welcome, proof;
    kvcl_peer_t   *peer;
    scene_t       scene;
    kvcl_msg_t    bye;
    uint64_t      token;

    scene_open(&scene, PAIR_LOOP);
    welcome       = proven(&scene, &token);
    peer          = scene.ctx->peers.v[welcome.index];
    scene.peers   = peers(scene.ctx);
    proof         = challenged(&scene);
    proof.part    = KVCL_ADDRESS_LOOP;
    proof.session = 1;
    sign(&scene, &proof);
    welcome = requested(&scene, &proof, scene.address, scene.address_len, KVCL_MSG_WELCOME);
    ck_assert_uint_eq(welcome.session, 1);
    ck_assert_uint_eq(peer->session, 1);
    bye       = message(KVCL_MSG_BYE);
    bye.peer  = welcome.index;
    bye.token = token;
    dropped(&scene, &bye, sizeof(bye), NULL, 0);
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
    bye.token = kvcl_hs_token(scene.ctx->secret, &welcome.ids, true);
    send_raw(&scene, &bye, sizeof(bye), NULL, 0);
    SCENE_UNTIL(&scene, peer->state == KVCL_PEER_FAILED);
    SCENE_UNTIL(&scene, scene.side.received == 5); /* the reply to BYE */
    proof         = challenged(&scene);
    proof.part    = KVCL_ADDRESS_LOOP;
    proof.session = 2;
    sign(&scene, &proof);
    refused(&scene, &proof, scene.address, scene.address_len, KVCL_ERR_UNREACHABLE, false); /* it has left */
    ck_assert_ptr_nonnull(peer->ep);
    SCENE_UNTIL(&scene, peer->ep == NULL); /* nothing more is sent to it */
    scene_close(&scene);
}
END_TEST

/* A request that fails its peer when the session ends. */
typedef struct failing {
    kvcl_req_t  req;
    kvcl_peer_t *peer;
} failing_t;

static void fail_peer(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_peer_fail(kvcl_container_of(req, failing_t, req)->peer, KVCL_ERR_RANK_FAILED);
    kvcl_req_complete(req, status);
}

static const kvcl_req_class_t failing_class = {.name = "failing", .stop = fail_peer};

static kvcl_peer_t *peer_with_a_failing_request(scene_t *scene)
{
    failing_t     *failing = calloc(1, sizeof(*failing));
    kvcl_hs_msg_t welcome;
    uint64_t      token;

    ck_assert_ptr_nonnull(failing);
    scene_open(scene, PAIR_LOOP);
    welcome       = proven(scene, &token);
    scene->peers  = peers(scene->ctx);
    failing->peer = scene->ctx->peers.v[welcome.index];
    kvcl_lock(scene->ctx);
    ck_assert_int_eq(kvcl_req_start(&failing->req, scene->ctx, &failing_class, 60 * KVCL_NS_PER_SEC, NULL, NULL, false),
                     KVCL_OK);
    kvcl_req_watch(&failing->req, failing->peer);
    kvcl_unlock(scene->ctx);
    return failing->peer;
}

START_TEST(a_peer_that_fails_with_its_session_begins_no_other)
{
    kvcl_hs_msg_t proof;
    scene_t       scene;
    kvcl_peer_t   *peer = peer_with_a_failing_request(&scene);

    proof         = challenged(&scene);
    proof.part    = KVCL_ADDRESS_LOOP;
    proof.session = 1;
    sign(&scene, &proof);
    refused(&scene, &proof, scene.address, scene.address_len, KVCL_ERR_UNREACHABLE, false);
    ck_assert_int_eq(peer->state, KVCL_PEER_FAILED);
    ck_assert_ptr_null(peer->ep);
    scene_close(&scene);
}
END_TEST

START_TEST(a_peer_that_fails_with_its_link_is_not_searched_for)
{
    scene_t     scene;
    kvcl_peer_t *peer = peer_with_a_failing_request(&scene);

    kvcl_lock(scene.ctx);
    peer->ep->lost = true;
    kvcl_peer_ep_failed(scene.ctx, peer->ep, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(peer->state, KVCL_PEER_FAILED);
    ck_assert_ptr_null(peer->relink);
    ck_assert_ptr_null(peer->ep);
    kvcl_unlock(scene.ctx);
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sessions");
    TCase *tc    = tcase_create("sessions");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, sessions_that_rise_in_a_loop_are_bounded);
    tcase_add_test(tc, tokens_of_an_earlier_session_are_void);
    tcase_add_test(tc, a_peer_that_fails_with_its_session_begins_no_other);
    tcase_add_test(tc, a_peer_that_fails_with_its_link_is_not_searched_for);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
