/*
 * The inside of a put's listing and further copies: chain.c, chain_rounds.c and put_stays.c only. Lock held.
 */
#ifndef KVCL_STORE_COPY_CHAIN_IMPL_H
#define KVCL_STORE_COPY_CHAIN_IMPL_H

#include "store/copy/chain.h"
#include "store/home/timer.h"

/* With KVCL_PUT_STAYS: the caller's blocks, which the first rank of a chain fetches while the pool's are still filled.
 * They are taken (pool/publish_own.h) until the put ends. One allocation. */
struct kvcl_chain_early {
    kvcl_owner_t     *owner;  /* of the caller's cache */
    unsigned         places;  /* ranks of the chain; 0: none is chosen yet */
    uint16_t         ranks[KVCL_DIR_LOCS_MAX];
    bool             counted; /* chain->made includes made: the pool's blocks are fetched now */
    size_t           n;       /* blocks that the pool lacked */
    kvcl_store_rec_t *recs;   /* n */
    uint32_t         *items;  /* n: their index in the user's call */
    uint32_t         *order;  /* n: 0, 1, 2, ... */
    uint8_t          *made;   /* of each item of the call: copies, this rank's included; 0: the pool's is fetched */
};

struct kvcl_chain {
    kvcl_req_t         req;
    kvcl_store_h       store;
    kvcl_owner_t       *pool;   /* the class of the pool that holds the blocks */
    kvcl_list_t        rpcs;
    unsigned           outstanding;
    unsigned           copies;  /* wanted, this rank's included */
    uint64_t           tenant;
    bool               posting;
    bool               busy;    /* a rank was busy in this round */
    kvcl_store_timer_t *pause;  /* until the busy ranks are tried again */
    kvcl_status_t      status;  /* of the listing, or why the put was stopped */
    kvcl_status_t      refused; /* the last reason why a copy was not made */
    uint32_t           refused_by;
    size_t             n;
    kvcl_store_rec_t   *recs;   /* n: in this rank's pool; all arrays are part of this allocation */
    uint32_t           *item;   /* n: their index in the user's call */
    uint32_t           *order;  /* n: the blocks of this round */
    uint8_t            *made;   /* n: copies, this rank's included */
    uint8_t            *tried;  /* one byte a rank */
    uint8_t            *user;   /* the user's array, or NULL */
    kvcl_chain_fill_t  *fill;   /* while the blocks are filled: none has a record yet, n is 0 */
    kvcl_chain_early_t *early;  /* NULL: none */
    size_t             n_asked; /* blocks of the user's call, as far as they were known when it returned */
    uint64_t           timeout_ns;
};

/** A part of the put has ended; the last one completes its request. */
void kvcl_chain_part_over(kvcl_chain_t *chain);
/** Requests copies of the blocks that lack some, once every RPC of the round before has ended. */
void kvcl_chain_next_round(kvcl_chain_t *chain);
/** Requests copies of the n blocks order[from..) of these ranks: of the caller's blocks (early) until the rounds begin,
 * then of the pool's. */
void kvcl_chain_post(kvcl_chain_t *chain, uint32_t from, uint32_t n, const uint16_t *ranks, unsigned places);

#endif
