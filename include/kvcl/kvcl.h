/*
 * KVCL, the KV-cache Communication Library: the whole public contract.
 *
 * Nouns: context (this process), comm (ranks in order), cache (a paged KV cache: a layout committed over registered
 * memory), block (one page of a cache over all its layers), key (32 bytes that name a block's content), store (the
 * distributed block directory and what it points at), request (anything in flight), mem (plain registered bytes).
 *
 * Rules that hold for every call unless its comment says otherwise:
 *   - It returns kvcl_status_t: KVCL_OK is 0, KVCL_INPROGRESS positive, errors negative. A call that returns an error
 *     has posted and changed nothing; kvcl_last_error() returns the sentence. An operation that fails later, as a
 *     request, may have written some of its local blocks. Only calls that test or probe return KVCL_INPROGRESS.
 *   - Handles of freed objects, handles of another kind and invalid handles are detected: the call fails with
 *     KVCL_ERR_DEAD_HANDLE or KVCL_ERR_INVALID_PARAM. A call that returns void then does nothing, sets
 *     kvcl_last_error() and logs the error. Accessors of NULL and of such handles return 0, NULL, rank -1 or
 *     KVCL_MEM_AUTO. The caller must not free an object in one thread while another thread uses it: that is undetected.
 *     A communicator may be freed while another thread waits in kvcl_comm_agree() or kvcl_comm_shrink() with it.
 *   - It may be called from any thread, and from a completion callback, except for the calls in the next item.
 *   - Not from a completion callback: kvcl_init, kvcl_finalize, kvcl_progress, kvcl_context_arm; kvcl_comm_connect,
 *     kvcl_comm_accept, kvcl_comm_split, kvcl_comm_agree, kvcl_comm_shrink, kvcl_context_connect, kvcl_query_path;
 *     kvcl_req_wait, kvcl_req_wait_any, kvcl_req_wait_some and kvcl_req_wait_all (except to collect the callback's own
 *     request), kvcl_req_layer_wait, kvcl_signal_wait, kvcl_probe and kvcl_notify_recv with a timeout;
 *     kvcl_cache_destroy, kvcl_mem_free; kvcl_store_open, kvcl_store_close, kvcl_store_match_all, kvcl_store_copy,
 *     kvcl_store_drain, kvcl_store_upsert, kvcl_store_upsert_values, kvcl_store_put_value, kvcl_store_put_values,
 *     kvcl_store_put with KVCL_PUT_WAIT, and the plain form of every call that has a form ..._post.
 *   - Params structs start with their size; zero is the default of every field; NULL params means all defaults. Structs
 *     that a call fills start with their size too, which the caller sets (the _INIT macros do); arrays of such structs
 *     have a stride, sizeof of an element. So programs and libraries of different versions work together: each side
 *     reads and writes the fields that both have. The few structs without a size are marked as fixed for ever.
 *   - Time is in nanoseconds, in kvcl_sched.h in seconds. kvcl_context.h defines timeouts; no call waits for ever.
 *   - Settings are environment variables KVCL_*. kvcl_info(1), SETTINGS, explains those of networks, wires and the
 *     job's secret; kvcl_context.h states what a process that has the secret can do; kvcl_info --settings lists all.
 *   - Keep the buffers and caches of an operation alive and untouched until its request completes; block id arrays, key
 *     arrays and params are copied and may be freed when the posting call returns.
 */
#ifndef KVCL_H
#define KVCL_H

#include <kvcl/kvcl_version.h>
#include <kvcl/kvcl_status.h>
#include <kvcl/kvcl_context.h>
#include <kvcl/kvcl_req.h>
#include <kvcl/kvcl_comm.h>
#include <kvcl/kvcl_view.h>
#include <kvcl/kvcl_recover.h>
#include <kvcl/kvcl_mem.h>
#include <kvcl/kvcl_layout.h>
#include <kvcl/kvcl_reshard.h>
#include <kvcl/kvcl_ep.h>
#include <kvcl/kvcl_cache.h>
#include <kvcl/kvcl_xfer.h>
#include <kvcl/kvcl_coll.h>
#include <kvcl/kvcl_ep_step.h>
#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_store.h>
#include <kvcl/kvcl_ep_restore.h>
#include <kvcl/kvcl_store_value.h>
#include <kvcl/kvcl_store_admin.h>
#include <kvcl/kvcl_store_events.h>
#include <kvcl/kvcl_query.h>
#include <kvcl/kvcl_sched_model.h>
#include <kvcl/kvcl_sched.h>
#include <kvcl/kvcl_sched_index.h>

#endif
