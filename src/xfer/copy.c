/*
 * Copy jobs (copy.h): the queue of each class, the choice of the next slice, and its copy. Engine lock, dropped while a
 * slice is copied.
 */
#include "config.h"
#include "xfer/copy.h"
#include "xfer/xfer.h"

enum { SLICE_BYTES = 512 * 1024, LONG_SLICE_BYTES = 8 << 20, WOVEN_BLOCKS = 4, WOVEN_BYTES = 16 << 20 };

static kvcl_list_t *jobs(kvcl_context_h ctx, bool background)
{
    return &kvcl_xfer_state(ctx)->copies[background];
}

void kvcl_copy_start(kvcl_context_h ctx, kvcl_copy_t *copy, uint64_t from, uint64_t to)
{
    kvcl_assert_locked(ctx);
    copy->next   = from;
    copy->total  = to;
    copy->active = 0;
    copy->how    = ((copy->how == KVCL_BULK_CACHED) && (copy->part == NULL)) ? kvcl_bulk_how(to - from) : copy->how;
    copy->status = KVCL_OK;
    kvcl_list_add_tail(jobs(ctx, copy->background), &copy->link);
    kvcl_engine_kick(ctx);
}

static void end_if_idle(kvcl_copy_t *copy)
{
    if ((copy->active == 0) && (copy->next >= copy->total)) {
        kvcl_list_del(&copy->link);
        copy->done(copy, copy->status);
    }
}

void kvcl_copy_stop(kvcl_copy_t *copy, kvcl_status_t status)
{
    if (copy->status == KVCL_OK) {
        copy->status = status;
    }
    copy->next = copy->total;
    end_if_idle(copy);
}

/* The first job of a class that has a slice left. At most one job per copying thread has none. */
static kvcl_copy_t *first_of(kvcl_context_h ctx, bool background)
{
    kvcl_copy_t *job;

    kvcl_list_foreach (job, jobs(ctx, background), kvcl_copy_t, link) {
        if ((job->next < job->total) || (job->active == 0)) {
            return job;
        }
    }
    return NULL;
}

/* The next job: of the upper class, or, by its share, of the lower. */
static kvcl_copy_t *pick(kvcl_context_h ctx)
{
    kvcl_copy_t *upper = first_of(ctx, false), *lower = first_of(ctx, true);

    if ((upper == NULL) || (lower == NULL)) {
        return (upper != NULL) ? upper : lower;
    }
    return kvcl_share_lower(&kvcl_xfer_state(ctx)->copy_share, (unsigned)ctx->config.background_share) ? lower : upper;
}

bool kvcl_copy_can_sum(const kvcl_runs_t *runs)
{
    return kvcl_runs_can_sum(runs) && (runs->dst.block_bytes <= LONG_SLICE_BYTES);
}

size_t kvcl_copy_slice_blocks(uint64_t block)
{
    if (block > WOVEN_BYTES / WOVEN_BLOCKS) {
        return 1;
    }
    return (block > SLICE_BYTES / WOVEN_BLOCKS) ? WOVEN_BLOCKS
                                                : (size_t)(SLICE_BYTES / WOVEN_BLOCKS / block) * WOVEN_BLOCKS;
}

/* In the job's own unit. */
static uint64_t slice_of(const kvcl_copy_t *copy)
{
    const uint64_t block = copy->runs.dst.block_bytes;

    if (copy->part != NULL) {
        return copy->slice;
    }
    if (copy->sums != NULL) {
        return kvcl_copy_slice_blocks(block) * block;
    }
    return kvcl_runs_by_device(&copy->runs) ? LONG_SLICE_BYTES : SLICE_BYTES;
}

/* Lock not held. */
static kvcl_status_t copy_slice(kvcl_copy_t *copy, kvcl_bulk_how_t how, uint64_t from, uint64_t to)
{
    const uint64_t block = copy->runs.dst.block_bytes;
    const bool     large = (how == KVCL_BULK_LARGE);

    if (copy->part != NULL) {
        return copy->part(copy, from, to);
    }
    if (copy->sums != NULL) {
        kvcl_runs_copy_sums(&copy->runs, from / block, (size_t)((to - from) / block), large,
                            copy->sums + (from / block));
        if (large) {
            kvcl_bulk_end();
        }
        return KVCL_OK;
    }
    return large ? kvcl_runs_copy_cold(&copy->runs, from, to) : kvcl_runs_copy(&copy->runs, from, to);
}

bool kvcl_copy_work(kvcl_context_h ctx)
{
    kvcl_copy_t     *copy = pick(ctx);
    uint64_t        from, to, slice, begun;
    kvcl_bulk_how_t how;
    kvcl_status_t   status;

    if (copy == NULL) {
        return false;
    }
    kvcl_list_del(&copy->link); /* round robin: a short job does not wait for the end of a long one */
    kvcl_list_add_tail(jobs(ctx, copy->background), &copy->link);
    from       = copy->next;
    slice      = slice_of(copy);
    to         = (copy->total - from > slice) ? from + slice : copy->total;
    copy->next = to;
    how        = copy->how;
    ++copy->active;
    kvcl_unlock_quietly(ctx);
    begun  = kvcl_bulk_part_begin(how);
    status = copy_slice(copy, how, from, to);
    how    = kvcl_bulk_part_end(how, to - from, begun);
    kvcl_relock(ctx);
    copy->how = how;
    --copy->active;
    if (status != KVCL_OK) {
        kvcl_copy_stop(copy, status);
        return true;
    }
    end_if_idle(copy);
    return true;
}
