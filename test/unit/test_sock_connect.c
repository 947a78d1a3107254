/*
 * A connection that the other side drops before this side saw that it was made: the state tells it apart from one that
 * was refused, since only the first is worth another try.
 */
#include "config.h"
#include "test_base.h"
#include "sock/sock_stream.h"

#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t no_id[KVCL_SOCK_ID_LEN];

static int listen_at(struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int       fd  = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

/* A close with no time to linger makes the kernel reset the connection. */
static void drop_visitor(int listener)
{
    const struct linger at_once = {.l_onoff = 1};
    int                 fd      = accept(listener, NULL, NULL);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(fd);
}

static kvcl_status_t shake_once(kvcl_sock_stream_t *stream)
{
    struct pollfd seen = {.fd = stream->fd, .events = POLLIN};

    ck_assert_int_eq(poll(&seen, 1, 60000), 1);
    kvcl_sock_event(stream, EPOLLIN | EPOLLOUT | EPOLLHUP);
    return kvcl_sock_shake(stream);
}

static kvcl_status_t connect_to(const struct sockaddr_in *at, kvcl_sock_stream_t *stream)
{
    const kvcl_sock_tuning_t      tuning = {0};
    static const uint8_t          secret[32];
    static const kvcl_sock_side_t side = {.secret = secret, .id = {1}};

    return kvcl_sock_connect(stream, (const struct sockaddr *)at, sizeof(*at), &side, no_id, KVCL_SOCK_STREAM,
                             &tuning);
}

START_TEST(a_connection_reset_before_it_was_seen_was_made)
{
    struct sockaddr_in at;
    kvcl_sock_stream_t stream;
    int                listener = listen_at(&at);

    ck_assert_int_eq(connect_to(&at, &stream), KVCL_OK);
    drop_visitor(listener);
    ck_assert_int_eq(shake_once(&stream), KVCL_ERR_UNREACHABLE);
    ck_assert_int_eq(stream.state, KVCL_SOCK_SHAKING);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "closed the connection"));
    kvcl_sock_close(&stream, -1);
    close(listener);
}
END_TEST

START_TEST(a_refused_connection_was_not_made)
{
    struct sockaddr_in at;
    kvcl_sock_stream_t stream;
    kvcl_status_t      status;

    close(listen_at(&at)); /* now nobody listens there */
    status = connect_to(&at, &stream);
    if (status == KVCL_OK) {
        status = shake_once(&stream);
        ck_assert_int_eq(stream.state, KVCL_SOCK_CONNECTING);
        kvcl_sock_close(&stream, -1);
    }
    ck_assert_int_eq(status, KVCL_ERR_UNREACHABLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sock connect");
    TCase *tc    = tcase_create("sock connect");

    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, a_connection_reset_before_it_was_seen_was_made);
    tcase_add_test(tc, a_refused_connection_was_not_made);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
