/*
 * The table of native transfers (rma_table.h). Pure.
 *
 * The built-in rows, and why:
 *   cma  64 runs are one system call, each at 0.6 us and more. Runs of less than 4 KiB cost more than the two messages
 *        and three copies of a served transfer, if they are many (contrib/doc/results, section 10).
 *   dir  A lookup of few keys costs one round trip either way, and reading the table spares the home's processor. For
 *        many keys the home reads its own table in less time than the network moves 4 KiB a key.
 * rdma and cuda_ipc have no row: they were not measured on hardware, and are native.
 */
#include "config.h"
#include "native/rma_table.h"
#include "base/error.h"
#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_table[] = "cma:0-4K:served:16,dir:0-inf:served:8";

enum { ROW_MAX = 96, FIELDS_MIN = 3, FIELDS_MAX = 4 };

static const char *const kinds[] = {"any", "cma", "rdma", "cuda_ipc", "loop", "dir"};

static kvcl_status_t refuse(const char *row, const char *why)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "table of native transfers: '%s': %s", row, why);
}

static const char *kind_of(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
        if (strcmp(kinds[i], name) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}

/* "4K-64K", "0-inf". */
static bool parse_range(char *text, uint64_t *from_p, uint64_t *to_p)
{
    char *dash = strchr(text, '-');

    if (dash == NULL) {
        return false;
    }
    *dash = '\0';
    *to_p = UINT64_MAX;
    return (kvcl_size_parse(text, from_p) == KVCL_OK) &&
           ((strcmp(dash + 1, "inf") == 0) || (kvcl_size_parse(dash + 1, to_p) == KVCL_OK)) && (*from_p < *to_p);
}

static bool parse_count(const char *text, uint64_t *count_p)
{
    char *end;

    *count_p = strtoull(text, &end, 10);
    return (text[0] >= '0') && (text[0] <= '9') && (*end == '\0');
}

static kvcl_status_t parse_row(const char *text, size_t len, kvcl_rma_row_t *row)
{
    char     copy[ROW_MAX], whole[ROW_MAX], *field[FIELDS_MAX], *at = copy;
    unsigned n = 0;

    snprintf(whole, sizeof(whole), "%.*s", (int)((len < ROW_MAX) ? len : ROW_MAX - 1), text);
    if (len >= ROW_MAX) {
        return refuse(whole, "too long");
    }
    memcpy(copy, whole, sizeof(copy));
    while ((at != NULL) && (n < FIELDS_MAX)) {
        field[n++] = at;
        at         = strchr(at, ':');
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    if ((at != NULL) || (n < FIELDS_MIN)) {
        return refuse(whole, "a row is KIND:FROM-TO:WAY or KIND:FROM-TO:WAY:RUNS");
    }
    row->kind   = kind_of(field[0]);
    row->runs   = 0;
    row->served = (strcmp(field[2], "served") == 0);
    if (row->kind == NULL) {
        return refuse(whole, "the kind is none of any, cma, rdma, cuda_ipc, loop, dir");
    }
    if (!parse_range(field[1], &row->from, &row->to)) {
        return refuse(whole, "the bytes of a run are not FROM-TO, with FROM below TO");
    }
    if (!row->served && (strcmp(field[2], "native") != 0)) {
        return refuse(whole, "the way is neither native nor served");
    }
    if ((n == FIELDS_MAX) && !parse_count(field[3], &row->runs)) {
        return refuse(whole, "the least number of runs is no number");
    }
    return KVCL_OK;
}

static kvcl_status_t add_rows(const char *text, kvcl_rma_table_t *table)
{
    kvcl_status_t status = KVCL_OK;
    size_t        len;

    while ((status == KVCL_OK) && (text != NULL) && (*text != '\0')) {
        len = strcspn(text, ",");
        if (table->count == KVCL_RMA_ROWS) {
            return refuse(text, "too many rows: 16 with the built-in ones");
        }
        status = parse_row(text, len, &table->rows[table->count]);
        ++table->count;
        text += len;
        if ((status == KVCL_OK) && (*text == ',') && (*++text == '\0')) {
            return refuse("", "a row is KIND:FROM-TO:WAY or KIND:FROM-TO:WAY:RUNS");
        }
    }
    return status;
}

kvcl_status_t kvcl_rma_table_parse(const char *text, kvcl_rma_table_t *table)
{
    kvcl_status_t status;

    memset(table, 0, sizeof(*table));
    status = add_rows(text, table);
    return (status == KVCL_OK) ? add_rows(default_table, table) : status;
}

bool kvcl_rma_table_native(const kvcl_rma_table_t *table, const char *kind, uint64_t run_bytes, uint64_t n_runs)
{
    const kvcl_rma_row_t *row;

    for (row = table->rows; row < table->rows + table->count; ++row) {
        if (((strcmp(row->kind, "any") == 0) || (strcmp(row->kind, kind) == 0)) && (run_bytes >= row->from) &&
            (run_bytes < row->to) && (n_runs >= row->runs)) {
            return !row->served;
        }
    }
    return true;
}

const char *kvcl_rma_table_format(const kvcl_rma_table_t *table, char *buf, size_t cap)
{
    const kvcl_rma_row_t *row;
    char                 from[32], to[32];
    size_t               used = 0;
    int                  n;

    if (cap > 0) {
        buf[0] = '\0';
    }
    for (row = table->rows; (row < table->rows + table->count) && (used < cap); ++row) {
        n = snprintf(buf + used, cap - used, "%s%s:%s-%s:%s:%llu", (used == 0) ? "" : ",", row->kind,
                     kvcl_size_format(from, sizeof(from), row->from),
                     (row->to == UINT64_MAX) ? "inf" : kvcl_size_format(to, sizeof(to), row->to),
                     row->served ? "served" : "native", (unsigned long long)row->runs);
        used += (n > 0) ? (size_t)n : 0;
    }
    return buf;
}
