/*
 * Slots of requests (handle.h).
 *
 * They are in chunks that are never freed, so that a stale handle may be compared with them. Free slots are in stripes,
 * stacks that threads choose by their address; a stack's head has a count of its changes beside the index, so a slot
 * that was taken and put back meanwhile is detected. A slot returns to the stripe that it was taken from. Each thread
 * keeps the slot that it put back last for its next request, and returns it to its stripe when the thread ends.
 */
#include "config.h"
#include "handle/handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BITS  = 10,
    CHUNK_SLOTS = 1 << CHUNK_BITS,
    CHUNKS      = 1 << 14,
    INDEX_BITS  = 24,
    STRIPES     = 16,
    NO_SLOT     = 0 /* index 0 is not given out */
};

static _Atomic(kvcl_req_slot_t *) chunks[CHUNKS];
static _Atomic uint32_t       fresh = NO_SLOT + 1; /* never used from here on */
static pthread_mutex_t        chunks_lock = PTHREAD_MUTEX_INITIALIZER;
static kvcl_req_slot_t        *parents[CHUNKS]; /* after fork(): not to be used or freed */

/* The head's index, and in the upper half how often it changed. */
static struct { _Alignas(64) _Atomic uint64_t head; } stripes[STRIPES];

static uint32_t my_stripe(void)
{
    uintptr_t self = (uintptr_t)pthread_self();

    return (uint32_t)((self >> 12) ^ (self >> 20)) % STRIPES;
}

static kvcl_req_slot_t *slot_at(uint32_t index)
{
    kvcl_req_slot_t *chunk = atomic_load_explicit(&chunks[index >> CHUNK_BITS], memory_order_acquire);

    return (chunk != NULL) ? &chunk[index & (CHUNK_SLOTS - 1)] : NULL;
}

static kvcl_req_slot_t *fresh_slot(uint32_t stripe)
{
    uint32_t        index = atomic_load(&fresh);
    kvcl_req_slot_t *chunk, *slot;

    do {
        if (index >= (uint32_t)CHUNKS * CHUNK_SLOTS) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&fresh, &index, index + 1));
    if (slot_at(index) == NULL) {
        pthread_mutex_lock(&chunks_lock);
        if (slot_at(index) == NULL) {
            chunk = aligned_alloc(64, sizeof(*chunk) * CHUNK_SLOTS);
            if (chunk != NULL) {
                memset(chunk, 0, sizeof(*chunk) * CHUNK_SLOTS);
            }
            atomic_store(&chunks[index >> CHUNK_BITS], chunk);
        }
        pthread_mutex_unlock(&chunks_lock);
    }
    slot = slot_at(index);
    if (slot != NULL) {
        slot->index  = index;
        slot->stripe = stripe;
        atomic_store(&slot->use, 1);
    }
    return slot;
}

static kvcl_req_slot_t *pop(void)
{
    uint32_t         stripe = my_stripe();
    _Atomic uint64_t *head  = &stripes[stripe].head;
    uint64_t         was    = atomic_load_explicit(head, memory_order_acquire), now;
    kvcl_req_slot_t  *slot;

    for (;;) {
        if ((uint32_t)was == NO_SLOT) {
            return fresh_slot(stripe);
        }
        slot = slot_at((uint32_t)was);
        now  = (((was >> 32) + 1) << 32) | atomic_load_explicit(&slot->next, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(head, &was, now, memory_order_acquire, memory_order_acquire)) {
            return slot;
        }
    }
}

static void push(kvcl_req_slot_t *slot)
{
    _Atomic uint64_t *head = &stripes[slot->stripe].head;
    uint64_t         was   = atomic_load_explicit(head, memory_order_relaxed), now;

    do {
        atomic_store_explicit(&slot->next, (uint32_t)was, memory_order_relaxed);
        now = (((was >> 32) + 1) << 32) | slot->index;
    } while (!atomic_compare_exchange_weak_explicit(head, &was, now, memory_order_release, memory_order_relaxed));
}

/* A thread's slot. It keeps one only while its end will be noticed. */
typedef struct spare {
    kvcl_req_slot_t *slot;
    bool            watched, ended;
} spare_t;

static _Thread_local spare_t spare;
static pthread_key_t         spare_key;
static bool                  have_key;

static void thread_ends(void *arg)
{
    spare_t *mine = arg;

    mine->ended = true;
    if (mine->slot != NULL) {
        push(mine->slot);
        mine->slot = NULL;
    }
}

static void make_key(void)
{
    have_key = (pthread_key_create(&spare_key, thread_ends) == 0);
}

static bool watch_end(spare_t *mine)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_key);
    mine->watched = have_key && (pthread_setspecific(spare_key, mine) == 0);
    return mine->watched;
}

kvcl_req_slot_t *kvcl_req_slot_get(void)
{
    spare_t         *mine = &spare;
    kvcl_req_slot_t *slot = mine->slot;

    mine->slot = NULL;
    return (slot != NULL) ? slot : pop();
}

void kvcl_req_slot_put(kvcl_req_slot_t *slot)
{
    spare_t *mine = &spare;

    kvcl_req_slot_kill(slot);
    if ((mine->slot == NULL) && !mine->ended && (mine->watched || watch_end(mine))) {
        mine->slot = slot;
    } else {
        push(slot);
    }
}

kvcl_req_h kvcl_req_slot_handle(kvcl_req_slot_t *slot, void *req)
{
    atomic_store_explicit(&slot->req, req, memory_order_relaxed);
    return (kvcl_req_h)(uintptr_t)((atomic_load_explicit(&slot->use, memory_order_relaxed) << (INDEX_BITS + 1)) |
                                   ((uint64_t)slot->index << 1) | 1);
}

/* Only who holds the slot changes it. */
void kvcl_req_slot_kill(kvcl_req_slot_t *slot)
{
    atomic_store_explicit(&slot->use, atomic_load_explicit(&slot->use, memory_order_relaxed) + 1, memory_order_release);
}

/* The slot that a handle names, whether it is still that request's or not. */
static kvcl_req_slot_t *slot_of(kvcl_req_h handle)
{
    uint64_t value = (uintptr_t)handle;
    uint32_t index = (uint32_t)(value >> 1) & ((1u << INDEX_BITS) - 1);

    return ((value & 1) != 0) ? slot_at(index) : NULL;
}

void *kvcl_req_slot_find(kvcl_req_h handle)
{
    kvcl_req_slot_t *slot = slot_of(handle);

    return ((slot != NULL) &&
            (atomic_load_explicit(&slot->use, memory_order_acquire) == (uintptr_t)handle >> (INDEX_BITS + 1)))
               ? atomic_load_explicit(&slot->req, memory_order_relaxed)
               : NULL;
}

bool kvcl_req_slot_was(kvcl_req_h handle)
{
    kvcl_req_slot_t *slot = slot_of(handle);
    uint64_t        use   = (uintptr_t)handle >> (INDEX_BITS + 1);

    return (slot != NULL) && (use != 0) && (use < atomic_load(&slot->use));
}

void kvcl_req_slots_forget(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    uint32_t                     i;

    chunks_lock = unlocked;
    for (i = 0; (i < CHUNKS) && ((parents[i] = atomic_load(&chunks[i])) != NULL); ++i) {
        atomic_store(&chunks[i], NULL);
    }
    for (i = 0; i < STRIPES; ++i) {
        atomic_store(&stripes[i].head, 0);
    }
    atomic_store(&fresh, NO_SLOT + 1);
    spare.slot = NULL;
}
