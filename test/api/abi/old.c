/*
 * A program built with the first headers. Its structs, copied here as they were then, are shorter than this library's.
 * Every call fills the fields it knew, and writes no byte after its structs.
 */
#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CANARY = 0x5a, BEHIND = 256, KEYS = 4, BYTES = 512 };

typedef struct old_store_stats {
    size_t   size;
    uint64_t blocks, published, evicted, gets, hits, stale, corrupt, entries, lookups;
} old_store_stats_t;

typedef struct old_context_stats {
    size_t   size;
    uint64_t bytes_out, bytes_in, bytes_served, ops;
} old_context_stats_t;

static int passed, failed;

#define IS(_cond)                                                                                       \
    do {                                                                                                \
        if (_cond) {                                                                                    \
            ++passed;                                                                                   \
        } else {                                                                                        \
            ++failed;                                                                                   \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #_cond, kvcl_last_error()); \
        }                                                                                               \
    } while (0)

/* Memory for structs of that program, and the bytes after them that must not change. */
typedef struct room {
    union {
        uint64_t      align;
        unsigned char bytes[4096 + BEHIND];
    } u;
} room_t;

static void *fresh(room_t *room, size_t size, bool sized)
{
    memset(room->u.bytes, CANARY, sizeof(room->u.bytes));
    if (sized) {
        memset(room->u.bytes, 0, size);
        memcpy(room->u.bytes, &size, sizeof(size));
    }
    return room->u.bytes;
}

static bool untouched(const room_t *room, size_t from)
{
    for (; from < sizeof(room->u.bytes); ++from) {
        if (room->u.bytes[from] != CANARY) {
            return false;
        }
    }
    return true;
}

typedef struct world {
    kvcl_context_h ctx;
    kvcl_comm_h    comm;
    kvcl_cache_h   cache;
    kvcl_store_h   store;
    kvcl_key_t     keys[KEYS];
} world_t;

static void world_open(world_t *w)
{
    kvcl_init_params_t  init   = KVCL_INIT_PARAMS_INIT;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS, BYTES);
    uint32_t            ids[KEYS];
    kvcl_req_h          req;
    uint32_t            i;

    init.boot          = "self";
    params.dram_bytes  = (uint64_t)64 * BYTES;
    params.block_bytes = BYTES;
    KVCL_TRY(kvcl_init(&init, &w->ctx));
    KVCL_TRY(kvcl_comm_world(w->ctx, &w->comm));
    KVCL_TRY(kvcl_cache_create(w->ctx, "main", &layout, NULL, &w->cache));
    KVCL_TRY(kvcl_store_open(w->comm, &params, &w->store));
    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
        kvcl_key_from_bytes(NULL, 0, &i, sizeof(i), &w->keys[i]);
    }
    KVCL_TRY(kvcl_store_put(w->store, w->keys, KEYS, w->cache, ids, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, UINT64_C(10000000000)));
}

static void world_close(world_t *w)
{
    kvcl_store_close(w->store);
    kvcl_cache_destroy(w->cache);
    kvcl_finalize(w->ctx);
}

static void statistics(world_t *w)
{
    old_context_stats_t *of_context;
    old_store_stats_t   *stats, now;
    kvcl_status_t       status = KVCL_ERR_INTERNAL;
    room_t              room;

    stats = fresh(&room, sizeof(*stats), true);
    IS(kvcl_store_stats(w->store, (kvcl_store_stats_t *)(void *)stats) == KVCL_OK);
    IS((stats->size == sizeof(*stats)) && (stats->blocks == KEYS) && (stats->published == KEYS));
    IS(untouched(&room, sizeof(*stats)));
    now   = *stats;
    stats = fresh(&room, sizeof(*stats), true);
    IS(kvcl_store_rank_stats(w->store, 0, (kvcl_store_stats_t *)(void *)stats, NULL) == KVCL_OK);
    IS((stats->blocks == now.blocks) && (stats->entries == now.entries) && (stats->entries != 0));
    IS(untouched(&room, sizeof(*stats)));
    stats = fresh(&room, sizeof(*stats), false);
    IS(kvcl_store_all_stats(w->store, 1, (kvcl_store_stats_t *)(void *)stats, sizeof(*stats), &status,
                            NULL) == KVCL_OK);
    IS((status == KVCL_OK) && (stats->size == sizeof(*stats)) && (stats->published == KEYS));
    IS(untouched(&room, sizeof(*stats)));
    of_context = fresh(&room, sizeof(*of_context), true);
    IS(kvcl_context_stats(w->ctx, (kvcl_context_stats_t *)(void *)of_context) == KVCL_OK);
    IS((of_context->size == sizeof(*of_context)) && (of_context->ops > 0));
    IS(untouched(&room, sizeof(*of_context)));
}

typedef struct old_event {
    uint64_t   seq;
    uint32_t   kind, tier;
    kvcl_key_t key;
} old_event_t;

typedef struct old_item {
    kvcl_key_t key;
    uint64_t   tenant;
    uint32_t   bytes, tier;
} old_item_t;

static bool is_ours(const world_t *w, const kvcl_key_t *key)
{
    unsigned i;

    for (i = 0; (i < KEYS) && !kvcl_key_equal(key, &w->keys[i]); ++i) {
    }
    return i < KEYS;
}

/* The elements of an array are a stride apart, which was an element's size then. */
static void arrays(world_t *w)
{
    uint64_t    cursor = 0;
    old_event_t *events;
    old_item_t  *items;
    size_t      n = 0, i, good = 0;
    room_t      room;

    events = fresh(&room, KEYS * sizeof(*events), false);
    IS(kvcl_store_events(w->store, 0, 0, 0, (kvcl_store_event_t *)(void *)events, sizeof(*events), KEYS, &n,
                         NULL) == KVCL_OK);
    for (i = 0; i < n; ++i) {
        good += (events[i].seq == i + 1) && (events[i].kind == KVCL_STORE_STORED) && is_ours(w, &events[i].key);
    }
    IS((n == KEYS) && (good == n) && untouched(&room, n * sizeof(*events)));
    items = fresh(&room, KEYS * sizeof(*items), false);
    IS(kvcl_store_list(w->store, 0, &cursor, (kvcl_store_item_t *)(void *)items, sizeof(*items), KEYS, &n, NULL,
                       NULL) ==
       KVCL_OK);
    for (i = 0, good = 0; i < n; ++i) {
        good += (items[i].bytes == BYTES) && (items[i].tier == KVCL_STORE_TIER_DRAM) &&
                is_ours(w, &items[i].key);
    }
    IS((n == KEYS) && (good == n) && untouched(&room, n * sizeof(*items)));
    IS(kvcl_store_list(w->store, 0, &cursor, (kvcl_store_item_t *)(void *)items, 47, KEYS, &n, NULL,
                       NULL) ==
       KVCL_ERR_INVALID_PARAM);
    IS((strstr(kvcl_last_error(), "stride is 47") != NULL) && (strstr(kvcl_last_error(), "48") != NULL));
}

/* The info of a recv, which is written after the post. */
static void recv_info(world_t *w)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_recv_info_t   *info;
    kvcl_req_h         sent, got;
    char               in[4];
    room_t             room;

    info        = fresh(&room, sizeof(*info), true);
    params.info = info;
    KVCL_TRY(kvcl_recv_bytes(w->comm, 0, 7, in, sizeof(in), &params, &got));
    KVCL_TRY(kvcl_send_bytes(w->comm, 0, 7, "abc", 4, NULL, &sent));
    IS(kvcl_req_wait(got, UINT64_C(10000000000)) == KVCL_OK);
    KVCL_TRY(kvcl_req_wait(sent, UINT64_C(10000000000)));
    IS((info->source == 0) && (info->tag == 7) && (info->bytes == 4) && (info->size == sizeof(*info)));
    IS(untouched(&room, sizeof(*info)));
    info = fresh(&room, 16, true);
    IS(kvcl_recv_bytes(w->comm, 0, 7, in, sizeof(in), &params, &got) == KVCL_ERR_INVALID_PARAM);
    IS((strstr(kvcl_last_error(), "is 16,") != NULL) && (strstr(kvcl_last_error(), "32") != NULL));
}

/* Structs that never grow: reserved fields are refused until they have a meaning. */
static void reserved(world_t *w)
{
    kvcl_sel_t             good = kvcl_sel_of((const uint32_t[]){0}, 1), bad = good;
    kvcl_reshard_params_t  plan = KVCL_RESHARD_PARAMS_INIT;
    kvcl_reshard_step_t    step;
    kvcl_req_h             req;
    size_t                 n;

    bad.reserved[1] = 1;
    IS(kvcl_get(w->comm, 0, w->cache, &bad, &good, NULL, &req) == KVCL_ERR_INVALID_PARAM);
    IS(strstr(kvcl_last_error(), "reserved") != NULL);
    IS(kvcl_get(w->comm, 0, w->cache, &good, &bad, NULL, &req) == KVCL_ERR_INVALID_PARAM);
    IS(strstr(kvcl_last_error(), "reserved") != NULL);
    plan.layers = plan.heads = plan.source.tp = plan.destination.tp = 1;
    IS(kvcl_reshard_plan(&plan, 0, &step, sizeof(step), 1, &n) == KVCL_OK);
    IS(kvcl_reshard_plan(&plan, 0, &step, sizeof(step) - 8, 1, &n) == KVCL_ERR_INVALID_PARAM);
    plan.source.reserved[0] = 1;
    IS(kvcl_reshard_plan(&plan, 0, &step, sizeof(step), 1, &n) == KVCL_ERR_INVALID_PARAM);
    IS(strstr(kvcl_last_error(), "reserved") != NULL);
}

/* A size of no version is refused with both numbers, and nothing is written. */
static void no_sizes(world_t *w)
{
    room_t room;

    (void)fresh(&room, 8, true);
    IS(kvcl_store_stats(w->store, (kvcl_store_stats_t *)(void *)&room) == KVCL_ERR_INVALID_PARAM);
    IS((strstr(kvcl_last_error(), "is 8,") != NULL) && (strstr(kvcl_last_error(), "80") != NULL));
    IS(untouched(&room, 8));
    (void)fresh(&room, 8, true);
    IS(kvcl_context_stats(w->ctx, (kvcl_context_stats_t *)(void *)&room) == KVCL_ERR_INVALID_PARAM);
    IS((strstr(kvcl_last_error(), "is 8,") != NULL) && (strstr(kvcl_last_error(), "40") != NULL));
    IS(untouched(&room, 8));
}

/* A newer program: fields that this library does not know are 0. */
static void newer(world_t *w)
{
    const size_t size = sizeof(kvcl_store_stats_t) + 64;
    room_t       room;
    size_t       i;

    (void)fresh(&room, size, true);
    memset(room.u.bytes + sizeof(size), 0xff, size - sizeof(size));
    IS(kvcl_store_stats(w->store, (kvcl_store_stats_t *)(void *)&room) == KVCL_OK);
    for (i = sizeof(kvcl_store_stats_t); (i < size) && (room.u.bytes[i] == 0); ++i) {
    }
    IS((i == size) && untouched(&room, size));
}

int main(void)
{
    world_t w;

    world_open(&w);
    statistics(&w);
    arrays(&w);
    recv_info(&w);
    reserved(&w);
    no_sizes(&w);
    newer(&w);
    world_close(&w);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return (failed == 0) ? 0 : 1;
}
