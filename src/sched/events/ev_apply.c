/*
 * Events applied to the index (ev_apply.h). Owns nothing; uses the index's scratch for the tokens of a block.
 */
#include "config.h"

#include "sched/events/ev_apply.h"
#include "sched/events/ev_keys.h"

#include "base/checksum.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BLOCK_TOKENS_MAX = 65536 };

static const struct {
    const char *begin;
    uint32_t   tier;
} media[] = {
    {"gpu", KVCL_STORE_TIER_CACHE}, {"npu", KVCL_STORE_TIER_CACHE}, {"hbm", KVCL_STORE_TIER_CACHE},
    {"device", KVCL_STORE_TIER_CACHE}, {"cpu", KVCL_STORE_TIER_DRAM}, {"dram", KVCL_STORE_TIER_DRAM},
    {"host", KVCL_STORE_TIER_DRAM}, {"disk", KVCL_STORE_TIER_NVME}, {"ssd", KVCL_STORE_TIER_NVME},
    {"nvme", KVCL_STORE_TIER_NVME},
};

uint32_t kvcl_ev_tiers(const kvcl_idx_source_t *source, const kvcl_ev_t *ev)
{
    size_t i, len;

    if (ev->medium.at == NULL) {
        return source->params.tiers & ((ev->kind == KVCL_EV_CLEARED) ? (uint32_t)KVCL_IDX_REAL
                                                                      : 1u << KVCL_STORE_TIER_CACHE);
    }
    for (i = 0; i < sizeof(media) / sizeof(media[0]); ++i) {
        len = strlen(media[i].begin);
        if ((ev->medium.len >= len) && (strncasecmp(ev->medium.at, media[i].begin, len) == 0)) {
            return source->params.tiers & (1u << media[i].tier);
        }
    }
    return 0;
}

static bool is_other(const char *only, const kvcl_ev_text_t *text)
{
    return (only != NULL) && (text->at != NULL) &&
           ((strlen(only) != text->len) || (memcmp(only, text->at, text->len) != 0));
}

bool kvcl_ev_is_ours(const kvcl_idx_source_t *source, const kvcl_ev_t *ev)
{
    const kvcl_sched_source_params_t *p = &source->params;

    return !is_other(p->only_model, &ev->model) && !is_other(p->only_tenant, &ev->tenant) &&
           !is_other(p->only_backend, &ev->backend) &&
           ((p->block_tokens == 0) || (ev->block_size == 0) || (ev->block_size == p->block_tokens)) &&
           (((p->flags & KVCL_SCHED_SOURCE_DP_RANK) == 0) || !ev->has_dp_rank || (ev->dp_rank == p->dp_rank));
}

/* ---- hashes of engines ---- */

/* Where an event's hashes are unique: in its group; Mooncake's removals also tell adapter, tenant and salt. */
static uint64_t space_of(kvcl_sched_index_h index, const kvcl_idx_source_t *source, const kvcl_ev_t *ev)
{
    uint64_t seed = index->hash_seed + ev->group * UINT64_C(0x9e3779b97f4a7c15);

    if (source->params.feed == KVCL_SCHED_FEED_MOONCAKE) {
        seed = kvcl_checksum_seed(ev->lora.at, ev->lora.len, seed);
        seed = kvcl_checksum_seed(ev->tenant.at, ev->tenant.len, seed);
        seed = kvcl_checksum_seed(ev->salt.at, ev->salt.len, seed);
    }
    return seed;
}

static bool hash_of(const kvcl_mp_item_t *item, uint64_t space, uint64_t *hash_p)
{
    if (item->kind == KVCL_MP_BYTES) {
        *hash_p = kvcl_checksum_seed(item->bytes, item->len, space);
        return true;
    }
    *hash_p = kvcl_checksum_seed(&item->number, sizeof(item->number), ~space);
    return (item->kind == KVCL_MP_UINT) || (item->kind == KVCL_MP_INT);
}

static bool next_hash(kvcl_ev_list_t *list, uint64_t space, kvcl_mp_item_t *item, uint64_t *hash_p)
{
    --list->n;
    return kvcl_mp_next(&list->mp, item) && hash_of(item, space, hash_p);
}

/* ---- stored ---- */

/* No tokens: blocks that the source has named before, or whose hash is all there is. */
static bool stored_by_hash(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers)
{
    uint64_t               space = space_of(index, source, ev), hash;
    kvcl_ev_list_t         list  = ev->hashes;
    const kvcl_idx_block_t *block;
    kvcl_mp_item_t         item;
    kvcl_key_t             root, key;
    uint32_t               known;

    if (!kvcl_ev_root(&source->base, ev, &root)) {
        return false;
    }
    while (list.n > 0) {
        if (!next_hash(&list, space, &item, &hash)) {
            return false;
        }
        known = kvcl_idx_held_find(&source->held, hash);
        if (known != KVCL_IDX_NO_BLOCK) {
            block = kvcl_idx_block(index, known);
            key   = block->key;
            (void)!kvcl_idx_hold(index, source, &key, kvcl_idx_depth(block), hash, tiers);
        } else if ((source->params.feed == KVCL_SCHED_FEED_MOONCAKE) && (item.kind == KVCL_MP_UINT)) {
            kvcl_ev_hash_key(&root, item.number, &key);
            (void)!kvcl_idx_hold(index, source, &key, KVCL_IDX_DEPTHS, hash, tiers);
        } else {
            ++source->info.orphans;
        }
    }
    return true;
}

/* The key before the first block, and its position. @return false: it is not known. */
static bool parent_of(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, const kvcl_key_t *root,
                      kvcl_key_t *parent, uint32_t *first)
{
    uint64_t hash;
    uint32_t known;

    if (ev->parent.kind == KVCL_MP_NIL) {
        *parent = *root;
        *first  = 0;
        return !ev->has_base || (ev->base == 0);
    }
    (void)hash_of(&ev->parent, space_of(index, source, ev), &hash);
    known = kvcl_idx_held_find(&source->held, hash);
    if (known == KVCL_IDX_NO_BLOCK) {
        return false;
    }
    *parent = kvcl_idx_block(index, known)->key;
    *first  = (kvcl_idx_depth(kvcl_idx_block(index, known)) + 1) % KVCL_IDX_DEPTHS;
    return true;
}

static bool tokens_room(kvcl_sched_index_h index, uint32_t n)
{
    uint32_t *larger;

    if (index->token_cap < n) {
        larger = realloc(index->tokens, n * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        index->tokens    = larger;
        index->token_cap = n;
    }
    return true;
}

static bool stored_by_tokens(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers,
                             uint32_t size)
{
    uint64_t          space  = space_of(index, source, ev), hash;
    kvcl_ev_list_t    hashes = ev->hashes, tokens = ev->tokens, extra = ev->extra;
    kvcl_idx_coming_t coming[KVCL_IDX_COMING];
    kvcl_key_t        root, parent, key;
    uint32_t          depth;
    kvcl_mp_item_t    item;
    size_t            n, k = 0;

    if (!kvcl_ev_root(&source->base, ev, &root) || ((extra.n != 0) && (extra.n != hashes.n))) {
        return false;
    }
    if (!parent_of(index, source, ev, &root, &parent, &depth)) {
        source->info.orphans += hashes.n;
        return true;
    }
    while ((hashes.n > 0) && (tokens.n >= size)) {
        if (!next_hash(&hashes, space, &item, &hash) || !kvcl_mp_u32s(&tokens.mp, index->tokens, size) ||
            ((extra.n != 0) && !kvcl_ev_extra(&extra, &ev->lora, &parent))) {
            (void)!kvcl_idx_hold_all(index, source, coming, k, tiers);
            return false;
        }
        tokens.n -= size;
        (void)!kvcl_key_chain(&parent, depth, index->tokens, size, size, &key, 1, &n);
        kvcl_idx_coming(index, source, &coming[k++], &key, depth, hash);
        if (k == KVCL_IDX_COMING) {
            (void)!kvcl_idx_hold_all(index, source, coming, k, tiers);
            k = 0;
        }
        parent = key;
        depth  = (depth + 1) % KVCL_IDX_DEPTHS;
    }
    (void)!kvcl_idx_hold_all(index, source, coming, k, tiers);
    source->info.orphans += hashes.n;
    return true;
}

bool kvcl_ev_stored(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers)
{
    uint32_t size = (ev->block_size != 0) ? ev->block_size : source->params.block_tokens;

    source->info.stored += ev->hashes.n;
    if (ev->tokens.n == 0) {
        return stored_by_hash(index, source, ev, tiers);
    }
    if ((size == 0) || (size > BLOCK_TOKENS_MAX)) {
        return false;
    }
    if (!tokens_room(index, size)) {
        source->info.full += ev->hashes.n;
        source->lossy = true;
        return true;
    }
    return stored_by_tokens(index, source, ev, tiers, size);
}

bool kvcl_ev_removed(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers)
{
    uint64_t       space = space_of(index, source, ev), hash;
    kvcl_ev_list_t list  = ev->hashes;
    kvcl_mp_item_t item;
    uint32_t       known;

    source->info.removed += list.n;
    while (list.n > 0) {
        if (!next_hash(&list, space, &item, &hash)) {
            return false;
        }
        known = kvcl_idx_held_find(&source->held, hash);
        if (known != KVCL_IDX_NO_BLOCK) {
            kvcl_idx_let_go(index, source, known, hash, tiers);
        }
    }
    return true;
}
