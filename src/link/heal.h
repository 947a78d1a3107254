/*
 * A rank that no message reaches over a transport (xport.h, is_deaf) gets another queue there, with another address,
 * and tells it to its peers by the PROOF of the next session. Lock held, all of it.
 */
#ifndef KVCL_LINK_HEAL_H
#define KVCL_LINK_HEAL_H

#include "core/peer.h"

/* link.c: the link to the peer is given up. It is reached again over the same part of its address, which is this. */
void          kvcl_link_anew(kvcl_peer_t *peer, const void *address, size_t len);

bool          kvcl_link_is_deaf(struct kvcl_context *ctx);
bool          kvcl_link_heal(struct kvcl_context *ctx);
/* The address that a PROOF gives, where it is not the one that is known. An endpoint to that one is closed.
 * KVCL_ERR_PROTOCOL: another host's, or too many; KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_link_take_address(kvcl_peer_t *peer, const void *address, size_t len) KVCL_MUST_CHECK;
/* Is it neither the peer's address nor one that it had before? */
bool          kvcl_link_is_news(const kvcl_peer_t *peer, const void *address, size_t len);
void          kvcl_link_forget(kvcl_peer_t *peer);

#endif
