/*
 * A reader of a home's mapped table, or in each fifth seed over a network, while the home and all other ranks continue.
 *
 * kvcl_dir_read() is the library's own source, compiled here a second time under another name, so that time can pass
 * between any two of its loads: sim_load() takes steps of the whole cluster. Meanwhile the home may write the very
 * entry that is being copied, and a rank may crash and restart.
 */
#include "config.h"

#include "sim.h"

#include "dir/table_cell.h"

#include <string.h>

static sim_t *world;

/* Sometimes let the cluster take some steps. */
static void pass_time(const kvcl_dir_cell_t *cell)
{
    kvcl_dir_cell_t before;
    unsigned        n;

    if (!sim_chance(world, 30)) {
        return;
    }
    memcpy(&before, cell, sizeof(before));
    for (n = 1 + sim_below(world, 40); (n > 0) && !world->failed; --n) {
        sim_step(world);
    }
    world->counts.torn += (memcmp(&before, cell, sizeof(before)) != 0);
}

static uint64_t sim_load(const _Atomic uint64_t *word, memory_order order)
{
    pass_time((const kvcl_dir_cell_t *)((uintptr_t)word & ~(uintptr_t)(KVCL_DIR_ENTRY_BYTES - 1)));
    return dir_load(word, order);
}

kvcl_status_t sim_view_init(kvcl_dir_view_t *view, const void *mem, size_t bytes) KVCL_MUST_CHECK;
void          sim_prefetch(const kvcl_dir_view_t *view, const kvcl_key_t *key);
unsigned      sim_read(const kvcl_dir_view_t *view, const kvcl_key_t *key, kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]);
size_t        sim_read_batch(const kvcl_dir_view_t *view, const kvcl_key_t *keys, size_t n,
                             kvcl_dir_loc_t (*locs)[KVCL_DIR_LOCS_MAX], uint8_t *counts);

#define dir_load            sim_load
#define kvcl_dir_view_init  sim_view_init
#define kvcl_dir_prefetch   sim_prefetch
#define kvcl_dir_read       sim_read
#define kvcl_dir_read_batch sim_read_batch
#include "dir/table_read.c" /* the reader itself */

/* The mutation: an entry is accepted as read, possibly half old and half new. */
static unsigned read_unchecked(const kvcl_dir_view_t *view, const kvcl_key_t *key, kvcl_dir_loc_t *locs)
{
    const kvcl_dir_cell_t *cell = &view->cells[dir_start(key, view->starts)];
    unsigned              n = 0, i;
    dir_image_t           image;

    for (i = 0; (i < KVCL_DIR_WINDOW) && (n < KVCL_DIR_LOCS_MAX); ++i, ++cell) {
        memcpy(&image, cell, sizeof(image) / 2);
        pass_time(cell);
        memcpy(&image.word[4], &cell->word[4], sizeof(image) / 2);
        if (dir_state(image.word[DIR_WORD_META]) == DIR_EMPTY) {
            break;
        }
        if ((dir_state(image.word[DIR_WORD_META]) == DIR_LIVE) && kvcl_key_equal(&image.entry.key, key)) {
            dir_image_loc(&image, &locs[n++]);
        }
    }
    return n;
}

/* The copy of a window by a network: its entries from anywhere on, each in two halves. */
static unsigned read_far(const kvcl_dir_view_t *view, const void *mem, const kvcl_key_t *key, kvcl_dir_loc_t *locs)
{
    static _Alignas(64) kvcl_dir_cell_t window[KVCL_DIR_WINDOW];
    const kvcl_dir_cell_t *cells = (const void *)((const char *)mem + kvcl_dir_far_offset(view, key));
    unsigned              tries, i, at, half;
    int                   n = -1;

    for (tries = 0; (tries < 3) && (n < 0); ++tries) {
        at = sim_below(world, KVCL_DIR_WINDOW);
        for (i = 0; i < KVCL_DIR_WINDOW; ++i, at = (at + 1) % KVCL_DIR_WINDOW) {
            half = (i & 1) * (sizeof(window[0]) / 2);
            memcpy((char *)&window[at] + half, (const char *)&cells[at] + half, sizeof(window[0]) / 2);
            pass_time(&cells[at]);
            half = sizeof(window[0]) / 2 - half;
            memcpy((char *)&window[at] + half, (const char *)&cells[at] + half, sizeof(window[0]) / 2);
        }
        n = kvcl_dir_far_read(view, key, window, locs);
    }
    return (n > 0) ? (unsigned)n : 0;
}

unsigned sim_table_read(sim_t *sim, uint32_t home, unsigned key, kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX])
{
    const sim_node_t *node = &sim->nodes[home];
    kvcl_dir_view_t  view;
    unsigned         n;

    if (sim_view_init(&view, node->table_mem, sizeof(node->table_mem)) != KVCL_OK) {
        sim_fail(sim, "Internal", "the table of rank %u is not one", home);
        return 0;
    }
    world        = sim;
    sim->reading = true;
    n            = (sim->broken == BREAK_NO_ENTRY_CHECK) ? read_unchecked(&view, &sim->keys[key], locs)
                   : (sim->seed % 5 == 0) ? read_far(&view, node->table_mem, &sim->keys[key], locs)
                                          : sim_read(&view, &sim->keys[key], locs);
    sim->reading = false;
    return n;
}
