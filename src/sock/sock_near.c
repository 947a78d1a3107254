/*
 * Connections between two processes of one host (sock_near.h): bounded queues, no pacing.
 *
 * Queues: the bytes of a stream pass through a bounded queue that stays in the caches. The kernel's own bounds grow to
 * tens of MiB, and each byte is then copied from and to memory (a third of the throughput). Between hosts the kernel's
 * bounds follow the network. Messages keep them too: the frames to a peer that does not read then rest in the kernel,
 * and their cache can be destroyed.
 *
 * Pacing: BBR spaces packets by timers, at the rate at which the receiver took bytes before. Between two processes
 * there is no bottleneck to protect: each pause of the receiver lowers the rate, and each timer costs several us. A
 * socket that has begun with BBR paces for ever, so every socket begins with Reno where the system's choice is BBR, and
 * gets the system's choice again once it leads to another host. Hosts with any other choice are not affected.
 *
 * Owns nothing. Locks: none.
 */
#include "config.h"
#include "sock/sock_near.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEND_BYTES = 192 * 1024, RECV_BYTES = 512 * 1024, NAME_BYTES = 16 };

static bool is_paced(int fd, char name[NAME_BYTES])
{
    socklen_t len = NAME_BYTES;

    memset(name, 0, NAME_BYTES);
    return (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0) && (strncmp(name, "bbr", 3) == 0);
}

void kvcl_sock_near_begin(int fd)
{
    char name[NAME_BYTES];

    if (is_paced(fd, name)) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    }
}

/* A new socket has the system's choice. */
static void pace(int fd, int family)
{
    char name[NAME_BYTES];
    int  other = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (other < 0) {
        return; /* Reno serves as well */
    }
    if (is_paced(other, name)) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strnlen(name, NAME_BYTES));
    }
    close(other);
}

static bool same_host(const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    const struct sockaddr_in  *own4 = (const void *)own, *peer4 = (const void *)peer;
    const struct sockaddr_in6 *own6 = (const void *)own, *peer6 = (const void *)peer;

    if (own->ss_family != peer->ss_family) {
        return false;
    }
    if (own->ss_family == AF_INET) {
        return own4->sin_addr.s_addr == peer4->sin_addr.s_addr;
    }
    return (own->ss_family == AF_INET6) && (memcmp(&own6->sin6_addr, &peer6->sin6_addr, sizeof(own6->sin6_addr)) == 0);
}

void kvcl_sock_near_open(int fd, kvcl_sock_purpose_t purpose)
{
    const int               send_bytes = SEND_BYTES, recv_bytes = RECV_BYTES;
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t               own_len = sizeof(own), peer_len = sizeof(peer);

    if ((getsockname(fd, (struct sockaddr *)&own, &own_len) != 0) ||
        (getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0)) {
        return;
    }
    if (!same_host(&own, &peer)) {
        pace(fd, own.ss_family);
    } else if (purpose == KVCL_SOCK_STREAM) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &recv_bytes, sizeof(recv_bytes));
    }
}
