/*
 * A connection whose accept ends between its answer and the other side's CONFIRM, as that of a process that is stopped
 * meanwhile: the side that connects has connected, so the next accept takes the connection. A request that is withdrawn
 * after its answer does not keep the accept from taking another one.
 */
#include "config.h"
#include "test_base.h"
#include "base/clock.h"
#include "core/context.h"
#include "join/meet.h"
#include <kvcl/kvcl.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define SECONDS(_s) ((uint64_t)(_s) * KVCL_NS_PER_SEC)

static char secret[64];

typedef struct side {
    kvcl_context_h ctx;
    kvcl_comm_h    self, inter;
    char           address[KVCL_ADDRESS_MAX * 2];
    const char     *to; /* NULL: accept */
    uint64_t       timeout_ns;
    kvcl_status_t  status;
    _Atomic bool   over;
    pthread_t      thread;
} side_t;

static void open_side(side_t *side)
{
    const int          rank   = 0;
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_comm_h        world;
    size_t             len;

    memset(side, 0, sizeof(*side));
    params.boot        = "self";
    params.secret_file = secret;
    ck_assert_int_eq(kvcl_init(&params, &side->ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(side->ctx, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_create(world, &rank, 1, &side->self), KVCL_OK);
    ck_assert_int_eq(kvcl_context_address(side->ctx, side->address, sizeof(side->address), &len), KVCL_OK);
}

static void close_side(side_t *side)
{
    kvcl_comm_free(side->inter);
    kvcl_comm_free(side->self);
    kvcl_finalize(side->ctx);
}

static void *join(void *arg)
{
    side_t *side = arg;

    side->status = (side->to != NULL) ? kvcl_comm_connect(side->self, side->to, side->timeout_ns, &side->inter)
                                      : kvcl_comm_accept(side->self, side->timeout_ns, &side->inter);
    atomic_store(&side->over, true);
    return NULL;
}

static void begin(side_t *side, const char *to, uint64_t timeout_ns)
{
    side->to         = to;
    side->timeout_ns = timeout_ns;
    atomic_store(&side->over, false);
    ck_assert_int_eq(pthread_create(&side->thread, NULL, join, side), 0);
}

static kvcl_status_t end(side_t *side)
{
    ck_assert_int_eq(pthread_join(side->thread, NULL), 0);
    return side->status;
}

/* Whether a list of the context's meetings has something in it. */
static bool has(kvcl_context_h ctx, size_t list)
{
    bool found;

    kvcl_lock(ctx);
    found = !kvcl_list_is_empty((kvcl_list_t *)(void *)((char *)ctx->rooms[KVCL_ROOM_COMM] + list));
    kvcl_unlock(ctx);
    return found;
}

static void until(kvcl_context_h ctx, size_t list, bool there)
{
    while (has(ctx, list) != there) { /* ends by the test's limit */
        usleep(1000);
    }
}

/* An accept that ends after its answer, while the lock of the other side keeps the answer unread. On a busy machine the
 * accept may end before it answers: then the next one has twice the time. */
static void accept_until_answered(side_t *side)
{
    uint64_t timeout_ns = 50 * KVCL_NS_PER_MS;

    do {
        ck_assert_int_eq(kvcl_comm_accept(side->self, timeout_ns, &side->inter), KVCL_ERR_TIMED_OUT);
        timeout_ns *= 2;
    } while (!has(side->ctx, offsetof(kvcl_meet_room_t, left)));
}

/* Its request is there, and has a deadline soon. On a busy machine its time may be over before: then it has twice as
 * much. Returns that time. */
static uint64_t request_soon_over(side_t *side, const side_t *to)
{
    uint64_t timeout_ns = 200 * KVCL_NS_PER_MS;

    begin(side, to->address, timeout_ns);
    while (!has(to->ctx, offsetof(kvcl_meet_room_t, held))) { /* ends by the test's limit */
        if (atomic_load(&side->over)) {
            ck_assert_int_eq(end(side), KVCL_ERR_TIMED_OUT);
            timeout_ns *= 2;
            begin(side, to->address, timeout_ns);
        }
        usleep(1000);
    }
    return timeout_ns;
}

static void talk(const side_t *from, const side_t *to)
{
    kvcl_req_h sent, received;
    char       in = 0, out = 'x';

    ck_assert_int_eq(kvcl_recv_bytes(to->inter, 0, 7, &in, 1, NULL, &received), KVCL_OK);
    ck_assert_int_eq(kvcl_send_bytes(from->inter, 0, 7, &out, 1, NULL, &sent), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(sent, SECONDS(60)), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(received, SECONDS(60)), KVCL_OK);
    ck_assert_int_eq(in, 'x');
}

START_TEST(the_next_accept_takes_what_was_confirmed_too_late)
{
    side_t a, b;

    open_side(&a);
    open_side(&b);
    begin(&b, a.address, SECONDS(60));
    until(a.ctx, offsetof(kvcl_meet_room_t, held), true);
    kvcl_lock(b.ctx); /* the answer is not read before the accept has ended */
    accept_until_answered(&a);
    kvcl_unlock(b.ctx);
    ck_assert_int_eq(kvcl_comm_accept(a.self, SECONDS(60), &a.inter), KVCL_OK);
    ck_assert_int_eq(end(&b), KVCL_OK);
    ck_assert(!has(a.ctx, offsetof(kvcl_meet_room_t, left)));
    talk(&a, &b);
    talk(&b, &a);
    close_side(&b);
    close_side(&a);
}
END_TEST

START_TEST(it_is_dropped_with_its_peer_and_with_the_context)
{
    side_t a, b;

    open_side(&a);
    open_side(&b);
    begin(&b, a.address, SECONDS(60));
    until(a.ctx, offsetof(kvcl_meet_room_t, held), true);
    kvcl_lock(b.ctx);
    accept_until_answered(&a);
    kvcl_unlock(b.ctx);
    ck_assert_int_eq(end(&b), KVCL_OK);
    if (_i == 0) {
        close_side(&b);
        until(a.ctx, offsetof(kvcl_meet_room_t, left), false);
    }
    close_side(&a);
    if (_i == 1) {
        close_side(&b);
    }
}
END_TEST

START_TEST(both_sides_connect_or_the_accept_takes_another_one)
{
    side_t   a, b;
    uint64_t timeout_ns;

    open_side(&a);
    open_side(&b);
    timeout_ns = request_soon_over(&b, &a);
    kvcl_lock(b.ctx);
    begin(&a, NULL, SECONDS(60));
    until(a.ctx, offsetof(kvcl_meet_room_t, held), false); /* it is answered, or withdrawn */
    usleep((useconds_t)(timeout_ns / 1000 * 5 / 4));       /* the time that it had has passed */
    kvcl_unlock(b.ctx);
    if (end(&b) != KVCL_OK) {
        ck_assert_int_eq(b.status, KVCL_ERR_TIMED_OUT);
        begin(&b, a.address, SECONDS(60));
        ck_assert_int_eq(end(&b), KVCL_OK);
    }
    ck_assert_int_eq(end(&a), KVCL_OK);
    talk(&a, &b);
    close_side(&b);
    close_side(&a);
}
END_TEST

static void make_secret(void)
{
    int fd;

    snprintf(secret, sizeof(secret), "/tmp/kvcl-join-%d", (int)getpid());
    fd = open(secret, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, "one secret of sixteen", 20), 20);
    close(fd);
}

static void remove_secret(void)
{
    unlink(secret);
}

static Suite *suite(void)
{
    Suite *suite = suite_create("join left");
    TCase *tc    = tcase_create("join left");

    tcase_set_timeout(tc, 100);
    tcase_add_unchecked_fixture(tc, make_secret, remove_secret);
    tcase_add_test(tc, the_next_accept_takes_what_was_confirmed_too_late);
    tcase_add_loop_test(tc, it_is_dropped_with_its_peer_and_with_the_context, 0, 2);
    tcase_add_test(tc, both_sides_connect_or_the_accept_takes_another_one);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return test_run(suite());
}
