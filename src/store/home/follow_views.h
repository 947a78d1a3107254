/*
 * A store whose map follows the job's views (KVCL_VIEWS): the right to own, and shards that move (dir/moves.h).
 *
 * A rank that has failed is not asked any more at once: its shards are looked up at their other homes. Their owners
 * change with the view. Engine lock held, except where marked.
 */
#ifndef KVCL_STORE_HOME_FOLLOW_VIEWS_H
#define KVCL_STORE_HOME_FOLLOW_VIEWS_H

#include "dir/moves.h"
#include "store/store.h"
#include "view/view.h"

typedef struct kvcl_store_views {
    kvcl_moves_t       moves;
    uint64_t           view;      /* its number; 0: not begun */
    bool               sure;      /* not begun: a rank that had settled has taken this one */
    bool               known;     /* members is set: the job has had a view since this store was opened */
    uint64_t           *members;  /* by rank: the view's incarnation of its process */
    bool               listed, switched, over; /* the steps that this rank has made since shards began to move */
    uint64_t           begun_ns;
    kvcl_store_timer_t *timer;    /* says the steps again */
} kvcl_store_views_t;

/** No lock: the store is not linked yet. Where views are off store->views stays NULL, and all below does nothing. */
kvcl_status_t kvcl_views_open(kvcl_store_h store) KVCL_MUST_CHECK;
void          kvcl_views_free(kvcl_store_h store);
/** All ranks have met: the map follows views from here on. */
void          kvcl_views_begin(kvcl_store_h store);
void          kvcl_views_stop(kvcl_store_h store); /* the store is being closed */

/** A rank that has no part, or whose part was another process's, takes part from here on; leaves: one that does is to
 * have no shards. This rank has settled, or another one had when it took that rank (dir/moves.h). */
void kvcl_views_rank_comes(kvcl_store_h store, uint32_t rank, uint16_t incarnation, bool leaves);
/** This rank has come to an open store, and all others have taken it: its first move begins. */
void kvcl_views_come(kvcl_store_h store);
/** Is it to have no shards, since it leaves? */
static inline bool kvcl_views_leaves(const struct kvcl_store *store, uint32_t rank)
{
    return (store->views != NULL) && store->views->moves.ranks[rank].leaves;
}
/** Is the rank's slot in this rank's view? */
bool kvcl_views_has(const struct kvcl_store *store, uint32_t rank);

/** The job has a new view. */
void kvcl_views_changed(kvcl_store_h store, const kvcl_view_t *view);
/** The rank's incarnation is 0 by now. False: the map does not follow views. */
bool kvcl_views_rank_failed(kvcl_store_h store, uint32_t rank);
/** All blocks of this rank are listed at their new homes. */
void kvcl_views_listed(kvcl_store_h store);

/** May this rank list records, and remove keys, as their home? To be asked each time. */
bool kvcl_views_may_own(const struct kvcl_store *store);
/** No lock. Waits until it may. KVCL_ERR_NO_QUORUM, with the error sentence: not before the deadline. */
kvcl_status_t kvcl_views_wait_to_own(kvcl_store_h store, uint64_t deadline_ns, const char *call) KVCL_MUST_CHECK;

/** MOVED, but for the answer. */
bool kvcl_views_on_moved(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                         size_t len);

#endif
