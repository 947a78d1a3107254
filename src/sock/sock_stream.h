/*
 * An authenticated byte stream over a TCP connection: it connects, or adopts an accepted descriptor, runs the handshake
 * (sock_hs.h), and then carries bytes as they are (plain) or in records (aead, sock_record.h).
 *
 * Nothing blocks. The owner watches the descriptor edge-triggered (KVCL_SOCK_EVENTS) and reports each event to
 * kvcl_sock_event(); the stream keeps what the last edge said in `readable` and `writable`. Before it is OPEN it keeps
 * less than 4 KiB. One thread at a time per stream.
 */
#ifndef KVCL_SOCK_SOCK_STREAM_H
#define KVCL_SOCK_SOCK_STREAM_H

#include "sock/sock_hs.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { KVCL_SOCK_EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | (int)EPOLLET };

typedef enum {
    KVCL_SOCK_CLOSED,
    KVCL_SOCK_CONNECTING,
    KVCL_SOCK_SHAKING,
    KVCL_SOCK_OPEN
} kvcl_sock_state_t;

typedef struct kvcl_sock_crypt kvcl_sock_crypt_t;

/* The interval of probes on an idle connection, rounded up to whole seconds. A host that has vanished is noticed after
 * four of them, 10 s at the least, while bytes wait for its acknowledgement, and on an idle connection at the next
 * probe after that time. 0, or more than 32,767 s: the system's own settings. */
typedef struct kvcl_sock_tuning {
    uint64_t keepalive_ns;
} kvcl_sock_tuning_t;

typedef struct kvcl_sock_stream {
    int                 fd;       /* -1: CLOSED */
    kvcl_sock_state_t   state;
    bool                readable; /* bytes, or the end, may wait: in the kernel or in an opened record */
    bool                writable; /* the kernel may take bytes */
    bool                hup;      /* the peer has closed its end: no further edge reports it */
    bool                heard;    /* the peer's first message was whole and well-formed */
    bool                pauses;   /* the handshake waits once it has heard the first message, until this is cleared */
    kvcl_sock_purpose_t purpose;  /* OPEN */
    kvcl_sock_wire_t    wire;
    uint8_t             peer_id[KVCL_SOCK_ID_LEN];
    kvcl_sock_hs_t      *hs;      /* until OPEN; of an accepted stream from its first byte on */
    const kvcl_sock_side_t *side; /* of an accepted stream, until then */
    kvcl_sock_tuning_t  tuning;
    kvcl_sock_crypt_t   *crypt;   /* of an aead stream that is OPEN */
} kvcl_sock_stream_t;

/**
 * Begin to connect to an address and to prove the secret to peer_id.
 * @return KVCL_OK; KVCL_ERR_UNREACHABLE (refused), KVCL_ERR_NO_MEMORY, KVCL_ERR_IO (no descriptor, no route, and all
 *         that may pass): the stream stays CLOSED.
 */
kvcl_status_t kvcl_sock_connect(kvcl_sock_stream_t *stream, const struct sockaddr *sa, socklen_t len,
                                const kvcl_sock_side_t *side, const uint8_t peer_id[KVCL_SOCK_ID_LEN],
                                kvcl_sock_purpose_t purpose, const kvcl_sock_tuning_t *tuning) KVCL_MUST_CHECK;
/**
 * Take an accepted descriptor. side must outlive the handshake; side->random is not used: the handshake
 * begins, with random bytes of its own, when the first byte has arrived.
 */
void kvcl_sock_adopt(kvcl_sock_stream_t *stream, int fd, const kvcl_sock_side_t *side,
                     const kvcl_sock_tuning_t *tuning);

/** After the first message was heard: the id that the peer claims, and what it wants the connection for. */
const kvcl_sock_session_t *kvcl_sock_claim(const kvcl_sock_stream_t *stream);

/** What epoll reported. */
void kvcl_sock_event(kvcl_sock_stream_t *stream, uint32_t events);

/**
 * Advance the handshake as far as the socket allows.
 * @return KVCL_INPROGRESS; KVCL_OK: the stream is OPEN; or an error, with a sentence: KVCL_ERR_AUTH, KVCL_ERR_VERSION,
 *         KVCL_ERR_STALE, KVCL_ERR_PROTOCOL, KVCL_ERR_UNREACHABLE (refused, or closed by the peer), KVCL_ERR_IO,
 *         KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_sock_shake(kvcl_sock_stream_t *stream) KVCL_MUST_CHECK;

/**
 * OPEN. Send the first bytes of the iovec. Their memory is free on return, also where a record waits to be sent.
 * @return how many; 0: the socket is full (writable is false); -1: the connection has failed (errno).
 */
ssize_t kvcl_sock_send(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n);
/** Does a sealed record wait for the socket? The stream must then be flushed when it becomes writable. */
bool    kvcl_sock_unsent(const kvcl_sock_stream_t *stream);
/** Send that record. @return 1: none waits; 0: the socket is full; -1: the connection has failed (errno). */
int     kvcl_sock_flush(kvcl_sock_stream_t *stream);

/**
 * OPEN. Receive into the iovec, with at most one system call.
 * @return how many bytes; 0: none now (readable is false); -1: the stream has ended: errno is 0 if the peer closed it,
 *         EBADMSG if a record does not verify.
 */
ssize_t kvcl_sock_recv(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n);

/** Any state. Removes the descriptor from the epoll (a forked child may hold it open), closes it, and frees all. */
void kvcl_sock_close(kvcl_sock_stream_t *stream, int epfd);

#endif
