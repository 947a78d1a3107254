/*
 * What error sentences say of sends and recvs. Pure.
 */
#ifndef KVCL_P2P_P2P_WORDS_H
#define KVCL_P2P_P2P_WORDS_H

#include "cache/cache.h"
#include "xfer/xfer_wire.h"

/** "tag 7", "any tag". @return buf. */
const char *kvcl_describe_tag(uint64_t tag, char *buf, size_t cap);
/** A send and its matched recv whose shapes of blocks differ: both sides' numbers, and what must be equal. */
const char *kvcl_describe_layouts(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel, char *buf,
                                  size_t cap);
/** The same, for sizes that differ. cache NULL: plain memory with room for this many bytes. */
const char *kvcl_describe_sizes(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel, uint64_t bytes,
                                char *buf, size_t cap);

#endif
