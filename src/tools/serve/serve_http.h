/*
 * A small HTTP server for the status of a daemon: GET of a few paths, answered with text built at that moment. Only
 * serve_http.c uses libmicrohttpd; without that library serve_http_open() reports so.
 */
#ifndef KVCL_TOOLS_SERVE_HTTP_H
#define KVCL_TOOLS_SERVE_HTTP_H

#include "tools/token_file.h"

#include <stdio.h>

typedef struct serve_http serve_http_t;

/* Write the reply for path into body and set its type; on the server's thread. Returns the HTTP status. */
typedef unsigned (*serve_answer_t)(void *arg, const char *path, FILE *body, const char **type_p);

/* where: "port" (on 127.0.0.1), "host:port", "[v6]:port"; the port is raised by add; 0 takes a free one. token (alive
 * until close): needed for every path but /healthz, unless it is empty. Connections are bounded in number and time
 * (serve_conns.h). False: the reason is in why. */
bool serve_http_open(const char *where, int add, const token_t *token, serve_answer_t answer, void *arg, char *why,
                     size_t why_size, serve_http_t **http_p);
unsigned serve_http_port(const serve_http_t *http);
void serve_http_close(serve_http_t *http); /* NULL is allowed; replies in progress end first */

#endif
