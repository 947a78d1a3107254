/*
 * The table of algorithms: parser, printer, look-up; the grammar is in select.h.
 *
 * Why these defaults: over shared memory a pull is a memcpy by the puller, so all ranks pull at once from
 * the root (flat, or in pieces that fit a stage) until the root's memory is the limit; then a chain, whose links read
 * different memory. Over a network short messages go by the fewest rounds, long ones by the busiest links.
 */
#include "config.h"

#include "collectives/select.h"

#include "base/error.h"
#include "base/units.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char kvcl_coll_default_table[] = "bcast:shm:0-inf:flat:0-17,"
                                       "bcast:stage:8K-inf:pieces:0-17,"
                                       "bcast:any:0-256K:binomial,"
                                       "bcast:any:256K-inf:chain,"
                                       "barrier:any:0-inf:dissemination,"
                                       "allgather:any:0-32K:bruck,"
                                       "allgather:any:32K-inf:direct:0-17,"
                                       "allgather:any:32K-inf:ring,"
                                       "allreduce:any:0-16K:doubling,"
                                       "allreduce:any:16K-inf:direct:0-17,"
                                       "allreduce:any:16K-inf:ring,"
                                       "reduce_scatter:any:0-inf:pairwise,"
                                       "alltoall:any:0-inf:pairwise,"
                                       "alltoallv:any:0-inf:pairwise,"
                                       "gather:any:0-inf:flat,"
                                       "scatter:any:0-inf:flat";

enum { FIELD_MAX = 32, FIELDS_MIN = 4, FIELDS_MAX = 5, ACCEPTED_MAX = 256 };

typedef struct field {
    char   text[FIELD_MAX];
    size_t position; /* of its first character, from 1 */
} field_t;

/* Append to a NUL-terminated buffer, cut at len. */
static void append(char *buf, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void append(char *buf, size_t len, const char *fmt, ...)
{
    size_t  used = strlen(buf);
    va_list args;

    va_start(args, fmt);
    vsnprintf(buf + used, len - used, fmt, args);
    va_end(args);
}

static kvcl_status_t refuse(const field_t *field, const char *accepted)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "table of algorithms, character %zu: '%s' is not %s", field->position,
                     field->text, accepted);
}

/* Copy [*text_p, next ':' or ',' or end) without blanks around; *text_p stops at the delimiter. */
static kvcl_status_t take_field(const char *start, const char **text_p, field_t *field)
{
    const char *c = *text_p, *end;
    size_t      len;

    while (isspace((unsigned char)*c)) {
        ++c;
    }
    len     = strcspn(c, ":,");
    end     = c + len;
    *text_p = end;
    while ((len > 0) && isspace((unsigned char)c[len - 1])) {
        --len;
    }
    field->position = (size_t)(c - start) + 1;
    snprintf(field->text, sizeof(field->text), "%.*s", (int)((len < FIELD_MAX) ? len : (FIELD_MAX - 1)), c);
    return (len < FIELD_MAX) ? KVCL_OK : refuse(field, "a field (too long)");
}

static kvcl_status_t parse_kind(const field_t *field, kvcl_coll_kind_t *kind_p)
{
    char     accepted[ACCEPTED_MAX] = "a collective:";
    unsigned i;

    for (i = 0; i < KVCL_COLL_COUNT; ++i) {
        if (strcmp(field->text, kvcl_coll_kind_name((kvcl_coll_kind_t)i)) == 0) {
            *kind_p = (kvcl_coll_kind_t)i;
            return KVCL_OK;
        }
        append(accepted, sizeof(accepted), " %s", kvcl_coll_kind_name((kvcl_coll_kind_t)i));
    }
    return refuse(field, accepted);
}

static kvcl_status_t parse_path(const field_t *field, int *path_p)
{
    static const struct {
        const char *name;
        int         path;
    } paths[] = {{"shm", KVCL_COLL_PATH_SHM}, {"net", KVCL_COLL_PATH_NET}, {"stage", KVCL_COLL_PATH_STAGE},
                 {"any", -1}};
    size_t i;

    for (i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
        if (strcmp(field->text, paths[i].name) == 0) {
            *path_p = paths[i].path;
            return KVCL_OK;
        }
    }
    return refuse(field, "a path: shm net stage any");
}

static kvcl_status_t parse_range(const field_t *field, uint64_t *from_p, uint64_t *to_p)
{
    char  from[FIELD_MAX];
    char *dash;

    memcpy(from, field->text, sizeof(from));
    dash = strchr(from, '-');
    if (dash != NULL) {
        *dash = '\0';
    }
    if ((dash == NULL) || (kvcl_size_parse(from, from_p) != KVCL_OK) || (kvcl_size_parse(dash + 1, to_p) != KVCL_OK) ||
        (*from_p >= *to_p)) {
        return refuse(field, "a range from-to, as 0-256K or 1M-inf");
    }
    return KVCL_OK;
}

static kvcl_status_t parse_alg(const field_t *field, kvcl_coll_kind_t kind, const kvcl_coll_alg_t **alg_p)
{
    char                   accepted[ACCEPTED_MAX];
    const kvcl_coll_alg_t *alg;
    size_t                 i;

    *alg_p = kvcl_coll_alg_find(kind, field->text);
    if (*alg_p != NULL) {
        return KVCL_OK;
    }
    snprintf(accepted, sizeof(accepted), "an algorithm of %s:", kvcl_coll_kind_name(kind));
    for (i = 0; (alg = kvcl_coll_alg_at(i)) != NULL; ++i) {
        if (alg->kind == kind) {
            append(accepted, sizeof(accepted), " %s", alg->name);
        }
    }
    return refuse(field, accepted);
}

static kvcl_status_t parse_row(const field_t *fields, size_t n, kvcl_coll_row_t *row)
{
    kvcl_coll_kind_t kind = KVCL_COLL_COUNT;
    kvcl_status_t    status;

    row->ranks_from = 0;
    row->ranks_to   = KVCL_UNLIMITED;
    status          = parse_kind(&fields[0], &kind);
    if (status == KVCL_OK) {
        status = parse_path(&fields[1], &row->path);
    }
    if (status == KVCL_OK) {
        status = parse_range(&fields[2], &row->bytes_from, &row->bytes_to);
    }
    if (status == KVCL_OK) {
        status = parse_alg(&fields[3], kind, &row->alg);
    }
    if ((status == KVCL_OK) && (n == FIELDS_MAX)) {
        status = parse_range(&fields[4], &row->ranks_from, &row->ranks_to);
    }
    return status;
}

/* One row; *text_p stops at its comma or at the end. */
static kvcl_status_t take_row(const char *start, const char **text_p, kvcl_coll_row_t *row)
{
    field_t       fields[FIELDS_MAX];
    kvcl_status_t status;
    size_t        n = 0;

    for (;;) {
        status = take_field(start, text_p, &fields[n]);
        if (status != KVCL_OK) {
            return status;
        }
        ++n;
        if ((**text_p != ':') || (n == FIELDS_MAX)) {
            break;
        }
        ++*text_p;
    }
    if ((n < FIELDS_MIN) || (**text_p == ':')) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "table of algorithms, character %zu: the row has %s fields, it is "
                         "collective:path:bytes:algorithm[:ranks], as bcast:net:0-256K:binomial", fields[0].position,
                         (n < FIELDS_MIN) ? "too few" : "too many");
    }
    return parse_row(fields, n, row);
}

static kvcl_status_t append_rows(const char *text, kvcl_coll_table_t *table)
{
    const char   *c = text;
    kvcl_status_t status;

    for (;;) {
        if (table->count == KVCL_COLL_TABLE_ROWS) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "table of algorithms, character %zu: more than %d rows, the "
                             "built-in ones included", (size_t)(c - text) + 1, KVCL_COLL_TABLE_ROWS);
        }
        status = take_row(text, &c, &table->rows[table->count]);
        if (status != KVCL_OK) {
            return status;
        }
        ++table->count;
        if (*c == '\0') {
            return KVCL_OK;
        }
        ++c;
    }
}

kvcl_status_t kvcl_coll_table_parse(const char *text, kvcl_coll_table_t *table)
{
    kvcl_coll_table_t parsed = {.count = 0};
    kvcl_status_t     status = KVCL_OK;

    if ((text != NULL) && (text[strspn(text, " \t\n")] != '\0')) {
        status = append_rows(text, &parsed);
    }
    if (status == KVCL_OK) {
        status = append_rows(kvcl_coll_default_table, &parsed);
    }
    if (status == KVCL_OK) {
        *table = parsed;
    }
    return status;
}

/* Exact, unlike kvcl_size_format: what is printed must parse back to the same table. */
static void append_bound(char *buf, size_t len, uint64_t bound)
{
    static const char units[] = "KMGT";
    const char       *unit    = NULL;

    if (bound == KVCL_UNLIMITED) {
        append(buf, len, "inf");
        return;
    }
    while ((bound > 0) && (bound % 1024 == 0) && ((unit == NULL) || (unit[1] != '\0'))) {
        bound /= 1024;
        unit = (unit == NULL) ? units : (unit + 1);
    }
    append(buf, len, (unit == NULL) ? "%llu" : "%llu%c", (unsigned long long)bound, (unit == NULL) ? 0 : *unit);
}

const char *kvcl_coll_table_format(const kvcl_coll_table_t *table, const char *separator, char *buf, size_t len)
{
    uint32_t i;

    buf[0] = '\0';
    for (i = 0; i < table->count; ++i) {
        const kvcl_coll_row_t *row = &table->rows[i];

        append(buf, len, "%s%s:%s:", (i > 0) ? separator : "", kvcl_coll_kind_name(row->alg->kind),
               (row->path < 0) ? "any" : kvcl_coll_path_name((kvcl_coll_path_t)row->path));
        append_bound(buf, len, row->bytes_from);
        append(buf, len, "-");
        append_bound(buf, len, row->bytes_to);
        append(buf, len, ":%s", row->alg->name);
        if ((row->ranks_from > 0) || (row->ranks_to != KVCL_UNLIMITED)) {
            append(buf, len, ":%llu-", (unsigned long long)row->ranks_from);
            append_bound(buf, len, row->ranks_to);
        }
    }
    return buf;
}

static int is_within(uint64_t x, uint64_t from, uint64_t to)
{
    return (x >= from) && ((x < to) || (to == KVCL_UNLIMITED));
}

const kvcl_coll_alg_t *kvcl_coll_select(const kvcl_coll_table_t *table, kvcl_coll_kind_t kind,
                                        const kvcl_coll_shape_t *shape)
{
    uint32_t i;

    for (i = 0; i < table->count; ++i) {
        const kvcl_coll_row_t *row = &table->rows[i];

        if ((row->alg->kind == kind) && ((row->path < 0) || (row->path == (int)shape->path)) &&
            is_within(shape->len, row->bytes_from, row->bytes_to) &&
            is_within(shape->size, row->ranks_from, row->ranks_to)) {
            return row->alg;
        }
    }
    return NULL;
}
