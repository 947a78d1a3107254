/*
 * The steps of kvcl_ep_place, and the scratch memory that they share: one allocation, used for one layer at a time.
 *
 * No lock; nothing here allocates but kvcl_ep_place.
 */
#ifndef KVCL_EP_EP_PLACE_H
#define KVCL_EP_EP_PLACE_H

#include "ep/ep_heap.h"

/* Arrays without a remark have as many elements as there are slots, or experts if these are more. */
typedef struct kvcl_ep_room {
    void           *memory;
    int32_t        *placement; /* [layers][slots]: the result, until all of it is known */
    kvcl_ep_item_t *items, *packs, *aside; /* heaps */
    kvcl_ep_load_t *load;      /* of each item to be packed */
    kvcl_ep_load_t *pack_load; /* of each pack */
    uint64_t       *local;     /* loads of the experts of a host */
    uint32_t       *expert;    /* of each copy */
    uint32_t       *counts;    /* copies of each expert */
    uint32_t       *at;        /* where each item was packed: pack * (items of a pack) + number in the pack */
    uint32_t       *held;      /* the item at each place */
    uint32_t       *used;      /* items in each pack */
    uint32_t       *order;     /* the expert at each position, host by host; in ep_hosts.c by falling load */
    uint32_t       *ranks;     /* those that are active, ascending */
    kvcl_ep_load_t *host_load, *host_level; /* of each host: of its copies, and per active rank */
    uint32_t       *host_ranks, *host_room, *host_mark; /* of each host: active ranks, slots left, the last visit */
    uint16_t       *on_host;   /* [experts][hosts]: copies, with min_hosts > 1 only */
} kvcl_ep_room_t;

/**
 * Decide how many copies each of n experts gets: @a least each, then the others one by one to the expert whose copies
 * have the largest load; none more than @a most. n * least <= copies <= n * most. Fills room->expert[copies], whose
 * first n are 0..n-1, and room->counts[n].
 */
void kvcl_ep_replicate(kvcl_ep_room_t *room, const uint64_t *loads, uint32_t n, uint32_t copies, uint32_t least,
                       uint32_t most);

/**
 * Pack n items of room->load into packs of n / packs items each: by falling load, each into the lightest pack that is
 * not full. One item per pack: item i in pack i. Fills room->at[n].
 * @a spread: the items are copies of the experts room->expert, and no pack gets two copies of one; no expert may have
 *            more copies than there are packs.
 */
void kvcl_ep_pack(kvcl_ep_room_t *room, uint32_t n, uint32_t packs, int spread);

/** How many hosts can hold a copy of every expert at least: what min_hosts may be. */
uint32_t kvcl_ep_hosts_reach(const kvcl_ep_shape_t *shape);
/** Place a layer with min_hosts > 1. @a layer: for the sentence. @return KVCL_OK, KVCL_ERR_NO_SPACE. */
kvcl_status_t kvcl_ep_place_on_hosts(const kvcl_ep_shape_t *shape, kvcl_ep_room_t *room, const uint64_t *loads,
                                     uint32_t layer, int32_t *placement) KVCL_MUST_CHECK;

#endif
