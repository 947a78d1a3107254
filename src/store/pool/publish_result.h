/*
 * A publish or a remove in flight, and the results of the homes for its blocks. Only publish.c and publish_result.c
 * include it. Engine lock held.
 */
#ifndef KVCL_STORE_POOL_PUBLISH_RESULT_H
#define KVCL_STORE_POOL_PUBLISH_RESULT_H

#include "store/store.h"

/* The answers of a block's homes: bits of kvcl_publish_t.answers[]. */
enum { KVCL_PUBLISH_LISTED = 1, KVCL_PUBLISH_SILENCE = 2, KVCL_PUBLISH_FULL = 4 /* with LISTED: KVCL_ERR_EXISTS */ };

struct kvcl_publish {
    kvcl_req_t         req;
    kvcl_store_h       store;
    kvcl_owner_t       *owner;      /* NULL: a remove, or the owner was detached */
    kvcl_list_t        link;        /* store->publishes */
    kvcl_list_t        rpcs;
    unsigned           outstanding; /* RPCs that have not ended */
    kvcl_status_t      status;      /* the first failure */
    size_t             failed;      /* the number of its block; n: no block in particular */
    kvcl_status_t      *each;       /* the caller's status of each block, or NULL */
    kvcl_scatter_t     scatter;
    bool               is_publish;
    bool               again;       /* a home has failed: its records go to other homes */
    bool               lagging;     /* a new home does not know yet of the failure that made it one; or (views) a home
                                       has failed or may not own now: the next view, or its lease, must come first */
    bool               no_quorum;   /* that is why the last round has failed */
    kvcl_store_timer_t *pause;      /* fires when the records are sent again */
    unsigned           rounds;
    uint64_t           drop_pause_ns; /* of a removal, the last */
    kvcl_timing_t      timing;      /* of the call that this request ends */
    size_t             n;
    uint8_t            *answers;    /* n, behind recs: KVCL_PUBLISH_* */
    kvcl_store_rec_t   recs[];      /* of a remove: n keys */
};

/** Is the block still published, or in the tier, as its record says? */
bool kvcl_publish_is_current(const struct kvcl_publish *publish, size_t i);
/** A home's status for block i. */
void kvcl_publish_take(struct kvcl_publish *publish, size_t i, kvcl_status_t status);
/** A home refuses block i, since it does not list the copy that it was made from: the block is withdrawn. */
void kvcl_publish_refused(struct kvcl_publish *publish, size_t i);
/** A home does not answer this RPC, or is not queried at all. */
void kvcl_publish_silence(struct kvcl_publish *publish, const kvcl_rpc_t *rpc);
/** Where maps follow views: must the block's publish or removal be sent again after this answer of the rank? */
bool kvcl_publish_is_early(struct kvcl_publish *publish, uint32_t rank, kvcl_status_t status);
/** The same after all answers: are the homes of some blocks all silent? They are forgotten to have been. */
bool kvcl_publish_is_unheard(struct kvcl_publish *publish);
/** How long it waits before it is sent again. */
uint64_t kvcl_publish_pause_ns(struct kvcl_publish *publish);
/** The request is stopped by its deadline while it waits to send again: which blocks have failed, and why. */
void kvcl_publish_give_up(struct kvcl_publish *publish, kvcl_status_t status);
/** It is to be sent again: KVCL_ERR_STALE, if the others have excluded this rank. */
void kvcl_publish_judge_exclusion(struct kvcl_publish *publish);
/** All homes have answered, or will not: sets the final status, and withdraws blocks that no home lists. */
void kvcl_publish_conclude(struct kvcl_publish *publish);
/** A put that failed leaves no unlisted block in the pool, since the next put of its key would take it for done. */
void kvcl_publish_drop_unlisted(struct kvcl_publish *publish);

/* The sentences: kvcl_req_class_t.describe and .explain; and the whole one of a request that ends inside its call. */
void kvcl_publish_describe(const kvcl_req_t *req, char *buf, size_t cap);
bool kvcl_publish_explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap);
void kvcl_publish_set_error(const struct kvcl_publish *publish, kvcl_status_t status);

#endif
