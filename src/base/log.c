/*
 * Log lines. Owns the level and the handler of the process.
 *
 * A line is made in one buffer on the stack and written with one write(2), so that lines of threads and
 * of ranks that share a terminal do not mix. No lock: the rules of log.h say when the setters may be called.
 */
#include "config.h"
#include "base/log.h"
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024, HOST_MAX_BYTES = 64 };

_Atomic int kvcl_log_level = KVCL_LOG_WARN;

static const char *const  level_names[] = {"error", "warn", "info", "debug", "trace"};
static kvcl_log_handler_t log_handler;
static void              *log_handler_arg;

void kvcl_log_set_level(int level)
{
    if (level < KVCL_LOG_ERROR) {
        level = KVCL_LOG_ERROR;
    }
    if (level > KVCL_LOG_TRACE) {
        level = KVCL_LOG_TRACE;
    }
    atomic_store_explicit(&kvcl_log_level, level, memory_order_relaxed);
}

kvcl_status_t kvcl_log_level_parse(const char *str, int *level_p)
{
    int i;

    for (i = KVCL_LOG_ERROR; i <= KVCL_LOG_TRACE; ++i) {
        if ((strcasecmp(str, level_names[i]) == 0) || ((str[0] == '0' + i) && (str[1] == '\0'))) {
            *level_p = i;
            return KVCL_OK;
        }
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "\"%s\" is no log level: error, warn, info, debug or trace", str);
}

void kvcl_log_set_handler(kvcl_log_handler_t handler, void *arg)
{
    log_handler     = handler;
    log_handler_arg = arg;
}

/* The pid is read for each line: it changes in a forked child. */
static int format_head(char *line, size_t len, kvcl_log_level_t level)
{
    char host[HOST_MAX_BYTES] = "?";

    if (gethostname(host, sizeof(host)) != 0) {
        host[0] = '?';
        host[1] = '\0';
    }
    host[sizeof(host) - 1] = '\0';
    host[strcspn(host, ".")] = '\0';
    return snprintf(line, len, "kvcl[%s:%d] %-5s ", host, (int)getpid(), level_names[level]);
}

void kvcl_log_write(kvcl_log_level_t level, const char *fmt, ...)
{
    int     saved_errno = errno;
    char    line[LINE_MAX_BYTES];
    int     head = (log_handler == NULL) ? format_head(line, sizeof(line) - 1, level) : 0;
    size_t  used;
    ssize_t written;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(line + head, sizeof(line) - 1 - (size_t)head, fmt, ap);
    va_end(ap);
    if (log_handler != NULL) {
        log_handler(log_handler_arg, level, line);
    } else {
        used         = strlen(line);
        line[used++] = '\n';
        written      = write(STDERR_FILENO, line, used);
        (void)written; /* standard error is closed: the line is lost */
    }
    errno = saved_errno;
}
