/*
 * Error sentences of a store's calls (words.h). Pure; no state, any thread.
 */
#include "config.h"
#include "store/words.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

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
    default:
        return false;
    }
    snprintf(buf, cap, "%s", text);
    return true;
}

kvcl_status_t kvcl_store_absent(const char *what, size_t absent, size_t n, size_t at, const kvcl_key_t *key)
{
    return kvcl_fail_late(KVCL_ERR_NOT_FOUND, what, absent, n, at, kvcl_key_prefix(key));
}
