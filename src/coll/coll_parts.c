/*
 * The parts of an alltoallv (coll_post.h): where they lie, and whether they may. Pure.
 */
#include "config.h"
#include "base/error.h"
#include "coll/coll_post.h"

#include <stdbool.h>
#include <stdlib.h>

kvcl_coll_span_t kvcl_coll_parts_span(const uint64_t *lens, const uint64_t *offs, int n)
{
    kvcl_coll_span_t all = {0, 0};
    int              r;

    for (r = 0; r < n; ++r) {
        if (lens[r] > 0) {
            all.from = ((all.to == 0) || (offs[r] < all.from)) ? offs[r] : all.from;
            all.to   = (offs[r] + lens[r] > all.to) ? offs[r] + lens[r] : all.to;
        }
    }
    return all;
}

kvcl_status_t kvcl_coll_parts_place(const kvcl_coll_call_t *call, const char *name, const uint64_t *lens,
                                    uint64_t *offs)
{
    uint64_t at = 0;
    int      r;

    for (r = 0; r < call->comm->size; ++r) {
        offs[r] = at;
        if (__builtin_add_overflow(at, lens[r], &at)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the parts of %s are more than 2^64 bytes", call->name, name);
        }
    }
    return KVCL_OK;
}

static int compare_spans(const void *a, const void *b)
{
    const kvcl_coll_span_t *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* The parts of one side, in order of their beginnings: do they share a byte? */
static kvcl_status_t check_parts(const kvcl_coll_call_t *call, const char *name, const uint64_t *lens,
                                 const uint64_t *offs, bool apart, kvcl_coll_span_t *spans, size_t *n_p)
{
    size_t n = 0, i;
    int    r;

    for (r = 0; r < call->comm->size; ++r) {
        if (lens[r] > 0) {
            spans[n] = (kvcl_coll_span_t){offs[r], 0};
            if (__builtin_add_overflow(offs[r], lens[r], &spans[n].to)) {
                return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the part of %s for rank %d ends behind 2^64", call->name,
                                 name, r);
            }
            ++n;
        }
    }
    qsort(spans, n, sizeof(*spans), compare_spans);
    for (i = 1; apart && (i < n); ++i) {
        if (spans[i].from < spans[i - 1].to) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: two parts of %s overlap at %llu", call->name, name,
                             (unsigned long long)spans[i].from);
        }
    }
    *n_p = n;
    return KVCL_OK;
}

/* Does a part of in share a byte with one of out? Those of in, which may overlap, and of out are in order. */
static bool they_meet(uintptr_t in, const kvcl_coll_span_t *from, size_t n_from, uintptr_t out,
                      const kvcl_coll_span_t *to, size_t n_to)
{
    uint64_t end = 0; /* of all parts of in that begin before the end of this part of out */
    size_t   i, j = 0;

    for (i = 0; i < n_to; ++i) {
        for (; (j < n_from) && (in + from[j].from < out + to[i].to); ++j) {
            end = (in + from[j].to > end) ? in + from[j].to : end;
        }
        if (end > out + to[i].from) {
            return true;
        }
    }
    return false;
}

kvcl_status_t kvcl_coll_parts_check(const kvcl_coll_call_t *call, kvcl_coll_span_t *spans)
{
    const kvcl_coll_parts_t *parts  = call->parts;
    const uint64_t          give   = parts->send_lens[call->comm->rank], take = parts->recv_lens[call->comm->rank];
    const uintptr_t         in     = (uintptr_t)call->in, out = (uintptr_t)call->buf;
    kvcl_coll_span_t        *from  = spans, *to = spans + call->comm->size;
    size_t                  n_from = 0, n_to = 0;
    kvcl_status_t           status = check_parts(call, "in", parts->send_lens, parts->send_offs, false, from, &n_from);

    if (status == KVCL_OK) {
        status = check_parts(call, "out", parts->recv_lens, parts->recv_offs, true, to, &n_to);
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (((n_from > 0) && (in == 0)) || ((n_to > 0) && (out == 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is NULL", call->name, ((n_from > 0) && (in == 0)) ? "in"
                                                                                                           : "out");
    }
    if (give != take) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: this rank gives itself %llu bytes and takes %llu", call->name,
                         (unsigned long long)give, (unsigned long long)take);
    }
    if (they_meet(in, from, n_from, out, to, n_to)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: in and out overlap: give it two buffers", call->name);
    }
    return KVCL_OK;
}

uint64_t kvcl_coll_parts_bytes(const kvcl_coll_parts_t *parts, int n)
{
    uint64_t given = 0, taken = 0;
    int      r;

    for (r = 0; r < n; ++r) {
        given += parts->send_lens[r];
        taken += parts->recv_lens[r];
    }
    return (given > taken) ? given : taken;
}
