/*
 * The bearer token of the HTTP server (kvcl_serve --http-token-file, kvcl_top --token-file): the only line of a file
 * that belongs to this user alone.
 */
#ifndef KVCL_TOOLS_TOKEN_FILE_H
#define KVCL_TOOLS_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { TOKEN_MIN = 16, TOKEN_MAX = 1024 };

typedef struct token {
    size_t len; /* 0: none is needed */
    char   text[TOKEN_MAX + 3]; /* with the file's end of line */
} token_t;

/* A file of this user alone (base/key_file.h): one line of 16 to 1,024 printable characters without a space. False: the
 * reason is in why. */
bool token_read(const char *path, token_t *token, char *why, size_t why_size);

/* Is a request with this Authorization header (NULL: without one) allowed? The time does not depend on how much of the
 * token is right. */
bool token_allows(const token_t *token, const char *authorization);

#endif
