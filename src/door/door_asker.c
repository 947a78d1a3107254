/*
 * The threads that ask at doors (door_asker.h).
 *
 * Owns: the threads and their eventfds. Invariants: a thread that has ended takes no question, so a question that is
 * put finds a thread or starts one, unless all are busy; its thread is joined before its place is used again. Locks:
 * the engine lock guards everything here; a question's work and its release run without it.
 */
#include "config.h"
#include "door/door.h"
#include "base/error.h"
#include "base/thread.h"
#include "sock/sock_ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

const uint8_t kvcl_door_id[KVCL_SOCK_ID_LEN] = "kvcl door";

void kvcl_door_askers_init(kvcl_door_askers_t *askers, kvcl_context_h ctx)
{
    unsigned i;

    kvcl_list_init(&askers->waiting);
    for (i = 0; i < KVCL_DOOR_ASKERS; ++i) {
        askers->v[i].ctx = ctx;
    }
}

/* Lock held. The next question that somebody wants an answer to, with its thread; NULL: the thread ends. */
static kvcl_door_question_t *take(kvcl_door_asker_t *asker)
{
    kvcl_list_t          *waiting  = &kvcl_door_room_of(asker->ctx)->askers.waiting;
    kvcl_door_question_t *question = NULL;
    eventfd_t            n;

    kvcl_assert_locked(asker->ctx);
    if (kvcl_list_is_empty(waiting)) {
        asker->ended = true;
        return NULL;
    }
    (void)eventfd_read(asker->wake_fd, &n); /* of the question before */
    question = kvcl_list_head(waiting, kvcl_door_question_t, link);
    kvcl_list_del(&question->link);
    question->asker = asker;
    return question;
}

/* No lock held. */
static kvcl_status_t ask(kvcl_door_question_t *question, const uint8_t *secret, int wake_fd)
{
    kvcl_sock_question_t asked = {.secret = secret, .id = kvcl_door_id, .deadline_ns = question->deadline_ns,
                                  .wake_fd = wake_fd, .answer_max = sizeof(question->packed),
                                  .refused_p = &question->refused};
    kvcl_status_t        status;
    void                 *address;

    if (atomic_load(&question->dropped)) {
        return kvcl_fail(KVCL_ERR_CANCELED, "canceled");
    }
    status = kvcl_sock_ask(&question->at, &asked, &address, &question->len);
    if (status == KVCL_OK) {
        memcpy(question->packed, address, question->len);
        free(address);
    }
    return status;
}

static void *work(void *arg)
{
    kvcl_door_asker_t    *asker = arg;
    kvcl_context_h       ctx    = asker->ctx;
    kvcl_door_question_t *question;
    kvcl_status_t        status;

    kvcl_lock(ctx);
    while ((question = take(asker)) != NULL) {
        kvcl_unlock(ctx);
        status = ask(question, ctx->secret, asker->wake_fd);
        kvcl_lock(ctx);
        question->asker = NULL;
        if (!question->dropped) {
            question->answer(question, status);
        }
        kvcl_unlock(ctx);
        question->release(question);
        kvcl_lock(ctx);
    }
    kvcl_unlock(ctx);
    return NULL;
}

static void join(kvcl_door_asker_t *asker)
{
    if (asker->used) {
        pthread_join(asker->thread, NULL);
        close(asker->wake_fd);
        asker->used = false;
    }
}

static kvcl_status_t start(kvcl_door_asker_t *asker)
{
    int err;

    join(asker);
    asker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (asker->wake_fd < 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "no eventfd for a connection");
    }
    asker->ended = false;
    err          = kvcl_thread_start(&asker->thread, "kvcl-connect", work, asker);
    asker->used  = (err == 0);
    if (err != 0) {
        close(asker->wake_fd);
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "no thread for a connection");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_door_question_put(kvcl_door_askers_t *askers, kvcl_door_question_t *question)
{
    kvcl_status_t status = KVCL_OK;
    unsigned      i, running = 0;

    kvcl_assert_locked(askers->v[0].ctx);
    kvcl_list_add_tail(&askers->waiting, &question->link);
    for (i = 0; i < KVCL_DOOR_ASKERS; ++i) {
        if (!askers->v[i].used || askers->v[i].ended) {
            status = start(&askers->v[i]);
            break;
        }
        ++running;
    }
    if ((status == KVCL_OK) || (running > 0)) {
        return KVCL_OK; /* those that run take it in turn */
    }
    kvcl_list_del(&question->link);
    return status;
}

void kvcl_door_question_drop(kvcl_context_h ctx, kvcl_door_question_t *question)
{
    kvcl_assert_locked(ctx);
    atomic_store(&question->dropped, true);
    if (question->asker != NULL) {
        (void)eventfd_write(question->asker->wake_fd, 1);
    }
}

void kvcl_door_askers_fini(kvcl_door_askers_t *askers)
{
    unsigned i;

    for (i = 0; i < KVCL_DOOR_ASKERS; ++i) {
        join(&askers->v[i]);
    }
}
