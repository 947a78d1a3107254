/*
 * The time of a decision: p50 and p99 over many requests, each with its own holders, for 64 and 1,000 instances and
 * prompts of 250 blocks. A quarter of the instances hold a run of random length, keys are given, queues are random, and
 * 500 requests are in flight.
 *   sched_bench [policy]      default: KVCL's
 */
#include <kvcl/kvcl_sched.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 250, ROUNDS = 20000, SETS = 64, IN_FLIGHT = 500 };

static const char model_text[] = "kvcl-model 1\nname bench\nsource Mooncake FAST'25 fig. 14, fitted\n"
                                 "prefill 0.0666 1.100e-4 7.381e-10 2.626e-6\nprefill_error 0.08\n"
                                 "decode 0.0263 0.00023 3.47e-8\ndecode_error 0.05\nkv_bytes 327680\nnic 87e9\n"
                                 "load 97e9\n";

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state = (state * UINT64_C(6364136223846793005)) + UINT64_C(1442695040888963407);
    return (uint32_t)(((state >> 33) * n) >> 31);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return ((uint64_t)ts.tv_sec * UINT64_C(1000000000)) + (uint64_t)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void fill(kvcl_sched_inst_t *inst, uint32_t n, kvcl_sched_hold_t *holds, size_t n_holds)
{
    uint32_t i;
    size_t   k;

    for (i = 0; i < n; ++i) {
        inst[i]                = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
        inst[i].id             = i;
        inst[i].role           = (i % 2 == 0) ? KVCL_SCHED_PREFILL : KVCL_SCHED_DECODE;
        inst[i].queue_s        = 0.01 * below(300);
        inst[i].sends          = below(4);
        inst[i].running        = below(40);
        inst[i].context_tokens = (uint64_t)inst[i].running * 8000;
        inst[i].kv_total       = 1330000;
        inst[i].kv_free        = 1330000 - inst[i].context_tokens;
    }
    for (k = 0; k < n_holds; ++k) {
        holds[k] = (kvcl_sched_hold_t){.inst = below(n), .first = 0, .blocks = 1 + below(BLOCKS), .tier = 1};
    }
}

static void run(const char *policy, uint32_t n)
{
    kvcl_sched_params_t   params = KVCL_SCHED_PARAMS_INIT;
    kvcl_sched_decision_t out    = {.size = sizeof(out)};
    kvcl_sched_measured_t measured = KVCL_SCHED_MEASURED_INIT;
    kvcl_sched_req_t      req    = KVCL_SCHED_REQ_INIT;
    const size_t          n_holds = n / 4;
    kvcl_sched_inst_t     *inst  = calloc((size_t)n * SETS, sizeof(*inst));
    kvcl_sched_hold_t     *holds = calloc(n_holds * SETS, sizeof(*holds));
    kvcl_key_t            *keys  = calloc(BLOCKS, sizeof(*keys));
    uint64_t              *took  = calloc(ROUNDS, sizeof(*took)), from;
    kvcl_sched_model_h    model;
    kvcl_sched_h          sched;
    uint32_t              i, set;

    if ((inst == NULL) || (holds == NULL) || (keys == NULL) || (took == NULL)) {
        exit(1);
    }
    for (i = 0; i < SETS; ++i) {
        fill(inst + ((size_t)i * n), n, holds + (i * n_holds), n_holds);
    }
    KVCL_TRY(kvcl_sched_model_parse("bench", model_text, strlen(model_text), &model));
    KVCL_TRY(kvcl_sched_create(policy, &model, 1, &params, &sched));
    req.keys         = keys;
    req.n_keys       = BLOCKS;
    req.block_tokens = 512;
    req.tokens       = (uint64_t)BLOCKS * 512;
    req.ttft_s       = 30;
    req.tbt_s        = 0.1;
    for (i = 0; i < ROUNDS; ++i) {
        set    = below(SETS);
        req.id = i + 1;
        keys[below(BLOCKS)].bytes[below(32)] ^= 1;
        from = now_ns();
        KVCL_TRY(kvcl_sched_decide(sched, 0.01 * i, &req, inst + ((size_t)set * n), sizeof(*inst), n,
                                   holds + (set * n_holds), n_holds, &out));
        took[i]     = now_ns() - from;
        measured.id = (i >= IN_FLIGHT) ? i - IN_FLIGHT + 1 : 0;
        KVCL_TRY(kvcl_sched_finished(sched, 0.01 * i, &measured));
    }
    qsort(took, ROUNDS, sizeof(*took), by_value);
    printf("%6u instances x %d blocks, %zu runs: p50 %.2f us, p99 %.2f us\n", (unsigned)n, BLOCKS, n_holds,
           (double)took[ROUNDS / 2] / 1e3, (double)took[ROUNDS / 100 * 99] / 1e3);
    kvcl_sched_destroy(sched);
    kvcl_sched_model_free(model);
    free(inst);
    free(holds);
    free(keys);
    free(took);
}

int main(int argc, char **argv)
{
    const char *policy = (argc > 1) ? argv[1] : "";

    run(policy, 64);
    run(policy, 1000);
    return 0;
}
