/*
 * Log lines: "kvcl[host:pid] warn  text" on stderr, or whatever handler was set.
 *
 * Invariants: a message below the level is not formatted, its arguments are not evaluated.
 * Thread: logging from any thread; a line is written with one write(2). The handler and the prefix
 * are set while no other thread logs (context create); the level is atomic and may change any time.
 */
#ifndef KVCL_BASE_LOG_H
#define KVCL_BASE_LOG_H

#include <kvcl/kvcl_status.h>

#include <stdatomic.h>

typedef enum {
    KVCL_LOG_ERROR = 0,
    KVCL_LOG_WARN  = 1,
    KVCL_LOG_INFO  = 2,
    KVCL_LOG_DEBUG = 3,
    KVCL_LOG_TRACE = 4
} kvcl_log_level_t;

/* Gets the bare text, without prefix, level or newline. Must not log. */
typedef void (*kvcl_log_handler_t)(void *arg, kvcl_log_level_t level, const char *text);

extern _Atomic int kvcl_log_level; /* read by the macros; WARN at start */

void kvcl_log_set_level(int level); /* clamped to ERROR..TRACE */

/** Parse "error".."trace" (any case) or 0..4. *level_p is untouched on error. */
kvcl_status_t kvcl_log_level_parse(const char *str, int *level_p) KVCL_MUST_CHECK;

/** NULL restores the output to stderr. */
void kvcl_log_set_handler(kvcl_log_handler_t handler, void *arg);

void kvcl_log_write(kvcl_log_level_t level, const char *fmt, ...)
        __attribute__((format(printf, 2, 3), cold));

#define kvcl_log_enabled(_level)                                                                   \
    __builtin_expect((int)(_level) <= atomic_load_explicit(&kvcl_log_level, memory_order_relaxed), 0)

#define kvcl_log_at(_level, ...)                                                                   \
    do {                                                                                           \
        if (kvcl_log_enabled(_level)) {                                                            \
            kvcl_log_write((_level), __VA_ARGS__);                                                 \
        }                                                                                          \
    } while (0)

#define kvcl_log_error(...) kvcl_log_at(KVCL_LOG_ERROR, __VA_ARGS__)
#define kvcl_log_warn(...)  kvcl_log_at(KVCL_LOG_WARN, __VA_ARGS__)
#define kvcl_log_info(...)  kvcl_log_at(KVCL_LOG_INFO, __VA_ARGS__)
#define kvcl_log_debug(...) kvcl_log_at(KVCL_LOG_DEBUG, __VA_ARGS__)
#define kvcl_log_trace(...) kvcl_log_at(KVCL_LOG_TRACE, __VA_ARGS__)

#endif
