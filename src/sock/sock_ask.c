/*
 * Asking at a port (sock_ask.h).
 *
 * Owns: a connection for the time of the call. Invariant: nothing that arrives is read before the other side has proven
 * the secret. Locks: none.
 */
#include "config.h"
#include "sock/sock_ask.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/rand.h"
#include "sock/sock_stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#define AGAIN_NS (50 * KVCL_NS_PER_MS)

typedef struct asking {
    const kvcl_sock_question_t *question;
    kvcl_sock_stream_t         stream;
    void                       *answer;
    size_t                     len;
} asking_t;

/* Sleep until the descriptor has these events, which are returned in *got_p. KVCL_ERR_TIMED_OUT, KVCL_ERR_CANCELED. */
static kvcl_status_t rest(const asking_t *asking, int fd, short events, uint64_t until_ns, short *got_p)
{
    struct pollfd fds[2] = {{.fd = asking->question->wake_fd, .events = POLLIN}, {.fd = fd, .events = events}};

    *got_p = 0;
    if (kvcl_deadline_passed(until_ns)) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "no answer in the time given");
    }
    if (poll(fds, 2, kvcl_deadline_poll_ms(until_ns)) > 0) {
        *got_p = fds[1].revents;
    }
    return (fds[0].revents == 0) ? KVCL_OK : kvcl_fail(KVCL_ERR_CANCELED, "canceled");
}

/* Sleep until the stream can go on. */
static kvcl_status_t rest_stream(asking_t *asking)
{
    kvcl_sock_stream_t *stream = &asking->stream;
    short              got;
    kvcl_status_t      status  = rest(asking, stream->fd,
                                      (short)((stream->readable ? 0 : POLLIN) | (stream->writable ? 0 : POLLOUT)),
                                      asking->question->deadline_ns, &got);

    if (got != 0) { /* poll's events have epoll's numbers */
        kvcl_sock_event(stream, (uint32_t)got);
    }
    return status;
}

static kvcl_status_t read_all(asking_t *asking, void *buf, size_t len)
{
    kvcl_status_t status = KVCL_OK;
    struct iovec  iov    = {buf, len};
    ssize_t       n;

    while ((status == KVCL_OK) && (iov.iov_len > 0)) {
        n = kvcl_sock_recv(&asking->stream, &iov, 1);
        if (n > 0) {
            iov = (struct iovec){(char *)iov.iov_base + n, iov.iov_len - (size_t)n};
        } else if (n < 0) {
            status = kvcl_fail((errno == EBADMSG) ? KVCL_ERR_AUTH : KVCL_ERR_PROTOCOL,
                               (errno == EBADMSG) ? "bytes were changed on the way" : "the answer is cut off");
        } else if (!asking->stream.readable) {
            status = rest_stream(asking);
        }
    }
    return status;
}

static kvcl_status_t send_all(asking_t *asking, const void *buf, size_t len)
{
    kvcl_status_t status = KVCL_OK;
    struct iovec  iov    = {(void *)(uintptr_t)buf, len};
    int           flushed = 0;
    ssize_t       n;

    while ((status == KVCL_OK) && ((iov.iov_len > 0) || (flushed == 0))) {
        n       = (iov.iov_len > 0) ? kvcl_sock_send(&asking->stream, &iov, 1) : 0;
        iov     = (struct iovec){(char *)iov.iov_base + ((n > 0) ? n : 0), iov.iov_len - ((n > 0) ? (size_t)n : 0)};
        flushed = (n < 0) ? -1 : kvcl_sock_flush(&asking->stream);
        if (flushed < 0) {
            status = kvcl_fail(KVCL_ERR_UNREACHABLE, "the connection was closed");
        } else if (!asking->stream.writable) {
            status = rest_stream(asking);
        }
    }
    return status;
}

static kvcl_status_t read_answer(asking_t *asking)
{
    uint32_t      len;
    kvcl_status_t status = read_all(asking, &len, sizeof(len));

    if (status != KVCL_OK) {
        return status;
    }
    if ((len == 0) || (len > asking->question->answer_max)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "an answer of %u bytes", (unsigned)len);
    }
    asking->answer = malloc(len);
    asking->len    = len;
    return (asking->answer != NULL) ? read_all(asking, asking->answer, len)
                                    : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an answer of %u bytes",
                                                (unsigned)len);
}

/* *again_p: the connection was made, and dropped: the door had too many visitors. */
static kvcl_status_t ask(asking_t *asking, const struct sockaddr_storage *at, socklen_t at_len, bool *again_p)
{
    const kvcl_sock_tuning_t tuning = {0};
    kvcl_sock_side_t   side = {.secret = asking->question->secret, .wire = KVCL_SOCK_AEAD,
                               .cipher = kvcl_aead_preferred()};
    kvcl_sock_stream_t *stream = &asking->stream;
    kvcl_status_t      status  = kvcl_random_bytes(side.id, sizeof(side.id));

    *stream = (kvcl_sock_stream_t){.fd = -1};
    status  = (status == KVCL_OK) ? kvcl_random_bytes(side.random, sizeof(side.random)) : status;
    if (status == KVCL_OK) {
        status = kvcl_sock_connect(stream, (const struct sockaddr *)at, at_len, &side,
                                   asking->question->id,
                                   KVCL_SOCK_MESSAGES, &tuning);
    }
    kvcl_wipe(side.random, sizeof(side.random)); /* its private key: the handshake has it */
    if (status != KVCL_OK) {
        return status;
    }
    while ((status = kvcl_sock_shake(stream)) == KVCL_INPROGRESS) {
        status = rest_stream(asking);
        if (status != KVCL_OK) {
            break;
        }
    }
    *again_p = (status == KVCL_ERR_UNREACHABLE) && (stream->state == KVCL_SOCK_SHAKING);
    if (status == KVCL_OK) {
        status = send_all(asking, asking->question->question, asking->question->question_len);
        status = (status == KVCL_OK) ? read_answer(asking) : status;
    }
    kvcl_sock_close(stream, -1);
    if (status != KVCL_OK) {
        free(asking->answer);
        asking->answer = NULL;
    }
    return status;
}

/* Every address once. */
static kvcl_status_t ask_each(asking_t *asking, const kvcl_hostport_addrs_t *addrs, bool *again_p)
{
    kvcl_status_t status = KVCL_ERR_UNREACHABLE;
    size_t        i;

    *again_p = false;
    for (i = 0; (i < addrs->n) && !*again_p && ((status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_IO)); ++i) {
        status = ask(asking, &addrs->at[i], addrs->len[i], again_p);
    }
    return status;
}

static kvcl_status_t ask_again(asking_t *asking, const kvcl_hostport_addrs_t *addrs)
{
    kvcl_status_t status;
    short         none;
    bool          again;

    for (;;) {
        status = ask_each(asking, addrs, &again);
        if ((status != KVCL_ERR_TIMED_OUT) && (asking->question->refused_p != NULL)) {
            atomic_store(asking->question->refused_p, again); /* in the last try: those before say more */
        }
        if (!again || (kvcl_deadline_left(asking->question->deadline_ns) < AGAIN_NS)) {
            return status;
        }
        status = rest(asking, -1, 0, kvcl_deadline_after(AGAIN_NS), &none);
        if (status != KVCL_OK) {
            return status;
        }
    }
}

kvcl_status_t kvcl_sock_ask(const kvcl_hostport_t *at, const kvcl_sock_question_t *question, void **answer_p,
                            size_t *len_p)
{
    asking_t              asking = {.question = question};
    kvcl_hostport_addrs_t addrs;
    kvcl_status_t         status = kvcl_hostport_resolve(at, "its name", &addrs);

    status = (status == KVCL_OK) ? ask_again(&asking, &addrs) : status;
    if (status != KVCL_OK) {
        free(asking.answer);
        return status;
    }
    *answer_p = asking.answer;
    *len_p    = asking.len;
    return KVCL_OK;
}
