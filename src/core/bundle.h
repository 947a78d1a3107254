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

/** It waits now. False: it does not fit, send it; what waited has left. soon: it may wait for an answer. */
bool kvcl_bundle_add(kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len, bool soon);
/** What waits for this peer, or for any, leaves. True: there was something; requests may have ended meanwhile. */
void kvcl_bundle_flush(kvcl_peer_t *peer);
bool kvcl_bundles_flush(struct kvcl_context *ctx);
/** The transport has refused a message to this peer, for another reason than memory. The peer fails when messages leave
 * next: its requests must not end inside the call that posts one of them. */
void kvcl_bundle_refused(kvcl_peer_t *peer);
/** Between these posts wait. */
void kvcl_bundles_begin(struct kvcl_context *ctx);
void kvcl_bundles_end(struct kvcl_context *ctx);
/** No lock: no thread uses the context's peers any more. */
void kvcl_bundles_fini(struct kvcl_context *ctx);

/**
 * Pure. The next message of a bundle's payload, at *at_p, which moves on. KVCL_OK; KVCL_INPROGRESS: that was all;
 * KVCL_ERR_PROTOCOL. hdr: room for KVCL_BUNDLE_HDR_MAX bytes.
 */
kvcl_status_t kvcl_bundle_next(const void *payload, size_t len, size_t *at_p, void *hdr, size_t *hdr_len_p,
                               const void **data_p, size_t *len_p) KVCL_MUST_CHECK;

enum { KVCL_BUNDLE_HDR_MAX = 256 };

#endif
