/*
 * Events and listed blocks on the wire. Pure: no lock, no allocation.
 *
 * Little-endian: u32 number of rows, u16 bytes of a row, u16 zero; then the rows. A row has the numbers of its struct
 * in kvcl_store_events.h, in order; new ones are added at the end only. Numbers that a shorter row lacks read as 0,
 * and the rest of a longer row is ignored.
 */
#ifndef KVCL_STORE_ADMIN_ROWS_WIRE_H
#define KVCL_STORE_ADMIN_ROWS_WIRE_H

#include <kvcl/kvcl_store_events.h>

#include <stdbool.h>

enum {
    KVCL_ROWS_HEAD  = 8,
    KVCL_ROWS_FIRST = 48, /* least bytes of a row */
    KVCL_EVENT_ROW  = 64,
    KVCL_ITEM_ROW   = 56
};

/* Rows received from a peer. */
typedef struct kvcl_rows {
    const uint8_t *at;
    size_t        n;
    size_t        bytes; /* bytes of a row */
} kvcl_rows_t;

/** How many rows fit into an answer. */
static inline size_t kvcl_rows_room(size_t cap, size_t row)
{
    return (cap < KVCL_ROWS_HEAD) ? 0 : (cap - KVCL_ROWS_HEAD) / row;
}

/** Writes the head of n rows of `row` bytes each; the caller has checked the room. @return the bytes of head and rows.
 * */
size_t kvcl_rows_head(uint8_t *buf, uint32_t n, uint16_t row);
/** Write row i behind the head. */
void   kvcl_rows_put_event(uint8_t *buf, size_t i, const kvcl_store_event_t *event);
void   kvcl_rows_put_item(uint8_t *buf, size_t i, const kvcl_store_item_t *item);

/** Checks rows from any peer; no bytes are no rows. False: malformed. */
bool   kvcl_rows_open(const void *buf, size_t len, kvcl_rows_t *rows);
void   kvcl_rows_event(const kvcl_rows_t *rows, size_t i, kvcl_store_event_t *event);
void   kvcl_rows_item(const kvcl_rows_t *rows, size_t i, kvcl_store_item_t *item);

#endif
