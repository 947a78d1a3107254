/*
 * Events and listed blocks as they travel: pure, no lock, no allocation.
 *
 * Little-endian: u32 rows, u16 bytes of a row, u16 zero; then the rows. A row's numbers come in the order of its struct
 * in kvcl_store_events.h, and only grow at the end. What shorter rows lack is 0, what longer ones have beyond is passed
 * over.
 */
#ifndef KVCL_STORE_ADMIN_ROWS_WIRE_H
#define KVCL_STORE_ADMIN_ROWS_WIRE_H

#include <kvcl/kvcl_store_events.h>

#include <stdbool.h>

enum {
    KVCL_ROWS_HEAD  = 8,
    KVCL_ROWS_FIRST = 48, /* bytes of a row, at least */
    KVCL_EVENT_ROW  = 64,
    KVCL_ITEM_ROW   = 56
};

/* Rows from somebody. */
typedef struct kvcl_rows {
    const uint8_t *at;
    size_t        n;
    size_t        bytes; /* of a row */
} kvcl_rows_t;

/** How many rows fit into an answer. */
static inline size_t kvcl_rows_room(size_t cap, size_t row)
{
    return (cap < KVCL_ROWS_HEAD) ? 0 : (cap - KVCL_ROWS_HEAD) / row;
}

/** Write the head, and one row; there is room. @return how many bytes all of them have. */
size_t kvcl_rows_head(uint8_t *buf, uint32_t n, uint16_t row);
void   kvcl_rows_put_event(uint8_t *buf, size_t i, const kvcl_store_event_t *event);
void   kvcl_rows_put_item(uint8_t *buf, size_t i, const kvcl_store_item_t *item);

/** From anybody; empty is no rows. False: they are none. */
bool   kvcl_rows_open(const void *buf, size_t len, kvcl_rows_t *rows);
void   kvcl_rows_event(const kvcl_rows_t *rows, size_t i, kvcl_store_event_t *event);
void   kvcl_rows_item(const kvcl_rows_t *rows, size_t i, kvcl_store_item_t *item);

#endif
