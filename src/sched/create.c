/*
 * Making and ending a scheduler. It owns all memory that decisions use, taken here once.
 */
#include "config.h"
#include "sched/sched.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <stdlib.h>

static kvcl_status_t read_params(const kvcl_sched_params_t *from, kvcl_sched_params_t *params)
{
    kvcl_status_t status = KVCL_OK;

    *params = (kvcl_sched_params_t)KVCL_SCHED_PARAMS_INIT;
    if (from != NULL) {
        status = kvcl_struct_in(params, from, KVCL_UP_TO(kvcl_sched_params_t, max_holds), sizeof(*params),
                                "kvcl_sched_params_t");
    }
    if ((status == KVCL_OK) && (params->flags != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_params_t.flags is not 0");
    }
    if ((status == KVCL_OK) && ((params->max_insts > 65536) || (params->max_requests > (1u << 24)))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_params_t: max_insts %u is at most 65536, max_requests "
                           "%u at most 16777216", (unsigned)params->max_insts, (unsigned)params->max_requests);
    }
    params->max_insts    = (params->max_insts == 0) ? 1024 : params->max_insts;
    params->max_requests = (params->max_requests == 0) ? 65536 : params->max_requests;
    params->max_blocks   = (params->max_blocks == 0) ? 16384 : params->max_blocks;
    params->max_holds    = (params->max_holds == 0) ? 65536 : params->max_holds;
    return status;
}

static void free_parts(kvcl_sched_t *s)
{
    free(s->models);
    free(s->held);
    free(s->own);
    free(s->stamp);
    free(s->index);
    free(s->cand_of);
    free(s->model_of);
    free(s->known);
    free(s->scratch);
    free(s->copy);
    free(s->job.inst);
    free(s->job.cand);
    free(s->job.dec);
    kvcl_learn_fini(&s->learn);
    kvcl_follow_fini(&s->follow);
    kvcl_hot_fini(&s->hot);
}

static void *take(bool *ok_p, size_t n, size_t size)
{
    void *array = calloc(n, size);

    *ok_p = *ok_p && (array != NULL);
    return array;
}

static kvcl_status_t make_parts(kvcl_sched_t *s, const kvcl_sched_model_h *models)
{
    const size_t  n      = s->params.max_insts;
    kvcl_status_t status = kvcl_learn_init(&s->learn, s->params.max_insts);
    bool          ok     = true;
    size_t        i;

    status      = (status == KVCL_OK) ? kvcl_follow_init(&s->follow, s->params.max_requests) : status;
    status      = (status == KVCL_OK) ? kvcl_hot_init(&s->hot) : status;
    s->models   = take(&ok, s->n_models, sizeof(*s->models));
    s->held     = take(&ok, n, sizeof(*s->held));
    s->own      = take(&ok, n, sizeof(*s->own));
    s->stamp    = take(&ok, n, sizeof(*s->stamp));
    s->index    = take(&ok, n, sizeof(*s->index));
    s->cand_of  = take(&ok, n, sizeof(*s->cand_of));
    s->model_of = take(&ok, n, sizeof(*s->model_of));
    s->scratch  = take(&ok, n, sizeof(*s->scratch));
    s->known    = take(&ok, n, sizeof(*s->known));
    s->copy     = take(&ok, n, sizeof(*s->copy));
    s->job.inst = take(&ok, n, sizeof(*s->job.inst));
    s->job.cand = take(&ok, n, sizeof(*s->job.cand));
    s->job.dec  = take(&ok, n, sizeof(*s->job.dec));
    if ((status != KVCL_OK) || !ok) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a scheduler of %zu instances and %u requests", n,
                         (unsigned)s->params.max_requests);
    }
    for (i = 0; i < s->n_models; ++i) {
        s->models[i] = models[i];
    }
    kvcl_rand_seed(&s->rand, s->params.seed);
    return KVCL_OK;
}

kvcl_status_t kvcl_sched_create(const char *policy, const kvcl_sched_model_h *models, size_t n_models,
                                const kvcl_sched_params_t *params, kvcl_sched_h *sched_p)
{
    const char          *call = "kvcl_sched_create";
    kvcl_choice_t       choice[KVCL_POLICY_KINDS];
    kvcl_sched_params_t known;
    kvcl_sched_t        *s;
    kvcl_status_t       status;
    size_t              i;

    if ((policy == NULL) || (models == NULL) || (n_models == 0) || (n_models > UINT32_MAX) || (sched_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: policy, models or sched_p is NULL, or there is no model", call);
    }
    status = read_params(params, &known);
    for (i = 0; (status == KVCL_OK) && (i < n_models); ++i) {
        status = kvcl_handle_check(models[i], KVCL_KIND_SCHED_MODEL, call);
    }
    status = (status == KVCL_OK) ? kvcl_policy_parse(policy, choice) : status;
    if (status != KVCL_OK) {
        return status;
    }
    s = kvcl_object_alloc(KVCL_KIND_SCHED, sizeof(*s));
    if (s == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a scheduler", call);
    }
    for (i = 0; i < KVCL_POLICY_KINDS; ++i) {
        s->choice[i] = choice[i];
    }
    s->params   = known;
    s->n_models = n_models;
    status      = make_parts(s, models);
    if (status != KVCL_OK) {
        free_parts(s);
        kvcl_object_free(s);
        return status;
    }
    *sched_p = s;
    return KVCL_OK;
}

void kvcl_sched_destroy(kvcl_sched_h sched)
{
    if (kvcl_handle_may_free(sched, KVCL_KIND_SCHED, "kvcl_sched_destroy")) {
        free_parts(sched);
        kvcl_object_free(sched);
    }
}
