/*
 * fork(): a child inherits no usable handle. A context's connections, shared memory and threads belong to the parent;
 * the child's use of them would corrupt them. In the child every handle of the parent is dead, calls that free do
 * nothing, and kvcl_init is refused if the parent had a context, because UCX cannot be initialized again there. The
 * child may call exec(2) and exit(3).
 */
#ifndef KVCL_HANDLE_FORK_H
#define KVCL_HANDLE_FORK_H

#include <kvcl/kvcl_status.h>
#include <stdbool.h>

/** kvcl_init, before anything is made: counts a context. @return KVCL_OK, KVCL_ERR_UNSUPPORTED (in such a child). */
kvcl_status_t kvcl_fork_enter(void) KVCL_MUST_CHECK;
/** A context has been freed. */
void          kvcl_fork_leave(void);

/** Is this the child of a process that had a context when it forked? */
bool kvcl_is_forked(void);

#endif
