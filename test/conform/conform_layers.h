/*
 * The two ends of a layer-wise transfer: caches of random shapes, their bytes layer by layer.
 */
#ifndef KVCL_TEST_CONFORM_LAYERS_H
#define KVCL_TEST_CONFORM_LAYERS_H

#include "conform.h"

enum { LE_LAYERS_MAX = 80 };

/* One side of a transfer. Both sides have the same numbers of layers, blocks, tokens and heads, at different places. */
typedef struct le_end {
    cf_cache_t    cache;
    kvcl_layout_t layout;
    uint32_t      ids[64];
    kvcl_sel_t    sel;
    uint32_t      n;      /* selected layers */
} le_end_t;

typedef struct le_what {
    uint32_t layers, blocks, tokens, heads, head_bytes; /* that move */
} le_what_t;

typedef enum { LE_WRITE, LE_SPOIL, LE_CHECK, LE_CHECK_SPOILT } le_visit_t;

uint32_t   le_below(kvcl_rand_t *rnd, uint32_t n);
/* The random values that are the same on all ranks. */
le_what_t  le_draw(kvcl_rand_t *same, bool large);
le_end_t   le_new(cf_t *cf, const le_what_t *what, bool ours);
/* Visit all runs of a layer. Return whether all are as expected. */
bool       le_visit(const le_end_t *end, const le_what_t *what, uint32_t layer, uint64_t seed, le_visit_t how);
void       le_corrupt(const le_end_t *end, const le_what_t *what);
/* The number of a run, for cf_bytes(). */
uint32_t   le_run(uint32_t layer, uint32_t block, uint32_t plane, uint32_t token, uint32_t head);
/* Tag 5. */
kvcl_req_h le_send(cf_t *cf, int to, le_end_t *end, uint64_t timeout_ns);
kvcl_req_h le_recv(cf_t *cf, int from, le_end_t *end, uint64_t timeout_ns);
kvcl_status_t le_wait(cf_t *cf, kvcl_req_h req, const le_end_t *end, uint32_t layer);
void       le_shuffle(kvcl_rand_t *rnd, uint32_t *order, uint32_t n);

#endif
