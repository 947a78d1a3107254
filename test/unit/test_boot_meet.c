/*
 * Whole boots with threads as ranks: tcp over loopback on a free port, the caller's callbacks, alone; wrong
 * secrets, doubles, strangers, other versions, members that never come.
 */
#include "config.h"
#include <kvcl/kvcl_context.h>
#include "test_base.h"
#include "base/error.h"
#include "boot/boot.h"
#include "boot/boot_server.h"
#include "boot/boot_sock.h"
#include "boot/boot_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS_MAX = 16 };

static char url[64];
static int  port;
static char dir[64];
static char secret_file[96], other_file[96];

static void write_file(char *path, size_t len, const char *name, char fill)
{
    char bytes[32];
    int  fd;

    snprintf(path, len, "%s/%s", dir, name);
    memset(bytes, fill, sizeof(bytes));
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq((int)write(fd, bytes, sizeof(bytes)), (int)sizeof(bytes));
    close(fd);
}

/* A free port, two secret files, and a home so that the user's own is not touched. */
static void set_up(void)
{
    struct sockaddr_in sa  = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len = sizeof(sa);
    int                fd  = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, len), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    close(fd);
    port = ntohs(sa.sin_port);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port);
    snprintf(dir, sizeof(dir), "/tmp/kvcl-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("HOME", dir, 1);
    unsetenv("PMIX_NAMESPACE");
    write_file(secret_file, sizeof(secret_file), "one", 'a');
    write_file(other_file, sizeof(other_file), "two", 'b');
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    ck_assert_int_eq(system(command), 0);
}

/* ---------------------------------------------------------------- ranks as threads */

typedef struct rank_thread {
    kvcl_boot_params_t params;
    int                rounds; /* boots one after the other, the first kept open */
    kvcl_status_t      status;
    char               error[KVCL_ERROR_MAX];
    int                rank;
    uint8_t            secret[32];
    char               job[KVCL_BOOT_JOB_MAX];
    int                wrong;
    pthread_t          thread;
} rank_thread_t;

static void check_blobs(rank_thread_t *self, kvcl_boot_t *boot, int round)
{
    const void *blob;
    size_t      len;
    int         rank;
    char        want[64];

    for (rank = boot->size - 1; rank >= 0; --rank) {
        snprintf(want, sizeof(want), "round %d rank %d", round, rank);
        self->wrong += (kvcl_boot_get(boot, rank, &blob, &len) != KVCL_OK) || (len != strlen(want)) ||
                       (memcmp(blob, want, len) != 0);
    }
    self->wrong += (kvcl_boot_get(boot, boot->size, &blob, &len) != KVCL_ERR_UNKNOWN_RANK);
}

static kvcl_status_t one_round(rank_thread_t *self, int round, kvcl_boot_t **boot_p)
{
    char          mine[64];
    const void   *blob;
    size_t        len;
    kvcl_status_t status = kvcl_boot_open(&self->params, boot_p);

    if (status != KVCL_OK) {
        return status;
    }
    self->rank = (*boot_p)->rank;
    self->wrong += (kvcl_boot_get(*boot_p, 0, &blob, &len) != KVCL_ERR_NOT_FOUND);
    snprintf(mine, sizeof(mine), "round %d rank %d", round, self->rank);
    status = kvcl_boot_exchange(*boot_p, mine, strlen(mine));
    if (status == KVCL_OK) {
        memcpy(self->secret, (*boot_p)->secret, 32);
        memcpy(self->job, (*boot_p)->job, sizeof(self->job));
        self->wrong += (kvcl_boot_exchange(*boot_p, mine, 1) != KVCL_ERR_EXISTS);
        check_blobs(self, *boot_p, round);
        status = kvcl_boot_fence(*boot_p, kvcl_deadline_after(self->params.timeout_ns));
    }
    return status;
}

static void *run_rank(void *arg)
{
    rank_thread_t *self     = (rank_thread_t *)arg;
    kvcl_boot_t   *boots[4] = {NULL};
    int            i;

    for (i = 0; (i < self->rounds) && (self->status == KVCL_OK); ++i) {
        self->status = one_round(self, i, &boots[i]);
    }
    snprintf(self->error, sizeof(self->error), "%s", kvcl_last_error());
    for (i = 0; i < 4; ++i) {
        kvcl_boot_close(boots[i]);
    }
    return NULL;
}

static void prepare(rank_thread_t *ranks, int count, int size)
{
    int i;

    memset(ranks, 0, (size_t)count * sizeof(*ranks));
    for (i = 0; i < count; ++i) {
        ranks[i].params.rank        = -1;
        ranks[i].params.size        = size;
        ranks[i].params.rendezvous  = url;
        ranks[i].params.secret_file = secret_file;
        ranks[i].params.timeout_ns  = 10 * KVCL_NS_PER_SEC;
        ranks[i].rounds             = 1;
        ranks[i].rank               = -1;
    }
}

static void start(rank_thread_t *rank)
{
    ck_assert_int_eq(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static void run_all(rank_thread_t *ranks, int count)
{
    int i;

    for (i = 0; i < count; ++i) {
        start(&ranks[i]);
    }
    for (i = 0; i < count; ++i) {
        pthread_join(ranks[i].thread, NULL);
    }
}

static void all_met(const rank_thread_t *ranks, int count)
{
    int seen[RANKS_MAX] = {0};
    int i;

    for (i = 0; i < count; ++i) {
        ck_assert_msg(ranks[i].status == KVCL_OK, "%d: %s: %s", i, kvcl_status_name(ranks[i].status), ranks[i].error);
        ck_assert_int_eq(ranks[i].wrong, 0);
        ck_assert_int_eq(seen[ranks[i].rank]++, 0);
        ck_assert_mem_eq(ranks[i].secret, ranks[0].secret, 32);
        ck_assert_str_eq(ranks[i].job, ranks[0].job);
    }
}

/* ---------------------------------------------------------------- meetings that succeed */

START_TEST(ranks_meet_at_an_address_and_are_dealt_ranks)
{
    rank_thread_t ranks[RANKS_MAX];

    prepare(ranks, 9, 9);
    run_all(ranks, 9);
    all_met(ranks, 9);
}
END_TEST

START_TEST(asked_for_ranks_are_given_whoever_comes_first)
{
    rank_thread_t ranks[4];
    int           i;

    prepare(ranks, 4, 4);
    for (i = 0; i < 4; ++i) {
        ranks[i].params.rank = 3 - i; /* rank 0, which serves, comes last */
    }
    run_all(ranks, 4);
    all_met(ranks, 4);
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(ranks[i].rank, 3 - i);
    }
}
END_TEST

START_TEST(the_same_address_serves_one_boot_after_the_other)
{
    rank_thread_t ranks[5];
    int           i;

    prepare(ranks, 5, 5);
    for (i = 0; i < 5; ++i) {
        ranks[i].rounds = 4;
    }
    run_all(ranks, 5);
    all_met(ranks, 5);
}
END_TEST

START_TEST(on_loopback_the_users_own_secret_is_made_and_used)
{
    rank_thread_t ranks[4];
    struct stat   st;
    char          path[128];
    int           i;

    prepare(ranks, 4, 4);
    for (i = 0; i < 4; ++i) {
        ranks[i].params.secret_file = NULL;
    }
    run_all(ranks, 4);
    all_met(ranks, 4);
    snprintf(path, sizeof(path), "%s/.kvcl/secret", dir);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0600);
}
END_TEST

/* ---------------------------------------------------------------- meetings that must not */

START_TEST(bad_arguments_are_refused_with_their_variable)
{
    static const char *const bad_urls[] = {"127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://:5", "tcp://h:99999"};
    kvcl_boot_params_t       params     = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t             *boot       = NULL;
    size_t                   i;

    params.timeout_ns = KVCL_NS_PER_SEC;
    params.which      = "tcp";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_RENDEZVOUS"));
    params.rendezvous = url;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_SIZE"));
    params.size = 2;
    params.rank = 2;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    params.rank = -1;
    for (i = 0; i < sizeof(bad_urls) / sizeof(bad_urls[0]); ++i) {
        params.rendezvous = bad_urls[i];
        ck_assert_msg(kvcl_boot_open(&params, &boot) == KVCL_ERR_INVALID_PARAM, "%s", bad_urls[i]);
    }
    params.rendezvous = "tcp://192.0.2.1:5";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_SECRET_FILE"));
    params.secret_file = secret_file;
    params.rank        = 0;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "must run on that host"));
    params.rank  = -1;
    params.which = "carrier-pigeon";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_null(boot);
}
END_TEST

START_TEST(member_with_another_secret_is_refused)
{
    rank_thread_t ranks[3];

    prepare(ranks, 3, 2);
    ranks[0].params.rank        = 0;
    ranks[1].params.rank        = 1;
    ranks[2].params.rank        = 1;
    ranks[2].params.secret_file = other_file;
    start(&ranks[0]);
    start(&ranks[2]);
    pthread_join(ranks[2].thread, NULL);
    ck_assert_int_eq(ranks[2].status, KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(ranks[2].error, "the job secrets differ"));
    start(&ranks[1]);
    pthread_join(ranks[0].thread, NULL);
    pthread_join(ranks[1].thread, NULL);
    all_met(ranks, 2); /* the stranger took no rank */
}
END_TEST

/* A server that plays along but does not know the secret. */
static void *false_server(void *arg)
{
    kvcl_boot_msg_t msg = {.type = KVCL_BOOT_CHALLENGE};
    uint8_t         frame[KVCL_BOOT_SMALL_MAX];
    size_t          len;
    int             fd;

    fd = accept(*(int *)arg, NULL, NULL);
    (void)!read(fd, frame, KVCL_BOOT_HEAD_LEN + KVCL_BOOT_NONCE_LEN);
    len = kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    (void)!write(fd, frame, len);
    (void)!read(fd, frame, KVCL_BOOT_HEAD_LEN + 8 + 32);
    msg.type = KVCL_BOOT_WELCOME;
    msg.rank = 1;
    msg.size = 2;
    len      = kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    (void)!write(fd, frame, len);
    (void)!read(fd, frame, 1);
    close(fd);
    return NULL;
}

static int listen_here(void)
{
    kvcl_boot_addr_t addr;
    int              fd = -1, err = 0;

    ck_assert_int_eq(kvcl_boot_addr_resolve(url, &addr), KVCL_OK);
    ck_assert(addr.loopback);
    ck_assert_int_eq(kvcl_boot_sock_listen(&addr, &fd, &err), KVCL_OK);
    ck_assert_int_eq(fcntl(fd, F_SETFL, 0), 0); /* blocking */
    return fd;
}

START_TEST(server_that_does_not_know_the_secret_is_refused)
{
    rank_thread_t rank;
    pthread_t     thread;
    int           fd = listen_here();

    ck_assert_int_eq(pthread_create(&thread, NULL, false_server, &fd), 0);
    prepare(&rank, 1, 2);
    rank.params.rank = 1;
    run_all(&rank, 1);
    pthread_join(thread, NULL);
    close(fd);
    ck_assert_int_eq(rank.status, KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(rank.error, "does not know the job secret"));
}
END_TEST

START_TEST(a_rank_asked_for_twice_is_refused_and_so_is_another_size)
{
    rank_thread_t ranks[4];

    prepare(ranks, 4, 2);
    ranks[0].params.rank = 0;
    ranks[1].params.rank = 1;
    ranks[2].params.rank = 0;
    ranks[3].params.size = 3;
    start(&ranks[0]);
    poll(NULL, 0, 100); /* rank 0 shall be in before its double */
    start(&ranks[2]);
    start(&ranks[3]);
    pthread_join(ranks[2].thread, NULL);
    pthread_join(ranks[3].thread, NULL);
    ck_assert_int_eq(ranks[2].status, KVCL_ERR_EXISTS);
    ck_assert_ptr_nonnull(strstr(ranks[2].error, "rank 0 is taken by another process"));
    ck_assert_int_eq(ranks[3].status, KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(ranks[3].error, "this meeting is for 2 ranks, not 3"));
    start(&ranks[1]);
    pthread_join(ranks[0].thread, NULL);
    pthread_join(ranks[1].thread, NULL);
    all_met(ranks, 2);
}
END_TEST

START_TEST(member_that_never_comes_is_named_when_time_is_up)
{
    rank_thread_t ranks[2];
    int           i;

    prepare(ranks, 2, 3);
    for (i = 0; i < 2; ++i) {
        ranks[i].params.rank       = i;
        ranks[i].params.timeout_ns = 300 * KVCL_NS_PER_MS;
    }
    run_all(ranks, 2);
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(ranks[i].status, KVCL_ERR_TIMED_OUT);
        ck_assert_msg(strstr(ranks[i].error, "missing: 2") != NULL, "%s", ranks[i].error);
    }
}
END_TEST

START_TEST(meeting_that_nobody_serves_times_out)
{
    rank_thread_t rank;

    prepare(&rank, 1, 2);
    rank.params.rank       = 1;
    rank.params.timeout_ns = 200 * KVCL_NS_PER_MS;
    run_all(&rank, 1);
    ck_assert_int_eq(rank.status, KVCL_ERR_TIMED_OUT);
    ck_assert_ptr_nonnull(strstr(rank.error, "nobody serves the rendezvous"));
}
END_TEST

/* ---------------------------------------------------------------- strangers at the server */

static kvcl_boot_server_t *serve_two(uint64_t hello_ns)
{
    static const uint8_t      secret[32] = {5};
    kvcl_boot_server_params_t params     = {.listen_fd = listen_here(), .size = 2, .secret = secret, .hello_ns = hello_ns};
    kvcl_boot_server_t       *server     = NULL;

    ck_assert_int_eq(fcntl(params.listen_fd, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(kvcl_boot_server_start(&params, &server), KVCL_OK);
    return server;
}

static int connect_here(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int                fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Read until end of file; how many bytes came. */
static size_t read_all(int fd, uint8_t *buf, size_t cap)
{
    size_t  len = 0;
    ssize_t n;

    while ((len < cap) && ((n = read(fd, buf + len, cap - len)) > 0)) {
        len += (size_t)n;
    }
    return len;
}

START_TEST(garbage_is_dropped_without_an_answer_and_counted)
{
    kvcl_boot_server_t      *server = serve_two(0);
    kvcl_boot_server_stats_t stats;
    uint8_t                  buf[4096];
    kvcl_rand_t              rnd;
    kvcl_boot_msg_t          put = {.type = KVCL_BOOT_PUT, .blob = buf, .blob_len = 100};
    size_t                   i, len;
    int                      fd, round;

    test_seed(&rnd);
    for (round = 0; round < 100; ++round) {
        fd = connect_here();
        for (i = 0; i < sizeof(buf); ++i) {
            buf[i] = (uint8_t)kvcl_rand_next(&rnd);
        }
        len = (round % 2) ? kvcl_boot_msg_pack(&put, buf, sizeof(buf)) : 12 + kvcl_rand_below(&rnd, 4000);
        (void)send(fd, buf, len, MSG_NOSIGNAL);
        ck_assert_uint_eq(read_all(fd, buf, sizeof(buf)), 0);
        close(fd);
    }
    kvcl_boot_server_stats(server, &stats);
    ck_assert_uint_eq(stats.accepted, 100);
    ck_assert_uint_eq(stats.garbage, 100);
    kvcl_boot_server_stop(server);
}
END_TEST

START_TEST(slow_strangers_are_bounded_and_let_members_in)
{
    enum { LORIS = 200 };
    kvcl_boot_server_t      *server = serve_two(400 * KVCL_NS_PER_MS);
    kvcl_boot_server_stats_t stats;
    kvcl_boot_msg_t          hello = {.type = KVCL_BOOT_HELLO};
    uint8_t                  buf[KVCL_BOOT_SMALL_MAX];
    size_t                   len = kvcl_boot_msg_pack(&hello, buf, sizeof(buf));
    int                      fds[LORIS], fd, i;

    for (i = 0; i < LORIS; ++i) {
        fds[i] = connect_here();
        (void)send(fds[i], buf, (size_t)(i % 20), MSG_NOSIGNAL); /* a beginning, and no more */
    }
    fd = connect_here();
    ck_assert_int_eq((int)send(fd, buf, len, MSG_NOSIGNAL), (int)len);
    ck_assert_int_eq((int)recv(fd, buf, KVCL_BOOT_HEAD_LEN + 32, MSG_WAITALL), KVCL_BOOT_HEAD_LEN + 32);
    close(fd);
    for (i = 0; i < LORIS; ++i) {
        ck_assert_uint_eq(read_all(fds[i], buf, sizeof(buf)), 0);
        close(fds[i]);
    }
    kvcl_boot_server_stats(server, &stats);
    ck_assert_uint_eq(stats.slow, LORIS);
    kvcl_boot_server_stop(server);
}
END_TEST

START_TEST(another_wire_version_is_refused_with_a_sentence)
{
    kvcl_boot_server_t      *server = serve_two(0);
    kvcl_boot_server_stats_t stats;
    kvcl_boot_msg_t          msg = {.type = KVCL_BOOT_HELLO};
    kvcl_boot_head_t         head;
    uint8_t                  buf[KVCL_BOOT_SMALL_MAX];
    size_t                   len = kvcl_boot_msg_pack(&msg, buf, sizeof(buf));
    int                      fd  = connect_here();

    buf[4] = 2;
    (void)send(fd, buf, len, MSG_NOSIGNAL);
    ck_assert_uint_gt(read_all(fd, buf, sizeof(buf)), KVCL_BOOT_HEAD_LEN);
    close(fd);
    ck_assert_int_eq(kvcl_boot_head_parse(buf, &head), KVCL_OK);
    ck_assert_int_eq(kvcl_boot_body_parse(&head, buf + KVCL_BOOT_HEAD_LEN, &msg), KVCL_OK);
    ck_assert_int_eq((int)msg.type, KVCL_BOOT_REFUSE);
    ck_assert_int_eq(msg.status, KVCL_ERR_VERSION);
    ck_assert_str_eq(msg.text, "the ranks run different versions of KVCL: boot protocol 2, this meeting's is 1");
    kvcl_boot_server_stats(server, &stats);
    ck_assert_uint_eq(stats.version, 1);
    kvcl_boot_server_stop(server);
}
END_TEST

/* A server of the future answers a member of today. */
static void *future_server(void *arg)
{
    kvcl_boot_msg_t msg = {.type = KVCL_BOOT_CHALLENGE};
    uint8_t         frame[KVCL_BOOT_SMALL_MAX];
    size_t          len = kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    int             fd  = accept(*(int *)arg, NULL, NULL);

    frame[4] = 7;
    (void)!write(fd, frame, len);
    (void)!read(fd, frame, sizeof(frame));
    close(fd);
    return NULL;
}

START_TEST(member_names_the_other_version)
{
    rank_thread_t rank;
    pthread_t     thread;
    int           fd = listen_here();

    ck_assert_int_eq(pthread_create(&thread, NULL, future_server, &fd), 0);
    prepare(&rank, 1, 2);
    run_all(&rank, 1);
    pthread_join(thread, NULL);
    close(fd);
    ck_assert_int_eq(rank.status, KVCL_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(rank.error, "speaks boot protocol 7, we speak 1"));
}
END_TEST

/* ---------------------------------------------------------------- callbacks, alone */

typedef struct store {
    pthread_mutex_t   lock;
    pthread_cond_t    cond;
    pthread_barrier_t barrier;
    int               count;
    struct {
        char   key[64];
        char   val[512];
        size_t len;
    } pairs[64];
} store_t;

static kvcl_status_t store_set(void *arg, const char *key, const void *val, size_t len)
{
    store_t *store = (store_t *)arg;

    pthread_mutex_lock(&store->lock);
    snprintf(store->pairs[store->count].key, 64, "%s", key);
    memcpy(store->pairs[store->count].val, val, len);
    store->pairs[store->count++].len = len;
    pthread_cond_broadcast(&store->cond);
    pthread_mutex_unlock(&store->lock);
    return KVCL_OK;
}

static kvcl_status_t store_get(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    store_t *store = (store_t *)arg;
    int      i;

    pthread_mutex_lock(&store->lock);
    for (i = 0;; ++i) {
        while (i == store->count) {
            pthread_cond_wait(&store->cond, &store->lock);
        }
        if (strcmp(store->pairs[i].key, key) == 0) {
            break;
        }
    }
    *len_p = store->pairs[i].len;
    memcpy(buf, store->pairs[i].val, (*len_p < cap) ? *len_p : cap);
    pthread_mutex_unlock(&store->lock);
    return KVCL_OK;
}

static kvcl_status_t store_fence(void *arg)
{
    (void)pthread_barrier_wait(&((store_t *)arg)->barrier);
    return KVCL_OK;
}

static kvcl_status_t store_broken(void *arg, const char *key, const void *val, size_t len)
{
    (void)arg, (void)key, (void)val, (void)len;
    return KVCL_ERR_UNREACHABLE;
}

/* Keys are "kvcl.<n>.<what>", n counting the opens of a process. Threads as ranks share that count, so n is cut off. */
static kvcl_status_t set_any(void *arg, const char *key, const void *val, size_t len)
{
    return store_set(arg, strchr(key + 5, '.'), val, len);
}

static kvcl_status_t get_any(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    return store_get(arg, strchr(key + 5, '.'), buf, cap, len_p);
}

START_TEST(ranks_meet_by_the_callers_callbacks)
{
    enum { RANKS = 4 };
    static store_t store = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    kvcl_oob_t     oob[RANKS];
    rank_thread_t  ranks[RANKS];
    int            i;

    pthread_barrier_init(&store.barrier, NULL, RANKS);
    prepare(ranks, RANKS, 0);
    for (i = 0; i < RANKS; ++i) {
        oob[i] = (kvcl_oob_t){.rank = i, .size = RANKS, .set = set_any, .get = get_any, .fence = store_fence, .arg = &store};
        ranks[i].params.oob         = &oob[i];
        ranks[i].params.secret_file = NULL;
    }
    run_all(ranks, RANKS);
    all_met(ranks, RANKS);
    ck_assert_int_eq(store.count, RANKS + 1); /* one set a rank, and the job's */
    oob[0].set = store_broken;
    prepare(ranks, 1, 0);
    ranks[0].params.oob = &oob[0];
    run_all(ranks, 1);
    ck_assert_int_eq(ranks[0].status, KVCL_ERR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(ranks[0].error, "set callback failed for key kvcl."));
}
END_TEST

START_TEST(alone_is_rank_0_of_1)
{
    rank_thread_t ranks[2];
    int           i;

    prepare(ranks, 2, 1);
    for (i = 0; i < 2; ++i) {
        ranks[i].params.rendezvous = NULL;
        ranks[i].rounds            = 2;
    }
    ranks[1].params.size = 2;
    run_all(ranks, 2);
    all_met(ranks, 1);
    ck_assert_int_eq(ranks[1].status, KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(ranks[1].error, "KVCL_RENDEZVOUS"));
}
END_TEST

START_TEST(pmix_variables_without_a_launcher_are_an_error_not_many_singletons)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t       *boot   = NULL;
    kvcl_status_t      status;

    setenv("PMIX_NAMESPACE", "nobody", 1);
    setenv("PMIX_RANK", "0", 1);
    status = kvcl_boot_open(&params, &boot);
    ck_assert_msg((status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_UNSUPPORTED), "%d", status);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_BOOT=self"));
    params.which = "self";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_OK);
    kvcl_boot_close(boot);
    kvcl_boot_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("boot meetings");
    TCase *tc    = tcase_create("meetings");

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, ranks_meet_at_an_address_and_are_dealt_ranks);
    tcase_add_test(tc, asked_for_ranks_are_given_whoever_comes_first);
    tcase_add_test(tc, the_same_address_serves_one_boot_after_the_other);
    tcase_add_test(tc, on_loopback_the_users_own_secret_is_made_and_used);
    tcase_add_test(tc, bad_arguments_are_refused_with_their_variable);
    tcase_add_test(tc, member_with_another_secret_is_refused);
    tcase_add_test(tc, server_that_does_not_know_the_secret_is_refused);
    tcase_add_test(tc, a_rank_asked_for_twice_is_refused_and_so_is_another_size);
    tcase_add_test(tc, member_that_never_comes_is_named_when_time_is_up);
    tcase_add_test(tc, meeting_that_nobody_serves_times_out);
    tcase_add_test(tc, garbage_is_dropped_without_an_answer_and_counted);
    tcase_add_test(tc, slow_strangers_are_bounded_and_let_members_in);
    tcase_add_test(tc, another_wire_version_is_refused_with_a_sentence);
    tcase_add_test(tc, member_names_the_other_version);
    tcase_add_test(tc, ranks_meet_by_the_callers_callbacks);
    tcase_add_test(tc, alone_is_rank_0_of_1);
    tcase_add_test(tc, pmix_variables_without_a_launcher_are_an_error_not_many_singletons);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
