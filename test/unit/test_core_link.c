/*
 * Lost links (link/link.c), over loop with its fault lose_link_nth. Gets succeed; puts and sends succeed or end with
 * KVCL_ERR_UNREACHABLE; no rank fails.
 */
#include "config.h"
#include "link_pair.h"

/* Whichever message the link is lost with. */
START_TEST(a_get_begins_again)
{
    const kvcl_loop_faults_t *kind = &kinds_of_loop[_i / 2];
    uint64_t                 nth, lost;

    open_both(kind);
    still_right(1);
    for (nth = 1; nth <= NTH_MAX; ++nth) {
        lose(kind, nth, _i % 2);
        still_right((uint8_t)nth);
        are_linked();
    }
    lost = a->peers.lost_links + b->peers.lost_links;
    ck_assert((lost > 0) || (kind->no_map && !kind->no_rma)); /* a native get needs no message */
    lose(kind, 0, false);
    still_right(99);
    close_both();
}
END_TEST

/* By blocks of a cache, whose description is requested again. */
START_TEST(a_get_of_blocks_begins_again)
{
    static const uint32_t    ids[BLOCKS] = {0, 1, 2, 3};
    const kvcl_loop_faults_t *kind       = &kinds_of_loop[_i / 2];
    kvcl_cache_params_t      params      = {.size = sizeof(params), .flags = KVCL_CACHE_WRITABLE};
    kvcl_sel_t               sel         = {.blocks = ids, .n_blocks = BLOCKS};
    kvcl_status_t            status;
    kvcl_req_h               req;
    size_t                   n, bytes;
    uint64_t                 nth;
    void                     *mine, *theirs;

    open_both(kind);
    ck_assert_int_eq(kvcl_layout_extent(&layout, &n, &bytes), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_create(a, "kv", &layout, &params, &cache_a), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_create(b, "kv", &layout, &params, &cache_b), KVCL_OK);
    mine   = kvcl_cache_base(cache_a, 0);
    theirs = kvcl_cache_base(cache_b, 0);
    for (nth = 1; nth <= NTH_MAX; ++nth) {
        memset(mine, 0, bytes);
        memset(theirs, (int)nth, bytes);
        lose(kind, nth, _i % 2);
        req = NULL;
        ck_assert_int_ge(kvcl_get(to_b, 0, cache_a, &sel, &sel, NULL, &req), KVCL_OK);
        ck_assert_int_eq(ended(req), KVCL_OK);
        ck_assert_mem_eq(mine, theirs, bytes);
        are_linked();
        memset(mine, 100 + (int)nth, bytes);
        req = NULL;
        ck_assert_int_ge(kvcl_put(to_b, 0, cache_a, &sel, &sel, NULL, &req), KVCL_OK);
        status = ended(req);
        ck_assert((status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE));
        if (status == KVCL_OK) {
            ck_assert_mem_eq(mine, theirs, bytes);
        }
        are_linked();
    }
    close_both();
}
END_TEST

START_TEST(a_put_ends_unreachable)
{
    const kvcl_loop_faults_t *kind = &kinds_of_loop[_i / 2];
    unsigned                 unreachable = 0;
    kvcl_status_t            status;
    kvcl_req_h               req;
    uint64_t                 nth;

    open_both(kind);
    still_right(1);
    for (nth = 1; nth <= NTH_MAX; ++nth) {
        memset(here, (int)nth, BYTES);
        lose(kind, nth, _i % 2);
        req    = NULL;
        status = kvcl_put_bytes(rmem, 0, here, BYTES, NULL, &req);
        ck_assert_int_ge(status, KVCL_OK);
        status = ended(req);
        if (status == KVCL_OK) {
            ck_assert_mem_eq(here, there, BYTES);
        } else {
            ck_assert_int_eq(status, KVCL_ERR_UNREACHABLE);
            ck_assert_msg(strstr(kvcl_last_error(), "may or may not have arrived") != NULL, "%s", kvcl_last_error());
            ++unreachable;
        }
        are_linked();
    }
    ck_assert((unreachable > 0) || (kind->no_map && !kind->no_rma)); /* a native put needs no message */
    lose(kind, 0, false);
    still_right(3);
    close_both();
}
END_TEST

START_TEST(a_send_ends_on_both_sides)
{
    const kvcl_loop_faults_t *kind = &kinds_of_loop[_i / 2];
    static char              in[BYTES];
    kvcl_req_h               send, recv;
    kvcl_status_t            sent, received;
    uint64_t                 nth, lost = 0;
    size_t                   len;

    open_both(kind);
    still_right(1);
    for (nth = 1; nth <= NTH_MAX; ++nth) {
        len = (nth % 2 == 0) ? 100 : BYTES; /* eager, and pulled */
        memset(here, (int)nth, BYTES);
        memset(in, 0, BYTES);
        send = recv = NULL;
        lose(kind, (nth + 1) / 2, _i % 2);
        ck_assert_int_ge(kvcl_recv_bytes(to_a, 0, nth, in, BYTES, NULL, &recv), KVCL_OK);
        ck_assert_int_ge(kvcl_send_bytes(to_b, 0, nth, here, len, NULL, &send), KVCL_OK);
        sent = ended(send);
        if (sent == KVCL_OK) {
            ck_assert_int_eq(ended(recv), KVCL_OK);
            ck_assert_mem_eq(in, here, len);
        } else {
            ck_assert_int_eq(sent, KVCL_ERR_UNREACHABLE);
            are_linked();
            received = ended(recv);
            ck_assert_msg((received == KVCL_OK) || (received == KVCL_ERR_UNREACHABLE), "%s",
                          kvcl_status_text(received));
            ++lost;
        }
        are_linked();
    }
    ck_assert_uint_gt(lost, 0);
    close_both();
}
END_TEST

static void lose_now(void)
{
    kvcl_lock(a);
    b_at_a->ep->lost = true;
    kvcl_peer_ep_failed(a, b_at_a->ep, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(b_at_a->state, KVCL_PEER_CONNECTING);
    kvcl_unlock(a);
}

/* Native operations in flight end with the link, though the network would move them for ever. */
START_TEST(native_operations_end_with_the_link)
{
    kvcl_loop_faults_t kind = {.no_map = true, .async_sends = true}, stalls = kind;
    static char        buf[BYTES];
    kvcl_req_h         get  = NULL, put = NULL, stopped = NULL;
    unsigned           i;

    stalls.stall_rma = true;
    open_both(&kind);
    still_right(1);
    kvcl_loop_set_faults(&stalls);
    memcpy(buf, there, BYTES);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES / 2, NULL, &get), KVCL_OK);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here + (BYTES / 2), 8, NULL, &stopped), KVCL_OK);
    ck_assert_int_ge(kvcl_put_bytes(rmem, BYTES / 2, buf + (BYTES / 2), BYTES / 2, NULL, &put), KVCL_OK);
    for (i = 0; i < 20; ++i) {
        turn_both();
    }
    kvcl_req_cancel(stopped);
    ck_assert_int_eq(kvcl_req_test(get), KVCL_INPROGRESS);
    ck_assert_int_eq(kvcl_req_test(put), KVCL_INPROGRESS);
    memset(there, 5, BYTES / 2);
    lose_now();
    kvcl_loop_set_faults(&kind);
    ck_assert_int_eq(ended(put), KVCL_ERR_UNREACHABLE);
    ck_assert_int_eq(ended(stopped), KVCL_ERR_CANCELED);
    ck_assert_int_eq(ended(get), KVCL_OK);
    ck_assert_mem_eq(here, there, BYTES / 2);
    are_linked();
    still_right(7);
    close_both();
}
END_TEST

/* Bytes of the old link lie in this rank's queue when the get begins again, and the owner changes them. */
START_TEST(late_bytes_of_the_old_link_do_not_land)
{
    kvcl_loop_faults_t kind = kinds_of_loop[0];
    kvcl_req_h         req  = NULL;
    uint64_t           before;
    unsigned           i;

    open_both(&kind);
    still_right(1);
    spread(2);
    memset(here, 0, BYTES);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES, NULL, &req), KVCL_OK);
    for (i = 0; i < 10; ++i) {
        (void)kvcl_progress(b); /* it serves; this rank takes nothing */
    }
    spread(3);
    before = a->stats.strangers;
    lose_now();
    ck_assert_int_eq(ended(req), KVCL_OK);
    is_spread(here, 3);
    ck_assert_uint_gt(a->stats.strangers, before);
    are_linked();
    close_both();
}
END_TEST

/* The peer sends a message by a handshake that was given up, and no other endpoint can be made now. */
START_TEST(a_message_by_a_handshake_that_was_given_up)
{
    kvcl_loop_faults_t kind = kinds_of_loop[0], full = {.fail_alloc_nth = 1}; /* once */
    kvcl_msg_t         msg  = {.type = KVCL_MSG_BYE, .flags = 1};

    open_both(&kind);
    still_right(1);
    lose_now();
    while (b_at_a->next_token == 0) {
        turn_both();
    }
    kvcl_lock(b);
    ck_assert_int_eq(kvcl_peer_post(a_at_b, &msg, sizeof(msg), NULL, 0), KVCL_OK);
    kvcl_unlock(b);
    kvcl_loop_set_faults(&full);
    lose_now();
    turn_both();
    turn_both();
    kvcl_lock(a);
    ck_assert_int_eq(kvcl_peer_post(b_at_a, &msg, sizeof(msg), NULL, 0), KVCL_ERR_UNREACHABLE);
    kvcl_unlock(a);
    are_linked();
    close_both();
}
END_TEST

/* The new link is lost before it is ready, again and again. */
START_TEST(a_link_lost_during_the_handshake)
{
    kvcl_loop_faults_t kind = kinds_of_loop[0];
    kvcl_req_h         req  = NULL;
    unsigned           i;

    open_both(&kind);
    still_right(1);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES, NULL, &req), KVCL_OK);
    for (i = 0; i < 3; ++i) {
        if (b_at_a->ep != NULL) {
            lose_now();
        }
        (void)kvcl_progress(b);
        (void)kvcl_progress(a);
    }
    ck_assert_int_eq(ended(req), KVCL_OK);
    is_spread(here, 1);
    are_linked();
    close_both();
}
END_TEST

/* Links that are lost without end cost a bounded number of sessions, and a get goes on. */
START_TEST(flapping_links_are_bounded)
{
    kvcl_loop_faults_t kind = kinds_of_loop[0];
    kvcl_req_h         req  = NULL;
    uint64_t           until;

    open_both(&kind);
    still_right(1);
    spread(2);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES, NULL, &req), KVCL_OK);
    until = kvcl_deadline_after(300 * KVCL_NS_PER_MS);
    while (!kvcl_deadline_passed(until)) {
        if (b_at_a->state == KVCL_PEER_READY) {
            lose_now();
        }
        turn_both();
    }
    ck_assert_uint_gt(b_at_a->session, 4);
    ck_assert_uint_lt(a->peers.lost_links, 60); /* 8, and one each 20 ms */
    ck_assert_int_eq(ended(req), KVCL_OK);
    is_spread(here, 2);
    are_linked();
    close_both();
}
END_TEST

/* The other rank says nothing more: it has failed after two intervals of KVCL_KEEPALIVE, and the get with it. */
START_TEST(a_peer_that_no_pair_reaches_has_failed)
{
    kvcl_loop_faults_t kind = kinds_of_loop[0];
    kvcl_req_h         req  = NULL, late = NULL;
    kvcl_status_t      status;
    uint64_t           deadline = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);

    ck_assert_int_eq(setenv("KVCL_KEEPALIVE", "50ms", 1), 0);
    open_both(&kind);
    ck_assert_int_eq(unsetenv("KVCL_KEEPALIVE"), 0);
    still_right(1);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES, NULL, &req), KVCL_OK);
    lose_now();
    while ((status = kvcl_req_test(req)) == KVCL_INPROGRESS) {
        (void)kvcl_progress(a);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_int_eq(status, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(b_at_a->state, KVCL_PEER_FAILED);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES, NULL, &late), KVCL_OK);
    ck_assert_int_eq(ended(late), KVCL_ERR_RANK_FAILED);
    close_both();
}
END_TEST

/* A rank that leaves makes no new link, and waits for none. */
START_TEST(a_link_lost_while_a_rank_leaves)
{
    kvcl_loop_faults_t kind = kinds_of_loop[0];

    open_both(&kind);
    still_right(1);
    kvcl_lock(a);
    kvcl_peers_goodbye(a);
    ck_assert(b_at_a->parting);
    b_at_a->ep->lost = true;
    kvcl_peer_ep_failed(a, b_at_a->ep, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(b_at_a->state, KVCL_PEER_FAILED);
    ck_assert(kvcl_peers_parted(a));
    kvcl_unlock(a);
    close_both();
}
END_TEST

enum { IN_FLIGHT = 6, ROUNDS = 150 };

typedef struct one {
    kvcl_req_h req;
    bool       gets;
    char       *buf;
} one_t;

/* Gets, puts into another part, sends and recvs, while links are lost at random. */
START_TEST(random_losses)
{
    one_t              ones[IN_FLIGHT] = {{0}};
    kvcl_loop_faults_t kind;
    kvcl_status_t      status;
    kvcl_rand_t        rnd;
    unsigned           round, i, half = BYTES / 2;
    uint64_t           gets = 0, lost;

    test_seed(&rnd);
    kind = kinds_of_loop[kvcl_rand_below(&rnd, LOOP_KINDS)];
    open_both(&kind);
    spread(1);
    for (i = 0; i < IN_FLIGHT; ++i) {
        ones[i].buf = malloc(BYTES);
        ck_assert_ptr_nonnull(ones[i].buf);
    }
    for (round = 0; round < ROUNDS; ++round) {
        lose(&kind, 1 + kvcl_rand_below(&rnd, 40), kvcl_rand_below(&rnd, 2));
        for (i = 0; i < IN_FLIGHT; ++i) {
            ones[i].req  = NULL;
            ones[i].gets = kvcl_rand_below(&rnd, 2);
            memset(ones[i].buf, 0, BYTES);
            status = ones[i].gets ? kvcl_get_bytes(rmem, 0, ones[i].buf, half, NULL, &ones[i].req)
                     : kvcl_rand_below(&rnd, 2) ? kvcl_put_bytes(rmem, half, ones[i].buf, half, NULL, &ones[i].req)
                                                : kvcl_send_bytes(to_b, 0, 1, ones[i].buf, 64, NULL, &ones[i].req);
            ck_assert_int_ge(status, KVCL_OK);
            if (kvcl_rand_below(&rnd, 3) == 0) {
                (void)kvcl_progress((kvcl_rand_below(&rnd, 2) != 0) ? a : b);
            }
        }
        for (i = 0; i < IN_FLIGHT; ++i) {
            if (ones[i].gets) {
                ck_assert_int_eq(ended(ones[i].req), KVCL_OK);
                ck_assert_mem_eq(ones[i].buf, there, half);
                ++gets;
            }
        }
        for (i = 0; i < IN_FLIGHT; ++i) {
            if (!ones[i].gets) {
                kvcl_req_cancel(ones[i].req); /* no recv takes a send */
                status = ended(ones[i].req);
                ck_assert_msg((status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_CANCELED),
                              "%s", kvcl_status_text(status));
            }
        }
        if (round % 4 != 0) {
            rest();
        }
    }
    lost = a->peers.lost_links + b->peers.lost_links;
    printf("%llu gets, %llu lost links\n", (unsigned long long)gets, (unsigned long long)lost);
    ck_assert_uint_gt(lost, 10);
    lose(&kind, 0, false);
    are_linked();
    for (i = 0; i < IN_FLIGHT; ++i) {
        free(ones[i].buf);
    }
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("links");
    TCase *tc    = tcase_create("links");

    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, a_get_begins_again, 0, 2 * LOOP_KINDS);
    tcase_add_loop_test(tc, a_get_of_blocks_begins_again, 0, 2 * LOOP_KINDS);
    tcase_add_loop_test(tc, a_put_ends_unreachable, 0, 2 * LOOP_KINDS);
    tcase_add_loop_test(tc, a_send_ends_on_both_sides, 0, 2 * LOOP_KINDS);
    tcase_add_test(tc, native_operations_end_with_the_link);
    tcase_add_test(tc, late_bytes_of_the_old_link_do_not_land);
    tcase_add_test(tc, a_message_by_a_handshake_that_was_given_up);
    tcase_add_test(tc, a_link_lost_during_the_handshake);
    tcase_add_test(tc, flapping_links_are_bounded);
    tcase_add_test(tc, a_peer_that_no_pair_reaches_has_failed);
    tcase_add_test(tc, a_link_lost_while_a_rank_leaves);
    tcase_add_test(tc, random_losses);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
