/*
 * This rank as a home: its answers to queries, and its notices to owners (home/home_answer.c).
 */
#ifndef KVCL_STORE_HOME_HOME_ANSWER_H
#define KVCL_STORE_HOME_HOME_ANSWER_H

#include "store/store.h"

/* Rows of kinds.c. */
bool kvcl_home_on_dir(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                      size_t len);
bool kvcl_home_on_present(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len);
bool kvcl_home_on_remove_keys(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                              size_t len);
bool kvcl_home_on_table(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len);
void kvcl_home_on_withdraw(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len);
/** Lock held: drops the keys keys[order[0..n)] (order NULL: keys[0..n)) from this home and notifies their owners.
 * @return false, with views: other ranks have not dropped their blocks of them yet: ask again (kvcl_home_remove). */
bool kvcl_home_remove_keys(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
/** Lock held: notifies the homes that these blocks are no longer published; the homes do not answer. */
void kvcl_store_notify_removed(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n);
/** Lock held: notifies the rank that holds this copy. It discards the copy, which was removed; or (corrupt: a reader
 * got bytes that do not match rec) it checks the copy. */
void kvcl_store_notify_owner(kvcl_store_h store, const kvcl_store_rec_t *rec, bool corrupt);

/** Lock held: a buffer for an answer, valid until the next call. NULL: no memory. */
void *kvcl_home_scratch(kvcl_context_h ctx, size_t len);
/** Sends an answer, unless the request's op is 0. */
void kvcl_rpc_answer(kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, kvcl_status_t status, uint32_t n,
                     const void *data, size_t len);

#endif
