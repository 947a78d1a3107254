/*
 * The toy model of moe.c (moe_model.h). Owns: the experts of the model in one process, made when they are first needed.
 */
#include "moe_model.h"

#include <stdbool.h>

static float number(uint64_t seed)
{
    seed = (seed + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ (seed >> 29)) * UINT64_C(0x94d049bb133111eb);
    return ((float)(seed >> 40) / (float)(1u << 23)) - 1.0f;
}

void make_expert(float *w, unsigned layer, unsigned expert)
{
    unsigned i;

    for (i = 0; i < HIDDEN * HIDDEN; ++i) {
        w[i] = number(((uint64_t)(layer * EXPERTS + expert) << 32) + i) / 8.0f;
    }
}

void run_expert(const float *w, const float *x, float *y)
{
    unsigned i, j;
    float    sum;

    for (i = 0; i < HIDDEN; ++i) {
        for (j = 0, sum = 0.0f; j < HIDDEN; ++j) {
            sum += w[(i * HIDDEN) + j] * x[j];
        }
        y[i] = (sum > 0.0f) ? sum : 0.0f;
    }
}

void make_token(float *x, unsigned rank, unsigned step, unsigned t)
{
    unsigned i;

    for (i = 0; i < HIDDEN; ++i) {
        x[i] = number(((uint64_t)((step * RANKS_MAX) + rank) << 32) + (t * HIDDEN) + i + 77);
    }
}

void route(unsigned rank, unsigned step, unsigned layer, unsigned t, int64_t *experts, float *weights)
{
    const uint64_t seed = ((uint64_t)((step * RANKS_MAX) + rank) << 32) + ((uint64_t)layer << 24) + (t * 8u);

    experts[0] = (int64_t)((number(seed) + 1.0f) / 2.0f * EXPERTS) % EXPERTS;
    experts[1] = (experts[0] + 1 + (int64_t)((number(seed + 1) + 1.0f) / 2.0f * (EXPERTS - 1))) % EXPERTS;
    weights[0] = 0.5f + (number(seed + 2) / 4.0f);
    weights[1] = 1.0f - weights[0];
}

void oracle(unsigned rank, unsigned step, unsigned t, float *x)
{
    static float w[LAYERS * EXPERTS][HIDDEN * HIDDEN];
    static bool  made;
    float        y[TOP_K][HIDDEN], weights[TOP_K], sum;
    int64_t      experts[TOP_K];
    unsigned     layer, i, k;

    for (i = 0; !made && (i < LAYERS * EXPERTS); ++i) {
        make_expert(w[i], i / EXPERTS, i % EXPERTS);
    }
    made = true;
    make_token(x, rank, step, t);
    for (layer = 0; layer < LAYERS; ++layer) {
        route(rank, step, layer, t, experts, weights);
        for (k = 0; k < TOP_K; ++k) {
            run_expert(w[(layer * EXPERTS) + (unsigned)experts[k]], x, y[k]);
        }
        for (i = 0; i < HIDDEN; ++i) {
            for (k = 0, sum = 0.0f; k < TOP_K; ++k) {
                const volatile float product = weights[k] * y[k][i]; /* rounded, as the library's */

                sum += product;
            }
            x[i] += sum;
        }
    }
}
