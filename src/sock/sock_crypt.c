/*
 * Records between a stream and its socket (sock_crypt.h).
 *
 * Owns: the two directions' cipher states and buffers. Invariants: `out` has one sealed record or none, so the bytes
 * that a send accepted are never sealed again; `in` has received bytes in order, the opened text [text_at, text_at +
 * text_len) before the sealed bytes [in_at, in_len). A stream whose record does not verify delivers nothing more.
 * Locks: none, see sock_stream.h.
 */
#include "config.h"
#include "sock/sock_crypt.h"
#include "base/error.h"
#include "sock/sock_record.h"
#include "weave/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IN_BYTES = 256 * 1024 + KVCL_SOCK_RECORD_MAX, PIECES = 64 };

struct kvcl_sock_crypt {
    kvcl_sock_records_t tx, rx;
    size_t              out_at, out_len;
    size_t              text_at, text_len;
    size_t              in_at, in_len;
    uint8_t             out[KVCL_SOCK_RECORD_MAX];
    uint8_t             in[IN_BYTES];
};

kvcl_status_t kvcl_sock_crypt_new(const kvcl_sock_session_t *session, kvcl_sock_crypt_t **crypt_p)
{
    kvcl_sock_crypt_t *crypt = malloc(sizeof(*crypt)); /* most of its pages are never touched on an idle stream */
    kvcl_status_t     status;

    if (crypt == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a connection");
    }
    memset(crypt, 0, offsetof(kvcl_sock_crypt_t, out));
    if (((status = kvcl_sock_records_init(&crypt->tx, session->cipher, &session->tx, true)) != KVCL_OK) ||
        ((status = kvcl_sock_records_init(&crypt->rx, session->cipher, &session->rx, false)) != KVCL_OK)) {
        kvcl_sock_crypt_free(crypt);
        return status;
    }
    *crypt_p = crypt;
    return KVCL_OK;
}

void kvcl_sock_crypt_free(kvcl_sock_crypt_t *crypt)
{
    if (crypt != NULL) {
        kvcl_sock_records_fini(&crypt->tx);
        kvcl_sock_records_fini(&crypt->rx);
        free(crypt);
    }
}

/* ---- out ---- */

bool kvcl_sock_crypt_unsent(const kvcl_sock_crypt_t *crypt)
{
    return crypt->out_at < crypt->out_len;
}

int kvcl_sock_crypt_flush(kvcl_sock_stream_t *stream)
{
    kvcl_sock_crypt_t *crypt = stream->crypt;
    ssize_t           n;

    while (crypt->out_at < crypt->out_len) {
        n = send(stream->fd, crypt->out + crypt->out_at, crypt->out_len - crypt->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            crypt->out_at += (size_t)n;
        } else if ((n < 0) && (errno != EINTR)) {
            if (errno != EAGAIN) {
                return -1;
            }
            stream->writable = false;
            return 0;
        }
    }
    return 1;
}

/* The pieces from byte `skip` on, at most PIECES. */
static size_t rest_of(const struct iovec *iov, size_t n, size_t skip, struct iovec out[PIECES])
{
    size_t i, k = 0;

    for (i = 0; (i < n) && (k < PIECES); ++i) {
        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        out[k].iov_base = (char *)iov[i].iov_base + skip;
        out[k].iov_len  = iov[i].iov_len - skip;
        skip            = 0;
        ++k;
    }
    return k;
}

ssize_t kvcl_sock_crypt_send(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n)
{
    kvcl_sock_crypt_t *crypt = stream->crypt;
    struct iovec      rest[PIECES];
    size_t            taken = 0, text, k;
    int               flushed = kvcl_sock_crypt_flush(stream);

    while (flushed > 0) {
        k = rest_of(iov, n, taken, rest);
        if (k == 0) {
            break;
        }
        if (kvcl_sock_seal(&crypt->tx, rest, k, KVCL_SOCK_RECORD_TEXT, crypt->out, &text, &crypt->out_len) != KVCL_OK) {
            crypt->out_len = 0;
            errno          = EPROTO;
            return -1;
        }
        crypt->out_at = 0;
        taken        += text;
        flushed       = kvcl_sock_crypt_flush(stream);
    }
    return ((flushed < 0) && (taken == 0)) ? -1 : (ssize_t)taken;
}

/* ---- in ---- */

/* Where the next plaintext goes. */
typedef struct place {
    const struct iovec *iov;
    size_t             n, at; /* at: bytes of iov[0] used */
    size_t             room, got;
} place_t;

/* Advance by len bytes, which the place has room for. from: copy them from here; NULL: they are in place. */
static void advance(place_t *place, const uint8_t *from, size_t len)
{
    size_t part;

    place->room -= len;
    place->got  += len;
    while (len > 0) {
        part = place->iov->iov_len - place->at;
        part = (part < len) ? part : len;
        if ((from != NULL) && (part > 0)) {
            kvcl_copy_bytes((char *)place->iov->iov_base + place->at, from, part);
            from += part;
        }
        len       -= part;
        place->at += part;
        if (place->at == place->iov->iov_len) {
            ++place->iov;
            --place->n;
            place->at = 0;
        }
    }
}

/* The length of the whole record at the front, 0: it is not whole yet, -1: it is none. */
static ssize_t whole(kvcl_sock_crypt_t *crypt)
{
    size_t have = crypt->in_len - crypt->in_at, len;

    if (have < KVCL_SOCK_RECORD_HEAD) {
        return 0;
    }
    if (kvcl_sock_record_len(&crypt->rx, crypt->in + crypt->in_at, &len) != KVCL_OK) {
        return -1;
    }
    return (have >= len) ? (ssize_t)len : 0;
}

static size_t sum(const struct iovec *iov, size_t n)
{
    size_t len = 0, i;

    for (i = 0; i < n; ++i) {
        len += iov[i].iov_len;
    }
    return len;
}

/* Open one record: straight into place if all of it fits there, otherwise where it lies. */
static bool open_one(kvcl_sock_crypt_t *crypt, size_t len, place_t *place)
{
    uint8_t      *record = crypt->in + crypt->in_at;
    struct iovec first[PIECES];
    size_t       text_len = len - KVCL_SOCK_RECORD_EXTRA, k;
    void         *text;

    crypt->in_at += len;
    k = (place->room >= text_len) ? rest_of(place->iov, place->n, place->at, first) : 0;
    if (sum(first, k) >= text_len) {
        if (kvcl_sock_open_into(&crypt->rx, record, len, first, k, &text_len) != KVCL_OK) {
            return false;
        }
        advance(place, NULL, text_len);
        return true;
    }
    if (kvcl_sock_open(&crypt->rx, record, len, &text, &text_len) != KVCL_OK) {
        return false;
    }
    crypt->text_at  = (size_t)((uint8_t *)text - crypt->in);
    crypt->text_len = text_len;
    return true;
}

/* Move what is whole to its place. False: a record does not verify. */
static bool deliver(kvcl_sock_crypt_t *crypt, place_t *place)
{
    ssize_t len;
    size_t  part;

    while (place->room > 0) {
        if (crypt->text_len > 0) {
            part = (crypt->text_len < place->room) ? crypt->text_len : place->room;
            advance(place, crypt->in + crypt->text_at, part);
            crypt->text_at  += part;
            crypt->text_len -= part;
            continue;
        }
        len = whole(crypt);
        if (len <= 0) {
            return len == 0;
        }
        if (!open_one(crypt, (size_t)len, place)) {
            return false;
        }
    }
    return true;
}

/* One system call. -1: the stream has ended. */
static int fill(kvcl_sock_stream_t *stream)
{
    kvcl_sock_crypt_t *crypt = stream->crypt;
    size_t            asked;
    ssize_t           n;

    if (crypt->in_at > 0) {
        kvcl_move_bytes(crypt->in, crypt->in + crypt->in_at, crypt->in_len - crypt->in_at);
        crypt->in_len -= crypt->in_at;
        crypt->in_at   = 0;
    }
    asked = sizeof(crypt->in) - crypt->in_len;
    n     = recv(stream->fd, crypt->in + crypt->in_len, asked, MSG_DONTWAIT);
    if (n > 0) {
        stream->readable = ((size_t)n == asked) || stream->hup;
        crypt->in_len   += (size_t)n;
        return 0;
    }
    if ((n < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
        stream->readable = (errno == EINTR);
        return 0;
    }
    errno = (n == 0) ? 0 : errno;
    return -1;
}

ssize_t kvcl_sock_crypt_recv(kvcl_sock_stream_t *stream, const struct iovec *iov, size_t n)
{
    kvcl_sock_crypt_t *crypt = stream->crypt;
    place_t           place  = {.iov = iov, .n = n};
    bool              good;
    int               ended = 0;

    place.room = sum(iov, n);
    good       = deliver(crypt, &place);
    if (good && (place.got == 0)) { /* no text and no whole record is left */
        ended = fill(stream);
        good  = deliver(crypt, &place);
    }
    if (!good) {
        errno = EBADMSG;
        return -1;
    }
    if ((ended != 0) && (place.got == 0)) {
        return -1;
    }
    stream->readable = stream->readable || (crypt->text_len > 0) || (whole(crypt) != 0);
    return (ssize_t)place.got;
}
