/*
 * The paths to a peer and its memory, as kvcl_query_path and kvcl_query_memory report them, compared with those that
 * transfers then take: cases of conform_rma. Over loop, its faults determine the path.
 */
#include "conform_decisions.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 8, BLOCK = 100000, MEM = 300000 };

/* The text for a rank, or its beginning. */
static const char *path_text(const cf_t *cf, int rank)
{
    if (strcmp(cf->path, "loop") == 0) {
        return cf->native ? "loop, native" : cf->overtakes ? "loop, served: the fault no_rma of the loop" : "loop";
    }
    if (strcmp(cf->path, "auto") == 0) {
        return (rank == cf->rank) ? "loop" : cf->native ? "rdma, native (rc_" : "mapped (posix)";
    }
    return (strcmp(cf->path, "shm") == 0) ? "mapped (" : "served (tcp/lo";
}

void cf_query_path(cf_t *cf)
{
    char text[256], cut[8];
    int  rank, round;

    for (round = 0; round < 2; ++round) { /* the second query sends no message */
        for (rank = 0; rank < cf->size; ++rank) {
            const char *want = path_text(cf, rank);
            bool       whole = (strchr(want, '(') == NULL);

            CF_OK(cf, kvcl_query_path(cf->world, rank, text, sizeof(text)));
            if (whole ? (strcmp(text, want) != 0) : (strncmp(text, want, strlen(want)) != 0)) {
                fprintf(stderr, "path to rank %d: \"%s\", not \"%s\"\n", rank, text, want);
                CF_CHECK(cf, !"the decision");
            }
            CF_CHECK(cf, strstr(text, "RDMA: ") == NULL);
            CF_OK(cf, kvcl_query_path(cf->world, rank, cut, sizeof(cut)));
            CF_CHECK(cf, strncmp(cut, text, sizeof(cut) - 1) == 0);
        }
        cf_fence(cf);
    }
}

/* ---- memory ---- */

/* What the query reports about one memory, by kind and bytes. */
typedef struct seen {
    cf_t       *cf;
    const char *what, *name;
    unsigned   n;
    uint64_t   bytes;
    char       get_path[16], put_path[16], why[128], put_why[128];
} seen_t;

static void look(void *arg, const kvcl_memory_info_t *info)
{
    seen_t *seen = arg;
    cf_t   *cf   = seen->cf;

    CF_CHECK(cf, info->size == sizeof(*info));
    if ((strcmp(info->what, seen->what) != 0) || (strcmp(info->name, seen->name) != 0)) {
        return;
    }
    ++seen->n;
    seen->bytes = info->bytes;
    snprintf(seen->get_path, sizeof(seen->get_path), "%s", info->get_path);
    snprintf(seen->put_path, sizeof(seen->put_path), "%s", info->put_path);
    snprintf(seen->why, sizeof(seen->why), "%s", info->why);
    snprintf(seen->put_why, sizeof(seen->put_why), "%s", info->put_why);
}

static seen_t seen_of(cf_t *cf, int rank, const char *what, const char *name)
{
    seen_t seen = {.cf = cf, .what = what, .name = name};

    CF_OK(cf, kvcl_query_memory(cf->world, rank, look, &seen));
    return seen;
}

static kvcl_context_stats_t stats_of(cf_t *cf)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    CF_OK(cf, kvcl_context_stats(cf->ctx, &stats));
    return stats;
}

/* After every rank has moved these bytes over path: they are counted as native, as served, or neither. */
static void counted(cf_t *cf, const kvcl_context_stats_t *before, const char *path, uint64_t bytes, bool put)
{
    kvcl_context_stats_t now    = stats_of(cf);
    bool                 native = (strcmp(path, "native") == 0), served = (strcmp(path, "served") == 0);
    unsigned             i;

    CF_CHECK(cf, now.bytes_native - before->bytes_native == (native ? bytes : 0));
    if (put) { /* which rank serves a put depends on its size */
        return;
    }
    for (i = 0; served && (now.bytes_served - before->bytes_served < bytes) && (i < 20000); ++i) {
        cf_sleep_us(cf, 1000); /* the owner counts when the getter has reported the end */
        now = stats_of(cf);
    }
    CF_CHECK(cf, now.bytes_served - before->bytes_served == (served ? bytes : 0));
}

/* get_path, put_path and why belong together, and to the configuration. */
static void plausible(cf_t *cf, const seen_t *seen, bool ours)
{
    const char *get = seen->get_path, *put = seen->put_path;
    bool       loop = (strcmp(cf->path, "loop") == 0), rdma = (strcmp(cf->path, "auto") == 0) && cf->native;

    CF_CHECK(cf, seen->n == 1);
    CF_CHECK(cf, (strcmp(get, "served") == 0) || (strcmp(get, "native") == 0) || (seen->why[0] == '\0'));
    CF_CHECK(cf, (strcmp(get, "served") != 0) || (seen->why[0] != '\0'));
    CF_CHECK(cf, (strcmp(put, get) != 0) || (strcmp(seen->put_why, seen->why) == 0));
    CF_CHECK(cf, ((strcmp(put, "served") == 0) || (strcmp(put, "native") == 0)) == (seen->put_why[0] != '\0'));
    CF_CHECK(cf, (strcmp(put, "served") != 0) || (strcmp(seen->why, "cma") != 0) ||
                     (strcmp(seen->put_why, "over cma memory is only read") == 0));
    if (cf->native) {
        CF_CHECK(cf, (strcmp(get, "native") == 0) && (strcmp(seen->why, loop ? "loop" : "rdma") == 0));
    } else if (cf->overtakes) {
        CF_CHECK(cf, (strcmp(get, "served") == 0) && (strstr(seen->why, "no_rma") != NULL));
    } else if (loop) {
        CF_CHECK(cf, strcmp(get, "loop") == 0);
    } else if (strcmp(cf->path, "tcp") == 0) {
        CF_CHECK(cf, (strcmp(get, "served") == 0) && (strstr(seen->why, "messages only") != NULL));
    } else {
        CF_CHECK(cf, ours ? (strcmp(get, "mapped") == 0) : (strcmp(get, "mapped") != 0));
        CF_CHECK(cf, ours || (strcmp(get, "served") == 0) || (strcmp(seen->why, rdma ? "rdma" : "cma") == 0));
    }
}

static void of_caches(cf_t *cf, bool ours)
{
    static const uint32_t low_ids[] = {0, 1, 2, 3}, high_ids[] = {4, 5, 6, 7}; /* written, and read */
    const uint64_t        moved  = (uint64_t)BLOCKS / 2 * BLOCK;
    kvcl_layout_t         layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    const char            *name  = ours ? "allocated" : "registered";
    cf_cache_t            cache  = cf_cache(cf, name, &layout, ours);
    kvcl_sel_t            low    = cf_sel(low_ids, BLOCKS / 2), high = cf_sel(high_ids, BLOCKS / 2);
    int                   next   = (cf->rank + 1) % cf->size;
    kvcl_context_stats_t  before = stats_of(cf);
    kvcl_req_h            req;
    seen_t                seen;

    CF_CHECK(cf, seen_of(cf, next, "cache", name).n == 0); /* not described yet */
    cf_fence(cf);
    CF_OK(cf, kvcl_get(cf->world, next, cache.h, &high, &low, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    seen = seen_of(cf, next, "cache", name);
    plausible(cf, &seen, ours);
    CF_CHECK(cf, seen.bytes == (uint64_t)BLOCKS * BLOCK);
    counted(cf, &before, seen.get_path, moved, false);
    cf_fence(cf);
    before = stats_of(cf);
    cf_fence(cf);
    CF_OK(cf, kvcl_put(cf->world, next, cache.h, &high, &low, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    counted(cf, &before, seen.put_path, moved, true);
    cf_fence(cf);
    cf_cache_end(&cache);
}

static void of_imports(cf_t *cf, bool ours, unsigned rights)
{
    cf_mem_t             mem    = cf_mem(cf, MEM, ours, rights);
    char                 *buf   = malloc(MEM);
    int                  next   = (cf->rank + 1) % cf->size;
    kvcl_context_stats_t before = stats_of(cf);
    seen_t               seen   = seen_of(cf, next, "memory", "");
    kvcl_req_h           req;

    CF_CHECK(cf, (seen.n == 1) && (seen.bytes == MEM));
    CF_CHECK(cf, ((rights & KVCL_READ) != 0) == (seen.get_path[0] != '\0'));
    CF_CHECK(cf, ((rights & KVCL_WRITE) != 0) == (seen.put_path[0] != '\0'));
    cf_fence(cf);
    if (rights & KVCL_READ) {
        plausible(cf, &seen, ours);
        CF_OK(cf, kvcl_get_bytes(mem.of[next], 0, buf, MEM, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        counted(cf, &before, seen.get_path, MEM, false);
    } else {
        memset(buf, 1, MEM);
        CF_OK(cf, kvcl_put_bytes(mem.of[next], 0, buf, MEM, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        counted(cf, &before, seen.put_path, MEM, true);
    }
    cf_fence(cf);
    cf_mem_end(cf, &mem);
    CF_CHECK(cf, seen_of(cf, next, "memory", "").n == 0);
    free(buf);
}

/* With device memory, host memory and a device's are mixed: then a native memory may be served. */
void cf_query_memory(cf_t *cf)
{
    unsigned ours;

    for (ours = 0; (ours < 2) && (getenv("CF_DEVICE") == NULL); ++ours) {
        of_caches(cf, ours != 0);
        of_imports(cf, ours != 0, KVCL_READ_WRITE);
        of_imports(cf, ours != 0, KVCL_READ);
        of_imports(cf, ours != 0, KVCL_WRITE);
    }
}
