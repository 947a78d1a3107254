/*
 * Staging memory: blocks that the tier is read into, one cache of them for each size of the pool's blocks.
 *
 * A staging block is free, being read, held by readers, or idle until its place is needed. A reader that does not
 * release a block loses it after LEASE_NS if other requests wait: the generation advances, so a late reader copies in
 * vain and never gets other bytes. The sizes share STAGING_BYTES evenly, so requests for one size never wait for
 * readers of another.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"
#include "store/cold/cold.h"

#include <stdlib.h>

enum { STAGING_BYTES = 64 << 20, STAGES_MIN = 4, STAGES_MAX = 1024 };
#define LEASE_NS (2 * KVCL_NS_PER_SEC)

static uint32_t n_stages(uint64_t block_bytes, unsigned n_sizes)
{
    uint64_t n = STAGING_BYTES / ((n_sizes != 0) ? n_sizes : 1) / block_bytes;

    return (uint32_t)((n < STAGES_MIN) ? STAGES_MIN : (n > STAGES_MAX) ? STAGES_MAX : n);
}

uint32_t kvcl_stage_window(uint64_t block_bytes, unsigned n_sizes)
{
    return n_stages(block_bytes, n_sizes) / 4;
}

/* ---- the index of what is staged ---- */

kvcl_stage_t *kvcl_staging_find(const kvcl_cold_t *cold, const kvcl_store_rec_t *rec)
{
    kvcl_stage_t *at = kvcl_map_get(&cold->index, kvcl_owner_hash(&rec->key));

    while ((at != NULL) && (!kvcl_key_equal(&at->rec.key, &rec->key) || (at->rec.loc.slot != rec->loc.slot) ||
                            (at->rec.loc.gen != rec->loc.gen) || (at->rec.loc.len != rec->loc.len))) {
        at = at->next;
    }
    return at;
}

static bool index_add(kvcl_cold_t *cold, kvcl_stage_t *stage)
{
    uint64_t hash = kvcl_owner_hash(&stage->rec.key);

    stage->next = kvcl_map_get(&cold->index, hash);
    return kvcl_map_put(&cold->index, hash, stage) == KVCL_OK;
}

static void index_del(kvcl_cold_t *cold, kvcl_stage_t *stage)
{
    uint64_t     hash  = kvcl_owner_hash(&stage->rec.key);
    kvcl_stage_t *head = kvcl_map_get(&cold->index, hash), *at;

    if (head != stage) {
        for (at = head; (at != NULL) && (at->next != stage); at = at->next) {
        }
        if (at != NULL) {
            at->next = stage->next;
        }
    } else if ((stage->next == NULL) || (kvcl_map_put(&cold->index, hash, stage->next) != KVCL_OK)) {
        (void)kvcl_map_del(&cold->index, hash);
    }
    stage->next = NULL;
}

/* ---- staging blocks ---- */

/* Evict a staged block: from here on its generation rejects late readers. */
static void recycle(kvcl_stage_t *stage)
{
    kvcl_list_del(&stage->link);
    index_del(stage->cls->cold, stage);
    stage->users = 0;
    (void)!kvcl_slots_withdraw(&stage->cls->slots, kvcl_stage_slot(stage), KVCL_SLOT_FREE);
}

static void make_room(kvcl_cold_class_t *cls)
{
    kvcl_stage_t *oldest;

    if (!kvcl_list_is_empty(&cls->idle)) {
        recycle(kvcl_list_head(&cls->idle, kvcl_stage_t, link));
    } else if (!kvcl_list_is_empty(&cls->held)) {
        oldest = kvcl_list_head(&cls->held, kvcl_stage_t, link);
        if (kvcl_now_ns() - oldest->held_ns > LEASE_NS) {
            recycle(oldest);
        }
    }
}

kvcl_stage_t *kvcl_staging_take(kvcl_cold_class_t *cls, const kvcl_store_rec_t *rec)
{
    kvcl_stage_t *stage;
    uint32_t     slot;

    if (cls->slots.n_free == 0) {
        make_room(cls);
    }
    if (kvcl_slots_alloc(&cls->slots, &slot) != KVCL_OK) {
        return NULL;
    }
    stage                 = &cls->stages[slot];
    stage->rec            = *rec;
    stage->rec.loc.source = 0;
    if (!index_add(cls->cold, stage)) {
        (void)!kvcl_slots_abort(&cls->slots, slot);
        return NULL;
    }
    return stage;
}

kvcl_status_t kvcl_staging_read(kvcl_stage_t *stage, kvcl_status_t status)
{
    kvcl_cold_class_t *cls = stage->cls;
    uint32_t          slot = kvcl_stage_slot(stage);
    kvcl_dir_loc_t    loc;

    if (status == KVCL_OK) {
        status = kvcl_slots_publish(&cls->slots, slot, &stage->rec.key, KVCL_DIR_TIER_DRAM | KVCL_LOC_SUMMED,
                                    stage->rec.loc.len, stage->rec.loc.checksum, &loc);
    }
    if (status == KVCL_OK) {
        stage->users = 0;
        kvcl_list_add_tail(&cls->idle, &stage->link);
    } else {
        (void)!kvcl_slots_abort(&cls->slots, slot);
        index_del(cls->cold, stage);
    }
    return status;
}

void kvcl_staging_hold(kvcl_stage_t *stage)
{
    ++stage->users;
    stage->held_ns = kvcl_now_ns();
    kvcl_list_del(&stage->link);
    kvcl_list_add_tail(&stage->cls->held, &stage->link);
}

void kvcl_staging_release(kvcl_cold_t *cold, const kvcl_stage_got_t *got)
{
    kvcl_cold_class_t *cls = kvcl_cold_staging(cold, got->cache);
    kvcl_stage_t      *stage;

    if ((cls == NULL) || (got->slot >= cls->slots.n) || (cls->array[got->slot].state != KVCL_SLOT_PUBLISHED) ||
        (kvcl_slots_gen(&cls->slots, got->slot) != got->gen)) {
        return; /* its lease has ended */
    }
    stage = &cls->stages[got->slot];
    if ((stage->users != 0) && (--stage->users == 0)) {
        kvcl_list_del(&stage->link);
        kvcl_list_add_tail(&cls->idle, &stage->link);
    }
}

/* ---- init and fini ---- */

static kvcl_status_t init_class(kvcl_cold_class_t *cls)
{
    kvcl_store_h  store = cls->cold->store;
    uint32_t      bytes = (uint32_t)kvcl_owner_bytes(cls->pool), n = n_stages(bytes, cls->cold->n), first, i;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(n, bytes);
    char          name[KVCL_CACHE_NAME_MAX + 1];
    kvcl_status_t status;

    snprintf(name, sizeof(name), "kvcl.stage.%016llx.%u", (unsigned long long)store->id, bytes);
    status = kvcl_cache_create(store->ctx, name, &layout, NULL, &cls->cache);
    if ((status != KVCL_OK) || ((status = kvcl_owner_check_id(cls->cache)) != KVCL_OK) ||
        ((status = kvcl_random_bytes(&first, sizeof(first))) != KVCL_OK)) {
        return status;
    }
    cls->array  = calloc(n, sizeof(*cls->array));
    cls->stages = calloc(n, sizeof(*cls->stages));
    if ((cls->array == NULL) || (cls->stages == NULL) ||
        (kvcl_map_reserve(&cls->cold->index, (size_t)STAGES_MAX * cls->cold->n) != KVCL_OK)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u staging blocks", n);
    }
    for (i = 0; i < n; ++i) {
        cls->stages[i].cls = cls;
        kvcl_list_init(&cls->stages[i].link);
        kvcl_list_init(&cls->stages[i].waiters);
    }
    return kvcl_slots_init(&cls->slots, cls->cache->gens, cls->array, n, (uint16_t)store->me, store->incarnation,
                           (uint16_t)cls->cache->id, first & 0x3fffffff);
}

kvcl_status_t kvcl_staging_init(kvcl_cold_t *cold)
{
    kvcl_status_t status = KVCL_OK;
    unsigned      i;

    for (i = 0; (i < cold->n) && (status == KVCL_OK); ++i) {
        status = init_class(&cold->classes[i]);
    }
    return status;
}

void kvcl_staging_fini(kvcl_cold_t *cold)
{
    unsigned i;

    for (i = 0; i < cold->n; ++i) {
        if (cold->classes[i].cache != NULL) {
            kvcl_cache_destroy(cold->classes[i].cache);
        }
        free(cold->classes[i].array);
        free(cold->classes[i].stages);
    }
}
