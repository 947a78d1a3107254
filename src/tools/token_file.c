/*
 * Reading and comparing the bearer token (token_file.h). Owns nothing; any thread.
 */
#include "config.h"
#include "tools/token_file.h"
#include "base/key_file.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

/* One line, perhaps with its end. */
static bool take_line(const char *path, token_t *token, ssize_t n, char *why, size_t why_size)
{
    size_t i;

    while ((n > 0) && ((token->text[n - 1] == '\n') || (token->text[n - 1] == '\r'))) {
        --n;
    }
    for (i = 0; (ssize_t)i < n; ++i) {
        if ((token->text[i] <= ' ') || (token->text[i] > '~')) {
            snprintf(why, why_size, "token file %s: character %zu is a space or cannot be sent in a header: write one "
                     "line, for example by openssl rand -hex 32", path, i + 1);
            return false;
        }
    }
    if ((n < TOKEN_MIN) || (n > TOKEN_MAX)) {
        snprintf(why, why_size, "token file %s has %zd characters: it needs one line of %d to %d", path, n,
                 (int)TOKEN_MIN, (int)TOKEN_MAX);
        return false;
    }
    token->len     = (size_t)n;
    token->text[n] = '\0';
    return true;
}

bool token_read(const char *path, token_t *token, char *why, size_t why_size)
{
    static const kvcl_key_file_t kind = {"token file", "openssl rand -hex 32", "", TOKEN_MIN,
                                         sizeof(token->text) - 1};
    size_t                       len  = 0;

    memset(token, 0, sizeof(*token));
    return (kvcl_key_file_read(&kind, path, token->text, &len, why, why_size) == KVCL_OK) &&
           take_line(path, token, (ssize_t)len, why, why_size);
}

bool token_allows(const token_t *token, const char *authorization)
{
    static const char bearer[] = "Bearer ";
    const char        *given   = authorization;
    unsigned          differ   = 0;
    size_t            i, len;

    if (token->len == 0) {
        return true;
    }
    if ((given == NULL) || (strncasecmp(given, bearer, sizeof(bearer) - 1) != 0)) {
        return false;
    }
    given += sizeof(bearer) - 1;
    len    = strlen(given);
    for (i = 0; i < len; ++i) { /* every character, whatever the earlier ones were */
        differ |= (unsigned)(unsigned char)given[i] ^ (unsigned)(unsigned char)token->text[i % token->len];
    }
    return (differ == 0) && (len == token->len);
}
