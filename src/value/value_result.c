/*
 * The results of one round of a get of values (value_get.c): what each block that arrived means for its value.
 *
 * A head leads to the value's bytes, or to its parts. If parts are missing, the head is fetched again, from another
 * copy than the one that named them: the value may have been replaced meanwhile, or put by several ranks. After TRIES
 * heads the value is a miss. Only the thread that runs the get calls this, without the lock.
 */
#include "config.h"
#include "value/value_get.h"

enum { TRIES = 4 };

static void done(kvcl_vget_one_t *one, kvcl_status_t why)
{
    one->why   = why;
    one->state = KVCL_VGET_DONE;
}

/* Note the copy of this head: the next one must be from another. gen is 0: it is not a place to fetch from. */
static void note_from(const kvcl_vget_t *get, const kvcl_vget_item_t *item, kvcl_vget_one_t *one)
{
    const kvcl_dir_loc_t *from = &get->from[item->place];

    one->avoid = (kvcl_dir_loc_t){.source   = (from->gen != 0) ? kvcl_dir_loc_tag(from) : 0,
                                  .flags    = from->flags,
                                  .checksum = from->checksum};
}

static void take_head(const kvcl_vget_t *get, const kvcl_vget_item_t *item, kvcl_vget_one_t *one, const uint8_t *block)
{
    uint8_t           before[KVCL_VALUE_NONCE_BYTES];
    kvcl_value_head_t head;

    memcpy(before, one->head.nonce, sizeof(before));
    note_from(get, item, one);
    if (!kvcl_value_head_read(block, get->block, &one->key, &head) || (head.bytes != one->bytes)) {
        done(one, KVCL_ERR_NOT_FOUND);
        return;
    }
    if ((one->tries != 0) && (memcmp(before, head.nonce, sizeof(before)) == 0)) { /* its parts are missing */
        one->state = KVCL_VGET_QUERY;
        if ((++one->tries >= TRIES) || (one->avoid.source == 0)) {
            done(one, KVCL_ERR_NOT_FOUND);
        }
        return;
    }
    if (head.parts == 0) {
        kvcl_value_at_t at = item->at;
        kvcl_value_write(&at, block + sizeof(head), head.bytes);
        done(one, KVCL_OK);
        return;
    }
    one->head  = head;
    one->next  = 0;
    one->at    = (kvcl_value_at_t){.value = &one->value};
    one->why   = KVCL_OK;
    one->state = KVCL_VGET_PARTS;
    kvcl_value_seed(&head, &one->seed);
}

static void take_item(kvcl_vget_t *get, const kvcl_vget_item_t *item)
{
    kvcl_vget_one_t *one   = &get->ones[item->one];
    kvcl_status_t   got    = get->got[item->place];
    const uint8_t   *block = (item->group == 0) ? get->bounce + (item->id * get->block) : NULL;
    kvcl_value_at_t at     = item->at;

    if (item->kind == KVCL_VGET_HEAD) {
        if (got == KVCL_OK) {
            take_head(get, item, one, block);
        } else {
            done(one, got);
        }
        return;
    }
    if ((got == KVCL_OK) && (block != NULL)) {
        kvcl_value_write(&at, block, item->bytes);
    }
    if (item->kind == KVCL_VGET_PLAIN) {
        done(one, got);
    } else if (one->why == KVCL_OK) {
        one->why = got;
    }
}

void kvcl_vget_take_round(kvcl_vget_t *get)
{
    uint32_t        i;
    kvcl_vget_one_t *one;

    for (i = 0; i < get->n_items; ++i) {
        take_item(get, &get->items[i]);
    }
    for (i = 0; i < get->n_items; ++i) {
        one = &get->ones[get->items[i].one];
        if ((get->items[i].kind != KVCL_VGET_PART) || (one->state != KVCL_VGET_PARTS)) {
            continue;
        }
        if ((one->why == KVCL_ERR_NOT_FOUND) && (++one->tries < TRIES)) {
            one->state = KVCL_VGET_QUERY; /* it may have been replaced meanwhile */
        } else if ((one->why != KVCL_OK) || (one->next == one->head.parts)) {
            done(one, one->why);
        }
    }
}
