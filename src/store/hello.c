/*
 * The check of a rank's hello (hello.h). Pure. A rank that knows the job's secret may still send anything: each number
 * is bounded here, where it is learnt, so that no later code meets one that it cannot hold.
 */
#include "config.h"
#include "store/hello.h"
#include "base/error.h"
#include "dir/entry.h"

static kvcl_status_t check_sizes(const kvcl_hello_t *hello, uint32_t rank)
{
    uint32_t i;

    if (hello->n_sizes > KVCL_SLABS_CLASSES_MAX) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_open: rank %u has a pool of %u block sizes, at most %d", rank,
                         hello->n_sizes, KVCL_SLABS_CLASSES_MAX);
    }
    for (i = 0; i < hello->n_sizes; ++i) {
        if ((hello->sizes[i] == 0) || (hello->sizes[i] > hello->pool_bytes)) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_open: rank %u has a pool of %llu bytes with blocks of %u",
                             rank, (unsigned long long)hello->pool_bytes, hello->sizes[i]);
        }
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_hello_check(const kvcl_hello_t *hello, uint32_t rank, uint64_t id)
{
    if (hello->incarnation == 0) {
        return kvcl_fail(KVCL_ERR_CANCELED, "kvcl_store_open: rank %u could not open its part: see its error", rank);
    }
    if (hello->id != id) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: rank %u opens another store: open several stores in "
                         "the same order on all ranks", rank);
    }
    if ((hello->incarnation > UINT16_MAX) || (hello->listing > 1)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_open: rank %u sent no hello of a store (incarnation %u, "
                         "listing %u)", rank, hello->incarnation, hello->listing);
    }
    if ((hello->replicas == 0) || (hello->replicas > KVCL_DIR_LOCS_MAX)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_open: rank %u asks for %u replicas, 1 to %d are possible", rank,
                         hello->replicas, KVCL_DIR_LOCS_MAX);
    }
    return check_sizes(hello, rank);
}
