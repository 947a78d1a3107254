/*
 * The paths between ranks, and to memory of both kinds: each rank allocates some by KVCL and registers some of its own,
 * and the others import both. Owns that memory. Collective: each rank fills one row, rank 0 reports all rows. A rank
 * that fails takes part until all have agreed that one has failed: no rank waits for it.
 */
#include "config.h"
#include "tools/info/info.h"

#include <stdlib.h>
#include <string.h>

/* The two kinds differ in size, by which kvcl_query_memory tells them apart. */
enum { ALLOCATED_BYTES = 4096, REGISTERED_BYTES = 2 * ALLOCATED_BYTES, EXPORT_MAX = 1024 };

typedef struct exported {
    uint64_t allocated_len, registered_len;
    uint8_t  allocated[EXPORT_MAX], registered[EXPORT_MAX];
} exported_t;

typedef struct shown {
    void       *bytes;
    kvcl_mem_h allocated, registered;
    exported_t own;
    exported_t *all; /* of all ranks */
} shown_t;

static bool export_one(const job_t *job, kvcl_mem_h mem, uint8_t *buf, uint64_t *len_p)
{
    size_t len  = EXPORT_MAX;
    bool   good = job_ok(job, kvcl_mem_export(mem, KVCL_READ_WRITE, buf, &len), "kvcl_mem_export");

    *len_p = len;
    return good;
}

static bool make_memory(const job_t *job, shown_t *shown)
{
    shown->bytes = calloc(1, REGISTERED_BYTES);
    shown->all   = calloc((size_t)job->size, sizeof(*shown->all));
    if ((shown->bytes == NULL) || (shown->all == NULL)) {
        job_complain(job, "out of memory");
        return false;
    }
    return job_ok(job, kvcl_mem_alloc(job->ctx, ALLOCATED_BYTES, NULL, &shown->allocated), "kvcl_mem_alloc") &&
           job_ok(job, kvcl_mem_register(job->ctx, shown->bytes, REGISTERED_BYTES, KVCL_MEM_HOST, NULL,
                                         &shown->registered), "kvcl_mem_register") &&
           export_one(job, shown->allocated, shown->own.allocated, &shown->own.allocated_len) &&
           export_one(job, shown->registered, shown->own.registered, &shown->own.registered_len);
}

/* After a barrier of the ranks that use it. */
static void free_memory(shown_t *shown)
{
    kvcl_mem_free(shown->allocated);
    kvcl_mem_free(shown->registered);
    free(shown->bytes);
    free(shown->all);
}

/* ---- one pair ---- */

static void look(void *arg, const kvcl_memory_info_t *info)
{
    info_path_t *path = arg;

    if (strcmp(info->what, "memory") == 0) {
        memory_text(info, (info->bytes == ALLOCATED_BYTES) ? path->allocated : path->registered, MEMORY_TEXT_MAX);
    }
}

static bool query_one(const job_t *job, const exported_t *from, int rank, info_path_t *path)
{
    kvcl_rmem_h allocated = NULL, registered = NULL;
    bool        good;

    good = job_ok(job, kvcl_query_path(job->world, rank, path->path, sizeof(path->path)), "kvcl_query_path") &&
           (from->allocated_len <= EXPORT_MAX) && (from->registered_len <= EXPORT_MAX) &&
           job_ok(job, kvcl_rmem_import(job->world, rank, from->allocated, from->allocated_len, &allocated),
                  "kvcl_rmem_import") &&
           job_ok(job, kvcl_rmem_import(job->world, rank, from->registered, from->registered_len, &registered),
                  "kvcl_rmem_import") &&
           job_ok(job, kvcl_query_memory(job->world, rank, look, path), "kvcl_query_memory");
    kvcl_rmem_free(allocated);
    kvcl_rmem_free(registered);
    return good;
}

static bool gather(const job_t *job, info_path_t *row, info_path_t *all, info_path_fn_t fn, void *arg)
{
    const size_t size = (size_t)job->size;
    size_t       from, to;

    for (to = 0; to < size; ++to) {
        if (!job_gather(job, &row[to], sizeof(*row), all, JOB_TIMEOUT_NS)) {
            return false;
        }
        for (from = 0; (job->rank == 0) && (from < size); ++from) {
            all[from].path[INFO_PATH_MAX - 1] = all[from].allocated[MEMORY_TEXT_MAX - 1] = '\0';
            all[from].registered[MEMORY_TEXT_MAX - 1]                                    = '\0';
            fn(arg, from, to, &all[from]);
        }
    }
    return true;
}

bool info_paths(const job_t *job, info_path_fn_t fn, void *arg)
{
    info_path_t *row = calloc((size_t)job->size, sizeof(*row));
    info_path_t *all = calloc((size_t)job->size, sizeof(*all));
    shown_t     shown;
    bool        good;
    int         to;

    memset(&shown, 0, sizeof(shown));
    good = (row != NULL) && (all != NULL) && make_memory(job, &shown);
    good = job_agree(job, good, JOB_TIMEOUT_NS) &&
           job_gather(job, &shown.own, sizeof(shown.own), shown.all, JOB_TIMEOUT_NS);
    for (to = 0; good && (to < job->size); ++to) {
        good = query_one(job, &shown.all[to], to, &row[to]);
    }
    good = job_agree(job, good, JOB_TIMEOUT_NS) && gather(job, row, all, fn, arg); /* all have read the memory */
    free_memory(&shown);
    free(row);
    free(all);
    return good;
}
