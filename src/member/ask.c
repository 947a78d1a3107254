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

enum { QUESTION = 1, ANSWER = 2, WANT_PAGE = 3, PAGE = 4, AT_ONCE = 64 /* datagrams that one call reads */ };

typedef struct note {
    uint64_t kind, number; /* number: of a question, or where the word is in a page */
    uint8_t  uuid[16];     /* of who asked; of a page's owner */
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
    ask->page_fd = -1;
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

/* fd: it goes along; -1: none. */
static void send_to(const kvcl_ask_t *ask, const uint8_t uuid[16], note_t *note, int fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fd))] = {0};
    struct sockaddr_un at;
    struct iovec       iov = {note, sizeof(*note)};
    struct msghdr      msg = {.msg_name = &at, .msg_namelen = name_of(uuid, &at), .msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr     *head;

    if (fd >= 0) {
        msg.msg_control    = control;
        msg.msg_controllen = sizeof(control);
        head               = CMSG_FIRSTHDR(&msg);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd))};
        memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    if (sendmsg(ask->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        kvcl_log_debug("a question or an answer about silence is not sent: %m");
    }
}

void kvcl_ask_put(const kvcl_ask_t *ask, const uint8_t uuid[16])
{
    note_t note = {.kind = QUESTION, .number = ask->number};

    memcpy(note.uuid, ask->uuid, sizeof(note.uuid));
    send_to(ask, uuid, &note, -1);
}

void kvcl_ask_page(const kvcl_ask_t *ask, const uint8_t uuid[16])
{
    note_t note = {.kind = WANT_PAGE};

    memcpy(note.uuid, ask->uuid, sizeof(note.uuid));
    send_to(ask, uuid, &note, -1);
}

/* The first descriptor that came; all others are closed. -1: none. */
static int take_fds(const struct cmsghdr *head, int first)
{
    size_t at;
    int    fd;

    for (at = CMSG_LEN(0); at + sizeof(fd) <= head->cmsg_len; at += sizeof(fd)) {
        memcpy(&fd, (const char *)head + at, sizeof(fd));
        if (first < 0) {
            first = fd;
        } else {
            close(fd);
        }
    }
    return first;
}

/* @return whether a whole datagram of a process of this user came. *fd_p: a descriptor that came with it; -1: none. */
static bool receive(const kvcl_ask_t *ask, note_t *note, int *fd_p, bool *more_p)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
    struct iovec   iov = {note, sizeof(*note)};
    struct msghdr  msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *head;
    struct ucred   who  = {.pid = 0};
    bool           sure = false;
    const ssize_t  got  = recvmsg(ask->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *more_p = (got >= 0);
    *fd_p   = -1;
    for (head = (got >= 0) ? CMSG_FIRSTHDR(&msg) : NULL; head != NULL; head = CMSG_NXTHDR(&msg, head)) {
        if ((head->cmsg_level == SOL_SOCKET) && (head->cmsg_type == SCM_RIGHTS)) {
            *fd_p = take_fds(head, *fd_p);
        } else if ((head->cmsg_level == SOL_SOCKET) && (head->cmsg_type == SCM_CREDENTIALS) &&
                   (head->cmsg_len == CMSG_LEN(sizeof(who)))) {
            memcpy(&who, CMSG_DATA(head), sizeof(who));
            sure = true;
        }
    }
    return sure && (got == (ssize_t)sizeof(*note)) && ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) &&
           (who.uid == geteuid());
}

/* @return whether it answers a question of this context that had no answer yet. */
static bool heed(kvcl_ask_t *ask, note_t *note, int fd)
{
    uint8_t asker[sizeof(note->uuid)];

    memcpy(asker, note->uuid, sizeof(asker));
    if (note->kind == QUESTION) {
        note->kind = ANSWER;
        send_to(ask, asker, note, -1);
    } else if ((note->kind == WANT_PAGE) && (ask->page_fd >= 0)) {
        *note = (note_t){.kind = PAGE, .number = ask->page_word};
        memcpy(note->uuid, ask->uuid, sizeof(note->uuid));
        send_to(ask, asker, note, ask->page_fd);
    } else if ((note->kind == PAGE) && (fd >= 0) && (ask->on_page != NULL) && (note->number <= UINT32_MAX)) {
        ask->on_page(ask->arg, note->uuid, fd, (uint32_t)note->number);
    } else if ((note->kind == ANSWER) && (note->number == ask->number) && (ask->seen != ask->number) &&
               (memcmp(note->uuid, ask->uuid, sizeof(note->uuid)) == 0)) {
        ask->seen = ask->number;
        return true;
    }
    return false;
}

bool kvcl_ask_take(kvcl_ask_t *ask)
{
    bool   more = true, answered = false;
    note_t note;
    int    fd, i;

    for (i = 0; more && (i < AT_ONCE); ++i) {
        answered = (receive(ask, &note, &fd, &more) && heed(ask, &note, fd)) || answered;
        if (fd >= 0) {
            close(fd);
        }
    }
    return answered;
}
