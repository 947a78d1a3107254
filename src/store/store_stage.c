/*
 * Blocks of my tier on their way to whoever asks: read into staging blocks, which readers hold until they let go.
 *
 * A staging block is free; being read; held by readers; or idle, until its place is needed. Who forgets to let go loses
 * it after LEASE_NS, if others wait: the generation goes on, so a late reader copies in vain and never gets other
 * bytes. Questions are served in turn and are bounded by WAITING_MAX blocks; beyond that the answer is KVCL_ERR_BUSY.
 * What is asked for a second time is copied into the pool, as another rank's block would be (store_copy.c).
 *
 * All under the engine lock but the ends of reads, which come on the tier's threads and take it.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "store/nvme.h"

#include <stdlib.h>

enum { STAGING_BYTES = 64 << 20, STAGES_MIN = 4, STAGES_MAX = 1024, WAITING_MAX = 65536, PROMOTE_MAX = 16 };
#define LEASE_NS (2 * KVCL_NS_PER_SEC)
#define LOOK_NS  (100 * KVCL_NS_PER_MS)

typedef struct stage_job stage_job_t;

/* One block of a question. */
typedef struct stage_item {
    kvcl_list_t link; /* kvcl_stage_t.waiters */
    stage_job_t *job;
} stage_item_t;

struct stage_job {
    kvcl_list_t        link;  /* nvme->jobs until all is begun, then nvme->begun */
    kvcl_nvme_t        *nvme;
    kvcl_peer_t        *peer; /* who asked; NULL: cb, if that is not NULL */
    kvcl_msg_dir_ask_t ask;
    kvcl_stage_cb_t    cb;
    void               *arg;
    uint32_t           n, next; /* items; those begun */
    uint32_t           left;    /* not over */
    kvcl_stage_got_t   *got;
    kvcl_store_rec_t   *recs;
    stage_item_t       items[];
};

static uint32_t n_stages(uint64_t block_bytes)
{
    uint64_t n = STAGING_BYTES / block_bytes;

    return (uint32_t)((n < STAGES_MIN) ? STAGES_MIN : (n > STAGES_MAX) ? STAGES_MAX : n);
}

uint32_t kvcl_stage_window(uint64_t block_bytes)
{
    return n_stages(block_bytes) / 4;
}

/* ---- the index of what is staged ---- */

static kvcl_stage_t *find(const kvcl_nvme_t *nvme, const kvcl_store_rec_t *rec)
{
    kvcl_stage_t *at = kvcl_map_get(&nvme->index, kvcl_owner_hash(&rec->key));

    while ((at != NULL) && (!kvcl_key_equal(&at->rec.key, &rec->key) || (at->rec.loc.slot != rec->loc.slot) ||
                            (at->rec.loc.gen != rec->loc.gen))) {
        at = at->next;
    }
    return at;
}

static bool index_add(kvcl_nvme_t *nvme, kvcl_stage_t *stage)
{
    uint64_t hash = kvcl_owner_hash(&stage->rec.key);

    stage->next = kvcl_map_get(&nvme->index, hash);
    return kvcl_map_put(&nvme->index, hash, stage) == KVCL_OK;
}

static void index_del(kvcl_nvme_t *nvme, kvcl_stage_t *stage)
{
    uint64_t     hash  = kvcl_owner_hash(&stage->rec.key);
    kvcl_stage_t *head = kvcl_map_get(&nvme->index, hash), *at;

    if (head != stage) {
        for (at = head; (at != NULL) && (at->next != stage); at = at->next) {
        }
        if (at != NULL) {
            at->next = stage->next;
        }
    } else if ((stage->next == NULL) || (kvcl_map_put(&nvme->index, hash, stage->next) != KVCL_OK)) {
        (void)kvcl_map_del(&nvme->index, hash);
    }
    stage->next = NULL;
}

/* ---- staging blocks ---- */

static uint32_t slot_of(const kvcl_stage_t *stage)
{
    return (uint32_t)(stage - stage->nvme->stages);
}

/* A staged block makes room: from here on nobody takes its bytes for what they were. */
static void recycle(kvcl_nvme_t *nvme, kvcl_stage_t *stage)
{
    kvcl_list_del(&stage->link);
    index_del(nvme, stage);
    stage->users = 0;
    (void)!kvcl_slots_withdraw(&nvme->slots, slot_of(stage), KVCL_SLOT_FREE);
}

/* A block to read into, or NULL: all are being read or held. */
static kvcl_stage_t *take(kvcl_nvme_t *nvme)
{
    kvcl_stage_t *oldest;
    uint32_t     slot;

    if (nvme->slots.n_free == 0) {
        if (!kvcl_list_is_empty(&nvme->idle)) {
            recycle(nvme, kvcl_list_head(&nvme->idle, kvcl_stage_t, link));
        } else if (!kvcl_list_is_empty(&nvme->held)) {
            oldest = kvcl_list_head(&nvme->held, kvcl_stage_t, link);
            if (kvcl_now_ns() - oldest->held_ns > LEASE_NS) {
                recycle(nvme, oldest);
            }
        }
    }
    return (kvcl_slots_alloc(&nvme->slots, &slot) == KVCL_OK) ? &nvme->stages[slot] : NULL;
}

static void hold(kvcl_nvme_t *nvme, kvcl_stage_t *stage)
{
    ++stage->users;
    stage->held_ns = kvcl_now_ns();
    kvcl_list_del(&stage->link);
    kvcl_list_add_tail(&nvme->held, &stage->link);
}

void kvcl_stage_let_go(kvcl_nvme_t *nvme, uint32_t slot, uint32_t gen)
{
    kvcl_stage_t *stage;

    if ((nvme == NULL) || (slot >= nvme->slots.n) || (nvme->array[slot].state != KVCL_SLOT_PUBLISHED) ||
        (kvcl_slots_gen(&nvme->slots, slot) != gen)) {
        return; /* its time was over */
    }
    stage = &nvme->stages[slot];
    if ((stage->users != 0) && (--stage->users == 0)) {
        kvcl_list_del(&stage->link);
        kvcl_list_add_tail(&nvme->idle, &stage->link);
    }
}

/* ---- promotion ---- */

/* Was this block asked for before? It has been now. */
static bool seen(kvcl_nvme_t *nvme, const kvcl_key_t *key)
{
    uint64_t hash = kvcl_owner_hash(key) | 1, *at = &nvme->seen[(hash >> 8) & (nvme->n_seen - 1)];
    bool     was  = (*at == hash);

    *at = was ? 0 : hash;
    return was;
}

/* No block is dropped for one that is in the tier anyway. */
static bool pool_has_room(kvcl_nvme_t *nvme)
{
    kvcl_owner_t *pool = nvme->pool;
    uint32_t     next;

    if ((pool->slots.n_free != 0) ||
        ((kvcl_evict_peek(&pool->evict, &next, 1) == 1) && (nvme->clean[next] == KVCL_NVME_CLEAN))) {
        return true;
    }
    kvcl_nvme_kick(nvme);
    return false;
}

/* A staged block into the pool. */
static void promote(kvcl_nvme_t *nvme, kvcl_stage_t *stage)
{
    kvcl_store_h     store = nvme->store;
    kvcl_copy_head_t head  = {.copies = (uint8_t)kvcl_loc_copies(stage->rec.loc.flags)};
    kvcl_store_rec_t rec   = stage->rec;

    stage->promote = false;
    if (store->closing || store->draining || (kvcl_owner_find(store, &rec.key, nvme->pool) != NULL) ||
        !pool_has_room(nvme)) {
        return;
    }
    rec.loc.cache = (uint16_t)nvme->cache->id;
    rec.loc.slot  = slot_of(stage);
    rec.loc.gen   = kvcl_slots_gen(&nvme->slots, rec.loc.slot);
    rec.loc.flags = (uint16_t)((rec.loc.flags & ~KVCL_DIR_TIER_MASK) | KVCL_DIR_TIER_DRAM);
    if (kvcl_copy_here(store, &head, &rec, NULL, 1, &stage->rec.loc) == KVCL_OK) {
        atomic_fetch_add_explicit(&nvme->n_promoted, 1, memory_order_relaxed);
    }
}

/* ---- questions ---- */

static stage_job_t *make(kvcl_nvme_t *nvme, const void *recs, uint32_t n)
{
    stage_job_t *job = calloc(1, sizeof(*job) + (n * (sizeof(job->items[0]) + sizeof(*job->got) + sizeof(*job->recs))));
    uint32_t    i;

    if (job == NULL) {
        return NULL;
    }
    job->nvme = nvme;
    job->n    = n;
    job->left = n;
    job->recs = (kvcl_store_rec_t *)(void *)(job->items + n);
    job->got  = (kvcl_stage_got_t *)(void *)(job->recs + n);
    memcpy(job->recs, recs, n * sizeof(*job->recs));
    kvcl_list_init(&job->link);
    for (i = 0; i < n; ++i) {
        kvcl_list_init(&job->items[i].link);
        job->items[i].job = job;
        job->got[i].status = KVCL_ERR_BUSY;
    }
    return job;
}

/* Who asked for it is no longer there to let go. */
static void let_all_go(stage_job_t *job)
{
    uint32_t i;

    for (i = 0; i < job->n; ++i) {
        if (job->got[i].status == KVCL_OK) {
            kvcl_stage_let_go(job->nvme, job->got[i].slot, job->got[i].gen);
        }
    }
}

/* The job is gone afterwards. */
static void answer(stage_job_t *job)
{
    kvcl_nvme_t *nvme = job->nvme;

    kvcl_list_del(&job->link);
    nvme->n_waiting -= job->n;
    --nvme->store->ops;
    if (job->peer != NULL) {
        kvcl_ask_answer(job->peer, &job->ask, KVCL_OK, job->n, job->got, job->n * sizeof(*job->got));
    } else if (job->cb != NULL) {
        job->cb(job->arg, job->got, job->n);
    } else {
        let_all_go(job);
    }
    kvcl_engine_notify(nvme->store->ctx);
    free(job);
}

static void item_over(stage_item_t *item, kvcl_status_t status, kvcl_stage_t *stage)
{
    stage_job_t      *job = item->job;
    kvcl_stage_got_t *got = &job->got[item - job->items];

    got->status = status;
    if (status == KVCL_OK) {
        hold(job->nvme, stage);
        got->cache = (uint16_t)job->nvme->cache->id;
        got->slot  = slot_of(stage);
        got->gen   = kvcl_slots_gen(&job->nvme->slots, got->slot);
    }
    if (--job->left == 0) {
        answer(job);
    }
}

static void pump(kvcl_nvme_t *nvme);

/* A block has come, or will not. */
static void stage_over(kvcl_nvme_t *nvme, kvcl_stage_t *stage, kvcl_status_t status)
{
    uint32_t       slot = slot_of(stage);
    kvcl_dir_loc_t loc;

    stage->reading = false;
    --nvme->n_reading;
    nvme->pumping = true; /* nobody takes a staging block while this one is given out */
    if (status == KVCL_OK) {
        status = kvcl_slots_publish(&nvme->slots, slot, &stage->rec.key, KVCL_DIR_TIER_DRAM | KVCL_LOC_SUMMED,
                                    stage->rec.loc.len, stage->rec.loc.checksum, &loc);
    }
    if (status != KVCL_OK) {
        (void)!kvcl_slots_abort(&nvme->slots, slot);
        index_del(nvme, stage);
        if (!nvme->store->closing) {
            kvcl_store_tell_removed(nvme->store, &stage->rec, 1);
        }
    } else {
        stage->users = 0;
        kvcl_list_add_tail(&nvme->idle, &stage->link);
    }
    while (!kvcl_list_is_empty(&stage->waiters)) {
        stage_item_t *item = kvcl_container_of(kvcl_list_pop(&stage->waiters), stage_item_t, link);
        item_over(item, status, stage);
    }
    if ((status == KVCL_OK) && stage->promote) {
        promote(nvme, stage);
    }
    nvme->pumping = false;
}

static void on_read(void *arg, kvcl_status_t status)
{
    kvcl_stage_t   *stage = arg;
    kvcl_nvme_t    *nvme  = stage->nvme;
    kvcl_context_h ctx    = nvme->store->ctx;

    kvcl_lock(ctx);
    stage_over(nvme, stage, status);
    pump(nvme);
    --nvme->store->ops; /* last: the store may be closed from here on */
    kvcl_engine_notify(ctx);
    kvcl_unlock(ctx);
}

/* Begin one block of a question. False: there is no staging block, or no read, for it now. */
static bool begin(kvcl_nvme_t *nvme, stage_item_t *item, const kvcl_store_rec_t *rec)
{
    kvcl_stage_t    *stage = find(nvme, rec);
    kvcl_tier_loc_t at;
    struct iovec    iov;
    kvcl_status_t   status;

    if (stage != NULL) {
        stage->promote = seen(nvme, &rec->key) || stage->promote;
        if (stage->reading) {
            kvcl_list_add_tail(&stage->waiters, &item->link);
            return true;
        }
        if (stage->promote) {
            promote(nvme, stage);
        }
        item_over(item, KVCL_OK, stage);
        return true;
    }
    if ((rec->loc.len != nvme->cache->shape.block_bytes) || !kvcl_nvme_holds(nvme, &rec->key, &rec->loc) ||
        (kvcl_tier_find(nvme->tier, rec->key.bytes, &at) != KVCL_OK) || (at.checksum != rec->loc.checksum)) {
        item_over(item, KVCL_ERR_NOT_FOUND, NULL);
        return true;
    }
    stage = take(nvme);
    if (stage == NULL) {
        return false;
    }
    stage->rec     = *rec;
    stage->rec.loc.source = 0;
    stage->promote = seen(nvme, &rec->key);
    iov.iov_base   = (uint8_t *)nvme->cache->bases[0] + ((uint64_t)slot_of(stage) * rec->loc.len);
    iov.iov_len    = rec->loc.len;
    status = index_add(nvme, stage) ? kvcl_tier_read(nvme->tier, rec->key.bytes, &at, &iov, 1, on_read, stage)
                                    : KVCL_ERR_NO_MEMORY;
    if (status != KVCL_OK) {
        index_del(nvme, stage);
        (void)!kvcl_slots_abort(&nvme->slots, slot_of(stage));
        if (status == KVCL_ERR_BUSY) {
            return false; /* as many reads as the tier takes: when some are over */
        }
        item_over(item, status, NULL);
        return true;
    }
    stage->reading = true;
    ++nvme->n_reading;
    ++nvme->store->ops;
    kvcl_list_add_tail(&stage->waiters, &item->link);
    return true;
}

static void look_again(void *arg)
{
    kvcl_nvme_t *nvme = arg;

    nvme->timer = NULL;
    pump(nvme);
}

/* All that is left of a question. False: there is no staging block for the next one. */
static bool begin_job(kvcl_nvme_t *nvme, stage_job_t *job)
{
    uint32_t i, n = job->n;

    for (i = job->next; i < n; ++i) {
        job->next = i + 1;
        if (i + 1 == n) { /* it may be over, and gone, with its last block */
            kvcl_list_del(&job->link);
            kvcl_list_add_tail(&nvme->begun, &job->link);
        }
        if (!begin(nvme, &job->items[i], &job->recs[i])) {
            job->next = i;
            kvcl_list_del(&job->link);
            kvcl_list_add_head(&nvme->jobs, &job->link);
            return false;
        }
    }
    return true;
}

/* As many blocks of the questions, in turn, as there is room for. What ends in here may ask for more. */
static void pump(kvcl_nvme_t *nvme)
{
    bool room = true;

    if (nvme->pumping) {
        return;
    }
    nvme->pumping = true;
    while (room && !kvcl_list_is_empty(&nvme->jobs)) {
        room = begin_job(nvme, kvcl_list_head(&nvme->jobs, stage_job_t, link));
    }
    nvme->pumping = false;
    if (!room && (nvme->timer == NULL)) {
        nvme->timer = kvcl_store_timer_start(nvme->store, LOOK_NS, look_again, nvme);
    }
}

/* Everything is hostile: what passes names blocks of mine. */
static kvcl_status_t take_job(kvcl_nvme_t *nvme, stage_job_t *job)
{
    if (nvme->n_waiting + job->n > WAITING_MAX) {
        free(job);
        return KVCL_ERR_BUSY;
    }
    nvme->n_waiting += job->n;
    ++nvme->store->ops;
    kvcl_list_add_tail(&nvme->jobs, &job->link);
    pump(nvme);
    return KVCL_OK;
}

void kvcl_stage_on_ask(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_ask_t *in, const void *data,
                       size_t len)
{
    stage_job_t   *job;
    kvcl_status_t status = KVCL_ERR_NO_MEMORY;

    if ((in->n == 0) || (in->n > KVCL_STAGE_MAX) || (len != in->n * sizeof(kvcl_store_rec_t))) {
        kvcl_am_malformed(store->ctx, peer, "a question for blocks of a tier that makes no sense");
        kvcl_ask_answer(peer, in, KVCL_ERR_PROTOCOL, 0, NULL, 0);
        return;
    }
    if (store->nvme == NULL) {
        kvcl_ask_answer(peer, in, KVCL_ERR_UNSUPPORTED, 0, NULL, 0);
        return;
    }
    job = make(store->nvme, data, in->n);
    if (job != NULL) {
        job->peer = peer;
        job->ask  = *in;
        status    = take_job(store->nvme, job);
    }
    if (status != KVCL_OK) {
        kvcl_ask_answer(peer, in, status, 0, NULL, 0);
    }
}

kvcl_status_t kvcl_stage_here(kvcl_nvme_t *nvme, const kvcl_store_rec_t *recs, uint32_t n, kvcl_stage_cb_t cb,
                              void *arg)
{
    stage_job_t *job = make(nvme, recs, n);

    if (job == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    job->cb  = cb;
    job->arg = arg;
    return take_job(nvme, job);
}

void kvcl_stage_on_let_go(kvcl_store_h store, const void *data, uint32_t n)
{
    kvcl_stage_got_t got;
    uint32_t         i;

    for (i = 0; (store->nvme != NULL) && (i < n); ++i) {
        memcpy(&got, (const char *)data + (i * sizeof(got)), sizeof(got));
        kvcl_stage_let_go(store->nvme, got.slot, got.gen);
    }
    if (store->nvme != NULL) {
        pump(store->nvme);
    }
}

void kvcl_stage_forget(kvcl_nvme_t *nvme, const void *arg)
{
    kvcl_list_t *lists[2] = {&nvme->jobs, &nvme->begun};
    stage_job_t *job;
    unsigned    i;

    for (i = 0; i < 2; ++i) {
        kvcl_list_foreach (job, lists[i], stage_job_t, link) {
            if (job->arg == arg) {
                job->cb = NULL;
            }
        }
    }
}

void kvcl_stage_stop(kvcl_nvme_t *nvme)
{
    stage_job_t *job;
    uint32_t    i, n;

    kvcl_store_timer_stop(nvme->timer);
    nvme->timer = NULL;
    while (!kvcl_list_is_empty(&nvme->jobs)) {
        job = kvcl_list_head(&nvme->jobs, stage_job_t, link);
        n   = job->n;
        kvcl_list_del(&job->link);
        kvcl_list_add_tail(&nvme->begun, &job->link);
        for (i = job->next; i < n; ++i) {
            item_over(&job->items[i], KVCL_ERR_SHUTDOWN, NULL);
        }
    }
}

/* ---- beginning and end ---- */

kvcl_status_t kvcl_stage_init(kvcl_nvme_t *nvme)
{
    kvcl_store_h  store = nvme->store;
    uint32_t      bytes = (uint32_t)kvcl_owner_bytes(nvme->pool), n = n_stages(bytes), first, i;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(n, bytes);
    char          name[KVCL_CACHE_NAME_MAX + 1];
    kvcl_status_t status;

    snprintf(name, sizeof(name), "kvcl.stage.%016llx", (unsigned long long)store->id);
    status = kvcl_cache_create(store->ctx, name, &layout, NULL, KVCL_MEM_HOST, &nvme->cache);
    if ((status != KVCL_OK) || ((status = kvcl_random_bytes(&first, sizeof(first))) != KVCL_OK)) {
        return status;
    }
    nvme->array  = calloc(n, sizeof(*nvme->array));
    nvme->stages = calloc(n, sizeof(*nvme->stages));
    if ((nvme->array == NULL) || (nvme->stages == NULL) || (kvcl_map_reserve(&nvme->index, n + 1ul) != KVCL_OK)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u staging blocks", n);
    }
    for (i = 0; i < n; ++i) {
        nvme->stages[i].nvme = nvme;
        kvcl_list_init(&nvme->stages[i].link);
        kvcl_list_init(&nvme->stages[i].waiters);
    }
    return kvcl_slots_init(&nvme->slots, nvme->cache->gens, nvme->array, n, (uint16_t)store->me, store->incarnation,
                           (uint16_t)nvme->cache->id, first & 0x3fffffff);
}

void kvcl_stage_fini(kvcl_nvme_t *nvme)
{
    if (nvme->cache != NULL) {
        kvcl_cache_destroy(nvme->cache);
    }
    free(nvme->array);
    free(nvme->stages);
}
