/*
 * kvcl_context_connect_post: connects that do not wait, to addresses that answer, that do not exist, that are silent;
 * canceled, abandoned, and many at once. The test answers for the system's resolver.
 */
#include "config.h"
#include "core/context.h"
#include "door/door.h"
#include "doors.h"

#include <netdb.h>
#include <string.h>

/* ---- a resolver that hangs until it is released ---- */

static pthread_mutex_t resolver = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  changed  = PTHREAD_COND_INITIALIZER;
static int             looking;
static bool            released;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    if (strcmp(host, "slow.test") == 0) {
        pthread_mutex_lock(&resolver);
        ++looking;
        pthread_cond_broadcast(&changed);
        while (!released) {
            pthread_cond_wait(&changed, &resolver);
        }
        pthread_mutex_unlock(&resolver);
        return EAI_NONAME;
    }
    return (strcmp(host, "nobody.test") == 0) ? EAI_NONAME : __real_getaddrinfo(host, port, hints, found);
}

static void until_looking(int n)
{
    pthread_mutex_lock(&resolver);
    while (looking < n) {
        pthread_cond_wait(&changed, &resolver);
    }
    pthread_mutex_unlock(&resolver);
}

static void release_resolver(void)
{
    pthread_mutex_lock(&resolver);
    released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&resolver);
}

/* ---- posts ---- */

static kvcl_req_h post(kvcl_context_h ctx, const char *address, uint64_t timeout_ns, kvcl_comm_h *comm_p)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.timeout_ns = timeout_ns;
    ck_assert_int_eq(kvcl_context_connect_post(ctx, address, &params, comm_p, &req), KVCL_OK);
    return req;
}

static kvcl_status_t end(kvcl_req_h req)
{
    return kvcl_req_wait(req, SECONDS(90));
}

static void hear_from(kvcl_comm_h comm)
{
    kvcl_req_h req;

    ck_assert_int_eq(kvcl_notify(comm, 0, "x", 1, NULL, &req), KVCL_OK);
    ck_assert_int_eq(end(req), KVCL_OK);
}

START_TEST(a_post_connects_by_port_and_by_address)
{
    kvcl_context_h ctx = alone(0), other = alone(0);
    char           where[KVCL_HOSTPORT_MAX], text[12000];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm[2];
    kvcl_req_h     req[2], bad;
    size_t         len;
    int            i;

    ck_assert_int_eq(kvcl_context_address(ctx, text, sizeof(text), &len), KVCL_OK);
    req[0] = post(other, where, 0, &comm[0]);
    req[1] = post(other, text, 0, &comm[1]);
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(end(req[i]), KVCL_OK);
        ck_assert_int_eq(kvcl_comm_size(comm[i]), 1);
        hear_from(comm[i]);
        kvcl_comm_free(comm[i]);
    }
    ck_assert_int_eq(kvcl_comm_size(door), 2);
    ck_assert_int_eq(kvcl_context_connect_post(other, "host", NULL, &comm[0], &bad), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "host:port"));
    ck_assert_int_eq(kvcl_context_connect_post(other, "kvcl1:AAAA", NULL, &comm[0], &bad), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_context_connect_post(other, NULL, NULL, &comm[0], &bad), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_context_connect_post(other, where, NULL, NULL, &bad), KVCL_ERR_INVALID_PARAM);
    kvcl_comm_free(door);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

/* Until it is connected the communicator has no rank, and is the caller's all the same. */
START_TEST(a_communicator_in_progress_has_no_rank)
{
    kvcl_context_h ctx = alone(0);
    kvcl_comm_h    comm;
    kvcl_req_h     req = post(ctx, "slow.test:1", 0, &comm), none;

    until_looking(1);
    ck_assert_int_eq(kvcl_req_test(req), KVCL_INPROGRESS);
    ck_assert_int_eq(kvcl_comm_size(comm), 0);
    ck_assert_int_eq(kvcl_notify(comm, 0, "x", 1, NULL, &none), KVCL_ERR_UNKNOWN_RANK);
    kvcl_comm_free(comm); /* cancels */
    ck_assert_int_eq(end(req), KVCL_ERR_CANCELED);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "slow.test:1"));
    release_resolver();
    kvcl_finalize(ctx);
}
END_TEST

START_TEST(addresses_without_a_door_are_named)
{
    static const char *const at[] = {"127.0.0.1:1", "nobody.test:7"};
    kvcl_context_h           ctx = alone(0);
    kvcl_comm_h              comm[2], far;
    kvcl_req_h               req[2];
    kvcl_status_t            status;
    int                      i;

    for (i = 0; i < 2; ++i) {
        req[i] = post(ctx, at[i], 0, &comm[i]);
    }
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(end(req[i]), KVCL_ERR_UNREACHABLE);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), at[i]));
        kvcl_comm_free(comm[i]);
    }
    /* an address that no host has: its network says so, or nobody does */
    status = end(post(ctx, "192.0.2.1:9", SECONDS(1) / 5, &far));
    ck_assert((status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_TIMED_OUT));
    kvcl_comm_free(far);
    kvcl_finalize(ctx);
}
END_TEST

START_TEST(other_services_end_a_post)
{
    static const kvcl_status_t want[]    = {KVCL_ERR_TIMED_OUT, KVCL_ERR_UNREACHABLE, KVCL_ERR_PROTOCOL};
    static const uint64_t      time_ns[] = {SECONDS(1) / 4, SECONDS(1), SECONDS(60)}; /* the first two use it up */
    service_t                  service = {.kind = _i};
    kvcl_context_h             ctx     = alone(0);
    char                       where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h                comm;
    pthread_t                  thread;

    ck_assert_int_eq(kvcl_hostport_listen("127.0.0.1:0", "test", &service.fd, where), KVCL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &service), 0);
    ck_assert_int_eq(end(post(ctx, where, time_ns[_i], &comm)), want[_i]);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), where));
    kvcl_comm_free(comm);
    atomic_store(&service.stop, true);
    pthread_join(thread, NULL);
    close(service.fd);
    kvcl_finalize(ctx);
}
END_TEST

/* ---- cancel ---- */

/* A service that never answers keeps no thread once its question is dropped: kvcl_finalize joins them. */
START_TEST(a_cancel_ends_a_post_at_once)
{
    enum { N = 100 }; /* more than there are threads */
    kvcl_context_h ctx = alone(0);
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h    comm[N];
    kvcl_req_h     req[N];
    int            fd, i;

    ck_assert_int_eq(kvcl_hostport_listen("127.0.0.1:0", "test", &fd, where), KVCL_OK); /* its queue accepts */
    for (i = 0; i < N; ++i) {
        req[i] = post(ctx, where, SECONDS(3600), &comm[i]);
    }
    for (i = 0; i < N; ++i) {
        ck_assert_int_eq(kvcl_req_test(req[i]), KVCL_INPROGRESS);
        kvcl_req_cancel(req[i]);
        ck_assert_int_eq(end(req[i]), KVCL_ERR_CANCELED);
    }
    for (i = 0; i < N; ++i) {
        kvcl_comm_free(comm[i]);
    }
    kvcl_finalize(ctx);
    close(fd);
}
END_TEST

/* The deadline and a cancel do not wait for the resolver, nor do others' connects. */
START_TEST(a_resolver_that_hangs_keeps_nobody)
{
    kvcl_context_h ctx = alone(0), other = alone(0);
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm[3];
    kvcl_req_h     req[2];
    int            i;

    req[0] = post(other, "slow.test:1", SECONDS(3600), &comm[0]);
    req[1] = post(other, "slow.test:2", SECONDS(1) / 10, &comm[1]);
    until_looking(2);
    ck_assert_int_eq(end(post(other, where, 0, &comm[2])), KVCL_OK);
    ck_assert_int_eq(end(req[1]), KVCL_ERR_TIMED_OUT);
    kvcl_req_cancel(req[0]);
    ck_assert_int_eq(end(req[0]), KVCL_ERR_CANCELED);
    for (i = 0; i < 3; ++i) {
        kvcl_comm_free(comm[i]);
    }
    kvcl_comm_free(door);
    release_resolver();
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

/* The other side has made the connection, or will: it ends there. */
START_TEST(a_canceled_connection_ends_on_the_other_side)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx, other = alone(0);
    char               text[12000];
    kvcl_comm_h        door, comm, second;
    kvcl_req_h         req;
    kvcl_rank_state_t  state = KVCL_RANK_ALIVE;
    size_t             len;

    params.boot        = "self";
    params.secret_file = files[0];
    params.flags       = KVCL_INIT_NO_THREAD; /* its door answers when this test lets it */
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_context_listen(ctx, NULL, text, sizeof(text), &len, &door), KVCL_OK);
    req = post(other, text, 0, &second); /* the session is made with this one */
    while (kvcl_req_test(req) == KVCL_INPROGRESS) {
        (void)kvcl_progress(ctx);
    }
    req = post(other, text, 0, &comm);
    kvcl_req_cancel(req);
    ck_assert_int_eq(end(req), KVCL_ERR_CANCELED);
    while ((kvcl_comm_size(door) < 2) || (state != KVCL_RANK_FAILED)) {
        (void)kvcl_progress(ctx);
        if (kvcl_comm_size(door) == 2) {
            ck_assert_int_eq(kvcl_rank_state(door, 1, &state), KVCL_OK);
        }
    }
    ck_assert_int_eq(kvcl_comm_size(comm), 0);
    kvcl_comm_free(comm);
    kvcl_comm_free(second);
    kvcl_comm_free(door);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

START_TEST(finalize_ends_what_is_in_progress)
{
    kvcl_context_h ctx = alone(0);
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h    comm[2];
    kvcl_req_h     req;
    int            fd;

    ck_assert_int_eq(kvcl_hostport_listen("127.0.0.1:0", "test", &fd, where), KVCL_OK);
    req = post(ctx, where, SECONDS(3600), &comm[0]);
    ck_assert_int_eq(kvcl_context_connect_post(ctx, where, NULL, &comm[1], NULL), KVCL_OK); /* detached */
    kvcl_finalize(ctx); /* frees the communicators, with a warning */
    ck_assert_int_eq(kvcl_req_test(req), KVCL_ERR_CANCELED);
    close(fd);
}
END_TEST

/* ---- many, and how they are learned ---- */

START_TEST(many_connect_at_once)
{
    enum { CONTEXTS = 3, N = KVCL_DOOR_PER_PEER };
    kvcl_context_h ctx = alone(0), other[CONTEXTS];
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h    door = listen_at(ctx, "127.0.0.1:0", where), comm[CONTEXTS][N], more;
    kvcl_req_h     req[CONTEXTS][N];
    bool           seen[CONTEXTS * N] = {false};
    int            c, i, rank;

    for (c = 0; c < CONTEXTS; ++c) {
        other[c] = alone(0);
        for (i = 0; i < N; ++i) {
            req[c][i] = post(other[c], where, SECONDS(60), &comm[c][i]);
        }
    }
    for (c = 0; c < CONTEXTS; ++c) {
        for (i = 0; i < N; ++i) {
            ck_assert_int_eq(end(req[c][i]), KVCL_OK);
            rank = kvcl_comm_rank(comm[c][i]);
            ck_assert((rank >= 0) && (rank < CONTEXTS * N) && !seen[rank]);
            seen[rank] = true;
        }
        ck_assert_int_eq(end(post(other[c], where, SECONDS(60), &more)), KVCL_ERR_BUSY);
        kvcl_comm_free(more);
    }
    for (c = 0; c < CONTEXTS; ++c) {
        for (i = 0; i < N; ++i) {
            kvcl_comm_free(comm[c][i]);
        }
        kvcl_finalize(other[c]);
    }
    kvcl_comm_free(door);
    kvcl_finalize(ctx);
}
END_TEST

typedef struct next {
    kvcl_context_h        ctx;
    const char            *where;
    kvcl_comm_h           comm;
    kvcl_req_h            req;
    _Atomic kvcl_status_t status, posted;
} next_t;

static void post_next(void *arg, kvcl_status_t status)
{
    next_t      *next = arg;
    kvcl_comm_h none;

    ck_assert_int_eq(kvcl_context_connect(next->ctx, next->where, SECONDS(60), &none), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "kvcl_context_connect_post"));
    atomic_store(&next->posted, kvcl_context_connect_post(next->ctx, next->where, NULL, &next->comm, &next->req));
    atomic_store(&next->status, status);
}

START_TEST(a_callback_may_post_another)
{
    kvcl_context_h     ctx = alone(0), other = alone(0);
    char               where[KVCL_HOSTPORT_MAX];
    kvcl_comm_h        door   = listen_at(ctx, "127.0.0.1:0", where), comm;
    next_t             next   = {.ctx = other, .where = where, .status = KVCL_INPROGRESS};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.cb     = post_next;
    params.cb_arg = &next;
    ck_assert_int_eq(kvcl_context_connect_post(other, where, &params, &comm, &req), KVCL_OK);
    ck_assert_int_eq(end(req), KVCL_OK); /* over: its callback has returned */
    ck_assert_int_eq(atomic_load(&next.status), KVCL_OK);
    ck_assert_int_eq(atomic_load(&next.posted), KVCL_OK);
    ck_assert_int_eq(end(next.req), KVCL_OK);
    hear_from(comm);
    hear_from(next.comm);
    kvcl_comm_free(comm);
    kvcl_comm_free(next.comm);
    kvcl_comm_free(door);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("door_post");
    TCase *tc    = tcase_create("door_post");

    tcase_set_timeout(tc, 100);
    tcase_add_unchecked_fixture(tc, make_secrets, remove_secrets);
    tcase_add_test(tc, a_post_connects_by_port_and_by_address);
    tcase_add_test(tc, a_communicator_in_progress_has_no_rank);
    tcase_add_test(tc, addresses_without_a_door_are_named);
    tcase_add_loop_test(tc, other_services_end_a_post, 0, 3);
    tcase_add_test(tc, a_cancel_ends_a_post_at_once);
    tcase_add_test(tc, a_resolver_that_hangs_keeps_nobody);
    tcase_add_test(tc, a_canceled_connection_ends_on_the_other_side);
    tcase_add_test(tc, finalize_ends_what_is_in_progress);
    tcase_add_test(tc, many_connect_at_once);
    tcase_add_test(tc, a_callback_may_post_another);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return test_run(suite());
}
