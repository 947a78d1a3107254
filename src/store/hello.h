/*
 * What each rank of a store says of itself when the store is opened: the item of one all-gather, as it travels. Pure.
 */
#ifndef KVCL_STORE_HELLO_H
#define KVCL_STORE_HELLO_H

#include "policy/slabs.h"
#include <kvcl/kvcl_status.h>
#include <stdint.h>

typedef struct kvcl_hello {
    uint64_t id;          /* of the store */
    uint32_t incarnation; /* 0: the rank could not open its part */
    uint16_t replicas;
    uint16_t listing;     /* its tier has blocks of an earlier store */
    uint64_t pool_bytes;
    uint64_t host;
    uint32_t n_sizes;
    uint32_t sizes[KVCL_SLABS_CLASSES_MAX]; /* bytes of the pool's blocks, n_sizes of them */
} kvcl_hello_t;

/**
 * Check what rank sent; its numbers may be used from here on.
 * @return KVCL_OK; KVCL_ERR_CANCELED (it could not open its part); KVCL_ERR_INVALID_PARAM (it opens another store);
 *         KVCL_ERR_PROTOCOL (a number that no rank of this version sends).
 */
kvcl_status_t kvcl_hello_check(const kvcl_hello_t *hello, uint32_t rank, uint64_t id) KVCL_MUST_CHECK;

#endif
