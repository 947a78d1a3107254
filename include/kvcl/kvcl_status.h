/*
 * Status codes, the text of an error, and the few macros every public header needs.
 *
 * Owns: enum kvcl_status_t. Values are append-only: a number, once released, never changes meaning.
 * 0 is success, a positive value means "not finished", a negative one is an error.
 * Thread: everything here may be called from any thread and from a callback.
 */
#ifndef KVCL_STATUS_H
#define KVCL_STATUS_H

#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
#define KVCL_BEGIN_DECLS extern "C" {
#define KVCL_END_DECLS   }
#else
#define KVCL_BEGIN_DECLS
#define KVCL_END_DECLS
#endif

/* A function that the shared library exports (all others are hidden). */
#define KVCL_API __attribute__((visibility("default")))

/* The caller must check the result. */
#define KVCL_MUST_CHECK __attribute__((warn_unused_result))

KVCL_BEGIN_DECLS

/* X(name, value, text). The name without KVCL_ is what kvcl_status_name() returns.
 *
 * ERR_UNREACHABLE of a request: no connection could be made, or a connection was lost while the request ran: over RDMA,
 * or with KVCL_VIEWS over shared memory. In the second case the rank has not failed, and is reached again: the bytes of
 * a put, a send or a store's write may or may not have arrived, and the request may be repeated. Gets repeat by
 * themselves. A rank that no path reaches within two intervals of KVCL_KEEPALIVE (over shared memory of KVCL_DEAD, if
 * that is longer) has failed: ERR_RANK_FAILED. */
#define KVCL_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(INPROGRESS, 1, "operation is still in progress")                                             \
    X(ERR_INVALID_PARAM, -1, "invalid parameter")                                                  \
    X(ERR_NO_MEMORY, -2, "out of memory")                                                          \
    X(ERR_NO_SPACE, -3, "no free space in the pool, table or buffer")                              \
    X(ERR_NOT_FOUND, -4, "no such key or object")                                                  \
    X(ERR_UNKNOWN_RANK, -5, "no such rank in this communicator")                                   \
    X(ERR_NOT_REGISTERED, -6, "memory is not registered")                                          \
    X(ERR_BAD_LAYOUT, -7, "layout is invalid or the two sides' layouts do not match")              \
    X(ERR_OUT_OF_RANGE, -8, "index or offset is out of range")                                     \
    X(ERR_ACCESS, -9, "access right is missing or was revoked")                                    \
    X(ERR_CANCELED, -10, "operation was canceled")                                                 \
    X(ERR_TIMED_OUT, -11, "deadline passed")                                                       \
    X(ERR_RANK_FAILED, -12, "a rank failed")                                                       \
    X(ERR_UNREACHABLE, -13, "peer cannot be reached")                                              \
    X(ERR_BUSY, -14, "object is in use")                                                           \
    X(ERR_EXISTS, -15, "object exists already")                                                    \
    X(ERR_STALE, -16, "incarnation, generation or view is out of date")                            \
    X(ERR_TRUNCATED, -17, "message is longer than the buffer")                                     \
    X(ERR_AUTH, -18, "the job's secret is missing, unusable or not proven")                        \
    X(ERR_VERSION, -19, "peer speaks another wire version")                                        \
    X(ERR_UNSUPPORTED, -20, "not supported by this build or on this path")                         \
    X(ERR_IO, -21, "input/output error")                                                           \
    X(ERR_PROTOCOL, -22, "malformed bytes from a peer or a file")                                  \
    X(ERR_SHUTDOWN, -23, "object is shutting down")                                                \
    X(ERR_INTERNAL, -24, "internal error, please report it")                                       \
    X(ERR_WAIT_TIMEOUT, -25, "the wait's time is up; the operation goes on")                       \
    X(ERR_DEAD_HANDLE, -26, "the handle is dead: its object was freed already")                    \
    X(ERR_NO_QUORUM, -27, "too few ranks are reachable to decide")                                 \
    X(ERR_REVOKED, -28, "the communicator was revoked")

#define KVCL_STATUS_ENUM(_name, _value, _text) KVCL_##_name = (_value),
typedef enum { KVCL_STATUS_MAP(KVCL_STATUS_ENUM) } kvcl_status_t;
#undef KVCL_STATUS_ENUM

/**
 * The name of a status, "ERR_NO_SPACE". Static, never NULL: "UNKNOWN" for a number that is none.
 */
KVCL_API const char *kvcl_status_name(kvcl_status_t status);

/**
 * What a status means, in a few lower-case words. Static, never NULL.
 */
KVCL_API const char *kvcl_status_text(kvcl_status_t status);

/**
 * The sentence of the last failed call of this thread: which rank, which
 * variable, which file. Never NULL; "" if no call of this thread has failed yet. A successful call
 * does not clear it. Owned by the library, valid until this thread's next failing call.
 */
KVCL_API const char *kvcl_last_error(void);

/**
 * For users' programs and examples only, the library itself never exits: evaluate a call, and if
 * it failed (status < 0) print file, line, status and kvcl_last_error() to stderr and exit(1).
 */
#define KVCL_TRY(_expr)                                                                            \
    do {                                                                                           \
        kvcl_status_t kvcl_try_status_ = (_expr);                                                  \
        if (kvcl_try_status_ < 0) {                                                                \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #_expr,                    \
                    kvcl_status_text(kvcl_try_status_), kvcl_last_error());                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

KVCL_END_DECLS

#endif
