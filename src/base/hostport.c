/*
 * "host:port" (hostport.h). Owns: nothing; a descriptor is the caller's. Locks: none.
 */
#include "config.h"
#include "base/hostport.h"
#include "base/error.h"
#include "base/net.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the host begins and ends, and the colon behind it; NULL: the text has another form. */
static const char *find_colon(const char *text, const char **start_p, const char **end_p)
{
    const char *colon;

    *start_p = text;
    if (*text == '[') {
        *start_p = text + 1;
        *end_p   = strchr(text, ']');
        return ((*end_p != NULL) && ((*end_p)[1] == ':')) ? *end_p + 1 : NULL;
    }
    colon  = strchr(text, ':');
    *end_p = colon;
    return ((colon != NULL) && (strchr(colon + 1, ':') == NULL)) ? colon : NULL;
}

/* -1: no port. */
static long parse_port(const char *text)
{
    char *rest;
    long number;

    if ((*text < '0') || (*text > '9')) {
        return -1;
    }
    number = strtol(text, &rest, 10);
    return ((*rest == '\0') && (number <= UINT16_MAX)) ? number : -1;
}

kvcl_status_t kvcl_hostport_parse(const char *text, const char *what, unsigned port_min, kvcl_hostport_t *hostport)
{
    const char *start, *end;
    const char *colon = find_colon(text, &start, &end);
    const long port   = (colon != NULL) ? parse_port(colon + 1) : -1;

    if ((colon == NULL) || (end == start) || ((size_t)(end - start) >= sizeof(hostport->host)) ||
        (port < (long)port_min)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: \"%s\" is not host:port, with a port from %u to 65535 (IPv6: "
                         "[address]:port)", what, text, port_min);
    }
    memcpy(hostport->host, start, (size_t)(end - start));
    hostport->host[end - start] = '\0';
    hostport->port              = (uint16_t)port;
    return KVCL_OK;
}

const char *kvcl_hostport_print(const kvcl_hostport_t *hostport, char at[KVCL_HOSTPORT_MAX])
{
    snprintf(at, KVCL_HOSTPORT_MAX, (strchr(hostport->host, ':') != NULL) ? "[%s]:%u" : "%s:%u", hostport->host,
             (unsigned)hostport->port);
    return at;
}

kvcl_status_t kvcl_hostport_resolve(const kvcl_hostport_t *hostport, const char *what, kvcl_hostport_addrs_t *addrs)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL, *ai;
    char            port[8];
    int             rc;

    snprintf(port, sizeof(port), "%u", (unsigned)hostport->port);
    rc = getaddrinfo(hostport->host, port, &hints, &found);
    if (rc != 0) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "%s: host \"%s\": %s", what, hostport->host, gai_strerror(rc));
    }
    addrs->n = 0;
    for (ai = found; (ai != NULL) && (addrs->n < KVCL_HOSTPORT_ADDRS); ai = ai->ai_next) {
        memcpy(&addrs->at[addrs->n], ai->ai_addr, ai->ai_addrlen);
        addrs->len[addrs->n] = ai->ai_addrlen;
        ++addrs->n;
    }
    freeaddrinfo(found);
    return KVCL_OK;
}

/* A descriptor that listens; -1: none (errno). */
static int listen_at(const struct sockaddr_storage *at, socklen_t len)
{
    int one = 1;
    int fd  = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int err;

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if ((bind(fd, (const struct sockaddr *)at, len) == 0) && (listen(fd, SOMAXCONN) == 0)) {
        return fd;
    }
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

kvcl_status_t kvcl_hostport_listen(const char *text, const char *what, int *fd_p, char at[KVCL_HOSTPORT_MAX])
{
    kvcl_hostport_addrs_t addrs;
    kvcl_hostport_t       hostport;
    kvcl_status_t         status = kvcl_hostport_parse(text, what, 0, &hostport);
    int                   err    = EADDRNOTAVAIL, fd = -1;
    size_t                i;

    status = (status == KVCL_OK) ? kvcl_hostport_resolve(&hostport, what, &addrs) : status;
    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; (i < addrs.n) && (fd < 0); ++i) {
        fd  = listen_at(&addrs.at[i], addrs.len[i]);
        err = errno;
        if ((fd < 0) && (err != EADDRNOTAVAIL) && (err != EAFNOSUPPORT)) {
            break;
        }
    }
    if (fd < 0) {
        return kvcl_fail_errno((err == EADDRINUSE)                                 ? KVCL_ERR_BUSY
                               : ((err == EADDRNOTAVAIL) || (err == EAFNOSUPPORT)) ? KVCL_ERR_UNREACHABLE
                                                                                   : KVCL_ERR_IO,
                               err, "%s: cannot listen at %s", what, text);
    }
    hostport.port = (uint16_t)kvcl_net_port(fd);
    (void)kvcl_hostport_print(&hostport, at);
    *fd_p = fd;
    return KVCL_OK;
}
