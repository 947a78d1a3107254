/*
 * The serving thread of a tcp meeting: one poll loop over non-blocking sockets. This file owns accepting, deadlines,
 * the loop, start and stop. boot_meeting.c decides, boot_wire.c packs bytes, boot_conn.c runs a connection.
 *
 * Invariants: boot_conn.h. Unproven connections are bounded: when KVCL_BOOT_UNPROVEN_MAX are open, one that has had
 * PUSH_OUT_NS for its proof is closed, or else new ones wait in the listen queue. After a stop the thread ends as soon
 * as all pending output of the members is sent, or after DRAIN_NS.
 */
#include "config.h"
#include "boot/boot_server.h"
#include "boot/boot_conn.h"
#include "boot/boot_sock.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_DEFAULT_NS (5 * KVCL_NS_PER_SEC)
#define DRAIN_NS         (10 * KVCL_NS_PER_SEC)
#define PUSH_OUT_NS      (250 * KVCL_NS_PER_MS)

static kvcl_conn_t *oldest_unproven(const kvcl_boot_server_t *server)
{
    kvcl_conn_t *conn;

    kvcl_list_foreach(conn, &server->conns, kvcl_conn_t, link) {
        if (conn->state != KVCL_CONN_MEMBER) {
            return conn;
        }
    }
    return NULL;
}

/* Is there room for one more unproven connection, or one whose time for its proof is up? */
static int may_accept(const kvcl_boot_server_t *server, uint64_t now_ns)
{
    if ((server->listen_fd < 0) || (now_ns < server->accept_after_ns)) {
        return 0;
    }
    return (server->unproven < KVCL_BOOT_UNPROVEN_MAX) || (now_ns - oldest_unproven(server)->born_ns >= PUSH_OUT_NS);
}

static void accept_one(kvcl_boot_server_t *server, uint64_t now_ns)
{
    int     fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    kvcl_conn_t *conn;

    if (fd < 0) {
        if ((errno == EMFILE) || (errno == ENFILE) || (errno == ENOMEM) || (errno == ENOBUFS)) {
            server->accept_after_ns = now_ns + 50 * KVCL_NS_PER_MS;
        }
        return;
    }
    atomic_fetch_add(&server->counters.accepted, 1);
    if (server->unproven >= KVCL_BOOT_UNPROVEN_MAX) {
        kvcl_conn_drop(server, oldest_unproven(server), &server->counters.slow);
    }
    conn = (kvcl_conn_t *)calloc(1, sizeof(*conn));
    if (conn == NULL) {
        close(fd);
        return;
    }
    kvcl_boot_sock_tune(fd);
    conn->fd          = fd;
    conn->rank        = -1;
    conn->born_ns     = now_ns;
    conn->deadline_ns = kvcl_deadline_add(now_ns, server->hello_ns);
    kvcl_list_add_tail(&server->conns, &conn->link);
    ++server->unproven;
    ++server->count;
}

static void expire(kvcl_boot_server_t *server, uint64_t now_ns)
{
    kvcl_conn_t *conn, *tmp;

    kvcl_list_foreach_safe(conn, tmp, &server->conns, kvcl_conn_t, link) {
        if (now_ns >= conn->deadline_ns) {
            kvcl_conn_expire(server, conn);
        }
    }
}

static uint64_t next_deadline(const kvcl_boot_server_t *server)
{
    uint64_t deadline_ns = (server->accept_after_ns != 0) ? server->accept_after_ns : KVCL_DEADLINE_NONE;
    kvcl_conn_t  *conn;

    kvcl_list_foreach(conn, &server->conns, kvcl_conn_t, link) {
        if (conn->deadline_ns < deadline_ns) {
            deadline_ns = conn->deadline_ns;
        }
    }
    return deadline_ns;
}

/* Fill the poll set: wake, listener (or -1), then the connections in list order. */
static int fill_pollfds(kvcl_boot_server_t *server, uint64_t now_ns)
{
    size_t         need = server->count + 2;
    struct pollfd *pfds;
    size_t         n = 2;
    kvcl_conn_t        *conn;

    if (need > server->pfd_cap) {
        pfds = (struct pollfd *)realloc(server->pfds, 2 * need * sizeof(*pfds));
        if (pfds == NULL) {
            return 0;
        }
        server->pfds    = pfds;
        server->pfd_cap = 2 * need;
    }
    server->pfds[0] = (struct pollfd){.fd = server->wake_fd, .events = POLLIN};
    server->pfds[1] = (struct pollfd){.fd = may_accept(server, now_ns) ? server->listen_fd : -1, .events = POLLIN};
    kvcl_list_foreach(conn, &server->conns, kvcl_conn_t, link) {
        server->pfds[n++] = (struct pollfd){
            .fd = conn->fd, .events = (short)(POLLIN | (kvcl_conn_has_output(server, conn) ? POLLOUT : 0))};
    }
    return (int)n;
}

/* Serve what poll reported, in the order of fill_pollfds: serving one connection frees at most that one. */
static void serve_ready(kvcl_boot_server_t *server)
{
    const struct pollfd *pfd = &server->pfds[2];
    kvcl_conn_t         *conn, *tmp;

    kvcl_list_foreach_safe(conn, tmp, &server->conns, kvcl_conn_t, link) {
        short revents = (pfd++)->revents;

        if ((revents & (POLLIN | POLLHUP | POLLERR)) && !kvcl_conn_read(server, conn)) {
            continue;
        }
        if (revents != 0) {
            (void)kvcl_conn_write(server, conn);
        }
    }
}

static int all_flushed(const kvcl_boot_server_t *server)
{
    kvcl_conn_t *conn;

    kvcl_list_foreach(conn, &server->conns, kvcl_conn_t, link) {
        if ((conn->state == KVCL_CONN_MEMBER) && kvcl_conn_has_output(server, conn)) {
            return 0;
        }
    }
    return 1;
}

/* How long poll may sleep. */
static uint64_t next_wake(const kvcl_boot_server_t *server, uint64_t now_ns, uint64_t drain_ns)
{
    uint64_t until_ns = next_deadline(server);

    until_ns = (drain_ns < until_ns) ? drain_ns : until_ns;
    /* No room for a stranger: look again when the oldest may be pushed out. */
    if ((server->listen_fd >= 0) && (server->unproven >= KVCL_BOOT_UNPROVEN_MAX) &&
        (now_ns + PUSH_OUT_NS < until_ns)) {
        until_ns = now_ns + PUSH_OUT_NS;
    }
    return until_ns;
}

static void *serve(void *arg)
{
    kvcl_boot_server_t *server   = (kvcl_boot_server_t *)arg;
    uint64_t            drain_ns = KVCL_DEADLINE_NONE;
    uint64_t            now_ns;
    int                 n;

    for (;;) {
        now_ns = kvcl_now_ns();
        if (now_ns >= server->accept_after_ns) {
            server->accept_after_ns = 0;
        }
        expire(server, now_ns);
        if (atomic_load(&server->stop)) {
            if (drain_ns == KVCL_DEADLINE_NONE) {
                drain_ns = now_ns + DRAIN_NS;
            }
            if (all_flushed(server) || (now_ns >= drain_ns)) {
                return NULL;
            }
        }
        n = fill_pollfds(server, now_ns);
        if ((n == 0) ||
            (poll(server->pfds, (nfds_t)n, kvcl_deadline_poll_ms(next_wake(server, now_ns, drain_ns))) <= 0)) {
            continue;
        }
        if (server->pfds[0].revents != 0) {
            eventfd_t count;

            (void)eventfd_read(server->wake_fd, &count);
        }
        serve_ready(server);
        if ((server->pfds[1].revents != 0) && (server->listen_fd >= 0)) {
            accept_one(server, now_ns);
        }
    }
}

/* ---------------------------------------------------------------- start and stop */

static void server_free(kvcl_boot_server_t *server)
{
    kvcl_conn_t *conn;

    if (server->listen_fd >= 0) {
        close(server->listen_fd);
        server->listen_fd = -1;
    }
    /* Closed without releasing its rank: no member is left that needs to learn of it. */
    while (!kvcl_list_is_empty(&server->conns)) {
        conn = kvcl_list_head(&server->conns, kvcl_conn_t, link);
        server->unproven += (conn->state == KVCL_CONN_MEMBER);
        conn->state = KVCL_CONN_CLOSING;
        conn->rank  = -1;
        kvcl_conn_drop(server, conn, NULL);
    }
    if (server->wake_fd >= 0) {
        close(server->wake_fd);
    }
    if (server->meeting.members != NULL) {
        kvcl_meeting_fini(&server->meeting);
    }
    free(server->pfds);
    free(server);
}

static kvcl_status_t server_prepare(kvcl_boot_server_t *server, int size)
{
    kvcl_status_t status;
    int           err;

    status = kvcl_meeting_init(&server->meeting, size);
    if (status == KVCL_OK) {
        status = kvcl_random_bytes(&server->id, sizeof(server->id));
    }
    if (status != KVCL_OK) {
        return status;
    }
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake_fd < 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "eventfd for the rendezvous");
    }
    err = kvcl_thread_start(&server->thread, "kvcl-boot", serve, server);
    return (err == 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "no thread to serve the rendezvous");
}

kvcl_status_t kvcl_boot_server_start(const kvcl_boot_server_params_t *params, kvcl_boot_server_t **server_p)
{
    kvcl_boot_server_t *server = (kvcl_boot_server_t *)calloc(1, sizeof(*server));
    kvcl_status_t       status;

    if (server == NULL) {
        close(params->listen_fd);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to serve the rendezvous");
    }
    server->listen_fd = params->listen_fd;
    server->wake_fd   = -1;
    server->hello_ns  = (params->hello_ns == 0) ? HELLO_DEFAULT_NS : params->hello_ns;
    server->secret = params->secret;
    kvcl_list_init(&server->conns);
    status = server_prepare(server, params->size);
    if (status != KVCL_OK) {
        server_free(server);
        return status;
    }
    *server_p = server;
    return KVCL_OK;
}

void kvcl_boot_server_stop(kvcl_boot_server_t *server)
{
    if (server != NULL) {
        atomic_store(&server->stop, 1);
        (void)eventfd_write(server->wake_fd, 1);
        pthread_join(server->thread, NULL);
        server_free(server);
    }
}

void kvcl_boot_server_stats(const kvcl_boot_server_t *server, kvcl_boot_server_stats_t *stats)
{
    stats->accepted = atomic_load(&server->counters.accepted);
    stats->garbage  = atomic_load(&server->counters.garbage);
    stats->slow     = atomic_load(&server->counters.slow);
    stats->auth     = atomic_load(&server->counters.auth);
    stats->version  = atomic_load(&server->counters.version);
    stats->joins    = atomic_load(&server->counters.joins);
}
