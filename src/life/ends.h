/*
 * The ends of the processes of this host to which a transport has endpoints, by their pidfds, for a caller without a
 * thread for it: it looks now and then, in its own passes, and sleeps on a descriptor.
 *
 * A process that was killed has ended, though its parent may not have waited for it yet. It is named by any bytes that
 * no other one has, such as an address. One thread at a time uses an object. Each call takes NULL: no end is seen.
 */
#ifndef KVCL_LIFE_ENDS_H
#define KVCL_LIFE_ENDS_H

#include <stddef.h>
#include <stdint.h>

enum { KVCL_ENDS_SLEEP = 64 /* the weight of a pass after which the caller sleeps */ };

typedef struct kvcl_ends kvcl_ends_t;

/** This process has that name. NULL: no end is seen; the log says why. */
kvcl_ends_t *kvcl_ends_open(const void *name, size_t len);
void         kvcl_ends_close(kvcl_ends_t *ends);

/** Polls readable from an end until kvcl_ends_take() has told of it. -1 for NULL. */
int kvcl_ends_fd(const kvcl_ends_t *ends);

/** Watches the process of that name from now on. @return its number; 0: its end is not seen. */
uint32_t kvcl_ends_watch(kvcl_ends_t *ends, const void *name, size_t len, void *arg);
void     kvcl_ends_forget(kvcl_ends_t *ends, uint32_t number); /* 0: nothing */

/** To be called in each pass. It asks the kernel when the weights, 1 or KVCL_ENDS_SLEEP, have reached 1,024.
 * @return the arg of a process that has ended, which is watched no more; NULL: of none. */
void *kvcl_ends_take(kvcl_ends_t *ends, unsigned weight);

#endif
