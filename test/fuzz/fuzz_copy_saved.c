/*
 * The file of measured copy speeds: any bytes, and a written file with changed bytes. A text is refused, or it is
 * exactly the one that its table packs to, with speeds in their range.
 */
#include "config.h"
#include "weave/saved.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

static void try_text(const char *text, size_t len)
{
    kvcl_copy_table_t table = {.when_s = -1};
    char              again[KVCL_COPY_TEXT_MAX];
    size_t            row, way;

    if (!kvcl_copy_unpack(&table, "m", text, len)) {
        require(table.when_s == -1);
        return;
    }
    require((kvcl_copy_pack(&table, "m", again) == len) && (memcmp(again, text, len) == 0));
    for (row = 0; row < KVCL_COPY_ROWS; ++row) {
        for (way = 0; way < KVCL_COPY_N_WAYS; ++way) {
            require((table.mbps[row][way] >= 1) && (table.mbps[row][way] <= KVCL_COPY_MBPS_MAX));
        }
        require(kvcl_copy_choose(&table).way[row] < KVCL_COPY_N_WAYS);
    }
}

/* Each pair of bytes: a place, and the byte that is put there. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const kvcl_copy_table_t table = {
        .mbps = {{3000, 4000, 5000, 6000}, {1, 10, 100, 1000}, {7, 77, 777, 7777}}, .when_s = 1000};
    char   text[KVCL_COPY_TEXT_MAX];
    size_t len = kvcl_copy_pack(&table, "m", text), i;

    try_text((const char *)data, size);
    for (i = 0; i + 1 < size; i += 2) {
        text[data[i] % len] = (char)data[i + 1];
        try_text(text, len);
    }
    return 0;
}
