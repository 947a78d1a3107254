/*
 * Small messages to one peer that are sent together, as one BUNDLE: over sockets each message costs both sides a system
 * call and a wake-up, more than most messages cost by themselves.
 *
 * Two kinds wait, for a peer whose endpoint uses sockets. Messages posted while the transport's received messages are
 * handled (replies) wait until all received ones are handled. Requests posted by kvcl_peer_post_soon() while an earlier
 * one has no reply yet wait until that reply arrives or any thread polls (Nagle's rule). No message overtakes a waiting
 * one.
 * Engine lock held.
 */
#ifndef KVCL_CORE_BUNDLE_H
#define KVCL_CORE_BUNDLE_H

#include "core/peer.h"

/** Add a message to the peer's bundle. @return false: it does not fit, and the bundle has been sent; send the message.
 * soon: it may wait for an answer. */
bool kvcl_bundle_add(kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len, bool soon);
/** Send the waiting messages of this peer, or of all. @return whether there were any; requests may have ended. */
void kvcl_bundle_flush(kvcl_peer_t *peer);
bool kvcl_bundles_flush(struct kvcl_context *ctx);
/** The transport has refused a message to this peer, for another reason than memory. The peer fails at the next flush:
 * its requests must not end inside the call that posts one of them. */
void kvcl_bundle_refused(kvcl_peer_t *peer);
/** Posts between these two calls wait. */
void kvcl_bundles_begin(struct kvcl_context *ctx);
void kvcl_bundles_end(struct kvcl_context *ctx);
/** No lock: no other thread uses the context's peers. */
void kvcl_bundles_fini(struct kvcl_context *ctx);

/**
 * Pure. The next message of a bundle's payload, at *at_p, which advances. @return KVCL_OK, KVCL_INPROGRESS (no further
 * message), KVCL_ERR_PROTOCOL. hdr: room for KVCL_BUNDLE_HDR_MAX bytes.
 */
kvcl_status_t kvcl_bundle_next(const void *payload, size_t len, size_t *at_p, void *hdr, size_t *hdr_len_p,
                               const void **data_p, size_t *len_p) KVCL_MUST_CHECK;

enum { KVCL_BUNDLE_HDR_MAX = 256 };

#endif
