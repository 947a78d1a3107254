/*
 * The reason why a peer is not reached over RDMA, for users.
 */
#ifndef KVCL_QUERY_WHY_NO_PORT_H
#define KVCL_QUERY_WHY_NO_PORT_H

#include "core/peer.h"

/** Lock held, peer READY. Why the peer is not reached over RDMA, as a static text, for a peer that is reached over TCP.
 * NULL: it is reached over RDMA, or neither rank has a port. */
const char *kvcl_why_no_port(const kvcl_peer_t *peer);

#endif
