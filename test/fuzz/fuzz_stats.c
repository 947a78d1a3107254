/*
 * A rank's statistics from a hostile rank: any bytes, and packed ones whose counts are changed. Accepted statistics
 * have at most as many sizes as there is room for, and pack to bytes that unpack to the same.
 */
#include "config.h"

#include "store/admin/stats_wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void take(const uint8_t *data, size_t size)
{
    kvcl_store_stats_t stats, again;
    uint8_t            packed[KVCL_STATS_WIRE_MAX];
    size_t             len;

    if (!kvcl_stats_unpack(data, size, &stats)) {
        return;
    }
    must((stats.size == sizeof(stats)) && (stats.n_sizes <= KVCL_STORE_SIZES_MAX));
    len = kvcl_stats_pack(&stats, packed, sizeof(packed));
    must((len != 0) && kvcl_stats_unpack(packed, len, &again));
    must((again.n_sizes == stats.n_sizes) && (again.blocks == stats.blocks) && (again.pool_taken == stats.pool_taken));
    must(memcmp(again.sizes, stats.sizes, (size_t)stats.n_sizes * sizeof(stats.sizes[0])) == 0);
    must(kvcl_stats_pack(&stats, packed, len - 1) == 0);
}

/* A message of the right length for the counts that the first bytes give. */
static void plausible(const uint8_t *data, size_t size)
{
    const size_t n = data[0] % 64, sizes = data[1] % 12, of_size = data[2] % 10;
    const size_t len  = KVCL_STATS_WIRE_HEAD + ((n + (sizes * of_size)) * sizeof(uint64_t));
    uint8_t      *copy = calloc(1, len); /* separate memory, so that ASan detects reads past its end */
    size_t       i;

    must(copy != NULL);
    for (i = KVCL_STATS_WIRE_HEAD; i < len; ++i) {
        copy[i] = data[i % size];
    }
    copy[0] = (uint8_t)n;
    copy[2] = (uint8_t)sizes;
    copy[4] = (uint8_t)of_size;
    take(copy, len);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size + 1);

    must(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    take(copy, size);
    free(copy);
    if (size >= 3) {
        plausible(data, size);
    }
    return 0;
}
