/*
 * The order of a prefill queue: the checks of the public call; a queue policy (queue_*.c) chooses.
 */
#include "config.h"
#include "sched/sched.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

static bool sound(const kvcl_sched_waiting_t *w)
{
    return (w->size == sizeof(*w)) && (w->arrival_s - w->arrival_s == 0) && (w->deadline_s - w->deadline_s == 0) &&
           (w->prefill_s >= 0) && (w->prefill_s <= 1e18) && (w->error - w->error == 0) &&
           (w->ready_s - w->ready_s == 0) && (w->weight >= 0) && (w->weight <= 1e18);
}

kvcl_status_t kvcl_sched_order(kvcl_sched_h sched, double now_s, const kvcl_sched_waiting_t *waiting, size_t stride,
                               size_t n, size_t *next_p, size_t *late, size_t cap, size_t *n_late_p)
{
    const char          *call  = "kvcl_sched_order";
    kvcl_status_t       status = kvcl_handle_check(sched, KVCL_KIND_SCHED, call);
    kvcl_policy_queue_t queue  = {.w = waiting, .stride = stride, .n = n, .now_s = now_s, .late = late, .cap = cap};
    const kvcl_choice_t *choice;
    size_t              i;

    if ((status == KVCL_OK) && (n > 0)) {
        status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_sched_waiting_t, tokens), "kvcl_sched_waiting_t", call);
    }
    if ((status == KVCL_OK) && (((waiting == NULL) && (n > 0)) || (next_p == NULL) || (n_late_p == NULL) ||
                                ((late == NULL) && (cap > 0)))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: waiting, next_p, n_late_p or late is NULL", call);
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        if (!sound(kvcl_queue_at(&queue, i))) {
            status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: waiting prefill %zu has a number that is negative or not "
                               "finite, or another size than sizeof(kvcl_sched_waiting_t)", call, i);
        }
    }
    if (status != KVCL_OK) {
        return status;
    }
    choice    = &sched->choice[KVCL_POLICY_QUEUE];
    *next_p   = (n == 0) ? 0 : choice->policy->next(&queue, choice->arg);
    *n_late_p = queue.n_late;
    return KVCL_OK;
}
