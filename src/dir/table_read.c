/*
 * Reading a table that another thread or process writes, with no lock.
 *
 * An entry is taken as read only if its sequence word was the same before and after the copy, its
 * state is LIVE and its check word fits its bytes and its index. The writer's order (table.c) makes
 * the first test exact; the check word guards against garbage.
 * Data words are loaded with acquire instead of behind a fence, so that ThreadSanitizer understands
 * the order; on x86 both are plain loads.
 *
 * Owns: nothing. Invariant: no access outside the memory that kvcl_dir_view_init was given.
 */
#include "config.h"

#include "dir/table_cell.h"

#include "base/cpu.h"
#include "base/error.h"

enum { DIR_PREFETCH = 16 }; /* keys in flight in a batch */

kvcl_status_t kvcl_dir_view_init(kvcl_dir_view_t *view, const void *mem, size_t bytes)
{
    kvcl_status_t status;

    if (((uintptr_t)mem % 64 != 0) || (mem == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "directory table is not aligned to 64 bytes");
    }
    status = kvcl_dir_far_init(view, mem, bytes);
    if (status == KVCL_OK) {
        view->cells = (const kvcl_dir_cell_t *)((const char *)mem + KVCL_DIR_HEADER_BYTES);
    }
    return status;
}

/* A stable copy of one entry. Returns its state; BUSY if it would not hold still. */
static unsigned cell_copy(const kvcl_dir_cell_t *cell, uint64_t index, dir_image_t *image)
{
    uint64_t meta;
    unsigned try, i, state;

    for (try = 0; try < KVCL_DIR_RETRIES; ++try) {
        meta  = dir_load(&cell->word[DIR_WORD_META], memory_order_acquire);
        state = dir_state(meta);
        if ((state == DIR_EMPTY) || (state == DIR_TOMB)) {
            return state;
        }
        if (state == DIR_LIVE) {
            for (i = 0; i < 8; ++i) {
                image->word[i] = dir_load(&cell->word[i], memory_order_acquire);
            }
            image->word[DIR_WORD_META] = meta;
            if ((dir_load(&cell->word[DIR_WORD_META], memory_order_relaxed) == meta) &&
                dir_image_ok(image, index)) {
                return DIR_LIVE;
            }
        }
        kvcl_relax();
    }
    return DIR_BUSY;
}

static inline unsigned read_at(const kvcl_dir_view_t *view, const kvcl_key_t *key, uint64_t start,
                               kvcl_dir_loc_t *locs)
{
    const kvcl_dir_cell_t *cell  = &view->cells[start];
    uint64_t               first = dir_key_word(key, 0);
    unsigned               n     = 0;
    unsigned               i, state;
    dir_image_t            image;

    for (i = 0; i < KVCL_DIR_WINDOW; ++i, ++cell) {
        if (dir_load(&cell->word[0], memory_order_relaxed) == first) {
            state = cell_copy(cell, start + i, &image);
            if ((state == DIR_LIVE) && kvcl_key_equal(&image.entry.key, key)) {
                dir_image_loc(&image, &locs[n]);
                if (++n == KVCL_DIR_LOCS_MAX) {
                    break;
                }
            }
        } else {
            state = dir_state(dir_load(&cell->word[DIR_WORD_META], memory_order_relaxed));
        }
        if (state == DIR_EMPTY) {
            break;
        }
    }
    return n;
}

void kvcl_dir_prefetch(const kvcl_dir_view_t *view, const kvcl_key_t *key)
{
    const kvcl_dir_cell_t *cell = &view->cells[dir_start(key, view->starts)];

    __builtin_prefetch(cell);
    __builtin_prefetch(cell + 1);
}

unsigned kvcl_dir_read(const kvcl_dir_view_t *view, const kvcl_key_t *key,
                       kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX])
{
    return read_at(view, key, dir_start(key, view->starts), locs);
}

size_t kvcl_dir_read_batch(const kvcl_dir_view_t *view, const kvcl_key_t *keys, size_t n,
                           kvcl_dir_loc_t (*locs)[KVCL_DIR_LOCS_MAX], uint8_t *counts)
{
    uint64_t starts[DIR_PREFETCH];
    size_t   i, j, found = 0;

    for (i = 0; i < n + DIR_PREFETCH; ++i) {
        if (i >= DIR_PREFETCH) {
            j         = i - DIR_PREFETCH;
            counts[j] = (uint8_t)read_at(view, &keys[j], starts[j % DIR_PREFETCH], locs[j]);
            found += (counts[j] > 0);
        }
        if (i < n) {
            starts[i % DIR_PREFETCH] = dir_start(&keys[i], view->starts);
            __builtin_prefetch(&view->cells[starts[i % DIR_PREFETCH]]);
            __builtin_prefetch(&view->cells[starts[i % DIR_PREFETCH] + 1]);
        }
    }
    return found;
}
