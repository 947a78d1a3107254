/*
 * Questions by datagrams: see ask.h. What arrives is of fixed size, and its sender's user is the kernel's word; all of
 * it may be a lie of a process of that user, which costs an answer, or makes this rank believe that another one lives.
 */
#include "config.h"
#include "member/ask.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { QUESTION = 1, ANSWER = 2, AT_ONCE = 64 /* datagrams that one call reads */ };

typedef struct note {
    uint64_t kind, number;
    uint8_t  uuid[16]; /* of who asked */
} note_t;

static socklen_t name_of(const uint8_t uuid[16], struct sockaddr_un *at)
{
    int i, len;

    memset(at, 0, sizeof(*at));
    at->sun_family = AF_UNIX;
    len            = snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, "kvcl-ask-");
    for (i = 0; i < 16; ++i) {
        len += snprintf(at->sun_path + 1 + len, 3, "%02x", uuid[i]);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

kvcl_status_t kvcl_ask_open(const uint8_t uuid[16], kvcl_ask_t *ask)
{
    struct sockaddr_un at;
    const socklen_t    len = name_of(uuid, &at);
    const int          on  = 1;

    memset(ask, 0, sizeof(*ask));
    memcpy(ask->uuid, uuid, sizeof(ask->uuid));
    ask->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if ((ask->fd < 0) || (setsockopt(ask->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) ||
        (bind(ask->fd, (struct sockaddr *)&at, len) != 0)) {
        kvcl_status_t status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot open the unix socket at which other ranks "
                                               "ask whether this one lives");

        kvcl_ask_close(ask);
        return status;
    }
    return KVCL_OK;
}

void kvcl_ask_close(kvcl_ask_t *ask)
{
    if (ask->fd >= 0) {
        close(ask->fd);
        ask->fd = -1;
    }
}

void kvcl_ask_next(kvcl_ask_t *ask)
{
    ask->number += 1;
}

static void send_to(const kvcl_ask_t *ask, const uint8_t uuid[16], const note_t *note)
{
    struct sockaddr_un at;
    const socklen_t    len = name_of(uuid, &at);

    if (sendto(ask->fd, note, sizeof(*note), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&at, len) < 0) {
        kvcl_log_debug("a question or an answer about silence is not sent: %m");
    }
}

void kvcl_ask_put(const kvcl_ask_t *ask, const uint8_t uuid[16])
{
    note_t note = {.kind = QUESTION, .number = ask->number};

    memcpy(note.uuid, ask->uuid, sizeof(note.uuid));
    send_to(ask, uuid, &note);
}

/* @return whether a whole datagram of a process of this user came. */
static bool receive(const kvcl_ask_t *ask, note_t *note, bool *more_p)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec   iov = {note, sizeof(*note)};
    struct msghdr  msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *head;
    struct ucred   who;
    const ssize_t  got = recvmsg(ask->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *more_p = (got >= 0);
    head    = (got == (ssize_t)sizeof(*note)) ? CMSG_FIRSTHDR(&msg) : NULL;
    if ((head == NULL) || ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) || (head->cmsg_level != SOL_SOCKET) ||
        (head->cmsg_type != SCM_CREDENTIALS)) {
        return false;
    }
    memcpy(&who, CMSG_DATA(head), sizeof(who));
    return who.uid == geteuid();
}

bool kvcl_ask_take(kvcl_ask_t *ask)
{
    bool   more = true, answered = false;
    note_t note;
    int    i;

    for (i = 0; more && (i < AT_ONCE); ++i) {
        if (!receive(ask, &note, &more)) {
            continue;
        }
        if (note.kind == QUESTION) {
            note.kind = ANSWER;
            send_to(ask, note.uuid, &note);
        } else if ((note.kind == ANSWER) && (note.number == ask->number) && (ask->seen != ask->number) &&
                   (memcmp(note.uuid, ask->uuid, sizeof(note.uuid)) == 0)) {
            ask->seen = ask->number;
            answered  = true;
        }
    }
    return answered;
}
