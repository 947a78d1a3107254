/*
 * Gets of values: in rounds, each one or a few gets of blocks (store_get.c).
 *
 * A round takes blocks of as many values as there is room for: first what lies under a value's own key (a plain block)
 * or under its head's; then, of values with parts, all parts at once, from all who hold them. A block that lies in one
 * piece of the user's memory is fetched there, by a view (value.h) for all memory of its alignment; heads, ends and
 * blocks cut by extents come by a buffer. A value whose parts are gone is looked at again: it may have been replaced
 * meanwhile.
 *
 * One thread at a time runs a get, without the lock: the caller's, then whoever ends a round's last get (outstanding,
 * under the lock). It becomes a request when a round cannot be done inside the call. The request completes when no get
 * of blocks is left, so nothing is written afterwards.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/value.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { TRIES = 4, VIEWS_MAX = 15, ITEMS_MAX = 65536, BOUNCE_BYTES = 32 << 20 };

typedef enum { ASK, ASKED, PARTS, DONE } state_t;
typedef enum { PLAIN, HEAD, PART } kind_t;

typedef struct one { /* a value */
    kvcl_key_t      key;
    kvcl_value_t    value; /* its extents are ours */
    uint64_t        bytes;
    kvcl_value_head_t head; /* PARTS: the last one read */
    kvcl_key_t      seed;
    uint64_t        next;  /* PARTS: the first part not asked for */
    kvcl_value_at_t at;    /* where that goes */
    kvcl_status_t   why;
    uint8_t         state, tries;
} one_t;

typedef struct item { /* a block of a round */
    uint32_t        one;
    uint8_t         kind, group;
    uint32_t        id;     /* in the group's view */
    uint32_t        place;  /* in the round's arrays */
    uint64_t        bytes;  /* that count */
    kvcl_value_at_t at;     /* by the buffer: where they go */
    kvcl_key_t      key;
} item_t;

struct vget;
typedef struct group { /* group 0 is the buffer */
    struct vget *get;
    kvcl_view_t view;
    uint32_t    n, first; /* of the round's arrays */
    kvcl_req_t  *req;     /* under way */
    bool        done;
} group_t;

typedef struct vget {
    kvcl_req_t       req;
    kvcl_store_h     store;
    bool             started;
    kvcl_req_cb_t    cb;
    void             *cb_arg;
    kvcl_req_h       *req_p;  /* until started */
    kvcl_status_t    *statuses[2];
    uint64_t         deadline_ns, block;
    kvcl_shape_t     shape;
    unsigned         outstanding; /* under the lock: gets of the round, and who runs */
    kvcl_status_t    stopping;    /* under the lock */
    group_t          groups[VIEWS_MAX + 1];
    unsigned         n_groups;
    uint8_t          *bounce;
    uint32_t         bounce_room, n_items, items_room;
    item_t           *items;
    kvcl_store_rec_t *recs;   /* a round's, by groups; ids and got are part of this */
    uint32_t         *ids;
    kvcl_status_t    *got;
    size_t           n, first; /* values; those before first are done */
    one_t            ones[];
} vget_t;

static void destroy(vget_t *get)
{
    free(get->bounce);
    free(get->items);
    free(get->recs);
    free(get);
}

static void release(kvcl_req_t *req)
{
    destroy(kvcl_container_of(req, vget_t, req));
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    vget_t   *get = kvcl_container_of(req, vget_t, req);
    unsigned i;

    get->stopping = (get->stopping == KVCL_OK) ? status : get->stopping;
    for (i = 0; i <= VIEWS_MAX; ++i) { /* n_groups may be changing */
        if ((get->groups[i].req != NULL) && !kvcl_req_is_done(get->groups[i].req)) {
            get->groups[i].req->cls->stop(get->groups[i].req, status);
        }
    }
}

static const kvcl_req_class_t vget_class = {.name = "store-get-values", .stop = stop, .release = release};

/* ---- making a round ---- */

/* The group, and the block of it, where a piece of memory is. */
static bool place_direct(vget_t *get, item_t *item, const void *piece)
{
    unsigned i;

    for (i = 1; i < get->n_groups; ++i) {
        if (kvcl_view_id(&get->groups[i].view, piece, &item->id)) {
            item->group = (uint8_t)i;
            return true;
        }
    }
    if ((get->n_groups > VIEWS_MAX) ||
        !kvcl_view_at(&get->groups[get->n_groups].view, get->store->ctx, &get->shape, piece) ||
        !kvcl_view_id(&get->groups[get->n_groups].view, piece, &item->id)) {
        return false;
    }
    item->group = (uint8_t)get->n_groups++;
    return true;
}

/* One more block, bytes of which go to *at, which moves on. False: no room in this round. */
static bool add(vget_t *get, uint32_t one, kind_t kind, const kvcl_key_t *key, uint64_t bytes, kvcl_value_at_t *at)
{
    item_t     *item, *more;
    const void *piece;
    uint32_t   room = get->items_room;

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
    *item = (item_t){.one = one, .kind = (uint8_t)kind, .bytes = bytes, .at = *at, .key = *key};
    piece = ((kind != HEAD) && (bytes == get->block)) ? kvcl_value_piece(at, bytes) : NULL;
    if ((piece == NULL) || !place_direct(get, item, piece)) {
        if (get->groups[0].n == get->bounce_room) {
            *at = item->at;
            return false;
        }
        item->id = get->groups[0].n;
        if ((piece == NULL) && (kind != HEAD)) {
            kvcl_value_skip(at, bytes);
        }
    }
    ++get->groups[item->group].n;
    ++get->n_items;
    return true;
}

/* False: the round is full. */
static bool add_one(vget_t *get, uint32_t i)
{
    one_t      *one = &get->ones[i];
    kvcl_key_t key;
    uint64_t   bytes;

    if (one->state == ASK) {
        one->at = (kvcl_value_at_t){.value = &one->value};
        if (one->bytes == get->block) {
            key = one->key;
        } else {
            kvcl_store_value_key(&one->key, &key);
        }
        if (!add(get, i, (one->bytes == get->block) ? PLAIN : HEAD, &key, one->bytes, &one->at)) {
            return false;
        }
        one->state = ASKED;
    }
    while ((one->state == PARTS) && (one->next < one->head.parts)) {
        bytes = one->bytes - (one->next * get->block);
        bytes = (bytes < get->block) ? bytes : get->block;
        kvcl_value_part_key(&one->seed, one->next, &key);
        if (!add(get, i, PART, &key, bytes, &one->at)) {
            return false;
        }
        ++one->next;
    }
    return true;
}

/* The round's arrays, each group's part of them behind the one before. */
static kvcl_status_t deal(vget_t *get)
{
    uint32_t at = 0, fill[VIEWS_MAX + 1], i;

    free(get->recs);
    get->recs = calloc(get->n_items, sizeof(*get->recs) + sizeof(*get->ids) + sizeof(*get->got));
    if (get->recs == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    get->ids = (uint32_t *)(void *)(get->recs + get->n_items);
    get->got = (kvcl_status_t *)(void *)(get->ids + get->n_items);
    for (i = 0; i < get->n_groups; ++i) {
        get->groups[i].first = at;
        fill[i]              = at;
        at += get->groups[i].n;
    }
    for (i = 0; i < get->n_items; ++i) {
        item_t *item = &get->items[i];
        item->place                = fill[item->group]++;
        get->recs[item->place].key = item->key;
        get->ids[item->place]      = item->id;
    }
    return KVCL_OK;
}

/* KVCL_OK with n_items 0: all values are done. */
static kvcl_status_t make_round(vget_t *get)
{
    unsigned g;
    size_t   i;

    for (g = 0; g < get->n_groups; ++g) {
        get->groups[g].n    = 0;
        get->groups[g].done = false;
    }
    get->n_groups = 1;
    get->n_items  = 0;
    while ((get->first < get->n) && (get->ones[get->first].state == DONE)) {
        ++get->first;
    }
    for (i = get->first; (i < get->n) && add_one(get, (uint32_t)i); ++i) {
    }
    if (get->n_items == 0) {
        return (get->first < get->n) ? KVCL_ERR_NO_MEMORY : KVCL_OK;
    }
    return deal(get);
}

/* ---- what came of it ---- */

static void done(one_t *one, kvcl_status_t why)
{
    one->why   = why;
    one->state = DONE;
}

static void take_head(const vget_t *get, const item_t *item, one_t *one, const uint8_t *block)
{
    uint8_t           before[KVCL_VALUE_NONCE_BYTES];
    kvcl_value_head_t head;

    memcpy(before, one->head.nonce, sizeof(before));
    if (!kvcl_value_head_read(block, get->block, &one->key, &head) || (head.bytes != one->bytes) ||
        ((one->tries != 0) && (memcmp(before, head.nonce, sizeof(before)) == 0))) {
        done(one, KVCL_ERR_NOT_FOUND);
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
    one->state = PARTS;
    kvcl_value_seed(&head, &one->seed);
}

static void take_item(vget_t *get, const item_t *item)
{
    one_t           *one   = &get->ones[item->one];
    kvcl_status_t   got    = get->got[item->place];
    const uint8_t   *block = (item->group == 0) ? get->bounce + (item->id * get->block) : NULL;
    kvcl_value_at_t at     = item->at;

    if (item->kind == HEAD) {
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
    if (item->kind == PLAIN) {
        done(one, got);
    } else if (one->why == KVCL_OK) {
        one->why = got;
    }
}

static void take_round(vget_t *get)
{
    uint32_t i;
    one_t    *one;

    for (i = 0; i < get->n_items; ++i) {
        take_item(get, &get->items[i]);
    }
    for (i = 0; i < get->n_items; ++i) {
        one = &get->ones[get->items[i].one];
        if ((get->items[i].kind != PART) || (one->state != PARTS)) {
            continue;
        }
        if ((one->why == KVCL_ERR_NOT_FOUND) && (++one->tries < TRIES)) {
            one->state = ASK; /* replaced meanwhile? */
        } else if ((one->why != KVCL_OK) || (one->next == one->head.parts)) {
            done(one, one->why);
        }
    }
}

/* ---- running ---- */

static kvcl_status_t run(vget_t *get);

static void on_got(void *arg, kvcl_status_t status)
{
    group_t        *group = arg;
    vget_t         *get   = group->get;
    kvcl_context_h ctx    = get->store->ctx;
    bool           last;

    (void)status; /* each block has its own */
    kvcl_lock(ctx);
    group->req = NULL;
    last       = (--get->outstanding == 0);
    kvcl_unlock(ctx);
    if (last) {
        take_round(get);
        (void)!run(get); /* a request by now: it tells */
    }
}

/* Inside the call, without a request. */
static void get_now(vget_t *get, group_t *group)
{
    kvcl_status_t *statuses[2] = {get->got + group->first, NULL}, final;
    kvcl_key_t    few[64];
    uint32_t      i;

    if ((group->n > sizeof(few) / sizeof(few[0])) || (group->n > get->store->ctx->config.inline_copy / get->block)) {
        return;
    }
    for (i = 0; i < group->n; ++i) {
        few[i] = get->recs[group->first + i].key;
    }
    group->done = kvcl_get_now(get->store, few, group->n, &group->view.cache, get->ids + group->first, statuses,
                               &final);
}

/* Lock held. The gets that are left of the round. */
static void post(vget_t *get)
{
    kvcl_status_t status = KVCL_OK;
    group_t       *group;
    unsigned      i;

    for (i = 0; (i < get->n_groups) && (status == KVCL_OK) && (get->stopping == KVCL_OK); ++i) {
        group = &get->groups[i];
        if (group->done || (group->n == 0)) {
            continue;
        }
        group->get = get;
        ++get->outstanding;
        status = kvcl_get_recs(get->store, get->recs + group->first, group->n, &group->view.cache,
                               get->ids + group->first, get->got + group->first, NULL,
                               kvcl_deadline_left(get->deadline_ns) + 1, true, on_got, group, &group->req);
        if (status != KVCL_OK) {
            --get->outstanding;
            group->req = NULL;
        }
    }
    if (status != KVCL_OK) {
        stop(&get->req, status);
    }
}

/* stopped: what those get that are not done. */
static kvcl_status_t finish(vget_t *get, kvcl_status_t stopped)
{
    kvcl_context_h ctx    = get->store->ctx;
    kvcl_status_t  first  = KVCL_OK, why;
    kvcl_req_cb_t  cb     = get->cb;
    void           *arg   = get->cb_arg;
    kvcl_req_h     *req_p = get->req_p;
    size_t         i;

    for (i = 0; i < get->n; ++i) {
        why   = (get->ones[i].state == DONE) ? get->ones[i].why : stopped;
        first = (first == KVCL_OK) ? why : first;
        if (get->statuses[0] != NULL) {
            get->statuses[0][i] = why;
        }
        if (get->statuses[1] != NULL) {
            get->statuses[1][i] = why;
        }
    }
    if (!get->started) {
        destroy(get);
        return kvcl_req_instant(ctx, first, cb, arg, req_p);
    }
    kvcl_lock(ctx);
    --get->store->ops;
    kvcl_req_complete(&get->req, first);
    kvcl_unlock(ctx);
    return KVCL_OK;
}

/* Lock held. */
static kvcl_status_t start(vget_t *get)
{
    kvcl_status_t status = KVCL_OK;

    if (!get->started) {
        status = kvcl_req_start(&get->req, get->store->ctx, &vget_class, kvcl_deadline_left(get->deadline_ns) + 1,
                                get->cb, get->cb_arg, get->req_p != NULL);
        get->started = (status == KVCL_OK);
        get->store->ops += get->started ? 1 : 0;
        if (get->started && (get->req_p != NULL)) {
            *get->req_p = &get->req;
        }
    }
    return status;
}

/* Lock held. What of a round was not done inside the call; how many gets are under way. */
static unsigned go_on(vget_t *get, kvcl_status_t status, unsigned left)
{
    status = ((status == KVCL_OK) && (left != 0)) ? start(get) : status;
    if (status != KVCL_OK) {
        get->stopping = (get->stopping == KVCL_OK) ? status : get->stopping;
    }
    if ((left == 0) || (get->stopping != KVCL_OK)) {
        return 0;
    }
    get->outstanding = 1;
    post(get);
    return --get->outstanding;
}

/* Round by round, until one is under way or nothing is left; the get may be gone on return. */
static kvcl_status_t run(vget_t *get)
{
    kvcl_context_h ctx = get->store->ctx;
    kvcl_status_t  status, stopped = KVCL_OK;
    unsigned       i, left, under_way;

    do {
        status = make_round(get);
        if ((status == KVCL_OK) && (get->n_items == 0)) {
            break;
        }
        atomic_fetch_add_explicit(&get->store->gets, get->n_items, memory_order_relaxed);
        for (i = 0, left = 0; (status == KVCL_OK) && (i < get->n_groups); ++i) {
            if (get->groups[i].n != 0) {
                get_now(get, &get->groups[i]);
                left += get->groups[i].done ? 0 : 1;
            }
        }
        kvcl_lock(ctx);
        under_way = go_on(get, status, left);
        stopped   = get->stopping;
        kvcl_unlock(ctx);
        if (under_way != 0) {
            return KVCL_OK; /* the last of them goes on */
        }
        if (stopped == KVCL_OK) {
            take_round(get);
        }
    } while (stopped == KVCL_OK);
    return finish(get, stopped);
}

/* ---- the call ---- */

static kvcl_status_t make(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                          vget_t **get_p)
{
    size_t        n_extents = 0, i;
    bool          split     = false;
    kvcl_extent_t *extents;
    vget_t        *get;
    uint64_t      room;

    for (i = 0; i < n; ++i) {
        n_extents += values[i].n_extents;
        split = split || (values[i].n_extents > 1);
    }
    get = calloc(1, sizeof(*get) + (n * sizeof(get->ones[0])) + (n_extents * sizeof(*extents)));
    if (get == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    extents    = (kvcl_extent_t *)(void *)&get->ones[n];
    get->store = store;
    get->n     = n;
    get->block = kvcl_value_block(store);
    for (i = 0; i < n; ++i) {
        one_t *one = &get->ones[i];
        one->key   = keys[i];
        one->value = (kvcl_value_t){.extents = extents, .n_extents = values[i].n_extents};
        if (values[i].n_extents != 0) {
            memcpy(extents, values[i].extents, values[i].n_extents * sizeof(*extents));
        }
        extents += values[i].n_extents;
        (void)kvcl_value_bytes(&one->value, &one->bytes);
    }
    room = BOUNCE_BYTES / get->block;
    room = (room == 0) ? 1 : room;
    get->bounce_room = (uint32_t)((split || (room < n)) ? room : n);
    get->bounce      = malloc(get->bounce_room * get->block);
    get->n_groups    = 1;
    if ((get->bounce == NULL) || (kvcl_view_shape(get->block, &get->shape) != KVCL_OK)) {
        destroy(get);
        return KVCL_ERR_NO_MEMORY;
    }
    get->groups[0].view.base = (uintptr_t)get->bounce;
    get->groups[0].view.cache = (struct kvcl_cache){.ctx = store->ctx, .name = "plain memory", .shape = get->shape,
                                                    .bases = &get->groups[0].view.base};
    *get_p = get;
    return KVCL_OK;
}

kvcl_status_t kvcl_store_get_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                                    kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const char         *call  = "kvcl_store_get_values";
    kvcl_status_t      result = kvcl_store_check(store, keys, n, call);
    kvcl_xfer_params_t p;
    uint64_t           bytes;
    vget_t             *get;
    size_t             i;

    if ((result != KVCL_OK) || ((result = kvcl_xfer_params(params, call, &p)) != KVCL_OK)) {
        return result;
    }
    for (i = 0; i < n; ++i) {
        if ((values == NULL) || !kvcl_value_bytes(&values[i], &bytes)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: value %zu has an extent that is NULL or too long", call, i);
        }
    }
    if (n > UINT32_MAX / 2) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu values are too many for one call", call, n);
    }
    if (n == 0) {
        return kvcl_req_instant(store->ctx, KVCL_OK, p.cb, p.cb_arg, req_p);
    }
    if (kvcl_value_block(store) == 0) { /* nobody can have put one */
        for (i = 0; i < n; ++i) {
            if (status != NULL) {
                status[i] = KVCL_ERR_NOT_FOUND;
            }
            if (p.status != NULL) {
                p.status[i] = KVCL_ERR_NOT_FOUND;
            }
        }
        return kvcl_req_instant(store->ctx, KVCL_ERR_NOT_FOUND, p.cb, p.cb_arg, req_p);
    }
    result = make(store, keys, n, values, &get);
    if (result != KVCL_OK) {
        return kvcl_fail(result, "%s: no memory for %zu values", call, n);
    }
    get->statuses[0] = status;
    get->statuses[1] = p.status;
    get->cb          = p.cb;
    get->cb_arg      = p.cb_arg;
    get->req_p       = req_p;
    get->deadline_ns = kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns));
    return run(get);
}

kvcl_status_t kvcl_store_get_value(kvcl_store_h store, const kvcl_key_t *key, void *buf, size_t bytes,
                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_extent_t extent = {.addr = buf, .bytes = bytes};
    kvcl_value_t  value  = {.extents = &extent, .n_extents = 1};

    return kvcl_store_get_values(store, key, 1, &value, NULL, params, req_p);
}
