/*
 * The toy model of moe.c: its weights, tokens and router are any numbers, the same in every process, so each rank can
 * compute what the model in one process would have answered.
 */
#ifndef KVCL_EXAMPLE_MOE_MODEL_H
#define KVCL_EXAMPLE_MOE_MODEL_H

#include <stdint.h>

enum { RANKS_MAX = 16, LAYERS = 4, EXPERTS = 64, HIDDEN = 64, TOKENS = 16, TOP_K = 2 };
enum { BYTES = HIDDEN * HIDDEN * (int)sizeof(float) }; /* of an expert */

/** w: HIDDEN * HIDDEN numbers. */
void make_expert(float *w, unsigned layer, unsigned expert);
/** One token through one expert: max(0, W x). */
void run_expert(const float *w, const float *x, float *y);
void make_token(float *x, unsigned rank, unsigned step, unsigned t);
/** The router: the TOP_K experts of a token in a layer, and their weights, whose sum is 1. */
void route(unsigned rank, unsigned step, unsigned layer, unsigned t, int64_t *experts, float *weights);
/** The right output of a token: the model in one process. */
void oracle(unsigned rank, unsigned step, unsigned t, float *x);

#endif
