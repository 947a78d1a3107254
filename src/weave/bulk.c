/*
 * The choice that large copies use, made once in a process (bulk.h).
 *
 * Owns: `current`, which is NULL or points to a bulk_t that no longer changes; `measured`, written once under the lock;
 * the path of the file. Lock: `lock`, a leaf; a copy takes it only while there is no choice, and never waits for it.
 */
#include "config.h"
#include "weave/bulk.h"

#include "base/sanitizers.h"
#include "base/settings.h"
#include "weave/calibrate.h"
#include "weave/saved.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { AUTO = 0, LEAST = 1 << 20 };

typedef enum source { SOURCE_SETTING, SOURCE_SAVED, SOURCE_MEASURED, SOURCE_NOTHING } source_t;

typedef struct bulk {
    kvcl_copy_choice_t choice;
    source_t           source;
    bool               is_kept; /* in the file */
    kvcl_copy_table_t  table;   /* of SOURCE_SAVED and SOURCE_MEASURED */
} bulk_t;

const char *const kvcl_bulk_settings[] = {"auto", "memcpy", "weave1", "weave2", "weave4", NULL};

#define FIXED(_way) {.choice = {{_way, _way, _way}, KVCL_COPY_LARGE}, .source = SOURCE_SETTING}
static const bulk_t fixed[KVCL_COPY_N_WAYS] = {FIXED(KVCL_COPY_MEMCPY), FIXED(KVCL_COPY_WEAVE1),
                                               FIXED(KVCL_COPY_WEAVE2), FIXED(KVCL_COPY_WEAVE4)};
_Static_assert(KVCL_COPY_ROWS == 3, "FIXED has a way for each row");

static pthread_mutex_t           lock = PTHREAD_MUTEX_INITIALIZER;
static bulk_t                    measured;
static bool                      is_measured;
static char                      machine[KVCL_COPY_MACHINE_MAX], path[KVCL_COPY_PATH_MAX];
static _Atomic(const bulk_t *)   current;
static _Atomic uint64_t          large_setting; /* 0: measured */
_Atomic uint64_t                 kvcl_bulk_least = LEAST;

static const kvcl_weave_kernel_t *kernel(void)
{
    static _Atomic(const kvcl_weave_kernel_t *) best; /* threads that search at once find the same row */
    const kvcl_weave_kernel_t                   *found = atomic_load_explicit(&best, memory_order_relaxed);

    if (found == NULL) {
        found = kvcl_weave_best();
        atomic_store_explicit(&best, found, memory_order_relaxed);
    }
    return found;
}

/* The user's cache folder by the XDG rules. */
static void find_path(void)
{
    const char *cache = kvcl_settings_getenv(NULL, "XDG_CACHE_HOME"), *home = kvcl_settings_getenv(NULL, "HOME");
    char       folder[KVCL_COPY_PATH_MAX];

    if (((cache == NULL) || (cache[0] != '/')) && (home != NULL) &&
        (snprintf(folder, sizeof(folder), "%s/.cache", home) < (int)sizeof(folder))) {
        cache = folder;
    }
    if (!kvcl_copy_path(cache, machine, path)) {
        path[0] = '\0';
    }
}

/* Lock held. */
static const bulk_t *choose_auto(void)
{
    bulk_t *b = &measured;

    if (is_measured) {
        return b;
    }
    b->source       = SOURCE_NOTHING; /* and memcpy in all rows */
    b->choice.large = KVCL_COPY_LARGE;
    if ((path[0] != '\0') && kvcl_copy_load(&b->table, path, machine)) {
        b->source  = SOURCE_SAVED;
        b->is_kept = true;
    } else if (!KVCL_TSAN && kvcl_copy_calibrate(kernel(), &b->table)) {
        b->source  = SOURCE_MEASURED;
        b->is_kept = (path[0] != '\0') && kvcl_copy_save(&b->table, path, machine);
    }
    if (b->source != SOURCE_NOTHING) {
        b->choice = kvcl_copy_choose(&b->table);
    }
    is_measured = true;
    return b;
}

/* Lock held. */
static void prepare(void)
{
    if (machine[0] == '\0') {
        kvcl_copy_machine(kernel(), machine);
        find_path();
    }
}

void kvcl_bulk_configure(int setting, uint64_t large)
{
    pthread_mutex_lock(&lock);
    atomic_store_explicit(&large_setting, large, memory_order_relaxed);
    atomic_store_explicit(&kvcl_bulk_least, (large != 0) ? large : LEAST, memory_order_relaxed);
    prepare();
    atomic_store_explicit(&current, (setting != AUTO) ? &fixed[setting - 1] : (is_measured ? &measured : NULL),
                          memory_order_release);
    pthread_mutex_unlock(&lock);
}

static const bulk_t *choice(void)
{
    const bulk_t *found = atomic_load_explicit(&current, memory_order_acquire);

    if (found != NULL) {
        return found;
    }
    if (pthread_mutex_trylock(&lock) != 0) {
        return &fixed[KVCL_COPY_MEMCPY];
    }
    found = atomic_load_explicit(&current, memory_order_relaxed);
    if (found == NULL) {
        found = choose_auto();
        atomic_store_explicit(&current, found, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void kvcl_bulk_copy(const kvcl_weave_piece_t *pieces, size_t n)
{
    unsigned way   = KVCL_COPY_MEMCPY;
    size_t   total = 0, i;

    if (n == 0) {
        return;
    }
    if (!KVCL_TSAN) {
        for (i = 0; i < n; ++i) {
            total += pieces[i].len;
        }
        way = kvcl_copy_way(&choice()->choice, total / n);
    }
    kvcl_copy_by(way, kernel(), pieces, n);
}

kvcl_bulk_how_t kvcl_bulk_how_long(uint64_t bytes)
{
    if ((bytes >= KVCL_COPY_LARGE) || (atomic_load_explicit(&large_setting, memory_order_relaxed) != 0)) {
        return KVCL_BULK_LARGE;
    }
    return (!KVCL_TSAN && (bytes >= choice()->choice.large)) ? KVCL_BULK_UNSURE : KVCL_BULK_CACHED;
}

/* A source in the caches is copied much faster than the measured memcpy, which is of bytes in memory. */
kvcl_bulk_how_t kvcl_bulk_part_end(kvcl_bulk_how_t how, uint64_t bytes, uint64_t begun)
{
    uint64_t ns;

    if (how != KVCL_BULK_UNSURE) {
        return how;
    }
    ns = kvcl_now_ns() - begun;
    return (bytes * 2000 > ns * 3 * choice()->table.mbps[1][KVCL_COPY_MEMCPY]) ? KVCL_BULK_CACHED : KVCL_BULK_LARGE;
}

bool kvcl_bulk_is_woven(size_t bytes)
{
    return !KVCL_TSAN && (kvcl_copy_way(&choice()->choice, bytes) != KVCL_COPY_MEMCPY);
}

void kvcl_bulk_end(void)
{
    kernel()->end();
}

typedef struct text {
    char   *buf;
    size_t cap, at;
} text_t;

__attribute__((format(printf, 2, 3)))
static void add(text_t *text, const char *format, ...)
{
    size_t  room = (text->at < text->cap) ? text->cap - text->at : 0;
    va_list args;
    int     n;

    va_start(args, format);
    n = vsnprintf((room > 0) ? text->buf + text->at : NULL, room, format, args);
    va_end(args);
    text->at += (n > 0) ? (size_t)n : 0;
}

static void add_source(text_t *text, const bulk_t *b)
{
    time_t    when = (time_t)b->table.when_s;
    struct tm tm;
    char      date[64] = "?";

    if (gmtime_r(&when, &tm) != NULL) {
        (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S UTC", &tm);
    }
    switch (b->source) {
    case SOURCE_SETTING:
        add(text, "from KVCL_COPY; not measured\n");
        break;
    case SOURCE_SAVED:
        add(text, "measured %s, read from %s\n", date, path);
        break;
    case SOURCE_MEASURED:
        add(text, "measured %s by this process, %s%s\n", date,
            b->is_kept ? "kept in " : "not kept, for no file can be written: ", (path[0] != '\0') ? path : "no folder");
        break;
    default:
        add(text, "not measured: this build or processor has no copy past the caches, or there is no memory for it\n");
        break;
    }
}

static void add_table(text_t *text, const bulk_t *b)
{
    size_t row, way;

    add(text, "%-10s", "bytes");
    for (way = 0; way < KVCL_COPY_N_WAYS; ++way) {
        add(text, "%9s", kvcl_copy_way_names[way]);
    }
    add(text, "   used (MB/s; a woven copy must be 1.05 times as fast as memcpy)\n");
    for (row = 0; row < KVCL_COPY_ROWS; ++row) {
        const uint32_t *mbps = b->table.mbps[row];

        add(text, "%-10zu", kvcl_copy_row_bytes[row]);
        for (way = 0; way < KVCL_COPY_N_WAYS; ++way) {
            add(text, "%9u", (unsigned)mbps[way]);
        }
        way = b->choice.way[row];
        add(text, "   %s, %.2f times memcpy\n", kvcl_copy_way_names[way],
            (double)mbps[way] / (double)mbps[KVCL_COPY_MEMCPY]);
    }
}

static void add_large(text_t *text, const bulk_t *b, uint64_t large)
{
    size_t row;

    if (large != 0) {
        add(text, "large transfers: %" PRIu64 " bytes and more, from KVCL_COPY_LARGE\n", large);
        return;
    }
    if ((b->source == SOURCE_SAVED) || (b->source == SOURCE_MEASURED)) {
        add(text, "transfer     memcpy    woven   (MB/s, copied and then read)\n");
    }
    for (row = 0; ((b->source == SOURCE_SAVED) || (b->source == SOURCE_MEASURED)) && (row < KVCL_COPY_LARGE_ROWS);
         ++row) {
        add(text, "%-10zu%9u%9u\n", kvcl_copy_large_bytes[row], (unsigned)b->table.large[row][0],
            (unsigned)b->table.large[row][1]);
    }
    if (b->choice.large < KVCL_COPY_LARGE) {
        add(text, "large transfers: %zu bytes and more if their source is not in the caches, and all of %d and more\n",
            b->choice.large, (int)KVCL_COPY_LARGE);
    } else {
        add(text, "large transfers: %d bytes and more\n", (int)KVCL_COPY_LARGE);
    }
}

size_t kvcl_bulk_describe(int setting, uint64_t large, char *buf, size_t cap)
{
    text_t       text = {buf, cap, 0};
    const bulk_t *b;

    pthread_mutex_lock(&lock);
    prepare();
    b = (setting != AUTO) ? &fixed[setting - 1] : choose_auto();
    add(&text, "setting %s, instructions %s\n", kvcl_bulk_settings[setting], kernel()->name);
    add(&text, "machine %s\n", machine);
    add_source(&text, b);
    if ((b->source == SOURCE_SAVED) || (b->source == SOURCE_MEASURED)) {
        add_table(&text, b);
    } else {
        add(&text, "used: %s\n", kvcl_copy_way_names[b->choice.way[0]]);
    }
    add_large(&text, b, large);
    pthread_mutex_unlock(&lock);
    return text.at;
}
