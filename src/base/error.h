/*
 * The sentence of the last failing call, per thread. Returned to users by kvcl_last_error().
 *
 * Owns: one thread-local buffer of KVCL_ERROR_MAX bytes. No lock, no allocation.
 */
#ifndef KVCL_BASE_ERROR_H
#define KVCL_BASE_ERROR_H

#include <kvcl/kvcl_status.h>

enum { KVCL_ERROR_MAX = 512 };

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

#endif
