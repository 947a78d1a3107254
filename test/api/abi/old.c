/*
 * A program that was built with the first headers: its structs, written out here as they were then, are shorter than
 * this library's. Every call gives it what it knew, and writes no byte behind its structs.
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

/* Memory for structs of that program, and what must stay as it is behind them. */
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

/* No size of any version: refused with both numbers, nothing is written. */
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

/* A newer program: what this library does not know is 0. */
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
    no_sizes(&w);
    newer(&w);
    world_close(&w);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return (failed == 0) ? 0 : 1;
}
