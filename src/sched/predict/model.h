/*
 * A model of an instance's speed (kvcl_sched_model.h), as the scheduler reads it. A model does not change once it is
 * made. Pure, no lock.
 */
#ifndef KVCL_SCHED_PREDICT_MODEL_H
#define KVCL_SCHED_PREDICT_MODEL_H

#include <kvcl/kvcl_sched_model.h>

#include <stdbool.h>

enum { KVCL_MODEL_PIECES = 8 };

/* A roofline's ten numbers, in the order of the words. */
enum { R_LAYERS, R_WIDTH, R_ATTENTION, R_LINEAR, R_WEIGHTS, R_FLOPS, R_MEMORY, R_EFF_ATT, R_EFF_LIN, R_EFF_MEM, R_ALL };

/* A table of seconds: rows x columns, both rising. No rows: there is none. */
typedef struct kvcl_model_table {
    size_t rows;
    size_t cols;
    double *row;   /* [rows] */
    double *col;   /* [cols] */
    double *cell;  /* [rows][cols] */
} kvcl_model_table_t;

/* Constants of the decode step, from a batch on. */
typedef struct kvcl_model_piece {
    double from;
    double base;
    double batch;
    double context;
} kvcl_model_piece_t;

struct kvcl_sched_model {
    char                    *name;
    char                    *source;
    bool                    has_prefill;
    double                  a, b, c, d;
    size_t                  n_pieces;
    kvcl_model_piece_t      piece[KVCL_MODEL_PIECES];
    kvcl_model_table_t      prefill_table; /* new tokens x prefix */
    kvcl_model_table_t      decode_table;  /* batch x context of a request */
    kvcl_sched_model_info_t info;
};

/** Seconds of a prefill of n tokens, p of them cached, p <= n. Negative: not known. */
double kvcl_model_prefill(const struct kvcl_sched_model *model, double n, double p);
/** Seconds of a decode step. Negative: not known. */
double kvcl_model_decode(const struct kvcl_sched_model *model, double batch, double context);
/** The formulas of a roofline's R_ALL numbers, all above 0; kv_bytes and load are known. */
void   kvcl_model_roofline(struct kvcl_sched_model *model, const double *roof);
/** Frees the parts, not the struct. */
void   kvcl_model_fini(struct kvcl_sched_model *model);

/** Bilinear. Negative: outside the table. */
double kvcl_model_table_at(const kvcl_model_table_t *table, double row, double col);

#endif
