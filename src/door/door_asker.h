/*
 * Asking at host:port for a context's packed address, beside the caller (sock_port.h is the other side).
 *
 * A question waits for one of KVCL_DOOR_ASKERS threads, which resolves the name, connects, proves the secret and reads
 * the address. A thread ends when no question is left; the next question starts one. The system's resolver cannot be
 * interrupted: a question whose asker no longer wants the answer keeps its thread until the resolver returns.
 * Everything else ends at once by kvcl_door_question_drop().
 */
#ifndef KVCL_DOOR_DOOR_ASKER_H
#define KVCL_DOOR_DOOR_ASKER_H

#include "base/hostport.h"
#include "base/list.h"
#include "wire/address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct kvcl_context;
struct kvcl_door_asker;

enum { KVCL_DOOR_ASKERS = 64 };

typedef struct kvcl_door_question kvcl_door_question_t;
struct kvcl_door_question {
    kvcl_list_t     link;        /* of those that wait for a thread */
    kvcl_hostport_t at;
    uint64_t        deadline_ns;
    struct kvcl_door_asker *asker; /* of the thread that asks; NULL: none. Engine lock */
    _Atomic bool    dropped;     /* nobody wants the answer */
    _Atomic bool    refused;     /* the latest connection was made, and closed before an answer */
    uint8_t         packed[KVCL_ADDRESS_MAX];
    size_t          len;
    /* Lock held, once, unless the question was dropped. A failure's sentence is this thread's last error. */
    void            (*answer)(kvcl_door_question_t *question, kvcl_status_t status);
    /* No lock held, once, at the end: the thread touches the question no more. */
    void            (*release)(kvcl_door_question_t *question);
};

typedef struct kvcl_door_asker {
    struct kvcl_context *ctx;
    pthread_t           thread;
    bool                used;    /* there is a thread to be joined */
    bool                ended;   /* it takes no further question */
    int                 wake_fd; /* eventfd: its question was dropped */
} kvcl_door_asker_t;

typedef struct kvcl_door_askers {
    kvcl_list_t       waiting;
    kvcl_door_asker_t v[KVCL_DOOR_ASKERS];
} kvcl_door_askers_t;

void kvcl_door_askers_init(kvcl_door_askers_t *askers, struct kvcl_context *ctx);
/** No lock held. Every question was dropped: wait for the threads. */
void kvcl_door_askers_fini(kvcl_door_askers_t *askers);

/** Lock held. @return KVCL_OK: release() will follow; KVCL_ERR_NO_MEMORY (no thread), KVCL_ERR_IO. */
kvcl_status_t kvcl_door_question_put(kvcl_door_askers_t *askers, kvcl_door_question_t *question) KVCL_MUST_CHECK;
/** Lock held. answer() will not be called. */
void kvcl_door_question_drop(struct kvcl_context *ctx, kvcl_door_question_t *question);

#endif
