/*
 * Owns --fit: the reading of measured requests (CSV: tokens, cached, prefill_s; batch, context, step_s; a row may have
 * either half, an empty field is not measured), and the model file that comes of them.
 */
#include "config.h"
#include "tools/sim/study/fit.h"
#include "tools/sim/study/studies.h"
#include "base/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIT_LINE_MAX 4096u
#define HELD_OUT     5u /* each fifth row is not fitted, and tells the error */
#define FEW_ROWS     10u
#define PIECES_MAX   8u    /* lines of decode and decode_from in a model file */
#define BATCH_MOST   65536 /* looked at for decode_from */

enum { TOKENS, CACHED, PREFILL_S, BATCH, CONTEXT, STEP_S, MEASURES, OTHER = MEASURES };

static const char *const measures[MEASURES] = {"tokens", "cached", "prefill_s", "batch", "context", "step_s"};

typedef struct measured {
    const char *path;
    uint64_t   line;
    unsigned   columns[16];
    size_t     n_columns;
    fit_row_t  *prefill;
    size_t     n_prefill;
    fit_row_t  *decode;
    size_t     n_decode;
    size_t     cap;
} measured_t;

static bool complain(const measured_t *m, size_t column, const char *what, const char *text, size_t len)
{
    fprintf(stderr, "%s:%" PRIu64 ":%zu: %s", m->path, m->line, column, what);
    if (text != NULL) {
        fprintf(stderr, " \"%.*s\"", (int)((len < 40) ? len : 40), text);
    }
    fprintf(stderr, "\n");
    return false;
}

/* Columns are missing: where the header has one whose name is near to a missing one's, that is named. */
static bool no_columns(const measured_t *m, const char *line, unsigned have)
{
    char   words[160], hint[48] = "";
    size_t column = 1, at = 0, i, k, len, distance, least = SIZE_MAX;

    for (k = 0; k < m->n_columns; ++k, at += len + 1) {
        len = strcspn(line + at, ",\r\n");
        for (i = 0; (m->columns[k] == OTHER) && (i < MEASURES); ++i) {
            distance = ((have & (1u << i)) == 0) ? kvcl_edit_distance(line + at, len, measures[i]) : SIZE_MAX;
            if ((distance <= (len + 1) / 3) && (distance < least)) {
                least  = distance;
                column = at + 1;
                snprintf(hint, sizeof(hint), "; is it %s?", measures[i]);
            }
        }
    }
    snprintf(words, sizeof(words), "the header needs the columns tokens, cached, prefill_s, or batch, context, "
             "step_s%s", hint);
    return complain(m, column, words, NULL, 0);
}

static bool read_names(measured_t *m, const char *line)
{
    const char *text = line;
    unsigned   have  = 0;
    size_t     len, i;

    for (;;) {
        len = strcspn(text, ",\r\n");
        for (i = 0; (i < MEASURES) && ((strlen(measures[i]) != len) || (strncmp(measures[i], text, len) != 0)); ++i) {
        }
        if ((m->n_columns == 16) || ((i < MEASURES) && ((have & (1u << i)) != 0))) {
            return complain(m, (size_t)(text - line) + 1, (m->n_columns == 16) ? "too many columns at"
                                                                               : "a second column", text, len);
        }
        have |= 1u << i;
        m->columns[m->n_columns++] = (unsigned)i;
        text += len;
        if (*text != ',') {
            break;
        }
        ++text;
    }
    if (((have & 7u) == 7u) || ((have & 0x38u) == 0x38u)) {
        return true;
    }
    return no_columns(m, line, have);
}

static bool reserve_rows(measured_t *m)
{
    const size_t cap = (m->cap != 0) ? m->cap * 2 : 1024;
    fit_row_t    *rows;

    if ((m->n_prefill < m->cap) && (m->n_decode < m->cap)) {
        return true;
    }
    rows       = realloc(m->prefill, cap * sizeof(*rows));
    m->prefill = (rows != NULL) ? rows : m->prefill;
    if (rows == NULL) {
        return false;
    }
    rows      = realloc(m->decode, cap * sizeof(*rows));
    m->decode = (rows != NULL) ? rows : m->decode;
    m->cap    = (rows != NULL) ? cap : m->cap;
    return rows != NULL;
}

static void take_row(measured_t *m, const double *v)
{
    if (!isnan(v[TOKENS]) && !isnan(v[CACHED]) && (v[PREFILL_S] > 0)) {
        const double fresh = v[TOKENS] - v[CACHED];

        m->prefill[m->n_prefill++] = (fit_row_t){{1, fresh, fresh * (v[TOKENS] + v[CACHED]), v[CACHED]}, v[PREFILL_S]};
    }
    if (!isnan(v[BATCH]) && !isnan(v[CONTEXT]) && (v[STEP_S] > 0)) {
        m->decode[m->n_decode++] = (fit_row_t){{1, v[BATCH], v[CONTEXT], 0}, v[STEP_S]};
    }
}

static bool read_values(measured_t *m, const char *line)
{
    const char *text = line;
    double     v[MEASURES + 1];
    char       *end;
    size_t     i, len;

    for (i = 0; i <= MEASURES; ++i) {
        v[i] = NAN;
    }
    for (i = 0; i < m->n_columns; ++i) {
        len = strcspn(text, ",\r\n");
        if ((len != 0) && (m->columns[i] != OTHER)) {
            v[m->columns[i]] = strtod(text, &end);
            if ((end != text + len) || !isfinite(v[m->columns[i]]) || (v[m->columns[i]] < 0)) {
                return complain(m, (size_t)(text - line) + 1, "not a number of 0 or more:", text, len);
            }
        }
        text += len;
        if ((*text == ',') != (i + 1 < m->n_columns)) {
            return complain(m, (size_t)(text - line) + 1, "another number of fields than in the header", NULL, 0);
        }
        text += (*text == ',') ? 1 : 0;
    }
    if (v[CACHED] > v[TOKENS]) {
        return complain(m, 1, "more tokens cached than there are", NULL, 0);
    }
    if (!reserve_rows(m)) {
        return complain(m, 1, "out of memory", NULL, 0);
    }
    take_row(m, v);
    return true;
}

static bool read_measured(measured_t *m, FILE *file)
{
    char line[FIT_LINE_MAX];

    while (fgets(line, sizeof(line), file) != NULL) {
        ++m->line;
        if ((strchr(line, '\n') == NULL) && !feof(file)) {
            return complain(m, FIT_LINE_MAX, "the line is too long", NULL, 0);
        }
        if (line[strspn(line, " \t\r\n")] == '\0') {
            continue;
        }
        if (!((m->n_columns == 0) ? read_names(m, line) : read_values(m, line))) {
            return false;
        }
    }
    if ((m->n_prefill < FEW_ROWS) && (m->n_decode < FEW_ROWS)) {
        return complain(m, 1, "fewer than 10 measurements of either kind", NULL, 0);
    }
    return true;
}

/* Fit without the rows held out, tell the error on these, then print the line of all rows. */
static bool put_part(FILE *file, const char *word, const fit_row_t *rows, size_t n, size_t n_terms)
{
    double c[FIT_TERMS] = {0, 0, 0, 0}, error;
    size_t i;

    if ((n < FEW_ROWS) || !fit_solve(rows, n, n_terms, HELD_OUT, 0, c)) {
        return false;
    }
    error = fit_error(rows, n, n_terms, c, HELD_OUT, 0);
    fprintf(stderr, "%s: %zu measurements, %zu of them held out; 9 of 10 of these are within %.1f%%\n", word, n,
            (n + HELD_OUT - 1) / HELD_OUT, 100 * error);
    if (!fit_solve(rows, n, n_terms, 0, 0, c)) {
        return false;
    }
    fprintf(file, "%s", word);
    for (i = 0; i < n_terms; ++i) {
        fprintf(file, " %.9g", c[i]);
    }
    fprintf(file, "\n%s_error %.4g\n", word, fmax(error, 1e-4));
    return true;
}

typedef struct piece {
    double from, base, batch, context;
} piece_t;

static bool line_at(kvcl_sched_model_h model, double batch, double *base_p, double *context_p)
{
    *base_p = *context_p = 0;
    return (kvcl_sched_model_decode_line(model, batch, base_p, context_p) == KVCL_OK) && (*base_p + *context_p > 0);
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* The constants that hold from this batch on, until the other model departs from them. */
static bool piece_at(kvcl_sched_model_h model, double batch, piece_t *piece)
{
    double base, next, context;

    if (!line_at(model, batch, &base, &piece->context) || !line_at(model, batch + 1, &next, &context)) {
        return false;
    }
    piece->from  = batch;
    piece->batch = fmax(next - base, 0);
    piece->base  = fmax(base - (batch * piece->batch), 0);
    return true;
}

/* @return how many pieces; one more than PIECES_MAX for a table, whose lines no few pieces hold. */
static size_t pieces_of(kvcl_sched_model_h model, piece_t *pieces)
{
    double batch, base, context;
    size_t n = piece_at(model, 1, &pieces[0]) ? 1 : 0;

    for (batch = 2; (n != 0) && (n <= PIECES_MAX) && (batch <= BATCH_MOST); ++batch) {
        if (line_at(model, batch, &base, &context) &&
            !(is_near(context, pieces[n - 1].context) &&
              is_near(base, pieces[n - 1].base + (batch * pieces[n - 1].batch)))) {
            n += piece_at(model, batch, &pieces[n]) ? 1 : 0;
        }
    }
    return n;
}

/* The decode step of the other model. Of a table: its two lines at a batch of 1 and of 2. */
static void put_decode_of(FILE *file, kvcl_sched_model_h model, double error)
{
    piece_t pieces[PIECES_MAX + 1];
    size_t  n = pieces_of(model, pieces), i;

    n = (n <= PIECES_MAX) ? n : 1;
    for (i = 0; i < n; ++i) {
        if (i == 0) {
            fprintf(file, "decode");
        } else {
            fprintf(file, "decode_from %.0f", pieces[i].from);
        }
        fprintf(file, " %.9g %.9g %.9g\n", pieces[i].base, pieces[i].batch, pieces[i].context);
    }
    if ((n != 0) && (error >= 0)) {
        fprintf(file, "decode_error %.4g\n", error);
    }
}

/* The prefill formula of the other model, from four points; exact if it has one. */
static void put_prefill_of(FILE *file, kvcl_sched_model_h model, double error)
{
    fit_row_t rows[24];
    double    c[FIT_TERMS], n, p;
    size_t    i;

    for (i = 0; i < 24; ++i) {
        n       = (double)(1024 << (i % 8));
        p       = n * (double)(i / 8) / 3;
        rows[i] = (fit_row_t){{1, n - p, (n - p) * (n + p), p}, kvcl_sched_model_prefill(model, n, p).seconds};
        if (rows[i].y <= 0) {
            return;
        }
    }
    if (fit_solve(rows, 24, 4, 0, 0, c)) {
        fprintf(file, "prefill %.9g %.9g %.9g %.9g\n", c[0], c[1], c[2], c[3]);
        if (error >= 0) {
            fprintf(file, "prefill_error %.4g\n", error);
        }
    }
}

static void put_item(FILE *file, const char *word, double value)
{
    if (value > 0) {
        fprintf(file, "%s %.9g\n", word, value);
    }
}

static void put_count(FILE *file, const char *word, uint64_t value)
{
    if (value > 0) {
        fprintf(file, "%s %" PRIu64 "\n", word, value);
    }
}

static void put_rest(FILE *file, const kvcl_sched_model_info_t *info)
{
    put_item(file, "kv_bytes", info->kv_bytes);
    put_count(file, "kv_tokens", info->kv_tokens);
    put_count(file, "pool_tokens", info->pool_tokens);
    put_count(file, "max_batch", info->max_batch);
    put_item(file, "nic", info->nic_bytes_s);
    put_item(file, "load", info->load_bytes_s);
    put_item(file, "schedule", info->schedule_s);
    put_item(file, "stall", info->stall);
    put_item(file, "start", info->stage_s);
    if (info->transfer_error >= 0) {
        fprintf(file, "transfer_error %.4g\n", info->transfer_error);
    }
}

static bool put_model(FILE *file, const measured_t *m, kvcl_sched_model_h rest)
{
    kvcl_sched_model_info_t info = KVCL_SCHED_MODEL_INFO_INIT;

    if (kvcl_sched_model_info(rest, &info) != KVCL_OK) {
        return false;
    }
    fprintf(file, "kvcl-model 1\nname fitted\nsource %s; the rest: %s\n", m->path, kvcl_sched_model_source(rest));
    if (!put_part(file, "prefill", m->prefill, m->n_prefill, 4)) {
        put_prefill_of(file, rest, info.prefill_error);
    }
    if (!put_part(file, "decode", m->decode, m->n_decode, 3)) {
        put_decode_of(file, rest, info.decode_error);
    }
    put_rest(file, &info);
    return ferror(file) == 0;
}

static bool write_model(const sim_options_t *opt, const measured_t *m)
{
    FILE *file = (opt->out != NULL) ? fopen(opt->out, "w") : stdout;
    bool good;

    if (file == NULL) {
        fprintf(stderr, "kvcl_sim: --out %s: %s\n", opt->out, strerror(errno));
        return false;
    }
    good = put_model(file, m, opt->config.model);
    if (opt->out != NULL) {
        good = (fclose(file) == 0) && good;
    }
    if (!good) {
        fprintf(stderr, "kvcl_sim: --fit: the model could not be written\n");
    }
    return good;
}

bool study_fit(const sim_options_t *opt)
{
    measured_t m     = {.path = opt->fit};
    FILE       *file = fopen(opt->fit, "r");
    bool       good;

    if (file == NULL) {
        fprintf(stderr, "kvcl_sim: --fit %s: %s\n", opt->fit, strerror(errno));
        return false;
    }
    good = read_measured(&m, file) && write_model(opt, &m);
    fclose(file);
    free(m.prefill);
    free(m.decode);
    return good;
}
