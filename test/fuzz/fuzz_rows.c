/*
 * Events and listed blocks from a hostile rank: any bytes, and rows of every length. Accepted rows are inside the
 * message, and the fields of a row that this version knows pack to the same bytes.
 */
#include "config.h"

#include "store/admin/rows_wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROW_MAX = 80 };

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void take(const uint8_t *data, size_t size)
{
    uint8_t            packed[KVCL_ROWS_HEAD + KVCL_EVENT_ROW], known[KVCL_EVENT_ROW];
    kvcl_store_event_t event;
    kvcl_store_item_t  item;
    kvcl_rows_t        rows;
    size_t             i, both;

    if (!kvcl_rows_open(data, size, &rows)) {
        return;
    }
    must((size == 0) ? (rows.n == 0) : (size == KVCL_ROWS_HEAD + (rows.n * rows.bytes)));
    for (i = 0; i < rows.n; ++i) {
        both = (rows.bytes < KVCL_EVENT_ROW) ? rows.bytes : KVCL_EVENT_ROW;
        memset(known, 0, sizeof(known));
        memcpy(known, data + KVCL_ROWS_HEAD + (i * rows.bytes), both);
        kvcl_rows_event(&rows, i, &event);
        kvcl_rows_put_event(packed, 0, &event);
        must(memcmp(packed + KVCL_ROWS_HEAD, known, KVCL_EVENT_ROW) == 0);
        kvcl_rows_item(&rows, i, &item);
        kvcl_rows_put_item(packed, 0, &item);
        must(memcmp(packed + KVCL_ROWS_HEAD, known, KVCL_ITEM_ROW) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint32_t n   = (size > 0) ? data[0] % 5 : 0;
    const uint16_t row = (uint16_t)((size > 1) ? KVCL_ROWS_FIRST - 2 + (data[1] % (ROW_MAX - KVCL_ROWS_FIRST)) : 0);
    uint8_t        *any = calloc(1, size + 1), *rows = calloc(1, KVCL_ROWS_HEAD + ((size_t)n * row)); /* for ASan */
    size_t         i, len;

    must((any != NULL) && (rows != NULL));
    if (size > 0) {
        memcpy(any, data, size);
    }
    take(any, size);
    len = kvcl_rows_head(rows, n, row);
    for (i = KVCL_ROWS_HEAD; i < len; ++i) {
        rows[i] = data[i % size];
    }
    take(rows, len);
    free(any);
    free(rows);
    return 0;
}
