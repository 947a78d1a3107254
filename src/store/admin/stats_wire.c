/*
 * Packing and unpacking of statistics (stats_wire.h) by two tables of offsets. Owns nothing; pure.
 */
#include "config.h"
#include "store/admin/stats_wire.h"
#include "base/wirebuf.h"

#define AT(_name)      offsetof(kvcl_store_stats_t, _name),
#define SIZE_AT(_name) offsetof(kvcl_store_size_stats_t, _name),

static const size_t numbers[]      = {KVCL_STATS_NUMBERS(AT)};
static const size_t size_numbers[] = {KVCL_STATS_SIZE_NUMBERS(SIZE_AT)};

enum {
    NUMBERS      = sizeof(numbers) / sizeof(numbers[0]),
    SIZE_NUMBERS = sizeof(size_numbers) / sizeof(size_numbers[0])
};
_Static_assert(sizeof(size_t) + (NUMBERS * sizeof(uint64_t)) ==
                   sizeof(kvcl_store_stats_t) - sizeof(((kvcl_store_stats_t *)0)->sizes), "each number travels");
_Static_assert(SIZE_NUMBERS * sizeof(uint64_t) == offsetof(kvcl_store_size_stats_t, reserved), "each number travels");
_Static_assert(KVCL_STATS_WIRE_HEAD + ((NUMBERS + (KVCL_STORE_SIZES_MAX * SIZE_NUMBERS)) * 8) <= KVCL_STATS_WIRE_MAX,
               "an answer fits");

size_t kvcl_stats_pack(const kvcl_store_stats_t *stats, void *buf, size_t cap)
{
    const uint64_t n = (stats->n_sizes < KVCL_STORE_SIZES_MAX) ? stats->n_sizes : KVCL_STORE_SIZES_MAX;
    uint64_t       value;
    kvcl_wr_t      wr;
    size_t         i, row;

    kvcl_wr_init(&wr, buf, cap);
    kvcl_wr_u16(&wr, NUMBERS);
    kvcl_wr_u16(&wr, (uint16_t)n);
    kvcl_wr_u16(&wr, SIZE_NUMBERS);
    kvcl_wr_u16(&wr, 0);
    for (row = 0; row < NUMBERS; ++row) {
        memcpy(&value, (const uint8_t *)stats + numbers[row], sizeof(value));
        kvcl_wr_u64(&wr, value);
    }
    for (i = 0; i < n; ++i) {
        for (row = 0; row < SIZE_NUMBERS; ++row) {
            memcpy(&value, (const uint8_t *)&stats->sizes[i] + size_numbers[row], sizeof(value));
            kvcl_wr_u64(&wr, value);
        }
    }
    return kvcl_wr_ok(&wr) ? kvcl_wr_len(&wr) : 0;
}

/* Reads a row of n numbers; the first `known` of them go to to + at[i]. */
static void read_row(kvcl_rd_t *rd, size_t n, const size_t *at, size_t known, void *to)
{
    uint64_t value;
    size_t   i;

    for (i = 0; i < n; ++i) {
        value = kvcl_rd_u64(rd);
        if ((i < known) && (to != NULL)) {
            memcpy((uint8_t *)to + at[i], &value, sizeof(value));
        }
    }
}

bool kvcl_stats_unpack(const void *buf, size_t len, kvcl_store_stats_t *stats)
{
    size_t    n, sizes, of_size, i;
    kvcl_rd_t rd;

    memset(stats, 0, sizeof(*stats));
    stats->size = sizeof(*stats);
    kvcl_rd_init(&rd, buf, len);
    n       = kvcl_rd_u16(&rd);
    sizes   = kvcl_rd_u16(&rd);
    of_size = kvcl_rd_u16(&rd);
    (void)kvcl_rd_u16(&rd);
    if (!kvcl_rd_ok(&rd) || (kvcl_rd_left(&rd) != (n + (sizes * of_size)) * sizeof(uint64_t))) {
        return false;
    }
    read_row(&rd, n, numbers, NUMBERS, stats);
    for (i = 0; i < sizes; ++i) {
        read_row(&rd, of_size, size_numbers, SIZE_NUMBERS, (i < KVCL_STORE_SIZES_MAX) ? &stats->sizes[i] : NULL);
    }
    sizes          = (sizes < KVCL_STORE_SIZES_MAX) ? sizes : KVCL_STORE_SIZES_MAX;
    stats->n_sizes = (stats->n_sizes < sizes) ? stats->n_sizes : sizes;
    return kvcl_rd_done(&rd);
}
