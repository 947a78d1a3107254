/*
 * A cluster for tests of the scheduler: a model with round constants, instances, holds and one request.
 *
 * The model "round": prefill 0.001 m seconds (no constant, no attention), decode 0.01 + 0.001 batch + 1e-6 context,
 * 1000 bytes of KV a token, 1e6 bytes a second: a block of 100 tokens takes 0.1 s to compute and 0.1 s to fetch.
 */
#ifndef KVCL_TEST_SCHED_SCENE_H
#define KVCL_TEST_SCHED_SCENE_H

#include "test_base.h"
#include <kvcl/kvcl_sched.h>

#include <string.h>

enum { SCENE_INSTS = 16, SCENE_HOLDS = 64 };

typedef struct scene {
    kvcl_sched_model_h    model;
    kvcl_sched_h          sched;
    kvcl_sched_inst_t     inst[SCENE_INSTS];
    size_t                n;
    kvcl_sched_hold_t     hold[SCENE_HOLDS];
    size_t                n_holds;
    kvcl_sched_req_t      req;
    kvcl_sched_decision_t out;
    double                now;
} scene_t;

static const char scene_round[] = "kvcl-model 1\nname round\nsource a test\nprefill 0 0.001 0 0\nprefill_error 0.05\n"
                                  "decode 0.01 0.001 1e-6\ndecode_error 0.05\nkv_bytes 1000\nnic 1e6\n"
                                  "transfer_error 0.05\n";

/* n instances of both roles; a request of 10 blocks of 100 tokens. */
static inline void scene_open_model(scene_t *scene, const char *policy, size_t n, const char *text)
{
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    size_t              i;

    memset(scene, 0, sizeof(*scene));
    params.seed      = 7;
    params.max_insts = 64;
    ck_assert_int_eq(kvcl_sched_model_parse("scene", text, strlen(text), &scene->model), KVCL_OK);
    ck_assert_msg(kvcl_sched_create(policy, &scene->model, 1, &params, &scene->sched) == KVCL_OK, "%s",
                  kvcl_last_error());
    scene->n = n;
    for (i = 0; i < n; ++i) {
        scene->inst[i]      = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
        scene->inst[i].id   = (uint32_t)i;
        scene->inst[i].host = (uint32_t)i;
    }
    scene->req              = (kvcl_sched_req_t)KVCL_SCHED_REQ_INIT;
    scene->req.id           = 1;
    scene->req.tokens       = 1000;
    scene->req.block_tokens = 100;
    scene->req.n_keys       = 10;
    scene->out              = (kvcl_sched_decision_t){.size = sizeof(scene->out)};
}

static inline void scene_open(scene_t *scene, const char *policy, size_t n)
{
    scene_open_model(scene, policy, n, scene_round);
}

static inline void scene_close(scene_t *scene)
{
    kvcl_sched_destroy(scene->sched);
    kvcl_sched_model_free(scene->model);
}

static inline void scene_hold(scene_t *scene, uint32_t inst, uint32_t first, uint32_t blocks)
{
    scene->hold[scene->n_holds++] = (kvcl_sched_hold_t){.inst = inst, .first = first, .blocks = blocks, .tier = 1};
}

/* Decide; the id of the prefill instance. */
static inline uint32_t scene_decide(scene_t *scene)
{
    ck_assert_msg(kvcl_sched_decide(scene->sched, scene->now, &scene->req, scene->inst, sizeof(scene->inst[0]),
                                    scene->n, scene->hold, scene->n_holds, &scene->out) == KVCL_OK, "%s",
                  kvcl_last_error());
    return scene->out.prefill;
}

static inline void scene_near(double is, double should)
{
    ck_assert_msg((is >= should - 1e-6) && (is <= should + 1e-6), "%g instead of %g", is, should);
}

#endif
