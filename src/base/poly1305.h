/*
 * Poly1305 (RFC 8439): a tag of bytes under a key that is used once. Any thread.
 */
#ifndef KVCL_BASE_POLY1305_H
#define KVCL_BASE_POLY1305_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { KVCL_POLY1305_KEY_LEN = 32, KVCL_POLY1305_TAG_LEN = 16 };

/** The tag of the parts in order, as if they were one buffer. Two texts under one key reveal it. */
void kvcl_poly1305(const uint8_t key[KVCL_POLY1305_KEY_LEN], const struct iovec *parts, size_t count,
                   uint8_t tag[KVCL_POLY1305_TAG_LEN]);

#endif
