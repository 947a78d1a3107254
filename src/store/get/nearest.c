/*
 * Which copy of a block a get takes next: mine, one in a mapped cache, one of this host, any; then those in second
 * tiers, in the same order; a silent rank's last. One that was given up for its silence comes before that of a rank
 * that is silent now, if its own is not any more, and after all others if it is.
 */
#include "config.h"
#include "store/get/get.h"

enum { SILENT = 2 };

/* Whoever gets it has had these bytes, and has no use for them. */
static bool is_shunned(const kvcl_get_item_t *item, const kvcl_dir_loc_t *loc)
{
    const kvcl_dir_loc_t *not_this = &item->shunned;

    return (not_this->source != 0) &&
           ((kvcl_dir_loc_tag(loc) == not_this->source) ||
            ((loc->flags & not_this->flags & KVCL_LOC_SUMMED) && (loc->checksum == not_this->checksum)));
}

/* How near a copy is; 0: not to be had. A rank that is silent comes last, unless its memory is mapped here. */
static unsigned nearness(const kvcl_get_t *get, const kvcl_dir_loc_t *loc)
{
    const kvcl_store_h store = get->store;
    bool               in_tier, near;

    if (!kvcl_store_loc_lives(store, loc) || (loc->len != get->cache->shape.block_bytes)) {
        return 0;
    }
    in_tier = ((loc->flags & KVCL_DIR_TIER_MASK) == KVCL_DIR_TIER_NVME);
    if (loc->rank == store->me) {
        return in_tier ? 5 : 9;
    }
    if ((store->ranks[loc->rank].peer->maps == 1) && !in_tier) {
        return 8;
    }
    if (kvcl_store_excludes(store, loc->rank)) {
        return 0;
    }
    if (kvcl_store_suspects(store, loc->rank)) {
        return in_tier ? 1 : SILENT;
    }
    near = (store->places[loc->rank].host == store->places[store->me].host);
    return in_tier ? (near ? 4 : 3) : (near ? 7 : 6);
}

bool kvcl_get_choose(const kvcl_get_t *get, kvcl_get_item_t *item)
{
    unsigned i, j, best_score = 0, score;

    kvcl_assert_locked(get->store->ctx);
    for (i = 0; i < item->n_locs; ++i) {
        j     = (i + get->store->me) % item->n_locs;
        score = is_shunned(item, &item->locs[j]) ? 0 : 2 * nearness(get, &item->locs[j]);
        if ((score != 0) && (item->tried & (1u << j))) {
            score = !(item->silent & (1u << j)) ? 0 : (score > 2 * SILENT) ? (2 * SILENT) + 1 : 1;
        }
        if (score > best_score) {
            best_score = score;
            item->cur  = (uint8_t)j;
        }
    }
    if (best_score != 0) {
        item->tried  &= (uint8_t)~(1u << item->cur);
        item->silent &= (uint8_t)~(1u << item->cur);
    }
    return best_score > 0;
}

bool kvcl_get_may_take(const kvcl_get_t *get, const kvcl_get_item_t *item, unsigned at)
{
    const kvcl_dir_loc_t *loc = &item->locs[at];

    kvcl_assert_locked(get->store->ctx);
    return !(item->tried & (1u << at)) && !is_shunned(item, loc) && (nearness(get, loc) != 0) &&
           ((loc->flags & KVCL_DIR_TIER_MASK) != KVCL_DIR_TIER_NVME);
}

bool kvcl_get_has_other(const kvcl_get_t *get, const kvcl_get_item_t *item)
{
    unsigned i;

    kvcl_assert_locked(get->store->ctx);
    for (i = 0; i < item->n_locs; ++i) {
        bool tried = (item->tried & ~(unsigned)item->silent & (1u << i)) != 0;
        if ((i != item->cur) && !tried && !is_shunned(item, &item->locs[i]) &&
            (nearness(get, &item->locs[i]) > SILENT)) {
            return true;
        }
    }
    return false;
}
