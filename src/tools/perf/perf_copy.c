/*
 * The test "copy", which needs no ranks: memcpy and every woven copy of this processor, over pieces of many sizes in
 * random order, and for each size the copy that the library uses. Owns its memory, the table that it prints, and the
 * plot (perf_plot.c).
 *
 * Figures are bytes by processor time of the copying thread: the ways alternate, and the best of the rounds counts. So
 * other work on the machine changes them less than it would change the time on the wall.
 */
#include "config.h"
#include "tools/perf/perf_copy.h"

#include "tools/json_out.h"
#include "tools/machine.h"
#include "weave/choice.h"

#include <kvcl/kvcl.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TOTAL    (UINT64_C(256) << 20) /* bytes of one measurement */
#define ROUNDS   3u
#define BATCH    64u
#define TEXT_MAX 4096u
#define PAGE     4096u

static const uint64_t sizes[] = {256,   512,   1024,  2048,  4096,   8192,    16384,
                                 32768, 65536, 73728, 262144, 1048576, 16777216};

/* "65536  7461  9560  12013  13437   weave4, ..." or "used: weave4", which is for all rows. */
static void read_row(perf_copy_t *copy, const char *line)
{
    size_t   bytes = 0;
    unsigned way, row;
    char     word[16];

    if ((sscanf(line, "used: %15s", word) != 1) &&
        (sscanf(line, "%zu %*u %*u %*u %*u %15[a-z0-9]", &bytes, word) != 2)) {
        return;
    }
    for (way = 0; (way < KVCL_COPY_N_WAYS) && (strcmp(word, kvcl_copy_way_names[way]) != 0); ++way) {
    }
    for (row = 0; (way < KVCL_COPY_N_WAYS) && (row < KVCL_COPY_ROWS); ++row) {
        if ((bytes == 0) || (bytes == kvcl_copy_row_bytes[row])) {
            copy->chosen.way[row] = (uint8_t)way;
        }
    }
}

/* The machine, and the copies that the library uses. */
static bool read_choice(perf_copy_t *copy)
{
    char   text[TEXT_MAX], *line, *save = NULL;
    size_t len = 0;

    if (kvcl_query_copy(text, sizeof(text), &len) != KVCL_OK) {
        fprintf(stderr, "kvcl_perf: kvcl_query_copy: %s\n", kvcl_last_error());
        return false;
    }
    for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "machine ", 8) == 0) {
            snprintf(copy->machine, sizeof(copy->machine), "%s", line + 8);
        }
        read_row(copy, line);
    }
    return true;
}

static void shuffle(size_t *order, size_t n, uint64_t *seed)
{
    size_t i, j, other;

    for (i = 0; i < n; ++i) {
        order[i] = i;
    }
    for (i = n; i > 1; --i) {
        *seed        = (*seed * UINT64_C(6364136223846793005)) + UINT64_C(1442695040888963407);
        j            = (size_t)((*seed >> 33) % i);
        other        = order[j];
        order[j]     = order[i - 1];
        order[i - 1] = other;
    }
}

static bool make_pieces(kvcl_weave_piece_t *pieces, size_t n, size_t bytes, char *area)
{
    size_t   *from = calloc(n, sizeof(*from)), *to = calloc(n, sizeof(*to)), i;
    uint64_t seed = 1;
    bool     good = (from != NULL) && (to != NULL);

    if (good) {
        shuffle(from, n, &seed);
        shuffle(to, n, &seed);
        for (i = 0; i < n; ++i) {
            pieces[i] = (kvcl_weave_piece_t){area + TOTAL + (to[i] * bytes), area + (from[i] * bytes), bytes};
        }
    }
    free(from);
    free(to);
    return good;
}

static double once(const perf_way_t *way, const kvcl_weave_piece_t *pieces, size_t n)
{
    uint64_t begin = clock_read(CLOCK_THREAD_CPUTIME_ID);
    size_t   i;

    for (i = 0; i < n; i += BATCH) {
        kvcl_copy_by(way->way, way->kernel, pieces + i, (n - i < BATCH) ? n - i : BATCH);
    }
    way->kernel->end();
    return (double)(clock_read(CLOCK_THREAD_CPUTIME_ID) - begin);
}

/* One row of the table. */
static bool measure(perf_copy_t *copy, perf_copy_row_t *row, char *area, uint64_t rounds)
{
    const size_t       n       = (size_t)(TOTAL / row->bytes);
    kvcl_weave_piece_t *pieces = calloc(n, sizeof(*pieces));
    bool               good    = (pieces != NULL) && make_pieces(pieces, n, (size_t)row->bytes, area);
    uint64_t           round;
    size_t             way;
    double             ns, gbps;

    for (round = 0; good && (round < rounds); ++round) {
        for (way = 0; way < copy->n_ways; ++way) {
            ns             = once(&copy->ways[way], pieces, n);
            gbps           = ((double)n * (double)row->bytes) / ((ns > 0) ? ns : 1);
            row->gbps[way] = (gbps > row->gbps[way]) ? gbps : row->gbps[way];
        }
    }
    free(pieces);
    return good;
}

/* memcpy, then the woven ways of each kernel, the best kernel first. */
static void list_ways(perf_copy_t *copy)
{
    const kvcl_weave_kernel_t *best = kvcl_weave_best();
    unsigned                  way;
    size_t                    i;

    copy->ways[copy->n_ways++] = (perf_way_t){KVCL_COPY_MEMCPY, best};
    for (i = 0; i < kvcl_weave_n_kernels; ++i) {
        for (way = KVCL_COPY_WEAVE1; kvcl_weave_kernels[i].supported() && (way < KVCL_COPY_N_WAYS); ++way) {
            if (copy->n_ways < PERF_WAYS_MAX) {
                copy->ways[copy->n_ways++] = (perf_way_t){way, &kvcl_weave_kernels[i]};
            }
        }
    }
}

const char *perf_way_name(const perf_way_t *way, char buf[PERF_WAY_NAME_MAX])
{
    const char *name = kvcl_copy_way_names[way->way];

    if (way->way == KVCL_COPY_MEMCPY) {
        return name;
    }
    snprintf(buf, PERF_WAY_NAME_MAX, "%s %s", name, way->kernel->name);
    return buf;
}

/* The column of the copy that the library uses: that of the best kernel. */
static size_t chosen_column(const perf_copy_t *copy, const perf_copy_row_t *row)
{
    return kvcl_copy_way(&copy->chosen, (size_t)row->bytes);
}

static void print_json(const perf_copy_t *copy)
{
    char       name[PERF_WAY_NAME_MAX];
    json_out_t json;
    size_t     i, way, chosen;

    json_begin(&json, stdout);
    json_string(&json, "test", "copy");
    json_string(&json, "machine", copy->machine);
    machine_json(&json);
    json_count(&json, "bytes", TOTAL);
    json_open(&json, "rows", '[');
    for (i = 0; i < copy->n_rows; ++i) {
        chosen = chosen_column(copy, &copy->rows[i]);
        json_open(&json, NULL, '{');
        json_count(&json, "unit", copy->rows[i].bytes);
        json_open(&json, "gbps", '{');
        for (way = 0; way < copy->n_ways; ++way) {
            json_real(&json, perf_way_name(&copy->ways[way], name), copy->rows[i].gbps[way], 2);
        }
        json_close(&json, '}');
        json_string(&json, "chosen", perf_way_name(&copy->ways[chosen], name));
        json_real(&json, "ratio", copy->rows[i].gbps[chosen] / copy->rows[i].gbps[0], 2);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_end(&json);
}

static void print_table(const perf_copy_t *copy)
{
    char   name[PERF_WAY_NAME_MAX];
    size_t i, way, chosen;

    printf("machine %s\nGB/s of processor time, %llu MiB in random order\n%-10s", copy->machine,
           (unsigned long long)(TOTAL >> 20), "bytes");
    for (way = 0; way < copy->n_ways; ++way) {
        printf(" %s%s", perf_way_name(&copy->ways[way], name), (way + 1 < copy->n_ways) ? "," : "");
    }
    printf("; used, beside memcpy\n");
    for (i = 0; i < copy->n_rows; ++i) {
        chosen = chosen_column(copy, &copy->rows[i]);
        printf("%-10llu", (unsigned long long)copy->rows[i].bytes);
        for (way = 0; way < copy->n_ways; ++way) {
            printf("%7.2f", copy->rows[i].gbps[way]);
        }
        printf("   %s, %.2f\n", perf_way_name(&copy->ways[chosen], name),
               copy->rows[i].gbps[chosen] / copy->rows[i].gbps[0]);
    }
}

static bool fill(perf_copy_t *copy, const perf_options_t *opt)
{
    const uint64_t rounds = (opt->iters != 0) ? opt->iters : ROUNDS;
    char           *area  = mmap(NULL, 2 * TOTAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool           good   = (area != MAP_FAILED);
    size_t         i;

    for (i = 0; good && (i < 2 * TOTAL); i += PAGE) {
        area[i] = 1;
    }
    for (i = 0; good && (i < sizeof(sizes) / sizeof(sizes[0])); ++i) {
        if ((opt->unit == 0) || (opt->unit == sizes[i])) {
            copy->rows[copy->n_rows].bytes = sizes[i];
            good = measure(copy, &copy->rows[copy->n_rows++], area, rounds);
        }
    }
    if ((copy->n_rows == 0) && good) {
        copy->rows[0].bytes = opt->unit;
        copy->n_rows        = 1;
        good                = measure(copy, &copy->rows[0], area, rounds);
    }
    if (area != MAP_FAILED) {
        (void)munmap(area, 2 * TOTAL);
    }
    return good;
}
_Static_assert(sizeof(sizes) / sizeof(sizes[0]) == PERF_COPY_ROWS_MAX, "a row for each size");

int perf_copy(const perf_options_t *opt)
{
    perf_copy_t copy = {.n_ways = 0};

    list_ways(&copy);
    if (!read_choice(&copy)) {
        return EXIT_FAILURE;
    }
    if (!fill(&copy, opt)) {
        fprintf(stderr, "kvcl_perf: out of memory: copy needs %llu MiB\n", (unsigned long long)(TOTAL >> 19));
        return EXIT_FAILURE;
    }
    if (opt->json) {
        print_json(&copy);
    } else {
        print_table(&copy);
    }
    return ((opt->plot == NULL) || perf_plot(&copy, opt->plot)) ? EXIT_SUCCESS : EXIT_FAILURE;
}
