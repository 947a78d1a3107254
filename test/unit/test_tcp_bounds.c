/*
 * What a process that has proven the secret can make the tcp transport hold and do: memory of messages that it does not
 * read, connections, beginnings of messages, and the work for each byte.
 */
#include "config.h"
#include "tcp_rogue.h"
#include "test_base.h"

#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* ---- memory of messages that wait ---- */

/* Nothing is lost in silence: the peer fails, and the sends say so. */
START_TEST(a_peer_that_does_not_read_fails_at_the_bound)
{
    char          data[480] = {0};
    uint64_t      hdr[8]    = {0};
    kvcl_iov_t    iov       = {data, sizeof(data)};
    kvcl_status_t status;
    size_t        before;
    pair_t        pair;

    side_open(&pair.a, (pair_kind_t)_i);
    side_open(&pair.b, (pair_kind_t)_i);
    side_connect(&pair.a, &pair.b);
    PAIR_UNTIL(&pair, ep_in(&pair.a)->out->stream.state == KVCL_SOCK_OPEN);
    before = heap_bytes();
    while ((status = pair.a.ops->am_send(pair.a.ep, hdr, sizeof(hdr), &iov, 1, 0, NULL)) == KVCL_OK) {
        ck_assert_uint_le(heap_bytes(), before + TCP_QUEUE_MAX + TCP_QUEUE_MAX / 8);
    }
    ck_assert_int_eq(status, KVCL_ERR_RANK_FAILED);
    while (pair.a.failures == 0) {
        (void)pair.a.ops->progress(pair.a.xport);
    }
    ck_assert_int_eq(pair.a.failed_with, KVCL_ERR_RANK_FAILED);
    ck_assert_uint_le(heap_bytes(), before + TCP_QUEUE_MAX / 8);
    pair_close(&pair);
}
END_TEST

static void answer_at_length(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                             kvcl_xport_reply_t *reply)
{
    char out[TCP_MAX_HDR] = {0};

    (void)hdr, (void)hdr_len, (void)data, (void)len, (void)side;
    (void)kvcl_xport_reply(reply, out, sizeof(out));
}

START_TEST(replies_that_are_not_read_end_the_connection)
{
    struct { tcp_frame_t frame; uint64_t hdr; } ask;
    const uint8_t      id[16]   = {7};
    uint64_t           deadline = kvcl_deadline_after(ROGUE_NS);
    kvcl_sock_stream_t rogue;
    tcp_conn_t         *conn;
    uint32_t           seq = 0;
    size_t             at  = 0;
    side_t             side;

    side_open(&side, PAIR_PLAIN);
    side.on_recv = answer_at_length;
    rogue_open(&rogue, &side, id);
    while (conns_of(&side) > 0) {
        ask.frame = rogue_frame(seq, 0, true);
        at       += rogue_send(&rogue, (const char *)&ask + at, sizeof(ask) - at);
        if (at == sizeof(ask)) {
            at = 0;
            ++seq;
        }
        (void)side.ops->progress(side.xport);
        kvcl_list_foreach (conn, &tcp_in(&side)->conns, tcp_conn_t, link) {
            ck_assert_uint_le(conn->queued, TCP_REPLIES_MAX);
        }
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_uint_gt(side.received, 0);
    kvcl_sock_close(&rogue, -1);
    side_close(&side);
}
END_TEST

/* ---- connections ---- */

/* Ids are the connecting side's own: their number is no bound. */
START_TEST(connections_that_no_endpoint_uses_are_few_and_end)
{
    enum { MADE = TCP_UNUSED + 20 };
    static kvcl_sock_stream_t rogues[MADE];
    uint64_t                  now, next = UINT64_MAX;
    uint8_t                   id[16] = {1};
    side_t                    side;
    int                       i;

    side_open(&side, PAIR_PLAIN);
    for (i = 0; i < MADE; ++i) {
        memcpy(id, &i, sizeof(i));
        rogue_open(&rogues[i], &side, id);
        ck_assert_uint_le(conns_of(&side), TCP_UNUSED);
    }
    ck_assert_uint_eq(conns_of(&side), TCP_UNUSED);
    ck_assert_mem_eq(kvcl_list_head(&tcp_in(&side)->conns, tcp_conn_t, link)->stream.peer_id,
                     &(int){MADE - TCP_UNUSED}, sizeof(int)); /* the oldest were dismissed */
    ck_assert(!kvcl_list_is_empty(&tcp_in(&side)->conns));
    now = kvcl_now_ns();
    kvcl_tcp_unused_expire(tcp_in(&side), now, &next);
    ck_assert_uint_eq(conns_of(&side), TCP_UNUSED);
    ck_assert_uint_le(tcp_in(&side)->timer_ns, now + TCP_CONNECT_NS);
    ck_assert_uint_le(next, now + TCP_CONNECT_NS);
    kvcl_tcp_unused_expire(tcp_in(&side), now + TCP_CONNECT_NS, &next);
    ck_assert_uint_eq(conns_of(&side), 0);
    for (i = 0; i < MADE; ++i) {
        kvcl_sock_close(&rogues[i], -1);
    }
    side_close(&side);
}
END_TEST

/* Without an endpoint only the core's handshake is accepted. */
START_TEST(a_long_message_needs_an_endpoint)
{
    static char        data[sizeof(tcp_frame_t) + 8 + TCP_UNUSED_MSG + 8];
    const uint8_t      id[16]   = {7};
    tcp_frame_t        frame    = rogue_frame(0, TCP_UNUSED_MSG, false);
    uint64_t           deadline = kvcl_deadline_after(ROGUE_NS);
    kvcl_sock_stream_t rogue;
    size_t             len = sizeof(frame) + 8 + TCP_UNUSED_MSG, at = 0;
    side_t             side;

    side_open(&side, PAIR_PLAIN);
    rogue_open(&rogue, &side, id);
    memcpy(data, &frame, sizeof(frame));
    while (side.received == 0) {
        at += rogue_send(&rogue, data + at, len - at);
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_uint_eq(side.len, TCP_UNUSED_MSG);
    kvcl_list_head(&tcp_in(&side)->conns, tcp_conn_t, link)->deadline_ns = UINT64_MAX; /* only the length may end it */
    frame = rogue_frame(1, TCP_UNUSED_MSG + 1, false);
    ck_assert_uint_eq(rogue_send(&rogue, &frame, sizeof(frame)), sizeof(frame));
    while (conns_of(&side) > 0) {
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    kvcl_sock_close(&rogue, -1);
    side_close(&side);
}
END_TEST

/* ---- beginnings ---- */

/* The only connection that the side has accepted. */
static tcp_conn_t *accepted(const side_t *side)
{
    return kvcl_list_head(&tcp_in(side)->conns, tcp_conn_t, link);
}

/* Send all of it in one piece, and receive it. */
static void send_piece(kvcl_sock_stream_t *rogue, side_t *side, const uint8_t *from, size_t len)
{
    tcp_conn_t *conn    = accepted(side);
    uint64_t   deadline = kvcl_deadline_after(ROGUE_NS), had = conn->in_len, before = side->received;

    ck_assert_uint_eq(rogue_send(rogue, from, len), len);
    while ((side->received == before) && (conn->in_len < had + len)) {
        (void)side->ops->progress(side->xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
}

/* Once its head is known, the rest is read to its place, which rarely moves, and not by way of the scratch buffer. */
START_TEST(a_message_in_many_pieces_is_copied_once)
{
    enum { LEN = 240 << 10, PIECE = 256, BEGIN = 1024 };
    static uint8_t     bytes[sizeof(tcp_frame_t) + 8 + LEN];
    const tcp_frame_t  frame  = rogue_frame(0, LEN, false);
    kvcl_sock_stream_t rogue;
    unsigned           moves = 0;
    size_t             at, cap;
    uint8_t            *in;
    pair_t             pair;

    side_open(&pair.a, PAIR_PLAIN);
    side_open(&pair.b, PAIR_PLAIN);
    rogue_open(&rogue, &pair.b, tcp_in(&pair.a)->own.id);
    side_connect(&pair.b, &pair.a); /* it takes over the rogue's connection */
    memcpy(bytes, &frame, sizeof(frame));
    fill(bytes + sizeof(frame) + 8, LEN, 5);
    send_piece(&rogue, &pair.b, bytes, BEGIN);
    memset(tcp_in(&pair.b)->scratch, 0xee, TCP_SCRATCH);
    in  = accepted(&pair.b)->in;
    cap = accepted(&pair.b)->in_cap;
    for (at = BEGIN; at < sizeof(bytes); at += PIECE) {
        send_piece(&rogue, &pair.b, bytes + at, (sizeof(bytes) - at < PIECE) ? sizeof(bytes) - at : PIECE);
        moves += (accepted(&pair.b)->in != in) || (accepted(&pair.b)->in_cap != cap);
        in     = accepted(&pair.b)->in;
        cap    = accepted(&pair.b)->in_cap;
        ck_assert_uint_eq(tcp_in(&pair.b)->scratch[0], 0xee);
    }
    ck_assert_uint_le(moves, 5);
    ck_assert_uint_eq(pair.b.received, 1);
    ck_assert_uint_eq(pair.b.len, LEN);
    ck_assert(filled(pair.b.data, LEN, 5));
    kvcl_sock_close(&rogue, -1);
    pair_close(&pair);
}
END_TEST

/* Messages of all sizes, cut at random. */
START_TEST(messages_are_whole_however_they_are_cut)
{
    enum { MESSAGES = 300, BYTES = 1 << 20 };
    static uint8_t     bytes[BYTES];
    kvcl_sock_stream_t rogue;
    uint64_t           deadline = kvcl_deadline_after(ROGUE_NS);
    tcp_frame_t        frame;
    kvcl_rand_t        rng;
    size_t             len, at, end, most, seen = 0;
    uint64_t           heard;
    uint32_t           seq;
    pair_t             pair;

    test_seed(&rng);
    side_open(&pair.a, PAIR_PLAIN);
    side_open(&pair.b, PAIR_PLAIN);
    rogue_open(&rogue, &pair.b, tcp_in(&pair.a)->own.id);
    side_connect(&pair.b, &pair.a);
    for (seq = 0; seq < MESSAGES; seq += (uint32_t)heard) {
        heard = 1 + kvcl_rand_below(&rng, 4); /* messages one after the other, then all are sent */
        for (end = 0, most = 0; most < heard; ++most) {
            len   = (kvcl_rand_below(&rng, 3) == 0) ? kvcl_rand_below(&rng, 200000) : kvcl_rand_below(&rng, 600);
            frame = rogue_frame(seq + (uint32_t)most, (uint32_t)len, false);
            memcpy(bytes + end, &frame, sizeof(frame));
            fill(bytes + end + sizeof(frame) + 8, len, 3);
            end += sizeof(frame) + 8 + ((len + 7) & ~(size_t)7);
        }
        most = (kvcl_rand_below(&rng, 2) == 0) ? 300000 : 7000;
        for (at = 0; at < end;) {
            len = 1 + kvcl_rand_below(&rng, kvcl_rand_below(&rng, 4) == 0 ? 30 : most);
            at += rogue_send(&rogue, bytes + at, (len < end - at) ? len : end - at);
            (void)pair.b.ops->progress(pair.b.xport);
            if (pair.b.received != seen) {
                seen = pair.b.received;
                ck_assert(filled(pair.b.data, pair.b.len, 3));
            }
            ck_assert(!kvcl_deadline_passed(deadline));
        }
        while (pair.b.received < seq + heard) {
            (void)pair.b.ops->progress(pair.b.xport);
            ck_assert(!kvcl_deadline_passed(deadline));
        }
        ck_assert(filled(pair.b.data, pair.b.len, 3));
    }
    ck_assert_uint_eq(pair.b.failures, 0);
    kvcl_sock_close(&rogue, -1);
    pair_close(&pair);
}
END_TEST

static unsigned heard(const side_t *side)
{
    tcp_conn_t *conn;
    unsigned   n = 0;

    kvcl_list_foreach (conn, &tcp_in(side)->strangers, tcp_conn_t, link) {
        n += conn->stream.heard ? 1 : 0;
    }
    return n;
}

/* HELLO is no secret: whoever recorded one must not hold all places of those who have not spoken yet. */
START_TEST(strangers_that_have_spoken_hold_half_of_the_places)
{
    enum { SPOKEN = TCP_STRANGERS - 4, KNOCKS = 500 };
    kvcl_sock_stream_t      rogue[SPOKEN];
    uint64_t                deadline = kvcl_deadline_after(ROGUE_NS);
    struct sockaddr_storage ss;
    uint8_t                 id[16] = {7};
    socklen_t               len;
    side_t                  side;
    int                     i, fd[KNOCKS];

    side_open(&side, PAIR_PLAIN);
    len = door_of(&side, 0, &ss);
    for (i = 0; i < SPOKEN; ++i) {
        rogue_begin(&rogue[i], &side, 0, id);
        while (rogue[i].state == KVCL_SOCK_CONNECTING) {
            (void)rogue_step(&rogue[i]);
        }
        while (heard(&side) <= (unsigned)i) {
            (void)side.ops->progress(side.xport);
            ck_assert(!kvcl_deadline_passed(deadline));
        }
    }
    for (i = 0; i < KNOCKS; ++i) {
        fd[i] = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fd[i], (const struct sockaddr *)&ss, len), 0);
        (void)side.ops->progress(side.xport);
    }
    while (heard(&side) > TCP_STRANGERS / 2) {
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
        ck_assert_uint_eq(tcp_in(&side)->n_strangers, TCP_STRANGERS); /* none has expired */
    }
    for (i = 0; i < KNOCKS; ++i) {
        close(fd[i]);
    }
    for (i = 0; i < SPOKEN; ++i) {
        kvcl_sock_close(&rogue[i], -1);
    }
    side_close(&side);
}
END_TEST

/* Until its first byte a stranger costs no handshake, no random bytes and no settings of its socket. */
START_TEST(a_silent_stranger_costs_a_descriptor)
{
    uint64_t                deadline = kvcl_deadline_after(ROGUE_NS);
    struct sockaddr_storage ss;
    tcp_conn_t              *conn;
    socklen_t               len;
    side_t                  side;
    int                     fd, on;

    side_open(&side, (_i == 0) ? PAIR_PLAIN : PAIR_AEAD);
    len = door_of(&side, 0, &ss);
    fd  = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&ss, len), 0);
    while (tcp_in(&side)->n_strangers == 0) {
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    conn = kvcl_container_of(tcp_in(&side)->strangers.next, tcp_conn_t, link);
    while (side.ops->arm(side.xport) != KVCL_OK) { /* all that it has to do is done */
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_ptr_null(conn->stream.hs);
    len = sizeof(on);
    ck_assert_int_eq(getsockopt(conn->stream.fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    ck_assert_int_eq(on, 0);
    ck_assert_int_eq(send(fd, "x", 1, 0), 1);
    while (conn->stream.hs == NULL) {
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_uint_eq(conn->stream.hs->in_len, 1);
    close(fd);
    side_close(&side);
}
END_TEST

/* Strangers at one interface keep no rank out at another. */
START_TEST(each_listener_has_its_turn)
{
    enum { KNOCKS = 100 };
    kvcl_sock_listener_t    more[KVCL_SOCK_LISTENERS];
    struct sockaddr_storage ss;
    socklen_t               len;
    unsigned                n;
    tcp_t                   *tcp;
    side_t                  side;
    int                     fds[KNOCKS + 1], i;

    side_open(&side, PAIR_PLAIN);
    tcp = tcp_in(&side);
    ck_assert_uint_eq(tcp->n_doors, 1);
    ck_assert_int_eq(kvcl_sock_listen("lo", more, &n), KVCL_OK);
    tcp->doors[1]          = tcp->doors[0];
    tcp->doors[1].listener = more[0];
    tcp->n_doors           = 2;
    for (i = 0; i <= KNOCKS; ++i) {
        const kvcl_sock_listener_t *at = &tcp->doors[i / KNOCKS].listener;

        len    = kvcl_net_sockaddr(at->at.family, at->at.addr, at->port, &ss);
        fds[i] = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fds[i], (const struct sockaddr *)&ss, len), 0);
    }
    tcp->doors[0].knocked = tcp->doors[1].knocked = true;
    (void)kvcl_tcp_doors_accept(tcp);
    ck_assert(tcp->doors[0].knocked);
    ck_assert(!tcp->doors[1].knocked); /* all of its connections were accepted */
    for (i = 0; i <= KNOCKS; ++i) {
        close(fds[i]);
    }
    side_close(&side);
}
END_TEST

/* ---- calls ---- */

/* A program that polls once in a while, without a thread, has its peers connected within a few calls. */
START_TEST(a_handshake_takes_few_calls)
{
    const uint8_t      id[16] = {7};
    kvcl_sock_stream_t rogue;
    unsigned           calls = 0;
    side_t             side;

    side_open(&side, PAIR_PLAIN);
    rogue_begin(&rogue, &side, 0, id);
    while (rogue_step(&rogue) == KVCL_INPROGRESS) {
        usleep(1000);
        (void)side.ops->progress(side.xport);
        ck_assert_uint_le(++calls, 8);
    }
    ck_assert_int_eq(rogue.state, KVCL_SOCK_OPEN);
    kvcl_sock_close(&rogue, -1);
    side_close(&side);
}
END_TEST

static void open_and_say(pair_t *pair, uint64_t n)
{
    if (n == 0) {
        side_open(&pair->a, PAIR_PLAIN);
        side_open(&pair->b, PAIR_PLAIN);
        side_connect(&pair->a, &pair->b);
    }
    ck_assert_int_eq(pair->a.ops->am_send(pair->a.ep, &n, sizeof(n), NULL, 0, 0, NULL), KVCL_OK);
    PAIR_UNTIL(pair, pair->b.received == n + 1);
}

/* Passes, until no connection is hot. Those that read the epoll do not count: of a slow side nearly all do. */
static void cool(side_t *side)
{
    while (tcp_in(side)->hot[0] != NULL) {
        (void)side->ops->progress(side->xport);
    }
}

/* A rank does not read a silent peer's connection at each poll for ever. */
START_TEST(a_silent_connection_cools)
{
    pair_t pair;

    open_and_say(&pair, 0);
    ck_assert_ptr_nonnull(tcp_in(&pair.b)->hot[0]);
    cool(&pair.a);
    cool(&pair.b);
    open_and_say(&pair, 1);
    ck_assert_ptr_nonnull(tcp_in(&pair.a)->hot[0]);
    pair_close(&pair);
}
END_TEST

/* What a message leaves behind in the epoll is no work. */
START_TEST(a_sleeper_sleeps_at_once_after_a_message)
{
    unsigned busy = 0;
    pair_t   pair;
    uint64_t i;

    open_and_say(&pair, 0);
    while (pair.b.ops->arm(pair.b.xport) == KVCL_ERR_BUSY) {
        (void)pair.b.ops->progress(pair.b.xport);
    }
    for (i = 1; i <= 100; ++i) {
        open_and_say(&pair, i);
        busy += (pair.b.ops->arm(pair.b.xport) == KVCL_ERR_BUSY) ? 1 : 0;
        while (pair.b.ops->arm(pair.b.xport) == KVCL_ERR_BUSY) {
            (void)pair.b.ops->progress(pair.b.xport);
        }
    }
    ck_assert_uint_le(busy, 10);
    pair_close(&pair);
}
END_TEST

/* Finalize waits for sends, not for strangers. */
START_TEST(strangers_are_not_outstanding)
{
    struct sockaddr_storage ss;
    uint64_t                deadline = kvcl_deadline_after(ROGUE_NS);
    struct pollfd           fds      = {.events = POLLIN};
    socklen_t               len;
    side_t                  side;
    int                     fd;

    side_open(&side, PAIR_PLAIN);
    len = door_of(&side, 0, &ss);
    fd  = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&ss, len), 0);
    fds.fd = side.ops->event_fd(side.xport);
    ck_assert((side.ops->arm(side.xport) == KVCL_ERR_BUSY) || (poll(&fds, 1, -1) == 1)); /* it has knocked */
    while (tcp_in(&side)->n_strangers == 0) {
        ck_assert(!side.ops->outstanding(side.xport));
        (void)side.ops->progress(side.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert(!side.ops->outstanding(side.xport));
    close(fd);
    side_close(&side);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp_bounds");
    TCase *tc    = tcase_create("tcp_bounds");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_peer_that_does_not_read_fails_at_the_bound, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_test(tc, replies_that_are_not_read_end_the_connection);
    tcase_add_test(tc, connections_that_no_endpoint_uses_are_few_and_end);
    tcase_add_test(tc, a_long_message_needs_an_endpoint);
    tcase_add_test(tc, a_message_in_many_pieces_is_copied_once);
    tcase_add_test(tc, messages_are_whole_however_they_are_cut);
    tcase_add_test(tc, strangers_that_have_spoken_hold_half_of_the_places);
    tcase_add_loop_test(tc, a_silent_stranger_costs_a_descriptor, 0, 2);
    tcase_add_test(tc, each_listener_has_its_turn);
    tcase_add_test(tc, a_handshake_takes_few_calls);
    tcase_add_test(tc, a_silent_connection_cools);
    tcase_add_test(tc, a_sleeper_sleeps_at_once_after_a_message);
    tcase_add_test(tc, strangers_are_not_outstanding);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
