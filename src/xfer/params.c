/*
 * Shared argument checks (params.h), and the table of the flags and fields that each call takes. No state.
 */
#include "config.h"
#include "xfer/params.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"
#include "req/queue.h"
#include "req/timeout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fields of a call beyond timeout_ns, cb, cb_arg and queue, which all take; in the order of field_names. */
enum {
    STATUS        = 1 << 0,
    REMOTE_CACHE  = 1 << 1,
    SIGNAL_MEM    = 1 << 2,
    SIGNAL_OFFSET = 1 << 3,
    SIGNAL_ADD    = 1 << 4,
    INFO          = 1 << 5,
    REPLICAS      = 1 << 6,
    COPIES        = 1 << 7,
    STREAM        = 1 << 8,
    TENANT        = 1 << 9,
    TO_RANK       = 1 << 10,
    NOTIFY        = 1 << 11,
    NOTIFY_BYTES  = 1 << 12,
    NO_CB         = 1 << 13, /* neither cb nor cb_arg nor queue */
    NO_POST       = 1 << 14, /* a blocking call without a posting form: neither of them */
    SIGNAL        = SIGNAL_MEM | SIGNAL_OFFSET | SIGNAL_ADD,
    TRANSFER      = STREAM | NOTIFY | NOTIFY_BYTES,
    PUTS          = REPLICAS | COPIES | TENANT
};

static const char *const field_names[] = {"status", "remote_cache", "signal_mem", "signal_offset", "signal_add", "info",
                                          "replicas", "copies", "stream", "tenant", "to_rank", "notify",
                                          "notify_bytes"};

/* The table of kvcl_xfer.h; test/api/test_params.c compares the two. */
static const struct {
    const char *name;
    uint64_t   flags;
    unsigned   fields;
} calls[] = {
    [KVCL_CALL_GET] = {"kvcl_get", KVCL_BACKGROUND, STATUS | REMOTE_CACHE | TRANSFER},
    [KVCL_CALL_PUT] = {"kvcl_put", KVCL_BACKGROUND, STATUS | REMOTE_CACHE | SIGNAL | TRANSFER},
    [KVCL_CALL_XFER_PREPARE] = {"kvcl_xfer_prepare", KVCL_BACKGROUND, REMOTE_CACHE | SIGNAL | NO_CB},
    [KVCL_CALL_XFER_POST] = {"kvcl_xfer_post", 0, STATUS | TRANSFER},
    [KVCL_CALL_GET_BYTES] = {"kvcl_get_bytes", KVCL_BACKGROUND, TRANSFER},
    [KVCL_CALL_PUT_BYTES] = {"kvcl_put_bytes", KVCL_BACKGROUND, SIGNAL | TRANSFER},
    [KVCL_CALL_GET_VEC] = {"kvcl_get_vec", KVCL_BACKGROUND, TRANSFER},
    [KVCL_CALL_PUT_VEC] = {"kvcl_put_vec", KVCL_BACKGROUND, SIGNAL | TRANSFER},
    [KVCL_CALL_NOTIFY] = {"kvcl_notify", 0, 0},
    [KVCL_CALL_SEND] = {"kvcl_send", KVCL_LAYERWISE, STREAM},
    [KVCL_CALL_SEND_BYTES] = {"kvcl_send_bytes", 0, STREAM},
    [KVCL_CALL_RECV] = {"kvcl_recv", 0, INFO | STREAM},
    [KVCL_CALL_RECV_BYTES] = {"kvcl_recv_bytes", 0, INFO | STREAM},
    [KVCL_CALL_STREAM_DONE] = {"kvcl_stream_done", 0, 0},
    [KVCL_CALL_CONTEXT_CONNECT] = {"kvcl_context_connect_post", 0, 0},
    [KVCL_CALL_BCAST] = {"kvcl_bcast", 0, 0},
    [KVCL_CALL_BCAST_BYTES] = {"kvcl_bcast_bytes", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_BARRIER] = {"kvcl_barrier", 0, 0},
    [KVCL_CALL_ALLGATHER] = {"kvcl_allgather", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_ALLREDUCE] = {"kvcl_allreduce", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_REDUCE_SCATTER] = {"kvcl_reduce_scatter", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_ALLTOALL] = {"kvcl_alltoall", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_ALLTOALLV] = {"kvcl_alltoallv", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_GATHER] = {"kvcl_gather", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_SCATTER] = {"kvcl_scatter", KVCL_ON_DEVICE, STREAM},
    [KVCL_CALL_STORE_GET] = {"kvcl_store_get", 0, STATUS},
    [KVCL_CALL_STORE_GET_PART] = {"kvcl_store_get_part", KVCL_LAYERWISE, STATUS},
    [KVCL_CALL_STORE_PUT] = {"kvcl_store_put", KVCL_PUT_WAIT | KVCL_PUT_TO | KVCL_PUT_STAYS, STATUS | PUTS | TO_RANK},
    [KVCL_CALL_STORE_UPSERT] = {"kvcl_store_upsert", KVCL_PUT_TO, STATUS | PUTS | TO_RANK},
    [KVCL_CALL_STORE_PUBLISH] = {"kvcl_store_publish", 0, STATUS},
    [KVCL_CALL_STORE_REMOVE] = {"kvcl_store_remove", 0, STATUS},
    [KVCL_CALL_STORE_BCAST] = {"kvcl_store_bcast", 0, STATUS},
    [KVCL_CALL_STORE_GET_VALUES] = {"kvcl_store_get_values", 0, STATUS},
    [KVCL_CALL_STORE_PUT_VALUES] = {"kvcl_store_put_values", KVCL_PUT_WAIT, STATUS | PUTS},
    [KVCL_CALL_STORE_UPSERT_VALUES] = {"kvcl_store_upsert_values", 0, STATUS | PUTS},
    [KVCL_CALL_STORE_VALUE_SIZES] = {"kvcl_store_value_sizes", 0, 0},
    [KVCL_CALL_STORE_VALUE_KEYS] = {"kvcl_store_value_keys", 0, 0},
    [KVCL_CALL_STORE_REMOVE_VALUES] = {"kvcl_store_remove_values", 0, 0},
    [KVCL_CALL_STORE_MATCH] = {"kvcl_store_match", 0, 0},
    [KVCL_CALL_STORE_EXISTS] = {"kvcl_store_exists", 0, 0},
    [KVCL_CALL_STORE_WHERE] = {"kvcl_store_where", 0, 0},
    [KVCL_CALL_STORE_MATCH_ALL] = {"kvcl_store_match_all", 0, NO_POST},
    [KVCL_CALL_STORE_PIN] = {"kvcl_store_pin", 0, 0},
    [KVCL_CALL_STORE_UNPIN] = {"kvcl_store_unpin", 0, 0},
    [KVCL_CALL_STORE_QUOTA] = {"kvcl_store_quota", 0, 0},
    [KVCL_CALL_STORE_CLEAR] = {"kvcl_store_clear", 0, 0},
    [KVCL_CALL_STORE_COPY] = {"kvcl_store_copy", 0, NO_POST},
    [KVCL_CALL_STORE_DRAIN] = {"kvcl_store_drain", 0, NO_POST},
    [KVCL_CALL_STORE_RANK_STATS] = {"kvcl_store_rank_stats", 0, 0},
    [KVCL_CALL_STORE_ALL_STATS] = {"kvcl_store_all_stats", 0, 0},
    [KVCL_CALL_STORE_LIST] = {"kvcl_store_list", 0, 0},
    [KVCL_CALL_STORE_EVENTS] = {"kvcl_store_events", 0, 0},
};
_Static_assert(sizeof(calls) / sizeof(calls[0]) == KVCL_CALLS, "a row for each call");

static const struct {
    const char *name;
    uint64_t   flag;
} flags[] = {{"KVCL_LAYERWISE", KVCL_LAYERWISE}, {"KVCL_BACKGROUND", KVCL_BACKGROUND},
             {"KVCL_PUT_WAIT", KVCL_PUT_WAIT}, {"KVCL_PUT_TO", KVCL_PUT_TO}, {"KVCL_PUT_STAYS", KVCL_PUT_STAYS},
             {"KVCL_ON_DEVICE", KVCL_ON_DEVICE}};

const kvcl_xfer_params_t kvcl_xfer_defaults = {.size = sizeof(kvcl_xfer_params_t)};

const char *kvcl_call_name(kvcl_call_id_t call)
{
    return calls[call].name;
}

/* "kvcl_put, kvcl_put_bytes": the calls that take this flag, or this field. */
static const char *who_takes(uint64_t flag, unsigned field, char *buf, size_t cap)
{
    size_t used = 0, i;

    buf[0] = '\0';
    for (i = 0; (i < KVCL_CALLS) && (used + 1 < cap); ++i) {
        if (((calls[i].flags & flag) != 0) || ((calls[i].fields & field) != 0)) {
            used += (size_t)snprintf(buf + used, cap - used, "%s%s", (used == 0) ? "" : ", ", calls[i].name);
        }
    }
    return buf;
}

static kvcl_status_t check_flags(uint64_t given, kvcl_call_id_t call)
{
    uint64_t known = 0;
    char     who[KVCL_ERROR_MAX / 2];
    size_t   i;

    for (i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
        known |= flags[i].flag;
        if ((given & flags[i].flag & ~calls[call].flags) != 0) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is a flag of %s; leave it out", calls[call].name,
                             flags[i].name, who_takes(flags[i].flag, 0, who, sizeof(who)));
        }
    }
    return ((given & ~known) == 0) ? KVCL_OK
                                   : kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: unknown flags 0x%llx; leave them 0",
                                               calls[call].name, (unsigned long long)(given & ~known));
}

/* The fields that the caller has set. */
static inline unsigned fields_set(const kvcl_xfer_params_t *p)
{
    return ((p->status != NULL) ? STATUS : 0u) | ((p->remote_cache != NULL) ? REMOTE_CACHE : 0u) |
           ((p->signal_mem != NULL) ? SIGNAL_MEM : 0u) | ((p->signal_offset != 0) ? SIGNAL_OFFSET : 0u) |
           ((p->signal_add != 0) ? SIGNAL_ADD : 0u) | ((p->info != NULL) ? INFO : 0u) |
           ((p->replicas != 0) ? REPLICAS : 0u) | ((p->copies != NULL) ? COPIES : 0u) |
           ((p->stream != NULL) ? STREAM : 0u) | ((p->tenant != 0) ? TENANT : 0u) | ((p->to_rank != 0) ? TO_RANK : 0u) |
           ((p->notify != NULL) ? NOTIFY : 0u) | ((p->notify_bytes != 0) ? NOTIFY_BYTES : 0u);
}

/* Is a callback or a queue to learn the end? */
static inline bool wants_end(const kvcl_xfer_params_t *p)
{
    return (p->cb != NULL) || (p->cb_arg != NULL) || (p->queue != NULL);
}

static kvcl_status_t check_fields(const kvcl_xfer_params_t *p, kvcl_call_id_t call)
{
    const unsigned other = fields_set(p) & ~calls[call].fields, first = other & -other;
    char           who[KVCL_ERROR_MAX / 2];

    if (other != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.%s is a field of %s; leave it 0%s", calls[call].name,
                         field_names[__builtin_ctz(first)], who_takes(0, first, who, sizeof(who)),
                         (first == STREAM) ? ", and post when kvcl_stream_done has completed" : "");
    }
    if ((calls[call].fields & NO_CB) && wants_end(p)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.cb, cb_arg and queue are fields of kvcl_xfer_post; leave "
                         "them 0", calls[call].name);
    }
    if ((p->queue != NULL) && (p->cb != NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.cb and params.queue are both set: one of them may learn "
                         "the end", calls[call].name);
    }
    if ((p->to_rank != 0) && !(p->flags & KVCL_PUT_TO)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.to_rank is %llu, but the flag KVCL_PUT_TO is not set",
                         calls[call].name, (unsigned long long)p->to_rank);
    }
    if ((p->signal_mem == NULL) && ((p->signal_offset != 0) || (p->signal_add != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.signal_offset or signal_add is set, but no signal_mem",
                         calls[call].name);
    }
    if ((p->notify_bytes > KVCL_NOTIFY_MAX) || ((p->notify == NULL) && (p->notify_bytes != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.notify_bytes is %zu, but %s", calls[call].name,
                         p->notify_bytes, (p->notify == NULL) ? "notify is NULL" : "KVCL_NOTIFY_MAX is less");
    }
    return KVCL_OK;
}

/* The common case: params that no check would refuse. */
static bool is_plain(const kvcl_xfer_params_t *p, kvcl_call_id_t call)
{
    const unsigned fields = calls[call].fields;

    return (p->queue == NULL) && (((fields_set(p) & (~fields | SIGNAL | TO_RANK | NOTIFY_BYTES)) |
                                   (fields & (NO_CB | NO_POST)) | (p->flags & ~calls[call].flags)) == 0);
}

/* A blocking call posts no request, so it runs no callback. */
static kvcl_status_t check_waits(const kvcl_xfer_params_t *p, kvcl_call_id_t call)
{
    if (!wants_end(p)) {
        return KVCL_OK;
    }
    if (calls[call].fields & NO_POST) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.cb, cb_arg or queue is set, but the call waits for its "
                         "own end and has no posting form; leave them 0", calls[call].name);
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.cb, cb_arg or queue is set, but the call waits for its own "
                     "end; leave them 0, or use %s_post", calls[call].name, calls[call].name);
}

kvcl_status_t kvcl_xfer_params(const kvcl_xfer_params_t *params, kvcl_call_id_t call, kvcl_xfer_params_t *out)
{
    kvcl_status_t status;

    *out = kvcl_xfer_defaults;
    if (params == NULL) {
        return KVCL_OK;
    }
    status = kvcl_struct_in(out, params, KVCL_UP_TO(kvcl_xfer_params_t, flags), sizeof(*out), "kvcl_xfer_params_t");
    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_params_timeout(&out->timeout_ns, calls[call].name);
    if ((status == KVCL_OK) && is_plain(out, call)) {
        return KVCL_OK;
    }
    status = (status == KVCL_OK) ? check_flags(out->flags, call) : status;
    status = (status == KVCL_OK) ? check_fields(out, call) : status;
    if ((status == KVCL_OK) && (calls[call].fields & NO_POST)) {
        return check_waits(out, call);
    }
    if ((status == KVCL_OK) && (out->queue != NULL)) {
        status = kvcl_handle_check(out->queue, KVCL_KIND_QUEUE, calls[call].name);
        kvcl_queue_begin();
    }
    return status;
}

kvcl_status_t kvcl_xfer_params_waits(const kvcl_xfer_params_t *params, kvcl_call_id_t call, kvcl_xfer_params_t *out)
{
    kvcl_status_t status = kvcl_xfer_params(params, call, out);

    return (status == KVCL_OK) ? check_waits(out, call) : status;
}

kvcl_status_t kvcl_xfer_params_of_wait(const kvcl_xfer_params_t *params, kvcl_call_id_t call)
{
    kvcl_xfer_params_t own;

    return kvcl_xfer_params_waits(params, call, &own);
}

kvcl_status_t kvcl_xfer_begin(kvcl_comm_h comm, int rank, kvcl_call_id_t call, const kvcl_xfer_params_t *params,
                              kvcl_xfer_params_t *out, kvcl_peer_t **peer_p)
{
    kvcl_status_t status = kvcl_xfer_params(params, call, out);

    status = (status == KVCL_OK) ? kvcl_comm_check_op(comm, rank, calls[call].name) : status;
    return (status == KVCL_OK) ? kvcl_comm_peer(comm, rank, peer_p) : status;
}

kvcl_status_t kvcl_xfer_remote(const kvcl_sel_t *sel, const char *call)
{
    if ((sel == NULL) || ((sel->blocks == NULL) && (sel->n_blocks != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the remote selection is NULL, or its blocks", call);
    }
    return kvcl_sel_check_reserved(sel, call);
}

kvcl_status_t kvcl_xfer_name(const kvcl_xfer_params_t *params, kvcl_cache_h cache, const char *call,
                             const char **name_p)
{
    *name_p = (params->remote_cache != NULL) ? params->remote_cache : cache->name;
    if (((*name_p)[0] == '\0') || (strlen(*name_p) > KVCL_CACHE_NAME_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the remote cache's name has %zu bytes, not 1 to %d", call,
                         strlen(*name_p), KVCL_CACHE_NAME_MAX);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_xfer_local(kvcl_context_h ctx, kvcl_cache_h cache, const kvcl_sel_t *sel, const char *call)
{
    kvcl_status_t status = kvcl_handle_check(cache, KVCL_KIND_CACHE, call);

    if (status != KVCL_OK) {
        return status;
    }
    if (sel == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the selection is NULL", call);
    }
    if (cache->ctx != ctx) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: cache \"%s\" belongs to another context", call, cache->name);
    }
    return kvcl_cache_check_sel(cache, sel, call);
}

kvcl_status_t kvcl_own_sel(kvcl_sel_t *to, const kvcl_sel_t *sel)
{
    uint32_t *ids = malloc((sel->n_blocks + 1) * sizeof(*ids));

    if (ids == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %zu block ids", sel->n_blocks);
    }
    if (sel->n_blocks != 0) {
        memcpy(ids, sel->blocks, sel->n_blocks * sizeof(*ids));
    }
    *to        = *sel;
    to->blocks = ids;
    return KVCL_OK;
}
