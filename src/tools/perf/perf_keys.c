/*
 * The memory per key (store-keys): a directory just large enough for all keys, which rank 0 puts into its pool. All
 * ranks open their part and report the growth of their resident memory. Only rank 0 has a pool, so the growth of the
 * other ranks is the directory's alone; rank 0's growth beyond that and the blocks is the index of a holder.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PUT_AT_ONCE 4096u

typedef struct keys_note {
    int64_t  grown; /* bytes */
    uint64_t wrong; /* absent keys */
} keys_note_t;

/* Resident bytes of this process, shared memory included. */
static int64_t resident(void)
{
    FILE     *file = fopen("/proc/self/statm", "r");
    long long total, pages = 0;

    if (file != NULL) {
        pages = (fscanf(file, "%lld %lld", &total, &pages) == 2) ? pages : 0;
        fclose(file);
    }
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static bool open_store(perf_t *perf)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    const uint64_t      count  = perf->opt->count;

    /* Three quarters full, the recommended size of a directory. */
    params.dir_entries = ((count * 4) / 3 / (uint64_t)perf->job->size) + 1;
    if (perf->initiator) {
        params.block_bytes = perf->opt->unit;
        params.dram_bytes  = count * perf->opt->unit;
    }
    return job_ok(perf->job, kvcl_store_open(perf->job->world, &params, &perf->store), "kvcl_store_open");
}

static bool put_all(perf_t *perf)
{
    const size_t       count   = (size_t)perf->opt->count;
    perf_result_t      *result = &perf->result;
    kvcl_xfer_params_t params  = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status  = KVCL_OK;
    kvcl_req_h         req     = NULL;
    uint64_t           start;
    size_t             at, n;

    params.timeout_ns = PERF_TIMEOUT_NS;
    for (at = 0; (at < count) && (status == KVCL_OK); at += n) {
        n      = (count - at < PUT_AT_ONCE) ? count - at : PUT_AT_ONCE;
        start  = clock_ns();
        status = kvcl_store_put(perf->store, perf->keys + at, n, perf->near, perf->near_ids + at, &params, &req);
        status = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
        hist_add(&result->ns, clock_ns() - start);
        result->wall_ns += clock_ns() - start;
        result->blocks += n;
        ++result->iters;
    }
    return job_ok(perf->job, status, "kvcl_store_put");
}

static bool count_absent(perf_t *perf, uint64_t *absent_p)
{
    const size_t  count    = (size_t)perf->opt->count;
    uint8_t       *present = calloc(count, 1);
    kvcl_status_t status;
    size_t        i;

    if (present == NULL) {
        job_complain(perf->job, "out of memory");
        return false;
    }
    status    = kvcl_store_exists(perf->store, perf->keys, count, present, NULL);
    *absent_p = 0;
    for (i = 0; i < count; ++i) {
        *absent_p += (present[i] == 1) ? 0u : 1u;
    }
    free(present);
    return job_ok(perf->job, status, "kvcl_store_exists");
}

static bool reckon(perf_t *perf, const keys_note_t *mine)
{
    const int      size   = perf->job->size;
    const double   count  = (double)perf->opt->count;
    keys_note_t    *all   = calloc((size_t)size, sizeof(*all));
    int64_t        others = 0;
    bool           good;
    int            i;

    good = (all != NULL) && job_gather(perf->job, mine, sizeof(*mine), all, PERF_TIMEOUT_NS);
    for (i = 1; good && (i < size); ++i) {
        others += all[i].grown;
    }
    if (good) {
        const double each = (size > 1) ? (double)others / (size - 1) : 0;
        perf->result.wrong       += all[0].wrong;
        perf->result.dir_bytes    = (each * size) / count;
        perf->result.holder_bytes = (((double)all[0].grown - each) / count) - (double)perf->opt->unit;
    }
    free(all);
    return good;
}

bool perf_keys(perf_t *perf)
{
    keys_note_t mine = {0, 0};
    bool        good;

    perf->keys = calloc((size_t)perf->opt->count, sizeof(*perf->keys));
    if (perf->keys == NULL) {
        job_complain(perf->job, "out of memory");
        return false;
    }
    if (!perf_make_keys(perf, 0, 0, 0, (size_t)perf->opt->count)) {
        return false;
    }
    mine.grown  = -resident();
    good        = open_store(perf) && (!perf->initiator || put_all(perf)) && job_barrier(perf->job, PERF_TIMEOUT_NS);
    mine.grown += resident();
    return good && (!perf->initiator || count_absent(perf, &mine.wrong)) && reckon(perf, &mine);
}
