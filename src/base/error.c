/*
 * The last-error sentence of each thread: one fixed thread-local buffer, so that reporting "out of
 * memory" needs none. The new sentence is made in a second buffer, because its arguments may be the old one.
 *
 * A late sentence is kept as its format and numbers, and is formatted when it is read: an expected outcome on a hot
 * path costs a few stores.
 */
#include "config.h"
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char            last_error[KVCL_ERROR_MAX];
static _Thread_local kvcl_sentence_t late; /* fmt set: newer than last_error; text is not used */

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
    late.fmt = NULL;
}

static void put_together(const kvcl_sentence_t *from, char *buf, size_t cap)
{
    snprintf(buf, cap, from->fmt, from->arg[0], from->arg[1], from->arg[2], from->arg[3]);
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

kvcl_status_t kvcl_fail_late(kvcl_status_t status, const char *fmt, unsigned long long a, unsigned long long b,
                             unsigned long long c, unsigned long long d)
{
    late = (kvcl_sentence_t){.fmt = fmt, .arg = {a, b, c, d}};
    return status;
}

const char *kvcl_last_error(void)
{
    if (late.fmt != NULL) {
        put_together(&late, last_error, sizeof(last_error));
        late.fmt = NULL;
    }
    return last_error;
}

/* ---- kept sentences ---- */

void kvcl_sentence_keep(kvcl_sentence_t *to)
{
    free(to->text);
    *to = late;
    if (late.fmt == NULL) {
        to->text = strdup(last_error);
    }
}

void kvcl_sentence_report(const kvcl_sentence_t *from)
{
    if (from->fmt != NULL) {
        late = (kvcl_sentence_t){.fmt = from->fmt, .arg = {from->arg[0], from->arg[1], from->arg[2], from->arg[3]}};
    } else if (from->text != NULL) {
        snprintf(last_error, sizeof(last_error), "%s", from->text);
        late.fmt = NULL;
    }
}

const char *kvcl_sentence_read(kvcl_sentence_t *sentence)
{
    char text[KVCL_ERROR_MAX];

    if ((sentence->fmt != NULL) && (sentence->text == NULL)) {
        put_together(sentence, text, sizeof(text));
        sentence->text = strdup(text);
    }
    return sentence->text;
}

void kvcl_sentence_free(kvcl_sentence_t *sentence)
{
    free(sentence->text);
    sentence->text = NULL;
    sentence->fmt  = NULL;
}
