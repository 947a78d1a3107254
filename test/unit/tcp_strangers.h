/*
 * Processes that connect to a tcp transport and do not know the job's secret: connections from many addresses of
 * loopback, and what the process holds meanwhile.
 */
#ifndef KVCL_TEST_TCP_STRANGERS_H
#define KVCL_TEST_TCP_STRANGERS_H

#include "xport_pair.h"
#include "tcp/tcp.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

/* Addresses that strangers come from; memory that may be added, which does not depend on their number. */
enum { STRANGERS_SOURCES = 200, STRANGERS_RSS_KIB = 8192 };

static inline unsigned descriptors(void)
{
    DIR      *dir = opendir("/proc/self/fd");
    unsigned n    = 0;

    while (readdir(dir) != NULL) {
        ++n;
    }
    closedir(dir);
    return n;
}

static inline tcp_addr_t address_of(const side_t *side)
{
    const void *buf;
    tcp_addr_t addr;
    size_t     len;

    side->ops->address(side->xport, &buf, &len);
    ck_assert_int_eq(kvcl_tcp_addr_unpack(buf, len, &addr), KVCL_OK);
    return addr;
}

/* KiB of memory that this process occupies. */
static inline unsigned long rss_kib(void)
{
    FILE          *file = fopen("/proc/self/statm", "r");
    unsigned long size = 0, resident = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return resident * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

/* The strangers have many addresses, so that the ports of one that are not free yet do not stop them. */
static inline void come_from(int fd, const struct sockaddr_storage *ss, unsigned number)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    int                on   = 1;

    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + number % STRANGERS_SOURCES);
    if ((ss->ss_family == AF_INET) && (number > 0)) {
        ck_assert_int_eq(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)), 0);
        ck_assert_int_eq(bind(fd, (const struct sockaddr *)&from, sizeof(from)), 0);
    }
}

/* A descriptor that is connected to the victim; -1: there is none. */
static inline int knock_as(const side_t *victim, unsigned number)
{
    tcp_addr_t              addr = address_of(victim);
    struct sockaddr_storage ss;
    socklen_t               len = kvcl_net_sockaddr(addr.at[0].family, addr.at[0].addr, addr.at[0].port, &ss);
    int                     fd  = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        come_from(fd, &ss, number);
    }
    if ((fd >= 0) && (connect(fd, (const struct sockaddr *)&ss, len) != 0)) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    }
    return fd;
}

static inline int knock(const side_t *victim)
{
    return knock_as(victim, 0);
}

#endif
