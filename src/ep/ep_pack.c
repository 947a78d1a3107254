/*
 * Packing (EPLB's balanced_packing): items by falling load, each into the lightest pack that is not full. Two heaps: of
 * the items, largest first, and of the packs with room, lightest first.
 *
 * With spread no pack gets two copies of one expert. Packs that hold the item's expert already are put aside while
 * copies of that expert are packed. If all packs with room hold it, a copy y of another expert moves from a full pack q
 * to the lightest of them, p, and the item takes the place of y. Such q and y exist: the expert has at most as many
 * copies as there are packs, and one of them is not packed yet, so some pack lacks it, and that pack is full. It has
 * more experts than the p that is not full, so one of them is not in p.
 *
 * Pure; no lock.
 */
#include "ep/ep_place.h"

typedef struct packing {
    kvcl_ep_room_t *room;
    uint32_t       packs, per_pack;
    uint32_t       n_heap;  /* room->packs: packs with room */
    uint32_t       n_aside; /* room->aside: packs with room that hold the last expert */
} packing_t;

static void put(packing_t *p, uint32_t pack, uint32_t item)
{
    kvcl_ep_room_t *room = p->room;
    uint32_t       place = (pack * p->per_pack) + room->used[pack]++;

    room->at[item]    = place;
    room->held[place] = item;
    room->pack_load[pack] += room->load[item];
}

static void pack_plain(packing_t *p, uint32_t n)
{
    kvcl_ep_room_t *room = p->room;
    uint32_t       n_items = n, pack;

    while (n_items > 0) {
        pack = room->packs[0].index;
        put(p, pack, kvcl_ep_pop(room->items, &n_items).index);
        if (room->used[pack] == p->per_pack) {
            (void)kvcl_ep_pop(room->packs, &p->n_heap);
        } else {
            room->packs[0].key = room->pack_load[pack];
            kvcl_ep_sink(room->packs, p->n_heap, 0);
        }
    }
}

static int holds(const packing_t *p, uint32_t pack, uint32_t expert)
{
    const kvcl_ep_room_t *room = p->room;
    const uint32_t       *held = &room->held[pack * p->per_pack];
    uint32_t             i;

    for (i = 0; i < room->used[pack]; ++i) {
        if (room->expert[held[i]] == expert) {
            return 1;
        }
    }
    return 0;
}

static void end_aside(packing_t *p)
{
    while (p->n_aside > 0) {
        kvcl_ep_push(p->room->packs, &p->n_heap, p->room->aside[--p->n_aside]);
    }
}

/* All packs with room are aside. Take a place in a full pack: its item moves to the lightest pack with room. The choice
 * is that with the least load of the heavier of the two packs. @return the place. */
static uint32_t free_place(packing_t *p, uint32_t item)
{
    kvcl_ep_room_t *room = p->room;
    uint32_t       light = 0, to, pack, place, best = 0, i;
    kvcl_ep_load_t from, into, most, least = ~(kvcl_ep_load_t)0;

    for (i = 1; i < p->n_aside; ++i) {
        light = kvcl_ep_before(&room->aside[i], &room->aside[light]) ? i : light;
    }
    to = room->aside[light].index;
    for (pack = 0; pack < p->packs; ++pack) {
        if ((room->used[pack] < p->per_pack) || holds(p, pack, room->expert[item])) {
            continue;
        }
        for (i = 0; i < p->per_pack; ++i) {
            place = (pack * p->per_pack) + i;
            from  = room->pack_load[pack] - room->load[room->held[place]] + room->load[item];
            into  = room->pack_load[to] + room->load[room->held[place]];
            most  = (from > into) ? from : into;
            if ((most < least) && !holds(p, to, room->expert[room->held[place]])) {
                least = most;
                best  = place;
            }
        }
    }
    put(p, to, room->held[best]);
    room->pack_load[best / p->per_pack] -= room->load[room->held[best]];
    room->aside[light].key = room->pack_load[to];
    if (room->used[to] == p->per_pack) {
        room->aside[light] = room->aside[--p->n_aside];
    }
    return best;
}

static void put_spread(packing_t *p, uint32_t item)
{
    kvcl_ep_room_t *room = p->room;
    kvcl_ep_item_t pack;
    uint32_t       place;

    while (p->n_heap > 0) {
        pack = kvcl_ep_pop(room->packs, &p->n_heap);
        if (!holds(p, pack.index, room->expert[item])) {
            put(p, pack.index, item);
            pack.key = room->pack_load[pack.index];
            if (room->used[pack.index] < p->per_pack) {
                room->aside[p->n_aside++] = pack;
            }
            return;
        }
        room->aside[p->n_aside++] = pack;
    }
    place             = free_place(p, item);
    room->at[item]    = place;
    room->held[place] = item;
    room->pack_load[place / p->per_pack] += room->load[item];
}

static void pack_spread(packing_t *p, uint32_t n)
{
    kvcl_ep_room_t *room = p->room;
    uint32_t       n_items = n, item, last = 0;

    while (n_items > 0) {
        item = kvcl_ep_pop(room->items, &n_items).index;
        if (room->expert[item] != last) {
            end_aside(p);
            last = room->expert[item];
        }
        put_spread(p, item);
    }
}

void kvcl_ep_pack(kvcl_ep_room_t *room, uint32_t n, uint32_t packs, int spread)
{
    packing_t p = {.room = room, .packs = packs, .per_pack = n / packs, .n_heap = packs};
    uint32_t  i;

    for (i = 0; i < n; ++i) {
        room->at[i]    = i;
        room->items[i] = (kvcl_ep_item_t){~room->load[i], i};
    }
    if (p.per_pack == 1) {
        return;
    }
    kvcl_ep_heapify(room->items, n);
    for (i = 0; i < packs; ++i) {
        room->used[i]      = 0;
        room->pack_load[i] = 0;
        room->packs[i]     = (kvcl_ep_item_t){0, i}; /* a heap already */
    }
    if (spread) {
        pack_spread(&p, n);
    } else {
        pack_plain(&p, n);
    }
}
