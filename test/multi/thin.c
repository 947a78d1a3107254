/*
 * Workers without pools, used with two kvcl_serve (run_thin.sh). Blocks that one puts are in the servers' pools, in the
 * requested number of copies and on the requested ranks, and the other worker gets them.
 *   thin    rank 2 and rank 3 of four; prints how many checks failed
 */
#include <kvcl/kvcl.h>

#include <string.h>
#include <time.h>

enum { BLOCK = 4096, KEYS = 32, SOME = 8, ALL = KEYS + (3 * SOME), LEAD = 2, OTHER = 3 };

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
    kvcl_cache_h   cache;
    int            rank;
    unsigned       bad;
} me_t;

#define CHECK(_me, _cond, ...)                                                                                         \
    do {                                                                                                               \
        if (!(_cond)) {                                                                                                \
            fprintf(stderr, "rank %d: %s:%d: %s: ", (_me)->rank, __func__, __LINE__, #_cond);                          \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, " [%s]\n", kvcl_last_error());                                                             \
            ++(_me)->bad;                                                                                              \
        }                                                                                                              \
    } while (0)

static kvcl_key_t key_of(const char *name, unsigned i)
{
    kvcl_key_t key;

    kvcl_key_from_bytes(name, strlen(name), &i, sizeof(i), &key);
    return key;
}

static void fill(me_t *me, uint32_t id, uint8_t byte)
{
    uint8_t bytes[BLOCK];

    memset(bytes, byte, sizeof(bytes));
    KVCL_TRY(kvcl_cache_write_block(me->cache, id, bytes, sizeof(bytes)));
}

static kvcl_status_t finish(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

/* Put blocks first to first + n - 1 of a set, each of its own byte. Their source is overwritten when this returns. */
static kvcl_status_t put(me_t *me, const char *name, unsigned first, unsigned n, kvcl_xfer_params_t *params,
                         uint8_t *copies)
{
    kvcl_key_t    keys[KEYS] = {{{0}}};
    uint32_t      ids[KEYS] = {0}, i;
    kvcl_req_h    req;
    kvcl_status_t status;

    for (i = 0; i < n; ++i) {
        keys[i] = key_of(name, first + i);
        ids[i]  = i;
        fill(me, i, (uint8_t)(first + i));
    }
    params->copies = copies;
    status         = finish(kvcl_store_put(me->store, keys, n, me->cache, ids, params, &req), &req);
    for (i = 0; i < n; ++i) {
        fill(me, i, 0xee);
    }
    return status;
}

static uint64_t held(me_t *me, int rank)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    KVCL_TRY(kvcl_store_rank_stats(me->store, rank, &stats, NULL));
    return stats.pool_published;
}

/* Wait until a rank has put it; the first get must return the right bytes. */
static void expect(me_t *me, const char *name, unsigned i, uint8_t byte)
{
    struct timespec nap = {0, 1000000};
    kvcl_key_t      key = key_of(name, i);
    uint32_t        id  = KEYS;
    uint8_t         bytes[BLOCK], present = 0;
    kvcl_req_h      req;
    kvcl_status_t   status;

    while (!present) {
        KVCL_TRY(kvcl_store_exists(me->store, &key, 1, &present, NULL));
        nanosleep(&nap, NULL);
    }
    status = finish(kvcl_store_get(me->store, &key, 1, me->cache, &id, NULL, NULL, &req), &req);
    CHECK(me, status == KVCL_OK, "%s %u: %s", name, i, kvcl_status_text(status));
    KVCL_TRY(kvcl_cache_read_block(me->cache, id, bytes, sizeof(bytes)));
    CHECK(me, (bytes[0] == byte) && (memcmp(bytes, bytes + 1, BLOCK - 1) == 0), "%s %u: %u", name, i, bytes[0]);
}

static void copies_are(me_t *me, const uint8_t *copies, unsigned n, unsigned want)
{
    unsigned i;

    for (i = 0; i < n; ++i) {
        CHECK(me, copies[i] == want, "block %u: %u copies", i, copies[i]);
    }
}

static void places(me_t *me)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint8_t            copies[KEYS];
    uint64_t           before[2], now[2];

    params.replicas = 1;
    CHECK(me, put(me, "a", 0, KEYS, &params, copies) == KVCL_OK, "put");
    copies_are(me, copies, KEYS, 1);
    before[0] = held(me, 0);
    before[1] = held(me, 1);
    CHECK(me, before[0] + before[1] >= KEYS, "%d blocks are held", (int)(before[0] + before[1]));
    CHECK(me, put(me, "a", 0, KEYS, &params, copies) == KVCL_OK, "again");
    copies_are(me, copies, KEYS, 1);
    params.replicas = 2;
    CHECK(me, put(me, "a", KEYS, SOME, &params, copies) == KVCL_OK, "two copies");
    copies_are(me, copies, SOME, 2);
    params.replicas = 1;
    params.flags    = KVCL_PUT_TO;
    params.to_rank  = 1;
    CHECK(me, put(me, "a", KEYS + SOME, SOME, &params, copies) == KVCL_OK, "to rank 1");
    now[0] = held(me, 0);
    now[1] = held(me, 1);
    CHECK(me, (now[0] == before[0] + SOME) && (now[1] == before[1] + (2 * SOME)), "%d and %d more",
          (int)(now[0] - before[0]), (int)(now[1] - before[1]));
    params.to_rank = 0;
    CHECK(me, put(me, "a", KEYS + (2 * SOME), SOME, &params, copies) == KVCL_OK, "to rank 0");
    CHECK(me, held(me, 0) == now[0] + SOME, "rank 0 has not got them");
}

static void refusals(me_t *me)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(2, 3 * BLOCK);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         key    = key_of("x", 0);
    uint32_t           id     = 0;
    kvcl_cache_h       large;
    kvcl_req_h         req;

    params.to_rank = 1;
    CHECK(me, put(me, "x", 0, 1, &params, NULL) == KVCL_ERR_INVALID_PARAM, "no flag");
    params.flags   = KVCL_PUT_TO;
    params.to_rank = 9;
    CHECK(me, put(me, "x", 0, 1, &params, NULL) == KVCL_ERR_UNKNOWN_RANK, "rank 9");
    params.to_rank = OTHER;
    CHECK(me, put(me, "x", 0, 1, &params, NULL) == KVCL_ERR_UNSUPPORTED, "a rank without a pool");
    CHECK(me, strstr(kvcl_last_error(), "rank 3") != NULL, "who is not named");
    KVCL_TRY(kvcl_cache_create(me->ctx, "large", &layout, NULL, &large));
    CHECK(me, kvcl_store_put(me->store, &key, 1, large, &id, NULL, &req) == KVCL_ERR_UNSUPPORTED, "no such size");
    kvcl_cache_destroy(large);
    KVCL_TRY(finish(kvcl_store_publish(me->store, &key, 1, me->cache, &id, NULL, &req), &req));
    CHECK(me, kvcl_store_put(me->store, &key, 1, me->cache, &id, NULL, &req) == KVCL_ERR_BUSY, "a published block");
    KVCL_TRY(kvcl_store_withdraw(me->store, me->cache, &id, 1));
}

/* A get returns the new bytes, and never the old ones afterwards. Followers of this rank get no event of blocks that
 * only passed it. */
static void replace(me_t *me)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_key_t         key   = key_of("a", 0);
    uint32_t           id    = 0;
    kvcl_req_h         req;

    KVCL_TRY(kvcl_store_stats(me->store, &stats));
    CHECK(me, (stats.events == 0) && (stats.blocks == 0), "%d events, %d blocks", (int)stats.events,
          (int)stats.blocks);
    fill(me, id, 0xab);
    CHECK(me, finish(kvcl_store_upsert(me->store, &key, 1, me->cache, &id, NULL, &req), &req) == KVCL_OK, "upsert");
    expect(me, "a", 0, 0xab);
}

/* ---- values: in a block with their head, in a block of their own, in parts ---- */

enum { VALUE_MAX = 25 * BLOCK };
static const size_t value_bytes[] = {0, 100, BLOCK, (3 * BLOCK) + 7, VALUE_MAX};
enum { VALUES = sizeof(value_bytes) / sizeof(value_bytes[0]) };

static void fill_value(uint8_t *bytes, unsigned v, unsigned version)
{
    size_t i;

    for (i = 0; i < value_bytes[v]; ++i) {
        bytes[i] = (uint8_t)((i * 7u) + (i >> 9) + v + (version * 50u));
    }
}

static void put_values(me_t *me)
{
    static uint8_t bytes[VALUE_MAX];
    uint64_t       before;
    kvcl_req_h     req;
    unsigned       v;

    for (v = 0; v < VALUES; ++v) {
        kvcl_key_t key = key_of("v", v);
        fill_value(bytes, v, 0);
        CHECK(me, finish(kvcl_store_put_value(me->store, &key, bytes, value_bytes[v], NULL, &req), &req) == KVCL_OK,
              "value %u", v);
        memset(bytes, 0xee, sizeof(bytes));
        before = held(me, 0) + held(me, 1);
        fill_value(bytes, v, 0);
        CHECK(me, finish(kvcl_store_put_value(me->store, &key, bytes, value_bytes[v], NULL, &req), &req) == KVCL_OK,
              "value %u again", v);
        CHECK(me, held(me, 0) + held(me, 1) == before, "value %u was put twice", v);
    }
    for (v = 3; v < VALUES; ++v) {
        kvcl_key_t    key   = key_of("v", v);
        kvcl_extent_t piece = {.addr = bytes, .bytes = value_bytes[v]};
        kvcl_value_t  value = {.extents = &piece, .n_extents = 1};
        fill_value(bytes, v, 1);
        CHECK(me, finish(kvcl_store_upsert_values(me->store, &key, 1, &value, NULL, &req), &req) == KVCL_OK,
              "new value %u", v);
    }
}

static void get_values(me_t *me)
{
    static uint8_t got[VALUE_MAX], want[VALUE_MAX];
    kvcl_req_h     req;
    unsigned       v;

    for (v = 0; v < VALUES; ++v) {
        kvcl_key_t key = key_of("v", v);
        fill_value(want, v, (v >= 3) ? 1 : 0);
        CHECK(me, finish(kvcl_store_get_value(me->store, &key, got, value_bytes[v], NULL, &req), &req) == KVCL_OK,
              "value %u", v);
        CHECK(me, memcmp(got, want, value_bytes[v]) == 0, "value %u has other bytes", v);
    }
}

int main(void)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS + 1, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_xfer_params_t  plain  = KVCL_XFER_PARAMS_INIT;
    me_t                me     = {.bad = 0};
    unsigned            i;

    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    me.rank            = kvcl_comm_rank(me.world);
    params.dir_entries = 65536;
    KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
    KVCL_TRY(kvcl_store_open(me.world, &params, &me.store));
    if (me.rank == LEAD) {
        places(&me);
        replace(&me);
        refusals(&me);
        put_values(&me);
        get_values(&me);
        CHECK(&me, put(&me, "ready", 7, 1, &plain, NULL) == KVCL_OK, "ready");
        expect(&me, "seen", 9, 9);
    } else {
        expect(&me, "ready", 7, 7);
        get_values(&me);
        for (i = 0; i < ALL; ++i) {
            expect(&me, "a", i, (i == 0) ? 0xab : (uint8_t)i);
        }
        CHECK(&me, put(&me, "seen", 9, 1, &plain, NULL) == KVCL_OK, "seen");
    }
    printf("rank %d: %u wrong\n", me.rank, me.bad);
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return (me.bad == 0) ? 0 : 1;
}
