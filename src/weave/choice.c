/*
 * The rule that chooses a copy from measured speeds. Pure.
 */
#include "config.h"
#include "weave/choice.h"

#include <string.h>

const char *const kvcl_copy_way_names[] = {"memcpy", "weave1", "weave2", "weave4", NULL};
const size_t      kvcl_copy_row_bytes[] = {1024, 4096, 65536};
const size_t      kvcl_copy_large_bytes[] = {1 << 20, 2 << 20, 4 << 20};

static uint8_t choose_row(const uint32_t mbps[KVCL_COPY_N_WAYS])
{
    uint64_t best = 0;
    uint8_t  way;

    for (way = KVCL_COPY_WEAVE1; way < KVCL_COPY_N_WAYS; ++way) {
        best = (mbps[way] > best) ? mbps[way] : best;
    }
    for (way = KVCL_COPY_WEAVE4; (uint64_t)mbps[way] * 100 < best * 90; --way) {
    }
    return ((uint64_t)mbps[way] * 100 >= (uint64_t)mbps[KVCL_COPY_MEMCPY] * 105) ? way : KVCL_COPY_MEMCPY;
}

static size_t choose_large(const kvcl_copy_table_t *table)
{
    size_t large = KVCL_COPY_LARGE, row = KVCL_COPY_LARGE_ROWS;

    while ((row-- > 0) && ((uint64_t)table->large[row][1] * 100 >= (uint64_t)table->large[row][0] * 105)) {
        large = kvcl_copy_large_bytes[row];
    }
    return large;
}

kvcl_copy_choice_t kvcl_copy_choose(const kvcl_copy_table_t *table)
{
    kvcl_copy_choice_t choice;
    size_t             row;

    for (row = 0; row < KVCL_COPY_ROWS; ++row) {
        choice.way[row] = choose_row(table->mbps[row]);
    }
    choice.large = choose_large(table);
    return choice;
}

void kvcl_copy_by(unsigned way, const kvcl_weave_kernel_t *kernel, const kvcl_weave_piece_t *pieces, size_t n)
{
    size_t i;

    if (way != KVCL_COPY_MEMCPY) {
        kvcl_weave_copy(kernel, 1u << (way - KVCL_COPY_WEAVE1), pieces, n);
        return;
    }
    for (i = 0; i < n; ++i) {
        if (pieces[i].len > 0) {
            memcpy(pieces[i].dst, pieces[i].src, pieces[i].len);
        }
    }
}
