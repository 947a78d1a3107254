/*
 * The states of a connection to the meeting's server: HELLO -> JOIN -> MEMBER. Each may pass to CLOSING, which flushes
 * a refusal and reads the rest of the input, so that no reset overtakes it; then the connection is freed.
 *
 * Invariants: see boot_conn.h. Everything runs on the serving thread; nothing blocks.
 */
#include "config.h"
#include "boot/boot_conn.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLOSING_NS (1 * KVCL_NS_PER_SEC)

enum { READS_MAX = 32 }; /* per turn: one that floods must not starve the others */

/* ---------------------------------------------------------------- connections */

static void conn_free(kvcl_boot_server_t *server, kvcl_conn_t *conn)
{
    if (conn->state != KVCL_CONN_MEMBER) {
        --server->unproven;
    }
    --server->count;
    kvcl_list_del(&conn->link);
    close(conn->fd);
    free(conn->big);
    free(conn);
}

static void send_msg(kvcl_conn_t *conn, const kvcl_boot_msg_t *msg)
{
    /* At most one answer is under way per member, and refusals end it: what does not fit is a peer that plays. */
    conn->out_len += kvcl_boot_msg_pack(msg, conn->out + conn->out_len, sizeof(conn->out) - conn->out_len);
}

/* No new member can be of use: leave the address to the next meeting, of this job or another. */
static void close_listener(kvcl_boot_server_t *server)
{
    if (server->listen_fd >= 0) {
        close(server->listen_fd);
        server->listen_fd = -1;
    }
}

/* Send a refusal with its sentence and pass to CLOSING. The caller releases the rank, if there is one. */
static void refuse(kvcl_boot_server_t *server, kvcl_conn_t *conn, kvcl_status_t status, const char *text)
{
    kvcl_boot_msg_t msg = {.type = KVCL_BOOT_REFUSE, .status = status};

    snprintf(msg.text, sizeof(msg.text), "%.*s", (int)sizeof(msg.text) - 1, text);
    send_msg(conn, &msg);
    if (conn->state == KVCL_CONN_MEMBER) {
        ++server->unproven;
    }
    conn->state       = KVCL_CONN_CLOSING;
    conn->rank        = -1;
    conn->deadline_ns = kvcl_deadline_after(CLOSING_NS);
}

static int is_waiting(const kvcl_boot_server_t *server, const kvcl_conn_t *conn)
{
    return (conn->state == KVCL_CONN_MEMBER) &&
           conn->wants_table && (server->meeting.table == NULL);
}

/* No waiting member can get its table any more: refuse all of them with the same reason. */
static void refuse_waiting(kvcl_boot_server_t *server, kvcl_status_t status)
{
    char         text[KVCL_BOOT_TEXT_MAX + 1];
    kvcl_conn_t *conn;
    int          rank;

    snprintf(text, sizeof(text), "%.*s", (int)sizeof(text) - 1, kvcl_last_error());
    kvcl_list_foreach(conn, &server->conns, kvcl_conn_t, link) {
        if (is_waiting(server, conn)) {
            rank = conn->rank;
            refuse(server, conn, status, text);
            (void)kvcl_meeting_leave(&server->meeting, rank);
        }
    }
    close_listener(server);
}

/* A member has left or failed. */
static void member_left(kvcl_boot_server_t *server, int rank)
{
    kvcl_status_t status = kvcl_meeting_leave(&server->meeting, rank);

    close_listener(server);
    if (status != KVCL_OK) {
        refuse_waiting(server, status);
    }
}

/* A member violated the protocol or sent an impossible request: it is sent the last error sentence. */
static void expel(kvcl_boot_server_t *server, kvcl_conn_t *conn, kvcl_status_t status)
{
    int rank = conn->rank;

    refuse(server, conn, status, kvcl_last_error());
    member_left(server, rank);
}

void kvcl_conn_expire(kvcl_boot_server_t *server, kvcl_conn_t *conn)
{
    if (conn->state != KVCL_CONN_MEMBER) {
        kvcl_conn_drop(server, conn, (conn->state == KVCL_CONN_CLOSING) ? NULL : &server->counters.slow);
        return;
    }
    (void)kvcl_meeting_timed_out(&server->meeting, conn->wait_ns, atomic_load(&server->counters.auth));
    refuse_waiting(server, KVCL_ERR_TIMED_OUT);
}

void kvcl_conn_drop(kvcl_boot_server_t *server, kvcl_conn_t *conn, _Atomic uint64_t *counter)
{
    int rank = conn->rank;

    if (counter != NULL) {
        atomic_fetch_add(counter, 1);
    }
    conn_free(server, conn);
    if (rank >= 0) {
        member_left(server, rank);
    }
}

/* ---------------------------------------------------------------- messages */

static void on_hello(kvcl_boot_server_t *server, kvcl_conn_t *conn, const kvcl_boot_msg_t *msg)
{
    kvcl_boot_msg_t answer = {.type = KVCL_BOOT_CHALLENGE};
    kvcl_status_t   status = kvcl_random_bytes(conn->server_nonce, sizeof(conn->server_nonce));

    if (status != KVCL_OK) {
        refuse(server, conn, status, kvcl_last_error());
        return;
    }
    memcpy(conn->member_nonce, msg->nonce, sizeof(conn->member_nonce));
    memcpy(answer.nonce, conn->server_nonce, sizeof(answer.nonce));
    conn->state = KVCL_CONN_JOIN;
    send_msg(conn, &answer);
}

static void on_join(kvcl_boot_server_t *server, kvcl_conn_t *conn, const kvcl_boot_msg_t *msg)
{
    kvcl_boot_msg_t answer = {.type = KVCL_BOOT_WELCOME, .size = (uint32_t)server->meeting.size, .id = server->id};
    uint8_t         proof[KVCL_SHA256_LEN];
    kvcl_status_t   status;
    int             rank = -1;

    kvcl_boot_prove(msg, server->secret, conn->member_nonce, conn->server_nonce, proof);
    if (!kvcl_ct_equal(proof, msg->proof, sizeof(proof))) {
        atomic_fetch_add(&server->counters.auth, 1);
        refuse(server, conn, KVCL_ERR_AUTH, "the job secrets differ (KVCL_SECRET_FILE)");
        return;
    }
    status = kvcl_meeting_join(&server->meeting, msg->rank, msg->size, &rank);
    if (status != KVCL_OK) {
        atomic_fetch_add(&server->counters.joins, 1);
        refuse(server, conn, status, kvcl_last_error());
        return;
    }
    --server->unproven;
    conn->state       = KVCL_CONN_MEMBER;
    conn->rank        = rank;
    conn->deadline_ns = KVCL_DEADLINE_NONE;
    answer.rank       = rank;
    kvcl_boot_prove(&answer, server->secret, conn->member_nonce, conn->server_nonce, answer.proof);
    send_msg(conn, &answer);
}

static void on_put(kvcl_boot_server_t *server, kvcl_conn_t *conn, const kvcl_boot_msg_t *msg)
{
    kvcl_status_t status = kvcl_meeting_put(&server->meeting, conn->rank, msg->blob, msg->blob_len);

    if (status != KVCL_OK) {
        expel(server, conn, status);
        return;
    }
    conn->wants_table = 1;
    conn->wait_ns     = msg->wait_ns;
    conn->deadline_ns = kvcl_deadline_after(msg->wait_ns);
    if (server->meeting.table != NULL) {
        close_listener(server); /* before any member has the table and may open its next boot here */
        kvcl_list_foreach(conn, &server->conns, kvcl_conn_t, link) {
            if (conn->state == KVCL_CONN_MEMBER) {
                conn->deadline_ns = KVCL_DEADLINE_NONE;
            }
        }
    }
}

/* Returns 0 if the connection is closed. */
static int on_msg(kvcl_boot_server_t *server, kvcl_conn_t *conn, const kvcl_boot_msg_t *msg)
{
    if ((conn->state == KVCL_CONN_HELLO) && (msg->type == KVCL_BOOT_HELLO)) {
        on_hello(server, conn, msg);
    } else if ((conn->state == KVCL_CONN_JOIN) && (msg->type == KVCL_BOOT_JOIN)) {
        on_join(server, conn, msg);
    } else if ((conn->state == KVCL_CONN_MEMBER) && (msg->type == KVCL_BOOT_PUT)) {
        on_put(server, conn, msg);
    } else if ((conn->state == KVCL_CONN_MEMBER) && (msg->type == KVCL_BOOT_BYE)) {
        kvcl_conn_drop(server, conn, NULL);
        return 0;
    } else {
        kvcl_conn_drop(server, conn, &server->counters.garbage);
        return 0;
    }
    return 1;
}

/* ---------------------------------------------------------------- reading */

/* A type that this state cannot take is refused before a byte of its body is read or stored. */
static int type_fits(const kvcl_conn_t *conn)
{
    switch (conn->state) {
    case KVCL_CONN_HELLO:
        return conn->head.type == KVCL_BOOT_HELLO;
    case KVCL_CONN_JOIN:
        return conn->head.type == KVCL_BOOT_JOIN;
    case KVCL_CONN_MEMBER:
        return (conn->head.type == KVCL_BOOT_PUT) || (conn->head.type == KVCL_BOOT_BYE);
    case KVCL_CONN_CLOSING:
    default:
        return 0;
    }
}

/* The head is complete. Returns 0 if the connection is closed. */
static int on_head(kvcl_boot_server_t *server, kvcl_conn_t *conn)
{
    char          text[KVCL_BOOT_TEXT_MAX];
    kvcl_status_t status = kvcl_boot_head_parse(conn->in, &conn->head);

    if (status == KVCL_ERR_VERSION) {
        atomic_fetch_add(&server->counters.version, 1);
        if (conn->state == KVCL_CONN_MEMBER) { /* impossible: the member joined with this version */
            kvcl_conn_drop(server, conn, NULL);
            return 0;
        }
        snprintf(text, sizeof(text), "the ranks run different versions of KVCL: boot protocol %u, this meeting's is %d",
                 (unsigned)conn->head.version, (int)KVCL_BOOT_WIRE_VERSION);
        refuse(server, conn, status, text);
        return 1;
    }
    if ((status != KVCL_OK) || !type_fits(conn)) {
        kvcl_conn_drop(server, conn, &server->counters.garbage);
        return 0;
    }
    if (conn->head.len > sizeof(conn->in) - KVCL_BOOT_HEAD_LEN) {
        conn->big = (uint8_t *)malloc(conn->head.len);
        if (conn->big == NULL) {
            kvcl_conn_drop(server, conn, NULL);
            return 0;
        }
    }
    return 1;
}

static int on_frame(kvcl_boot_server_t *server, kvcl_conn_t *conn)
{
    const void     *body = (conn->big != NULL) ? conn->big : conn->in + KVCL_BOOT_HEAD_LEN;
    kvcl_boot_msg_t msg;

    if (kvcl_boot_body_parse(&conn->head, body, &msg) != KVCL_OK) {
        kvcl_conn_drop(server, conn, &server->counters.garbage);
        return 0;
    }
    conn->in_len = 0;
    if (!on_msg(server, conn, &msg)) {
        return 0;
    }
    free(conn->big);
    conn->big = NULL;
    return 1;
}

/* Where the next bytes go, and how many: first the head, then exactly the body. */
static uint8_t *next_room(kvcl_conn_t *conn, size_t *room_p)
{
    size_t body = conn->in_len - KVCL_BOOT_HEAD_LEN;

    if (conn->state == KVCL_CONN_CLOSING) { /* read away */
        *room_p = sizeof(conn->in);
        return conn->in;
    }
    if (conn->in_len < KVCL_BOOT_HEAD_LEN) {
        *room_p = KVCL_BOOT_HEAD_LEN - conn->in_len;
        return conn->in + conn->in_len;
    }
    *room_p = conn->head.len - body;
    return (conn->big != NULL) ? conn->big + body : conn->in + conn->in_len;
}

/* Read the bytes that have arrived. Returns 0 if the connection is closed. */
int kvcl_conn_read(kvcl_boot_server_t *server, kvcl_conn_t *conn)
{
    uint8_t *room;
    size_t   len;
    ssize_t  n;
    int      round;

    for (round = 0; round < READS_MAX; ++round) {
        room = next_room(conn, &len);
        n    = recv(conn->fd, room, len, 0);
        if (n <= 0) {
            if ((n < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
                return 1;
            }
            kvcl_conn_drop(server, conn, ((conn->state == KVCL_CONN_HELLO) || (conn->state == KVCL_CONN_JOIN)) ?
                                    &server->counters.garbage : NULL);
            return 0;
        }
        if (conn->state == KVCL_CONN_CLOSING) {
            continue;
        }
        conn->in_len += (size_t)n;
        if ((conn->in_len == KVCL_BOOT_HEAD_LEN) && !on_head(server, conn)) {
            return 0;
        }
        if ((conn->state != KVCL_CONN_CLOSING) && (conn->in_len >= KVCL_BOOT_HEAD_LEN) &&
            (conn->in_len == KVCL_BOOT_HEAD_LEN + conn->head.len) && !on_frame(server, conn)) {
            return 0;
        }
    }
    return 1;
}

/* ---------------------------------------------------------------- writing */

static int table_pending(const kvcl_boot_server_t *server, const kvcl_conn_t *conn)
{
    return conn->wants_table && (conn->state == KVCL_CONN_MEMBER) && (server->meeting.table != NULL) &&
           (conn->table_off < server->meeting.table_len);
}

int kvcl_conn_has_output(const kvcl_boot_server_t *server, const kvcl_conn_t *conn)
{
    return (conn->out_len > 0) || table_pending(server, conn) || ((conn->state == KVCL_CONN_CLOSING) && !conn->shut);
}

/* Send as much as the socket accepts. A member's WELCOME is sent before its PUT arrives, so `out` is empty when the
 * table starts. Returns 0 if the connection is closed. */
int kvcl_conn_write(kvcl_boot_server_t *server, kvcl_conn_t *conn)
{
    ssize_t n = 0;

    while (table_pending(server, conn) && (n >= 0)) {
        n = send(conn->fd, server->meeting.table + conn->table_off, server->meeting.table_len - conn->table_off,
                 MSG_NOSIGNAL);
        conn->table_off += (n > 0) ? (size_t)n : 0;
    }
    while ((conn->out_len > 0) && (n >= 0)) {
        n = send(conn->fd, conn->out, conn->out_len, MSG_NOSIGNAL);
        if (n > 0) {
            conn->out_len -= (size_t)n;
            memmove(conn->out, conn->out + n, conn->out_len);
        }
    }
    if ((n < 0) && (errno != EAGAIN) && (errno != EINTR)) {
        kvcl_conn_drop(server, conn, NULL);
        return 0;
    }
    if ((conn->state == KVCL_CONN_CLOSING) && (conn->out_len == 0) && !conn->shut) {
        (void)shutdown(conn->fd, SHUT_WR);
        conn->shut = 1;
    }
    return 1;
}
