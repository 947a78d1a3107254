/*
 * Loading settings tables, one value at a time through set_value(). The one place of getenv().
 *
 * Invariant: a value is parsed completely before the struct is touched, so a bad one changes nothing.
 */
#include "config.h"
#include "base/settings.h"
#include "base/error.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ACCEPTED_MAX = 200 };

static const char *const source_names[] = {"default", "environment", "param"};

static int has_bounds(const kvcl_setting_t *row)
{
    return (row->min != 0) || (row->max != 0);
}

static void *member(const kvcl_setting_t *row, void *dst)
{
    return (char *)dst + row->offset;
}

/* What a row accepts, for error sentences: "a size from 4K to 1G". */
static const char *describe_accepted(const kvcl_setting_t *row, char *buf, size_t len)
{
    char        low[32], high[32];
    const char *kind;
    size_t      used = 0;
    size_t      i;

    switch (row->type) {
    case KVCL_SETTING_BOOL:
        snprintf(buf, len, "y or n");
        return buf;
    case KVCL_SETTING_ENUM:
        snprintf(buf, len, "one of");
        for (i = 0; row->enum_names[i] != NULL; ++i) {
            used = strlen(buf);
            snprintf(buf + used, len - used, "%s %s", (i == 0) ? "" : ",", row->enum_names[i]);
        }
        return buf;
    case KVCL_SETTING_INT:
        kind = "a whole number";
        snprintf(low, sizeof(low), "%" PRId64, row->min);
        snprintf(high, sizeof(high), "%" PRId64, row->max);
        break;
    case KVCL_SETTING_SIZE:
        kind = "a size such as 64K or 2G";
        kvcl_size_format(low, sizeof(low), (uint64_t)row->min);
        kvcl_size_format(high, sizeof(high), (uint64_t)row->max);
        break;
    case KVCL_SETTING_TIME:
        kind = "a time such as 10ms or 2s";
        kvcl_time_format(low, sizeof(low), (uint64_t)row->min);
        kvcl_time_format(high, sizeof(high), (uint64_t)row->max);
        break;
    case KVCL_SETTING_STRING:
    default:
        kind = "a text";
        break;
    }
    if (has_bounds(row)) {
        snprintf(buf, len, "%s, from %s to %s", kind, low, high);
    } else {
        snprintf(buf, len, "%s", kind);
    }
    return buf;
}

static kvcl_status_t refuse(const kvcl_setting_t *row, const char *value)
{
    char accepted[ACCEPTED_MAX];

    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s=%s is not accepted: expected %s", row->name, value,
                     describe_accepted(row, accepted, sizeof(accepted)));
}

/* Index of the word among NULL-terminated names, -1 if it is none. */
static int find_word(const char *const *names, const char *word)
{
    int i;

    for (i = 0; names[i] != NULL; ++i) {
        if (strcasecmp(names[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

static int parse_bool(const char *value, int *bool_p)
{
    static const char *const words[] = {"n", "y", "no", "yes", "off", "on", "false", "true", "0", "1", NULL};
    int                      i       = find_word(words, value);

    *bool_p = i & 1;
    return (i < 0) ? -1 : 0;
}

static int parse_int(const kvcl_setting_t *row, const char *value, int64_t *int_p)
{
    char     *end;
    long long number;

    errno  = 0;
    number = strtoll(value, &end, 10);
    if ((errno != 0) || (end == value) || (*end != '\0')) {
        return -1;
    }
    *int_p = number;
    return (has_bounds(row) && ((number < row->min) || (number > row->max))) ? -1 : 0;
}

/* "unlimited" is accepted whatever the upper bound: tables that cannot bear it say so with max < unlimited. */
static int parse_unsigned(const kvcl_setting_t *row, const char *value, uint64_t *number_p)
{
    kvcl_status_t status = (row->type == KVCL_SETTING_SIZE) ? kvcl_size_parse(value, number_p)
                                                             : kvcl_time_parse(value, number_p);

    if (status != KVCL_OK) {
        return -1;
    }
    return (has_bounds(row) && ((*number_p < (uint64_t)row->min) || (*number_p > (uint64_t)row->max))) ? -1 : 0;
}

static kvcl_status_t set_string(const kvcl_setting_t *row, void *dst, const char *value)
{
    char **str_p = (char **)member(row, dst);
    char  *copy  = NULL;

    if ((value != NULL) && (value[0] != '\0')) {
        copy = strdup(value);
        if (copy == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the value of %s", row->name);
        }
    }
    free(*str_p);
    *str_p = copy;
    return KVCL_OK;
}

static kvcl_status_t set_value(const kvcl_setting_t *row, void *dst, const char *value)
{
    int64_t  number = 0;
    uint64_t large  = 0;
    int      word   = 0;

    switch (row->type) {
    case KVCL_SETTING_BOOL:
        if (parse_bool(value, &word) != 0) {
            return refuse(row, value);
        }
        *(int *)member(row, dst) = word;
        return KVCL_OK;
    case KVCL_SETTING_INT:
        if (parse_int(row, value, &number) != 0) {
            return refuse(row, value);
        }
        *(int64_t *)member(row, dst) = number;
        return KVCL_OK;
    case KVCL_SETTING_SIZE:
    case KVCL_SETTING_TIME:
        if (parse_unsigned(row, value, &large) != 0) {
            return refuse(row, value);
        }
        *(uint64_t *)member(row, dst) = large;
        return KVCL_OK;
    case KVCL_SETTING_ENUM:
        word = find_word(row->enum_names, value);
        if (word < 0) {
            return refuse(row, value);
        }
        *(int *)member(row, dst) = word;
        return KVCL_OK;
    case KVCL_SETTING_STRING:
    default:
        return set_string(row, dst, value);
    }
}

const char *kvcl_settings_getenv(void *unused, const char *name)
{
    (void)unused;
    return getenv(name);
}

kvcl_status_t kvcl_settings_load(const kvcl_setting_t *table, void *dst, kvcl_settings_lookup_t lookup,
                                 void *lookup_arg, kvcl_setting_source_t *sources)
{
    kvcl_setting_source_t source;
    kvcl_status_t         status;
    const char           *value;
    size_t                i;

    for (i = 0; table[i].name != NULL; ++i) {
        source = KVCL_SOURCE_ENVIRONMENT;
        value  = (lookup == NULL) ? NULL : lookup(lookup_arg, table[i].name);
        if ((value == NULL) || (value[0] == '\0')) { /* set but empty: as if not set */
            source = KVCL_SOURCE_DEFAULT;
            value  = table[i].dflt;
        }
        status = set_value(&table[i], dst, value);
        if (status != KVCL_OK) {
            kvcl_settings_free(table, dst);
            return status;
        }
        if (sources != NULL) {
            sources[i] = source;
        }
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_settings_set(const kvcl_setting_t *table, void *dst, const char *name, const char *value,
                                kvcl_setting_source_t source, kvcl_setting_source_t *sources)
{
    kvcl_status_t status;
    size_t        i;

    for (i = 0; table[i].name != NULL; ++i) {
        if (strcmp(table[i].name, name) == 0) {
            status = set_value(&table[i], dst, value);
            if ((status == KVCL_OK) && (sources != NULL)) {
                sources[i] = source;
            }
            return status;
        }
    }
    return kvcl_fail(KVCL_ERR_NOT_FOUND, "there is no setting named %s", name);
}

void kvcl_settings_free(const kvcl_setting_t *table, void *dst)
{
    char **str_p;

    for (; table->name != NULL; ++table) {
        if (table->type == KVCL_SETTING_STRING) {
            str_p = (char **)member(table, dst);
            free(*str_p);
            *str_p = NULL;
        }
    }
}

/* Is it the default's value, for which the default is one of several texts? */
static int is_default(const kvcl_setting_t *row, const char *at)
{
    uint64_t number = 0;
    int      word   = 0;

    if (row->type == KVCL_SETTING_BOOL) {
        return (parse_bool(row->dflt, &word) == 0) && (word == *(const int *)(const void *)at);
    }
    return ((row->type == KVCL_SETTING_SIZE) || (row->type == KVCL_SETTING_TIME)) &&
           (parse_unsigned(row, row->dflt, &number) == 0) && (number == *(const uint64_t *)(const void *)at);
}

const char *kvcl_settings_format(const kvcl_setting_t *table, size_t i, const void *src, char *buf, size_t len)
{
    const char *at = (const char *)src + table[i].offset;
    const char *str;

    if (is_default(&table[i], at)) {
        snprintf(buf, len, "%s", table[i].dflt);
        return buf;
    }
    switch (table[i].type) {
    case KVCL_SETTING_BOOL:
        snprintf(buf, len, "%s", *(const int *)(const void *)at ? "y" : "n");
        break;
    case KVCL_SETTING_INT:
        snprintf(buf, len, "%" PRId64, *(const int64_t *)(const void *)at);
        break;
    case KVCL_SETTING_SIZE:
        kvcl_size_format(buf, len, *(const uint64_t *)(const void *)at);
        break;
    case KVCL_SETTING_TIME:
        kvcl_time_format(buf, len, *(const uint64_t *)(const void *)at);
        break;
    case KVCL_SETTING_ENUM:
        snprintf(buf, len, "%s", table[i].enum_names[*(const int *)(const void *)at]);
        break;
    case KVCL_SETTING_STRING:
    default:
        str = *(char *const *)(const void *)at;
        snprintf(buf, len, "%s", (str == NULL) ? "" : str);
        break;
    }
    return buf;
}

const char *kvcl_setting_source_name(kvcl_setting_source_t source)
{
    return source_names[source];
}
