/*
 * Selection checks: the gate between ids that a user or a peer named and addresses made from them.
 *
 * Owns: the sentences that name the index and value of a bad id. Invariant behind the gate: every id
 * is below shape->blocks, ranges are not empty and inside the shape, and the bytes selected fit 63
 * bits, so stream arithmetic cannot overflow or leave a base.
 * The check reads ids once; a caller whose list can change under it (memory a peer maps) copies it
 * first.
 * Locks: none.
 */
#include "kv/side.h"

#include "base/error.h"

/* Ids are checked in chunks without a branch per id; only a bad chunk is searched. */
enum { SIDE_CHECK_CHUNK = 256 };

static kvcl_status_t check_range(const char *what, kvcl_range_t r, const char *of, uint64_t count)
{
    if ((r.first == 0) && (r.end == 0)) {
        return KVCL_OK;
    }
    if (r.first >= r.end) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "selection: %s [%u, %u) is empty", what, r.first, r.end);
    }
    if (r.end > count) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "selection: %s end at %u, the %s %llu", what, r.end, of,
                         (unsigned long long)count);
    }
    return KVCL_OK;
}

static kvcl_range_t full_range(kvcl_range_t r, uint32_t count)
{
    return (r.end == 0) ? (kvcl_range_t){0, count} : r;
}

static kvcl_status_t check_blocks(const kvcl_sel_t *sel, uint64_t blocks)
{
    uint32_t max_id;
    size_t i, j, end;

    for (i = 0; i < sel->n_blocks; i = end) {
        end = (sel->n_blocks - i > SIDE_CHECK_CHUNK) ? i + SIDE_CHECK_CHUNK : sel->n_blocks;
        max_id = 0;
        for (j = i; j < end; ++j) {
            max_id = (sel->blocks[j] > max_id) ? sel->blocks[j] : max_id;
        }
        for (j = i; (max_id >= blocks) && (j < end); ++j) {
            if (sel->blocks[j] >= blocks) {
                return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "selection: blocks[%zu] is %u: the layout has "
                                 "blocks 0 to %llu", j, sel->blocks[j], (unsigned long long)blocks - 1);
            }
        }
    }
    return KVCL_OK;
}

kvcl_range_t kvcl_sel_layers(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    return full_range(sel->layers, shape->layers);
}

kvcl_range_t kvcl_sel_heads(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    return full_range(sel->heads, shape->heads);
}

kvcl_span_t kvcl_sel_tokens(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    if (sel->tokens.end == 0) {
        return (kvcl_span_t){0, (uint64_t)sel->n_blocks * shape->tokens};
    }
    return (kvcl_span_t){sel->tokens.first, sel->tokens.end};
}

uint32_t kvcl_gcd(uint64_t a, uint32_t b)
{
    uint32_t x = (uint32_t)(a % b), y = b, rest;

    while (x != 0) {
        rest = y % x;
        y = x;
        x = rest;
    }
    return y;
}

kvcl_token_t kvcl_token_of(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    kvcl_range_t layers = kvcl_sel_layers(shape, sel), heads = kvcl_sel_heads(shape, sel);

    return (kvcl_token_t){.layers = layers.end - layers.first, .kv = shape->kv, .heads = heads.end - heads.first,
                          .head_dim = shape->head_dim, .elem_bytes = shape->elem_bytes};
}

const char *kvcl_token_differs(const kvcl_token_t *a, const kvcl_token_t *b, uint32_t *in_a, uint32_t *in_b)
{
    const struct {
        const char *name;
        uint32_t   a, b;
    } fields[] = {
        {"layers", a->layers, b->layers},             {"kv", a->kv, b->kv},
        {"heads", a->heads, b->heads},                {"head_dim", a->head_dim, b->head_dim},
        {"elem_bytes", a->elem_bytes, b->elem_bytes}, {"tokens of a block", a->tokens, b->tokens},
    };
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        if (fields[i].a != fields[i].b) {
            *in_a = fields[i].a;
            *in_b = fields[i].b;
            return fields[i].name;
        }
    }
    return NULL;
}

uint32_t kvcl_sel_unit(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    return kvcl_gcd(sel->tokens.end, kvcl_gcd(sel->tokens.first, shape->tokens));
}

uint64_t kvcl_sel_block_bytes(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    kvcl_range_t layers = kvcl_sel_layers(shape, sel);
    kvcl_range_t heads = kvcl_sel_heads(shape, sel);

    return shape->head_bytes * (heads.end - heads.first) * shape->tokens * shape->kv * (layers.end - layers.first);
}

uint64_t kvcl_sel_bytes(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    kvcl_span_t tokens = kvcl_sel_tokens(shape, sel);

    return kvcl_sel_block_bytes(shape, sel) / shape->tokens * (tokens.end - tokens.first);
}

kvcl_status_t kvcl_sel_check_reserved(const kvcl_sel_t *sel, const char *what)
{
    return ((sel->reserved[0] | sel->reserved[1]) == 0)
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the selection's reserved is not 0: zero the struct first, or "
                           "use kvcl_sel_of()", what);
}

kvcl_status_t kvcl_sel_check(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    kvcl_status_t status;
    uint64_t bytes;

    if ((shape == NULL) || (sel == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "selection is NULL");
    }
    if ((sel->blocks == NULL) && (sel->n_blocks > 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "selection: blocks is NULL for %zu blocks", sel->n_blocks);
    }
    if (((status = kvcl_sel_check_reserved(sel, "selection")) != KVCL_OK) ||
        ((status = check_range("layers", sel->layers, "layout has", shape->layers)) != KVCL_OK) ||
        ((status = check_range("heads", sel->heads, "layout has", shape->heads)) != KVCL_OK)) {
        return status;
    }
    if (__builtin_mul_overflow(shape->block_bytes, sel->n_blocks, &bytes) ||
        (bytes > (uint64_t)INT64_MAX)) { /* ids may repeat, so n_blocks alone says nothing */
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "selection: %zu blocks are beyond 2^63 bytes", sel->n_blocks);
    }
    /* The product is at most that of the bytes. */
    status = check_range("tokens", sel->tokens, "blocks have", (uint64_t)sel->n_blocks * shape->tokens);
    if (status != KVCL_OK) {
        return status;
    }
    return check_blocks(sel, shape->blocks);
}

kvcl_status_t kvcl_side_check(const kvcl_side_t *side)
{
    if ((side == NULL) || (side->shape == NULL) || (side->bases == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s is NULL",
                         (side == NULL)          ? "side"
                         : (side->shape == NULL) ? "shape"
                                                 : "bases");
    }
    return kvcl_sel_check(side->shape, &side->sel);
}
