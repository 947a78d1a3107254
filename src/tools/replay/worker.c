/*
 * Owns the life cycle of a worker: the size of its pool, opening and closing its cache and store, the loop over its
 * requests, and the verification of blocks. Request i belongs to rank i % size. worker_request.c serves one request;
 * worker_order.c orders requests and broadcasts.
 */
#include "config.h"
#include "tools/replay/worker.h"

#include "tools/clock.h"
#include "tools/pattern.h"
#include "tools/replay/death.h"
#include "tools/progress_bar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG_REPORTS_MAX 5u
#define SLOW_BYTES_PER_S  100000000u /* the slowest memory that a deadline allows for */

static uint64_t physical_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool worker_room_fits(const replay_options_t *opt, uint64_t blocks, char *error, size_t cap)
{
    if (blocks > physical_bytes() / opt->block_bytes) {
        snprintf(error, cap, "this needs %" PRIu64 " blocks of %" PRIu64 " bytes, %.1f GiB on each rank, more than the "
                 "machine has: give a --pool or fewer bytes per token",
                 blocks, opt->block_bytes, (double)blocks * (double)opt->block_bytes / (1u << 30));
        return false;
    }
    return true;
}

bool worker_pool_fits(const replay_options_t *opt, uint64_t blocks, char *error, size_t cap)
{
    if (blocks < WORKER_POOL_MIN) {
        snprintf(error, cap, "--pool is too small: %u blocks of %" PRIu64 " bytes are the least, %" PRIu64 " bytes",
                 WORKER_POOL_MIN, opt->block_bytes, WORKER_POOL_MIN * opt->block_bytes);
        return false;
    }
    return true;
}

bool worker_size_pool(const replay_options_t *opt, const trace_t *trace, const plan_t *plan, int size,
                      worker_room_t *room, char *error, size_t cap)
{
    const uint64_t own     = opt->in_order ? plan->own_first : plan->own_distinct;
    const uint64_t copies  = plan->all_distinct + (plan->hot_blocks * (uint64_t)size);
    uint64_t       longest = (trace->longest < WORKER_WINDOW_MAX) ? trace->longest : WORKER_WINDOW_MAX;
    uint64_t       entries;

    longest      = (longest < WORKER_POOL_MIN) ? WORKER_POOL_MIN : longest;
    room->blocks = own + plan->hot_blocks + longest;
    if (opt->pool_bytes != REPLAY_POOL_UNLIMITED) {
        if (!worker_pool_fits(opt, opt->pool_bytes / opt->block_bytes, error, cap)) {
            return false;
        }
        /* More than all blocks would be unused memory. */
        room->blocks = (opt->pool_bytes / opt->block_bytes < room->blocks) ? opt->pool_bytes / opt->block_bytes
                                                                           : room->blocks;
    }
    if (!worker_room_fits(opt, room->blocks, error, cap)) {
        return false;
    }
    room->window = (uint32_t)((room->blocks / 2 < longest) ? room->blocks / 2 : longest);
    /* Blocks of one prefix share a home, so any home may list nearly all of them. */
    entries           = room->blocks * (uint64_t)size;
    entries           = (entries < copies) ? entries : copies;
    room->dir_entries = ((entries < WORKER_ENTRIES_MIN) ? WORKER_ENTRIES_MIN : entries) * 2;
    return true;
}

kvcl_status_t worker_keys(const trace_t *trace, const trace_request_t *request, uint32_t n, const kvcl_key_t *root,
                          uint32_t *tokens, kvcl_key_t *keys)
{
    const uint64_t *ids = trace->ids + request->first;
    size_t         got, i;

    /* An id represents the 512 tokens of its block; two words identify them as well. */
    for (i = 0; i < n; ++i) {
        tokens[2 * i]       = (uint32_t)ids[i];
        tokens[(2 * i) + 1] = (uint32_t)(ids[i] >> 32);
    }
    return kvcl_key_chain(root, 0, tokens, 2 * (size_t)n, 2, keys, n, &got);
}

kvcl_status_t worker_finish(worker_t *worker, kvcl_status_t posted, kvcl_req_h req)
{
    return (posted == KVCL_OK) ? job_finish(req, worker->timeout_ns) : posted;
}

void worker_verify(worker_t *worker, const kvcl_key_t *key, uint32_t id)
{
    char         text[KVCL_KEY_HEX_SIZE];
    const size_t at = pattern_check(key->bytes, worker->base + ((size_t)id * worker->opt->block_bytes),
                                    worker->opt->block_bytes);

    if (at == PATTERN_GOOD) {
        return;
    }
    if (++worker->tally.wrong <= WRONG_REPORTS_MAX) {
        job_complain(worker->job, "request %zu: wrong bytes in block %" PRIu32 " for key %s, first at offset %zu",
                     worker->request, id, kvcl_key_format(key, text), at);
    }
}

bool worker_release(worker_t *worker)
{
    worker_held_t *held;
    size_t        i, n_free = 0;

    for (i = 0; i < worker->n_held; ++i) {
        held = &worker->held[i];
        worker_verify(worker, &worker->keys[held->key], held->id);
        if (held->pinned) {
            kvcl_store_unpin_local(worker->store, held->id);
        } else {
            worker->part_ids[n_free++] = held->id;
        }
    }
    worker->n_held = 0;
    return (n_free == 0) ||
           job_ok(worker->job, kvcl_store_free(worker->store, worker->part_ids, n_free), "kvcl_store_free");
}

static bool make_scratch(worker_t *worker)
{
    const size_t longest = (size_t)worker->trace->longest + 1;
    const size_t window  = worker->window;

    worker->keys        = calloc(longest, sizeof(*worker->keys));
    worker->tokens      = calloc(2 * longest, sizeof(*worker->tokens));
    worker->part_keys   = calloc(window, sizeof(*worker->part_keys));
    worker->part_ids    = calloc(window, sizeof(*worker->part_ids));
    worker->part_status = calloc(window, sizeof(*worker->part_status));
    worker->held        = calloc(window, sizeof(*worker->held));
    worker->copies      = calloc(window, sizeof(*worker->copies));
    if ((worker->keys == NULL) || (worker->tokens == NULL) || (worker->part_keys == NULL) ||
        (worker->part_ids == NULL) || (worker->part_status == NULL) || (worker->held == NULL) ||
        (worker->copies == NULL)) {
        job_complain(worker->job, "out of memory");
        return false;
    }
    return true;
}

static bool open_store(worker_t *worker, const worker_room_t *room)
{
    const bool          pool   = worker->opt->store;
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(pool ? room->window : room->blocks,
                                                   (uint32_t)worker->opt->block_bytes);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    if (!job_ok(worker->job,
                kvcl_cache_create(worker->job->ctx, "replay", &layout, NULL, &worker->cache),
                "kvcl_cache_create")) {
        return false;
    }
    worker->base       = kvcl_cache_base(worker->cache, 0);
    params.dir_entries = room->dir_entries;
    if (pool) {
        params.dram_bytes  = room->blocks * worker->opt->block_bytes;
        params.block_bytes = worker->opt->block_bytes;
        params.replicas    = worker->opt->replicas;
        params.nvme        = (worker->opt->nvme != NULL) ? worker->opt->nvme : ""; /* KVCL_STORE_NVME is ignored */
    } else {
        params.cache = worker->cache;
    }
    return job_store_ok(worker->job, kvcl_store_open(worker->job->world, &params, &worker->store));
}

bool worker_open(worker_t *worker, const job_t *job, const replay_options_t *opt, const trace_t *trace,
                 const plan_t *plan, uint64_t salt)
{
    worker_room_t room;
    char          error[256];

    memset(worker, 0, sizeof(*worker));
    pthread_mutex_init(&worker->get_lock, NULL);
    worker->job   = job;
    worker->opt   = opt;
    worker->trace = trace;
    worker->plan  = plan;
    if (!(opt->store ? worker_size_store : worker_size_pool)(opt, trace, plan, job->size, &room, error,
                                                             sizeof(error))) {
        job_complain(job, "%s", error);
        return false;
    }
    worker->window     = room.window;
    worker->timeout_ns = JOB_TIMEOUT_NS + ((uint64_t)job->size * trace->longest * opt->block_bytes *
                                           (UINT64_C(1000000000) / SLOW_BYTES_PER_S));
    kvcl_key_root((salt != 0) ? &salt : NULL, (salt != 0) ? sizeof(salt) : 0, "kvcl_replay", &worker->root);
    return make_scratch(worker) && open_store(worker, &room) &&
           ((opt->kill_rank == REPLAY_KILL_NONE) || death_open(worker, &worker->death));
}

/* With --speed: sleep until the request's time. */
static void keep_pace(worker_t *worker, size_t index)
{
    const double    due_ns = (worker->opt->speed > 0)
                                 ? ((double)worker->trace->requests[index].timestamp_ms * 1e6) / worker->opt->speed
                                 : 0;
    const double    left   = due_ns - (double)(clock_ns() - worker->start_ns);
    struct timespec pause;

    if (left > 0) {
        pause.tv_sec  = (time_t)(left / 1e9);
        pause.tv_nsec = (long)(left - ((double)pause.tv_sec * 1e9));
        nanosleep(&pause, NULL);
    }
}

bool worker_bears(const worker_t *worker, kvcl_status_t status)
{
    return (worker->death != NULL) && ((status == KVCL_ERR_RANK_FAILED) || (status == KVCL_ERR_TIMED_OUT) ||
                                       (status == KVCL_ERR_UNREACHABLE));
}

static bool serve(worker_t *worker, size_t index)
{
    bool good;

    worker->request = index;
    good = worker->opt->store ? worker_serve_from_store(worker, index) : worker_serve_request(worker, index);
    worker->tally.elapsed_ns = clock_ns() - worker->start_ns;
    return good;
}

static bool run_requests(worker_t *worker, progress_bar_t *bar)
{
    const size_t size = (size_t)worker->job->size;
    size_t       i;

    for (i = (size_t)worker->job->rank; i < worker->trace->n_requests; i += size) {
        keep_pace(worker, i);
        if (!worker_broadcasts(worker, i) || !serve(worker, i)) {
            return false;
        }
        death_served(worker->death, i + size);
        progress_bar_update(bar, i);
    }
    return worker_broadcasts(worker, SIZE_MAX);
}

/* Distribute the killed rank's remaining requests among the others. The killed rank does not return from here. */
static bool take_over(worker_t *worker)
{
    const job_t *left = worker_left(worker);
    size_t      i, turn = 0, first;

    if (!death_await(worker->death, &first)) {
        return false;
    }
    for (i = first; i < worker->trace->n_requests; i += (size_t)worker->job->size) {
        if (turn++ % (size_t)left->size != (size_t)left->rank) {
            continue;
        }
        if (!serve(worker, i)) {
            return false;
        }
        ++worker->tally.taken_over;
    }
    return true;
}

const job_t *worker_left(const worker_t *worker)
{
    return (worker->death != NULL) ? death_left(worker->death) : worker->job;
}

bool worker_run(worker_t *worker)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    progress_bar_t     bar;
    bool               good;

    if (!job_barrier(worker->job, worker->timeout_ns)) {
        return false;
    }
    worker->start_ns = clock_ns();
    if ((worker->death != NULL) && !death_start(worker->death)) {
        return false;
    }
    progress_bar_start(&bar, "replaying", worker->trace->n_requests, worker->job->rank == 0);
    good = run_requests(worker, &bar) && ((worker->death == NULL) || take_over(worker));
    progress_bar_end(&bar);
    if (!good) {
        return false;
    }
    if (!worker_passed_turn(worker)) {
        return false;
    }
    if (worker->death == NULL) {
        worker->tally.elapsed_ns = clock_ns() - worker->start_ns;
    } else if (!death_end(worker->death, &worker->tally)) {
        return false;
    }
    KVCL_TRY(kvcl_store_stats(worker->store, &stats));
    worker->tally.evictions = stats.evicted;
    worker->tally.demoted   = stats.demoted;
    worker->tally.promoted  = stats.promoted;
    worker->tally.dropped   = stats.dropped;
    return true;
}

void worker_close(worker_t *worker)
{
    death_close(worker->death);
    kvcl_store_close(worker->store);
    kvcl_cache_destroy(worker->cache);
    free(worker->keys);
    free(worker->tokens);
    free(worker->part_keys);
    free(worker->part_ids);
    free(worker->part_status);
    free(worker->held);
    free(worker->copies);
    pthread_mutex_destroy(&worker->get_lock);
    memset(worker, 0, sizeof(*worker));
}
