/*
 * Local caches, and descriptions of peers' caches.
 *
 * A cache is a shape over registered memory, found by peers under its name, with a generation word for each block in
 * memory that peers map (dir/slots.h defines them; a cache that no store uses leaves them at their initial value).
 * A kvcl_rcache_t is a peer's description of one of its caches: fetched once, when first needed, kept until the peer
 * fails. All under the engine lock, except for the immutable fields (shape, bases) of a cache in use.
 */
#ifndef KVCL_CACHE_CACHE_H
#define KVCL_CACHE_CACHE_H

#include "kv/runs.h"
#include "mem/region.h"
#include <kvcl/kvcl_cache.h>

enum { KVCL_CACHE_NAME_MAX = 63, KVCL_CACHES_MAX = 4096 };

struct kvcl_cache {
    kvcl_context_h    ctx;
    char              name[KVCL_CACHE_NAME_MAX + 1];
    uint64_t          name_key;
    uint32_t          id;        /* in this process, from 1 */
    kvcl_shape_t      shape;
    uintptr_t         *bases;    /* shape.n_bases */
    kvcl_copier_t     *copier;   /* of the bases, the regions' own; NULL: host memory */
    kvcl_region_t     **regions; /* of the bases: n_regions, 1 if the library allocated all */
    uint32_t          n_regions;
    struct kvcl_cache *arena;    /* the owner of the region; NULL: this rank */
    uint32_t          n_over;    /* caches in local memory */
    bool              writable;  /* peers may put into it */
    kvcl_region_t     *gens_region;
    _Atomic uint32_t  *gens;     /* shape.blocks words */
    uint32_t          serves;    /* served transfers at work on it */
    kvcl_list_t       users;     /* their kvcl_region_user_t: called when it is revoked */
    bool              closing;
    kvcl_list_t       link;      /* the context's caches */
    void              *store;    /* what a store keeps of it, beginning with a kvcl_cache_user_t; NULL: none */
};

/* A store's hold on a cache (store/pool/owner.h). */
typedef struct kvcl_cache_user {
    bool (*release)(kvcl_cache_h cache); /* lock held: clears cache->store if nothing is published any more */
} kvcl_cache_user_t;

/** No lock. A cache in the memory of `arena`, which the library allocated and which is destroyed after it. */
kvcl_status_t kvcl_cache_create_over(kvcl_cache_h arena, const char *name, const kvcl_layout_t *layout,
                                     kvcl_cache_h *cache_p) KVCL_MUST_CHECK;
/** No lock. Frees a revoked cache, or a half-built one, with its regions. */
void kvcl_cache_free(kvcl_cache_h cache);
/** Lock held. */
kvcl_cache_h kvcl_cache_by_id(kvcl_context_h ctx, uint32_t id);

static inline kvcl_side_t kvcl_cache_side(kvcl_cache_h cache, const kvcl_sel_t *sel)
{
    return (kvcl_side_t){&cache->shape, cache->bases, *sel, cache->copier};
}

/** kvcl_sel_check() of a user's selection; the sentence begins with the call and the cache's name. */
kvcl_status_t kvcl_cache_check_sel(kvcl_cache_h cache, const kvcl_sel_t *sel, const char *call) KVCL_MUST_CHECK;

typedef enum { KVCL_RCACHE_REQUESTED, KVCL_RCACHE_READY, KVCL_RCACHE_FAILED } kvcl_rcache_state_t;

typedef struct kvcl_rcache {
    kvcl_peer_t            *peer;
    kvcl_rcache_state_t    state;
    kvcl_status_t          why;
    uint64_t               key;       /* in peer->rcaches: of the name, of the id, or KVCL_RCACHE_PAGE */
    char                   name[KVCL_CACHE_NAME_MAX + 1]; /* empty: found by its id */
    uint32_t               id;
    kvcl_shape_t           shape;
    uintptr_t              *bases;    /* mapped: here; else the owner's addresses */
    kvcl_copier_t          *copier;   /* mapped device memory: the regions' own */
    kvcl_mem_kind_t        kind;      /* of all bases */
    kvcl_rregion_t         *regions;
    uint32_t               *base_region; /* base -> regions[] */
    uint32_t               n_regions;
    kvcl_rregion_t         gens_region;
    const _Atomic uint32_t *gens;     /* mapped generation words, or NULL */
    bool                   mapped;    /* every base (by the copier) and the generation words are memory here */
    bool                   writable;  /* the owner lets this rank put into it */
    bool                   get, put;  /* every base and the generation words can be got, or put, natively */
    const char             *why_served; /* neither mapped nor got natively: why, a static text; else NULL */
    const char             *why_put;    /* neither mapped nor put natively: why, a static text; else NULL */
    kvcl_list_t            waiters;
    kvcl_list_t            stale_link; /* peer->stale_rcaches */
} kvcl_rcache_t;

static inline kvcl_side_t kvcl_rcache_side(const kvcl_rcache_t *rcache, const kvcl_sel_t *sel)
{
    return (kvcl_side_t){&rcache->shape, rcache->bases, *sel, rcache->copier};
}

typedef struct kvcl_rcache_waiter kvcl_rcache_waiter_t;
struct kvcl_rcache_waiter {
    kvcl_list_t link;
    void        (*fn)(kvcl_rcache_waiter_t *waiter, kvcl_rcache_t *rcache, kvcl_status_t status);
};

uint64_t kvcl_cache_name_key(const char *name);
#define KVCL_CACHE_ID_PAGE UINT32_MAX         /* no cache's id */
#define KVCL_RCACHE_PAGE   (UINT64_C(1) << 32) /* no cache's key: above all ids */
static inline uint64_t kvcl_cache_id_key(uint32_t id)
{
    return id; /* name keys have the top bit set */
}

/**
 * Lock held, peer READY. By name (id 0) or id. KVCL_OK: *rcache_p is ready. KVCL_INPROGRESS: the waiter will be
 * called. Else the error the peer gave (KVCL_ERR_NOT_REGISTERED).
 */
kvcl_status_t kvcl_rcache_get(kvcl_peer_t *peer, const char *name, uint64_t name_key, uint32_t id,
                              kvcl_rcache_t **rcache_p, kvcl_rcache_waiter_t *waiter) KVCL_MUST_CHECK;
/**
 * As kvcl_rcache_get(): the peer's control page, as a cache without a block. Its mapped, get and why_served are the
 * decision about memory that the peer's KVCL allocates.
 */
kvcl_status_t kvcl_rcache_page(kvcl_peer_t *peer, kvcl_rcache_t **rcache_p, kvcl_rcache_waiter_t *waiter)
    KVCL_MUST_CHECK;
/** Lock held, READY: the path of gets, or of puts. Native: as far as KVCL_NATIVE_TABLE agrees. */
kvcl_mem_path_t kvcl_rcache_path(const kvcl_rcache_t *rcache, bool put);
/** Lock held: only if it is ready already. */
kvcl_rcache_t *kvcl_rcache_ready(kvcl_peer_t *peer, uint64_t key);
/** Lock held: the peer no longer has it; the next get requests it again. Operations in flight keep the old one. */
void           kvcl_rcache_stale(kvcl_rcache_t *rcache);
/** Cancel a wait. */
void           kvcl_rcache_unwait(kvcl_rcache_waiter_t *waiter);

/* Message handlers and the end, for the mem room's list (cache/rcache.c). */
void kvcl_rcache_on_describe(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len);
void kvcl_rcache_on_description(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                const void *data, size_t len);
void kvcl_rcaches_close(kvcl_peer_t *peer); /* before its endpoint is closed */
void kvcl_caches_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer);
/** Lock held. The link to it was lost: the next use of a cache that is not mapped requests its description again. */
void kvcl_caches_peer_reset(kvcl_peer_t *peer);

typedef struct kvcl_msg_describe {
    kvcl_msg_t msg; /* op: the asker's key for the answer */
    uint32_t   id;  /* 0: by name, which is the payload; KVCL_CACHE_ID_PAGE: the control page */
    uint32_t   reserved;
} kvcl_msg_describe_t;

typedef struct kvcl_msg_description {
    kvcl_msg_t msg;    /* op: from the question */
    int32_t    status;
    uint32_t   id;
    uint32_t   n_regions;
    uint32_t   n_bases; /* payload: shape, n_bases u32 (which region), gens region, regions; or the control page */
} kvcl_msg_description_t;

/** The context ends: free what the user did not, and say so. No lock held. */
void kvcl_caches_fini(kvcl_context_h ctx);
/** The context's list of caches (kvcl_cache_t.link); by name. Lock held. */
kvcl_list_t *kvcl_context_caches(kvcl_context_h ctx);
kvcl_cache_h kvcl_cache_by_name(kvcl_context_h ctx, const char *name, size_t len);

/** Lock held: a peer puts into it. @return KVCL_OK, KVCL_ERR_NOT_REGISTERED, KVCL_ERR_ACCESS. */
kvcl_status_t kvcl_cache_for_put(kvcl_context_h ctx, uint32_t id, kvcl_cache_h *cache_p) KVCL_MUST_CHECK;
/** Lock held: the selection of a peer's cache fits it, and if push is set, this rank may write. */
kvcl_status_t kvcl_rcache_check(const kvcl_rcache_t *rcache, const kvcl_side_t *remote, bool push) KVCL_MUST_CHECK;

#endif
