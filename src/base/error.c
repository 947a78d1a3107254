/*
 * The last-error sentence of each thread: one fixed thread-local buffer, so that reporting "out of
 * memory" needs none. The new sentence is made in a second buffer, because its arguments may be the old one.
 */
#include "config.h"
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[KVCL_ERROR_MAX];

static void set_sentence(const char *fmt, va_list ap, const char *tail)
{
    char   text[KVCL_ERROR_MAX];
    size_t used;
    int    n = vsnprintf(text, sizeof(text), fmt, ap);

    if (n < 0) {
        snprintf(text, sizeof(text), "%s", fmt);
    }
    if (tail != NULL) {
        used = strlen(text);
        snprintf(text + used, sizeof(text) - used, ": %s", tail);
    }
    memcpy(last_error, text, strlen(text) + 1);
}

kvcl_status_t kvcl_fail(kvcl_status_t status, const char *fmt, ...)
{
    int     saved_errno = errno;
    va_list ap;

    va_start(ap, fmt);
    set_sentence(fmt, ap, NULL);
    va_end(ap);
    errno = saved_errno;
    return status;
}

kvcl_status_t kvcl_fail_errno(kvcl_status_t status, int err, const char *fmt, ...)
{
    int         saved_errno = errno;
    char        buf[128];
    const char *text = strerror_r(err, buf, sizeof(buf)); /* the GNU one: returns the text */
    va_list     ap;

    va_start(ap, fmt);
    set_sentence(fmt, ap, text);
    va_end(ap);
    errno = saved_errno;
    return status;
}

const char *kvcl_last_error(void)
{
    return last_error;
}
