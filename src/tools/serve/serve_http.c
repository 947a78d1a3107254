/*
 * The HTTP server (serve_http.h) over libmicrohttpd: one thread of that library, which sleeps while there are no
 * requests, and one per connection, since a reply may take long. A response is built in memory and passed to the
 * library, which frees it.
 *
 * Clients that connect and send no request cannot lock others out: at most WAITING_MAX connections without a complete
 * request may wait; the next one closes the oldest of them. A connection without a request for TIMEOUT_S is closed.
 *
 * Lock: http->lock guards the list of waiting connections; it is never held while a reply is built.
 */
#include "config.h"
#include "tools/serve/serve_http.h"

#if KVCL_HAVE_MICROHTTPD
#include <microhttpd.h>
#endif

#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#if KVCL_HAVE_MICROHTTPD

enum { CONNECTIONS_MAX = 128, WAITING_MAX = 32, TIMEOUT_S = 10, WHERE_MAX = 300 };

/* A connection without a request: a new one, or one that is kept open after its reply. */
typedef struct waiting {
    struct waiting *next; /* younger */
    int            fd;
    bool           closing;
} waiting_t;

struct serve_http {
    pthread_mutex_t   lock;
    waiting_t         *oldest;
    unsigned          n_waiting; /* not closing */
    struct MHD_Daemon *daemon;
    serve_answer_t    answer;
    void              *arg;
    unsigned          port;
};

#if MHD_VERSION >= 0x00097002
typedef enum MHD_Result mhd_result_t;
#else
typedef int mhd_result_t;
#endif

/* Lock held. Behind all others. */
static void add_waiting(serve_http_t *http, waiting_t *one)
{
    waiting_t **at = &http->oldest;

    while (*at != NULL) {
        at = &(*at)->next;
    }
    one->next    = NULL;
    one->closing = false;
    *at          = one;
    ++http->n_waiting;
}

/* Lock held. */
static void drop_waiting(serve_http_t *http, const waiting_t *one)
{
    waiting_t **at = &http->oldest;

    while ((*at != NULL) && (*at != one)) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        http->n_waiting -= one->closing ? 0 : 1;
        *at = one->next;
    }
}

/* Lock held. The connection's thread reads the end of the stream and closes it. */
static void close_oldest(serve_http_t *http)
{
    waiting_t *one = http->oldest;

    while ((one != NULL) && one->closing) {
        one = one->next;
    }
    if (one != NULL) {
        one->closing = true;
        --http->n_waiting;
        shutdown(one->fd, SHUT_RDWR);
    }
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    serve_http_t                   *http = arg;
    waiting_t                      *one  = *state;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        one = ((info != NULL) && (info->connect_fd >= 0)) ? calloc(1, sizeof(*one)) : NULL;
        if (one == NULL) {
            return; /* it is not in the list, so it cannot be closed early */
        }
        one->fd = info->connect_fd;
        pthread_mutex_lock(&http->lock);
        if (http->n_waiting >= WAITING_MAX) {
            close_oldest(http);
        }
        add_waiting(http, one);
        pthread_mutex_unlock(&http->lock);
        *state = one;
    } else if (one != NULL) {
        pthread_mutex_lock(&http->lock);
        drop_waiting(http, one);
        pthread_mutex_unlock(&http->lock);
        free(one);
        *state = NULL;
    }
}

/* asking: the connection has a complete request; otherwise it has its reply. */
static void note_request(serve_http_t *http, struct MHD_Connection *connection, bool asking)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    waiting_t                      *one  = (info != NULL) ? info->socket_context : NULL;

    if (one == NULL) {
        return;
    }
    pthread_mutex_lock(&http->lock);
    if (asking) {
        drop_waiting(http, one);
    } else if (!one->closing) {
        add_waiting(http, one);
    }
    pthread_mutex_unlock(&http->lock);
}

static mhd_result_t respond(struct MHD_Connection *connection, unsigned code, const char *type, char *text, size_t len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    mhd_result_t        result    = MHD_NO;

    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES) {
        result = MHD_queue_response(connection, code, response);
    }
    MHD_destroy_response(response);
    return result;
}

static mhd_result_t on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *data, size_t *data_len, void **state)
{
    static bool   begun; /* its address: a request that has its headers */
    serve_http_t *http = arg;
    const char   *type = "text/plain; charset=utf-8";
    char         *text = NULL;
    unsigned     code  = MHD_HTTP_METHOD_NOT_ALLOWED;
    size_t       len   = 0;
    FILE         *body;

    (void)version;
    (void)data;
    if (*state == NULL) { /* a reply queued in the first call would end the connection */
        *state = &begun;
        note_request(http, connection, true);
        return MHD_YES;
    }
    if (*data_len != 0) { /* uploaded data is refused */
        return MHD_NO;
    }
    body = open_memstream(&text, &len);
    if (body == NULL) {
        return MHD_NO;
    }
    if ((strcmp(method, "GET") == 0) || (strcmp(method, "HEAD") == 0)) {
        code = http->answer(http->arg, url, body, &type);
    } else {
        fputs("only GET\n", body);
    }
    if (fclose(body) != 0) {
        free(text);
        return MHD_NO;
    }
    return respond(connection, code, type, text, len);
}

/* The reply was sent or abandoned: the connection waits for its next request. */
static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)state;
    (void)how;
    note_request(arg, connection, false);
}

/* Split "host:port"; a port alone means the loopback interface. */
static bool split(const char *where, char *host, size_t host_size, unsigned *port_p)
{
    const char    *colon = strrchr(where, ':');
    const char    *port  = (colon != NULL) ? colon + 1 : where;
    size_t        len    = (colon != NULL) ? (size_t)(colon - where) : 0;
    char          *end;
    unsigned long number;

    number = strtoul(port, &end, 10);
    if ((*port < '0') || (*port > '9') || (*end != '\0') || (number > 65535) || (len >= host_size)) {
        return false;
    }
    if ((len >= 2) && (where[0] == '[') && (where[len - 1] == ']')) {
        ++where;
        len -= 2;
    }
    memcpy(host, where, len);
    host[len] = '\0';
    if (len == 0) {
        strcpy(host, "127.0.0.1");
    }
    *port_p = (unsigned)number;
    return true;
}

static bool start(serve_http_t *http, const char *host, unsigned port, char *why, size_t why_size)
{
    struct addrinfo             hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const union MHD_DaemonInfo  *info;
    struct addrinfo             *found = NULL;
    char                        service[8];
    unsigned                    flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD |
                                        MHD_USE_THREAD_PER_CONNECTION;
    int                         error;

    snprintf(service, sizeof(service), "%u", port);
    error = getaddrinfo(host, service, &hints, &found);
    if (error != 0) {
        snprintf(why, why_size, "%s: %s", host, gai_strerror(error));
        return false;
    }
    flags       |= (found->ai_family == AF_INET6) ? MHD_USE_IPv6 : 0;
    http->daemon = MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, http, MHD_OPTION_SOCK_ADDR,
                                    found->ai_addr, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                                    MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
                                    MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,
                                    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    freeaddrinfo(found);
    if (http->daemon == NULL) {
        snprintf(why, why_size, "cannot listen on %s, port %u", host, port);
        return false;
    }
    info       = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    http->port = (info != NULL) ? info->port : port;
    return true;
}

bool serve_http_open(const char *where, int add, serve_answer_t answer, void *arg, char *why, size_t why_size,
                     serve_http_t **http_p)
{
    char         host[WHERE_MAX];
    unsigned     port;
    serve_http_t *http;

    if (!split(where, host, sizeof(host), &port) || ((port != 0) && (port + (unsigned)add > 65535))) {
        snprintf(why, why_size, "\"%s\" is neither a port nor host:port", where);
        return false;
    }
    http = calloc(1, sizeof(*http));
    if (http == NULL) {
        snprintf(why, why_size, "no memory");
        return false;
    }
    http->answer = answer;
    http->arg    = arg;
    pthread_mutex_init(&http->lock, NULL);
    if (!start(http, host, (port != 0) ? port + (unsigned)add : 0, why, why_size)) {
        pthread_mutex_destroy(&http->lock);
        free(http);
        return false;
    }
    *http_p = http;
    return true;
}

unsigned serve_http_port(const serve_http_t *http)
{
    return http->port;
}

void serve_http_close(serve_http_t *http)
{
    if (http != NULL) {
        MHD_stop_daemon(http->daemon);
        pthread_mutex_destroy(&http->lock);
        free(http);
    }
}

#else

bool serve_http_open(const char *where, int add, serve_answer_t answer, void *arg, char *why, size_t why_size,
                     serve_http_t **http_p)
{
    (void)where;
    (void)add;
    (void)answer;
    (void)arg;
    (void)http_p;
    snprintf(why, why_size, "KVCL was built without libmicrohttpd (Debian: libmicrohttpd-dev)");
    return false;
}

unsigned serve_http_port(const serve_http_t *http)
{
    (void)http;
    return 0;
}

void serve_http_close(serve_http_t *http)
{
    (void)http;
}

#endif
