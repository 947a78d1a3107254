/*
 * Streams (sock_stream.h): connecting, the handshake over the socket, plain bytes.
 *
 * Owns: a stream's descriptor, and its handshake until it is open. Invariants: no byte of the stream is read before the
 * handshake is done, and none of the handshake after; `readable` is cleared only by a read that found less than it
 * asked for. Locks: none, see the header.
 */
#include "config.h"
#include "sock/sock_stream.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/sanitizers.h"
#include "sock/sock_crypt.h"
#include "sock/sock_near.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { UNSENT_BYTES = 256 * 1024, PROBES = 3 };

/* For bytes that the other host does not acknowledge: no keepalive probe is sent meanwhile. The kernel also counts the
 * time of a stopped peer with full buffers, so it must be longer than a loaded machine stops a process. Where it is
 * set, Linux does not count keepalive probes: an idle connection ends at the first probe after this time without a
 * segment from the peer. A shorter time for idle connections alone cannot be set. */
#define GONE_NS (10 * KVCL_NS_PER_SEC)

static void set_int(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void tune(int fd, const kvcl_sock_tuning_t *tuning)
{
    uint64_t seconds = (tuning->keepalive_ns + KVCL_NS_PER_SEC - 1) / KVCL_NS_PER_SEC;
    uint64_t gone_ms = ((PROBES + 1) * seconds * KVCL_NS_PER_SEC > GONE_NS) ? (PROBES + 1) * seconds * 1000
                                                                            : GONE_NS / KVCL_NS_PER_MS;

    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    if ((seconds > 0) && (seconds < 32768)) {
        set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, (int)seconds);
        set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, (int)seconds);
        set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)gone_ms);
    }
}

/* Only a refusal says that nobody listens there; all other errors may pass: no free port, no route for a moment. */
static kvcl_status_t not_connected(int err)
{
    return kvcl_fail_errno((err == ECONNREFUSED) ? KVCL_ERR_UNREACHABLE : KVCL_ERR_IO, err, "cannot connect");
}

static kvcl_status_t begin(kvcl_sock_stream_t *stream)
{
    stream->hs = calloc(1, sizeof(*stream->hs));
    return (stream->hs != NULL) ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a connection");
}

kvcl_status_t kvcl_sock_connect(kvcl_sock_stream_t *stream, const struct sockaddr *sa, socklen_t len,
                                const kvcl_sock_side_t *side, const uint8_t peer_id[KVCL_SOCK_ID_LEN],
                                kvcl_sock_purpose_t purpose, const kvcl_sock_tuning_t *tuning)
{
    kvcl_status_t status;

    *stream = (kvcl_sock_stream_t){.fd = -1, .tuning = *tuning};
    status  = begin(stream);
    if (status == KVCL_OK) {
        status = kvcl_sock_hs_connect(stream->hs, side, peer_id, purpose);
    }
    if (status == KVCL_OK) {
        stream->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        status     = (stream->fd >= 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_IO, errno, "no socket for a connection");
    }
    if (status == KVCL_OK) {
        kvcl_sock_near_begin(stream->fd);
    }
    if ((status == KVCL_OK) && (connect(stream->fd, sa, len) != 0) && (errno != EINPROGRESS) && (errno != EINTR)) {
        status = not_connected(errno);
    }
    if (status != KVCL_OK) {
        kvcl_sock_close(stream, -1);
        return status;
    }
    stream->state = KVCL_SOCK_CONNECTING;
    return KVCL_OK;
}

void kvcl_sock_adopt(kvcl_sock_stream_t *stream, int fd, const kvcl_sock_side_t *side,
                     const kvcl_sock_tuning_t *tuning)
{
    *stream = (kvcl_sock_stream_t){
        .fd = fd, .state = KVCL_SOCK_SHAKING, .writable = true, .side = side, .tuning = *tuning};
}

void kvcl_sock_event(kvcl_sock_stream_t *stream, uint32_t events)
{
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
        stream->hup = true;
    }
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
        stream->readable = true;
    }
    if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        stream->writable = true;
    }
}

/* ---- the handshake ---- */

/* On loopback, connecting to a free port can succeed by meeting itself. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t               own_len = sizeof(own), peer_len = sizeof(peer);

    return (getsockname(fd, (struct sockaddr *)&own, &own_len) == 0) &&
           (getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0) && (own_len == peer_len) &&
           (memcmp(&own, &peer, own_len) == 0);
}

static kvcl_status_t connected(kvcl_sock_stream_t *stream)
{
    socklen_t len = sizeof(int);
    int       err = 0;

    if (!stream->writable) {
        return KVCL_INPROGRESS;
    }
    if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0) {
        return not_connected(errno);
    }
    if (err == ECONNRESET) { /* it was made, and dropped before this side saw it */
        stream->state = KVCL_SOCK_SHAKING;
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "the other side closed the connection");
    }
    if (err != 0) {
        return not_connected(err);
    }
    if (is_self_connected(stream->fd)) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "cannot connect: no process listens there");
    }
    stream->state = KVCL_SOCK_SHAKING;
    return KVCL_OK;
}

/* True: all has been sent. */
static bool say(kvcl_sock_stream_t *stream)
{
    const void *out;
    size_t     len;
    ssize_t    n;

    while ((out = kvcl_sock_hs_out(stream->hs, &len)), (len > 0)) {
        n = send(stream->fd, out, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            kvcl_sock_hs_sent(stream->hs, (size_t)n);
        } else if (errno != EINTR) {
            stream->writable = false; /* an error is reported by the next recv */
            return false;
        }
    }
    return true;
}

static kvcl_status_t ended(int err)
{
    return (err == 0) ? kvcl_fail(KVCL_ERR_UNREACHABLE, "the other side closed the connection during the handshake")
                      : kvcl_fail_errno(KVCL_ERR_UNREACHABLE, err, "the connection broke during the handshake");
}

/* KVCL_INPROGRESS: no byte waits. */
static kvcl_status_t receive(kvcl_sock_stream_t *stream, void *in, size_t len, int flags, ssize_t *n_p)
{
    do {
        *n_p = recv(stream->fd, in, len, flags | MSG_DONTWAIT);
    } while ((*n_p < 0) && (errno == EINTR));
    if (*n_p > 0) {
        return KVCL_OK;
    }
    if ((*n_p < 0) && (errno == EAGAIN)) {
        stream->readable = false;
        return KVCL_INPROGRESS;
    }
    return ended((*n_p == 0) ? 0 : errno);
}

/* A handshake and its random bytes are made only when a byte has arrived: silent strangers cost neither. */
static kvcl_status_t begin_accepted(kvcl_sock_stream_t *stream)
{
    kvcl_sock_side_t side = *stream->side;
    uint8_t          first;
    ssize_t          n;
    kvcl_status_t    status = stream->readable ? receive(stream, &first, 1, MSG_PEEK, &n) : KVCL_INPROGRESS;

    status = (status == KVCL_OK) ? kvcl_random_bytes(side.random, sizeof(side.random)) : status;
    status = (status == KVCL_OK) ? begin(stream) : status;
    if (status == KVCL_OK) {
        kvcl_sock_hs_accept(stream->hs, &side);
        stream->side = NULL;
    }
    kvcl_wipe(side.random, sizeof(side.random)); /* its private key: the handshake has it */
    return status;
}

/* One message's worth of bytes. KVCL_INPROGRESS: none wait. */
static kvcl_status_t hear(kvcl_sock_stream_t *stream)
{
    size_t        len;
    void          *in    = kvcl_sock_hs_in(stream->hs, &len);
    ssize_t       n      = 0;
    kvcl_status_t status = receive(stream, in, len, 0, &n);

    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_sock_hs_took(stream->hs, (size_t)n);
    if (status == KVCL_OK) {
        (void)kvcl_sock_hs_out(stream->hs, &len);
        stream->heard = stream->heard || (len > 0);
    }
    return status;
}

static kvcl_status_t become_open(kvcl_sock_stream_t *stream)
{
    const kvcl_sock_session_t *session = kvcl_sock_hs_session(stream->hs);
    kvcl_status_t             status   = KVCL_OK;

    if (session->wire == KVCL_SOCK_AEAD) {
        status = kvcl_sock_crypt_new(session, &stream->crypt);
    }
    if (status != KVCL_OK) {
        return status;
    }
    tune(stream->fd, &stream->tuning);
    if (session->purpose == KVCL_SOCK_STREAM) { /* its user sends when there is room; messages wait in either queue */
        set_int(stream->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES);
    }
    kvcl_sock_near_open(stream->fd, session->purpose);
    stream->purpose = session->purpose;
    stream->wire    = session->wire;
    memcpy(stream->peer_id, session->peer_id, sizeof(stream->peer_id));
    kvcl_sock_hs_wipe(stream->hs);
    free(stream->hs);
    stream->hs       = NULL;
    stream->state    = KVCL_SOCK_OPEN;
    stream->readable = true; /* bytes may have followed the handshake */
    return KVCL_OK;
}

const kvcl_sock_session_t *kvcl_sock_claim(const kvcl_sock_stream_t *stream)
{
    return kvcl_sock_hs_session(stream->hs);
}

kvcl_status_t kvcl_sock_shake(kvcl_sock_stream_t *stream)
{
    kvcl_status_t status = (stream->state == KVCL_SOCK_CONNECTING) ? connected(stream)
                           : (stream->hs == NULL)                  ? begin_accepted(stream)
                                                                   : KVCL_OK;

    while ((status == KVCL_OK) && !(stream->pauses && stream->heard)) {
        bool sent = !stream->writable || say(stream);

        if (kvcl_sock_hs_state(stream->hs) == KVCL_SOCK_HS_DONE) {
            return (sent && stream->writable) ? become_open(stream) : KVCL_INPROGRESS;
        }
        if (!stream->readable) {
            return KVCL_INPROGRESS;
        }
        status = hear(stream);
    }
    if (status == KVCL_OK) {
        return KVCL_INPROGRESS;
    }
    if ((status < 0) && (stream->state == KVCL_SOCK_SHAKING) && (stream->hs != NULL) &&
        (kvcl_sock_hs_state(stream->hs) == KVCL_SOCK_HS_FAILED)) {
        (void)say(stream); /* REFUSE */
    }
    return status;
}

/* ---- bytes ---- */

/* Blocks may be withdrawn while the kernel reads them; their generations are compared afterwards. Hidden from the
 * thread sanitizer. */
static ssize_t send_some(int fd, struct msghdr *msg)
{
#if KVCL_TSAN
    return syscall(SYS_sendmsg, fd, msg, MSG_DONTWAIT | MSG_NOSIGNAL);
#else
    return sendmsg(fd, msg, MSG_DONTWAIT | MSG_NOSIGNAL);
#endif
}

ssize_t kvcl_sock_send(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
    ssize_t       sent;

    if (stream->crypt != NULL) {
        return kvcl_sock_crypt_send(stream, iov, n);
    }
    do {
        sent = send_some(stream->fd, &msg);
    } while ((sent < 0) && (errno == EINTR));
    if (sent >= 0) {
        return sent;
    }
    if (errno != EAGAIN) {
        return -1;
    }
    stream->writable = false;
    return 0;
}

bool kvcl_sock_unsent(const kvcl_sock_stream_t *stream)
{
    return (stream->crypt != NULL) && kvcl_sock_crypt_unsent(stream->crypt);
}

int kvcl_sock_flush(kvcl_sock_stream_t *stream)
{
    return (stream->crypt != NULL) ? kvcl_sock_crypt_flush(stream) : 1;
}

ssize_t kvcl_sock_recv(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
    size_t        asked = 0, i;
    ssize_t       got;

    if (stream->crypt != NULL) {
        return kvcl_sock_crypt_recv(stream, iov, n);
    }
    for (i = 0; i < n; ++i) {
        asked += iov[i].iov_len;
    }
    got = (n == 1) ? recv(stream->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT)
                   : recvmsg(stream->fd, &msg, MSG_DONTWAIT);
    if (got > 0) { /* fewer than asked for: the socket is empty, and more bytes are another edge */
        stream->readable = ((size_t)got == asked) || stream->hup;
        return got;
    }
    if ((got < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
        stream->readable = (errno == EINTR);
        return 0;
    }
    errno = (got == 0) ? 0 : errno;
    return -1;
}

void kvcl_sock_close(kvcl_sock_stream_t *stream, int epfd)
{
    if (stream->fd >= 0) {
        if (epfd >= 0) {
            (void)epoll_ctl(epfd, EPOLL_CTL_DEL, stream->fd, NULL);
        }
        (void)shutdown(stream->fd, SHUT_RDWR);
        close(stream->fd);
    }
    if (stream->hs != NULL) {
        kvcl_sock_hs_wipe(stream->hs);
        free(stream->hs);
    }
    kvcl_sock_crypt_free(stream->crypt);
    stream->hs       = NULL;
    stream->crypt    = NULL;
    stream->fd       = -1;
    stream->state    = KVCL_SOCK_CLOSED;
    stream->readable = stream->writable = false;
}
