/*
 * KVCL, the KV-cache Communication Library: the whole public contract.
 *
 * Nouns: context (this process), comm (ranks in order), cache (a paged KV cache: a layout committed over registered
 * memory), block (one page of a cache over all its layers), key (32 bytes that name a block's content), store (the
 * distributed block directory and what it points at), request (anything in flight), mem (plain registered bytes).
 *
 * Rules that hold for every call unless its comment says otherwise:
 *   - It returns kvcl_status_t: KVCL_OK is 0, KVCL_INPROGRESS positive, errors negative. A call that fails has changed
 *     nothing; kvcl_last_error() gives the sentence. Calls that test answer KVCL_INPROGRESS, calls that wait never do.
 *   - A handle whose object was freed, a handle of another kind, and what is no handle are recognised: the call fails
 *     with KVCL_ERR_DEAD_HANDLE or KVCL_ERR_INVALID_PARAM; a call that returns nothing does nothing, sets
 *     kvcl_last_error() and logs it; accessors of NULL and of such handles return 0, NULL, rank -1 or KVCL_MEM_AUTO. An
 *     object that one thread frees while another uses it is not: that is for the caller to exclude.
 *   - It may be called from any thread. It may be called from a completion callback unless marked "blocks".
 *   - Params structs start with their size; zero is the default of every field; NULL params means all defaults. What
 *     a call fills begins with its size too, which the caller sets (the _INIT macros do); arrays of such structs have a
 *     stride, sizeof of an element. So programs and libraries of different versions fit: each side reads and writes
 *     what both know. The few structs without a size say that they are fixed for ever.
 *   - Time is in nanoseconds. kvcl_context.h says what a timeout means, and that nothing waits for ever.
 *   - Buffers and caches given to an operation stay untouched and alive until its request completes; block id arrays,
 *     key arrays and params are copied and may go when the posting call returns.
 */
#ifndef KVCL_H
#define KVCL_H

#include <kvcl/kvcl_version.h>
#include <kvcl/kvcl_status.h>
#include <kvcl/kvcl_context.h>
#include <kvcl/kvcl_req.h>
#include <kvcl/kvcl_comm.h>
#include <kvcl/kvcl_mem.h>
#include <kvcl/kvcl_layout.h>
#include <kvcl/kvcl_reshard.h>
#include <kvcl/kvcl_cache.h>
#include <kvcl/kvcl_xfer.h>
#include <kvcl/kvcl_coll.h>
#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_store.h>
#include <kvcl/kvcl_store_value.h>
#include <kvcl/kvcl_store_admin.h>
#include <kvcl/kvcl_store_events.h>
#include <kvcl/kvcl_query.h>

#endif
