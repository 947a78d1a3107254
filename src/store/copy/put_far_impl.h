/*
 * The inside of a put into other ranks' pools: put_far.c and put_far_rounds.c only. Lock held, except where a thread
 * works.
 */
#ifndef KVCL_STORE_COPY_PUT_FAR_IMPL_H
#define KVCL_STORE_COPY_PUT_FAR_IMPL_H

#include "store/home/find.h"
#include "store/home/timer.h"
#include "xfer/copy.h"

/* The next step: put_far.c. */
typedef enum { KVCL_FAR_LOOK, KVCL_FAR_FIND, KVCL_FAR_SUM, KVCL_FAR_SHOW, KVCL_FAR_COPY } kvcl_far_step_t;

typedef struct kvcl_far_put {
    kvcl_call_t        call;
    kvcl_find_t        find;
    kvcl_copy_t        work;       /* of the steps LOOK and SUM */
    bool               working;    /* it runs */
    kvcl_far_step_t    step;
    kvcl_status_t      failed;     /* the step that failed has ended the call */
    kvcl_owner_t       *owner;     /* of the caller's cache */
    uint64_t           bytes;      /* of one block */
    unsigned           copies;     /* wanted */
    uint64_t           tenant;
    int                to_rank;    /* the rank that gets the first copies; -1: the nearest */
    bool               waits;      /* for room (KVCL_PUT_WAIT) */
    bool               summed;     /* inside the call, or no block is summed */
    bool               taken;      /* the blocks, of which other ranks can read some from the step SHOW on */
    bool               busy;       /* a rank was busy in this round */
    kvcl_store_timer_t *pause;
    kvcl_status_t      refused;    /* the last reason why a copy was not made */
    int                refused_by;
    size_t             n;
    uint8_t            *copies_of; /* the user's array, or NULL; each as well */
    kvcl_status_t      *each;
    kvcl_store_rec_t   *recs;      /* n: the caller's blocks; all arrays are part of this allocation */
    kvcl_found_t       *found;     /* n; all empty for an upsert */
    kvcl_key_t         *keys;      /* n */
    uint32_t           *order;     /* n_order <= n: the blocks to be summed, or of this round */
    uint32_t           n_order;
    uint8_t            *flags;     /* n */
    uint8_t            *made;      /* n: copies in pools */
    uint8_t            *tried;     /* one byte a rank */
} kvcl_far_put_t;

/** Which blocks lack copies: fills order[] and n_order. *most_p: the most that one of them lacks. */
void          kvcl_far_lacking(kvcl_far_put_t *far, unsigned *most_p);
/** Requests copies of the blocks that lack some. False: there are none, or no rank is left to try. */
bool          kvcl_far_round(kvcl_far_put_t *far);
/** On a stop: no further round begins after a pause. */
void          kvcl_far_halt(kvcl_far_put_t *far);
/** The status of a put whose rounds are over. */
kvcl_status_t kvcl_far_verdict(kvcl_far_put_t *far);

#endif
