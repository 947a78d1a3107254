/*
 * Properties of the UCX transport only: access to memory, peers that sleep or die, settings of the user.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "listening.h"
#include "base/checksum.h"
#include "test/multi/hole.h"
#include "xport_far.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static kvcl_status_t get_now(side_t *side, kvcl_xport_rmem_t *rmem, uint64_t offset, void *buf, size_t len)
{
    waited_t      waited   = waited_new();
    uint64_t      deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    kvcl_status_t status   = side->ops->get(rmem, offset, buf, len, &waited.send);

    while ((status == KVCL_INPROGRESS) && !waited.done) {
        (void)side->ops->progress(side->xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    return (status == KVCL_INPROGRESS) ? waited.status : status;
}

START_TEST(a_sleeping_owner_is_read)
{
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    waited_t               waited = waited_new();
    char                   *buf   = malloc(FAR_SIZE);
    side_t                 side;
    far_t                  far;
    int                    status;

    far_start(&far, (pair_kind_t)_i);
    far_connect(&side, &far, (pair_kind_t)_i);
    ck_assert_int_eq(side.ops->rmem_open(side.ep, far.info.packed, far.info.packed_len, far.info.mem, FAR_SIZE, &rmem,
                                         &attr),
                     KVCL_OK);
    ck_assert_ptr_null(attr.map);
    if (!may_read(&far)) {
        printf("SKIP: this process may not read another one of its user (Yama, or a container)\n");
        ck_assert(!attr.get);
    } else {
        ck_assert(attr.get && !attr.put);
        ck_assert_str_eq(attr.native, "cma");
        ck_assert_int_eq(get_now(&side, rmem, 0, buf, FAR_SIZE), KVCL_OK);
        ck_assert(filled(buf, FAR_SIZE, 11));
        ck_assert_int_eq(get_now(&side, rmem, 1, buf, FAR_SIZE), KVCL_ERR_OUT_OF_RANGE);
        ck_assert_int_eq(side.ops->put(rmem, 0, buf, 1, &waited.send), KVCL_ERR_UNSUPPORTED);
        kill(far.pid, SIGKILL);
        waitpid(far.pid, NULL, 0);
        ck_assert_int_eq(get_now(&side, rmem, 0, buf, FAR_SIZE), KVCL_ERR_RANK_FAILED);
    }
    side.ops->rmem_close(rmem);
    close(far.to);
    (void)waitpid(far.pid, &status, 0);
    side_close(&side);
    free(buf);
}
END_TEST

/* Packed bytes that pass their check word and lie: a length beyond the owner's memory, another process, another cookie,
 * bytes of a key that UCX would parse. */
START_TEST(lies_about_memory_do_no_harm)
{
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    glue_packed_t          lie;
    char                   packed[512], buf[64];
    side_t                 side;
    far_t                  far;
    size_t                 len;
    int                    i;

    far_start(&far, (pair_kind_t)_i);
    far_connect(&side, &far, (pair_kind_t)_i);
    srand(11);
    for (i = 0; i < 2000; ++i) {
        uint64_t base = far.info.mem, size = FAR_SIZE;
        memset(packed, rand(), sizeof(packed));
        memcpy(&lie, far.info.packed, sizeof(lie));
        len = sizeof(lie);
        switch (i % 5) {
        case 0:
            lie.len = size = UINT64_C(1) << 44;
            break;
        case 1:
            lie.process.pid = (i < 1000) ? getpid() : rand();
            break;
        case 2:
            lie.process.cookie_addr = (i < 1000) ? base : (uint64_t)rand() * 8;
            break;
        case 3:
            lie.addr = base = (uint64_t)rand() << (rand() % 30);
            break;
        default:
            lie.flags    = (i < 1000) ? 0 : (uint32_t)rand();
            lie.rkey_len = (uint32_t)(rand() % (int)(sizeof(packed) - sizeof(lie)));
            len         += lie.rkey_len;
            break;
        }
        memcpy(packed, &lie, sizeof(lie));
        lie.check = kvcl_check32(packed + offsetof(glue_packed_t, addr), len - offsetof(glue_packed_t, addr));
        memcpy(packed, &lie, sizeof(lie));
        ck_assert_int_eq(side.ops->rmem_open(side.ep, packed, len, base, size, &rmem, &attr), KVCL_OK);
        ck_assert_ptr_null(attr.map);
        if (attr.get) {
            (void)get_now(&side, rmem, size - sizeof(buf), buf, sizeof(buf));
        }
        ck_assert(((i % 5 != 1) && (i % 5 != 2)) || !attr.get);
        side.ops->rmem_close(rmem);
    }
    close(far.to);
    (void)waitpid(far.pid, NULL, 0);
    side_close(&side);
}
END_TEST

START_TEST(a_killed_peer_is_told_once)
{
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    uint64_t               hdr = 1;
    uint64_t               deadline;
    side_t                 side;
    far_t                  far;
    int                    i;

    far_start(&far, (pair_kind_t)_i);
    far_connect(&side, &far, (pair_kind_t)_i);
    ck_assert_int_eq(side.ops->rmem_open(side.ep, far.info.packed, far.info.packed_len, far.info.mem, FAR_SIZE, &rmem,
                                         &attr),
                     KVCL_OK);
    ck_assert_int_eq(side.ops->am_send(side.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    for (i = 0; i < 100; ++i) {
        write_all(far.to, "x", 1); /* progress on the other side, for the wire-up */
        (void)side.ops->progress(side.xport);
        usleep(1000);
    }
    kill(far.pid, SIGKILL);
    waitpid(far.pid, NULL, 0);
    deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    while ((side.failures == 0) && !kvcl_deadline_passed(deadline)) {
        (void)side.ops->progress(side.xport);
    }
    ck_assert_uint_eq(side.failures, 1);
    ck_assert_int_eq(side.failed_with, KVCL_ERR_RANK_FAILED);
    side.ops->rmem_close(rmem);
    close(far.to);
    side_close(&side);
}
END_TEST

/* Its parent has not waited for it, so /proc shows it still. The caller sleeps. */
START_TEST(a_killed_peer_that_nobody_waits_for_is_told)
{
    uint64_t hdr      = 1;
    uint64_t deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    side_t   side;
    far_t    far;
    int      i;

    far_start(&far, (pair_kind_t)_i);
    far_connect(&side, &far, (pair_kind_t)_i);
    ck_assert_int_eq(side.ops->am_send(side.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    for (i = 0; i < 100; ++i) {
        write_all(far.to, "x", 1); /* progress on the other side, for the wire-up */
        (void)side.ops->progress(side.xport);
        usleep(1000);
    }
    kill(far.pid, SIGKILL);
    while ((side.failures == 0) && !kvcl_deadline_passed(deadline)) {
        struct pollfd fd = {.fd = side.ops->event_fd(side.xport), .events = POLLIN};

        if ((side.ops->progress(side.xport) == 0) && (side.ops->arm(side.xport) == KVCL_OK)) {
            (void)poll(&fd, 1, kvcl_deadline_poll_ms(deadline));
        }
    }
    ck_assert_uint_eq(side.failures, 1);
    ck_assert_int_eq(side.failed_with, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(waitpid(far.pid, NULL, 0), far.pid);
    close(far.to);
    side_close(&side);
}
END_TEST

/* Whether a UCP context with the RMA feature has a transport whose name begins with prefix. */
static bool rma_has(const glue_t *g, const char *prefix)
{
    const glue_side_t *sides[] = {&g->am, &g->data};
    char              list[512];
    int               i;

    for (i = 0; i < 2; ++i) {
        if ((sides[i]->ctx != NULL) && (sides[i]->features & UCP_FEATURE_RMA)) {
            kvcl_glue_ctx_transports(sides[i]->ctx, list, sizeof(list));
            if (kvcl_glue_list_has(list, prefix)) {
                return true;
            }
        }
    }
    return false;
}

START_TEST(no_context_with_tcp_has_rma)
{
    static const char *const tls[] = {NULL, "all", "tcp", "tcp,posix", "^posix", "^cma,self", "^tcp", "shm,tcp"};
    char                     list[256];
    side_t                   side;
    size_t                   i;

    for (i = 0; i < sizeof(tls) / sizeof(tls[0]); ++i) {
        if (tls[i] != NULL) {
            setenv("UCX_TLS", tls[i], 1);
        }
        if ((_i == PAIR_SHM) && (tls[i] != NULL) && ((strcmp(tls[i], "tcp") == 0) || (strcmp(tls[i], "^posix") == 0))) {
            continue; /* refused: without_an_interface_nothing_listens */
        }
        side_open(&side, (pair_kind_t)_i);
        ck_assert(!rma_has(glue_of(side.xport), "tcp"));
        ck_assert(!(glue_of(side.xport)->am.features & UCP_FEATURE_RMA));
        kvcl_glue_ctx_transports(glue_of(side.xport)->am.ctx, list, sizeof(list));
        ck_assert_str_ne(list, ""); /* the query returns something */
        ck_assert_int_eq(kvcl_glue_list_has(list, "tcp"),
                         (_i != PAIR_SHM) && ((tls[i] == NULL) || (strcmp(tls[i], "^tcp") != 0)));
        side_close(&side);
    }
}
END_TEST

START_TEST(shared_segments_are_for_the_owner_only)
{
    int           seen = 0;
    char          path[300], target[300];
    struct dirent *entry;
    struct stat   st;
    side_t        side;
    ssize_t       n;
    DIR           *dir;
    FILE          *file;
    char          line[512];
    unsigned      perms, cpid;

    umask(0);
    side_open(&side, (pair_kind_t)_i);
    dir = opendir("/proc/self/fd");
    while ((entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            if (strncmp(target, "/dev/shm/", 9) == 0) {
                ck_assert_int_eq(stat(path, &st), 0);
                ck_assert_uint_eq(st.st_mode & 0777, 0600);
                ++seen;
            }
        }
    }
    closedir(dir);
    ck_assert_int_ge(seen, (_i == PAIR_TCP) ? 0 : 1);
    file = fopen("/proc/sysvipc/shm", "r"); /* key shmid perms size cpid ... */
    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (sscanf(line, "%*d %*d %o %*u %u", &perms, &cpid) == 2) {
            ck_assert_msg((cpid != (unsigned)getpid()) || ((perms & 0777) == 0600), "a System V segment of mode %o",
                          perms);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    side_close(&side);
}
END_TEST

START_TEST(the_users_transports_win)
{
    char   text[64];
    pair_t pair;

    setenv("UCX_TLS", "tcp", 1);
    pair_open(&pair, PAIR_AUTO);
    pair.a.ops->ep_describe(pair.a.ep, text, sizeof(text));
    ck_assert_str_eq(text, "tcp/lo ucx");
    ck_assert_ptr_null(glue_of(pair.a.xport)->data.ctx);
    pair_close(&pair);
}
END_TEST

START_TEST(without_an_interface_nothing_listens)
{
    static const char *const tls[] = {NULL, "all", "tcp,posix", "^cma", "shm,tcp"};
    static const char *const bad[] = {"tcp", "^posix", "^shm"};
    kvcl_xport_params_t      params = {.path = "auto", .keepalive_ns = KVCL_NS_PER_MS};
    kvcl_xport_t             *xport = NULL;
    unsigned                 named;
    size_t                   i;

    for (i = 0; i < sizeof(tls) / sizeof(tls[0]); ++i) {
        (void)((tls[i] != NULL) ? setenv("UCX_TLS", tls[i], 1) : unsetenv("UCX_TLS"));
        ck_assert_int_eq(kvcl_xport_ucx.init(&params, &xport), KVCL_OK);
        ck_assert_uint_eq(listening(), 0);
        kvcl_xport_ucx.fini(xport);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        setenv("UCX_TLS", bad[i], 1);
        ck_assert_int_eq(kvcl_xport_ucx.init(&params, &xport), KVCL_ERR_INVALID_PARAM);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_NET"));
    }
    unsetenv("UCX_TLS");
    params.path = "tcp";
    ck_assert_int_eq(kvcl_xport_ucx.init(&params, &xport), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_NET"));
    params.net = "lo";
    ck_assert_int_eq(kvcl_xport_ucx.init(&params, &xport), KVCL_OK);
    named = listening();
    ck_assert_uint_ge(named, 1); /* the count sees one */
    kvcl_xport_ucx.fini(xport);
    setenv("UCX_NET_DEVICES", "all", 1); /* adds no interface */
    ck_assert_int_eq(kvcl_xport_ucx.init(&params, &xport), KVCL_OK);
    ck_assert_uint_eq(listening(), named);
    kvcl_xport_ucx.fini(xport);
    unsetenv("UCX_NET_DEVICES");
}
END_TEST

/* Send to every socket of this process with an abstract name, as any user of the host can. @return how many took it. */
static unsigned poke(const void *buf, size_t len)
{
    int                s   = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), fd;
    unsigned           n   = 0;
    struct sockaddr_un to;
    socklen_t          size;

    for (fd = 0; fd < 1024; ++fd) {
        size = sizeof(to);
        if ((getsockname(fd, (struct sockaddr *)&to, &size) == 0) && (to.sun_family == AF_UNIX) &&
            (size > sizeof(sa_family_t)) && (to.sun_path[0] == '\0')) {
            n += (sendto(s, buf, len, 0, (struct sockaddr *)&to, size) == (ssize_t)len) ? 1 : 0;
        }
    }
    close(s);
    return n;
}

/* An empty datagram ends a process that has UCX's sockets without a filter (ucp_worker.c, "failed to arm iface"). */
START_TEST(datagrams_of_strangers_do_no_harm)
{
    static const char junk[5000];
    const size_t      sizes[] = {0, 1, 8, 9, sizeof(junk)};
    struct pollfd     pfd;
    uint64_t          hdr = 3;
    pair_t            pair;
    unsigned          i;

    pair_open(&pair, (pair_kind_t)_i);
    for (i = 0; i < 100; ++i) {
        ck_assert_uint_ge(poke(junk, sizes[i % 5]) + (((i % 5) == 1) || ((i % 5) == 2)), 1);
        pfd = (struct pollfd){.fd = pair.b.ops->event_fd(pair.b.xport), .events = POLLIN};
        while (pair.b.ops->arm(pair.b.xport) == KVCL_ERR_BUSY) {
            (void)pair_progress(&pair);
        }
        (void)poll(&pfd, 1, 1);
        ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
        while (poll(&pfd, 1, 0) == 0) {
            (void)pair.a.ops->progress(pair.a.xport); /* b sleeps */
        }
        PAIR_UNTIL(&pair, pair.b.received == (uint64_t)i + 1);
    }
    pair_close(&pair);
}
END_TEST

START_TEST(bad_params_are_refused)
{
    kvcl_xport_params_t params = {.path = "pigeon", .net = "lo"};
    kvcl_xport_t        *xport = NULL;

    ck_assert_int_eq(kvcl_xport_ucx.init(&params, &xport), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "pigeon"));
    params.path = "tcp";
    params.net  = "nosuchif0";
    ck_assert_int_lt(kvcl_xport_ucx.init(&params, &xport), 0);
    ck_assert_ptr_null(xport);
}
END_TEST

START_TEST(closed_endpoints_do_not_pile_up)
{
    kvcl_xport_ep_t *ep;
    const void      *addr;
    size_t          len;
    side_t          side;
    far_t           far;
    uint64_t        hdr = 1;
    int             i, j;

    far_start(&far, (pair_kind_t)_i);
    side_open(&side, (pair_kind_t)_i);
    (void)addr;
    (void)len;
    for (i = 0; i < 200; ++i) {
        ck_assert_int_eq(side.ops->ep_create(side.xport, far.info.addr, far.info.addr_len, &ep), KVCL_OK);
        ck_assert_int_eq(side.ops->am_send(ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
        side.ops->ep_close(ep);
        for (j = 0; (j < 10000) && !kvcl_list_is_empty(&glue_of(side.xport)->eps); ++j) {
            (void)side.ops->progress(side.xport);
            if (j % 100 == 0) {
                write_all(far.to, "x", 1);
            }
        }
        ck_assert(kvcl_list_is_empty(&glue_of(side.xport)->eps));
    }
    close(far.to);
    waitpid(far.pid, NULL, 0);
    side_close(&side);
}
END_TEST

static bool is_deaf(side_t *side)
{
    int i;

    for (i = 0; i < 1000; ++i) {
        (void)side->ops->progress(side->xport);
        if (!side->ops->is_deaf(side->xport)) {
            return false;
        }
    }
    return true;
}

static void say_number(pair_t *pair, side_t *from, side_t *to, uint64_t number)
{
    const uint64_t before = to->received;

    ck_assert_int_eq(from->ops->am_send(from->ep, &number, sizeof(number), NULL, 0, 0, NULL), KVCL_OK);
    PAIR_UNTIL(pair, to->received == before + 1);
    ck_assert_mem_eq(to->hdr, &number, sizeof(number));
}

static void renew(side_t *side)
{
    char       old[GLUE_ADDR_MAX];
    const void *addr;
    size_t     old_len, len;

    side->ops->address(side->xport, &addr, &old_len);
    memcpy(old, addr, old_len);
    ck_assert_int_eq(side->ops->renew(side->xport), KVCL_OK);
    side->ops->address(side->xport, &addr, &len);
    ck_assert((len != old_len) || (memcmp(old, addr, len) != 0));
    side->ops->ep_close(side->ep);
}

/* Both queues are this process's. */
START_TEST(a_deaf_reader_gets_another_queue)
{
    uint64_t hdr = 1;
    pair_t   pair;
    unsigned i;

    pair_open(&pair, PAIR_SHM);
    for (i = 0; i < GLUE_RENEWALS; ++i) {
        say_number(&pair, &pair.a, &pair.b, 2 * i);
        say_number(&pair, &pair.b, &pair.a, 2 * i + 1);
        ck_assert(!is_deaf(&pair.a) && !is_deaf(&pair.b));
        ck_assert_int_ge(make_holes(), 2);
        pair.a.received = pair.b.received = 0;
        ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
        ck_assert_int_eq(pair.b.ops->am_send(pair.b.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
        ck_assert(is_deaf(&pair.a) && is_deaf(&pair.b));
        ck_assert_uint_eq(pair.a.received + pair.b.received, 0);
        renew(&pair.a);
        renew(&pair.b);
        side_connect(&pair.a, &pair.b);
        side_connect(&pair.b, &pair.a);
    }
    say_number(&pair, &pair.a, &pair.b, 100);
    pair_sleeps_and_wakes(&pair);
    ck_assert_int_eq(pair.a.ops->renew(pair.a.xport), KVCL_ERR_UNSUPPORTED);
    say_number(&pair, &pair.b, &pair.a, 101);
    pair_close(&pair);
}
END_TEST

/* Peers of other hosts have its address, and are not told of another one by this. */
START_TEST(a_side_that_listens_is_not_renewed)
{
    pair_t pair;

    pair_open(&pair, PAIR_AUTO);
    ck_assert_int_eq(pair.a.ops->renew(pair.a.xport), KVCL_ERR_UNSUPPORTED);
    say_number(&pair, &pair.b, &pair.a, 1);
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("ucx");
    TCase   *tcase = tcase_create("ucx");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_sleeping_owner_is_read, PAIR_SHM, PAIR_SHM + 1);
    tcase_add_loop_test(tcase, a_sleeping_owner_is_read, PAIR_AUTO, PAIR_AUTO + 1);
    tcase_add_loop_test(tcase, lies_about_memory_do_no_harm, PAIR_SHM, PAIR_SHM + 1);
    tcase_add_loop_test(tcase, a_killed_peer_is_told_once, PAIR_SHM, PAIR_KINDS);
    tcase_add_loop_test(tcase, a_killed_peer_that_nobody_waits_for_is_told, PAIR_SHM, PAIR_KINDS);
    tcase_add_loop_test(tcase, no_context_with_tcp_has_rma, PAIR_SHM, PAIR_KINDS);
    tcase_add_loop_test(tcase, shared_segments_are_for_the_owner_only, PAIR_SHM, PAIR_KINDS);
    tcase_add_test(tcase, the_users_transports_win);
    tcase_add_test(tcase, without_an_interface_nothing_listens);
    tcase_add_loop_test(tcase, datagrams_of_strangers_do_no_harm, PAIR_SHM, PAIR_SHM + 1);
    tcase_add_loop_test(tcase, datagrams_of_strangers_do_no_harm, PAIR_AUTO, PAIR_AUTO + 1);
    tcase_add_test(tcase, bad_params_are_refused);
    tcase_add_test(tcase, a_deaf_reader_gets_another_queue);
    tcase_add_test(tcase, a_side_that_listens_is_not_renewed);
    tcase_add_loop_test(tcase, closed_endpoints_do_not_pile_up, PAIR_SHM, PAIR_KINDS);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
