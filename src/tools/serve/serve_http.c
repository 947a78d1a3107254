/*
 * The HTTP server (serve_http.h) over libmicrohttpd: one thread of that library, which sleeps while there are no
 * requests, and one per connection, since a reply may take long. A response is built in memory and passed to the
 * library, which frees it.
 *
 * serve_conns.c bounds the connections and ends slow ones, so that clients that connect and send or read nothing cannot
 * lock others out. With a token, every path but /healthz needs it.
 */
#include "config.h"
#include "tools/serve/serve_conns.h"
#include "tools/serve/serve_http.h"

#if KVCL_HAVE_MICROHTTPD
#include <microhttpd.h>
#endif

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#if KVCL_HAVE_MICROHTTPD

/* CONNECTIONS_MAX: of the library; connections that serve_conns.c has shut down still count until their threads end. */
enum { CONNECTIONS_MAX = 2 * SERVE_CONNS_MAX, TIMEOUT_S = SERVE_REQUEST_S, WHERE_MAX = 300 };

struct serve_http {
    serve_conns_t     *conns;
    struct MHD_Daemon *daemon;
    serve_answer_t    answer;
    void              *arg;
    const token_t     *token;
    unsigned          port;
};

#if MHD_VERSION >= 0x00097002
typedef enum MHD_Result mhd_result_t;
#else
typedef int mhd_result_t;
#endif

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *fd   = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    serve_http_t                   *http = arg;

    if (what != MHD_CONNECTION_NOTIFY_STARTED) {
        serve_conns_remove(http->conns, *state);
        *state = NULL;
    } else if ((fd != NULL) && (fd->connect_fd >= 0)) {
        *state = serve_conns_add(http->conns, fd->connect_fd, (from != NULL) ? from->client_addr : NULL);
        if (*state == NULL) {
            shutdown(fd->connect_fd, SHUT_RDWR);
        }
    }
}

static void set_state(serve_http_t *http, struct MHD_Connection *connection, serve_conn_state_t state)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    serve_conns_set(http->conns, (info != NULL) ? info->socket_context : NULL, state);
}

static mhd_result_t respond(struct MHD_Connection *connection, unsigned code, const char *type, char *text, size_t len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    mhd_result_t        result    = MHD_NO;

    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    if ((MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES) &&
        ((code != MHD_HTTP_UNAUTHORIZED) ||
         (MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer") == MHD_YES))) {
        result = MHD_queue_response(connection, code, response);
    }
    MHD_destroy_response(response);
    return result;
}

/* The reply's text, its length and its type. Returns the HTTP status; 0: no memory. */
static unsigned build(serve_http_t *http, struct MHD_Connection *connection, const char *url, const char *method,
                      char **text_p, size_t *len_p, const char **type_p)
{
    const char *authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    unsigned   code;
    FILE       *body;

    *text_p = NULL;
    body    = open_memstream(text_p, len_p);
    if (body == NULL) {
        return 0;
    }
    if ((strcmp(url, "/healthz") != 0) && !token_allows(http->token, authorization)) {
        code = MHD_HTTP_UNAUTHORIZED;
        fputs("the token of --http-token-file is needed: Authorization: Bearer TOKEN\n", body);
    } else if ((strcmp(method, "GET") == 0) || (strcmp(method, "HEAD") == 0)) {
        code = http->answer(http->arg, url, body, type_p);
    } else {
        code = MHD_HTTP_METHOD_NOT_ALLOWED;
        fputs("only GET\n", body);
    }
    if (fclose(body) != 0) {
        free(*text_p);
        return 0;
    }
    return code;
}

static mhd_result_t on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *data, size_t *data_len, void **state)
{
    static bool   begun; /* its address: a request that has its headers */
    serve_http_t *http = arg;
    const char   *type = "text/plain; charset=utf-8";
    mhd_result_t result;
    char         *text;
    unsigned     code;
    size_t       len = 0;

    (void)version;
    (void)data;
    if (*state == NULL) { /* a reply queued in the first call would end the connection */
        *state = &begun;
        return MHD_YES;
    }
    if (*data_len != 0) { /* uploaded data is refused */
        return MHD_NO;
    }
    set_state(http, connection, SERVE_BUILDING);
    code   = build(http, connection, url, method, &text, &len, &type);
    result = (code != 0) ? respond(connection, code, type, text, len) : MHD_NO;
    set_state(http, connection, SERVE_SENDING);
    return result;
}

/* The reply was sent or abandoned: the connection waits for its next request. */
static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)state;
    (void)how;
    set_state(arg, connection, SERVE_RECEIVING);
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
    errno        = 0;
    http->daemon = MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, http, MHD_OPTION_SOCK_ADDR,
                                    found->ai_addr, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                                    MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
                                    MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,
                                    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    error = errno;
    freeaddrinfo(found);
    if (http->daemon == NULL) {
        snprintf(why, why_size, "cannot listen on %s, port %u%s%s", host, port, (error != 0) ? ": " : "",
                 (error != 0) ? strerror(error) : "");
        return false;
    }
    info       = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    http->port = (info != NULL) ? info->port : port;
    return true;
}

bool serve_http_open(const char *where, int add, const token_t *token, serve_answer_t answer, void *arg, char *why,
                     size_t why_size, serve_http_t **http_p)
{
    char         host[WHERE_MAX];
    unsigned     port;
    serve_http_t *http;

    if (!split(where, host, sizeof(host), &port) || ((port != 0) && (port + (unsigned)add > 65535))) {
        snprintf(why, why_size, "\"%s\" is neither a port nor host:port", where);
        return false;
    }
    http = calloc(1, sizeof(*http));
    if (http != NULL) {
        http->conns = serve_conns_new();
    }
    if ((http == NULL) || (http->conns == NULL)) {
        snprintf(why, why_size, "no memory");
        free(http);
        return false;
    }
    http->answer = answer;
    http->arg    = arg;
    http->token  = token;
    if (!start(http, host, (port != 0) ? port + (unsigned)add : 0, why, why_size)) {
        serve_conns_free(http->conns);
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
        serve_conns_free(http->conns);
        free(http);
    }
}

#else

bool serve_http_open(const char *where, int add, const token_t *token, serve_answer_t answer, void *arg, char *why,
                     size_t why_size, serve_http_t **http_p)
{
    (void)where;
    (void)add;
    (void)token;
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
