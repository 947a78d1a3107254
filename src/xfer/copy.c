/*
 * Copy jobs (copy.h).
 */
#include "config.h"
#include "xfer/copy.h"

enum { SLICE_BYTES = 512 * 1024 };

void kvcl_copy_start(kvcl_context_h ctx, kvcl_copy_t *copy, uint64_t from, uint64_t to)
{
    kvcl_assert_locked(ctx);
    copy->next   = from;
    copy->total  = to;
    copy->active = 0;
    copy->cold   = (to - from >= KVCL_COPY_COLD_BYTES);
    copy->status = KVCL_OK;
    kvcl_list_add_tail(kvcl_copy_jobs(ctx), &copy->link);
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

bool kvcl_copy_work(kvcl_list_t *jobs, kvcl_context_h ctx)
{
    kvcl_copy_t *copy = NULL, *job;
    uint64_t    from, to;

    kvcl_list_foreach (job, jobs, kvcl_copy_t, link) {
        if ((job->next < job->total) || (job->active == 0)) {
            copy = job;
            break;
        }
    }
    if (copy == NULL) {
        return false;
    }
    from       = copy->next;
    to         = (copy->total - from > SLICE_BYTES) ? from + SLICE_BYTES : copy->total;
    copy->next = to;
    ++copy->active;
    pthread_mutex_unlock(&ctx->engine.lock);
    if (copy->cold) {
        kvcl_runs_copy_cold(&copy->runs, from, to);
    } else {
        kvcl_runs_copy(&copy->runs, from, to);
    }
    pthread_mutex_lock(&ctx->engine.lock);
    --copy->active;
    end_if_idle(copy);
    return true;
}
