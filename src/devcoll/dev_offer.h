/*
 * How the ranks of a collective on device memory agree on its way: each gives one offer to all (an allgather), and
 * every rank decides the same from the same offers. Pure; offers of others are hostile.
 *
 * By NCCL, where every rank has device memory and the same version of NCCL, and each has a GPU of its own; else by the
 * host.
 */
#ifndef KVCL_DEVCOLL_DEV_OFFER_H
#define KVCL_DEVCOLL_DEV_OFFER_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

/* Little-endian. In an alltoallv the lengths of the rank's parts follow, one for each rank, 8 bytes each. */
typedef struct kvcl_dev_offer {
    uint64_t args;     /* a sum of what all ranks must give equally */
    uint64_t live;     /* 1 + the number of the collective for which its ncclComm was made; 0: it has none */
    uint32_t nccl;     /* the version code; 0: not by NCCL */
    uint32_t reserved;
    uint8_t  host[16];
    char     gpu[16];  /* its PCI address */
} kvcl_dev_offer_t;
_Static_assert(sizeof(kvcl_dev_offer_t) == 56, "wire format");

typedef enum { KVCL_DEV_BY_HOST, KVCL_DEV_BY_NEW_NCCL, KVCL_DEV_BY_NCCL } kvcl_dev_way_t;

/** The bytes of an offer among @a size ranks. */
size_t kvcl_dev_offer_bytes(uint32_t size, int uneven);

/**
 * @param offers  of all ranks, in their order, kvcl_dev_offer_bytes() apart.
 * @param lens    of an alltoallv: the bytes that this rank @a me expects of each; else NULL.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: a rank has given other arguments; the sentence names it.
 */
kvcl_status_t kvcl_dev_decide(const void *offers, uint32_t size, uint32_t me, const uint64_t *lens, const char *call,
                              kvcl_dev_way_t *way_p) KVCL_MUST_CHECK;

#endif
