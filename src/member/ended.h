/*
 * Which processes of this host have ended, by the kernel's word: no message takes part, and none has to arrive.
 *
 * Each context listens at a unix socket whose name is made from its uuid. Others connect to it, and say nothing; the
 * kernel ends the connection with the process. A forked child of the process may hold the socket open; then a pidfd
 * shows the end, where the process is visible here. Any other process that can bind the name is of another user, and is
 * refused. The socket and the pidfd show the end only after the process has freed its memory. After an early sign
 * (life/life.h) the flags of its threads show it sooner.
 *
 * One thread uses an object.
 */
#ifndef KVCL_MEMBER_ENDED_H
#define KVCL_MEMBER_ENDED_H

#include <kvcl/kvcl_status.h>
#include <stdbool.h>
#include <stdint.h>

#define KVCL_ENDED_NONE UINT32_MAX

typedef struct kvcl_ended kvcl_ended_t;

/** Listens under this context's name. @a n: ranks at most. KVCL_ERR_NO_MEMORY, KVCL_ERR_IO. */
kvcl_status_t kvcl_ended_open(const uint8_t uuid[16], uint32_t n, kvcl_ended_t **ended_p) KVCL_MUST_CHECK;
void          kvcl_ended_close(kvcl_ended_t *ended);

/** Takes the connections of those that watch this process, and closes those that have ended: to be called now and then,
 * so that there is room for others. */
void kvcl_ended_admit(kvcl_ended_t *ended);

/** Watches the process of this rank from now on. @return false: nothing can be seen here of its end. */
bool kvcl_ended_watch(kvcl_ended_t *ended, uint32_t rank, const uint8_t uuid[16]);

/** Ends the watched process of this rank. @return whether the kernel took the order: false where there is no descriptor
 * of that process. Its end is then told by kvcl_ended_take(). */
bool kvcl_ended_kill(const kvcl_ended_t *ended, uint32_t rank);

/** Watches it no more. */
void kvcl_ended_forget(kvcl_ended_t *ended, uint32_t rank);

/** There is a sign that the watched process of this rank ends: kvcl_ended_take() looks whether all of its threads do,
 * in the next few hundred calls, while kvcl_ended_is_unsure(). */
void kvcl_ended_sign(kvcl_ended_t *ended, uint32_t rank);
bool kvcl_ended_is_unsure(const kvcl_ended_t *ended);

/** Polls readable when kvcl_ended_take() may have something to say. */
int kvcl_ended_fd(const kvcl_ended_t *ended);

/** A rank whose process has ended, each once; KVCL_ENDED_NONE: no other one has. */
uint32_t kvcl_ended_take(kvcl_ended_t *ended);

#endif
