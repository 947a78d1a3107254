/*
 * The choice of the blocks that the pool keeps, of those that a copy job has fetched.
 *
 * A block is kept if the requested bytes arrived, its key was not removed meanwhile, and no other put or job has
 * published the key since the job began. A block with other bytes that the pool held before that is evicted. When a
 * kept copy is listed that no put in progress counts, it names the copy that it was made from, for its homes to check
 * (pool/publish.c). Kept copies are pinned until the job has answered, so that the requester counts no copy that a put
 * of this rank has evicted. Engine lock held.
 */
#include "config.h"
#include "store/cold/cold.h"
#include "store/copy/copy_job.h"
#include "store/home/home_answer.h"
#include "store/pool/room.h"

bool kvcl_copy_is_other(const kvcl_copy_job_t *job, uint32_t i, const kvcl_owner_node_t *node)
{
    const kvcl_slot_t *at = (node != NULL) ? &job->pool->array[kvcl_owner_slot(node)] : NULL;

    kvcl_assert_locked(job->store->ctx);
    return (at != NULL) && (at->flags & job->recs[i].loc.flags & KVCL_LOC_SUMMED) &&
           (at->sum != job->recs[i].loc.checksum);
}

/* Did the requested bytes arrive? If they were fetched from another copy, the key may have other bytes now. */
static bool is_requested(const kvcl_dir_loc_t *requested, const kvcl_dir_loc_t *from)
{
    return (kvcl_dir_loc_tag(requested) == kvcl_dir_loc_tag(from)) ||
           ((requested->flags & from->flags & KVCL_LOC_SUMMED) && (requested->checksum == from->checksum));
}

/* The tag that a home must still list to accept the copy; 0: it accepts it in any case. The directory may not know the
 * blocks of a put in progress yet. */
static uint32_t source_of(const kvcl_copy_job_t *job, uint32_t i)
{
    if ((job->head.there != 0) || (job->head.flags & KVCL_COPY_UNLISTED)) {
        return 0;
    }
    return (job->source != 0) ? job->source : kvcl_dir_loc_tag(&job->from[i]);
}

/* Lock held. Make room for todo[i] under its key. The other bytes that the pool held before are evicted; a block that
 * was published since stays, for it may be newer than the requested one. */
static bool make_room(const kvcl_copy_job_t *job, uint32_t i)
{
    const kvcl_copy_other_t *other = &job->others[i];
    kvcl_store_rec_t        removed;

    kvcl_assert_locked(job->store->ctx);
    if ((other->gen != 0) &&
        (kvcl_slots_check(&job->pool->slots, other->slot, other->gen, &job->todo[i].key) == KVCL_OK) &&
        (kvcl_owner_withdraw(job->pool, other->slot, KVCL_SLOT_FREE, &removed) == KVCL_OK)) {
        kvcl_store_notify_removed(job->store, &removed, 1);
        kvcl_cold_drop(job->store->cold, &job->todo[i].key);
    }
    return kvcl_owner_find(job->store, &job->todo[i].key, job->pool) == NULL;
}

void kvcl_copy_pin(kvcl_copy_job_t *job, uint32_t slot)
{
    kvcl_assert_locked(job->store->ctx);
    kvcl_owner_pin(job->pool, slot);
    job->pins[job->n_pins++] = (kvcl_copy_pin_t){.slot = slot, .gen = kvcl_slots_gen(&job->pool->slots, slot)};
}

void kvcl_copy_unpin(kvcl_copy_job_t *job)
{
    uint32_t i;

    kvcl_assert_locked(job->store->ctx);
    for (i = 0; i < job->n_pins; ++i) { /* a removed block has lost its pins, and its slot has another generation */
        if (kvcl_slots_gen(&job->pool->slots, job->pins[i].slot) == job->pins[i].gen) {
            kvcl_owner_unpin(job->pool, job->pins[i].slot);
        }
    }
    job->n_pins = 0;
}

void kvcl_copy_keep(kvcl_copy_job_t *job)
{
    kvcl_store_h store = job->store;
    uint32_t     i     = job->n_todo, first = job->n_todo;
    bool         fits;

    kvcl_assert_locked(store->ctx);
    while (i-- > 0) { /* the end of a chain first */
        kvcl_store_rec_t rec    = job->todo[i];
        bool             summed = (rec.loc.flags & KVCL_LOC_SUMMED) != 0;
        fits = (job->got[i] == KVCL_OK) && !store->closing && is_requested(&rec.loc, &job->from[i]) &&
               !job->others[i].left && make_room(job, i);
        if (!fits || (kvcl_owner_publish(job->pool, job->slots[i], &rec.key, rec.loc.checksum, summed,
                                         job->head.copies, job->head.tenant, &rec.loc) != KVCL_OK)) {
            (void)!kvcl_slots_abort(&job->pool->slots, job->slots[i]);
            kvcl_store_freed(store);
            continue;
        }
        kvcl_copy_pin(job, job->slots[i]);
        job->pool->array[job->slots[i]].note = 0; /* store_counts() sets it */
        rec.loc.source     = source_of(job, i);
        job->todo[--first] = rec;
    }
    job->n_new = job->n_todo - first;
    store->n_copied += job->n_new;
}
