/*
 * A connection at rest is watched for bytes only: no event is left in the epoll of a side that is about to sleep, so
 * that it need not be read first. One that waits for room is watched for room, until it has sent all. A side that has
 * read the epoll reads no connection without an event.
 */
#include "config.h"
#include "tcp_rogue.h"
#include "test_base.h"

#include <poll.h>
#include <unistd.h>

enum { TRIPS = 100, LATER_US = 100 /* more than between two reads of the epoll */ };

static bool has_event(const side_t *side, int timeout_ms)
{
    struct pollfd fd = {.fd = side->ops->event_fd(side->xport), .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

static void send_bytes(side_t *side, size_t len)
{
    static char      bytes[TCP_INLINE_BYTES];
    const uint64_t   hdr = 1;
    const kvcl_iov_t iov = {bytes, len};

    ck_assert_int_eq(side->ops->am_send(side->ep, &hdr, sizeof(hdr), &iov, 1, 0, NULL), KVCL_OK);
}

static bool rests(side_t *side)
{
    return (side->ops->arm(side->xport) == KVCL_OK) && (tcp_in(side)->wide == 0);
}

static void round_trip(pair_t *pair)
{
    const uint64_t a = pair->a.received, b = pair->b.received;

    send_bytes(&pair->a, 40);
    PAIR_UNTIL(pair, pair->b.received == b + 1);
    send_bytes(&pair->b, 4096);
    PAIR_UNTIL(pair, pair->a.received == a + 1);
}

/* Both sides are connected, and their first messages have passed. */
static void open_resting(pair_t *pair, int kind)
{
    unsigned i;

    pair_open(pair, (pair_kind_t)kind);
    for (i = 0; i < TRIPS; ++i) {
        round_trip(pair);
    }
    PAIR_UNTIL(pair, rests(&pair->a) && rests(&pair->b));
}

START_TEST(a_sleeper_finds_no_event_of_messages_that_were_read)
{
    pair_t   pair;
    unsigned i;

    open_resting(&pair, _i);
    for (i = 0; i < TRIPS; ++i) {
        round_trip(&pair);
        ck_assert_int_eq(pair.a.ops->arm(pair.a.xport), KVCL_OK);
        ck_assert_msg(!has_event(&pair.a, 0), "trip %u: an event is left", i);
        ck_assert(rests(&pair.a));
    }
    send_bytes(&pair.b, 1); /* a wakes for the next one */
    ck_assert(has_event(&pair.a, -1));
    PAIR_UNTIL(&pair, pair.a.received == 2 * TRIPS + 1);
    pair_close(&pair);
}
END_TEST

START_TEST(one_that_waits_for_room_wakes_when_there_is_some)
{
    pair_t   pair;
    uint64_t sent;

    open_resting(&pair, _i);
    for (sent = TRIPS; ep_in(&pair.a)->out->stream.writable; ++sent) {
        send_bytes(&pair.a, TCP_INLINE_BYTES);
        (void)pair.a.ops->progress(pair.a.xport);
    }
    ck_assert(tcp_in(&pair.a)->waiting == 1);
    ck_assert(tcp_in(&pair.a)->wide == 1);
    while (pair.a.ops->arm(pair.a.xport) != KVCL_OK) {
        (void)pair.a.ops->progress(pair.a.xport);
    }
    while (!has_event(&pair.a, 0)) { /* b reads what is in the kernel, and a sleeps meanwhile */
        (void)pair.b.ops->progress(pair.b.xport);
    }
    PAIR_UNTIL(&pair, pair.b.received == sent);
    PAIR_UNTIL(&pair, rests(&pair.a) && rests(&pair.b));
    round_trip(&pair);
    ck_assert_uint_eq(pair.a.failures + pair.b.failures, 0);
    pair_close(&pair);
}
END_TEST

/* As a thread does that wakes for a message, and looks once more before it sleeps. */
START_TEST(a_side_that_looks_reads_no_connection_in_vain)
{
    pair_t   pair;
    uint64_t received;
    unsigned i;

    open_resting(&pair, _i);
    for (i = 0; i < TRIPS; ++i) {
        received = pair.a.received;
        send_bytes(&pair.b, 40);
        ck_assert(has_event(&pair.a, -1));
        while (pair.a.received == received) {
            (void)pair.a.ops->progress(pair.a.xport);
        }
        (void)usleep(LATER_US);
        (void)pair.a.ops->progress(pair.a.xport);
        ck_assert_ptr_nonnull(tcp_in(&pair.a)->hot[0]);
        ck_assert_uint_eq(tcp_in(&pair.a)->hot[0]->vain, 0);
        ck_assert_int_eq(pair.a.ops->arm(pair.a.xport), KVCL_OK);
    }
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp_rest");
    TCase *tc    = tcase_create("tcp_rest");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_sleeper_finds_no_event_of_messages_that_were_read, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(tc, one_that_waits_for_room_wakes_when_there_is_some, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(tc, a_side_that_looks_reads_no_connection_in_vain, PAIR_PLAIN, PAIR_ALL_KINDS);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
