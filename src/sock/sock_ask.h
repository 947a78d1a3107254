/*
 * Asking at a port (sock_port.h): connects, proves the secret in both directions, sends a question and reads the
 * answer. Nothing that arrives is read before the other side has proven the secret.
 */
#ifndef KVCL_SOCK_SOCK_ASK_H
#define KVCL_SOCK_SOCK_ASK_H

#include "base/hostport.h"
#include "sock/sock_hs.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct kvcl_sock_question {
    const uint8_t *secret;
    const uint8_t *id;         /* of that kind of port, KVCL_SOCK_ID_LEN bytes */
    uint64_t      deadline_ns;
    int           wake_fd;     /* the call ends with KVCL_ERR_CANCELED once it is readable; -1: none */
    const void    *question;
    size_t        question_len; /* as the port has it */
    size_t        answer_max;
    _Atomic bool  *refused_p;  /* NULL, or: the latest connection was made, and closed before an answer */
} kvcl_sock_question_t;

/**
 * Blocks until the deadline at most, and for as long as the system's resolver takes for a name; no lock held.
 * @param [out] answer_p  in memory of malloc(), 1 to answer_max bytes; the caller frees it.
 * @return KVCL_OK, KVCL_ERR_UNREACHABLE (no such host, nobody listens there), KVCL_ERR_AUTH, KVCL_ERR_VERSION,
 *         KVCL_ERR_STALE and KVCL_ERR_PROTOCOL (it is no such port), KVCL_ERR_TIMED_OUT, KVCL_ERR_IO,
 *         KVCL_ERR_NO_MEMORY, KVCL_ERR_CANCELED.
 */
kvcl_status_t kvcl_sock_ask(const kvcl_hostport_t *at, const kvcl_sock_question_t *question, void **answer_p,
                            size_t *len_p) KVCL_MUST_CHECK;

#endif
