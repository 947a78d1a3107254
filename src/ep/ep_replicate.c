/*
 * How many copies each expert gets (EPLB's replicate_experts). The heap has the load of a copy of each expert, largest
 * first; the first one gets the next copy, and its copies are lighter then. An expert that has all the copies that it
 * may have leaves the heap.
 *
 * Pure; no lock.
 */
#include "ep/ep_place.h"

void kvcl_ep_replicate(kvcl_ep_room_t *room, const uint64_t *loads, uint32_t n, uint32_t copies, uint32_t least,
                       uint32_t most)
{
    kvcl_ep_item_t *heap = room->items;
    uint32_t       k = 0, n_heap, i, x;

    for (i = 0; i < least; ++i) {
        for (x = 0; x < n; ++x) {
            room->expert[k++] = x;
        }
    }
    for (x = 0; x < n; ++x) {
        room->counts[x] = least;
        heap[x]         = (kvcl_ep_item_t){~kvcl_ep_share(loads[x], least), x};
    }
    n_heap = (least < most) ? n : 0;
    kvcl_ep_heapify(heap, n_heap);
    while ((k < copies) && (n_heap > 0)) {
        x                 = heap[0].index;
        room->expert[k++] = x;
        if (++room->counts[x] == most) {
            (void)kvcl_ep_pop(heap, &n_heap);
        } else {
            heap[0].key = ~kvcl_ep_share(loads[x], room->counts[x]);
            kvcl_ep_sink(heap, n_heap, 0);
        }
    }
}
