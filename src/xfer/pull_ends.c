/*
 * The two ends of a pull (pull.h): the check that their selections match, the bytes of each in one order, and the
 * generations of the remote blocks.
 *
 * Owns: nothing; the peer's cache must have been described. Invariant: no run leads outside the checked ends.
 * Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "xfer/pull.h"
#include "base/error.h"
#include "dir/slots.h"
#include "kv/flat.h"
#include "xfer/params.h"

kvcl_status_t kvcl_pull_set_remote(kvcl_pull_t *pull, const kvcl_sel_t *sel)
{
    return kvcl_own_sel(&pull->remote, sel);
}

kvcl_status_t kvcl_pull_set_local(kvcl_pull_t *pull, kvcl_cache_h cache, const kvcl_sel_t *sel)
{
    pull->cache = cache;
    return kvcl_own_sel(&pull->local, sel);
}

void kvcl_pull_local_stream(const kvcl_pull_t *pull, uint32_t order, uint32_t unit, kvcl_stream_t *stream)
{
    kvcl_side_t side;

    if (pull->cache == NULL) {
        if (pull->near != NULL) {
            kvcl_stream_pieces(stream, pull->near, 0);
        } else {
            kvcl_stream_flat(stream, pull->buf, pull->range_from + pull->total);
        }
        stream->copier = pull->buf_copier;
        return;
    }
    side = kvcl_cache_side(pull->cache, &pull->local);
    kvcl_stream_init_units(stream, &side, order, unit);
}

kvcl_status_t kvcl_pull_runs(kvcl_pull_t *pull, kvcl_runs_t *runs)
{
    kvcl_side_t   remote, local;
    uintptr_t     base;
    uint32_t      order     = KVCL_STREAM_CANONICAL;
    kvcl_stream_t *near_end = pull->push ? &runs->src : &runs->dst;
    kvcl_stream_t *far_end  = pull->push ? &runs->dst : &runs->src;

    if (pull->from == KVCL_FROM_REGION) {
        base = (pull->rregion->attr.map != NULL) ? (uintptr_t)pull->rregion->attr.map : (uintptr_t)pull->rregion->addr;
        if (pull->far != NULL) {
            kvcl_stream_pieces(far_end, pull->far, base);
        } else {
            kvcl_stream_flat(far_end, (const void *)(base + pull->offset), pull->total);
        }
        far_end->copier = pull->rregion->copier;
        kvcl_pull_local_stream(pull, order, 0, near_end);
        return KVCL_OK;
    }
    remote = kvcl_rcache_side(pull->rcache, &pull->remote);
    if (pull->cache == NULL) {
        kvcl_stream_init(far_end, &remote, order);
        kvcl_pull_local_stream(pull, order, 0, near_end);
        return KVCL_OK;
    }
    local = kvcl_cache_side(pull->cache, &pull->local);
    order = pull->ranged ? KVCL_STREAM_CANONICAL : KVCL_RUNS_ANY_ORDER;
    return pull->push ? kvcl_runs_init(runs, &remote, &local, order) : kvcl_runs_init(runs, &local, &remote, order);
}

/* Checksums are of the canonical order. */
static bool summed_runs(kvcl_pull_t *pull)
{
    kvcl_side_t remote, local;

    if ((pull->sums == NULL) || (pull->from != KVCL_FROM_CACHE) || (pull->cache == NULL) || pull->push ||
        pull->ranged) {
        return false;
    }
    remote = kvcl_rcache_side(pull->rcache, &pull->remote);
    local  = kvcl_cache_side(pull->cache, &pull->local);
    return (kvcl_runs_init(&pull->copy.runs, &local, &remote, KVCL_STREAM_CANONICAL) == KVCL_OK) &&
           kvcl_copy_can_sum(&pull->copy.runs);
}

kvcl_status_t kvcl_pull_copy_runs(kvcl_pull_t *pull)
{
    if (summed_runs(pull)) {
        pull->copy.sums = pull->sums;
        return KVCL_OK;
    }
    pull->copy.sums = NULL;
    return kvcl_pull_runs(pull, &pull->copy.runs);
}

kvcl_status_t kvcl_pull_check(kvcl_pull_t *pull)
{
    kvcl_side_t   remote = kvcl_rcache_side(pull->rcache, &pull->remote);
    kvcl_side_t   local;
    kvcl_status_t status = kvcl_rcache_check(pull->rcache, &remote, pull->push);

    if ((status == KVCL_OK) && pull->ranged) {
        uint64_t bytes = kvcl_sel_bytes(remote.shape, &remote.sel);
        if ((pull->range_from > bytes) || (pull->total > bytes - pull->range_from)) {
            return kvcl_fail(KVCL_ERR_TRUNCATED, "the peer's blocks have %llu bytes, requested are %llu from %llu",
                             (unsigned long long)bytes, (unsigned long long)pull->total,
                             (unsigned long long)pull->range_from);
        }
    }
    if ((status != KVCL_OK) || (pull->cache == NULL)) {
        if ((status == KVCL_OK) && !pull->ranged && (kvcl_sel_bytes(remote.shape, &remote.sel) != pull->total)) {
            status = kvcl_fail(KVCL_ERR_TRUNCATED, "the peer's blocks have %llu bytes, the buffer %llu",
                               (unsigned long long)kvcl_sel_bytes(remote.shape, &remote.sel),
                               (unsigned long long)pull->total);
        }
        return status;
    }
    local = kvcl_cache_side(pull->cache, &pull->local);
    return pull->push ? kvcl_runs_check(&remote, &local) : kvcl_runs_check(&local, &remote);
}

/* Read after the last byte, also natively. */
static bool gen_holds(const kvcl_pull_t *pull, size_t i)
{
    uint32_t slot = pull->remote.blocks[i];

    return (pull->rcache->gens != NULL) ? kvcl_slots_gen_is(&pull->rcache->gens[slot], pull->gens[i])
                                        : kvcl_rma_gens_word(&pull->far_gens, slot) == pull->gens[i];
}

void kvcl_pull_check_gens(kvcl_pull_t *pull)
{
    size_t i;

    for (i = 0; i < pull->remote.n_blocks; ++i) {
        if (!gen_holds(pull, i)) {
            kvcl_pull_fail_block(pull, i, KVCL_ERR_STALE);
        } else if (pull->status != NULL) {
            pull->status[i] = KVCL_OK;
        }
    }
}

/* ---- a lost link ---- */

/* From the start: what a served pull has received is not trusted to be the first bytes. */
void kvcl_pull_begin_again(kvcl_pull_t *pull)
{
    size_t i;

    kvcl_req_unpublish(&pull->req);
    pull->received   = pull->uncredited = 0;
    pull->ended      = false;
    pull->by_lane    = false;
    pull->any_failed = false;
    pull->lost       = false;
    for (i = 0; (pull->status != NULL) && (i < pull->remote.n_blocks); ++i) {
        pull->status[i] = KVCL_INPROGRESS;
    }
    if (pull->quick) {
        pull->quick = false;
        kvcl_peer_answered(pull->peer);
    }
    kvcl_pull_step(pull);
}

/* What it has read changes nothing at the peer. A native put may have written, and an offer is gone: its sender has
 * ended. A copy from mapped memory needs no link. */
bool kvcl_pull_again(kvcl_pull_t *pull)
{
    kvcl_assert_locked(pull->req.ctx);
    if ((pull->offer != 0) || (pull->push && (pull->state > KVCL_PULL_COPY))) {
        return false;
    }
    kvcl_req_watch(&pull->req, pull->peer);
    switch (pull->state) {
    case KVCL_PULL_CACHE:
        kvcl_rcache_unwait(&pull->rcache_waiter);
        break;
    case KVCL_PULL_SERVED:
        break;
    case KVCL_PULL_RMA:
        pull->lost = !kvcl_rma_stopped(pull);
        kvcl_rma_stop(pull, KVCL_ERR_UNREACHABLE);
        return true;
    default:
        return true;
    }
    kvcl_pull_begin_again(pull);
    return true;
}
