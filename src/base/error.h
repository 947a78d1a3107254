/*
 * The sentence of the last failing call, per thread. Returned to users by kvcl_last_error().
 *
 * Owns: one thread-local buffer of KVCL_ERROR_MAX bytes. No lock; only a kept sentence is allocated.
 */
#ifndef KVCL_BASE_ERROR_H
#define KVCL_BASE_ERROR_H

#include <kvcl/kvcl_status.h>

enum { KVCL_ERROR_MAX = 1024 };

/**
 * Format the thread's last-error sentence (cut at KVCL_ERROR_MAX) and return @a status, so that
 * `return kvcl_fail(KVCL_ERR_X, "...")` is the one line of a failure. The arguments may contain
 * kvcl_last_error() itself, to prefix a sentence from below. errno is kept.
 */
kvcl_status_t kvcl_fail(kvcl_status_t status, const char *fmt, ...)
        __attribute__((format(printf, 2, 3), cold));

/** As kvcl_fail, for a system call that failed: appends ": strerror(err)". */
kvcl_status_t kvcl_fail_errno(kvcl_status_t status, int err, const char *fmt, ...)
        __attribute__((format(printf, 3, 4), cold));

/**
 * As kvcl_fail, for an expected outcome on a hot path: a few stores, and formatted only when it is read. @a fmt
 * must be static; it takes at most four numbers, each %llu or %llx.
 */
kvcl_status_t kvcl_fail_late(kvcl_status_t status, const char *fmt, unsigned long long a, unsigned long long b,
                             unsigned long long c, unsigned long long d);

/* A sentence that outlives its thread's next failure. Zeroed: none. */
typedef struct kvcl_sentence {
    const char         *fmt; /* late; NULL: text alone */
    unsigned long long arg[4];
    char               *text; /* owned */
} kvcl_sentence_t;

/** Keep this thread's sentence in place of what @a to has; none if memory is short. */
void kvcl_sentence_keep(kvcl_sentence_t *to);
/** Make it this thread's last error; none: nothing changes. */
void kvcl_sentence_report(const kvcl_sentence_t *from);
/** Its text, owned by it; NULL: none, or memory is short. */
const char *kvcl_sentence_read(kvcl_sentence_t *sentence);
void kvcl_sentence_free(kvcl_sentence_t *sentence);

#endif
