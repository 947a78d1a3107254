/*
 * Owns the arrays of a trace and the reading of a file in bounded lines: a line longer than TRACE_LINE_MAX is reported
 * and skipped without being stored, at any length.
 */
#include "config.h"
#include "tools/replay/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REPORTS_MAX 20u

typedef struct loader {
    trace_t    *trace;
    const char *path;
    FILE       *report;
    FILE       *file;
    uint64_t   line_no;
    uint64_t   *ids;
    char       *line; /* TRACE_LINE_MAX bytes */
    bool       strict;
} loader_t;

typedef enum line_result {
    LINE_GOOD,
    LINE_LONG,
    LINE_END,  /* of the file */
    LINE_ERROR /* errno is set */
} line_result_t;

void trace_init(trace_t *trace)
{
    memset(trace, 0, sizeof(*trace));
}

void trace_free(trace_t *trace)
{
    free(trace->requests);
    free(trace->ids);
    trace_init(trace);
}

/* Room for need items of size bytes; doubles. */
static bool reserve(void **array_p, size_t *cap_p, size_t need, size_t size)
{
    size_t cap = (*cap_p != 0) ? *cap_p : 1024;
    void   *array;

    if (need <= *cap_p) {
        return true;
    }
    while (cap < need) {
        cap *= 2;
    }
    array = realloc(*array_p, cap * size);
    if (array == NULL) {
        return false;
    }
    *array_p = array;
    *cap_p   = cap;
    return true;
}

bool trace_add(trace_t *trace, const trace_request_t *request, const uint64_t *ids, uint32_t n)
{
    trace_request_t *added;

    if ((trace->n_ids + n > UINT32_MAX) ||
        !reserve((void **)&trace->requests, &trace->cap_requests, trace->n_requests + 1, sizeof(*trace->requests)) ||
        !reserve((void **)&trace->ids, &trace->cap_ids, trace->n_ids + n, sizeof(*trace->ids))) {
        return false;
    }
    added        = &trace->requests[trace->n_requests++];
    *added       = *request;
    added->first = trace->n_ids;
    added->n     = n;
    if (n != 0) {
        memcpy(trace->ids + trace->n_ids, ids, n * sizeof(*ids));
    }
    trace->n_ids += n;
    trace->longest = (n > trace->longest) ? n : trace->longest;
    return true;
}

/* The next line without its newline. A line that does not fit is read to its end and dropped. */
static line_result_t read_line(loader_t *load, size_t *len_p)
{
    size_t len = 0;
    int    byte;

    while (((byte = getc_unlocked(load->file)) != EOF) && (byte != '\n')) {
        if (len < TRACE_LINE_MAX) {
            load->line[len] = (char)byte;
        }
        ++len;
    }
    if (ferror(load->file)) {
        return LINE_ERROR;
    }
    if ((byte == EOF) && (len == 0)) {
        return LINE_END;
    }
    *len_p = len;
    return (len > TRACE_LINE_MAX) ? LINE_LONG : LINE_GOOD;
}

static bool is_blank(const char *line, size_t len)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        if ((line[i] != ' ') && (line[i] != '\t') && (line[i] != '\r')) {
            return false;
        }
    }
    return true;
}

/* Report a bad line. @return whether to continue. */
static bool bad_line(loader_t *load, const char *error)
{
    const uint64_t n = ++load->trace->skipped_lines;

    if ((load->report != NULL) && (n <= REPORTS_MAX)) {
        fprintf(load->report, "%s:%" PRIu64 ": %s%s\n", load->path, load->line_no, error,
                load->strict ? "" : " (skipped)");
    }
    return !load->strict;
}

static bool no_memory(loader_t *load)
{
    if (load->report != NULL) {
        fprintf(load->report, "%s:%" PRIu64 ": out of memory\n", load->path, load->line_no);
    }
    return false;
}

static bool load_lines(loader_t *load)
{
    char            error[TRACE_ERROR_MAX];
    trace_request_t request;
    line_result_t   result;
    size_t          len = 0;

    for (;;) {
        ++load->line_no;
        result = read_line(load, &len);
        if ((result == LINE_END) || (result == LINE_ERROR)) {
            return result == LINE_END;
        }
        if (result == LINE_LONG) {
            snprintf(error, sizeof(error), "longer than %u bytes", TRACE_LINE_MAX);
        } else if (is_blank(load->line, len)) {
            continue;
        } else if (trace_parse_line(load->line, len, &request, load->ids, error)) {
            if (!trace_add(load->trace, &request, load->ids, request.n)) {
                return no_memory(load);
            }
            continue;
        }
        if (!bad_line(load, error)) {
            return false;
        }
    }
}

/* Opened, read, and not empty. */
static bool load_file(loader_t *load)
{
    struct stat info;
    bool        good;

    load->file = fopen(load->path, "r");
    if ((load->file != NULL) && (fstat(fileno(load->file), &info) == 0) && S_ISDIR(info.st_mode)) {
        fclose(load->file);
        load->file = NULL;
        errno      = EISDIR;
    }
    if (load->file == NULL) {
        if (load->report != NULL) {
            fprintf(load->report, "kvcl_replay: --trace %s: %s\n", load->path, strerror(errno));
        }
        return false;
    }
    good = load_lines(load);
    if (ferror(load->file) && (load->report != NULL)) {
        fprintf(load->report, "%s:%" PRIu64 ": %s\n", load->path, load->line_no, strerror(errno));
    }
    fclose(load->file);
    return good;
}

bool trace_load(trace_t *trace, const char *path, bool strict, FILE *report)
{
    loader_t load = {.trace = trace, .path = path, .report = report, .strict = strict};
    bool     good = false;

    load.ids  = malloc(TRACE_IDS_MAX * sizeof(*load.ids));
    load.line = malloc(TRACE_LINE_MAX);
    if ((load.ids == NULL) || (load.line == NULL)) {
        good = no_memory(&load);
    } else {
        good = load_file(&load);
    }
    free(load.ids);
    free(load.line);
    if (good && (report != NULL) && (trace->skipped_lines > REPORTS_MAX)) {
        fprintf(report, "%s: %" PRIu64 " bad lines in total\n", path, trace->skipped_lines);
    }
    if (good && (trace->n_requests == 0)) {
        if (report != NULL) {
            fprintf(report, "kvcl_replay: --trace %s: no requests in it\n", path);
        }
        good = false;
    }
    return good;
}
