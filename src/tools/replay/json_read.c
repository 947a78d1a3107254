/*
 * Owns the grammar of JSON's parts and the wording of syntax errors.
 */
#include "config.h"
#include "tools/replay/json_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SKIP_DEPTH_MAX 16

bool json_fail(json_cursor_t *c, const char *format, ...)
{
    va_list args;
    int     n;

    n = snprintf(c->error, c->cap, "column %zu: ", (size_t)(c->p - c->start) + 1);
    va_start(args, format);
    vsnprintf(c->error + n, c->cap - (size_t)n, format, args);
    va_end(args);
    return false;
}

int json_peek(const json_cursor_t *c)
{
    return (c->p < c->end) ? (unsigned char)*c->p : -1;
}

void json_skip_space(json_cursor_t *c)
{
    while ((c->p < c->end) && ((*c->p == ' ') || (*c->p == '\t') || (*c->p == '\r') || (*c->p == '\n'))) {
        ++c->p;
    }
}

bool json_unexpected(json_cursor_t *c, const char *wanted)
{
    const int next = json_peek(c);

    if (next < 0) {
        return json_fail(c, "the line ends where %s should be", wanted);
    }
    if ((next > 0x20) && (next < 0x7f)) {
        return json_fail(c, "'%c' where %s should be", next, wanted);
    }
    return json_fail(c, "byte 0x%02x where %s should be", (unsigned)next, wanted);
}

bool json_expect(json_cursor_t *c, char byte, const char *wanted)
{
    json_skip_space(c);
    if (json_peek(c) != (unsigned char)byte) {
        return json_unexpected(c, wanted);
    }
    ++c->p;
    json_skip_space(c);
    return true;
}

static bool is_digit(int byte)
{
    return (byte >= '0') && (byte <= '9');
}

bool json_read_string(json_cursor_t *c, const char **text_p, size_t *len_p)
{
    json_skip_space(c);
    if (json_peek(c) != '"') {
        return json_unexpected(c, "a string");
    }
    *text_p = ++c->p;
    while ((json_peek(c) >= 0x20) && (json_peek(c) != '"')) {
        if (*c->p == '\\') {
            ++c->p;
            if (json_peek(c) < 0x20) {
                break;
            }
        }
        ++c->p;
    }
    if (json_peek(c) != '"') {
        return json_unexpected(c, "the end of a string");
    }
    *len_p = (size_t)(c->p - *text_p);
    ++c->p;
    return true;
}

static bool skip_digits(json_cursor_t *c)
{
    if (!is_digit(json_peek(c))) {
        return json_unexpected(c, "a digit");
    }
    while (is_digit(json_peek(c))) {
        ++c->p;
    }
    return true;
}

bool json_read_number(json_cursor_t *c, const char *name, bool fraction, uint64_t *value_p)
{
    uint64_t value = 0;

    json_skip_space(c);
    if (json_peek(c) == '-') {
        return json_fail(c, "%s is negative", name);
    }
    if (!is_digit(json_peek(c))) {
        return json_unexpected(c, "a number");
    }
    if ((*c->p == '0') && (c->p + 1 < c->end) && is_digit((unsigned char)c->p[1])) {
        return json_fail(c, "%s starts with 0", name);
    }
    while (is_digit(json_peek(c))) {
        value = (value * 10) + (uint64_t)(*c->p - '0');
        if (value > JSON_NUMBER_MAX) {
            return json_fail(c, "%s is larger than 2^53", name);
        }
        ++c->p;
    }
    if ((json_peek(c) == '.') || (json_peek(c) == 'e') || (json_peek(c) == 'E')) {
        if (!fraction || (*c->p != '.')) {
            return json_fail(c, "%s is not a whole number", name);
        }
        ++c->p;
        if (!skip_digits(c)) {
            return false;
        }
    }
    *value_p = value;
    return true;
}

/* A number, true, false or null of an unknown member. */
static bool skip_scalar(json_cursor_t *c)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t                   i, len;

    for (i = 0; i < 3; ++i) {
        len = strlen(words[i]);
        if (((size_t)(c->end - c->p) >= len) && (memcmp(c->p, words[i], len) == 0)) {
            c->p += len;
            return true;
        }
    }
    if ((json_peek(c) != '-') && !is_digit(json_peek(c))) {
        return json_unexpected(c, "a value");
    }
    c->p += (json_peek(c) == '-') ? 1 : 0;
    if (!skip_digits(c)) {
        return false;
    }
    if (json_peek(c) == '.') {
        ++c->p;
        if (!skip_digits(c)) {
            return false;
        }
    }
    if ((json_peek(c) == 'e') || (json_peek(c) == 'E')) {
        ++c->p;
        c->p += ((json_peek(c) == '-') || (json_peek(c) == '+')) ? 1 : 0;
        return skip_digits(c);
    }
    return true;
}

static bool skip_value(json_cursor_t *c, int depth)
{
    const char *text;
    size_t     len;
    char       close;

    json_skip_space(c);
    if (json_peek(c) == '"') {
        return json_read_string(c, &text, &len);
    }
    if ((json_peek(c) != '[') && (json_peek(c) != '{')) {
        return skip_scalar(c);
    }
    if (depth == SKIP_DEPTH_MAX) {
        return json_fail(c, "nested deeper than %d", SKIP_DEPTH_MAX);
    }
    close = (*c->p == '[') ? ']' : '}';
    ++c->p;
    json_skip_space(c);
    if (json_peek(c) == close) {
        ++c->p;
        return true;
    }
    for (;;) {
        if ((close == '}') && !(json_read_string(c, &text, &len) && json_expect(c, ':', "':'"))) {
            return false;
        }
        if (!skip_value(c, depth + 1)) {
            return false;
        }
        json_skip_space(c);
        if (json_peek(c) != ',') {
            return json_expect(c, close, (close == ']') ? "',' or ']'" : "',' or '}'");
        }
        ++c->p;
    }
}

bool json_skip_value(json_cursor_t *c)
{
    return skip_value(c, 0);
}
