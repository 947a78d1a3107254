/*
 * Owns the hit ratio of one cache over the requests in sequence: the leading run of each prompt that is there counts,
 * then all of its blocks are put.
 */
#include "config.h"
#include "tools/sim/study/studies.h"

double study_lru_ratio(const work_t *work, uint64_t tokens)
{
    const uint64_t       blocks = tokens / WORK_BLOCK_TOKENS;
    const uint32_t       most   = (work->distinct != 0) ? work->distinct : 1;
    const work_request_t *r;
    sim_pool_t           pool;
    uint64_t             hits = 0, all = 0, run;
    size_t               i;
    uint32_t             n, k;

    if (!sim_pool_init(&pool, ((tokens == 0) || (blocks > most)) ? most : (blocks == 0) ? 1 : (uint32_t)blocks, true)) {
        return -1;
    }
    for (i = 0; i < work->n; ++i) {
        r = &work->requests[i];
        for (n = 0; (n < r->n) && sim_pool_has(&pool, work->blocks[r->first + n]); ++n) {
        }
        run = (uint64_t)n * WORK_BLOCK_TOKENS;
        hits += (run < r->input) ? run : r->input;
        all += r->input;
        for (k = r->n; k > 0; --k) {
            (void)sim_pool_insert(&pool, work->blocks[r->first + k - 1]);
        }
    }
    sim_pool_free(&pool);
    return (all != 0) ? (double)hits / (double)all : 0;
}
