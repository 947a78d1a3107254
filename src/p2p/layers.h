/*
 * Layer-wise sends (KVCL_LAYERWISE): a send whose bytes become readable layer by layer.
 *
 * A send with KVCL_SEND_LAYERS announces no bytes. The matched receiver sends LAYERS_WANT. From then on the sender
 * reports, by LAYERS, each group of layers that became ready, once: first and end of the group, counted from the first
 * selected layer, and an offer of these layers' bytes alone. The receiver pulls each group from the sender's cache
 * where that is mapped, otherwise from the offer. A layer that is not ready has no offer and was never reported, so no
 * peer reads it.
 *
 * kvcl_layers_out_t is a send's part, kvcl_layers_in_t that of a recv; both belong to their request and live as long
 * as it. Engine lock, except for marking layers and reading what has landed, which are atomic.
 */
#ifndef KVCL_P2P_LAYERS_H
#define KVCL_P2P_LAYERS_H

#include "cache/cache.h"
#include "xfer/xfer_wire.h"

/* ---- the sending side (layers_out.c) ---- */

typedef struct kvcl_layers_out kvcl_layers_out_t;
struct kvcl_layers_out {
    kvcl_list_t      link;     /* of the room, from open to close */
    kvcl_context_h   ctx;
    struct kvcl_peer *peer;
    kvcl_cache_h     cache;
    kvcl_sel_t       sel;      /* the send's; its layers are explicit */
    uint32_t         n;        /* layers */
    uint64_t         layer_bytes;
    uint64_t         requester; /* the receiver's op; 0: no LAYERS_WANT yet */
    bool             whole;    /* the receiver takes all layers at once */
    bool             closed;
    void             *owner;
    uint32_t         n_announced;
    unsigned         open;     /* groups with an open offer */
    kvcl_list_t      groups;
    void             (*idle)(kvcl_layers_out_t *out); /* lock held, once after close: all reads have ended */
    void             (*failed)(kvcl_layers_out_t *out, kvcl_status_t status); /* lock held: no more reports */
    uint64_t         *notified; /* bits of reported layers */
    _Atomic uint64_t ready[];  /* bits of ready layers, then those of reported ones */
};

/** sel must outlive the result. @return NULL: no memory. */
kvcl_layers_out_t *kvcl_layers_out_new(kvcl_context_h ctx, struct kvcl_peer *peer, kvcl_cache_h cache,
                                       const kvcl_sel_t *sel);
/** Lock held. The send is announced: groups are reported from now on until close. */
void kvcl_layers_out_open(kvcl_layers_out_t *out);
/** Lock held: LAYERS_WANT arrived. @return KVCL_OK, KVCL_ERR_PROTOCOL (a second one); failed() may be called. */
kvcl_status_t kvcl_layers_out_want(kvcl_layers_out_t *out, uint64_t requester, bool whole) KVCL_MUST_CHECK;
/** Lock held. Stop reporting and serving; idle() is called now or later. A second call does nothing. */
void kvcl_layers_out_close(kvcl_layers_out_t *out);
/** Any thread, no lock. layer: of the cache. out may be freed on return: this may have been the last layer. */
kvcl_status_t kvcl_layers_out_ready(kvcl_layers_out_t *out, uint32_t layer) KVCL_MUST_CHECK;
/** Notify a receiver that its send has ended. */
void     kvcl_layers_out_refuse(struct kvcl_peer *peer, uint64_t requester);
unsigned kvcl_layers_poll(kvcl_context_h ctx);

/* ---- the receiving side (layers_in.c) ---- */

typedef struct kvcl_layers_in kvcl_layers_in_t;
struct kvcl_layers_in {
    kvcl_list_t      link;       /* of the room, from begin to ended() */
    kvcl_context_h   ctx;
    struct kvcl_peer *peer;
    kvcl_msg_send_t  msg;        /* the sender's announcement */
    uint32_t         *ids;       /* the sender's blocks, if its cache may be mapped */
    kvcl_cache_h     cache;      /* the local cache; NULL: buf, which takes all layers at once */
    kvcl_sel_t       sel;
    void             *buf;
    uint32_t         first;      /* the local layer that is the sender's first */
    uint32_t         n;          /* layers */
    uint32_t         n_landed;
    unsigned         n_active;
    kvcl_list_t      waiting, active; /* groups */
    bool             busy;       /* the running thread handles the end */
    kvcl_status_t    status;     /* not OK: it ends when no pull is active */
    void             *owner;
    void             (*ended)(kvcl_layers_in_t *in, kvcl_status_t status); /* lock held, once; may free it */
    uint64_t         *notified;  /* bits of reported layers */
    _Atomic uint64_t landed[];   /* bits of layers whose bytes have arrived; then those of reported ones */
};

/** msg is hostile; payload: its block ids. cache NULL: into buf. @return NULL on failure; *status_p is then
 *  KVCL_ERR_NO_MEMORY, KVCL_ERR_PROTOCOL or KVCL_ERR_BAD_LAYOUT. */
kvcl_layers_in_t *kvcl_layers_in_new(kvcl_context_h ctx, struct kvcl_peer *peer, const kvcl_msg_send_t *msg,
                                     const void *payload, size_t len, kvcl_cache_h cache, const kvcl_sel_t *sel,
                                     void *buf, kvcl_status_t *status_p);
void              kvcl_layers_in_free(kvcl_layers_in_t *in);
/** Lock held: send LAYERS_WANT; op is the recv's. ended() may be called inside. */
void              kvcl_layers_in_begin(kvcl_layers_in_t *in, uint64_t op);
/** Lock held. A report of the sender, hostile. ended() may be called inside. */
void              kvcl_layers_in_announced(kvcl_layers_in_t *in, const kvcl_msg_layers_t *msg, const void *data,
                                           size_t len);
/** Lock held: end with status; ended() is called now or later. */
void              kvcl_layers_in_stop(kvcl_layers_in_t *in, kvcl_status_t status);
/** Lock held: the receiving side of this send, or NULL. */
kvcl_layers_in_t *kvcl_layers_in_find(kvcl_context_h ctx, const struct kvcl_peer *peer, uint64_t op);
/** Any thread. layer: of the local cache, within the selection. */
bool              kvcl_layers_in_landed(const kvcl_layers_in_t *in, uint32_t layer);

/* ---- bits ---- */

static inline size_t kvcl_layers_words(uint32_t n)
{
    return ((size_t)n + 63) / 64;
}

static inline bool kvcl_layers_bit(const uint64_t *bits, uint32_t i)
{
    return ((bits[i / 64] >> (i % 64)) & 1) != 0;
}

static inline void kvcl_layers_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

#endif
