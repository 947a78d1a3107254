/*
 * One HTTP GET (http_get.h): HTTP/1.0, so the reply ends when the server closes. Owns the socket and the buffer.
 */
#include "config.h"
#include "tools/http_get.h"
#include "tools/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { WHERE_MAX = 300, ANSWER_MAX = 64 << 20, FIRST = 16384 };

static bool is_port(const char *text)
{
    char       *end;
    const long number = strtol(text, &end, 10);

    return (text[0] >= '0') && (text[0] <= '9') && (*end == '\0') && (number >= 1) && (number <= 65535);
}

static bool split(const char *where, char *host, size_t host_size, const char **port_p)
{
    const char *colon = strrchr(where, ':');
    size_t     len    = (colon != NULL) ? (size_t)(colon - where) : 0;

    if ((len == 0) || (len >= host_size) || !is_port(colon + 1)) {
        return false;
    }
    if ((where[0] == '[') && (where[len - 1] == ']')) {
        ++where;
        len -= 2;
    }
    memcpy(host, where, len);
    host[len] = '\0';
    *port_p   = colon + 1;
    return true;
}

static int open_one(const struct addrinfo *to, int timeout_s)
{
    struct timeval limit = {.tv_sec = timeout_s};
    int            fd    = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, to->ai_protocol);

    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* of connect, too */
        if (connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    return fd;
}

static int open_any(const char *where, int timeout_s, char *why, size_t why_size)
{
    struct addrinfo hints  = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL, *at;
    char            host[WHERE_MAX];
    const char      *port;
    int             error, fd = -1;

    if (!split(where, host, sizeof(host), &port)) {
        snprintf(why, why_size, "\"%s\" is not host:port with a port of 1 to 65535", where);
        return -1;
    }
    error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        snprintf(why, why_size, "%s: %s", where, gai_strerror(error));
        return -1;
    }
    for (at = found; (at != NULL) && (fd < 0); at = at->ai_next) {
        fd = open_one(at, timeout_s);
    }
    if (fd < 0) {
        snprintf(why, why_size, "%s: %s: is a kvcl_serve --http running there?", where, strerror(errno));
    }
    freeaddrinfo(found);
    return fd;
}

/* Is there something to read by then? A server that sends a byte now and then is given up, too. */
static bool is_readable(int fd, uint64_t end_ns)
{
    struct pollfd  wanted = {.fd = fd, .events = POLLIN};
    const uint64_t now_ns = clock_ns();

    return (now_ns < end_ns) && (poll(&wanted, 1, (int)((end_ns - now_ns) / 1000000) + 1) > 0);
}

/* All bytes until the other side closes; NULL: the connection failed, or the reply is too long, or takes too long. */
static char *read_all(int fd, int timeout_s, size_t *len_p)
{
    const uint64_t end_ns = clock_ns() + ((uint64_t)timeout_s * UINT64_C(1000000000));
    size_t         room   = FIRST, len = 0;
    char           *text  = malloc(room + 1), *more;
    ssize_t        got    = 1;

    while ((text != NULL) && (got > 0)) {
        if (len == room) {
            more = (room < ANSWER_MAX) ? realloc(text, (2 * room) + 1) : NULL;
            if (more == NULL) {
                got = -1;
                break;
            }
            text = more;
            room *= 2;
        }
        got  = is_readable(fd, end_ns) ? recv(fd, text + len, room - len, 0) : -1;
        len += (got > 0) ? (size_t)got : 0;
    }
    if ((text == NULL) || (got < 0)) {
        free(text);
        return NULL;
    }
    text[len] = '\0';
    *len_p    = len;
    return text;
}

static bool take_body(char *answer, char **body_p, const char *where, char *why, size_t why_size)
{
    const char *body = strstr(answer, "\r\n\r\n");
    unsigned   code  = 0;

    if ((body == NULL) || (sscanf(answer, "HTTP/1.%*u %u", &code) != 1) || (code != 200)) {
        snprintf(why, why_size, "%s: HTTP status %u%s", where, code,
                 (code == 401) ? ": the server was started with --http-token-file: name that file by --token-file"
                               : "");
        free(answer);
        return false;
    }
    memmove(answer, body + 4, strlen(body + 4) + 1);
    *body_p = answer;
    return true;
}

bool http_get(const char *where, const char *path, const token_t *token, int timeout_s, char **body_p, char *why,
              size_t why_size)
{
    char   request[WHERE_MAX + TOKEN_MAX + 200], *answer;
    size_t len;
    int    fd = open_any(where, timeout_s, why, why_size);
    int    n;

    if (fd < 0) {
        return false;
    }
    n = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n%s%s%s\r\n", path,
                 where, (token->len > 0) ? "Authorization: Bearer " : "", token->text, (token->len > 0) ? "\r\n" : "");
    if ((n < 0) || ((size_t)n >= sizeof(request)) || (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)) {
        snprintf(why, why_size, "%s: cannot send the request", where);
        close(fd);
        return false;
    }
    answer = read_all(fd, timeout_s, &len);
    close(fd);
    if (answer == NULL) {
        snprintf(why, why_size, "%s: no complete reply within the time limit", where);
        return false;
    }
    return take_body(answer, body_p, where, why, why_size);
}

bool http_where_valid(const char *where)
{
    char       host[WHERE_MAX];
    const char *port;

    return split(where, host, sizeof(host), &port);
}
