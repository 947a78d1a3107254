/*
 * The state of the room of memory in a context, for the files of this room. Engine lock held, but for
 * kvcl_region_attach(), which fills gigabytes.
 */
#ifndef KVCL_MEM_MEM_STATE_H
#define KVCL_MEM_MEM_STATE_H

#include "mem/mem_numa.h"
#include "mem/region.h"

typedef struct kvcl_mem_state {
    kvcl_region_t   *regions[KVCL_REGIONS_MAX];
    uint32_t        next;
    kvcl_region_t   ctl;  /* the control page: KVCL_REGIONS_MAX words */
    kvcl_list_t     caches; /* kvcl_cache_t.link */
    kvcl_list_t     mems, rmems;
    kvcl_mem_numa_t numa;
} kvcl_mem_state_t;

static inline kvcl_mem_state_t *kvcl_mem_state(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_MEM];
}

/** The region gets an id, without keys yet. @return KVCL_OK, KVCL_ERR_NO_SPACE. */
kvcl_status_t kvcl_region_enter(kvcl_region_t *region) KVCL_MUST_CHECK;
/** The region's word in the control page. */
void          kvcl_ctl_set(kvcl_region_t *region, uint64_t value);

/* region.c */
/** Make a region known to every transport; one without an address is allocated (huge: request huge pages). */
kvcl_status_t kvcl_region_attach(kvcl_region_t *region, bool huge) KVCL_MUST_CHECK;
void          kvcl_region_detach(kvcl_region_t *region);
/** One that is detached and in no table. */
void          kvcl_region_free(kvcl_region_t *region);

#endif
