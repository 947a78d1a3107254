/*
 * kvcl_store_get_part: layers, heads and tokens of blocks of other ranks, into blocks of the same and of other sizes,
 * whole and layer by layer. Each byte of the destination is compared: the selected ones with what was put, the others
 * with what was there before.
 */
#include "store_test.h"

enum { LAYERS = 4, KV = 2, TOKENS = 8, HEADS = 4, VECTOR = 16, KEYS = 12, OLD = 0xa5,
       MOST_LAYERS = LAYERS + 2 /* of a destination */ };

typedef struct dims {
    uint32_t layers, tokens, heads;
} dims_t;

static const dims_t stored = {LAYERS, TOKENS, HEADS};

static kvcl_layout_t layout_of(const dims_t *d, uint64_t blocks)
{
    return (kvcl_layout_t)KVCL_LAYOUT_HND(.flags = KVCL_LAYOUT_PER_LAYER, .layers = d->layers, .kv = KV,
                                          .blocks = blocks, .tokens = d->tokens, .heads = d->heads,
                                          .head_dim = VECTOR / 2, .elem_bytes = 2);
}

static size_t block_bytes(const dims_t *d)
{
    return (size_t)d->layers * KV * d->tokens * d->heads * VECTOR;
}

/* A head vector in a block's canonical bytes. */
static uint8_t *vector_at(const dims_t *d, uint8_t *block, uint32_t l, uint32_t p, uint32_t t, uint32_t h)
{
    return block + ((((((size_t)l * KV) + p) * d->tokens + t) * d->heads + h) * VECTOR);
}

/* Each vector of all blocks of all ranks differs. */
static void make_vector(uint64_t owner, uint64_t block, uint32_t l, uint32_t p, uint32_t t, uint32_t h, uint8_t *bytes)
{
    const uint64_t words[2] = {(owner << 32) | block, ((uint64_t)l << 48) | ((uint64_t)p << 32) | (t << 16) | h};

    memcpy(bytes, words, sizeof(words));
}

static void make_block(uint64_t owner, uint64_t block, uint8_t *bytes)
{
    uint32_t l, p, t, h;

    for (l = 0; l < LAYERS; ++l) {
        for (p = 0; p < KV; ++p) {
            for (t = 0; t < TOKENS; ++t) {
                for (h = 0; h < HEADS; ++h) {
                    make_vector(owner, block, l, p, t, h, vector_at(&stored, bytes, l, p, t, h));
                }
            }
        }
    }
}

static kvcl_store_h open_store(world_t *w, kvcl_key_t *keys)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_layout_t       layout = layout_of(&stored, KEYS);
    uint8_t             *bytes = malloc(block_bytes(&stored));
    uint32_t            ids[KEYS], i;
    kvcl_cache_h        cache;
    kvcl_store_h        store;
    kvcl_req_h          req;

    params.dir_entries = 4096;
    params.block_bytes = block_bytes(&stored);
    params.dram_bytes  = 4 * KEYS * params.block_bytes;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    KVCL_TRY(kvcl_cache_create(w->ctx, "parts put", &layout, NULL, &cache));
    for (i = 0; i < KEYS; ++i) {
        ids[i]  = i;
        keys[i] = key_of("parts", (uint64_t)w->rank, i);
        make_block((uint64_t)w->rank, i, bytes);
        KVCL_TRY(kvcl_cache_write_block(cache, i, bytes, block_bytes(&stored)));
    }
    CHECK(w, DO(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "put");
    kvcl_cache_destroy(cache);
    free(bytes);
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("parts", (uint64_t)((w->rank + 1) % w->size), i);
    }
    sync_all(w);
    return store;
}

/* One get: what is selected on both sides. */
typedef struct part {
    dims_t        local;   /* of the destination's blocks */
    size_t        n_local; /* blocks of it */
    size_t        n;       /* keys */
    kvcl_range_t  layers, heads; /* of the stored blocks; the destination's begin at 0 or where these do */
    uint32_t      to_layer, to_head;
    kvcl_range_t  tokens;  /* of the keys; the destination's begin at to_token */
    uint32_t      to_token;
    kvcl_status_t status[KEYS];
} part_t;

/* The stored vector that belongs to this one of the destination; false: none does. */
static bool source_of(const part_t *part, uint64_t owner, uint32_t l, uint32_t p, uint64_t t, uint32_t h,
                      uint8_t *bytes)
{
    const uint64_t from = part->tokens.first + t - part->to_token;

    if ((l < part->to_layer) || (l - part->to_layer >= part->layers.end - part->layers.first) ||
        (h < part->to_head) || (h - part->to_head >= part->heads.end - part->heads.first) || (t < part->to_token) ||
        (from >= part->tokens.end) || (part->status[from / TOKENS] != KVCL_OK)) {
        return false;
    }
    make_vector(owner, from / TOKENS, part->layers.first + l - part->to_layer, p, (uint32_t)(from % TOKENS),
                part->heads.first + h - part->to_head, bytes);
    return true;
}

/* The first layers of a destination as a cache of its own: a get may still write the others. */
static kvcl_cache_h first_layers(world_t *w, const part_t *part, kvcl_cache_h cache, uint32_t layers)
{
    const dims_t        d      = {layers, part->local.tokens, part->local.heads};
    const kvcl_layout_t layout = layout_of(&d, part->n_local);
    kvcl_cache_params_t params = KVCL_CACHE_PARAMS_INIT;
    void                *bases[MOST_LAYERS];
    size_t              bytes[MOST_LAYERS];
    kvcl_cache_h        first;
    uint32_t            l;

    for (l = 0; l < layers; ++l) {
        bases[l] = kvcl_cache_base(cache, l);
        bytes[l] = part->n_local * block_bytes(&d) / layers;
    }
    params.n_bases    = layers;
    params.bases      = bases;
    params.base_bytes = bytes;
    KVCL_TRY(kvcl_cache_create(w->ctx, "first layers", &layout, &params, &first));
    return first;
}

/* layers: that many, from the first on, are read and compared; at least one. */
static void check_bytes(world_t *w, const part_t *part, kvcl_cache_h cache, uint32_t layers)
{
    const dims_t   *d    = &part->local;
    const size_t   bytes = block_bytes(d) / d->layers * layers;
    const uint64_t owner = (uint64_t)((w->rank + 1) % w->size);
    uint8_t        *got  = malloc(bytes), want[VECTOR];
    kvcl_cache_h   first = first_layers(w, part, cache, layers);
    uint32_t       l, p, t, h, bad = 0;
    size_t         b;

    for (b = 0; b < part->n_local; ++b) {
        KVCL_TRY(kvcl_cache_read_block(first, (uint32_t)b, got, bytes));
        for (l = 0; l < layers; ++l) {
            for (p = 0; p < KV; ++p) {
                for (t = 0; t < d->tokens; ++t) {
                    for (h = 0; h < d->heads; ++h) {
                        if (!source_of(part, owner, l, p, ((uint64_t)b * d->tokens) + t, h, want)) {
                            memset(want, OLD, sizeof(want));
                        }
                        bad += (memcmp(vector_at(d, got, l, p, t, h), want, VECTOR) != 0) ? 1 : 0;
                    }
                }
            }
        }
    }
    CHECK(w, bad == 0, "%u vectors differ: layers %u-%u at %u, heads %u-%u at %u, tokens %u-%u at %u of blocks of %u",
          bad, part->layers.first, part->layers.end, part->to_layer, part->heads.first, part->heads.end, part->to_head,
          part->tokens.first, part->tokens.end, part->to_token, d->tokens);
    kvcl_cache_destroy(first);
    free(got);
}

/* 0 to n - 1. */
static uint32_t some(world_t *w, uint32_t n)
{
    w->rnd = (w->rnd * UINT64_C(6364136223846793005)) + UINT64_C(1442695040888963407);
    return (uint32_t)((w->rnd >> 33) % n);
}

static void choose(world_t *w, part_t *part)
{
    static const uint32_t sizes[] = {TOKENS, TOKENS, TOKENS / 4, 2 * TOKENS, 1};
    uint32_t              tokens, n_layers, n_heads;

    *part          = (part_t){.n = 1 + some(w, KEYS)};
    n_layers       = 1 + some(w, LAYERS);
    n_heads        = 1 + some(w, HEADS);
    part->layers   = (kvcl_range_t){some(w, LAYERS - n_layers + 1), 0};
    part->heads    = (kvcl_range_t){some(w, HEADS - n_heads + 1), 0};
    part->to_layer = some(w, MOST_LAYERS - LAYERS + 1);
    part->to_head  = some(w, 2);
    part->layers.end = part->layers.first + n_layers;
    part->heads.end  = part->heads.first + n_heads;
    part->local      = (dims_t){n_layers + part->to_layer, sizes[some(w, 5)], n_heads + part->to_head};
    tokens           = (uint32_t)part->n * TOKENS;
    part->tokens.first = some(w, tokens);
    part->tokens.end   = part->tokens.first + 1 + some(w, tokens - part->tokens.first);
    part->to_token     = some(w, part->local.tokens);
    if (some(w, 3) == 0) { /* whole lists */
        part->tokens   = (kvcl_range_t){0, tokens};
        part->to_token = 0;
    }
    part->n_local = (part->to_token + part->tokens.end - part->tokens.first + part->local.tokens - 1) /
                    part->local.tokens;
}

static kvcl_cache_h make_destination(world_t *w, const part_t *part)
{
    kvcl_layout_t layout = layout_of(&part->local, part->n_local);
    uint8_t       *bytes = malloc(block_bytes(&part->local));
    kvcl_cache_h  cache;
    size_t        i;

    KVCL_TRY(kvcl_cache_create(w->ctx, "parts got", &layout, NULL, &cache));
    memset(bytes, OLD, block_bytes(&part->local));
    for (i = 0; i < part->n_local; ++i) {
        KVCL_TRY(kvcl_cache_write_block(cache, (uint32_t)i, bytes, block_bytes(&part->local)));
    }
    free(bytes);
    return cache;
}

/* Posts the get of a part; its layers are waited for in turn if flags has KVCL_LAYERWISE. */
static void get_part(world_t *w, kvcl_store_h store, const kvcl_key_t *keys, part_t *part, uint64_t flags,
                     kvcl_status_t want)
{
    const kvcl_layout_t layout  = layout_of(&stored, 1);
    kvcl_xfer_params_t  params  = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t          wanted  = {.layers = part->layers, .heads = part->heads, .tokens = part->tokens}, local;
    kvcl_cache_h        cache   = make_destination(w, part);
    uint32_t            *ids    = malloc(part->n_local * sizeof(*ids)), i;
    kvcl_status_t       again[KEYS];
    part_t              now = *part; /* before the library writes the statuses */
    kvcl_req_h          req;

    memset(now.status, 0, sizeof(now.status)); /* all are KVCL_OK while layers arrive */
    for (i = 0; i < part->n_local; ++i) {
        ids[i] = i;
    }
    local        = kvcl_sel_of(ids, part->n_local);
    local.layers = (kvcl_range_t){part->to_layer, part->local.layers};
    local.heads  = (kvcl_range_t){part->to_head, part->local.heads};
    local.tokens = (kvcl_range_t){part->to_token, part->to_token + part->tokens.end - part->tokens.first};
    params.flags  = flags;
    params.status = again;
    KVCL_TRY(kvcl_store_get_part(store, keys, part->n, &layout, &wanted, cache, &local, part->status, &params, &req));
    for (i = 0; ((flags & KVCL_LAYERWISE) != 0) && (want == KVCL_OK) && (i < part->local.layers); ++i) {
        kvcl_status_t status = kvcl_req_layer_wait(req, i, KVCL_WAIT_FOREVER);

        CHECK(w, status == ((i < part->to_layer) ? KVCL_ERR_OUT_OF_RANGE : KVCL_OK), "layer %u: %s", i,
              kvcl_status_text(status));
        if (i >= part->to_layer) {
            check_bytes(w, &now, cache, i + 1);
        }
    }
    CHECK(w, !(flags & KVCL_LAYERWISE) ||
                 (kvcl_req_layer_test(req, part->local.layers) == KVCL_ERR_OUT_OF_RANGE), "a layer beyond the last");
    CHECK(w, wait_for(req) == want, "get_part");
    CHECK(w, memcmp(again, part->status, part->n * sizeof(*again)) == 0, "params.status differs");
    check_bytes(w, part, cache, part->local.layers);
    kvcl_cache_destroy(cache);
    free(ids);
}

/* A get that is canceled ends, and writes nothing afterwards. */
static void cancel(world_t *w, kvcl_store_h store, const kvcl_key_t *keys, uint64_t flags)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    part_t             part   = {.local = stored, .n_local = KEYS, .n = KEYS};
    const size_t       bytes  = block_bytes(&stored);
    kvcl_cache_h       cache  = make_destination(w, &part);
    uint8_t            *then = malloc(KEYS * bytes), *now = malloc(bytes);
    uint32_t           ids[KEYS], i;
    kvcl_sel_t         local = {.blocks = ids, .n_blocks = KEYS};
    kvcl_status_t      status;
    kvcl_req_h         req;

    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
    }
    params.flags = flags;
    KVCL_TRY(kvcl_store_get_part(store, keys, KEYS, NULL, NULL, cache, &local, part.status, &params, &req));
    kvcl_req_cancel(req);
    status = wait_for(req);
    CHECK(w, (status == KVCL_OK) || (status == KVCL_ERR_CANCELED), "%s", kvcl_status_text(status));
    for (i = 0; i < KEYS; ++i) {
        CHECK(w, (part.status[i] == KVCL_OK) || (status == KVCL_ERR_CANCELED), "block %u: %s", i,
              kvcl_status_text(part.status[i]));
        KVCL_TRY(kvcl_cache_read_block(cache, i, then + (i * bytes), bytes));
    }
    nap(1000000);
    for (i = 0; i < KEYS; ++i) {
        KVCL_TRY(kvcl_cache_read_block(cache, i, now, bytes));
        CHECK(w, memcmp(then + (i * bytes), now, bytes) == 0, "block %u changed after the end", i);
    }
    kvcl_cache_destroy(cache);
    free(then);
    free(now);
}

static void random_parts(world_t *w, uint64_t flags, unsigned rounds)
{
    kvcl_key_t   keys[KEYS], some_keys[KEYS];
    kvcl_store_h store = open_store(w, keys);
    part_t       part;
    uint32_t     absent;

    w->rnd = w->seed + (uint64_t)w->rank;
    while (rounds-- > 0) {
        choose(w, &part);
        memcpy(some_keys, keys, sizeof(keys));
        get_part(w, store, some_keys, &part, flags, KVCL_OK);
        absent            = some(w, (uint32_t)part.n);
        some_keys[absent] = key_of("nowhere", 0, rounds);
        get_part(w, store, some_keys, &part, flags, KVCL_ERR_NOT_FOUND);
        CHECK(w, (part.status[absent] == KVCL_ERR_NOT_FOUND) &&
                     ((part.n == 1) || (part.status[(absent + 1) % part.n] == KVCL_OK)), "statuses");
        cancel(w, store, keys, flags);
    }
    sync_all(w);
    kvcl_store_close(store);
}

void test_parts(world_t *w)
{
    random_parts(w, 0, 40);
}

void test_parts_layers(world_t *w)
{
    random_parts(w, KVCL_LAYERWISE, 20);
}

/* More blocks than fit into the library's buffer of 32 MiB; some of them are absent. */
void test_parts_rounds(world_t *w)
{
    enum { BIG = 6 << 20, MANY = 14, PIECE = 4096 };
    const kvcl_layout_t  layout = KVCL_LAYOUT_NHD(.layers = 2, .kv = 1, .blocks = MANY, .tokens = 1, .heads = 1,
                                                  .head_dim = BIG / 2, .elem_bytes = 1);
    const kvcl_layout_t  half   = KVCL_LAYOUT_BYTES(MANY, BIG / 2);
    kvcl_store_params_t  params = KVCL_STORE_PARAMS_INIT;
    kvcl_sel_t           second = {.layers = {1, 2}}, local;
    uint8_t              *bytes = malloc(BIG);
    kvcl_status_t        status[MANY];
    kvcl_key_t           keys[MANY];
    kvcl_cache_h         cache, to;
    uint32_t             ids[MANY], i, j, bad = 0;
    kvcl_store_h         store;
    kvcl_req_h           req;

    if (w->size > 2) {
        free(bytes);
        return; /* each rank needs 240 MiB */
    }
    params.block_bytes = BIG;
    params.dram_bytes  = (uint64_t)MANY * BIG;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    KVCL_TRY(kvcl_cache_create(w->ctx, "rounds", &layout, NULL, &cache));
    KVCL_TRY(kvcl_cache_create(w->ctx, "halves", &half, NULL, &to));
    for (i = 0; i < MANY; ++i) {
        ids[i]  = i;
        keys[i] = key_of("rounds", (uint64_t)w->rank, i);
        for (j = 0; j < BIG; j += PIECE) {
            memset(bytes + j, (int)(1 + ((i + (j / PIECE)) % 251)), PIECE);
        }
        KVCL_TRY(kvcl_cache_write_block(cache, i, bytes, BIG));
    }
    CHECK(w, DO(kvcl_store_put(store, keys, MANY, cache, ids, NULL, &req)) == KVCL_OK, "put");
    keys[0] = key_of("nowhere", 1, 0);
    keys[7] = key_of("nowhere", 1, 7);
    local   = kvcl_sel_of(ids, MANY);
    CHECK(w, DO(kvcl_store_get_part(store, keys, MANY, &layout, &second, to, &local, status, NULL, &req)) ==
                 KVCL_ERR_NOT_FOUND, "get");
    for (i = 0; i < MANY; ++i) {
        CHECK(w, status[i] == (((i == 0) || (i == 7)) ? KVCL_ERR_NOT_FOUND : KVCL_OK), "block %u: %s", i,
              kvcl_status_text(status[i]));
        KVCL_TRY(kvcl_cache_read_block(to, i, bytes, BIG / 2));
        for (j = 0; j < BIG / 2; j += PIECE) {
            const uint32_t want = (status[i] == KVCL_OK) ? 1 + ((i + (((BIG / 2) + j) / PIECE)) % 251) : 0;
            bad += ((bytes[j] != want) || (memcmp(&bytes[j], &bytes[j + 1], PIECE - 1) != 0)) ? 1 : 0;
        }
    }
    CHECK(w, bad == 0, "%u pieces differ", bad);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_cache_destroy(to);
    free(bytes);
}
