/*
 * Doors under attack and under wrong use: text that is no address, strangers at the port, another secret, services that
 * are no door, more connections than the port holds, and messages of a proven peer that lies.
 */
#include "config.h"
#include "core/bundle.h"
#include "core/context.h"
#include "door/door.h"
#include "doors.h"
#include "listening.h"
#include <kvcl/kvcl.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>

/* A TCP connection to it. */
static int knock(const char *where)
{
    kvcl_hostport_addrs_t addrs;
    kvcl_hostport_t       hostport;
    int                   fd;

    ck_assert_int_eq(kvcl_hostport_parse(where, "test", 1, &hostport), KVCL_OK);
    ck_assert_int_eq(kvcl_hostport_resolve(&hostport, "test", &addrs), KVCL_OK);
    fd = socket(addrs.at[0].ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (struct sockaddr *)&addrs.at[0], addrs.len[0]) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* All bytes until the other side closes. */
static size_t read_all(int fd, char *buf, size_t cap)
{
    size_t  got = 0;
    ssize_t n;

    while ((n = recv(fd, buf + got, cap - got, 0)) > 0) {
        got += (size_t)n;
    }
    return got;
}

/* ---- text ---- */

START_TEST(text_that_is_no_address_is_named)
{
    static const char *const bad[] = {"",       "host",    ":1",       "host:",   "host:x",  "host:1x", "host:65536",
                                      "host:-1", "a:b:1",  "[::1]",    "[::1]1",  "[::1:1",      "[]:1",    "host: 1",
                                      "host:99999999999999999999"};
    static const struct {
        const char *text, *host;
        unsigned   port;
    } good[] = {{"a:1", "a", 1}, {"127.0.0.1:65535", "127.0.0.1", 65535}, {"[::1]:80", "::1", 80}, {"h.x:0", "h.x", 0}};
    kvcl_context_h  ctx = alone(0);
    kvcl_hostport_t hostport;
    kvcl_comm_h     comm;
    char            buf[64], lengthy[KVCL_HOST_MAX + 10], *huge;
    size_t          i, len;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        ck_assert_int_eq(kvcl_hostport_parse(good[i].text, "x", 0, &hostport), KVCL_OK);
        ck_assert_str_eq(hostport.host, good[i].host);
        ck_assert_uint_eq(hostport.port, good[i].port);
    }
    ck_assert_int_eq(kvcl_hostport_parse("a:0", "x", 1, &hostport), KVCL_ERR_INVALID_PARAM);
    memset(lengthy, 'h', sizeof(lengthy));
    memcpy(lengthy + KVCL_HOST_MAX, ":1", 3);
    ck_assert_int_eq(kvcl_hostport_parse(lengthy, "x", 0, &hostport), KVCL_ERR_INVALID_PARAM);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ck_assert_int_eq(kvcl_context_listen(ctx, bad[i], buf, sizeof(buf), &len, &comm), KVCL_ERR_INVALID_PARAM);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), bad[i]));
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "kvcl_context_listen"));
        ck_assert_int_eq(kvcl_context_connect(ctx, bad[i], SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "host:port"));
    }
    ck_assert_int_eq(kvcl_context_connect(ctx, "kvcl1:AAAA", SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
    huge = malloc(1 << 20);
    memset(huge, 'A', 1 << 20);
    huge[(1 << 20) - 1] = '\0';
    ck_assert_int_eq(kvcl_context_connect(ctx, huge, SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
    memcpy(huge, "kvcl1:", 6);
    ck_assert_int_eq(kvcl_context_connect(ctx, huge, SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
    free(huge);
    ck_assert_int_eq(kvcl_context_connect(ctx, "127.0.0.1:0", SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_context_connect(ctx, NULL, SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_context_connect(ctx, "a:1", KVCL_WAIT_FOREVER, &comm), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_context_listen(ctx, "192.0.2.1:0", buf, sizeof(buf), &len, &comm), KVCL_ERR_UNREACHABLE);
    ck_assert_int_eq(kvcl_context_listen(ctx, NULL, buf, sizeof(buf), NULL, &comm), KVCL_ERR_INVALID_PARAM);
    kvcl_finalize(ctx);
}
END_TEST

START_TEST(a_call_that_fails_leaves_nothing_open)
{
    kvcl_context_h ctx = alone(0), other = alone(0);
    kvcl_comm_h    door, second;
    char           where[KVCL_HOSTPORT_MAX], buf[KVCL_HOSTPORT_MAX];
    size_t         len = 0;
    unsigned       before = listening();

    ck_assert_int_eq(kvcl_context_listen(ctx, "127.0.0.1:0", buf, 3, &len, &door), KVCL_ERR_TRUNCATED);
    ck_assert_uint_gt(len, strlen("127.0.0.1:1"));
    ck_assert_uint_eq(listening(), before);
    door = listen_at(ctx, "127.0.0.1:0", where);
    ck_assert_uint_eq(listening(), before + 1);
    ck_assert_int_eq(kvcl_context_listen(other, where, buf, sizeof(buf), &len, &second), KVCL_ERR_BUSY);
    ck_assert_int_eq(kvcl_context_listen(ctx, "127.0.0.1:0", buf, sizeof(buf), &len, &second), KVCL_ERR_EXISTS);
    ck_assert_uint_eq(listening(), before + 1);
    kvcl_comm_free(door);
    door = listen_at(ctx, where, buf); /* waits for the old port's end: the same port is free */
    ck_assert_str_eq(where, buf);
    kvcl_finalize(ctx); /* frees the door, with a warning */
    ck_assert_uint_eq(listening(), before);
    kvcl_finalize(other);
}
END_TEST

/* Text that was cut off, or changed in one character, is refused at once, and harms no later connection. */
START_TEST(a_changed_address_connects_to_nobody)
{
    kvcl_context_h ctx = alone(0), other = alone(0);
    char           where[KVCL_HOSTPORT_MAX], text[12000], changed[12000];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm;
    size_t         len, i;

    ck_assert_int_eq(kvcl_context_address(ctx, text, sizeof(text), &len), KVCL_OK);
    for (i = 6; i < len - 2; ++i) { /* the last character has bits that are not used */
        memcpy(changed, text, len);
        changed[i] = (text[i] == 'A') ? 'B' : 'A';
        if (kvcl_context_connect(other, changed, SECONDS(60), &comm) != KVCL_ERR_VERSION) {
            ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "cut off or changed"));
        }
        changed[i] = '\0';
        ck_assert_int_eq(kvcl_context_connect(other, changed, SECONDS(60), &comm), KVCL_ERR_INVALID_PARAM);
    }
    ck_assert_int_eq(kvcl_context_connect(other, text, SECONDS(60), &comm), KVCL_OK);
    kvcl_comm_free(comm);
    kvcl_comm_free(door);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

/* ---- strangers ---- */

START_TEST(a_stranger_learns_nothing)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    kvcl_context_h    ctx    = alone(0);
    kvcl_rand_t       rnd;
    char              where[KVCL_HOSTPORT_MAX], bytes[500], got[500];
    kvcl_comm_h       door = listen_at(ctx, "127.0.0.1:0", where);
    size_t            n;
    int               i, k, fd;

    test_seed(&rnd);
    for (i = 0; i < 40; ++i) {
        for (k = 0; k < (int)sizeof(bytes); ++k) {
            bytes[k] = (char)kvcl_rand_next(&rnd);
        }
        if (i % 4 == 0) {
            memcpy(bytes, http, sizeof(http));
        } else if (i % 4 == 1) { /* the head of a first message, then anything */
            const kvcl_sock_head_t head = {KVCL_SOCK_MAGIC, KVCL_SOCK_VERSION, KVCL_SOCK_HELLO, 0};
            memcpy(bytes, &head, sizeof(head));
        }
        fd = knock(where);
        ck_assert_int_ge(fd, 0);
        (void)send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
        n = read_all(fd, got, sizeof(got));
        ck_assert_uint_le(n, sizeof(kvcl_sock_head_t)); /* REFUSE at most */
        close(fd);
    }
    ck_assert_int_eq(kvcl_comm_size(door), 0);
    kvcl_lock(ctx);
    ck_assert_uint_eq(ctx->peers.count, 0);
    kvcl_unlock(ctx);
    kvcl_comm_free(door);
    kvcl_finalize(ctx);
}
END_TEST

START_TEST(another_secret_is_refused)
{
    kvcl_context_h ctx = alone(0), other = alone(1);
    char           where[KVCL_HOSTPORT_MAX], text[12000];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm;
    size_t         len;

    ck_assert_int_eq(kvcl_context_connect(other, where, SECONDS(60), &comm), KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), where));
    ck_assert_int_eq(kvcl_context_address(ctx, text, sizeof(text), &len), KVCL_OK);
    ck_assert_int_eq(kvcl_context_connect(other, text, SECONDS(60), &comm), KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_SECRET_FILE"));
    ck_assert_int_eq(kvcl_comm_size(door), 0);
    kvcl_comm_free(door);
    kvcl_finalize(ctx);
    kvcl_finalize(other);
}
END_TEST

/* UCX trusts what an address says, and ends the process where it lies. */
START_TEST(a_forged_address_reaches_no_transport)
{
    static const uint8_t no_secret[32];
    kvcl_context_h       ctx = alone(0), other = alone(0);
    char                 text[2 * KVCL_ADDRESS_MAX];
    uint8_t              packed[KVCL_ADDRESS_MAX];
    kvcl_comm_h          comm;
    size_t               len, i;

    ck_assert_int_eq(kvcl_context_address(ctx, text, sizeof(text), &len), KVCL_OK);
    ck_assert_int_eq(kvcl_address_parse(no_secret, text, packed, sizeof(packed), &len), KVCL_ERR_AUTH);
    ck_assert_int_eq(kvcl_address_parse(ctx->secret, text, packed, sizeof(packed), &len), KVCL_OK);
    for (i = 8; i < len; ++i) {
        packed[i] ^= (uint8_t)(1 << (i % 8));
        ck_assert_uint_le(kvcl_address_print(no_secret, packed, len, text, sizeof(text)), sizeof(text));
        ck_assert_int_eq(kvcl_context_connect(other, text, SECONDS(60), &comm), KVCL_ERR_AUTH);
        packed[i] ^= (uint8_t)(1 << (i % 8));
    }
    kvcl_lock(other);
    ck_assert_uint_eq(other->peers.count, 0);
    kvcl_unlock(other);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

/* Silent connections do not keep an honest one out, and no more are held than the port may hold. */
START_TEST(silent_connections_are_dismissed)
{
    enum { SILENT = 3 * KVCL_SOCK_VISITORS };
    kvcl_context_h ctx = alone(0), other = alone(0);
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm;
    struct pollfd  fds[SILENT];
    int            i, closed;

    for (i = 0; i < SILENT; ++i) {
        fds[i] = (struct pollfd){.fd = knock(where), .events = POLLIN};
        ck_assert_int_ge(fds[i].fd, 0);
    }
    ck_assert_int_eq(kvcl_context_connect(other, where, SECONDS(60), &comm), KVCL_OK);
    do { /* the end of a connection is readable */
        closed = poll(fds, SILENT, -1);
    } while (closed < SILENT - KVCL_SOCK_VISITORS);
    do { /* and all of them when their time is up */
        closed = poll(fds, SILENT, 100);
    } while (closed < SILENT);
    for (i = 0; i < SILENT; ++i) {
        close(fds[i].fd);
    }
    kvcl_comm_free(comm);
    kvcl_comm_free(door);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

/* ---- other services ---- */

START_TEST(other_services_are_no_doors)
{
    static const kvcl_status_t want[] = {KVCL_ERR_TIMED_OUT, KVCL_ERR_UNREACHABLE, KVCL_ERR_PROTOCOL};
    static const uint64_t      time_ns[] = {KVCL_NS_PER_SEC / 4, SECONDS(2), SECONDS(60)}; /* the first two use it up */
    service_t                  service = {.kind = _i};
    char                       where[KVCL_HOSTPORT_MAX];
    kvcl_context_h             ctx = alone(0);
    kvcl_comm_h                comm;
    pthread_t                  thread;

    ck_assert_int_eq(kvcl_hostport_listen("127.0.0.1:0", "test", &service.fd, where), KVCL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &service), 0);
    ck_assert_int_eq(kvcl_context_connect(ctx, where, time_ns[_i], &comm), want[_i]);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), where));
    atomic_store(&service.stop, true);
    pthread_join(thread, NULL);
    close(service.fd);
    ck_assert_int_eq(kvcl_context_connect(ctx, where, SECONDS(60), &comm), KVCL_ERR_UNREACHABLE); /* refused */
    kvcl_finalize(ctx);
}
END_TEST

/* ---- a proven peer that lies ---- */

static void lie_locked(kvcl_context_h from, kvcl_msg_door_t msg)
{
    msg.msg.type = KVCL_MSG_DOOR;
    ck_assert_int_eq(kvcl_peer_post(from->peers.v[0], &msg.msg, sizeof(msg), NULL, 0), KVCL_OK);
}

static void lie(kvcl_context_h from, kvcl_msg_door_t msg)
{
    kvcl_lock(from);
    lie_locked(from, msg);
    kvcl_unlock(from);
}

static uint64_t malformed(kvcl_context_h ctx)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    ck_assert_int_eq(kvcl_context_stats(ctx, &stats), KVCL_OK);
    return stats.malformed;
}

/* Calls without end: the door takes as many as a peer may have. The liar's lock is held until the door has read them
 * all, since the liar's library undoes connections that it did not ask for. */
static void call_without_end(kvcl_context_h liar, kvcl_context_h ctx)
{
    uint64_t before = malformed(ctx);
    unsigned i;

    kvcl_lock(liar);
    for (i = 0; i < 200; ++i) {
        lie_locked(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_CALL, .id = i});
    }
    lie_locked(liar, (kvcl_msg_door_t){.kind = 99});
    (void)kvcl_bundles_flush(liar);
    while (malformed(ctx) == before) {
        usleep(1000);
    }
    kvcl_unlock(liar);
}

/* All that was sent before has been read. */
static void settle(kvcl_comm_h comm)
{
    kvcl_req_h req;

    ck_assert_int_eq(kvcl_notify(comm, 0, "x", 1, NULL, &req), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(req, SECONDS(60)), KVCL_OK);
}

START_TEST(lies_about_connections_change_nothing)
{
    kvcl_context_h ctx = alone(0), honest = alone(0), liar = alone(0);
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm, theirs;
    kvcl_rank_state_t state;

    ck_assert_int_eq(kvcl_context_connect(honest, where, SECONDS(60), &comm), KVCL_OK);
    ck_assert_int_eq(kvcl_context_connect(liar, where, SECONDS(60), &theirs), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_rank(theirs), 1);
    /* the other's number, a number that nobody has, another communicator */
    lie(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_LEAVE, .id = door->id, .rank = 0});
    lie(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_LEAVE, .id = door->id, .rank = UINT32_MAX});
    lie(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_LEAVE, .id = 1, .rank = 1});
    /* answers to nothing, good and impossible */
    lie(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_ANSWER, .id = 7, .rank = 3});
    lie(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_ANSWER, .id = 7, .rank = UINT32_MAX});
    lie(liar, (kvcl_msg_door_t){.kind = KVCL_DOOR_ANSWER, .status = 5});
    lie(liar, (kvcl_msg_door_t){.kind = 0});
    lie(liar, (kvcl_msg_door_t){.kind = 99});
    settle(theirs);
    call_without_end(liar, ctx);
    ck_assert_int_eq(kvcl_comm_size(door), 1 + KVCL_DOOR_PER_PEER);
    ck_assert_int_eq(kvcl_rank_state(door, 0, &state), KVCL_OK);
    ck_assert_int_eq(state, KVCL_RANK_ALIVE);
    ck_assert_int_eq(kvcl_rank_state(door, 1, &state), KVCL_OK);
    ck_assert_int_eq(state, KVCL_RANK_ALIVE);
    settle(comm);
    ck_assert_uint_ge(malformed(ctx), 5);
    kvcl_comm_free(theirs);
    kvcl_comm_free(comm);
    kvcl_comm_free(door);
    kvcl_finalize(liar);
    kvcl_finalize(honest);
    kvcl_finalize(ctx);
}
END_TEST

/* An answer that comes after its call has given up is answered: the door does not keep the number's connection. */
START_TEST(an_answer_that_nobody_waits_for_is_undone)
{
    kvcl_context_h    ctx = alone(0), other = alone(0);
    char              where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h       door = listen_at(ctx, "127.0.0.1:0", where), comm;
    kvcl_rank_state_t state = KVCL_RANK_UNKNOWN;

    ck_assert_int_eq(kvcl_context_connect(other, where, SECONDS(60), &comm), KVCL_OK);
    lie(other, (kvcl_msg_door_t){.kind = KVCL_DOOR_CALL, .id = 77, .msg = {.op = 123456}}); /* no such request here */
    settle(comm);
    ck_assert_int_eq(kvcl_comm_size(door), 2);
    while (state != KVCL_RANK_FAILED) {
        ck_assert_int_eq(kvcl_rank_state(door, 1, &state), KVCL_OK);
        usleep(1000);
    }
    ck_assert_int_eq(kvcl_rank_state(door, 0, &state), KVCL_OK);
    ck_assert_int_eq(state, KVCL_RANK_ALIVE);
    kvcl_comm_free(comm);
    kvcl_comm_free(door);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("door");
    TCase *tc    = tcase_create("door");

    tcase_set_timeout(tc, 100);
    tcase_add_unchecked_fixture(tc, make_secrets, remove_secrets);
    tcase_add_test(tc, text_that_is_no_address_is_named);
    tcase_add_test(tc, a_call_that_fails_leaves_nothing_open);
    tcase_add_test(tc, a_changed_address_connects_to_nobody);
    tcase_add_test(tc, a_stranger_learns_nothing);
    tcase_add_test(tc, another_secret_is_refused);
    tcase_add_test(tc, a_forged_address_reaches_no_transport);
    tcase_add_test(tc, silent_connections_are_dismissed);
    tcase_add_loop_test(tc, other_services_are_no_doors, 0, 3);
    tcase_add_test(tc, lies_about_connections_change_nothing);
    tcase_add_test(tc, an_answer_that_nobody_waits_for_is_undone);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return test_run(suite());
}
