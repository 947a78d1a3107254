/*
 * The order in which a get tries the copies of a block: local memory, mapped memory, a rank of this host, any other
 * rank; then copies in second tiers, in the same order; a silent rank's copy last. A copy that was dropped for silence
 * ranks before copies of silent ranks if its own rank answers again, and after all others if it does not.
 */
#include "config.h"
#include "store/get/get.h"
#include "store/home/ranks.h"

enum { SILENT = 2 };

/* The getter has had these bytes and cannot use them. */
static bool is_shunned(const kvcl_get_item_t *item, const kvcl_dir_loc_t *loc)
{
    const kvcl_dir_loc_t *shunned = &item->shunned;

    return (shunned->source != 0) &&
           ((kvcl_dir_loc_tag(loc) == shunned->source) ||
            ((loc->flags & shunned->flags & KVCL_LOC_SUMMED) && (loc->checksum == shunned->checksum)));
}

/* How near a copy is, larger is nearer; 0: not available. A silent rank is last, unless its memory is mapped here. */
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
