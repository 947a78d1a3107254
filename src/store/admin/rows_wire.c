/*
 * Packing and unpacking of events and listed blocks (rows_wire.h). Owns nothing; pure.
 */
#include "config.h"
#include "store/admin/rows_wire.h"
#include "base/wirebuf.h"
#include "weave/pieces.h"

size_t kvcl_rows_head(uint8_t *buf, uint32_t n, uint16_t row)
{
    const size_t len = KVCL_ROWS_HEAD + ((size_t)n * row);
    kvcl_wr_t    wr;

    kvcl_wr_init(&wr, buf, len);
    kvcl_wr_u32(&wr, n);
    kvcl_wr_u16(&wr, row);
    kvcl_wr_u16(&wr, 0);
    return len;
}

void kvcl_rows_put_event(uint8_t *buf, size_t i, const kvcl_store_event_t *event)
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, buf + KVCL_ROWS_HEAD + (i * KVCL_EVENT_ROW), KVCL_EVENT_ROW);
    kvcl_wr_u64(&wr, event->seq);
    kvcl_wr_u32(&wr, event->kind);
    kvcl_wr_u32(&wr, event->tier);
    kvcl_wr_bytes(&wr, event->key.bytes, sizeof(event->key.bytes));
    kvcl_wr_u64(&wr, event->tenant);
    kvcl_wr_u32(&wr, event->bytes);
    kvcl_wr_u32(&wr, (uint32_t)event->to_rank);
}

void kvcl_rows_put_item(uint8_t *buf, size_t i, const kvcl_store_item_t *item)
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, buf + KVCL_ROWS_HEAD + (i * KVCL_ITEM_ROW), KVCL_ITEM_ROW);
    kvcl_wr_bytes(&wr, item->key.bytes, sizeof(item->key.bytes));
    kvcl_wr_u64(&wr, item->tenant);
    kvcl_wr_u32(&wr, item->bytes);
    kvcl_wr_u32(&wr, item->tier);
    kvcl_wr_u32(&wr, item->cache);
    kvcl_wr_u32(&wr, item->slot);
}

bool kvcl_rows_open(const void *buf, size_t len, kvcl_rows_t *rows)
{
    kvcl_rd_t rd;

    *rows = (kvcl_rows_t){.bytes = KVCL_ROWS_FIRST};
    if (len == 0) {
        return true;
    }
    kvcl_rd_init(&rd, buf, len);
    rows->n     = kvcl_rd_u32(&rd);
    rows->bytes = kvcl_rd_u16(&rd);
    (void)kvcl_rd_u16(&rd);
    if (!kvcl_rd_ok(&rd) || (rows->bytes < KVCL_ROWS_FIRST) || (kvcl_rd_left(&rd) != rows->n * rows->bytes)) {
        return false;
    }
    rows->at = kvcl_rd_bytes(&rd, rows->n * rows->bytes);
    return kvcl_rd_done(&rd);
}

/* Copies row i, cut or padded with zeros to the bytes that this version knows. */
static void read_row(const kvcl_rows_t *rows, size_t i, uint8_t *row, size_t bytes)
{
    memset(row, 0, bytes);
    kvcl_copy_bytes(row, rows->at + (i * rows->bytes), (rows->bytes < bytes) ? rows->bytes : bytes);
}

void kvcl_rows_event(const kvcl_rows_t *rows, size_t i, kvcl_store_event_t *event)
{
    uint8_t   row[KVCL_EVENT_ROW];
    kvcl_rd_t rd;

    read_row(rows, i, row, sizeof(row));
    kvcl_rd_init(&rd, row, sizeof(row));
    event->seq  = kvcl_rd_u64(&rd);
    event->kind = kvcl_rd_u32(&rd);
    event->tier = kvcl_rd_u32(&rd);
    kvcl_rd_copy(&rd, event->key.bytes, sizeof(event->key.bytes));
    event->tenant  = kvcl_rd_u64(&rd);
    event->bytes   = kvcl_rd_u32(&rd);
    event->to_rank = (int32_t)kvcl_rd_u32(&rd);
}

void kvcl_rows_item(const kvcl_rows_t *rows, size_t i, kvcl_store_item_t *item)
{
    uint8_t   row[KVCL_ITEM_ROW];
    kvcl_rd_t rd;

    read_row(rows, i, row, sizeof(row));
    kvcl_rd_init(&rd, row, sizeof(row));
    kvcl_rd_copy(&rd, item->key.bytes, sizeof(item->key.bytes));
    item->tenant = kvcl_rd_u64(&rd);
    item->bytes  = kvcl_rd_u32(&rd);
    item->tier   = kvcl_rd_u32(&rd);
    item->cache  = kvcl_rd_u32(&rd);
    item->slot   = kvcl_rd_u32(&rd);
}
