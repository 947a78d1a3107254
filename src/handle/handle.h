/*
 * Handles that a user holds, and how a dead one is recognised without reading memory that was freed.
 *
 * Objects (contexts, communicators, caches, memory, imports, stores and their tenants, prepared transfers) are handed
 * out as addresses. They lie in one range of addresses of their own, in which no address is used again until all of it
 * was used, some ten million objects later. One byte for each 64 bytes of the range holds the kind of the object that
 * begins there, so one load checks any handle: freed, of another kind, or no handle at all.
 *
 * Requests are short-lived, so their memory is used again at once. Their handle is a number: the index of a slot and
 * the number of times that the slot was used. A slot also has room for a request that ends within its posting call.
 *
 * Thread: everything here, any thread, no lock needed. After fork() nothing of the parent's is alive in the child.
 */
#ifndef KVCL_HANDLE_HANDLE_H
#define KVCL_HANDLE_HANDLE_H

#include <kvcl/kvcl_req.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum kvcl_kind {
    KVCL_KIND_NONE,
    KVCL_KIND_CONTEXT,
    KVCL_KIND_COMM,
    KVCL_KIND_CACHE,
    KVCL_KIND_MEM,
    KVCL_KIND_RMEM,
    KVCL_KIND_STORE,
    KVCL_KIND_XFER,
    KVCL_KIND_TENANT,
    KVCL_KIND_QUEUE,
    KVCL_KIND_EP,
    KVCL_KIND_SCHED,
    KVCL_KIND_SCHED_MODEL,
    KVCL_KIND_SCHED_INDEX,
    KVCL_KIND_LAST = KVCL_KIND_SCHED_INDEX
} kvcl_kind_t;

/* ---- objects ---- */

enum { KVCL_OBJECT_CELL = 64 };

/* The range of addresses of objects; 0 bytes until the first is made. */
typedef struct kvcl_objects {
    _Atomic uintptr_t       base;
    _Atomic size_t          bytes;
    _Atomic(uint8_t *) cells; /* what begins in each cell, see handle.c */
} kvcl_objects_t;

extern kvcl_objects_t kvcl_objects;

/** Zeroed memory of a new object, aligned to 64. NULL: no memory. */
void *kvcl_object_alloc(kvcl_kind_t kind, size_t bytes);
/** The handle is dead from here on. NULL is allowed. */
void  kvcl_object_free(void *object);

static inline bool kvcl_handle_is(const void *handle, kvcl_kind_t kind)
{
    uintptr_t at = (uintptr_t)handle - atomic_load_explicit(&kvcl_objects.base, memory_order_relaxed);

    return (at < atomic_load_explicit(&kvcl_objects.bytes, memory_order_acquire)) &&
           ((at % KVCL_OBJECT_CELL) == 0) &&
           (__atomic_load_n(&atomic_load_explicit(&kvcl_objects.cells, memory_order_relaxed)[at / KVCL_OBJECT_CELL],
                            __ATOMIC_RELAXED) == (uint8_t)kind);
}

/** What is wrong with a handle that is not alive: sets the sentence. */
kvcl_status_t kvcl_handle_refuse(const void *handle, kvcl_kind_t kind, const char *call);

/**
 * First of a public call, for each handle it is given.
 * @return KVCL_OK; KVCL_ERR_DEAD_HANDLE (it was freed already); KVCL_ERR_INVALID_PARAM (NULL, of another kind, or no
 *         handle).
 */
static inline kvcl_status_t kvcl_handle_check(const void *handle, kvcl_kind_t kind, const char *call)
{
    return kvcl_handle_is(handle, kind) ? KVCL_OK : kvcl_handle_refuse(handle, kind, call);
}

/** First of a public call that frees and returns nothing: NULL is nothing to do; what is not alive is logged, too. */
bool kvcl_handle_may_free(const void *handle, kvcl_kind_t kind, const char *call);

/* ---- requests ---- */

enum { KVCL_REQ_SLOT_ROOM = 272 };

typedef struct kvcl_req_slot {
    _Alignas(16) unsigned char room[KVCL_REQ_SLOT_ROOM]; /* of a request that needs no memory of its own */
    _Atomic uint64_t           use;   /* the handle's number of uses */
    _Atomic(void *)            req;
    uint32_t                   index;
    uint32_t                   stripe;
    _Atomic uint32_t           next;  /* free: the next one */
} kvcl_req_slot_t;

/** A free slot. NULL: no memory, or sixteen million requests are not collected. */
kvcl_req_slot_t *kvcl_req_slot_get(void);
void         kvcl_req_slot_put(kvcl_req_slot_t *slot);

/** The handle that names req until kvcl_req_slot_kill. */
kvcl_req_h kvcl_req_slot_handle(kvcl_req_slot_t *slot, void *req);
void       kvcl_req_slot_kill(kvcl_req_slot_t *slot);

/** The request, or NULL: the handle is dead, or none. */
void *kvcl_req_slot_find(kvcl_req_h handle);

/** Is it the handle of a request that was collected? */
bool kvcl_req_slot_was(kvcl_req_h handle);

/** What is wrong with a request's handle that is not alive. */
kvcl_status_t kvcl_req_slot_refuse(kvcl_req_h handle, const char *call);

/* ---- fork ---- */

/** In the child: nothing that the parent made is alive. */
void kvcl_handles_forget(void);
void kvcl_req_slots_forget(void); /* its part */

#endif
