/*
 * The home's side of a table: format, insert, remove, clean.
 *
 * Write order of an entry: sequence word to BUSY; the other words, each with release; the sequence
 * word with its final state and a raised counter, with release. So a reader that saw any new word
 * sees at least BUSY when it looks at the sequence word again, and drops its copy.
 *
 * Where a window is full, the first unused entry behind it is taken, and entries on the way move there one by one, each
 * within its own window, until there is room in this one. An entry is written at its new place before it leaves the old
 * one, always further on, so a reader's scan meets it once or twice, but does meet it.
 *
 * Removal leaves a tombstone, or an EMPTY entry when no live entry's path crosses it; only then may
 * scans stop there. Tombstones right before a cleaned entry are tried again.
 *
 * Owns: the memory between format and the end of its use. Lock: the caller's, one writer at a time;
 * the writer's own reads are plain (relaxed).
 */
#include "config.h"

#include "dir/table_cell.h"

#include "base/error.h"

/* What a window holds, as insert and remove need it. */
typedef struct dir_probe {
    uint64_t same;   /* index of the entry with the same rank, cache and slot, or NONE */
    uint64_t unused; /* first EMPTY or TOMB, or NONE */
    unsigned copies; /* live entries of the key */
} dir_probe_t;

#define DIR_NONE UINT64_MAX

enum { DIR_REACH = 4096 }; /* entries behind a full window that are searched for room */

size_t kvcl_dir_table_bytes(uint64_t entries)
{
    if (entries < KVCL_DIR_WINDOW) {
        entries = KVCL_DIR_WINDOW;
    }
    return KVCL_DIR_HEADER_BYTES + (size_t)entries * KVCL_DIR_ENTRY_BYTES;
}

static uint64_t cell_meta(const kvcl_dir_cell_t *cell)
{
    return dir_load(&cell->word[DIR_WORD_META], memory_order_relaxed);
}

static void cell_image(const kvcl_dir_cell_t *cell, dir_image_t *image)
{
    unsigned i;

    for (i = 0; i < 8; ++i) {
        image->word[i] = dir_load(&cell->word[i], memory_order_relaxed);
    }
}

/* Write entry @a index in the order above; @a image's state, counter and check are set here. */
static void cell_write(kvcl_dir_table_t *table, uint64_t index, dir_image_t *image, unsigned state)
{
    kvcl_dir_cell_t *cell = &table->cells[index];
    uint64_t         old  = cell_meta(cell);
    uint64_t         seq  = ((old >> DIR_SEQ_SHIFT) + 1) & DIR_SEQ_MASK;
    unsigned         i;

    image->word[DIR_WORD_META] = (image->word[DIR_WORD_META] & DIR_OWNER_BITS) |
                                 (seq << DIR_SEQ_SHIFT) | ((uint64_t)state << DIR_STATE_SHIFT);
    image->entry.check         = dir_check_of(image, index);
    atomic_store_explicit(&cell->word[DIR_WORD_META], old | ((uint64_t)DIR_BUSY << DIR_STATE_SHIFT),
                          memory_order_relaxed);
    for (i = 0; i < 8; ++i) {
        if (i != DIR_WORD_META) {
            atomic_store_explicit(&cell->word[i], image->word[i], memory_order_release);
        }
    }
    atomic_store_explicit(&cell->word[DIR_WORD_META], image->word[DIR_WORD_META], memory_order_release);
}

kvcl_status_t kvcl_dir_table_format(kvcl_dir_table_t *table, void *mem, size_t bytes)
{
    kvcl_dir_header_t header = {.magic       = KVCL_DIR_MAGIC,
                                .version     = KVCL_DIR_VERSION,
                                .entry_bytes = KVCL_DIR_ENTRY_BYTES,
                                .window      = KVCL_DIR_WINDOW};

    if ((mem == NULL) || ((uintptr_t)mem % 64 != 0) || (bytes < KVCL_DIR_BYTES_MIN)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a directory table needs %zu bytes aligned to 64, got %zu",
                         KVCL_DIR_BYTES_MIN, bytes);
    }
    header.capacity = (bytes - KVCL_DIR_HEADER_BYTES) / KVCL_DIR_ENTRY_BYTES;
    memset(mem, 0, KVCL_DIR_HEADER_BYTES + header.capacity * KVCL_DIR_ENTRY_BYTES);
    memcpy(mem, &header, sizeof(header));
    memset(table, 0, sizeof(*table));
    table->cells = (kvcl_dir_cell_t *)((char *)mem + KVCL_DIR_HEADER_BYTES);
    return kvcl_dir_view_init(&table->view, mem, bytes);
}

static bool same_slot(const dir_image_t *image, const kvcl_dir_loc_t *loc)
{
    return (image->entry.rank == loc->rank) && (image->entry.cache == loc->cache) &&
           (image->entry.slot == loc->slot);
}

static void probe(const kvcl_dir_table_t *table, const kvcl_key_t *key, const kvcl_dir_loc_t *loc,
                  dir_probe_t *found)
{
    uint64_t    start = dir_start(key, table->view.starts);
    uint64_t    first = dir_key_word(key, 0);
    uint64_t    index;
    unsigned    state;
    dir_image_t image;

    *found = (dir_probe_t){.same = DIR_NONE, .unused = DIR_NONE};
    for (index = start; index < start + KVCL_DIR_WINDOW; ++index) {
        state = dir_state(cell_meta(&table->cells[index]));
        if (state != DIR_LIVE) {
            found->unused = (found->unused == DIR_NONE) ? index : found->unused;
            if (state == DIR_EMPTY) {
                return;
            }
        } else if (dir_load(&table->cells[index].word[0], memory_order_relaxed) == first) {
            cell_image(&table->cells[index], &image);
            if (kvcl_key_equal(&image.entry.key, key)) {
                ++found->copies;
                found->same = same_slot(&image, loc) ? index : found->same;
            }
        }
    }
}

/* Is the entry at @a index newer than @a loc? Serial-number order, incarnation first. */
static bool is_newer(const kvcl_dir_table_t *table, uint64_t index, const kvcl_dir_loc_t *loc)
{
    dir_image_t image;

    cell_image(&table->cells[index], &image);
    if (image.entry.incarnation != loc->incarnation) {
        return (int16_t)(uint16_t)(image.entry.incarnation - loc->incarnation) > 0;
    }
    return (int32_t)(image.entry.gen - loc->gen) > 0;
}

/* The first entry in front of @a hole that may move there: the farthest, so that few moves do. */
static uint64_t movable(const kvcl_dir_table_t *table, uint64_t hole, dir_image_t *image)
{
    uint64_t index;

    for (index = hole - KVCL_DIR_WINDOW + 1; index < hole; ++index) {
        cell_image(&table->cells[index], image);
        if ((dir_state(image->word[DIR_WORD_META]) == DIR_LIVE) &&
            (dir_start(&image->entry.key, table->view.starts) + KVCL_DIR_WINDOW > hole)) {
            return index;
        }
    }
    return DIR_NONE;
}

/* The window at @a start is full: an unused entry in it, for which others have moved on, or NONE. */
static uint64_t make_room(kvcl_dir_table_t *table, uint64_t start)
{
    const uint64_t behind = start + KVCL_DIR_WINDOW;
    uint64_t       end    = behind + DIR_REACH, hole, from;
    dir_image_t    image, none;

    end = (end < table->view.capacity) ? end : table->view.capacity;
    for (hole = behind; (hole < end) && (dir_state(cell_meta(&table->cells[hole])) == DIR_LIVE); ++hole) {
    }
    if (hole >= end) {
        return DIR_NONE;
    }
    while (hole >= behind) {
        from = movable(table, hole, &image);
        if (from == DIR_NONE) {
            return DIR_NONE;
        }
        table->tombs += (dir_state(cell_meta(&table->cells[hole])) != DIR_TOMB);
        cell_write(table, hole, &image, DIR_LIVE);
        memset(&none, 0, sizeof(none));
        cell_write(table, from, &none, DIR_TOMB);
        hole = from;
    }
    return hole;
}

kvcl_status_t kvcl_dir_table_insert(kvcl_dir_table_t *table, const kvcl_key_t *key,
                                    const kvcl_dir_loc_t *loc)
{
    dir_probe_t found;
    dir_image_t image;
    uint64_t    index;

    if ((loc->rank == KVCL_DIR_RANK_NONE) || (loc->gen == 0) ||
        ((loc->flags & ~KVCL_DIR_FLAGS_MASK) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "location with rank %u, generation %u, flags 0x%x",
                         loc->rank, loc->gen, loc->flags);
    }
    probe(table, key, loc, &found);
    index = found.same;
    if (index != DIR_NONE) {
        if (is_newer(table, index, loc)) {
            return KVCL_ERR_STALE;
        }
    } else {
        if (found.copies >= KVCL_DIR_LOCS_MAX) {
            return KVCL_ERR_EXISTS;
        }
        index = (found.unused != DIR_NONE) ? found.unused : make_room(table, dir_start(key, table->view.starts));
        if (index == DIR_NONE) {
            return KVCL_ERR_NO_SPACE;
        }
        table->tombs -= (dir_state(cell_meta(&table->cells[index])) == DIR_TOMB);
        ++table->count;
    }
    image.entry.key = *key;
    memcpy(&image.word[DIR_WORD_META], loc, sizeof(*loc));
    cell_write(table, index, &image, DIR_LIVE);
    return KVCL_OK;
}

/* Does the path of any live entry beyond @a index cross it? */
static bool is_crossed(const kvcl_dir_table_t *table, uint64_t index)
{
    uint64_t    end = index + KVCL_DIR_WINDOW;
    uint64_t    i;
    unsigned    state;
    dir_image_t image;

    for (i = index + 1; (i < end) && (i < table->view.capacity); ++i) {
        state = dir_state(cell_meta(&table->cells[i]));
        if (state == DIR_EMPTY) {
            return false;
        }
        if (state == DIR_LIVE) {
            cell_image(&table->cells[i], &image);
            if (dir_start(&image.entry.key, table->view.starts) <= index) {
                return true;
            }
        }
    }
    return false;
}

/* A live entry goes: EMPTY where that is allowed (then also the tombstones before it), else TOMB. */
static void erase(kvcl_dir_table_t *table, uint64_t index)
{
    dir_image_t none = {.word = {0}};

    --table->count;
    ++table->tombs;
    cell_write(table, index, &none, DIR_TOMB);
    while ((dir_state(cell_meta(&table->cells[index])) == DIR_TOMB) && !is_crossed(table, index)) {
        memset(&none, 0, sizeof(none));
        cell_write(table, index, &none, DIR_EMPTY);
        --table->tombs;
        if (index == 0) {
            break;
        }
        --index;
    }
}

kvcl_status_t kvcl_dir_table_remove(kvcl_dir_table_t *table, const kvcl_key_t *key,
                                    const kvcl_dir_loc_t *loc)
{
    dir_probe_t found;
    dir_image_t image;

    probe(table, key, loc, &found);
    if (found.same == DIR_NONE) {
        return KVCL_ERR_NOT_FOUND;
    }
    cell_image(&table->cells[found.same], &image);
    if ((image.entry.incarnation != loc->incarnation) || (image.entry.gen != loc->gen)) {
        return KVCL_ERR_STALE;
    }
    erase(table, found.same);
    return KVCL_OK;
}

uint64_t kvcl_dir_table_remove_if(kvcl_dir_table_t *table,
                                  bool (*drop)(void *arg, const kvcl_key_t *key,
                                  const kvcl_dir_loc_t *loc),
                                  void *arg)
{
    uint64_t       cursor = 0, n = 0;
    kvcl_key_t     key;
    kvcl_dir_loc_t loc;

    while (kvcl_dir_table_next(table, &cursor, &key, &loc)) {
        if (drop(arg, &key, &loc)) {
            erase(table, cursor - 1);
            ++n;
        }
    }
    return n;
}

static bool is_of_rank(void *arg, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    const kvcl_dir_loc_t *dead = arg;

    (void)key;
    return (loc->rank == dead->rank) &&
           ((int16_t)(uint16_t)(loc->incarnation - dead->incarnation) <= 0);
}

uint64_t kvcl_dir_table_remove_rank(kvcl_dir_table_t *table, uint16_t rank, uint16_t incarnation)
{
    kvcl_dir_loc_t dead = {.rank = rank, .incarnation = incarnation};

    return kvcl_dir_table_remove_if(table, is_of_rank, &dead);
}

unsigned kvcl_dir_table_find(const kvcl_dir_table_t *table, const kvcl_key_t *key,
                             kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX])
{
    return kvcl_dir_read(&table->view, key, locs);
}

bool kvcl_dir_table_next(const kvcl_dir_table_t *table, uint64_t *cursor, kvcl_key_t *key,
                         kvcl_dir_loc_t *loc)
{
    return kvcl_dir_table_next_to(table, cursor, table->view.capacity, key, loc);
}

bool kvcl_dir_table_next_to(const kvcl_dir_table_t *table, uint64_t *cursor, uint64_t end, kvcl_key_t *key,
                            kvcl_dir_loc_t *loc)
{
    uint64_t    index;
    dir_image_t image;

    end = (end < table->view.capacity) ? end : table->view.capacity;
    for (index = *cursor; index < end; ++index) {
        if (dir_state(cell_meta(&table->cells[index])) == DIR_LIVE) {
            cell_image(&table->cells[index], &image);
            *key = image.entry.key;
            dir_image_loc(&image, loc);
            *cursor = index + 1;
            return true;
        }
    }
    *cursor = index;
    return false;
}

bool kvcl_dir_table_check(const kvcl_dir_table_t *table)
{
    uint64_t    count = 0, tombs = 0, index, at;
    dir_image_t image;

    for (index = 0; index < table->view.capacity; ++index) {
        cell_image(&table->cells[index], &image);
        tombs += (dir_state(image.word[DIR_WORD_META]) == DIR_TOMB);
        if (dir_state(image.word[DIR_WORD_META]) != DIR_LIVE) {
            continue;
        }
        ++count;
        at = dir_start(&image.entry.key, table->view.starts);
        if (!dir_image_ok(&image, index) || (at > index) || (index >= at + KVCL_DIR_WINDOW)) {
            return false;
        }
        for (; at < index; ++at) {
            if (dir_state(cell_meta(&table->cells[at])) == DIR_EMPTY) {
                return false;
            }
        }
    }
    return (count == table->count) && (tombs == table->tombs);
}
