/*
 * The blocks of one round of a get of values (value_get.c), and the destination of each in memory.
 */
#include "config.h"
#include "value/value_get.h"

#include <stdlib.h>

enum { ITEMS_MAX = 65536 };

/* Find the group, and the block in it, of a piece of memory. */
static bool place_direct(kvcl_vget_t *get, kvcl_vget_item_t *item, const void *piece)
{
    unsigned i;

    for (i = 1; i < get->n_groups; ++i) {
        if (kvcl_view_id(&get->groups[i].view, piece, &item->id)) {
            item->group = (uint8_t)i;
            return true;
        }
    }
    if ((get->n_groups > KVCL_VGET_VIEWS_MAX) ||
        !kvcl_view_at(&get->groups[get->n_groups].view, get->store->ctx, &get->shape, piece) ||
        !kvcl_view_id(&get->groups[get->n_groups].view, piece, &item->id)) {
        return false;
    }
    item->group = (uint8_t)get->n_groups++;
    return true;
}

/* Add a block, whose first `bytes` bytes go to *at; *at advances. False: no room in this round. */
static bool add(kvcl_vget_t *get, uint32_t one, kvcl_vget_kind_t kind, const kvcl_key_t *key, uint64_t bytes,
                kvcl_value_at_t *at)
{
    kvcl_vget_item_t *item, *more;
    const void       *piece;
    uint32_t         room = get->items_room;

    if (get->n_items == room) {
        room = (room == 0) ? 16 : 2 * room;
        more = (room <= ITEMS_MAX) ? realloc(get->items, room * sizeof(*more)) : NULL;
        if (more == NULL) {
            return false;
        }
        get->items      = more;
        get->items_room = room;
    }
    item  = &get->items[get->n_items];
    *item = (kvcl_vget_item_t){.one = one, .kind = (uint8_t)kind, .bytes = bytes, .at = *at, .key = *key};
    piece = ((kind != KVCL_VGET_HEAD) && (bytes == get->block)) ? kvcl_value_piece(at, bytes) : NULL;
    if ((piece == NULL) || !place_direct(get, item, piece)) {
        if (get->groups[0].n == get->bounce_room) {
            *at = item->at;
            return false;
        }
        item->id = get->groups[0].n;
        if ((piece == NULL) && (kind != KVCL_VGET_HEAD)) {
            kvcl_value_skip(at, bytes);
        }
    }
    ++get->groups[item->group].n;
    ++get->n_items;
    return true;
}

/* False: the round is full. */
static bool add_one(kvcl_vget_t *get, uint32_t i)
{
    kvcl_vget_one_t *one = &get->ones[i];
    kvcl_key_t      key;
    uint64_t        bytes;

    if (one->state == KVCL_VGET_QUERY) {
        one->at = (kvcl_value_at_t){.value = &one->value};
        if (one->bytes == get->block) {
            key = one->key;
        } else {
            kvcl_store_value_key(&one->key, &key);
        }
        kvcl_tenant_keys(get->tenant, &key, 1);
        if (!add(get, i, (one->bytes == get->block) ? KVCL_VGET_PLAIN : KVCL_VGET_HEAD, &key, one->bytes, &one->at)) {
            return false;
        }
        one->state = KVCL_VGET_QUERIED;
        get->again = get->again || (one->tries != 0);
    }
    while ((one->state == KVCL_VGET_PARTS) && (one->next < one->head.parts)) {
        bytes = one->bytes - (one->next * get->block);
        bytes = (bytes < get->block) ? bytes : get->block;
        kvcl_value_part_key(&one->seed, one->next, &key);
        kvcl_tenant_keys(get->tenant, &key, 1);
        if (!add(get, i, KVCL_VGET_PART, &key, bytes, &one->at)) {
            return false;
        }
        ++one->next;
    }
    return true;
}

/* Allocate the round's arrays; each group has a contiguous part of them. */
static kvcl_status_t scatter(kvcl_vget_t *get)
{
    uint32_t at = 0, fill[KVCL_VGET_VIEWS_MAX + 1], i;

    free(get->recs);
    get->recs = calloc(1, (get->n_items * (sizeof(*get->recs) + sizeof(*get->ids) + sizeof(*get->got))) +
                          (get->groups[0].n * sizeof(*get->from)));
    if (get->recs == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    get->from = (kvcl_dir_loc_t *)(void *)(get->recs + get->n_items);
    get->ids  = (uint32_t *)(void *)(get->from + get->groups[0].n);
    get->got  = (kvcl_status_t *)(void *)(get->ids + get->n_items);
    for (i = 0; i < get->n_groups; ++i) {
        get->groups[i].first = at;
        fill[i]              = at;
        at                  += get->groups[i].n;
    }
    for (i = 0; i < get->n_items; ++i) {
        kvcl_vget_item_t *item = &get->items[i];
        get->got[i]                = KVCL_ERR_INTERNAL; /* until a get of blocks sets it */
        item->place                = fill[item->group]++;
        get->recs[item->place].key = item->key;
        if (item->kind == KVCL_VGET_HEAD) {
            get->recs[item->place].loc = get->ones[item->one].avoid;
        }
        get->ids[item->place] = item->id;
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_vget_round(kvcl_vget_t *get)
{
    unsigned g;
    size_t   i;

    for (g = 0; g < get->n_groups; ++g) {
        get->groups[g].n    = 0;
        get->groups[g].done = false;
    }
    get->n_groups = 1;
    get->n_items  = 0;
    get->again    = false;
    while ((get->first < get->n) && (get->ones[get->first].state == KVCL_VGET_DONE)) {
        ++get->first;
    }
    for (i = get->first; (i < get->n) && add_one(get, (uint32_t)i); ++i) {
    }
    if (get->n_items == 0) {
        return (get->first < get->n) ? KVCL_ERR_NO_MEMORY : KVCL_OK;
    }
    return scatter(get);
}
