/*
 * Regions: local memory that peers may reach, and this rank's view of peers' regions.
 *
 * A region has an id in its context, a random key for each right (a process that has the description has the right),
 * and one word in the context's control page, which peers map: the region's epoch while it is live, another value once
 * it is revoked. Served requests are checked by the owner; on a mapped path the initiator reads the control
 * word before and after.
 *
 * All under the engine lock, but kvcl_rregion_live(), kvcl_region_parse() and kvcl_region_mac(). A description on the
 * wire is written by region.c and read by rregion.c, which takes it for hostile. It ends with a MAC under a key that
 * comes from the job's secret and the owner's uuid. Until the MAC is checked, no byte of a description reaches the
 * kernel or a transport. The MAC detects bytes that a process without the secret has changed or forged, and one rank's
 * description that is presented as another's. It does not detect that a rank of the job lies about its own memory: lies
 * about segments are detected (mem/segment.h), lies about keys of RDMA are not.
 */
#ifndef KVCL_MEM_REGION_H
#define KVCL_MEM_REGION_H

#include "core/context.h"
#include "device/copier.h"
#include "mem/segment.h"
#include <kvcl/kvcl_mem.h>

enum {
    KVCL_REGIONS_MAX      = 8192, /* words of the control page: one for each region, and these two: */
    KVCL_CTL_REVOKED      = KVCL_REGIONS_MAX - 1, /* a count, see kvcl_revoked() */
    KVCL_CTL_PAGE         = KVCL_REGIONS_MAX - 2, /* the epoch of the page itself, a region that is always live */
    KVCL_REGION_DESC_MAX  = 1024,
    KVCL_REGION_MAC_BYTES = 16
};

typedef enum { KVCL_REGION_REGISTERED, KVCL_REGION_ALLOCATED, KVCL_REGION_FILE } kvcl_region_kind_t;

/* A user that moves a region's bytes by message. revoked: lock held; stop, with KVCL_ERR_ACCESS. */
typedef struct kvcl_region_user kvcl_region_user_t;
struct kvcl_region_user {
    kvcl_list_t      link;
    struct kvcl_peer *peer; /* the reader, for error sentences */
    void             (*revoked)(kvcl_region_user_t *user);
};

typedef struct kvcl_region {
    kvcl_context_h     ctx;
    kvcl_region_kind_t kind;
    uint32_t           id;
    uint32_t           serves;    /* served transfers at work on it */
    kvcl_list_t        users;     /* them, kvcl_region_user_t */
    bool               revoked;
    bool               read_only; /* no peer is given the right to write */
    uint64_t           epoch;
    uint64_t           keys[2];   /* read, write */
    void               *addr;
    size_t             len;
    kvcl_segment_t     segment;   /* of allocated memory; otherwise zero */
    kvcl_copier_t      *copier;   /* of device memory; NULL: host memory */
    kvcl_xport_mem_t   *xmem[KVCL_ENGINE_XPORTS]; /* by engine.xports; NULL: that transport cannot reach it */
    kvcl_list_t        link;
} kvcl_region_t;

/** No lock held. Registers [addr, addr+len), or allocates it (addr NULL). Peers may be given the right to write it,
 * unless params has KVCL_MEM_READ_ONLY. */
kvcl_status_t kvcl_region_create(kvcl_context_h ctx, void *addr, size_t len, const kvcl_mem_params_t *params,
                                 kvcl_region_t **region_p) KVCL_MUST_CHECK;
/** The same for memory of a kind; addr is not NULL. */
kvcl_status_t kvcl_region_create_kind(kvcl_context_h ctx, void *addr, size_t len, kvcl_mem_kind_t kind,
                                      const kvcl_mem_params_t *params, kvcl_region_t **region_p) KVCL_MUST_CHECK;
/**
 * No lock held. Revokes, waits (bounded) for served transfers at work, unregisters, frees what was allocated.
 * @return false: a peer still reads it at the end of the wait, or may still reach it. The region stays, and the log
 *         and kvcl_last_error() say why.
 */
bool          kvcl_region_destroy(kvcl_region_t *region);
/**
 * Lock held. Stops its users and unregisters it: on return no peer reaches it by the network.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY: peers that know its keys may reach it still. It can be called again.
 */
kvcl_status_t kvcl_region_revoke(kvcl_region_t *region) KVCL_MUST_CHECK;
/** Lock held, yields it. Registers a revoked region again, with a new epoch and keys. On failure it stays revoked. */
kvcl_status_t kvcl_region_restore(kvcl_region_t *region) KVCL_MUST_CHECK;
/** Lock held. The region stays until released; user->revoked is called when the user must stop. */
void          kvcl_region_hold(kvcl_region_t *region, kvcl_region_user_t *user);
void          kvcl_region_release(kvcl_region_t *region, kvcl_region_user_t *user);

/** Lock held. @return bytes written, 0 if cap is too small or the region is revoked. */
size_t        kvcl_region_pack(kvcl_region_t *region, unsigned rights, void *buf, size_t cap);
/** Lock held. Packs the control page, for reading. A peer that cannot read it natively reaches no memory natively. */
size_t        kvcl_ctl_pack(kvcl_context_h ctx, void *buf, size_t cap);

/** Lock held: a peer requests [offset, offset+len) under key. KVCL_ERR_ACCESS, KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_region_check(kvcl_context_h ctx, uint32_t id, uint64_t key, unsigned right, uint64_t offset,
                                uint64_t len, kvcl_region_t **region_p) KVCL_MUST_CHECK;

typedef struct kvcl_rregion {
    kvcl_peer_t            *peer;
    uint32_t               id;
    unsigned               rights;
    uint64_t               epoch;
    uint64_t               keys[2];
    uint64_t               addr; /* at the owner */
    uint64_t               len;
    kvcl_mem_kind_t        kind;
    kvcl_copier_t          *copier; /* of device memory that is mapped here */
    kvcl_xport_rmem_t      *rmem;
    kvcl_xport_rmem_attr_t attr;
    const char             *why; /* not mapped, got or put: why only its owner reaches it, a static text; else NULL */
    kvcl_xport_rmem_t      *ctl_rmem;
    const _Atomic uint64_t *ctl; /* the control word, mapped; NULL: not mapped */
    uint64_t               live_ns; /* not mapped: when a get of the word last found the epoch; 0: not yet */
    kvcl_segment_view_t    view, ctl_view; /* the owner's segments, where they are mapped */
    void                   *packed; /* the description, where it is opened once the peer is connected; else NULL */
    size_t                 packed_len;
    bool                   opened; /* from packed */
} kvcl_rregion_t;

/**
 * Lock held; the peer has an endpoint. Decodes a description (*used_p: its bytes) and maps it if that is possible.
 * @return KVCL_OK, KVCL_ERR_PROTOCOL: malformed, or it describes memory that the peer does not have (the error sentence
 *         names the peer); then nothing is open.
 */
kvcl_status_t kvcl_rregion_open(kvcl_peer_t *peer, const void *buf, size_t len, kvcl_rregion_t *rregion,
                                size_t *used_p) KVCL_MUST_CHECK;
/** Lock held, peer connected: open it if that is still to be done. As kvcl_rregion_open(). */
kvcl_status_t kvcl_rregion_ready(kvcl_rregion_t *rregion, kvcl_peer_t *peer) KVCL_MUST_CHECK;
/** Lock held. The link to the peer was lost: a region that is not mapped is closed, and kvcl_rregion_ready() opens it
 * again over the next link. */
void          kvcl_rregion_lost(kvcl_rregion_t *rregion);
void          kvcl_rregion_close(kvcl_rregion_t *rregion); /* lock held */
/** Decode without opening: for checks before the peer is connected. Pure; the MAC is not checked. */
kvcl_status_t kvcl_region_parse(const void *buf, size_t len, kvcl_rregion_t *rregion, size_t *used_p) KVCL_MUST_CHECK;
/**
 * Any thread. Is the MAC at the end of a parsed description, of len bytes, that of the peer's memory?
 * @return KVCL_OK, KVCL_ERR_PROTOCOL.
 */
kvcl_status_t kvcl_region_authentic(const kvcl_peer_t *peer, const void *buf, size_t len) KVCL_MUST_CHECK;
/** Pure. The MAC of a description of len bytes (without its MAC) by the context whose uuid is owner. */
void          kvcl_region_mac(const uint8_t secret[32], const uint8_t owner[16], const void *desc, size_t len,
                              uint8_t mac[KVCL_REGION_MAC_BYTES]);

/** Lock held, open: the path of gets, or of puts. A single transfer of a native path may still be served, where
 * KVCL_NATIVE_TABLE says so. */
kvcl_mem_path_t kvcl_rregion_path(const kvcl_rregion_t *rregion, bool put);
/** Why its path is KVCL_MEM_PATH_SERVED, a static text. */
const char     *kvcl_rregion_why(const kvcl_rregion_t *rregion, bool put);
/** The mechanism of its native path, as KVCL_NATIVE_TABLE names it. */
const char     *kvcl_rregion_mechanism(const kvcl_rregion_t *rregion);

/** Any thread. Not revoked, as far as can be seen from here. */
static inline bool kvcl_rregion_live(const kvcl_rregion_t *rregion)
{
    return (rregion->ctl == NULL) ||
           (atomic_load_explicit((_Atomic uint64_t *)rregion->ctl, memory_order_acquire) == rregion->epoch);
}

/**
 * The number of times that this context revoked bytes that it had offered to a peer in a mapped cache: a send that
 * stopped, a collective that failed.
 * Lock held. The offering message carries the count; a peer that reads another count after its copy cannot know whether
 * the bytes were still valid, and asks the owner (pull.c).
 */
uint64_t kvcl_revoked(kvcl_context_h ctx);
void     kvcl_revoke(kvcl_context_h ctx);
/** Where this process has that count. Lock held; valid as long as the context. */
const void *kvcl_revoked_at(kvcl_context_h ctx);
/** Any thread: the owner's count now. The region must be mapped. */
static inline uint64_t kvcl_rregion_revoked(const kvcl_rregion_t *rregion)
{
    return atomic_load_explicit((_Atomic uint64_t *)rregion->ctl - rregion->id + KVCL_CTL_REVOKED,
                                memory_order_acquire);
}

#endif
