/*
 * A mapped table of bytes from a hostile home: reads stay inside it and end. With an even first byte the header is good
 * and only entries are garbage.
 */
#include "config.h"

#include "dir/table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CELLS = 70 };

static void read_mapping(void *mem, size_t bytes, const kvcl_key_t *key)
{
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX];
    kvcl_dir_view_t view;

    if ((kvcl_dir_view_init(&view, mem, bytes) == KVCL_OK) && (kvcl_dir_read(&view, key, locs) > KVCL_DIR_LOCS_MAX)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t           bytes = kvcl_dir_table_bytes(CELLS), at;
    void            *mem   = aligned_alloc(64, bytes);
    kvcl_dir_table_t table;
    kvcl_key_t       key = {{0}};

    if (mem == NULL || size == 0 || kvcl_dir_table_format(&table, mem, bytes) != KVCL_OK) {
        free(mem);
        return 0;
    }
    at = (data[0] % 2 == 0) ? KVCL_DIR_HEADER_BYTES : 0;
    for (; at < bytes; ++at) {
        ((uint8_t *)mem)[at] = data[at % size];
    }
    memcpy(key.bytes, (uint8_t *)mem + KVCL_DIR_HEADER_BYTES, sizeof(key.bytes));
    read_mapping(mem, bytes, &key);
    free(mem);
    return 0;
}
