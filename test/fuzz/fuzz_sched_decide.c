/*
 * Decisions on reports, holds and requests of any bytes, by every policy: the result names known instances only, its
 * runs cover the prompt's blocks in order, and its numbers are finite.
 */
#include "config.h"
#include <kvcl/kvcl_sched.h>

#include <stdlib.h>
#include <string.h>

enum { INSTS = 6, HOLDS = 12, SCHEDS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static kvcl_sched_h scheds[SCHEDS];
static size_t       n_scheds;

static void make_scheds(void)
{
    static const char text[] = "kvcl-model 1\nname a\nsource b\nprefill 0.01 1e-4 1e-9 1e-6\nprefill_error 0.1\n"
                               "decode 0.01 1e-4 1e-8\ndecode_error 0.1\nkv_bytes 1000\nnic 1e9\nload 1e9\n";
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    kvcl_sched_model_h  model;
    const char          *name, *kind;
    char                policy[128];
    size_t              i;

    params.max_insts    = 16;
    params.max_requests = 8;
    params.max_blocks   = 64;
    if (kvcl_sched_model_parse("fuzz", text, sizeof(text) - 1, &model) != KVCL_OK) {
        abort();
    }
    for (i = 0; (n_scheds < SCHEDS) && (kvcl_sched_policies(i, &name, &kind, NULL, NULL) == KVCL_OK); ++i) {
        (void)snprintf(policy, sizeof(policy), "%s=%s%s", kind, name,
                       (strcmp(kind, "prefill") == 0) ? ",admit=kvcl,queue=edf" : "");
        if (kvcl_sched_create(policy, &model, 1, &params, &scheds[n_scheds++]) != KVCL_OK) {
            abort();
        }
    }
}

/* The next bytes, zeros behind the end. */
static void take(const uint8_t **data, size_t *size, void *to, size_t len)
{
    const size_t have = (*size < len) ? *size : len;

    memset(to, 0, len);
    memcpy(to, *data, have);
    *data += have;
    *size -= have;
}

/* Small numbers most of the time, so that a report is sound now and then. */
static uint32_t small(const uint8_t **data, size_t *size)
{
    uint8_t  byte;
    uint32_t wide;

    take(data, size, &byte, 1);
    if (byte < 250) {
        return byte % 24;
    }
    take(data, size, &wide, sizeof(wide));
    return wide;
}

static double seconds(const uint8_t **data, size_t *size)
{
    uint8_t byte;
    double  any;

    take(data, size, &byte, 1);
    if (byte < 250) {
        return (double)byte / 16;
    }
    take(data, size, &any, sizeof(any));
    return any;
}

static void check_inst(uint32_t id)
{
    if ((id != KVCL_SCHED_NONE) && (id >= 16)) {
        abort();
    }
}

static void check(const kvcl_sched_decision_t *out, uint32_t blocks)
{
    uint32_t i, k, at = 0;

    check_inst(out->prefill);
    check_inst(out->decode);
    check_inst(out->runner_up);
    if ((out->n_runs > KVCL_SCHED_RUNS) || (out->times.ttft_s - out->times.ttft_s != 0) ||
        (out->busy_s - out->busy_s != 0) || (out->busy_s < 0) || !(out->retry_s >= 0) ||
        (out->verdict < KVCL_SCHED_GO) || (out->verdict > KVCL_SCHED_REFUSE)) {
        abort();
    }
    for (i = 0; i < out->n_runs; ++i) {
        check_inst(out->runs[i].from);
        for (k = 0; k < out->runs[i].n; ++k) {
            check_inst(out->runs[i].inst[k]);
        }
        if (out->runs[i].plan != KVCL_SCHED_REPLICATE) {
            if ((out->runs[i].first != at) || (out->runs[i].blocks == 0)) {
                abort();
            }
            at += out->runs[i].blocks;
        }
    }
    if ((out->prefill != KVCL_SCHED_NONE) && (at != blocks)) {
        abort();
    }
}

static void fill(const uint8_t **data, size_t *size, kvcl_sched_inst_t *inst, kvcl_sched_hold_t *holds)
{
    int i;

    for (i = 0; i < INSTS; ++i) {
        inst[i]                = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
        inst[i].id             = small(data, size) % 18;
        inst[i].role           = small(data, size) % 5;
        inst[i].flags          = small(data, size) % 2;
        inst[i].model          = (small(data, size) == 23) ? 1 : 0;
        inst[i].queue_s        = seconds(data, size);
        inst[i].past_s         = seconds(data, size);
        inst[i].running        = small(data, size);
        inst[i].pending        = small(data, size);
        inst[i].sends          = small(data, size);
        inst[i].recvs          = small(data, size);
        inst[i].context_tokens = small(data, size);
        inst[i].kv_total       = small(data, size);
        inst[i].kv_free        = small(data, size);
        inst[i].nic_bytes_s    = seconds(data, size) * 1e6;
    }
    for (i = 0; i < HOLDS; ++i) {
        holds[i].inst   = small(data, size);
        holds[i].first  = small(data, size);
        holds[i].blocks = small(data, size);
        holds[i].tier   = (uint16_t)small(data, size);
        holds[i].flags  = (uint16_t)(small(data, size) % 2);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvcl_sched_inst_t     inst[INSTS];
    kvcl_sched_hold_t     holds[HOLDS];
    kvcl_sched_req_t      req = KVCL_SCHED_REQ_INIT;
    kvcl_sched_decision_t out = {.size = sizeof(out)};
    char                  text[256];
    uint64_t              blocks;
    size_t                i;

    if (n_scheds == 0) {
        make_scheds();
    }
    req.id           = small(&data, &size);
    req.tokens       = 1 + small(&data, &size);
    req.block_tokens = 1 + (small(&data, &size) % 8);
    req.n_keys       = small(&data, &size) % 80;
    req.klass        = small(&data, &size) % 33;
    req.ttft_s       = seconds(&data, &size);
    req.tbt_s        = seconds(&data, &size);
    req.arrival_s    = seconds(&data, &size);
    blocks           = (req.tokens + req.block_tokens - 1) / req.block_tokens;
    blocks           = (req.n_keys < blocks) ? req.n_keys : blocks;
    fill(&data, &size, inst, holds);
    for (i = 0; i < n_scheds; ++i) {
        if (kvcl_sched_decide(scheds[i], 4, &req, inst, sizeof(inst[0]), INSTS, holds, HOLDS, &out) == KVCL_OK) {
            check(&out, (uint32_t)((blocks < 64) ? blocks : 64));
            (void)kvcl_sched_describe(&out, text, sizeof(text));
        } else if (kvcl_last_error()[0] == '\0') {
            abort();
        }
    }
    return 0;
}
