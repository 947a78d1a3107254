/*
 * Asking at a door's port for a context's address (door.h, door_port.h).
 *
 * Owns: a connection for the time of the call. Invariant: nothing that arrives is read before the other side has proven
 * the secret. Locks: none.
 */
#include "config.h"
#include "door/door.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/rand.h"
#include "sock/sock_stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define AGAIN_NS (50 * KVCL_NS_PER_MS)

/* Sleep until the stream can go on. KVCL_ERR_TIMED_OUT. */
static kvcl_status_t rest(kvcl_sock_stream_t *stream, uint64_t deadline_ns)
{
    struct pollfd pfd = {.fd     = stream->fd,
                         .events = (short)((stream->readable ? 0 : POLLIN) | (stream->writable ? 0 : POLLOUT))};
    int           n;

    if (kvcl_deadline_passed(deadline_ns)) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "no answer in the time given");
    }
    n = poll(&pfd, 1, kvcl_deadline_poll_ms(deadline_ns));
    if (n > 0) { /* poll's events have epoll's numbers */
        kvcl_sock_event(stream, (uint32_t)pfd.revents);
    }
    return KVCL_OK;
}

static kvcl_status_t read_all(kvcl_sock_stream_t *stream, void *buf, size_t len, uint64_t deadline_ns)
{
    kvcl_status_t status = KVCL_OK;
    struct iovec  iov    = {buf, len};
    ssize_t       n;

    while ((status == KVCL_OK) && (iov.iov_len > 0)) {
        n = kvcl_sock_recv(stream, &iov, 1);
        if (n > 0) {
            iov = (struct iovec){(char *)iov.iov_base + n, iov.iov_len - (size_t)n};
        } else if (n < 0) {
            status = kvcl_fail((errno == EBADMSG) ? KVCL_ERR_AUTH : KVCL_ERR_PROTOCOL,
                               (errno == EBADMSG) ? "bytes were changed on the way" : "the answer is cut off");
        } else if (!stream->readable) {
            status = rest(stream, deadline_ns);
        }
    }
    return status;
}

static kvcl_status_t read_address(kvcl_sock_stream_t *stream, uint64_t deadline_ns, void *packed, size_t cap,
                                  size_t *len_p)
{
    uint32_t      len;
    kvcl_status_t status = read_all(stream, &len, sizeof(len), deadline_ns);

    if ((status == KVCL_OK) && ((len == 0) || (len > cap))) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "an address of %u bytes", (unsigned)len);
    }
    *len_p = len;
    return (status == KVCL_OK) ? read_all(stream, packed, len, deadline_ns) : status;
}

/* *again_p: the connection was made, and dropped: the door had too many visitors. */
static kvcl_status_t ask(const struct sockaddr_storage *at, socklen_t at_len, const uint8_t *secret,
                         uint64_t deadline_ns, void *packed, size_t cap, size_t *len_p, bool *again_p)
{
    const kvcl_sock_tuning_t tuning = {0};
    kvcl_sock_side_t         side   = {.secret = secret, .wire = KVCL_SOCK_AEAD, .cipher = kvcl_aead_preferred()};
    kvcl_sock_stream_t       stream = {.fd = -1};
    kvcl_status_t            status = kvcl_random_bytes(side.id, sizeof(side.id));

    status = (status == KVCL_OK) ? kvcl_random_bytes(side.random, sizeof(side.random)) : status;
    if (status == KVCL_OK) {
        status = kvcl_sock_connect(&stream, (const struct sockaddr *)at, at_len, &side, kvcl_door_id,
                                   KVCL_SOCK_MESSAGES, &tuning);
    }
    kvcl_wipe(side.random, sizeof(side.random)); /* its private key: the handshake has it */
    if (status != KVCL_OK) {
        return status;
    }
    while ((status = kvcl_sock_shake(&stream)) == KVCL_INPROGRESS) {
        status = rest(&stream, deadline_ns);
        if (status != KVCL_OK) {
            break;
        }
    }
    *again_p = (status == KVCL_ERR_UNREACHABLE) && (stream.state == KVCL_SOCK_SHAKING);
    if (status == KVCL_OK) {
        status = read_address(&stream, deadline_ns, packed, cap, len_p);
    }
    kvcl_sock_close(&stream, -1);
    return status;
}

/* Every address once. */
static kvcl_status_t ask_each(const kvcl_hostport_addrs_t *addrs, const uint8_t *secret, uint64_t deadline_ns,
                              void *packed, size_t cap, size_t *len_p, bool *again_p)
{
    kvcl_status_t status = KVCL_ERR_UNREACHABLE;
    size_t        i;

    for (i = 0; (i < addrs->n) && !*again_p && ((status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_IO)); ++i) {
        status = ask(&addrs->at[i], addrs->len[i], secret, deadline_ns, packed, cap, len_p, again_p);
    }
    return status;
}

kvcl_status_t kvcl_door_ask(const char *at, const uint8_t *secret, uint64_t deadline_ns, void *packed, size_t cap,
                            size_t *len_p)
{
    static const char     call[] = "kvcl_context_connect";
    kvcl_hostport_addrs_t addrs;
    kvcl_hostport_t       hostport;
    kvcl_status_t         status = kvcl_hostport_parse(at, call, 1, &hostport);
    bool                  again, dropped = false;

    status = (status == KVCL_OK) ? kvcl_hostport_resolve(&hostport, call, &addrs) : status;
    if (status != KVCL_OK) {
        return status;
    }
    for (;;) {
        again  = false;
        status = ask_each(&addrs, secret, deadline_ns, packed, cap, len_p, &again);
        if (dropped && (status == KVCL_ERR_TIMED_OUT)) { /* in the last try: the others say more */
            status = kvcl_fail(KVCL_ERR_UNREACHABLE, "each connection was closed before an answer");
        }
        dropped = again;
        if (!again || (kvcl_deadline_left(deadline_ns) < AGAIN_NS)) {
            break;
        }
        (void)poll(NULL, 0, (int)(AGAIN_NS / KVCL_NS_PER_MS));
    }
    return (status == KVCL_OK) ? KVCL_OK : kvcl_fail(status, "%s: %s: %s", call, at, kvcl_last_error());
}
