/*
 * X25519 (RFC 7748). Pure: the caller brings the 32 random bytes of its private key. Any thread.
 */
#ifndef KVCL_BASE_X25519_H
#define KVCL_BASE_X25519_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stdint.h>

/** @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_x25519_public(const uint8_t priv[32], uint8_t pub[32]) KVCL_MUST_CHECK;

/** @return KVCL_OK, KVCL_ERR_PROTOCOL (a public key of low order: the result would be zeros), KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_x25519(const uint8_t priv[32], const uint8_t peer_pub[32], uint8_t shared[32]) KVCL_MUST_CHECK;

#endif
