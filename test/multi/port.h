/*
 * Loopback ports at which processes of a test meet: ports.sh for C programs. No other test takes them before they are
 * used: they are below the ephemeral ports, and a file that is locked while this process or a child lives reserves a
 * range of 64.
 */
#ifndef KVCL_TEST_PORT_H
#define KVCL_TEST_PORT_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT_RANGES = 300, PORT_RANGE = 64, PORT_FIRST = 9999 }; /* as in ports.sh */

/* Locks a range. Returns its port before the first one. */
static inline int lock_ports(void)
{
    const char *tmp  = getenv("TMPDIR");
    int        tries = PORT_RANGES, range = (int)(getpid() % PORT_RANGES), fd;
    char       path[256];

    for (; tries > 0; --tries, range = (range + 1) % PORT_RANGES) {
        snprintf(path, sizeof(path), "%s/kvcl-test-ports.%u.%d", (tmp != NULL) ? tmp : "/tmp", (unsigned)geteuid(),
                 range);
        fd = open(path, O_WRONLY | O_CREAT, 0666);
        if ((fd >= 0) && (flock(fd, LOCK_EX | LOCK_NB) == 0)) {
            return PORT_FIRST + (range * PORT_RANGE);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    perror("a range of ports");
    exit(1);
}

/* A port at which no process listens. */
static inline int next_port(void)
{
    static int         before;
    static int         used;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int          on   = 1;
    int                fd, bound = -1;

    if (before == 0) {
        before = lock_ports();
    }
    while (bound != 0) {
        used          = (used % (PORT_RANGE - 1)) + 1;
        addr.sin_port = htons((uint16_t)(before + used));
        fd            = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0) {
            perror("a free port");
            exit(1);
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        bound = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
        close(fd);
    }
    return before + used;
}

#endif
