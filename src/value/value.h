/*
 * Values: bytes of any length in the blocks of pools (kvcl_store_value.h describes their form).
 *
 *   value_head.c     the head as it lies in a pool, and the keys made from it: pure
 *   value_memory.c   plain memory: extents, and blocks of it that gets write into
 *   value_get.c      gets; value_round.c, value_result.c: the blocks of one round, and what they mean
 *   value_put.c      puts; value_old.c: what their keys named before
 *   value_pool.c     blocks of this rank's pool; value_fill.c: their bytes, copied and summed
 *   value_part.c     parts into pools, of this rank and of others
 *   value_far.c      puts by a rank without a pool
 *   value_ops.c      sizes, keys, removal of values and parts; value_query.c: the queries behind them
 *   value_words.c    sentences of failed puts
 */
#ifndef KVCL_VALUE_H
#define KVCL_VALUE_H

#include "store/tenant.h"
#include "weave/sum_copy.h"
#include <kvcl/kvcl_store_value.h>

/* ---- the head (value_head.c): pure ---- */

enum { KVCL_VALUE_VERSION = 1, KVCL_VALUE_NONCE_BYTES = 16 };
#define KVCL_VALUE_MAGIC UINT64_C(0x314c41564c43564b) /* "KVCLVAL1" */

/* The first bytes of a head's block, little-endian. The bytes of a value without parts follow, then zeros. */
typedef struct kvcl_value_head {
    uint64_t   magic;
    uint32_t   version;
    uint32_t   reserved;                      /* 0 */
    uint64_t   bytes;                         /* of the value */
    uint64_t   part_bytes;                    /* of one part: the pool's block size */
    uint64_t   parts;                         /* 0: the value's bytes follow the head */
    uint8_t    nonce[KVCL_VALUE_NONCE_BYTES]; /* of this put */
    kvcl_key_t key;                           /* the value's */
    uint64_t   check;                         /* XXH3 of all fields before */
} kvcl_value_head_t;
_Static_assert(sizeof(kvcl_value_head_t) == 96, "pool format");

/* The number of a value's parts: 0 if it fits after a head. */
static inline uint64_t kvcl_value_parts(uint64_t bytes, uint64_t block_bytes)
{
    return ((block_bytes >= sizeof(kvcl_value_head_t)) && (bytes <= block_bytes - sizeof(kvcl_value_head_t)))
               ? 0 : (bytes / block_bytes) + ((bytes % block_bytes != 0) ? 1 : 0);
}

void kvcl_value_head_make(const kvcl_key_t *key, uint64_t bytes, uint64_t block_bytes,
                          const uint8_t nonce[KVCL_VALUE_NONCE_BYTES], kvcl_value_head_t *head);

/** block has block_bytes bytes, which may come from any rank. False, and *head is zero, if it is not the head of this
 * key's value. An accepted head has a length, parts and part_bytes that belong together, and at most
 * KVCL_VALUE_PARTS_MAX parts. */
bool kvcl_value_head_read(const void *block, uint64_t block_bytes, const kvcl_key_t *key, kvcl_value_head_t *head);

/** The seed of the keys of parts. */
void kvcl_value_seed(const kvcl_value_head_t *head, kvcl_key_t *seed);
/** The key of part i: 16 neighbours share a tag, and so a home. */
void kvcl_value_part_key(const kvcl_key_t *seed, uint64_t i, kvcl_key_t *key);

/* Keys of values, heads and parts are made from the caller's keys. Blocks lie under the tenant's keys for these
 * (kvcl_tenant_keys), like all blocks of a tenant. */

/* ---- plain memory (value_memory.c) ---- */

/* A position in a value. */
typedef struct kvcl_value_at {
    const kvcl_value_t *value;
    size_t             extent; /* index of the extent */
    size_t             offset; /* bytes into it */
} kvcl_value_at_t;

/** The length of a value in bytes. False: an extent is NULL, or the sum is too large. */
bool  kvcl_value_bytes(const kvcl_value_t *value, uint64_t *bytes_p);
/** Copy bytes out of, or into, the value; at advances. sum, unless NULL: it takes the bytes in the same pass. */
void  kvcl_value_read(kvcl_value_at_t *at, void *to, uint64_t bytes, kvcl_sum_t *sum);
void  kvcl_value_write(kvcl_value_at_t *at, const void *from, uint64_t bytes);
void  kvcl_value_skip(kvcl_value_at_t *at, uint64_t bytes);
/** The address of the next bytes, if they are contiguous; at advances then. Otherwise NULL, and at does not move. */
void *kvcl_value_piece(kvcl_value_at_t *at, uint64_t bytes);

/* Memory as blocks of a cache that was never registered: a get's destination (only the shape and the base are used).
 * All addresses that differ by multiples of the block size are blocks of one view. */
typedef struct kvcl_view {
    struct kvcl_cache cache;
    uintptr_t         base;
} kvcl_view_t;

/** The view that has addr as a block; shape is from kvcl_view_shape. False: addr cannot be one. */
bool kvcl_view_at(kvcl_view_t *view, kvcl_context_h ctx, const kvcl_shape_t *shape, const void *addr);
/** The number of the block at addr; false: none. */
bool kvcl_view_id(const kvcl_view_t *view, const void *addr, uint32_t *id_p);
kvcl_status_t kvcl_view_shape(uint64_t block_bytes, kvcl_shape_t *shape) KVCL_MUST_CHECK;

/* ---- between the calls ---- */

/** Bytes of a block of values in this store; 0: no rank has a pool. */
static inline uint64_t kvcl_value_block(const struct kvcl_store *store)
{
    return store->value_block;
}

/** No lock; blocks until the deadline. The heads of n values. If status[i] is KVCL_OK, heads[i] is set; for a plain
 * block under the key, parts is 0 and bytes the size of a block. */
kvcl_status_t kvcl_value_heads(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                               kvcl_value_head_t *heads, kvcl_status_t *status, uint64_t deadline_ns) KVCL_MUST_CHECK;

/** Is it a plain block under its key, with no head? */
static inline bool kvcl_value_is_plain(const kvcl_value_head_t *head)
{
    return head->magic == 0;
}

/** No lock; blocks until the deadline. Does some rank hold each part of the value? */
bool kvcl_value_has_parts(kvcl_store_h store, const kvcl_store_tenant_t *tenant, const kvcl_value_head_t *head,
                          uint64_t deadline_ns);
/** No lock. Remove the parts at every rank, in the background. */
void kvcl_value_drop_parts(kvcl_store_h store, const kvcl_store_tenant_t *tenant, const kvcl_value_head_t *head);

/* ---- blocks into pools (value_pool.c, value_fill.c, value_part.c) ---- */

enum { KVCL_VALUE_RANKS_MAX = 16 };

/* A put in progress, inside its call. */
typedef struct kvcl_value_put {
    kvcl_store_h  store;
    kvcl_store_tenant_t *for_tenant; /* whose call it is; NULL: none */
    unsigned      copies;
    uint64_t      tenant;      /* the number that the blocks get */
    uint64_t      flags;       /* KVCL_PUT_WAIT */
    uint64_t      deadline_ns;
    uint64_t      holder;      /* of the pins that keep parts at other ranks until the head is listed */
    kvcl_list_t   runs;        /* run_t.link: runs in flight, the oldest first */
    kvcl_list_t   kept;        /* runs that have ended: their blocks are pinned */
    unsigned      n_runs;
} kvcl_value_put_t;

/* What a block holds, in this order; zeros follow. */
typedef struct kvcl_value_holds {
    const kvcl_value_head_t *head; /* NULL: none */
    kvcl_value_at_t         at;    /* the bytes of a value */
    uint64_t                bytes; /* how many */
} kvcl_value_holds_t;

/* What block i is to hold; called once for each, in order. */
typedef kvcl_value_holds_t (*kvcl_value_what_t)(void *arg, size_t i);

void kvcl_value_put_init(kvcl_value_put_t *put, kvcl_store_h store);

/** No lock. Take n blocks of this rank's pool, FILLING; with KVCL_PUT_WAIT wait for room. A failure sets the
 * sentence. */
kvcl_status_t kvcl_value_take(const kvcl_value_put_t *put, size_t n, uint32_t *slots) KVCL_MUST_CHECK;
void          kvcl_value_return(kvcl_store_h store, const uint32_t *slots, size_t n);
/** No lock. Fill the blocks in slots with what(arg, i) and compute their checksums in the same pass:
 * recs[i].loc.checksum. Many bytes go past the caches (weave/bulk.h). */
void          kvcl_value_fill(kvcl_store_h store, const uint32_t *slots, size_t n, kvcl_value_what_t what, void *arg,
                              kvcl_store_rec_t *recs);
/** Lock held. Publish the blocks under recs[i].key; homes are not notified. A block whose key the pool has meanwhile is
 * not published. Returns the number published; recs, and item unless NULL, then begin with those. */
size_t        kvcl_value_publish(const kvcl_value_put_t *put, const uint32_t *slots, size_t n, kvcl_store_rec_t *recs,
                                 uint32_t *item);

/** No lock. Put all parts of a value, at this rank and others; the last of them are in flight on return. */
kvcl_status_t kvcl_value_put_parts(kvcl_value_put_t *put, const kvcl_value_head_t *head,
                                   const kvcl_value_t *value) KVCL_MUST_CHECK;
/** No lock. Wait until all parts have their copies. */
kvcl_status_t kvcl_value_parts_wait(kvcl_value_put_t *put) KVCL_MUST_CHECK;
/** No lock. Parts may be evicted from now on; runs in flight are waited for first. */
void          kvcl_value_parts_end(kvcl_value_put_t *put);

/* ---- sentences (value_words.c) ---- */

/** No lock. Word a put that failed at value i of n, whose new head this is. The step that failed has set a sentence,
 * which becomes the end of this one. @return status. */
kvcl_status_t kvcl_value_put_failed(kvcl_status_t status, const char *call, size_t i, size_t n,
                                    const kvcl_value_head_t *head);
/** The same for a step that concerns n values at once. step: "the heads", ... */
kvcl_status_t kvcl_value_puts_failed(kvcl_status_t status, const char *call, const char *step, size_t n);

/* ---- into other ranks' pools (value_far.c) ---- */

/* The arguments of a put. */
typedef struct kvcl_value_far {
    const char               *call;
    const kvcl_value_t       *values;
    const kvcl_value_head_t  *heads;
    size_t                   n;
    bool                     instead;
    const kvcl_xfer_params_t *params;
    kvcl_store_tenant_t      *for_tenant; /* whose call it is; NULL: none */
} kvcl_value_far_t;

/** No lock; blocks until the deadline. */
kvcl_status_t kvcl_value_put_far(kvcl_store_h store, const kvcl_value_far_t *of, uint64_t deadline_ns,
                                 kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
