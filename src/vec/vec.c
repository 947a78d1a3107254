/*
 * kvcl_get_vec, kvcl_put_vec and, of one piece, kvcl_get_bytes and kvcl_put_bytes: the calls on exported memory. Small
 * transfers of mapped memory are copied inside the call; the others are a pull or a put (xfer/pull.h, xfer/put.h) over
 * two lists of pieces, or over plain bytes.
 *
 * Owns: the lists until a pull or a put takes them. Invariant: a call that fails has moved nothing. Locks: none is held
 * on entry.
 */
#include "config.h"
#include "base/error.h"
#include "handle/handle.h"
#include "kv/pieces.h"
#include "mem/rmem.h"
#include "vec/overlap.h"
#include "weave/bulk.h"
#include "xfer/params.h"
#include "xfer/prepare.h"
#include "xfer/pull.h"
#include "xfer/put.h"

#include <stdlib.h>

/* A checked call. */
typedef struct vec {
    kvcl_rmem_h      rmem;
    const kvcl_vec_t *pieces;
    size_t           n;
    kvcl_mem_h       mem;  /* or NULL */
    bool             push;
    bool             bytes; /* kvcl_get_bytes, kvcl_put_bytes: one piece, which may be empty */
    const char       *call;
    uint64_t         total;
    kvcl_gate_t      *gate;
} vec_t;

/* ---- checks ---- */

static kvcl_status_t check_mem(const vec_t *vec)
{
    kvcl_status_t status = (vec->mem == NULL) ? KVCL_OK : kvcl_handle_check(vec->mem, KVCL_KIND_MEM, vec->call);

    if ((status == KVCL_OK) && (vec->mem != NULL) && (vec->mem->ctx != vec->rmem->ctx)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: mem belongs to another context than the peer's memory",
                           vec->call);
    }
    return status;
}

static kvcl_status_t refuse_piece(const vec_t *vec, size_t i)
{
    const kvcl_vec_t         *piece = &vec->pieces[i];
    const unsigned long long offset = piece->offset, len = piece->len;

    if (len == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: piece %zu has length 0: leave it out", vec->call, i);
    }
    if (piece->addr == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: piece %zu: addr is NULL", vec->call, i);
    }
    if ((offset > vec->rmem->rregion.len) || (len > vec->rmem->rregion.len - offset)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "%s: piece %zu: bytes %llu + %llu of a region of %llu", vec->call, i,
                         offset, len, (unsigned long long)vec->rmem->rregion.len);
    }
    if (vec->mem != NULL) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "%s: piece %zu: its %llu bytes at %p are not all in mem, %zu bytes at "
                         "%p", vec->call, i, len, piece->addr, vec->mem->region->len, vec->mem->region->addr);
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: piece %zu: its %llu bytes at %p wrap around, or all pieces together "
                     "have more than 2^63 bytes", vec->call, i, len, piece->addr);
}

static bool is_good(const vec_t *vec, const kvcl_vec_t *piece)
{
    const uint64_t  there = vec->rmem->rregion.len;
    const uintptr_t addr  = (uintptr_t)piece->addr;
    uintptr_t       base  = 0;
    size_t          room  = SIZE_MAX;

    if (vec->mem != NULL) {
        base = (uintptr_t)vec->mem->region->addr;
        room = vec->mem->region->len;
    }
    return (piece->len != 0) && (addr != 0) && (piece->offset <= there) && (piece->len <= there - piece->offset) &&
           (addr >= base) && (addr - base <= room) && (piece->len <= room - (addr - base)) &&
           (piece->len <= (UINT64_MAX / 2) - vec->total);
}

/* Sets total. */
static kvcl_status_t check_pieces(vec_t *vec)
{
    kvcl_status_t status;
    size_t        i = 0, j = 0;

    if ((vec->n > KVCL_VEC_MAX) || ((vec->pieces == NULL) && (vec->n != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu pieces %s", vec->call, vec->n,
                         (vec->n > KVCL_VEC_MAX) ? "are more than KVCL_VEC_MAX: post several calls" : "at NULL");
    }
    for (i = 0; i < vec->n; ++i) {
        if (!is_good(vec, &vec->pieces[i])) {
            return refuse_piece(vec, i);
        }
        vec->total += vec->pieces[i].len;
    }
    status = vec->push ? KVCL_OK : kvcl_vec_overlap(vec->pieces, vec->n, &i, &j);
    if (status == KVCL_ERR_INVALID_PARAM) {
        return kvcl_fail(status, "%s: pieces %zu and %zu overlap here: %zu bytes at %p, %zu bytes at %p", vec->call, i,
                         j, vec->pieces[i].len, vec->pieces[i].addr, vec->pieces[j].len, vec->pieces[j].addr);
    }
    return status;
}

static kvcl_status_t check(vec_t *vec, kvcl_call_id_t id, const kvcl_xfer_params_t *params, kvcl_xfer_params_t *p)
{
    const kvcl_vec_t none  = {0, NULL, 0};
    const kvcl_vec_t *one  = vec->bytes ? vec->pieces : &none;
    kvcl_status_t    status = kvcl_xfer_params(params, id, p);

    vec->call = kvcl_call_name(id);
    if (status == KVCL_OK) {
        status = kvcl_rmem_check(vec->rmem, one->offset, one->addr, one->len, vec->push ? KVCL_WRITE : KVCL_READ,
                                 vec->call);
    }
    if ((status == KVCL_OK) && !vec->bytes && ((status = check_mem(vec)) == KVCL_OK)) {
        status = check_pieces(vec);
    } else if (status == KVCL_OK) {
        vec->total = one->len;
    }
    if ((status == KVCL_OK) && vec->push) {
        status = kvcl_put_check_signal(p, vec->rmem->peer, vec->call);
    }
    return (status == KVCL_OK) ? kvcl_gate_make(vec->rmem->ctx, p->stream, vec->call, &vec->gate) : status;
}

/* ---- the transfer ---- */

static kvcl_copier_t *copier_of(const vec_t *vec)
{
    return (vec->mem != NULL) ? vec->mem->region->copier : NULL;
}

/* Both lists. KVCL_ERR_NO_MEMORY: neither. */
static kvcl_status_t make_lists(const vec_t *vec, kvcl_pieces_t **near_p, kvcl_pieces_t **far_p)
{
    kvcl_pieces_t *near = kvcl_pieces_new(vec->n), *far = kvcl_pieces_new(vec->n);
    size_t        i;

    if ((near == NULL) || (far == NULL)) {
        free(near);
        free(far);
        return KVCL_ERR_NO_MEMORY;
    }
    for (i = 0; i < vec->n; ++i) { /* the sum was checked */
        (void)kvcl_pieces_add(near, (uintptr_t)vec->pieces[i].addr, vec->pieces[i].len);
        (void)kvcl_pieces_add(far, vec->pieces[i].offset, vec->pieces[i].len);
    }
    *near_p = near;
    *far_p  = far;
    return KVCL_OK;
}

static bool copied_now(const vec_t *vec, kvcl_status_t *status_p)
{
    return (vec->gate == NULL) && (copier_of(vec) == NULL) && (vec->total <= vec->rmem->ctx->config.inline_copy) &&
           (vec->bytes || (kvcl_bulk_how(vec->total) == KVCL_BULK_CACHED)) &&
           kvcl_rmem_copy(vec->rmem, vec->pieces, vec->n, vec->total, vec->push, vec->call, status_p);
}

/* Takes the gate. An operation of no bytes has no lists: it learns whether the memory is there. */
static kvcl_status_t get(vec_t *vec, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_pull_t *pull = kvcl_pull_new();

    if ((pull == NULL) || (!vec->bytes && (vec->total != 0) && (make_lists(vec, &pull->near, &pull->far) != KVCL_OK))) {
        kvcl_pull_discard(pull);
        kvcl_gate_free(vec->gate);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a transfer", vec->call);
    }
    pull->owns_pieces = true;
    pull->peer        = vec->rmem->peer;
    pull->self        = vec->rmem->self;
    pull->from        = KVCL_FROM_REGION;
    pull->rregion     = &vec->rmem->rregion;
    pull->offset      = vec->bytes ? vec->pieces->offset : 0;
    pull->buf         = vec->bytes ? vec->pieces->addr : NULL;
    pull->buf_copier  = copier_of(vec);
    pull->total       = vec->total;
    return kvcl_get_begin(vec->rmem->ctx, pull, vec->gate, p, req_p);
}

static kvcl_status_t put(vec_t *vec, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_put_t *put = calloc(1, sizeof(*put));

    if ((put == NULL) || (!vec->bytes && (vec->total != 0) && (make_lists(vec, &put->near, &put->far) != KVCL_OK))) {
        free(put);
        kvcl_gate_free(vec->gate);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a transfer", vec->call);
    }
    put->peer   = vec->rmem->peer;
    put->self   = vec->rmem->self;
    put->rmem   = vec->rmem;
    put->offset = vec->bytes ? vec->pieces->offset : 0;
    put->buf    = vec->bytes ? vec->pieces->addr : NULL;
    put->copier = copier_of(vec);
    put->total  = vec->total;
    return kvcl_put_begin(vec->rmem->ctx, put, vec->gate, p, req_p);
}

static kvcl_status_t start(vec_t *vec, kvcl_call_id_t id, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_status_t      status = check(vec, id, params, &p);

    if (status != KVCL_OK) {
        return status;
    }
    if ((p.notify == NULL) && (!vec->push || (p.signal_mem == NULL)) && copied_now(vec, &status)) {
        return kvcl_req_instant(vec->rmem->ctx, status, (status == KVCL_OK) ? vec->total : 0, &p, req_p);
    }
    return vec->push ? put(vec, &p, req_p) : get(vec, &p, req_p);
}

kvcl_status_t kvcl_get_bytes(kvcl_rmem_h rmem, uint64_t offset, void *buf, size_t len,
                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const kvcl_vec_t one = {offset, buf, len};
    vec_t            vec = {.rmem = rmem, .pieces = &one, .n = 1, .bytes = true};

    return start(&vec, KVCL_CALL_GET_BYTES, params, req_p);
}

kvcl_status_t kvcl_put_bytes(kvcl_rmem_h rmem, uint64_t offset, const void *buf, size_t len,
                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const kvcl_vec_t one = {offset, (void *)buf, len};
    vec_t            vec = {.rmem = rmem, .pieces = &one, .n = 1, .bytes = true, .push = true};

    return start(&vec, KVCL_CALL_PUT_BYTES, params, req_p);
}

kvcl_status_t kvcl_get_vec(kvcl_rmem_h rmem, const kvcl_vec_t *pieces, size_t n, kvcl_mem_h mem,
                           const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    vec_t vec = {.rmem = rmem, .pieces = pieces, .n = n, .mem = mem};

    return start(&vec, KVCL_CALL_GET_VEC, params, req_p);
}

kvcl_status_t kvcl_put_vec(kvcl_rmem_h rmem, const kvcl_vec_t *pieces, size_t n, kvcl_mem_h mem,
                           const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    vec_t vec = {.rmem = rmem, .pieces = pieces, .n = n, .mem = mem, .push = true};

    return start(&vec, KVCL_CALL_PUT_VEC, params, req_p);
}
