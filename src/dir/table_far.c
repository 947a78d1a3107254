/*
 * Reading a table over a network: the header once, then for each key a copy of its window.
 *
 * A network copies the bytes of a window in any order while the home writes. So an entry counts only by its check word,
 * which covers all its bytes and its place. An entry that is being moved within the window may be missed.
 *
 * Owns: nothing. Pure.
 */
#include "config.h"

#include "dir/table_cell.h"

#include "base/error.h"

kvcl_status_t kvcl_dir_far_init(kvcl_dir_view_t *view, const void *first, size_t bytes)
{
    kvcl_dir_header_t header;

    if (bytes < KVCL_DIR_BYTES_MIN) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "directory table of %zu bytes, needs at least %zu",
                         bytes, KVCL_DIR_BYTES_MIN);
    }
    memcpy(&header, first, sizeof(header));
    if (header.magic != KVCL_DIR_MAGIC) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "memory of a peer is no directory table");
    }
    if ((header.version != KVCL_DIR_VERSION) || (header.entry_bytes != KVCL_DIR_ENTRY_BYTES) ||
        (header.window != KVCL_DIR_WINDOW)) {
        return kvcl_fail(KVCL_ERR_VERSION, "directory table of version %u, expected %u",
                         (unsigned)header.version, (unsigned)KVCL_DIR_VERSION);
    }
    if ((header.capacity < KVCL_DIR_WINDOW) ||
        (header.capacity > (bytes - KVCL_DIR_HEADER_BYTES) / KVCL_DIR_ENTRY_BYTES)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "directory table claims %llu entries in %zu bytes",
                         (unsigned long long)header.capacity, bytes);
    }
    view->cells    = NULL;
    view->capacity = header.capacity;
    view->starts   = header.capacity - KVCL_DIR_WINDOW + 1;
    return KVCL_OK;
}

uint64_t kvcl_dir_far_offset(const kvcl_dir_view_t *view, const kvcl_key_t *key)
{
    return KVCL_DIR_HEADER_BYTES + (dir_start(key, view->starts) * KVCL_DIR_ENTRY_BYTES);
}

int kvcl_dir_far_read(const kvcl_dir_view_t *view, const kvcl_key_t *key, const void *window,
                      kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX])
{
    const dir_image_t *image = window;
    uint64_t          first  = dir_key_word(key, 0), start = dir_start(key, view->starts);
    int               n      = 0;
    unsigned          i, state;

    for (i = 0; (i < KVCL_DIR_WINDOW) && (n < KVCL_DIR_LOCS_MAX); ++i, ++image) {
        state = dir_state(image->word[DIR_WORD_META]);
        if (state == DIR_EMPTY) {
            break;
        }
        if ((state == DIR_TOMB) || (image->word[0] != first)) {
            continue;
        }
        if (!dir_image_ok(image, start + i)) {
            return -1;
        }
        if (kvcl_key_equal(&image->entry.key, key)) {
            dir_image_loc(image, &locs[n++]);
        }
    }
    return n;
}
