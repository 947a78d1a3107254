/*
 * Copies of blobs in a map, each one allocation with its length in front.
 */
#include "config.h"
#include "boot/boot_blobs.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct blob {
    size_t  len;
    uint8_t bytes[];
} blob_t;

void kvcl_blobs_init(kvcl_blobs_t *blobs)
{
    kvcl_map_init(&blobs->by_rank);
}

void kvcl_blobs_fini(kvcl_blobs_t *blobs)
{
    size_t   it;
    uint64_t rank;
    void    *blob;

    kvcl_map_foreach(&blobs->by_rank, it, rank, blob) {
        free(blob);
    }
    kvcl_map_fini(&blobs->by_rank);
}

kvcl_status_t kvcl_blobs_put(kvcl_blobs_t *blobs, int rank, const void *bytes, size_t len)
{
    kvcl_status_t status;
    blob_t       *blob;

    if (kvcl_map_get(&blobs->by_rank, (uint64_t)rank) != NULL) {
        return kvcl_fail(KVCL_ERR_EXISTS, "rank %d gave its blob twice", rank);
    }
    blob = (blob_t *)malloc(sizeof(*blob) + len);
    if (blob == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the blob of rank %d", rank);
    }
    blob->len = len;
    if (len > 0) {
        memcpy(blob->bytes, bytes, len);
    }
    status = kvcl_map_put(&blobs->by_rank, (uint64_t)rank, blob);
    if (status != KVCL_OK) {
        free(blob);
    }
    return status;
}

kvcl_status_t kvcl_blobs_get(const kvcl_blobs_t *blobs, int rank, const void **blob_p, size_t *len_p)
{
    const blob_t *blob = (const blob_t *)kvcl_map_get(&blobs->by_rank, (uint64_t)rank);

    if (blob == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    *blob_p = blob->bytes;
    *len_p  = blob->len;
    return KVCL_OK;
}
