/*
 * One HTTP GET by plain sockets, as kvcl_top needs it. Every step has a time limit, and the reply is bounded.
 */
#ifndef KVCL_TOOLS_HTTP_GET_H
#define KVCL_TOOLS_HTTP_GET_H

#include "tools/token_file.h"

/* where: "host:port" or "[v6]:port". token: sent unless it is empty. *body_p: malloc'ed, NUL at its end. False: the
 * reason is in why. */
bool http_get(const char *where, const char *path, const token_t *token, int timeout_s, char **body_p, char *why,
              size_t why_size);

/* Whether http_get accepts this address. */
bool http_where_valid(const char *where);

#endif
