/*
 * The MACs and keys of a handshake (sock_hs.h). Pure; any thread.
 */
#ifndef KVCL_SOCK_KEYS_H
#define KVCL_SOCK_KEYS_H

#include "base/aead.h"

enum { KVCL_SOCK_MAC_LEN = 32 };

/** Under the pair's key, of the role, of all messages in the log, and of the len bytes that follow them. */
void kvcl_sock_mac(const uint8_t pair_key[32], const char *role, const void *log, size_t log_len, const void *rest,
                   size_t len, uint8_t mac[KVCL_SOCK_MAC_LEN]);

/** The keys of both directions: from the pair's key, the X25519 secret, and all messages of the handshake. */
void kvcl_sock_direction_keys(const uint8_t pair_key[32], const uint8_t shared[32], const void *log, size_t log_len,
                              kvcl_aead_key_t *a_to_b, kvcl_aead_key_t *b_to_a);

#endif
