/*
 * A get of values in progress: its values, and the blocks of the current round (value_get.c, value_round.c,
 * value_result.c).
 */
#ifndef KVCL_VALUE_GET_H
#define KVCL_VALUE_GET_H

#include "value/value.h"

enum { KVCL_VGET_VIEWS_MAX = 15 };

typedef enum { KVCL_VGET_QUERY, KVCL_VGET_QUERIED, KVCL_VGET_PARTS, KVCL_VGET_DONE } kvcl_vget_state_t;
typedef enum { KVCL_VGET_PLAIN, KVCL_VGET_HEAD, KVCL_VGET_PART } kvcl_vget_kind_t;

typedef struct kvcl_vget_one { /* a value */
    kvcl_key_t        key;
    kvcl_value_t      value; /* its extents are copied into this allocation */
    uint64_t          bytes;
    kvcl_value_head_t head;  /* PARTS: the last head read */
    kvcl_key_t        seed;
    uint64_t          next;  /* PARTS: the first part not requested yet */
    kvcl_value_at_t   at;    /* its destination */
    kvcl_status_t     why;
    uint8_t           state, tries;
    kvcl_dir_loc_t    avoid; /* the copy of head, its tag as source; source 0: unknown */
} kvcl_vget_one_t;

typedef struct kvcl_vget_item { /* a block of a round */
    uint32_t        one;
    uint8_t         kind, group;
    uint32_t        id;     /* in the group's view */
    uint32_t        place;  /* index in the round's arrays */
    uint64_t        bytes;  /* of the block that belong to the value */
    kvcl_value_at_t at;     /* group 0: destination of the bytes */
    kvcl_key_t      key;
} kvcl_vget_item_t;

struct kvcl_vget;
typedef struct kvcl_vget_group { /* group 0 is the buffer */
    struct kvcl_vget *get;
    kvcl_view_t      view;
    uint32_t         n, first; /* part of the round's arrays */
    kvcl_req_t       *req;     /* in flight */
    bool             done;
} kvcl_vget_group_t;

typedef struct kvcl_vget {
    kvcl_req_t        req;
    kvcl_store_h      store;
    kvcl_store_tenant_t *tenant;   /* whose call it is, held; NULL: none */
    bool              started;
    kvcl_xfer_params_t params;
    kvcl_req_h        *req_p;      /* until started */
    kvcl_status_t     *statuses[2];
    uint64_t          deadline_ns, block;
    kvcl_shape_t      shape;
    unsigned          outstanding; /* under the lock: gets of the round, and the thread that runs */
    kvcl_status_t     stopping;    /* under the lock */
    kvcl_vget_group_t groups[KVCL_VGET_VIEWS_MAX + 1];
    unsigned          n_groups;
    uint8_t           *bounce;
    uint32_t          bounce_room, n_items, items_room;
    kvcl_vget_item_t  *items;
    kvcl_store_rec_t  *recs;       /* of a round, sorted by group; from, ids and got are part of this allocation */
    uint32_t          *ids;
    kvcl_status_t     *got;
    kvcl_dir_loc_t    *from;       /* of group 0 */
    bool              again;       /* the round looks for other heads */
    size_t            n, first;    /* values; those before first are done */
    kvcl_vget_one_t   ones[];
} kvcl_vget_t;

/** Only the thread that runs the get calls this. It chooses the blocks of the next round and fills its arrays. KVCL_OK
 * with n_items 0: all values are done. */
kvcl_status_t kvcl_vget_round(kvcl_vget_t *get) KVCL_MUST_CHECK;

/** The same thread. The gets of the round have ended: their blocks go where they belong, and values are done or have a
 * next step. */
void          kvcl_vget_take_round(kvcl_vget_t *get);

#endif
