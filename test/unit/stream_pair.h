/*
 * A transport's stream over one end of a socket pair, for tests of what is above streams (lanes).
 */
#ifndef KVCL_TEST_STREAM_PAIR_H
#define KVCL_TEST_STREAM_PAIR_H

#include "core/xport.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct fake_stream {
    kvcl_xport_stream_t super; /* first */
    int                 fd;    /* -1: closed by its user */
} fake_stream_t;

static inline ssize_t fake_result(ssize_t n, bool *ready)
{
    if ((n < 0) && (errno == EAGAIN)) {
        *ready = false;
        return 0;
    }
    return n;
}

static inline ssize_t fake_send(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};

    return fake_result(sendmsg(((fake_stream_t *)(void *)stream)->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL),
                       &stream->writable);
}

static inline ssize_t fake_recv(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
    ssize_t       got = recvmsg(((fake_stream_t *)(void *)stream)->fd, &msg, MSG_DONTWAIT);

    if (got == 0) {
        errno = 0;
        return -1;
    }
    return fake_result(got, &stream->readable);
}

static inline void fake_close(kvcl_xport_stream_t *stream)
{
    fake_stream_t *fake = (fake_stream_t *)(void *)stream;

    close(fake->fd);
    fake->fd = -1;
}

static const kvcl_xport_ops_t fake_ops = {
    .stream_send = fake_send, .stream_recv = fake_recv, .stream_close = fake_close};
static kvcl_xport_t fake_xport = {.ops = &fake_ops};

static inline fake_stream_t fake_stream(int fd)
{
    fake_stream_t fake = {.super = {.xport = &fake_xport, .open = true, .readable = true, .writable = true}, .fd = fd};

    return fake;
}

#endif
