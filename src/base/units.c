/*
 * Sizes and times as text. Numbers are taken apart by hand: strtod would depend on the locale, accept
 * "0x1p3" and "nan", and lose low bits of large integers.
 */
#include "config.h"
#include "base/units.h"
#include "base/error.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
    const char *name;
    uint64_t    factor;
} unit_t;

#define KIB UINT64_C(1024)

/* From small to large; the first name of a factor is the one that is written. */
static const unit_t size_units[] = {
    {"", 1}, {"B", 1},
    {"K", KIB}, {"KB", KIB}, {"KiB", KIB},
    {"M", KIB * KIB}, {"MB", KIB * KIB}, {"MiB", KIB * KIB},
    {"G", KIB * KIB * KIB}, {"GB", KIB * KIB * KIB}, {"GiB", KIB * KIB * KIB},
    {"T", KIB * KIB * KIB * KIB}, {"TB", KIB * KIB * KIB * KIB}, {"TiB", KIB * KIB * KIB * KIB},
    {NULL, 0}
};

static const unit_t time_units[] = {
    {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"", 1000000000},
    {"m", UINT64_C(60) * 1000000000}, {"min", UINT64_C(60) * 1000000000},
    {"h", UINT64_C(3600) * 1000000000}, {NULL, 0}
};

static const unit_t *find_unit(const unit_t *units, const char *name, size_t len)
{
    for (; units->name != NULL; ++units) {
        if ((strlen(units->name) == len) && (strncasecmp(units->name, name, len) == 0)) {
            return units;
        }
    }
    return NULL;
}

/* digits [. digits] -> whole and fraction / scale. Returns the first character behind, NULL if no number. */
static const char *parse_number(const char *str, uint64_t *whole_p, uint64_t *frac_p, uint64_t *scale_p)
{
    uint64_t whole = 0, frac = 0, scale = 1;

    if (!isdigit((unsigned char)*str)) {
        return NULL;
    }
    for (; isdigit((unsigned char)*str); ++str) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*str - '0'), &whole)) {
            return NULL;
        }
    }
    if ((str[0] == '.') && isdigit((unsigned char)str[1])) {
        for (++str; isdigit((unsigned char)*str); ++str) {
            if (scale < UINT64_C(1000000000)) { /* further digits do not matter */
                frac  = frac * 10 + (uint64_t)(*str - '0');
                scale = scale * 10;
            }
        }
    }
    *whole_p = whole;
    *frac_p  = frac;
    *scale_p = scale;
    return str;
}

/* 0, or -1 if the text is no such quantity or too large for 64 bits. */
static int parse_quantity(const char *str, const unit_t *units, uint64_t *value_p)
{
    uint64_t      whole, frac, scale, value;
    const unit_t *unit;
    const char   *end;
    size_t        len;

    while (isspace((unsigned char)*str)) {
        ++str;
    }
    len = strlen(str);
    while ((len > 0) && isspace((unsigned char)str[len - 1])) {
        --len;
    }
    if (((len == 9) && (strncasecmp(str, "unlimited", len) == 0)) ||
        ((len == 3) && (strncasecmp(str, "inf", len) == 0))) {
        *value_p = KVCL_UNLIMITED;
        return 0;
    }
    end = parse_number(str, &whole, &frac, &scale);
    if (end == NULL) {
        return -1;
    }
    while ((end < str + len) && isspace((unsigned char)*end)) {
        ++end;
    }
    unit = find_unit(units, end, (size_t)(str + len - end));
    if ((unit == NULL) || __builtin_mul_overflow(whole, unit->factor, &value) ||
        __builtin_add_overflow(value, (uint64_t)((__uint128_t)frac * unit->factor / scale), &value)) {
        return -1;
    }
    *value_p = value;
    return 0;
}

kvcl_status_t kvcl_size_parse(const char *str, uint64_t *bytes_p)
{
    if (parse_quantity(str, size_units, bytes_p) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "\"%s\" is no size: a number with K, M, G or T, or \"unlimited\"",
                         str);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_time_parse(const char *str, uint64_t *ns_p)
{
    if (parse_quantity(str, time_units, ns_p) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                         "\"%s\" is no time: a number with ns, us, ms, s, m or h, or \"unlimited\"", str);
    }
    return KVCL_OK;
}

static const char *format_quantity(char *buf, size_t n, const unit_t *units, uint64_t value)
{
    const unit_t *best = units;
    const unit_t *unit;

    if (value == KVCL_UNLIMITED) {
        snprintf(buf, n, "unlimited");
        return buf;
    }
    for (unit = units; unit->name != NULL; ++unit) {
        if ((unit->factor > best->factor) && (value >= unit->factor)) {
            best = unit;
        }
    }
    if (value % best->factor == 0) {
        snprintf(buf, n, "%" PRIu64 "%s", value / best->factor, best->name);
    } else {
        snprintf(buf, n, "%.2f%s", (double)value / (double)best->factor, best->name);
    }
    return buf;
}

const char *kvcl_size_format(char *buf, size_t n, uint64_t bytes)
{
    return format_quantity(buf, n, size_units, bytes);
}

const char *kvcl_time_format(char *buf, size_t n, uint64_t ns)
{
    return format_quantity(buf, n, time_units, ns);
}
