/*
 * Owns the statistics of a conversation workload, as tables of quantiles measured on a real trace (12,031 requests of
 * an hour): all requests share the first block (the system prompt); 61% open a conversation, 39% continue one from some
 * hundred requests earlier: they keep all but its last blocks and add new ones. Over many requests: blocks per request
 * p50 about 14, p99 about 167, at most 247; about 36% of blocks occurred before.
 */
#include "config.h"
#include "tools/replay/generate.h"

#include <stdlib.h>

#define BLOCK_TOKENS     512u
#define BLOCKS_MAX       247u
#define REAL_REQUESTS    12031u /* of the trace where the gaps were measured */
#define CONTINUE_PERCENT 40u    /* more than 39: an early draw finds no conversation to continue */
#define BATCH_MS         3000u  /* requests were logged in steps of 3 s, about ten at a time */
#define BATCH_REQUESTS   10u

/* permille p of the draws are at most value; linear in between. */
typedef struct quantile {
    uint32_t permille;
    uint32_t value;
} quantile_t;

/* clang-format off */
static const quantile_t new_blocks[] = {
    {0, 2},    {200, 3},  {300, 4},   {400, 8},   {500, 11},  {600, 15},  {700, 22},  {800, 31},
    {850, 38}, {900, 50}, {950, 76},  {970, 102}, {980, 132}, {990, 176}, {995, 218}, {1000, 247}};
static const quantile_t added_blocks[] = {
    {0, 1},    {300, 2},  {600, 2},  {700, 4},  {800, 10},  {850, 15},
    {900, 20}, {950, 29}, {980, 41}, {990, 53}, {995, 65},  {1000, 186}};
static const quantile_t dropped_blocks[] = {
    {0, 1}, {850, 1}, {900, 17}, {950, 27}, {990, 48}, {1000, 90}};
static const quantile_t gaps[] = {
    {0, 5},     {100, 141},  {200, 204},  {400, 324},  {500, 422},  {600, 550},
    {700, 757}, {800, 1087}, {900, 1660}, {950, 2129}, {990, 5101}, {1000, 10514}};
static const quantile_t outputs[] = {
    {0, 1}, {50, 10}, {100, 24}, {250, 156}, {500, 350}, {750, 472}, {950, 698}, {1000, 2000}};
/* clang-format on */

#define DRAW(_random, _table) draw((_random), (_table), sizeof(_table) / sizeof((_table)[0]))

/* splitmix64 */
static uint64_t random_next(uint64_t *state)
{
    uint64_t x = (*state += UINT64_C(0x9e3779b97f4a7c15));

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(((random_next(state) >> 32) * limit) >> 32);
}

static uint32_t draw(uint64_t *state, const quantile_t *table, size_t n)
{
    const uint32_t u = below(state, 1000000); /* millionths */
    size_t         i = 1;
    uint64_t       left, width;

    while ((i < n - 1) && (u >= table[i].permille * 1000)) {
        ++i;
    }
    left  = u - (table[i - 1].permille * 1000);
    width = (table[i].permille - table[i - 1].permille) * UINT64_C(1000);
    return table[i - 1].value + (uint32_t)(((table[i].value - table[i - 1].value) * left + (width / 2)) / width);
}

/* The request that the next one continues, or SIZE_MAX. In a short trace conversations return sooner. */
static size_t draw_earlier(uint64_t *state, const trace_t *trace, uint64_t requests)
{
    uint64_t gap;

    if (below(state, 100) >= CONTINUE_PERCENT) {
        return SIZE_MAX;
    }
    gap = DRAW(state, gaps);
    if (requests < REAL_REQUESTS) {
        gap = (gap * requests) / REAL_REQUESTS;
    }
    gap = (gap == 0) ? 1 : gap;
    return (gap <= trace->n_requests) ? trace->n_requests - (size_t)gap : SIZE_MAX;
}

/* The ids of the next request; *next_id is the first unused id. @return their number. */
static uint32_t make_ids(uint64_t *state, const trace_t *trace, uint64_t requests, uint64_t *next_id, uint64_t *ids)
{
    const size_t          at       = draw_earlier(state, trace, requests);
    const trace_request_t *earlier = (at != SIZE_MAX) ? &trace->requests[at] : NULL;
    uint32_t              kept     = 1, n, dropped, i;

    ids[0] = 0;
    if (earlier != NULL) {
        dropped = DRAW(state, dropped_blocks);
        kept    = (earlier->n > dropped + 2) ? earlier->n - dropped : 2;
        n       = kept + DRAW(state, added_blocks);
    } else {
        n = DRAW(state, new_blocks);
    }
    n = (n > BLOCKS_MAX) ? BLOCKS_MAX : n;
    for (i = 1; (i < kept) && (i < n); ++i) {
        ids[i] = trace->ids[earlier->first + i];
    }
    for (; i < n; ++i) {
        ids[i] = (*next_id)++;
    }
    return n;
}

bool trace_generate(trace_t *trace, uint64_t requests, uint64_t seed)
{
    uint64_t        state = seed, next_id = 1, now_ms = 0, i;
    uint64_t        ids[BLOCKS_MAX];
    trace_request_t request;
    uint32_t        n;

    for (i = 0; i < requests; ++i) {
        n                     = make_ids(&state, trace, requests, &next_id, ids);
        request.timestamp_ms  = now_ms;
        request.input_length  = ((uint64_t)n * BLOCK_TOKENS) - below(&state, BLOCK_TOKENS);
        request.output_length = DRAW(&state, outputs);
        if (!trace_add(trace, &request, ids, n)) {
            return false;
        }
        now_ms += (below(&state, BATCH_REQUESTS) == 0) ? BATCH_MS : 0;
    }
    return true;
}
