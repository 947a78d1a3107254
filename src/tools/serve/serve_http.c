/*
 * The HTTP server (serve_http.h) over libmicrohttpd: a thread of the library's, which sleeps while nobody asks, and
 * one a connection, since an answer may take long. A response is built in memory and handed over to the library, which
 * frees it.
 */
#include "config.h"
#include "tools/serve/serve_http.h"

#if KVCL_HAVE_MICROHTTPD
#include <microhttpd.h>
#endif

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#if KVCL_HAVE_MICROHTTPD

enum { CONNECTIONS_MAX = 64, TIMEOUT_S = 10, WHERE_MAX = 300 };

struct serve_http {
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
    serve_http_t *http = arg;
    const char   *type = "text/plain; charset=utf-8";
    char         *text = NULL;
    unsigned     code  = MHD_HTTP_METHOD_NOT_ALLOWED;
    size_t       len   = 0;
    FILE         *body;

    (void)version;
    (void)data;
    (void)state;
    if (*data_len != 0) { /* what somebody uploads is not read */
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

/* "host:port" apart; a port alone is on the loopback. */
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
        snprintf(why, why_size, "\"%s\" is no port, and no host:port", where);
        return false;
    }
    http = calloc(1, sizeof(*http));
    if (http == NULL) {
        snprintf(why, why_size, "no memory");
        return false;
    }
    http->answer = answer;
    http->arg    = arg;
    if (!start(http, host, (port != 0) ? port + (unsigned)add : 0, why, why_size)) {
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
