/*
 * Handles (handle.h).
 *
 * Objects: a range of addresses is reserved once; its beginning is backed by memory, in steps. Objects are placed one
 * behind the other, from cell to cell, in a run of pages that were free as a whole; when all pages of the range were
 * used, pages without a living object are used again, the ones freed longest ago first. A page without a living object
 * gives its memory back. A cell's byte: 0, the kind of the object that begins here, CONTINUED behind its first cell, or
 * DEAD with the kind of the object that began here. One lock (objects_lock), inside every other.
 *
 * Slots: in chunks that are never freed, so that a stale handle may be compared with them. Free ones are in stripes,
 * stacks that threads choose by their address; a stack's head carries a count of its changes beside the index, so a
 * slot that was taken and put back meanwhile is noticed. A slot returns to the stripe that it came from.
 */
#include "config.h"
#include "handle/handle.h"
#include "base/error.h"
#include "base/log.h"
#include "handle/fork.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define POISON(_addr, _len)   ASAN_POISON_MEMORY_REGION(_addr, _len)
#define UNPOISON(_addr, _len) ASAN_UNPOISON_MEMORY_REGION(_addr, _len)
#define KNOWN(_addr, _len)    __lsan_register_root_region(_addr, _len)
#else
#define POISON(_addr, _len)   ((void)(_addr))
#define UNPOISON(_addr, _len) ((void)(_addr))
#define KNOWN(_addr, _len)    ((void)(_addr))
#endif

enum {
    CELL       = KVCL_OBJECT_CELL,
    PAGE       = 4096,
    PAGE_CELLS = PAGE / CELL,
    STEP       = 1 << 20, /* so much of the range is backed at a time */
    CONTINUED  = 0x40,
    DEAD       = 0x80,

    CHUNK_BITS  = 10,
    CHUNK_SLOTS = 1 << CHUNK_BITS,
    CHUNKS      = 1 << 14,
    INDEX_BITS  = 24,
    STRIPES     = 16,
    NO_SLOT     = 0 /* index 0 is not given out */
};

static const char *const kinds[] = {"handle", "context", "communicator", "cache", "memory", "imported memory", "store",
                                    "prepared transfer"};

kvcl_objects_t kvcl_objects;

static pthread_mutex_t objects_lock = PTHREAD_MUTEX_INITIALIZER;
static uint16_t        *living; /* objects in each page */
static size_t          n_pages, backed, run_at, run_end, next_page;

/* ---------------------------------------------------------------- objects */

static void *reserve(size_t bytes, int prot)
{
    void *addr = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return (addr == MAP_FAILED) ? NULL : addr;
}

/* objects_lock is taken. Where addresses are limited (ulimit -v) the range is smaller. */
static bool open_range(void)
{
    size_t  bytes;
    void    *base = NULL;
    uint8_t *cells;

    if (atomic_load(&kvcl_objects.bytes) != 0) {
        return true;
    }
    for (bytes = (size_t)16 << 30; (bytes >= (size_t)16 << 20) && (base == NULL); bytes /= 4) {
        base = reserve(bytes, PROT_NONE);
        if (base != NULL) {
            break;
        }
    }
    if (base == NULL) {
        return false;
    }
    n_pages = bytes / PAGE;
    cells   = reserve(bytes / CELL, PROT_READ | PROT_WRITE);
    living  = reserve(n_pages * sizeof(*living), PROT_READ | PROT_WRITE);
    if ((cells == NULL) || (living == NULL)) {
        (void)munmap(base, bytes);
        return false;
    }
    backed = run_at = run_end = next_page = 0;
    atomic_store(&kvcl_objects.cells, cells);
    atomic_store(&kvcl_objects.base, (uintptr_t)base);
    atomic_store(&kvcl_objects.bytes, bytes);
    return true;
}

/* objects_lock is taken. */
static bool back(size_t end)
{
    char   *base = (char *)atomic_load(&kvcl_objects.base);
    size_t more  = ((end - backed) + STEP - 1) / STEP * STEP;

    if (end <= backed) {
        return true;
    }
    if (mprotect(base + backed, more, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    KNOWN(base + backed, more);
    backed += more;
    return true;
}

/* objects_lock is taken. A run of pages without a living object; run_at and run_end are its cells. */
static bool next_run(size_t pages)
{
    size_t tried = 0, have = 0;

    while (tried < 2 * n_pages) {
        if (next_page + pages - have > n_pages) { /* from the start again */
            next_page = have = 0;
        }
        have = (living[next_page] == 0) ? have + 1 : 0;
        ++next_page;
        ++tried;
        if (have == pages) {
            run_end = next_page * PAGE_CELLS;
            run_at  = run_end - (pages * PAGE_CELLS);
            return back(next_page * PAGE);
        }
    }
    return false;
}

void *kvcl_object_alloc(kvcl_kind_t kind, size_t bytes)
{
    size_t  cells = (bytes + CELL - 1) / CELL, i;
    void    *object = NULL;
    uint8_t *cell;

    pthread_mutex_lock(&objects_lock);
    if (open_range() && ((cells <= run_end - run_at) || next_run((cells + PAGE_CELLS - 1) / PAGE_CELLS))) {
        object = (char *)atomic_load(&kvcl_objects.base) + (run_at * CELL);
        UNPOISON(object, cells * CELL);
        memset(object, 0, cells * CELL);
        cell = atomic_load(&kvcl_objects.cells) + run_at;
        for (i = 0; i < cells; ++i) {
            __atomic_store_n(&cell[i], (uint8_t)((i == 0) ? kind : CONTINUED), __ATOMIC_RELAXED);
        }
        for (i = run_at / PAGE_CELLS; i <= (run_at + cells - 1) / PAGE_CELLS; ++i) {
            ++living[i];
        }
        run_at += cells;
    }
    pthread_mutex_unlock(&objects_lock);
    return object;
}

void kvcl_object_free(void *object)
{
    char    *base;
    uint8_t *cells;
    size_t  first, end, i;

    if (object == NULL) {
        return;
    }
    pthread_mutex_lock(&objects_lock);
    base  = (char *)atomic_load(&kvcl_objects.base);
    cells = atomic_load(&kvcl_objects.cells);
    first = (size_t)((char *)object - base) / CELL;
    __atomic_store_n(&cells[first], (uint8_t)(cells[first] | DEAD), __ATOMIC_RELAXED);
    for (end = first + 1; (end < n_pages * PAGE_CELLS) && (cells[end] == CONTINUED); ++end) {
        __atomic_store_n(&cells[end], (uint8_t)0, __ATOMIC_RELAXED);
    }
    for (i = first / PAGE_CELLS; i <= (end - 1) / PAGE_CELLS; ++i) {
        --living[i];
        if ((living[i] == 0) && ((i + 1) * PAGE_CELLS != run_end)) {
            (void)madvise(base + (i * PAGE), PAGE, MADV_DONTNEED);
        }
    }
    POISON(object, (end - first) * CELL);
    pthread_mutex_unlock(&objects_lock);
}

/* What the cell says of an address that is not what it should be; KVCL_KIND_NONE if nothing begins there. */
static kvcl_kind_t look(const void *handle, bool *dead_p)
{
    uintptr_t at    = (uintptr_t)handle - atomic_load(&kvcl_objects.base);
    uint8_t   *cells = atomic_load(&kvcl_objects.cells), cell = 0;

    if ((at < atomic_load(&kvcl_objects.bytes)) && ((at % CELL) == 0)) {
        cell = __atomic_load_n(&cells[at / CELL], __ATOMIC_RELAXED);
    }
    *dead_p = (cell & DEAD) != 0;
    cell   &= (uint8_t)~DEAD;
    return (cell <= KVCL_KIND_LAST) ? (kvcl_kind_t)cell : KVCL_KIND_NONE;
}

static kvcl_status_t no_handle(const void *handle, const char *want, const char *call)
{
    if (handle == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the %s is NULL", call, want);
    }
    if (kvcl_is_forked()) {
        return kvcl_fail(KVCL_ERR_DEAD_HANDLE, "%s: the %s belongs to the process that forked this one, which must not "
                         "use it: fork before kvcl_init, or call exec in the child", call, want);
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %p is no %s of this library and process", call, handle, want);
}

kvcl_status_t kvcl_handle_refuse(const void *handle, kvcl_kind_t kind, const char *call)
{
    bool        dead;
    kvcl_kind_t is = look(handle, &dead);

    if (kvcl_req_slot_find((kvcl_req_h)(uintptr_t)handle) != NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the %s is a request", call, kinds[kind]);
    }
    if (is == KVCL_KIND_NONE) {
        return no_handle(handle, kinds[kind], call);
    }
    if (is != kind) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the %s is a %s%s", call, kinds[kind], kinds[is],
                         dead ? ", freed already" : "");
    }
    return kvcl_fail(KVCL_ERR_DEAD_HANDLE, "%s: the %s was freed already", call, kinds[kind]);
}

bool kvcl_handle_may_free(const void *handle, kvcl_kind_t kind, const char *call)
{
    if ((handle == NULL) || kvcl_handle_is(handle, kind)) {
        return handle != NULL;
    }
    (void)kvcl_handle_refuse(handle, kind, call);
    if (!kvcl_is_forked()) { /* a child that cleans up as its parent would, in atexit(3) perhaps, does no wrong */
        kvcl_log_error("%s", kvcl_last_error());
    }
    return false;
}

/* ---------------------------------------------------------------- slots */

static _Atomic(kvcl_req_slot_t *) chunks[CHUNKS];
static _Atomic uint32_t       fresh = NO_SLOT + 1; /* never used from here on */
static pthread_mutex_t        chunks_lock = PTHREAD_MUTEX_INITIALIZER;
static kvcl_req_slot_t        *parents[CHUNKS]; /* after fork(): not ours to use or free */

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
    uint32_t    index = atomic_load(&fresh);
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

kvcl_req_slot_t *kvcl_req_slot_get(void)
{
    uint32_t         stripe = my_stripe();
    _Atomic uint64_t *head  = &stripes[stripe].head;
    uint64_t         was    = atomic_load_explicit(head, memory_order_acquire), now;
    kvcl_req_slot_t      *slot;

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

void kvcl_req_slot_put(kvcl_req_slot_t *slot)
{
    _Atomic uint64_t *head = &stripes[slot->stripe].head;
    uint64_t         was   = atomic_load_explicit(head, memory_order_relaxed), now;

    kvcl_req_slot_kill(slot);
    do {
        atomic_store_explicit(&slot->next, (uint32_t)was, memory_order_relaxed);
        now = (((was >> 32) + 1) << 32) | slot->index;
    } while (!atomic_compare_exchange_weak_explicit(head, &was, now, memory_order_release, memory_order_relaxed));
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

kvcl_status_t kvcl_req_slot_refuse(kvcl_req_h handle, const char *call)
{
    kvcl_req_slot_t *slot = slot_of(handle);
    bool        dead;
    kvcl_kind_t is = look(handle, &dead);

    if ((slot != NULL) && ((uintptr_t)handle >> (INDEX_BITS + 1) != 0) &&
        ((uintptr_t)handle >> (INDEX_BITS + 1) < atomic_load(&slot->use))) {
        return kvcl_fail(KVCL_ERR_DEAD_HANDLE, "%s: the request was collected already", call);
    }
    if (is != KVCL_KIND_NONE) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the request is a %s%s", call, kinds[is],
                         dead ? ", freed already" : "");
    }
    return no_handle(handle, "request", call);
}

/* ---------------------------------------------------------------- fork */

void kvcl_handles_forget(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    uint32_t                     i;

    objects_lock = unlocked; /* another thread of the parent may have held them */
    chunks_lock  = unlocked;
    atomic_store(&kvcl_objects.bytes, 0);
    for (i = 0; (i < CHUNKS) && ((parents[i] = atomic_load(&chunks[i])) != NULL); ++i) {
        atomic_store(&chunks[i], NULL);
    }
    for (i = 0; i < STRIPES; ++i) {
        atomic_store(&stripes[i].head, 0);
    }
    atomic_store(&fresh, NO_SLOT + 1);
}
