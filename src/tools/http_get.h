/*
 * One HTTP GET: what kvcl_top needs of a client, by plain sockets. Every step has a time limit, and what comes back is
 * bounded.
 */
#ifndef KVCL_TOOLS_HTTP_GET_H
#define KVCL_TOOLS_HTTP_GET_H

#include <stdbool.h>
#include <stddef.h>

/* where: "host:port" or "[v6]:port". *body_p: malloc'ed, NUL at its end. False: the reason is in why. */
bool http_get(const char *where, const char *path, int timeout_s, char **body_p, char *why, size_t why_size);

/* Could http_get be given this? */
bool http_where_valid(const char *where);

#endif
