/*
 * The contents of coll_sim_bytes.h. No state.
 */
#include "config.h"

#include "test/unit/coll_sim_bytes.h"

#include <stdlib.h>
#include <string.h>

/* Byte i of what rank r gives. */
static uint8_t given(uint32_t r, uint64_t i)
{
    return (uint8_t)((r * 31) + (i * 167) + (i >> 8) + 13);
}

/* The bytes that rank s gives to rank d of an alltoallv; the mean is an argument as the shape's len is 0. */
static uint64_t part_len(uint32_t s, uint32_t d, uint64_t mean)
{
    return ((s + (3 * d)) % 5 == 0) ? 0 : (mean * ((s * 5) + (d * 7)) % (2 * mean + 1));
}

void sim_parts_init(const kvcl_coll_alg_t *alg, kvcl_coll_shape_t *shape)
{
    const uint32_t    n = shape->size, r = shape->rank;
    kvcl_coll_parts_t *parts;
    uint64_t          *words, sent = 0, got = 0;
    uint32_t          i;

    if (alg->kind != KVCL_COLL_ALLTOALLV) {
        return;
    }
    parts = malloc(sizeof(*parts) + (((4 * (size_t)n) + 1) * sizeof(*words)));
    if (parts == NULL) {
        abort();
    }
    words  = (uint64_t *)(parts + 1);
    *parts = (kvcl_coll_parts_t){words, words + n, words + (2 * n), words + (3 * n)};
    for (i = 0; i < n; ++i) { /* a gap in front of each part, and out in the opposite order */
        words[i]           = part_len(r, i, shape->len);
        words[n + i]       = ++sent;
        sent              += words[i];
        words[(2 * n) + (n - 1 - i)] = part_len(n - 1 - i, r, shape->len);
        words[(3 * n) + (n - 1 - i)] = got;
        got               += words[(2 * n) + (n - 1 - i)];
    }
    words[4 * n] = shape->len; /* for sim_expected */
    shape->parts = parts;
    shape->len   = 0;
}

void sim_parts_fini(kvcl_coll_shape_t *shape)
{
    free((void *)(uintptr_t)shape->parts);
    shape->parts = NULL;
}

static void alloc_bytes(sim_bytes_t *to, uint64_t len, uint32_t rank)
{
    *to = (sim_bytes_t){malloc(len + 1), calloc(1, len + 1), len};
    if ((to->bytes == NULL) || (to->have == NULL)) {
        abort();
    }
    memset(to->bytes, 0xa5 ^ (int)rank, len + 1);
}

/* Write len bytes at off: those of rank r from i on. */
static void give(sim_bytes_t *to, uint64_t off, uint64_t len, uint32_t r, uint64_t i)
{
    uint64_t at;

    for (at = 0; at < len; ++at) {
        to->bytes[off + at] = given(r, i + at);
        to->have[off + at]  = 1;
    }
}

void sim_bytes_init(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape, sim_bytes_t *in, sim_bytes_t *out)
{
    const uint32_t    r = shape->rank;
    const uint64_t    len = shape->len, mine = r * len;
    kvcl_coll_bytes_t bytes;

    if (kvcl_coll_buffer_bytes(alg, shape, &bytes) != KVCL_OK) {
        abort();
    }
    alloc_bytes(out, bytes.recv, r);
    *in = *out;
    if (kvcl_coll_has_two_buffers(alg->kind)) {
        alloc_bytes(in, bytes.send, r);
        give(in, 0, bytes.send, r, 0);
    }
    switch (alg->kind) {
    case KVCL_COLL_BCAST:
        give(out, 0, (r == shape->root) ? len : 0, r, 0);
        break;
    case KVCL_COLL_ALLREDUCE:
        give(out, 0, len, r, 0);
        break;
    case KVCL_COLL_ALLGATHER:
        give(out, mine, len, r, 0);
        break;
    case KVCL_COLL_ALLTOALL:
        give(out, mine, len, r, mine);
        break;
    case KVCL_COLL_ALLTOALLV:
        give(out, shape->parts->recv_offs[r], shape->parts->recv_lens[r], r, shape->parts->send_offs[r]);
        break;
    case KVCL_COLL_REDUCE_SCATTER:
        give(out, 0, len, r, mine);
        break;
    case KVCL_COLL_GATHER:
        give(out, (r == shape->root) ? mine : 0, (r == shape->root) ? len : 0, r, 0);
        break;
    case KVCL_COLL_SCATTER: /* the root's part is copied, not received: only others have a buffer here */
    default:
        break;
    }
}

void sim_bytes_fini(sim_bytes_t *in, sim_bytes_t *out)
{
    if (in->bytes != out->bytes) {
        free(in->bytes);
        free(in->have);
    }
    free(out->bytes);
    free(out->have);
}

/* Copies are linked by a word in front of the bytes. */
uint8_t *sim_copy(void **copies, const uint8_t *from, uint64_t len)
{
    void **copy = malloc(sizeof(*copy) + len);

    if (copy == NULL) {
        abort();
    }
    memcpy(copy + 1, from, len);
    *copy   = *copies;
    *copies = copy;
    return (uint8_t *)(copy + 1);
}

void sim_copies_fini(void **copies)
{
    while (*copies != NULL) {
        void *next = *(void **)*copies;

        free(*copies);
        *copies = next;
    }
}

void sim_reduce(uint8_t *to, const uint8_t *a, const uint8_t *b, uint64_t len, int odd)
{
    uint64_t i;

    for (i = 0; i < len; ++i) {
        to[i] = (uint8_t)(odd ? ((a[i] * 3) + (b[i] * 5) + ((a[i] & b[i]) * 7) + 1) : (a[i] + b[i]));
    }
}

const uint8_t *sim_result_of(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape, const sim_bytes_t *out,
                             uint64_t *len_p)
{
    *len_p = out->len;
    if ((alg->regions != NULL) && (shape->size > 1)) {
        *len_p = shape->len;
        return out->bytes + (out->len - shape->len);
    }
    return out->bytes;
}

/* Byte i that a rank has after an alltoallv. */
static uint8_t expected_part(const kvcl_coll_shape_t *shape, uint64_t i)
{
    const kvcl_coll_parts_t *parts = shape->parts;
    const uint64_t          mean = ((const uint64_t *)(parts + 1))[4 * shape->size];
    uint64_t                at = 1;
    uint32_t                s = 0, d;

    while ((i < parts->recv_offs[s]) || (i - parts->recv_offs[s] >= parts->recv_lens[s])) {
        ++s; /* the parts lie one behind another: one of them has it */
    }
    for (d = 0; d < shape->rank; ++d) {
        at += part_len(s, d, mean) + 1;
    }
    return given(s, at + (i - parts->recv_offs[s]));
}

uint8_t sim_expected(kvcl_coll_kind_t kind, const kvcl_coll_shape_t *shape, uint64_t i)
{
    const uint64_t mine = shape->rank * shape->len, owner = (shape->len > 0) ? (i / shape->len) : 0;
    uint8_t        sum  = 0;
    uint32_t       r;

    switch (kind) {
    case KVCL_COLL_ALLREDUCE:
    case KVCL_COLL_REDUCE_SCATTER:
        for (r = 0; r < shape->size; ++r) {
            sum = (uint8_t)(sum + given(r, (kind == KVCL_COLL_ALLREDUCE) ? i : (mine + i)));
        }
        return sum;
    case KVCL_COLL_ALLGATHER:
    case KVCL_COLL_GATHER:
        return given((uint32_t)owner, i % shape->len);
    case KVCL_COLL_ALLTOALL:
        return given((uint32_t)owner, mine + (i % shape->len));
    case KVCL_COLL_ALLTOALLV:
        return expected_part(shape, i);
    case KVCL_COLL_SCATTER:
        return given(shape->root, mine + i);
    default:
        return given(shape->root, i);
    }
}
