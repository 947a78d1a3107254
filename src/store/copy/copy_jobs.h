/*
 * Copies of other ranks' blocks in this rank's pool (copy/copy_jobs.c). Lock held.
 */
#ifndef KVCL_STORE_COPY_COPY_JOBS_H
#define KVCL_STORE_COPY_COPY_JOBS_H

#include "store/store.h"

bool kvcl_copy_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len); /* a row of kinds.c */
/** Copies of the key that are being made here are not kept. */
void kvcl_copies_discard(kvcl_store_h store, const kvcl_key_t *key);
void kvcl_copies_stop(kvcl_store_h store); /* the store is being closed */
/** An RPC that requests copies of recs[order[0..n)] (order NULL: recs[0..n)), unposted. NULL: no memory. */
kvcl_rpc_t *kvcl_copy_request(kvcl_store_h store, uint32_t rank, const kvcl_copy_head_t *head,
                              const kvcl_store_rec_t *recs, const uint32_t *order, uint32_t n);
/** The time in ns that a rank may take for copies of n blocks of this size: ten times KVCL_STORE_HEDGE, at least 2 s,
 * and that of the bytes. */
uint64_t    kvcl_copy_time(const struct kvcl_store *store, uint32_t n, uint64_t bytes);

/** Copies recs[order[0..n)], of one size, into the local pool, without an answer to any rank. source: the location as
 * which the (only) block is listed, if its record has another; else NULL. KVCL_ERR_BUSY, KVCL_ERR_NO_MEMORY, ... */
kvcl_status_t kvcl_copy_here(kvcl_store_h store, const kvcl_copy_head_t *head, const kvcl_store_rec_t *recs,
                             const uint32_t *order, uint32_t n, const kvcl_dir_loc_t *source) KVCL_MUST_CHECK;

#endif
