/*
 * The aead side of a stream: records between it and its socket. At most one sealed record waits to be sent; the bytes
 * of several received records may wait to be opened. One thread at a time.
 */
#ifndef KVCL_SOCK_SOCK_CRYPT_H
#define KVCL_SOCK_SOCK_CRYPT_H

#include "sock/sock_stream.h"

/** The keys of a finished handshake. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_UNSUPPORTED (no such cipher). */
kvcl_status_t     kvcl_sock_crypt_new(const kvcl_sock_session_t *session, kvcl_sock_crypt_t **crypt_p) KVCL_MUST_CHECK;
void              kvcl_sock_crypt_free(kvcl_sock_crypt_t *crypt); /* NULL is accepted; keys are wiped */

bool    kvcl_sock_crypt_unsent(const kvcl_sock_crypt_t *crypt);
/* As kvcl_sock_flush(), kvcl_sock_send(), kvcl_sock_recv(). */
int     kvcl_sock_crypt_flush(kvcl_sock_stream_t *stream);
ssize_t kvcl_sock_crypt_send(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n);
ssize_t kvcl_sock_crypt_recv(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n);

#endif
