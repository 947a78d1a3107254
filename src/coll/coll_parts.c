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

/* The parts of one side, in order: do they share a byte? spans: room for them. @return the bytes up to their end. */
static kvcl_status_t check_parts(const kvcl_coll_call_t *call, const char *name, const uint64_t *lens,
                                 const uint64_t *offs, bool apart, kvcl_coll_span_t *spans, kvcl_coll_span_t *all_p)
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
    *all_p = (n > 0) ? spans[0] : (kvcl_coll_span_t){0, 0};
    for (i = 1; i < n; ++i) {
        if (apart && (spans[i].from < spans[i - 1].to)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: two parts of %s overlap at %llu", call->name, name,
                             (unsigned long long)spans[i].from);
        }
        all_p->to = (spans[i].to > all_p->to) ? spans[i].to : all_p->to;
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_coll_parts_check(const kvcl_coll_call_t *call, kvcl_coll_span_t *spans)
{
    const kvcl_coll_parts_t *parts  = call->parts;
    const uint64_t          give   = parts->send_lens[call->comm->rank], take = parts->recv_lens[call->comm->rank];
    const uintptr_t         in     = (uintptr_t)call->in, out = (uintptr_t)call->buf;
    kvcl_coll_span_t        from   = {0, 0}, to = {0, 0};
    kvcl_status_t           status = check_parts(call, "in", parts->send_lens, parts->send_offs, false, spans, &from);

    if (status == KVCL_OK) {
        status = check_parts(call, "out", parts->recv_lens, parts->recv_offs, true, spans, &to);
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (((from.to > 0) && (in == 0)) || ((to.to > 0) && (out == 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is NULL", call->name, ((from.to > 0) && (in == 0)) ? "in"
                                                                                                            : "out");
    }
    if (give != take) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: this rank gives itself %llu bytes and takes %llu", call->name,
                         (unsigned long long)give, (unsigned long long)take);
    }
    if ((from.to > 0) && (to.to > 0) && (in + from.from < out + to.to) && (out + to.from < in + from.to)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: in and out overlap: give it two buffers", call->name);
    }
    return KVCL_OK;
}
