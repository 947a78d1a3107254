/*
 * Handles of objects (handle.h); those of requests are in req_slot.c.
 *
 * Objects: a range of addresses is reserved once; its beginning is backed by memory, in steps. Objects are placed one
 * behind the other, from cell to cell, in a run of pages that were free as a whole; when all pages of the range were
 * used, pages without a living object are used again, the ones freed longest ago first. A page without a living object
 * gives its memory back. A cell's byte: 0, the kind of the object that begins here, CONTINUED behind its first cell, or
 * DEAD with the kind of the object that began here. One lock (objects_lock), inside every other.
 */
#include "config.h"
#include "handle/handle.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sanitizers.h"
#include "handle/fork.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if KVCL_ASAN
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
    DEAD       = 0x80
};

static const char *const kinds[] = {"handle", "context", "communicator", "cache", "memory", "imported memory", "store",
                                    "prepared transfer", "tenant's handle of a store", "completion queue",
                                    "handle of kvcl_ep_open", "scheduler", "model of a scheduler",
                                    "prefix index"};

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

/* The kind of the object at an address that is not the expected one; KVCL_KIND_NONE if no object begins there. */
static kvcl_kind_t look(const void *handle, bool *dead_p)
{
    uintptr_t at     = (uintptr_t)handle - atomic_load(&kvcl_objects.base);
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
    kind = ((is == KVCL_KIND_TENANT) && (kind == KVCL_KIND_STORE)) ? is : kind; /* calls accept both for a store */
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

kvcl_status_t kvcl_req_slot_refuse(kvcl_req_h handle, const char *call)
{
    bool        dead;
    kvcl_kind_t is = look(handle, &dead);

    if (kvcl_req_slot_was(handle)) {
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

    objects_lock = unlocked; /* another thread of the parent may have held it */
    atomic_store(&kvcl_objects.bytes, 0);
    kvcl_req_slots_forget();
}
