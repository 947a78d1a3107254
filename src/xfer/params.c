/*
 * Shared argument checks (params.h).
 */
#include "config.h"
#include "xfer/params.h"
#include "base/error.h"
#include "base/structs.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 1, STREAM = 2 };

/* What only some calls know. */
static bool takes(const char *call, int what)
{
    static const struct {
        const char *call;
        int        what;
    } calls[] = {{"kvcl_get", CLASSES | STREAM}, {"kvcl_put", CLASSES | STREAM}, {"kvcl_get_bytes", CLASSES | STREAM},
                 {"kvcl_put_bytes", CLASSES | STREAM}, {"kvcl_xfer_prepare", CLASSES}, {"kvcl_xfer_post", STREAM},
                 {"kvcl_send", STREAM}, {"kvcl_send_bytes", STREAM}, {"kvcl_recv", STREAM},
                 {"kvcl_recv_bytes", STREAM}};
    size_t i;

    for (i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        if (strcmp(call, calls[i].call) == 0) {
            return (calls[i].what & what) != 0;
        }
    }
    return false;
}

kvcl_status_t kvcl_xfer_params(const kvcl_xfer_params_t *params, const char *call, kvcl_xfer_params_t *out)
{
    kvcl_status_t status;

    memset(out, 0, sizeof(*out));
    out->size = sizeof(*out);
    if (params == NULL) {
        return KVCL_OK;
    }
    status = kvcl_struct_in(out, params, KVCL_UP_TO(kvcl_xfer_params_t, flags), sizeof(*out), "kvcl_xfer_params_t");
    if (status != KVCL_OK) {
        return status;
    }
    if (out->timeout_ns == KVCL_WAIT_FOREVER) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: timeout_ns is KVCL_WAIT_FOREVER, but each operation has a deadline: "
                         "give a time, or 0 for the default", call);
    }
    out->timeout_ns = (out->timeout_ns == KVCL_WAIT_DEFAULT) ? 0 : out->timeout_ns;
    if ((out->flags & ~(KVCL_LAYERWISE | KVCL_BACKGROUND | KVCL_PUT_WAIT)) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: unknown flags 0x%llx", call, (unsigned long long)out->flags);
    }
    if ((out->flags & KVCL_LAYERWISE) && (strcmp(call, "kvcl_send") != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: KVCL_LAYERWISE is a flag of kvcl_send", call);
    }
    if ((out->flags & KVCL_BACKGROUND) && !takes(call, CLASSES)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: KVCL_BACKGROUND is a flag of gets and puts", call);
    }
    if ((out->stream != NULL) && !takes(call, STREAM)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: it follows no stream: post it when kvcl_stream_done has "
                         "completed", call);
    }
    if ((out->flags & KVCL_PUT_WAIT) && (strncmp(call, "kvcl_store_put", strlen("kvcl_store_put")) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: KVCL_PUT_WAIT is a flag of kvcl_store_put", call);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_xfer_begin(kvcl_comm_h comm, int rank, const char *call, const kvcl_xfer_params_t *params,
                              kvcl_xfer_params_t *out, kvcl_peer_t **peer_p)
{
    kvcl_status_t status = kvcl_xfer_params(params, call, out);

    if (status == KVCL_OK) {
        status = kvcl_comm_check(comm, rank, call);
    }
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
    kvcl_side_t side;

    if ((cache == NULL) || (sel == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the cache or the selection is NULL", call);
    }
    if (cache->ctx != ctx) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: cache \"%s\" belongs to another context", call, cache->name);
    }
    side = kvcl_cache_side(cache, sel);
    return kvcl_side_check(&side);
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
