/*
 * The formulas of a model, and the public calls that read it. A model does not change once it is made, so any thread
 * may read it; no lock.
 */
#include "config.h"
#include "sched/predict/model.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

/* The constants for a batch: the last piece that begins at or below it. */
static const kvcl_model_piece_t *piece_of(const struct kvcl_sched_model *model, double batch)
{
    size_t i = model->n_pieces;

    while ((i > 1) && (model->piece[i - 1].from > batch)) {
        --i;
    }
    return (i == 0) ? NULL : &model->piece[i - 1];
}

static const double SECONDS_MAX = 1e9; /* what is above is no prediction */

double kvcl_model_prefill(const struct kvcl_sched_model *model, double n, double p)
{
    const double m = n - p;
    double       seconds;

    if (model->prefill_table.rows > 0) {
        seconds = kvcl_model_table_at(&model->prefill_table, m, p);
        if ((seconds >= 0) && (seconds <= SECONDS_MAX)) {
            return seconds;
        }
    }
    if (!model->has_prefill) {
        return -1;
    }
    seconds = model->a + (m * (model->b + (model->c * (n + p)))) + (model->d * p);
    return (seconds <= SECONDS_MAX) ? seconds : -1;
}

double kvcl_model_decode(const struct kvcl_sched_model *model, double batch, double context)
{
    const kvcl_model_piece_t *piece;
    double                   seconds;

    if (batch <= 0) {
        return 0;
    }
    if (model->decode_table.rows > 0) {
        seconds = kvcl_model_table_at(&model->decode_table, batch, context / batch);
        if ((seconds >= 0) && (seconds <= SECONDS_MAX)) {
            return seconds;
        }
    }
    piece = piece_of(model, batch);
    seconds = (piece == NULL) ? -1 : piece->base + (piece->batch * batch) + (piece->context * context);
    return (seconds <= SECONDS_MAX) ? seconds : -1;
}

void kvcl_model_roofline(struct kvcl_sched_model *model, const double *r)
{
    const double linear = r[R_LAYERS] * r[R_LINEAR] * r[R_WIDTH] * r[R_WIDTH] / (r[R_FLOPS] * r[R_EFF_LIN]);
    const double memory = r[R_MEMORY] * r[R_EFF_MEM];

    model->has_prefill      = true;
    model->a                = 0;
    model->b                = linear;
    model->c                = r[R_LAYERS] * r[R_ATTENTION] * r[R_WIDTH] / (r[R_FLOPS] * r[R_EFF_ATT]);
    model->d                = model->info.kv_bytes / model->info.load_bytes_s;
    model->piece[0].from    = 0;
    model->piece[0].base    = r[R_WEIGHTS] / memory;
    model->piece[0].batch   = linear;
    model->piece[0].context = model->info.kv_bytes / memory;
    model->n_pieces         = 1;
}

void kvcl_model_fini(struct kvcl_sched_model *model)
{
    free(model->name);
    free(model->source);
    free(model->prefill_table.row);
    free(model->prefill_table.col);
    free(model->prefill_table.cell);
    free(model->decode_table.row);
    free(model->decode_table.col);
    free(model->decode_table.cell);
}

/* ---- public ---- */

void kvcl_sched_model_free(kvcl_sched_model_h model)
{
    if (kvcl_handle_may_free(model, KVCL_KIND_SCHED_MODEL, "kvcl_sched_model_free")) {
        kvcl_model_fini(model);
        kvcl_object_free(model);
    }
}

const char *kvcl_sched_model_name(kvcl_sched_model_h model)
{
    return kvcl_handle_is(model, KVCL_KIND_SCHED_MODEL) ? model->name : "";
}

const char *kvcl_sched_model_source(kvcl_sched_model_h model)
{
    return kvcl_handle_is(model, KVCL_KIND_SCHED_MODEL) ? model->source : "";
}

kvcl_status_t kvcl_sched_model_info(kvcl_sched_model_h model, kvcl_sched_model_info_t *info_p)
{
    const char    *call  = "kvcl_sched_model_info";
    kvcl_status_t status = kvcl_handle_check(model, KVCL_KIND_SCHED_MODEL, call);

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(info_p, KVCL_UP_TO(kvcl_sched_model_info_t, max_batch),
                                       "kvcl_sched_model_info_t", call);
    }
    if (status == KVCL_OK) {
        kvcl_struct_out(info_p, &model->info, sizeof(model->info));
    }
    return status;
}

kvcl_sched_guess_t kvcl_sched_model_prefill(kvcl_sched_model_h model, double n, double cached)
{
    kvcl_sched_guess_t guess = {-1, -1};

    if (kvcl_handle_is(model, KVCL_KIND_SCHED_MODEL) && (n >= 0) && (cached >= 0)) {
        guess.seconds = kvcl_model_prefill(model, n, (cached < n) ? cached : n);
        guess.error   = model->info.prefill_error;
    }
    return guess;
}

kvcl_sched_guess_t kvcl_sched_model_decode(kvcl_sched_model_h model, double batch, double context)
{
    kvcl_sched_guess_t guess = {-1, -1};

    if (kvcl_handle_is(model, KVCL_KIND_SCHED_MODEL) && (batch >= 0) && (context >= 0)) {
        guess.seconds = kvcl_model_decode(model, batch, context);
        guess.error   = model->info.decode_error;
    }
    return guess;
}

kvcl_status_t kvcl_sched_model_decode_line(kvcl_sched_model_h model, double batch, double *base_p,
                                           double *per_token_p)
{
    const char               *call  = "kvcl_sched_model_decode_line";
    kvcl_status_t            status = kvcl_handle_check(model, KVCL_KIND_SCHED_MODEL, call);
    const kvcl_model_piece_t *piece;
    double                   high, last;

    if (status != KVCL_OK) {
        return status;
    }
    if (model->decode_table.rows > 0) { /* the line through the first and the last context of the table */
        high    = model->decode_table.col[model->decode_table.cols - 1];
        last    = kvcl_model_table_at(&model->decode_table, batch, high);
        *base_p = kvcl_model_table_at(&model->decode_table, batch, model->decode_table.col[0]);
        if ((*base_p >= 0) && (high > 0)) {
            *per_token_p = (last > *base_p) ? (last - *base_p) / (high * batch) : 0;
            return KVCL_OK;
        }
    }
    piece        = piece_of(model, batch);
    *base_p      = (piece == NULL) ? 0 : piece->base + (piece->batch * batch);
    *per_token_p = (piece == NULL) ? 0 : piece->context;
    return KVCL_OK;
}
