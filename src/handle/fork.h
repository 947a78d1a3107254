/*
 * What fork() leaves to the child: nothing. A context's connections, shared memory and threads are the parent's, and
 * both using them would spoil them for the parent. So in the child every handle of the parent's is dead, calls that free
 * do nothing, and kvcl_init is refused if the parent had a context: UCX's state cannot be begun again there. exec(2)
 * makes a process like any other; exit(3) harms nothing.
 */
#ifndef KVCL_HANDLE_FORK_H
#define KVCL_HANDLE_FORK_H

#include <kvcl/kvcl_status.h>
#include <stdbool.h>

/** kvcl_init, before anything is made: counts a context. @return KVCL_OK, KVCL_ERR_UNSUPPORTED (in such a child). */
kvcl_status_t kvcl_fork_enter(void) KVCL_MUST_CHECK;
/** A context is gone. */
void          kvcl_fork_leave(void);

/** Is this the child of a process that had a context when it forked? */
bool kvcl_is_forked(void);

#endif
