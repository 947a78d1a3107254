/*
 * kvcl_query_colls: the algorithms and the table that chooses among them, as text. Pure but for the environment.
 */
#include "config.h"
#include "base/error.h"
#include "base/settings.h"
#include "collectives/select.h"
#include "conf/conf.h"
#include <kvcl/kvcl_query.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_TEXT_MAX = KVCL_COLL_TABLE_ROWS * 160 };

/* Where the text grows; at counts what it would need. */
typedef struct text {
    char   *buf;
    size_t cap;
    size_t at;
} text_t;

static void add(text_t *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(text_t *text, const char *fmt, ...)
{
    size_t  left = (text->at < text->cap) ? text->cap - text->at : 0;
    va_list args;
    int     n;

    va_start(args, fmt);
    n = vsnprintf((left > 0) ? text->buf + text->at : NULL, left, fmt, args);
    va_end(args);
    text->at += (n > 0) ? (size_t)n : 0;
}

static kvcl_status_t load_table(kvcl_coll_table_t *table)
{
    kvcl_config_t config;
    kvcl_status_t status;

    memset(&config, 0, sizeof(config));
    status = kvcl_settings_load(kvcl_config_table, &config, kvcl_settings_getenv, NULL, NULL);
    if (status == KVCL_OK) {
        status = kvcl_coll_table_parse(config.coll_table, table);
        kvcl_config_free(&config);
        status = (status == KVCL_OK) ? status : kvcl_fail(status, "KVCL_COLL_TABLE: %s", kvcl_last_error());
    }
    return status;
}

kvcl_status_t kvcl_query_colls(char *buf, size_t cap, size_t *len_p)
{
    text_t                text = {buf, cap, 0};
    char                  rows[TABLE_TEXT_MAX];
    const kvcl_coll_alg_t *alg;
    kvcl_coll_table_t     table;
    kvcl_status_t         status;
    size_t                i;

    if ((len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_colls: NULL argument");
    }
    status = load_table(&table);
    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; (alg = kvcl_coll_alg_at(i)) != NULL; ++i) {
        add(&text, "%-10s %-14s %s\n", kvcl_coll_kind_name(alg->kind), alg->name, alg->desc);
    }
    add(&text, "table (KVCL_COLL_TABLE first, the first row that fits wins):\n");
    add(&text, "%s\n", kvcl_coll_table_format(&table, "\n", rows, sizeof(rows)));
    *len_p = text.at + 1;
    return (*len_p <= cap) ? KVCL_OK : kvcl_fail(KVCL_ERR_TRUNCATED, "the text needs %zu bytes, there is room for %zu",
                                                 *len_p, cap);
}
