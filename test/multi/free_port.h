/*
 * A port of the loopback that nobody has just now, for the rendezvous of ranks that a test starts by itself. Another
 * process may take it before they do.
 */
#ifndef KVCL_TEST_FREE_PORT_H
#define KVCL_TEST_FREE_PORT_H

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len  = sizeof(addr);
    int                fd   = socket(AF_INET, SOCK_STREAM, 0);

    if ((fd < 0) || (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) ||
        (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)) {
        perror("a free port");
        exit(1);
    }
    close(fd);
    return ntohs(addr.sin_port);
}

#endif
