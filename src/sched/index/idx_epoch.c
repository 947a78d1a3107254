/*
 * Epochs (idx_epoch.h). Owns the counters of readers and the lists of retired pieces, not the pieces.
 *
 * Why it holds: all steps are sequentially consistent. A reader that is counted in half h and has then read epoch e, of
 * parity h, comes before the store of e + 1, and so before every later look at half h. What was retired in e is given
 * out after such a look has found 0, and a reader that enters later has read an epoch whose store followed the taking
 * out. A counter's decrement is a release and the look an acquire, so the reader's loads are over.
 */
#include "config.h"

#include "sched/index/idx_epoch.h"

#include <string.h>

static _Atomic unsigned threads;

unsigned kvcl_idx_lane(void)
{
    static _Thread_local unsigned mine;

    if (mine == 0) {
        mine = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % KVCL_IDX_LANES + 1;
    }
    return mine - 1;
}

void kvcl_idx_epoch_init(kvcl_idx_epoch_t *epoch)
{
    memset(epoch, 0, sizeof(*epoch));
    epoch->limbo[0].slot = epoch->limbo[1].slot = UINT32_MAX;
}

int kvcl_idx_epoch_next(kvcl_idx_epoch_t *epoch, kvcl_idx_limbo_t *limbo_p)
{
    uint64_t number = atomic_load_explicit(&epoch->number, memory_order_relaxed);
    unsigned other  = (unsigned)(number & 1) ^ 1, i;

    for (i = 0; i < KVCL_IDX_LANES; ++i) {
        if (atomic_load(&epoch->lane[i].in[other]) != 0) {
            return 0;
        }
    }
    *limbo_p            = epoch->limbo[other];
    epoch->limbo[other] = (kvcl_idx_limbo_t){.slot = UINT32_MAX};
    atomic_store(&epoch->number, number + 1);
    return 1;
}
