/*
 * Reading and comparing the bearer token (token_file.h). Owns nothing; any thread.
 */
#include "config.h"
#include "tools/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool check(const char *path, const struct stat *st, char *why, size_t why_size)
{
    if (!S_ISREG(st->st_mode)) {
        snprintf(why, why_size, "token file %s is not a regular file", path);
    } else if (st->st_uid != geteuid()) {
        snprintf(why, why_size, "token file %s belongs to user %u, not to this process's (user %u): make one that does",
                 path, (unsigned)st->st_uid, (unsigned)geteuid());
    } else if ((st->st_mode & 077) != 0) {
        snprintf(why, why_size, "token file %s has mode %04o, others may use it: chmod 600 %s", path,
                 (unsigned)(st->st_mode & 07777), path);
    } else {
        return true;
    }
    return false;
}

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
    /* O_NONBLOCK: a FIFO in its place must not block the open before it is refused. */
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t     n    = -1;
    bool        good = false;

    memset(token, 0, sizeof(*token));
    if ((fd < 0) || (fstat(fd, &st) != 0)) {
        snprintf(why, why_size, "token file %s: %s", path, strerror(errno));
    } else if (check(path, &st, why, why_size)) {
        n = read(fd, token->text, sizeof(token->text));
        if (n < 0) {
            snprintf(why, why_size, "token file %s: %s", path, strerror(errno));
        } else {
            good = take_line(path, token, n, why, why_size);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return good;
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
