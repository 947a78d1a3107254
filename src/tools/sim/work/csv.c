/*
 * Owns the reading of CSV: a header that names columns, then one request a line. Fields are numbers; columns of other
 * names are skipped. Text is hostile: lines are bounded, and an error states line and column.
 */
#include "config.h"
#include "tools/sim/work/work.h"
#include "base/nearest.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CSV_LINE_MAX    65536u
#define CSV_COLUMNS_MAX 64u

typedef enum csv_column { CSV_ARRIVAL, CSV_IN, CSV_OUT, CSV_CLASS, CSV_OTHER } csv_column_t;

typedef struct csv_name {
    const char   *name;
    csv_column_t column;
} csv_name_t;

static const csv_name_t names[] = {
    {"arrival", CSV_ARRIVAL}, {"arrived_at", CSV_ARRIVAL}, {"timestamp", CSV_ARRIVAL}, {"time", CSV_ARRIVAL},
    {"in", CSV_IN}, {"input", CSV_IN}, {"input_length", CSV_IN}, {"contexttokens", CSV_IN},
    {"num_prefill_tokens", CSV_IN}, {"out", CSV_OUT}, {"output", CSV_OUT}, {"output_length", CSV_OUT},
    {"generatedtokens", CSV_OUT}, {"num_decode_tokens", CSV_OUT}, {"class", CSV_CLASS}};

typedef struct csv {
    const char   *path;
    uint64_t     line;
    char         *error;
    csv_column_t columns[CSV_COLUMNS_MAX];
    size_t       n_columns;
} csv_t;

static bool fail(const csv_t *csv, size_t column, const char *format, ...)
{
    va_list args;
    int     n = snprintf(csv->error, WORK_ERROR_MAX, "%s:%" PRIu64 ":%zu: ", csv->path, csv->line, column);

    if ((n > 0) && ((size_t)n < WORK_ERROR_MAX)) {
        va_start(args, format);
        vsnprintf(csv->error + n, WORK_ERROR_MAX - (size_t)n, format, args);
        va_end(args);
    }
    return false;
}

/* The field at text, without blanks around it; its length. */
static size_t field_at(const char **text_p)
{
    size_t len;

    *text_p += strspn(*text_p, " \t");
    len = strcspn(*text_p, ",\r\n");
    while ((len > 0) && (((*text_p)[len - 1] == ' ') || ((*text_p)[len - 1] == '\t'))) {
        --len;
    }
    return len;
}

static csv_column_t column_of(const char *text, size_t len)
{
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if ((strlen(names[i].name) == len) && (strncasecmp(names[i].name, text, len) == 0)) {
            return names[i].column;
        }
    }
    return CSV_OTHER;
}

/* The name of the column that is nearest to text, if one is near: a third of its length away. */
static bool nearest_of(csv_column_t column, const char *text, size_t len, const char **name_p, size_t *distance_p)
{
    size_t i, k, distance;
    char   lower[64];

    if (len >= sizeof(lower)) {
        return false;
    }
    for (k = 0; k < len; ++k) {
        lower[k] = (char)tolower((unsigned char)text[k]);
    }
    *distance_p = 1 + ((len + 1) / 3);
    *name_p     = NULL;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        distance = (names[i].column == column) ? kvcl_edit_distance(lower, len, names[i].name) : SIZE_MAX;
        if (distance < *distance_p) {
            *distance_p = distance;
            *name_p     = names[i].name;
        }
    }
    return *name_p != NULL;
}

/* No field of the header is the column: says which one is nearest to a name of it, if one is near. */
static bool no_column(const csv_t *csv, const char *line, csv_column_t column)
{
    static const char *const first[] = {"arrival", "in", "out"};
    const char               *text   = line, *at = NULL, *name = NULL;
    size_t                   least   = SIZE_MAX, at_len = 0, len, distance, i;

    for (i = 0; i < csv->n_columns; ++i) {
        len = field_at(&text);
        if ((csv->columns[i] == CSV_OTHER) && nearest_of(column, text, len, &name, &distance) && (distance < least)) {
            least  = distance;
            at     = text;
            at_len = len;
        }
        text += strcspn(text, ",\r\n") + 1;
    }
    if (at == NULL) {
        return fail(csv, 1, "the header names no column \"%s\"", first[column]);
    }
    (void)nearest_of(column, at, at_len, &name, &distance);
    return fail(csv, (size_t)(at - line) + 1, "the header names no column \"%s\": is \"%.*s\" to be \"%s\"?",
                first[column], (int)at_len, at, name);
}

static bool read_header(csv_t *csv, const char *line)
{
    const char *text = line;
    unsigned   have = 0;
    size_t     len;

    for (;;) {
        len = field_at(&text);
        if (csv->n_columns == CSV_COLUMNS_MAX) {
            return fail(csv, (size_t)(text - line) + 1, "more than %u columns", CSV_COLUMNS_MAX);
        }
        csv->columns[csv->n_columns] = column_of(text, len);
        if ((csv->columns[csv->n_columns] != CSV_OTHER) && ((have & (1u << csv->columns[csv->n_columns])) != 0)) {
            return fail(csv, (size_t)(text - line) + 1, "a second column \"%.*s\"", (int)((len < 40) ? len : 40), text);
        }
        have |= 1u << csv->columns[csv->n_columns++];
        text += strcspn(text, ",\r\n");
        if (*text != ',') {
            break;
        }
        ++text;
    }
    return ((have & 7u) == 7u) ? true : no_column(csv, line, ((have & 1u) == 0) ? CSV_ARRIVAL
                                                             : ((have & 2u) == 0) ? CSV_IN : CSV_OUT);
}

static bool read_field(csv_t *csv, const char *line, const char *text, size_t len, csv_column_t column,
                       work_request_t *request)
{
    static const double most[] = {1e9, WORK_INPUT_MAX, WORK_INPUT_MAX, 31};
    char                *end;
    const double        value = strtod(text, &end);

    if (column == CSV_OTHER) {
        return true;
    }
    if ((len == 0) || (end != text + len)) {
        return fail(csv, (size_t)(text - line) + 1, "\"%.*s\" is not a number", (int)((len < 40) ? len : 40), text);
    }
    if (!(value >= 0) || (value > most[column])) {
        return fail(csv, (size_t)(text - line) + 1, "%.*s is not within 0..%.0f", (int)((len < 40) ? len : 40), text,
                    most[column]);
    }
    switch (column) {
    case CSV_ARRIVAL:
        request->arrival = value;
        break;
    case CSV_IN:
        request->input = (value >= 1) ? (uint32_t)value : 1;
        break;
    case CSV_OUT:
        request->output = (value >= 1) ? (uint32_t)value : 1;
        break;
    default:
        request->klass = (uint32_t)value;
        break;
    }
    return true;
}

static bool read_row(csv_t *csv, const char *line, work_request_t *request)
{
    const char *text = line;
    size_t     len, i;

    for (i = 0; i < csv->n_columns; ++i) {
        len = field_at(&text);
        if (!read_field(csv, line, text, len, csv->columns[i], request)) {
            return false;
        }
        text += strcspn(text, ",\r\n");
        if ((*text == ',') != (i + 1 < csv->n_columns)) {
            return fail(csv, (size_t)(text - line) + 1, "%s fields than the header's %zu",
                        (*text == ',') ? "more" : "fewer", csv->n_columns);
        }
        text += (*text == ',') ? 1 : 0;
    }
    return true;
}

/* The blocks of a request are its own: a CSV says nothing of prefixes. */
static bool add_row(work_t *work, work_request_t *request, uint32_t *blocks)
{
    uint32_t i;

    request->n = (request->input + WORK_BLOCK_TOKENS - 1) / WORK_BLOCK_TOKENS;
    if (work->distinct > UINT32_MAX - request->n - 1) {
        return false;
    }
    for (i = 0; i < request->n; ++i) {
        blocks[i] = work->distinct + i;
    }
    return work_add(work, request, blocks);
}

static bool read_rows(csv_t *csv, work_t *work, FILE *file, size_t most, char *line, uint32_t *blocks)
{
    work_request_t request;
    bool           header = true;

    while ((fgets(line, CSV_LINE_MAX, file) != NULL) && ((most == 0) || (work->n < most))) {
        ++csv->line;
        if ((strchr(line, '\n') == NULL) && !feof(file)) {
            return fail(csv, CSV_LINE_MAX, "longer than %u bytes", CSV_LINE_MAX - 2);
        }
        if (line[strspn(line, " \t\r\n")] == '\0') {
            continue;
        }
        request = (work_request_t){.session = WORK_NONE};
        if (header) {
            if (!read_header(csv, line)) {
                return false;
            }
            header = false;
        } else if (!read_row(csv, line, &request)) {
            return false;
        } else if (!add_row(work, &request, blocks)) {
            return fail(csv, 1, "out of memory");
        }
    }
    ++csv->line;
    return (work->n != 0) ? true : fail(csv, 1, "no requests in it");
}

bool work_read_csv(work_t *work, FILE *file, const char *path, size_t most, char *error)
{
    csv_t    csv     = {.path = path, .error = error};
    char     *line   = malloc(CSV_LINE_MAX);
    uint32_t *blocks = malloc((WORK_INPUT_MAX / WORK_BLOCK_TOKENS) * sizeof(*blocks));
    bool     good;

    good = ((line != NULL) && (blocks != NULL)) ? read_rows(&csv, work, file, most, line, blocks)
                                                : fail(&csv, 1, "out of memory");
    free(line);
    free(blocks);
    if (!good) {
        work_free(work);
    }
    return good;
}
