/*
 * UCX's sockets for waking a rank that sleeps on shared memory: datagram sockets with a random abstract name. Any user
 * of the network namespace can send to them, and UCX 1.13 and 1.22 end the process when an empty datagram arrives. A
 * filter in the kernel lets only datagrams of 1 to 8 bytes in (UCX's own have 1). Their content means nothing: what
 * remains to a stranger is to wake the rank in vain; the queue of such a socket holds few datagrams.
 *
 * UCX does not reveal the sockets, so those are taken that appear while it opens a worker: datagram sockets of this
 * process with an abstract name that the kernel chose, and no peer. Owns: nothing but its notes.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { AUTOBIND = sizeof(sa_family_t) + 6 /* a zero and five digits */ };

/* The next descriptor of this process that is a socket, or -1. Other threads open and close descriptors meanwhile. */
static int next_socket(DIR *dir, ino_t *inode_p)
{
    struct dirent *entry;
    struct stat   st;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if ((entry->d_name[0] != '.') && (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0) && S_ISSOCK(st.st_mode)) {
            *inode_p = st.st_ino;
            return atoi(entry->d_name);
        }
    }
    return -1;
}

void kvcl_glue_signals_note(glue_signals_t *signals)
{
    DIR    *dir = opendir("/proc/self/fd");
    size_t cap  = 0;
    ino_t  inode, *more;

    *signals = (glue_signals_t){.known = (dir != NULL)};
    while (signals->known && (next_socket(dir, &inode) >= 0)) {
        if (signals->n == cap) {
            cap  = (cap == 0) ? 64 : 2 * cap;
            more = realloc(signals->inodes, cap * sizeof(*more));
            if (more == NULL) {
                signals->known = false;
                break;
            }
            signals->inodes = more;
        }
        signals->inodes[signals->n++] = inode;
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static bool is_new(const glue_signals_t *signals, ino_t inode)
{
    size_t i;

    for (i = 0; i < signals->n; ++i) {
        if (signals->inodes[i] == inode) {
            return false;
        }
    }
    return true;
}

static bool is_signal(int fd)
{
    struct sockaddr_un name, peer;
    socklen_t          len = sizeof(name), type_len = sizeof(int), peer_len = sizeof(peer);
    int                type = 0;

    return (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0) && (type == SOCK_DGRAM) &&
           (getsockname(fd, (struct sockaddr *)&name, &len) == 0) && (name.sun_family == AF_UNIX) &&
           (len == AUTOBIND) && (name.sun_path[0] == '\0') &&
           (getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0);
}

/* A copy of the descriptor: the number may be another socket's by now, which must not be touched; or -1. */
static int hold(int fd, ino_t inode)
{
    int         held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct stat st;

    if ((held >= 0) && ((fstat(held, &st) != 0) || (st.st_ino != inode))) {
        close(held);
        held = -1;
    }
    return held;
}

/* What came before the filter is dropped: no peer knows the name yet. */
static void guard(int fd)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 8, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 8),
    };
    struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    char              drop[8];

    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) != 0) {
        kvcl_log_warn("any user of this host can end this process by an empty datagram: no filter on a socket of UCX: "
                      "%m");
        return;
    }
    while (recv(fd, drop, sizeof(drop), MSG_DONTWAIT) >= 0) {
    }
}

void kvcl_glue_signals_guard(glue_signals_t *signals)
{
    DIR   *dir = signals->known ? opendir("/proc/self/fd") : NULL;
    ino_t inode;
    int   fd, held;

    while ((fd = next_socket(dir, &inode)) >= 0) {
        held = is_new(signals, inode) ? hold(fd, inode) : -1;
        if ((held >= 0) && is_signal(held)) {
            guard(held);
        }
        if (held >= 0) {
            close(held);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    free(signals->inodes);
    *signals = (glue_signals_t){.known = false};
}
