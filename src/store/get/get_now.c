/*
 * Gets of few bytes whose directory and blocks are all in mapped memory: done inside the call, without a lock or an
 * allocation. Everything else (a home that must be queried, an unknown cache, a stale copy) is left to
 * get/get_rounds.c, which starts the get from the beginning.
 *
 * Read without the lock: mapped tables, descriptions of peers' caches (immutable once ready, kept until kvcl_finalize),
 * and the store's own caches, which live as long as the store.
 */
#include "config.h"
#include "store/get/gets.h"
#include "store/get/uses.h"
#include "store/home/lookup.h"
#include "store/pool/pool.h"
#include "store/words.h"
#include "base/error.h"
#include "weave/bulk.h"

enum {
    CHUNK       = 64,
    PROBE_BYTES = 64 * 1024 /* of a get that may be large: the part that shows whether its source is in the caches */
};

/* Mapped memory that holds the bytes of some blocks. */
typedef struct source {
    const kvcl_shape_t     *shape;
    const uintptr_t        *bases;
    kvcl_copier_t          *copier;
    const _Atomic uint32_t *gens;
    const kvcl_rregion_t   *live; /* NULL: a cache of this rank */
} source_t;

/* The copy of one key that can be read now. */
typedef struct hit {
    kvcl_dir_loc_t loc;
    source_t       source;
    bool           found;
} hit_t;

static bool own_source(const kvcl_owner_t *owner, uint32_t id, source_t *source)
{
    if ((owner == NULL) || (owner->cache->id != id)) {
        return false;
    }
    *source = (source_t){&owner->cache->shape, owner->cache->bases, owner->cache->copier, owner->cache->gens, NULL};
    return true;
}

static bool find_source(kvcl_store_h store, const kvcl_dir_loc_t *loc, source_t *source)
{
    kvcl_rcache_t *rcache;
    unsigned      i;

    if ((loc->flags & KVCL_DIR_TIER_MASK) == KVCL_DIR_TIER_NVME) {
        return false; /* its owner must read it first */
    }
    if (loc->rank == store->me) {
        for (i = 0; (store->pool != NULL) && (i < store->pool->n); ++i) {
            if (own_source(store->pool->owners[i], loc->cache, source)) {
                return true;
            }
        }
        return own_source(store->own, loc->cache, source);
    }
    for (i = 0; i < KVCL_STORE_RCACHES; ++i) {
        rcache = atomic_load_explicit(&store->ranks[loc->rank].rcaches[i], memory_order_acquire);
        if ((rcache != NULL) && (rcache->id == loc->cache)) {
            *source = (source_t){&rcache->shape, rcache->bases, rcache->copier, rcache->gens, &rcache->gens_region};
            return kvcl_rregion_live(&rcache->gens_region);
        }
    }
    return false;
}

/* False: a copy exists, but not in memory that can be read now. */
static bool locate(kvcl_store_h store, const kvcl_key_t *key, uint64_t block_bytes, hit_t *hit)
{
    kvcl_dir_loc_t        locs[KVCL_DIR_LOCS_MAX];
    bool                  lost, elsewhere = false;
    const kvcl_dir_view_t *view = kvcl_store_view(store, key, &lost);
    unsigned              n, i, at;

    hit->found = false;
    if (view == NULL) {
        return lost;
    }
    n = kvcl_dir_read(view, key, locs);
    for (i = 0; i < n; ++i) {
        if ((locs[i].rank == store->me) && (i != 0)) { /* the local copy first */
            kvcl_dir_loc_t first = locs[0];
            locs[0] = locs[i];
            locs[i] = first;
        }
    }
    for (i = 0; (i < n) && !hit->found; ++i) {
        at = (locs[0].rank == store->me) ? i : (i + store->me) % n;
        if (!kvcl_store_loc_lives(store, &locs[at]) || (locs[at].len != block_bytes)) {
            continue;
        }
        hit->loc   = locs[at];
        hit->found = find_source(store, &locs[at], &hit->source);
        elsewhere  = elsewhere || !hit->found;
    }
    return hit->found || !elsewhere;
}

static kvcl_status_t copy(const kvcl_side_t *dst, const kvcl_side_t *src, uint64_t *sums, kvcl_bulk_how_t *how)
{
    const uint64_t begun = kvcl_bulk_part_begin(*how);
    kvcl_status_t  status;

    status = (*how == KVCL_BULK_LARGE) ? kvcl_side_copy_sums_large(dst, src, sums)
                                       : kvcl_side_copy_sums(dst, src, sums);
    *how   = kvcl_bulk_part_end(*how, dst->sel.n_blocks * dst->shape->block_bytes, begun);
    return status;
}

/* Copy m blocks that lie in one cache, then check that they were the same blocks all the while. */
static bool fetch(const hit_t *hits, size_t m, kvcl_cache_h cache, const uint32_t *ids, kvcl_bulk_how_t *how)
{
    uint64_t    sums[CHUNK];
    uint32_t    slots[CHUNK];
    kvcl_sel_t  from   = {.blocks = slots, .n_blocks = m};
    kvcl_sel_t  to     = {.blocks = ids, .n_blocks = m};
    kvcl_side_t src    = {hits->source.shape, hits->source.bases, from, hits->source.copier};
    kvcl_side_t dst    = kvcl_cache_side(cache, &to);
    bool        summed = false;
    size_t      i;

    for (i = 0; i < m; ++i) {
        slots[i] = hits[i].loc.slot;
        summed   = summed || (hits[i].loc.flags & KVCL_LOC_SUMMED);
        if ((hits->source.bases == cache->bases) && (slots[i] == ids[i])) {
            return false; /* a block onto itself: rare */
        }
    }
    if ((kvcl_side_check(&src) != KVCL_OK) || (copy(&dst, &src, summed ? sums : NULL, how) != KVCL_OK)) {
        return false;
    }
    for (i = 0; i < m; ++i) {
        if (!kvcl_slots_gen_is(&hits->source.gens[slots[i]], hits[i].loc.gen)) {
            return false;
        }
    }
    if ((hits->source.live != NULL) && !kvcl_rregion_live(hits->source.live)) {
        return false;
    }
    for (i = 0; i < m; ++i) {
        if ((hits[i].loc.flags & KVCL_LOC_SUMMED) && (sums[i] != hits[i].loc.checksum)) {
            return false;
        }
    }
    return true;
}

static void touch(kvcl_store_h store, const hit_t *hits, size_t n)
{
    kvcl_owner_t *owner;
    size_t       i;

    for (i = n; (i > 0) && !(hits[i - 1].found && (hits[i - 1].loc.rank == store->me)); --i) {
    }
    if (i == 0) {
        return;
    }
    kvcl_lock(store->ctx);
    while (i-- > 0) {
        if (hits[i].found && (hits[i].loc.rank == store->me)) {
            owner = kvcl_owner_by_cache_id(store, hits[i].loc.cache);
            if (owner != NULL) {
                kvcl_owner_touch(owner, hits[i].loc.slot);
            }
        }
    }
    kvcl_unlock_quietly(store->ctx);
}

static void note_uses(kvcl_store_h store, const hit_t *hits, size_t n)
{
    const kvcl_dir_loc_t *locs[CHUNK];
    size_t               found = 0;

    while (n-- > 0) { /* the end of a chain first */
        if (hits[n].found && (hits[n].loc.rank != store->me)) {
            locs[found++] = &hits[n].loc;
        }
    }
    kvcl_uses_note(store, locs, found, false);
}

static bool one_chunk(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                      hit_t *hits, kvcl_bulk_how_t *how)
{
    size_t i, j;

    for (i = 0; (n > 1) && (i < n); ++i) { /* all first: several addresses are then translated at a time */
        kvcl_store_prefetch(store, &keys[i]);
    }
    for (i = 0; i < n; ++i) {
        if (!locate(store, &keys[i], cache->shape.block_bytes, &hits[i])) {
            return false;
        }
    }
    for (i = 0; i < n; i = j) {
        j = i + 1;
        if (!hits[i].found) {
            continue;
        }
        while ((j < n) && hits[j].found && (hits[j].source.bases == hits[i].source.bases)) {
            ++j;
        }
        if (!fetch(&hits[i], j - i, cache, ids + i, how)) {
            return false;
        }
    }
    touch(store, hits, n);
    note_uses(store, hits, n);
    return true;
}

/* No lock: reads only mapped or local state. */
static inline void note_path(kvcl_timing_t *timing, kvcl_store_h store, uint32_t rank)
{
    if ((timing != NULL) && (timing->begun_ns != 0) && (rank != store->me)) {
        kvcl_timing_path(timing, kvcl_mem_path_mapped(store->ranks[rank].peer));
    }
}

/* How many of the first n blocks are read next: the last ones. */
static size_t next_chunk(size_t n, uint64_t block_bytes, kvcl_bulk_how_t how)
{
    const size_t some = ((n - 1) % CHUNK) + 1, probe = (size_t)((PROBE_BYTES + block_bytes - 1) / block_bytes);

    return ((how == KVCL_BULK_UNSURE) && (probe < some)) ? probe : some;
}

/* The bytes of a large get may be announced, and written again. */
static inline void end_copies(kvcl_bulk_how_t how)
{
    if (how == KVCL_BULK_LARGE) {
        kvcl_bulk_end();
    }
}

static const char absent[] = "kvcl_store_get: %llu of %llu blocks " KVCL_WORDS_ABSENT;

/* missed of n blocks are absent, the first of them under this key, number `first`. */
static kvcl_status_t miss(kvcl_store_h store, kvcl_cache_h cache, size_t missed, size_t n, size_t first,
                          const kvcl_key_t *key)
{
    char why[KVCL_ERROR_MAX / 2];

    if (!kvcl_store_explain_size(store, cache->shape.block_bytes, why, sizeof(why))) {
        return kvcl_store_absent(absent, missed, n, first, key);
    }
    return kvcl_fail(KVCL_ERR_NOT_FOUND, "kvcl_store_get: %zu of %zu blocks are absent; the first is number %zu of the "
                     "call, key %016llx...: %s", missed, n, first, kvcl_key_prefix(key), why);
}

bool kvcl_get_now(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                  kvcl_status_t *statuses[2], kvcl_timing_t *timing, kvcl_store_tenant_t *tenant,
                  kvcl_status_t *final_p)
{
    hit_t           hits[CHUNK];
    kvcl_bulk_how_t how = kvcl_bulk_how(n * cache->shape.block_bytes);
    kvcl_status_t final = KVCL_OK, one;
    size_t        got[KVCL_DIR_TIER_MASK + 1] = {0}, n_got = 0, local = 0, from = n, first = 0, some, i;

    while (from > 0) { /* the last chunk first: the end of a chain is marked used before its beginning */
        some  = next_chunk(from, cache->shape.block_bytes, how);
        from -= some;
        if (!one_chunk(store, keys + from, some, cache, ids + from, hits, &how)) {
            end_copies(how);
            return false;
        }
        for (i = some; i-- > 0;) {
            one   = hits[i].found ? KVCL_OK : KVCL_ERR_NOT_FOUND;
            if (hits[i].found) {
                note_path(timing, store, hits[i].loc.rank);
                ++got[hits[i].loc.flags & KVCL_DIR_TIER_MASK];
                local += (hits[i].loc.rank == store->me) ? 1 : 0;
                ++n_got;
            }
            final = (one != KVCL_OK) ? one : final; /* in the end that of the first failed block */
            first = (one != KVCL_OK) ? from + i : first;
            if (statuses[0] != NULL) {
                statuses[0][from + i] = one;
            }
            if (statuses[1] != NULL) {
                statuses[1][from + i] = one;
            }
        }
    }
    end_copies(how);
    kvcl_uses_send(store, false);
    if (timing != NULL) {
        timing->bytes = n_got * cache->shape.block_bytes;
        if (final == KVCL_OK) {
            kvcl_timing_end(&store->ctx->latency, timing);
        }
    }
    kvcl_store_count_hits(&store->counts, got, local);
    if (tenant != NULL) {
        kvcl_store_count_hits(&tenant->counts, got, local);
    }
    atomic_fetch_add_explicit(&store->ctx->bytes_in, n_got * cache->shape.block_bytes, memory_order_relaxed);
    *final_p = (final == KVCL_OK) ? KVCL_OK : miss(store, cache, n - n_got, n, first, &keys[first]);
    return true;
}
