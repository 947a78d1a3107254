/*
 * Ranks that reach one another in one direction only, or not yet; and connections of a peer beside the one by which its
 * endpoint sends.
 */
#include "config.h"
#include "tcp_rogue.h"
#include "test_base.h"
#include "base/checksum.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Where a's address leads as b sees it. */
typedef enum { REFUSED, NO_ROUTE, NO_ADDRESS, NO_ANSWER, WAYS } way_t;

typedef struct one_way {
    pair_t pair;
    way_t  way;
    int    silent; /* NO_ANSWER: a listener that never speaks */
} one_way_t;

static uint16_t silent_port(one_way_t *one)
{
    struct sockaddr_in sa  = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t          len = sizeof(sa);

    one->silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(one->silent, (const struct sockaddr *)&sa, len), 0);
    ck_assert_int_eq(listen(one->silent, 4), 0);
    ck_assert_int_eq(getsockname(one->silent, (struct sockaddr *)&sa, &len), 0);
    return ntohs(sa.sin_port);
}

static kvcl_status_t create(side_t *side, tcp_addr_t addr)
{
    uint8_t buf[TCP_ADDR_BYTES];

    return side->ops->ep_create(side->xport, buf, kvcl_tcp_addr_pack(&addr, buf), &side->ep);
}

/* b creates its endpoint to a, whom it cannot reach. */
static void create_blocked(one_way_t *one)
{
    static const uint8_t multicast[4] = {224, 0, 0, 1}; /* TCP has no route there */
    static const uint8_t loopback[4]  = {127, 0, 0, 1};
    tcp_addr_t           addr         = tcp_in(&one->pair.a)->own;

    addr.n = 1;
    addr.at[0].family = 4;
    addr.at[0].port   = (one->way == NO_ANSWER) ? silent_port(one) : 1;
    memcpy(addr.at[0].addr, (one->way == NO_ROUTE) ? multicast : loopback, 4);
    addr.n = (one->way == NO_ADDRESS) ? 0 : 1;
    ck_assert_msg(create(&one->pair.b, addr) == KVCL_OK, "%s", kvcl_last_error());
}

static void open_one_way(one_way_t *one, int way)
{
    memset(one, 0, sizeof(*one));
    one->way    = (way_t)way;
    one->silent = -1;
    side_open(&one->pair.a, PAIR_PLAIN);
    side_open(&one->pair.b, PAIR_PLAIN);
}

static void close_one_way(one_way_t *one)
{
    pair_close(&one->pair);
    if (one->silent >= 0) {
        close(one->silent);
    }
}

static void send_number(side_t *side, uint64_t n)
{
    ck_assert_int_eq(side->ops->am_send(side->ep, &n, sizeof(n), NULL, 0, 0, NULL), KVCL_OK);
}

/* Numbers arrive in order. */
static void count(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                  kvcl_xport_reply_t *reply)
{
    uint64_t n;

    (void)data, (void)len, (void)reply;
    ck_assert_uint_eq(hdr_len, sizeof(n));
    memcpy(&n, hdr, sizeof(n));
    side->wrong += (n != side->received);
}

/* b's messages wait, among them one whose buffers it keeps; they leave by the connection that a makes. */
START_TEST(the_connection_of_a_peer_that_cannot_be_reached_is_used)
{
    char       data[32] = {0};
    kvcl_iov_t iov      = {data, sizeof(data)};
    uint64_t   n        = 2;
    waited_t   waited   = waited_new();
    one_way_t  one;
    pair_t     *pair = &one.pair;

    open_one_way(&one, _i);
    pair->a.on_recv = pair->b.on_recv = count;
    create_blocked(&one);
    send_number(&pair->b, 0);
    send_number(&pair->b, 1);
    ck_assert_int_eq(pair->b.ops->am_send(pair->b.ep, &n, sizeof(n), &iov, 1, 0, &waited.send), KVCL_INPROGRESS);
    (void)pair->b.ops->progress(pair->b.xport);
    side_connect(&pair->a, &pair->b);
    send_number(&pair->a, 0);
    PAIR_UNTIL(pair, pair->b.received == 1);
    PAIR_UNTIL(pair, (pair->a.received == 3) && (waited.done == 1));
    ck_assert_int_eq(waited.status, KVCL_OK);
    send_number(&pair->b, 3);
    send_number(&pair->a, 1);
    PAIR_UNTIL(pair, (pair->a.received == 4) && (pair->b.received == 2));
    ck_assert_uint_eq(pair->a.wrong + pair->b.wrong, 0);
    ck_assert_uint_eq(pair->a.failures + pair->b.failures, 0);
    ck_assert_uint_eq(conns_of(&pair->b), (one.way == NO_ANSWER) ? 2 : 1); /* its own attempt is still under way */
    close_one_way(&one);
}
END_TEST

/* Nobody connects: the peer fails, at once as far as a rank is concerned, but not for a passing error. */
START_TEST(a_peer_that_refuses_fails)
{
    one_way_t one;

    open_one_way(&one, REFUSED);
    create_blocked(&one);
    PAIR_UNTIL(&one.pair, one.pair.b.failures == 1);
    ck_assert_int_eq(one.pair.b.failed_with, KVCL_ERR_UNREACHABLE);
    close_one_way(&one);
}
END_TEST

START_TEST(an_error_that_may_pass_is_tried_again)
{
    one_way_t one;
    tcp_ep_t  *ep;

    open_one_way(&one, NO_ROUTE);
    create_blocked(&one);
    ep = ep_in(&one.pair.b);
    ck_assert(!ep->broken);
    ck_assert_uint_eq(ep->refusals, 0);
    ck_assert_uint_eq(ep->refused_ns, 0); /* no grace has begun, which would hide that it counted as a refusal */
    ck_assert_uint_ne(ep->retry_ns, 0);
    send_number(&one.pair.b, 0);
    ep->addr.at[0] = tcp_in(&one.pair.a)->own.at[0]; /* the route is back */
    PAIR_UNTIL(&one.pair, one.pair.a.received == 1);
    ck_assert_uint_eq(one.pair.b.failures, 0);
    close_one_way(&one);
}
END_TEST

/* A thread that sleeps is woken for the next attempt, and the peer may begin to answer only then. */
START_TEST(a_sleeper_is_woken_for_the_next_attempt)
{
    one_way_t     one;
    struct pollfd timer = {.events = POLLIN};
    side_t        *b    = &one.pair.b;
    tcp_ep_t      *ep;

    open_one_way(&one, _i);
    create_blocked(&one);
    ep = ep_in(b);
    send_number(b, 0);
    PAIR_UNTIL(&one.pair, ep->retry_ns != 0);
    ep->addr.at[0] = tcp_in(&one.pair.a)->own.at[0];
    while (b->ops->arm(b->xport) != KVCL_OK) {
        (void)b->ops->progress(b->xport);
    }
    timer.fd = b->ops->event_fd(b->xport);
    ck_assert((ep->retry_ns == 0) || (poll(&timer, 1, 50000) == 1));
    PAIR_UNTIL(&one.pair, one.pair.a.received == 1);
    ck_assert_uint_eq(b->failures, 0);
    close_one_way(&one);
}
END_TEST

/* The time of all attempts ends a round of several addresses as well. */
START_TEST(the_time_of_all_attempts_is_kept)
{
    one_way_t one;
    tcp_ep_t  *ep;

    open_one_way(&one, NO_ANSWER);
    create_blocked(&one);
    ep              = ep_in(&one.pair.b);
    ep->addr.at[1]  = ep->addr.at[0];
    ep->addr.n      = 2;
    ep->deadline_ns = kvcl_now_ns();
    kvcl_tcp_ep_again(ep, KVCL_ERR_TIMED_OUT);
    ck_assert(ep->broken);
    PAIR_UNTIL(&one.pair, one.pair.b.failures == 1);
    close_one_way(&one);
}
END_TEST

/* ---- connections beside the endpoint's own ---- */

static void open_both(pair_t *pair)
{
    pair_open(pair, PAIR_PLAIN);
    pair->a.on_recv = pair->b.on_recv = count;
    send_number(&pair->a, 0);
    send_number(&pair->b, 0);
    PAIR_UNTIL(pair, (pair->a.received == 1) && (pair->b.received == 1));
}

/* A process with the secret connects with a's id, sends what is no frame, or nothing, and closes. */
START_TEST(an_impostor_does_not_end_the_session)
{
    static const char  garbage[64] = "no frame";
    kvcl_sock_stream_t rogue[2 * TCP_CONNS_OF_ID];
    unsigned           i, before;
    pair_t             pair;

    open_both(&pair);
    before = conns_of(&pair.b);
    rogue_open(&rogue[0], &pair.b, tcp_in(&pair.a)->own.id);
    ck_assert_uint_eq(conns_of(&pair.b), before + 1);
    if (_i == 0) {
        ck_assert_uint_eq(rogue_send(&rogue[0], garbage, sizeof(garbage)), sizeof(garbage));
    } else {
        kvcl_sock_close(&rogue[0], -1);
    }
    PAIR_UNTIL(&pair, conns_of(&pair.b) == before);
    for (i = 1; i < 2 * TCP_CONNS_OF_ID; ++i) { /* held: they keep none of a's out */
        rogue_open(&rogue[i], &pair.b, tcp_in(&pair.a)->own.id);
    }
    send_number(&pair.a, 1);
    send_number(&pair.b, 1);
    PAIR_UNTIL(&pair, (pair.a.received == 2) && (pair.b.received == 2));
    ck_assert_uint_le(conns_of(&pair.b), TCP_CONNS_OF_ID + 2);
    ck_assert_uint_eq(pair.a.failures + pair.b.failures, 0);
    ck_assert_uint_eq(pair.a.wrong + pair.b.wrong, 0);
    for (i = (_i == 0) ? 0 : 1; i < 2 * TCP_CONNS_OF_ID; ++i) {
        kvcl_sock_close(&rogue[i], -1);
    }
    pair_close(&pair);
}
END_TEST

/* The end of the peer is still noticed, by either side. */
START_TEST(the_end_of_a_peer_ends_all_its_connections)
{
    pair_t pair;

    open_both(&pair);
    pair.a.ops->ep_close(pair.a.ep);
    pair.a.ep = NULL;
    PAIR_UNTIL(&pair, pair.b.failures == 1);
    ck_assert_uint_eq(conns_of(&pair.b), 0);
    pair_close(&pair);
}
END_TEST

/* Both sides have connected. The end is found before all that a sent has been read; none of it is lost. */
START_TEST(the_last_messages_of_a_peer_arrive)
{
    tcp_conn_t    *conn, *out, *in = NULL;
    uint64_t      n;
    pair_t        pair;
    struct pollfd end  = {.events = POLLRDHUP};
    int           here = 0;

    open_both(&pair);
    out = ep_in(&pair.b)->out;
    kvcl_list_foreach (conn, &tcp_in(&pair.b)->conns, tcp_conn_t, link) {
        in = (conn != out) ? conn : in;
    }
    in = (in != NULL) ? in : out; /* as a rule they share one connection */
    for (n = 1; n < 100; ++n) {
        send_number(&pair.a, n);
    }
    while (here < (int)(99 * (sizeof(tcp_frame_t) + sizeof(n)))) { /* in this kernel */
        ck_assert_int_eq(ioctl(in->stream.fd, FIONREAD, &here), 0);
    }
    pair.a.ops->ep_close(pair.a.ep);
    pair.a.ep = NULL;
    end.fd    = out->stream.fd;
    ck_assert_int_eq(poll(&end, 1, -1), 1);
    out->stream.readable = true;
    (void)kvcl_tcp_take(out);
    ck_assert_uint_eq(pair.b.received, 100);
    ck_assert_uint_eq(pair.b.wrong, 0);
    PAIR_UNTIL(&pair, pair.b.failures == 1);
    pair_close(&pair);
}
END_TEST

/* Two were accepted before the endpoint was made: it has both, so replies go by its own. */
START_TEST(an_endpoint_has_all_connections_of_its_peer)
{
    kvcl_sock_stream_t rogue[2];
    tcp_conn_t         *conn;
    pair_t             pair;

    side_open(&pair.a, PAIR_PLAIN);
    side_open(&pair.b, PAIR_PLAIN);
    rogue_open(&rogue[0], &pair.b, tcp_in(&pair.a)->own.id);
    rogue_open(&rogue[1], &pair.b, tcp_in(&pair.a)->own.id);
    side_connect(&pair.b, &pair.a);
    kvcl_list_foreach (conn, &tcp_in(&pair.b)->conns, tcp_conn_t, link) {
        ck_assert_ptr_eq(conn->ep, ep_in(&pair.b));
    }
    ck_assert_uint_eq(conns_of(&pair.b), 2);
    pair.b.ops->ep_close(pair.b.ep);
    pair.b.ep = NULL;
    ck_assert_uint_eq(conns_of(&pair.b), 0);
    kvcl_sock_close(&rogue[0], -1);
    kvcl_sock_close(&rogue[1], -1);
    pair_close(&pair);
}
END_TEST

/* ---- addresses ---- */

START_TEST(endpoints_are_found_by_their_id)
{
    enum { EPS = 4 };
    tcp_addr_t      addr;
    kvcl_xport_ep_t *ep[EPS];
    uint8_t         id[EPS][16];
    side_t          side;
    int             i, k;

    side_open(&side, PAIR_PLAIN);
    addr   = tcp_in(&side)->own;
    addr.n = 0; /* only the peer can connect */
    for (i = 0; i < EPS; ++i) { /* the first three begin alike */
        memset(addr.id, (i < 3) ? 7 : 8, sizeof(addr.id));
        addr.id[15] = (uint8_t)i;
        memcpy(id[i], addr.id, sizeof(addr.id));
        ck_assert_ptr_null(kvcl_tcp_ep_of(tcp_in(&side), id[i]));
        ck_assert_int_eq(create(&side, addr), KVCL_OK);
        ep[i] = side.ep;
    }
    for (i = 0; i < EPS; ++i) {
        int at = (i + _i) % EPS;

        for (k = 0; k < EPS; ++k) {
            ck_assert((ep[k] == NULL) == (kvcl_tcp_ep_of(tcp_in(&side), id[k]) == NULL));
            ck_assert((ep[k] == NULL) || (&kvcl_tcp_ep_of(tcp_in(&side), id[k])->super == ep[k]));
        }
        side.ops->ep_close(ep[at]);
        ep[at] = NULL;
    }
    side.ep = NULL;
    ck_assert_uint_eq(kvcl_map_count(&tcp_in(&side)->by_id), 0);
    side_close(&side);
}
END_TEST

START_TEST(an_address_of_another_version_is_named)
{
    uint8_t    buf[TCP_ADDR_BYTES];
    tcp_addr_t addr;
    side_t     side;
    uint32_t   check;
    size_t     len;

    side_open(&side, PAIR_PLAIN);
    len = kvcl_tcp_addr_pack(&tcp_in(&side)->own, buf);
    ck_assert_int_eq(kvcl_tcp_addr_unpack(buf, len, &addr), KVCL_OK);
    ck_assert_mem_eq(&addr, &tcp_in(&side)->own, sizeof(addr));
    buf[8] = 2; /* the version */
    ck_assert_int_eq(kvcl_tcp_addr_unpack(buf, len, &addr), KVCL_ERR_PROTOCOL); /* corrupt: the check word differs */
    check = kvcl_check32(buf + 8, len - 8);
    memcpy(buf + 4, &check, sizeof(check));
    ck_assert_int_eq(kvcl_tcp_addr_unpack(buf, len, &addr), KVCL_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "version 2, this rank reads version 1: run the same KVCL"));
    check = kvcl_check32(buf + 8, 1); /* a longer or shorter form is a matter of that version */
    memcpy(buf + 4, &check, sizeof(check));
    ck_assert_int_eq(kvcl_tcp_addr_unpack(buf, 9, &addr), KVCL_ERR_VERSION);
    ck_assert_int_eq(kvcl_tcp_addr_unpack(buf, 8, &addr), KVCL_ERR_PROTOCOL);
    side_close(&side);
}
END_TEST

/* ---- a host that vanishes ---- */

static int tcp_option(const side_t *side, int name)
{
    int       value = 0;
    socklen_t len   = sizeof(value);

    ck_assert_int_eq(getsockopt(ep_in(side)->out->stream.fd, IPPROTO_TCP, name, &value, &len), 0);
    return value;
}

/* What the README promises of KVCL_KEEPALIVE, on both sides: probes at whole seconds, and the end after four of them or
 * 10 s. */
START_TEST(a_host_that_vanishes_is_noticed_in_bounded_time)
{
    static const struct {
        uint64_t keepalive_ns;
        int      seconds, gone_ms;
    } rows[] = {{100 * KVCL_NS_PER_MS, 1, 10000}, {2 * KVCL_NS_PER_SEC, 2, 10000}, {2500 * KVCL_NS_PER_MS, 3, 12000},
                {60 * KVCL_NS_PER_SEC, 60, 240000}};
    const side_t *sides[2];
    pair_t       pair;
    int          i;

    side_open(&pair.a, PAIR_PLAIN);
    side_open(&pair.b, PAIR_PLAIN);
    tcp_in(&pair.a)->tuning.keepalive_ns = tcp_in(&pair.b)->tuning.keepalive_ns = rows[_i].keepalive_ns;
    side_connect(&pair.a, &pair.b);
    side_connect(&pair.b, &pair.a);
    send_number(&pair.a, 0);
    send_number(&pair.b, 0);
    PAIR_UNTIL(&pair, (pair.a.received == 1) && (pair.b.received == 1));
    sides[0] = &pair.a;
    sides[1] = &pair.b;
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(tcp_option(sides[i], TCP_KEEPIDLE), rows[_i].seconds);
        ck_assert_int_eq(tcp_option(sides[i], TCP_KEEPINTVL), rows[_i].seconds);
        ck_assert_int_eq(tcp_option(sides[i], TCP_USER_TIMEOUT), rows[_i].gone_ms);
    }
    pair_close(&pair);
}
END_TEST

/* ---- two processes of one host ---- */

static int buffer_of(const tcp_conn_t *conn, int name)
{
    int       bytes = 0;
    socklen_t len   = sizeof(bytes);

    ck_assert_int_eq(getsockopt(conn->stream.fd, SOL_SOCKET, name, &bytes, &len), 0);
    return bytes;
}

static void on_stream(void *arg, kvcl_xport_ep_t *ep, kvcl_xport_stream_t *stream)
{
    (void)ep;
    *(kvcl_xport_stream_t **)arg = stream;
}

static void on_stream_event(void *arg, kvcl_xport_stream_t *stream)
{
    (void)arg;
    (void)stream;
}

static const tcp_conn_t *conn_of(const kvcl_xport_stream_t *stream)
{
    return (const tcp_conn_t *)(const void *)((const char *)stream - offsetof(tcp_conn_t, user));
}

/* A stream's, on both sides; the kernel doubles a bound for its own needs. Not that of the messages. */
START_TEST(the_queue_of_a_stream_within_a_host_is_bounded)
{
    kvcl_xport_stream_t *from = NULL, *to = NULL;
    void                *arg_b;
    pair_t              pair;

    open_both(&pair);
    arg_b = tcp_in(&pair.b)->cbs.arg;
    tcp_in(&pair.a)->cbs.stream_event = tcp_in(&pair.b)->cbs.stream_event = on_stream_event;
    tcp_in(&pair.b)->cbs.stream       = on_stream;
    tcp_in(&pair.b)->cbs.arg          = &to;
    ck_assert_int_eq(pair.a.ops->stream_open(pair.a.ep, &from), KVCL_OK);
    PAIR_UNTIL(&pair, (to != NULL) && from->open);
    ck_assert_int_eq(buffer_of(conn_of(from), SO_SNDBUF), 2 * 192 * 1024);
    ck_assert_int_eq(buffer_of(conn_of(from), SO_RCVBUF), 2 * 512 * 1024);
    ck_assert_int_eq(buffer_of(conn_of(to), SO_SNDBUF), 2 * 192 * 1024);
    ck_assert_int_eq(buffer_of(conn_of(to), SO_RCVBUF), 2 * 512 * 1024);
    ck_assert_int_ne(buffer_of(ep_in(&pair.a)->out, SO_SNDBUF), 2 * 192 * 1024);
    tcp_in(&pair.b)->cbs.arg = arg_b;
    pair.a.ops->stream_close(from);
    pair.b.ops->stream_close(to);
    pair_close(&pair);
}
END_TEST

/* ---- a libcrypto without X25519 ---- */

START_TEST(a_libcrypto_without_x25519_is_an_error_of_init)
{
    static const char  text[] = "openssl_conf = all\n[all]\nproviders = list\n[list]\nbase = one\n[one]\n"
                                  "activate = 1\n";
    kvcl_xport_params_t params = {.path = "tcp", .net = "lo", .wire = _i ? "aead" : "plain"};
    char                name[] = "/tmp/kvcl_test_openssl_XXXXXX";
    int                 fd     = mkstemp(name);
    kvcl_xport_t        *xport;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
    close(fd);
    ck_assert_int_eq(setenv("OPENSSL_CONF", name, 1), 0); /* of this process, which has not used libcrypto yet */
    ck_assert_int_eq(kvcl_xport_tcp.init(&params, &xport), KVCL_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(kvcl_last_error(), "X25519") != NULL, "%s", kvcl_last_error());
    unlink(name);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp_reach");
    TCase *tc    = tcase_create("tcp_reach");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, the_connection_of_a_peer_that_cannot_be_reached_is_used, 0, WAYS);
    tcase_add_test(tc, a_peer_that_refuses_fails);
    tcase_add_test(tc, an_error_that_may_pass_is_tried_again);
    tcase_add_loop_test(tc, a_sleeper_is_woken_for_the_next_attempt, REFUSED, NO_ROUTE + 1);
    tcase_add_loop_test(tc, an_impostor_does_not_end_the_session, 0, 2);
    tcase_add_test(tc, the_end_of_a_peer_ends_all_its_connections);
    tcase_add_test(tc, the_time_of_all_attempts_is_kept);
    tcase_add_test(tc, the_last_messages_of_a_peer_arrive);
    tcase_add_test(tc, an_endpoint_has_all_connections_of_its_peer);
    tcase_add_loop_test(tc, endpoints_are_found_by_their_id, 0, 4);
    tcase_add_test(tc, an_address_of_another_version_is_named);
    tcase_add_loop_test(tc, a_host_that_vanishes_is_noticed_in_bounded_time, 0, 4);
    tcase_add_test(tc, the_queue_of_a_stream_within_a_host_is_bounded);
    tcase_add_loop_test(tc, a_libcrypto_without_x25519_is_an_error_of_init, 0, 2);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
