/*
 * Models of an instance's speed: how long a prefill, a decode step and a transfer take. The scheduler (kvcl_sched.h)
 * and its simulator predict with them.
 *
 * A model is a small text file. It names its source and the error of each of its parts; a part without an error is used
 * to compare instances, and never to refuse a request: a TTFT with seconds of a transfer needs transfer_error as well
 * as prefill_error. Formulas (seconds; tokens):
 *
 *   prefill  = a + b m + c m (n + p) + d p     n: tokens of the prompt, p: of them cached, m = n - p
 *              (attention over the prefix grows with p; d p is the load of the cached blocks to the device)
 *   decode   = e + f batch + g context         one step: batch requests, context tokens of all of them together
 *   transfer = s + bytes / min(send share, receive share);  share = bandwidth / (transfers in flight + 1)
 *   first    = handover of the prompt's KV by transfer, load to the device at load bytes/s, schedule seconds in all
 *
 * A file has one item a line: a word and its values; # begins a comment. All numbers are finite and not negative.
 *
 *   kvcl-model 1                   the first line
 *   name TEXT                      needed; source TEXT: needed, the origin of the figures
 *   prefill a b c d                prefill_error E: its relative error; the same for decode_error, transfer_error
 *   decode e f g                   not all 0; decode_from BATCH e f g: other constants from this batch on
 *   prefill_prefix P1 P2 ...       a table of measured prefills: its columns, tokens cached, rising, the first 0
 *   prefill_row M S1 S2 ...        and a row: M new tokens, rising; seconds. Between the points it is linear
 *   decode_context C1 C2 ...       the same for steps: tokens of context of one request
 *   decode_row BATCH S1 S2 ...     requests of the batch; seconds of a step: above 0, and not falling
 *   kv_bytes, kv_tokens, pool_tokens, nic, load, schedule, stall, start, max_batch     kvcl_sched_model_info_t
 *                                  kv_tokens and pool_tokens are whole, at most 1e15; max_batch whole, at most 1e9
 *   layers, width, attention, linear, weight_bytes, flops, memory, eff_attention, eff_linear, eff_memory
 *                                  a roofline instead of prefill and decode; all ten are needed, and kv_bytes and load
 *
 * Inside its range a table takes the place of the formula; outside, the formula is used, or nothing is known. The
 * roofline: b = layers linear width^2 / (flops eff_linear), c = layers attention width / (flops eff_attention), a = 0,
 * d = kv_bytes / load, e = weight_bytes / (memory eff_memory), f = b, g = kv_bytes / (memory eff_memory).
 * The shipped models are in PREFIX/share/kvcl/models, or in ../share/kvcl/models of the folder of libkvcl.
 *
 * Thread: a model does not change once it is made; any thread may read it.
 */
#ifndef KVCL_SCHED_MODEL_H
#define KVCL_SCHED_MODEL_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_sched_model *kvcl_sched_model_h;

/* A predicted time. Fixed for ever, since results hold it by value: 16 bytes. */
typedef struct kvcl_sched_guess {
    double seconds; /* negative: the model cannot tell */
    double error;   /* relative: 0.1 means that 9 of 10 measured values lie within 10%; negative: not known */
} kvcl_sched_guess_t;

/* Figures of a model besides its formulas. */
typedef struct kvcl_sched_model_info {
    size_t   size;           /* sizeof(kvcl_sched_model_info_t) */
    double   kv_bytes;       /* bytes of KV of one token, over all layers */
    double   kv_tokens;      /* tokens of KV that fit into the instance's device memory; 0: not stated */
    double   pool_tokens;    /* tokens of KV that fit into the instance's DRAM pool; 0: not stated */
    double   nic_bytes_s;    /* bandwidth of the instance, each way, bytes a second; 0: not stated */
    double   load_bytes_s;   /* DRAM to the device, bytes a second; 0: not stated */
    double   schedule_s;     /* seconds of scheduling per request, in all */
    double   stall;          /* share of a request's load to the device for which a running batch stands still: 0..1 */
    double   stage_s;        /* start of a transfer: s of the formula */
    double   prefill_error;  /* relative, as kvcl_sched_guess_t; negative: not known */
    double   decode_error;
    double   transfer_error;
    uint64_t max_batch;      /* requests of one decode batch at most; 0: not stated */
} kvcl_sched_model_info_t;
#define KVCL_SCHED_MODEL_INFO_INIT {sizeof(kvcl_sched_model_info_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * Make a model of the text of a model file. name: for messages, for example the file's name. text: len bytes, not
 * kept. The caller frees *model_p.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM with line, column, what was wrong and the nearest known word, and nothing is
 *         made; KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_sched_model_parse(const char *name, const char *text, size_t len,
                                              kvcl_sched_model_h *model_p) KVCL_MUST_CHECK;

/**
 * The same of a file. A path without "/" that is no file here is looked for among the shipped models, with and without
 * the ending ".model": "llama3-70b-8xa800".
 * @return as kvcl_sched_model_parse; KVCL_ERR_IO (the file cannot be read, or has more than 16 MiB).
 */
KVCL_API kvcl_status_t kvcl_sched_model_load(const char *path, kvcl_sched_model_h *model_p) KVCL_MUST_CHECK;

/** NULL is allowed. No scheduler may use the model any more. */
KVCL_API void kvcl_sched_model_free(kvcl_sched_model_h model);

/** The model's name, and the source of its figures. Owned by the model; "" for a dead handle. */
KVCL_API const char *kvcl_sched_model_name(kvcl_sched_model_h model);
KVCL_API const char *kvcl_sched_model_source(kvcl_sched_model_h model);

/** @return KVCL_OK, KVCL_ERR_DEAD_HANDLE, KVCL_ERR_INVALID_PARAM (the struct's size). */
KVCL_API kvcl_status_t kvcl_sched_model_info(kvcl_sched_model_h model, kvcl_sched_model_info_t *info_p)
    KVCL_MUST_CHECK;

/** A prefill of a prompt of n tokens, cached of them already at the instance (at most n; more counts as n). */
KVCL_API kvcl_sched_guess_t kvcl_sched_model_prefill(kvcl_sched_model_h model, double n, double cached);

/** One decode step of a batch whose requests have context tokens in all. A batch of 0 takes no time. */
KVCL_API kvcl_sched_guess_t kvcl_sched_model_decode(kvcl_sched_model_h model, double batch, double context);

/**
 * The two constants of the decode step near this batch: one step takes base + per_token x context seconds. For sums
 * over many steps in closed form. @return as kvcl_sched_model_info.
 */
KVCL_API kvcl_status_t kvcl_sched_model_decode_line(kvcl_sched_model_h model, double batch, double *base_p,
                                                    double *per_token_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
