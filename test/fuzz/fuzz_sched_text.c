/*
 * Model files and policy strings of the scheduler on any bytes. A byte below 64 stands for a word of theirs, so that
 * blind bytes get beyond the first line. What is accepted predicts no negative or infinite time inside its range.
 */
#include "config.h"
#include <kvcl/kvcl_sched.h>

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const words[64] = {
    "kvcl-model 1\nname a\nsource b\n", "prefill ", "decode ", "decode_from ", "prefill_prefix 0 ", "prefill_row ",
    "decode_context ", "decode_row ", "kv_bytes 1\n", "load 2\n", "nic 3\n", "stall 1\n", "layers 1\n", "width 2\n",
    "attention 3\n", "linear 4\n", "weight_bytes 5\n", "flops 6\n", "memory 7\n", "eff_attention 1\n", "eff_linear 1\n",
    "eff_memory 1\n", "prefill_error 0.1\n", "decode_error 0.1\n", "1 ", "2.5 ", "0 ", "1e-300 ", "1e280 ", "9e99999 ",
    "-1 ", "nan ", "\n", "# x", "prefill=", "decode=", "admit=", "queue=", "global", "kvcl", "load", "edf", "erp",
    "all", "fcfs", ":threshold=", ":work=", ":td=", ",", ":", "=", "1", "1000000", "random", "session:bound=",
    "max_batch ",
    "0.0666 1.1e-4 7e-10 2e-6\n", "1 2 3\n", "1 2 3 4\n", "1 2\n", "\t", "\r\n", "kvcl-model 2\n", "name "};

static size_t expand(const uint8_t *data, size_t size, char *text)
{
    size_t i, at = 0, len;

    for (i = 0; i < size; ++i) {
        len = (data[i] < 64) ? strlen(words[data[i]]) : 1;
        if (len > TEXT_MAX - 1 - at) {
            break;
        }
        memcpy(text + at, (data[i] < 64) ? words[data[i]] : (const char *)&data[i], len);
        at += len;
    }
    text[at] = '\0';
    return at;
}

static void check_time(double seconds)
{
    if (!((seconds == -1) || (seconds >= 0))) {
        abort();
    }
}

static void try_model(const char *text, size_t len)
{
    kvcl_sched_model_info_t info = KVCL_SCHED_MODEL_INFO_INIT;
    kvcl_sched_model_h      model = NULL;

    if (kvcl_sched_model_parse("fuzz", text, len, &model) != KVCL_OK) {
        if ((model != NULL) || (kvcl_last_error()[0] == '\0')) {
            abort();
        }
        return;
    }
    check_time(kvcl_sched_model_prefill(model, 1000, 500).seconds);
    check_time(kvcl_sched_model_prefill(model, 1, 0).seconds);
    check_time(kvcl_sched_model_decode(model, 10, 1000).seconds);
    if ((kvcl_sched_model_info(model, &info) != KVCL_OK) || !(info.stall <= 1) || !(info.kv_bytes >= 0)) {
        abort();
    }
    kvcl_sched_model_free(model);
}

static void try_policy(const char *text)
{
    static kvcl_sched_model_h model;
    static const char         plain[] = "kvcl-model 1\nname a\nsource b\nprefill 0 1e-3 0 0\n";
    kvcl_sched_params_t       params  = KVCL_SCHED_PARAMS_INIT;
    kvcl_sched_h              sched   = NULL;

    if ((model == NULL) && (kvcl_sched_model_parse("plain", plain, sizeof(plain) - 1, &model) != KVCL_OK)) {
        abort();
    }
    params.max_insts    = 4;
    params.max_requests = 4;
    if ((kvcl_sched_create(text, &model, 1, &params, &sched) != KVCL_OK) && (kvcl_last_error()[0] == '\0')) {
        abort();
    }
    kvcl_sched_destroy(sched);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char         text[TEXT_MAX];
    const size_t len = expand(data, size, text);

    try_model(text, len);
    try_policy(text);
    return 0;
}
