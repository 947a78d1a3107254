/*
 * Ends of layer-wise transfers (conform_layers.h).
 */
#include "conform_layers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { POISON = 0xee, HEAD_BYTES_MAX = 256 };

uint32_t le_below(kvcl_rand_t *rnd, uint32_t n)
{
    return (uint32_t)kvcl_rand_below(rnd, n);
}

/* The random values that are the same on all ranks. */
le_what_t le_draw(kvcl_rand_t *same, bool large)
{
    le_what_t what = {.layers = 1 + le_below(same, large ? LE_LAYERS_MAX : 12), .blocks = 1 + le_below(same, 24),
                   .tokens = 1 + le_below(same, 16), .heads = 1 + le_below(same, 6), .head_bytes = 32u << le_below(same,
                                                                                                                   3)};

    return what;
}

le_end_t le_new(cf_t *cf, const le_what_t *what, bool ours)
{
    static _Atomic unsigned made;
    char     name[32];
    uint32_t before = le_below(&cf->rnd, 4), heads_before = le_below(&cf->rnd, 3), i, j, id;
    le_end_t    end    = {.n = what->layers};

    end.layout = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER,
                                 .layers = before + what->layers + le_below(&cf->rnd, 3),
                                 .blocks = 64, .tokens = what->tokens,
                                 .heads = heads_before + what->heads + le_below(&cf->rnd,
                                                                                3), .head_dim = what->head_bytes,
                                 .elem_bytes = 1);
    end.layout.order = le_below(&cf->rnd, 2) ? KVCL_ORDER_HND : KVCL_ORDER_NHD;
    snprintf(name, sizeof(name), "layers %u", atomic_fetch_add(&made, 1));
    end.cache = cf_cache(cf, name, &end.layout, ours);
    for (i = 0; i < 64; ++i) {
        end.ids[i] = i;
    }
    for (i = 0; i < what->blocks; ++i) {
        j          = i + le_below(&cf->rnd, 64 - i);
        id         = end.ids[i];
        end.ids[i] = end.ids[j];
        end.ids[j] = id;
    }
    end.sel.n_blocks = what->blocks;
    end.sel.layers   = (kvcl_range_t){before, before + what->layers};
    end.sel.heads    = (kvcl_range_t){heads_before, heads_before + what->heads};
    return end;
}

static char *run_at(const le_end_t *end, const le_what_t *what, uint32_t layer, uint32_t block, uint32_t plane,
                    uint32_t token,
                    uint32_t head)
{
    size_t d = what->head_bytes, heads = end->layout.heads, tokens = what->tokens, in;

    head += end->sel.heads.first;
    in = (end->layout.order == KVCL_ORDER_NHD) ? ((token * heads) + head) * d : ((head * tokens) + token) * d;
    return (char *)kvcl_cache_base(end->cache.h, end->sel.layers.first + layer) +
           ((((size_t)plane * 64) + end->ids[block]) * tokens * heads * d) + in;
}

uint32_t le_run(uint32_t layer, uint32_t block, uint32_t plane, uint32_t token, uint32_t head)
{
    return (((((layer * 64) + block) * 2 + plane) * 64 + token) * 64) + head;
}

bool le_visit(const le_end_t *end, const le_what_t *what, uint32_t layer, uint64_t seed, le_visit_t how)
{
    uint32_t b, p, t, h;
    char     corrupt[HEAD_BYTES_MAX], *at;
    bool     good = true;

    memset(corrupt, POISON, sizeof(corrupt));
    for (b = 0; b < what->blocks; ++b) {
        for (p = 0; p < 2; ++p) {
            for (t = 0; t < what->tokens; ++t) {
                for (h = 0; h < what->heads; ++h) {
                    uint32_t run = le_run(layer, b, p, t, h);
                    at = run_at(end, what, layer, b, p, t, h);
                    switch (how) {
                    case LE_WRITE:
                        cf_bytes(seed, run, at, what->head_bytes);
                        break;
                    case LE_SPOIL:
                        memset(at, POISON, what->head_bytes);
                        break;
                    case LE_CHECK:
                        good = good && cf_bytes_are(seed, run, at, what->head_bytes);
                        break;
                    default:
                        good = good && (memcmp(at, corrupt, what->head_bytes) == 0);
                        break;
                    }
                }
            }
        }
    }
    return good;
}

void le_corrupt(const le_end_t *end, const le_what_t *what)
{
    uint32_t l;

    for (l = 0; l < what->layers; ++l) {
        (void)le_visit(end, what, l, 0, LE_SPOIL);
    }
}

kvcl_req_h le_send(cf_t *cf, int to, le_end_t *end, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    end->sel.blocks   = end->ids;
    params.flags      = KVCL_LAYERWISE;
    params.timeout_ns = timeout_ns;
    CF_OK(cf, kvcl_send(cf->world, to, 5, end->cache.h, &end->sel, &params, &req));
    return req;
}

kvcl_req_h le_recv(cf_t *cf, int from, le_end_t *end, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    end->sel.blocks   = end->ids;
    params.timeout_ns = timeout_ns;
    CF_OK(cf, kvcl_recv(cf->world, from, 5, end->cache.h, &end->sel, &params, &req));
    return req;
}

kvcl_status_t le_wait(cf_t *cf, kvcl_req_h req, const le_end_t *end, uint32_t layer)
{
    kvcl_status_t status = kvcl_req_layer_wait(req, end->sel.layers.first + layer, 60 * KVCL_NS_PER_SEC);

    CF_CHECK(cf, status != KVCL_ERR_WAIT_TIMEOUT);
    return status;
}

void le_shuffle(kvcl_rand_t *rnd, uint32_t *order, uint32_t n)
{
    uint32_t i, j, was;

    for (i = 0; i < n; ++i) {
        order[i] = i;
    }
    for (i = 0; i < n; ++i) {
        j        = i + le_below(rnd, n - i);
        was      = order[i];
        order[i] = order[j];
        order[j] = was;
    }
}
