/*
 * Copy jobs (copy.h): the queue of each class, the choice of the next slice, and its copy. Engine lock, dropped while a
 * slice is copied.
 */
#include "config.h"
#include "xfer/copy.h"
#include "xfer/xfer.h"

enum { SLICE_BYTES = 512 * 1024, DEVICE_SLICE_BYTES = 8 << 20 };

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
    copy->cold   = copy->cold || (to - from >= KVCL_COPY_COLD_BYTES);
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

bool kvcl_copy_work(kvcl_context_h ctx)
{
    kvcl_copy_t   *copy = pick(ctx);
    uint64_t      from, to, slice;
    kvcl_status_t status;

    if (copy == NULL) {
        return false;
    }
    kvcl_list_del(&copy->link); /* round robin: a short job does not wait for the end of a long one */
    kvcl_list_add_tail(jobs(ctx, copy->background), &copy->link);
    from       = copy->next;
    slice      = kvcl_runs_by_device(&copy->runs) ? DEVICE_SLICE_BYTES : SLICE_BYTES;
    to         = (copy->total - from > slice) ? from + slice : copy->total;
    copy->next = to;
    ++copy->active;
    kvcl_unlock_quietly(ctx);
    if (copy->cold) {
        status = kvcl_runs_copy_cold(&copy->runs, from, to);
    } else {
        status = kvcl_runs_copy(&copy->runs, from, to);
    }
    kvcl_relock(ctx);
    --copy->active;
    if (status != KVCL_OK) {
        kvcl_copy_stop(copy, status);
        return true;
    }
    end_if_idle(copy);
    return true;
}
