/*
 * Error sentences of a store's calls (words.h). No state, no lock, any thread: the sizes of ranks' pools do not change.
 */
#include "config.h"
#include "store/home/ranks.h"
#include "store/words.h"
#include "base/error.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

enum { SIZES = 4 }; /* of pools: a sentence names no more */

unsigned long long kvcl_key_prefix(const kvcl_key_t *key)
{
    unsigned long long prefix = 0;
    size_t             i;

    for (i = 0; i < sizeof(prefix); ++i) {
        prefix = (prefix << 8) | key->bytes[i];
    }
    return prefix;
}

bool kvcl_store_explain(kvcl_status_t status, char *buf, size_t cap)
{
    const char *text;

    switch (status) {
    case KVCL_ERR_NOT_FOUND:
        text = "no rank has it in this size, or it was evicted: compute it and put it";
        break;
    case KVCL_ERR_NO_SPACE:
        text = "no room: a pool is full of pinned blocks, or a home's part of the directory is; free some, or open the "
               "stores with more dram_bytes or dir_entries";
        break;
    case KVCL_ERR_RANK_FAILED:
        text = "the ranks that had it have failed or left: compute it and put it";
        break;
    case KVCL_ERR_BAD_LAYOUT:
        text = "the block has another size there than the cache's blocks here: get it into a cache of that block size";
        break;
    case KVCL_ERR_SHUTDOWN:
        text = "the store is being closed on this rank or on the other";
        break;
    case KVCL_ERR_BUSY:
        text = "the rank is busy with copies for other ranks: try again";
        break;
    case KVCL_ERR_NO_QUORUM:
        text = "too few ranks answer this one to decide: it works again when the others can be reached";
        break;
    default:
        return false;
    }
    snprintf(buf, cap, "%s", text);
    return true;
}

/* The sizes of all pools, each once. Returns their number; at most SIZES are kept. */
static unsigned pool_sizes(const struct kvcl_store *store, uint32_t sizes[SIZES])
{
    unsigned n = 0, i, j;
    uint32_t rank;

    for (rank = 0; rank < store->n_ranks; ++rank) {
        for (i = 0; i < store->ranks[rank].n_sizes; ++i) {
            for (j = 0; (j < n) && (sizes[j] != store->ranks[rank].sizes[i]); ++j) {
            }
            if (j < n) {
                continue;
            }
            if (n == SIZES) {
                return SIZES + 1;
            }
            sizes[n++] = store->ranks[rank].sizes[i];
        }
    }
    return n;
}

bool kvcl_store_explain_size(const struct kvcl_store *store, uint64_t bytes, char *buf, size_t cap)
{
    uint32_t sizes[SIZES], rank;
    char     list[64] = "";
    size_t   used     = 0;
    unsigned n, i;

    for (rank = 0; rank < store->n_ranks; ++rank) {
        if (kvcl_store_takes(store, rank, bytes)) {
            return false;
        }
    }
    n = pool_sizes(store, sizes);
    for (i = 0; (i < n) && (i < SIZES); ++i) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u", (i == 0) ? "" : ", ", sizes[i]);
    }
    snprintf(buf, cap, "no rank has it in blocks of %llu bytes, the cache's size; the store's pools have blocks of "
             "%s%s bytes: get it into a cache of such blocks, or open the stores with block_bytes %llu",
             (unsigned long long)bytes, list, (n > SIZES) ? ", ..." : "", (unsigned long long)bytes);
    return n != 0;
}

kvcl_status_t kvcl_store_absent(const char *what, size_t absent, size_t n, size_t at, const kvcl_key_t *key)
{
    return kvcl_fail_late(KVCL_ERR_NOT_FOUND, what, absent, n, at, kvcl_key_prefix(key));
}
