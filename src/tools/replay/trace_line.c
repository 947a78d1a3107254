/*
 * Owns the grammar of a trace line: one JSON object with timestamp, input_length, output_length and hash_ids, each once,
 * in any order; other members are skipped whatever they hold. A cursor walks the bytes; the first error sticks and says
 * its column. No allocation, no recursion deeper than SKIP_DEPTH_MAX.
 */
#include "config.h"
#include "tools/replay/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define SKIP_DEPTH_MAX 16
#define NUMBER_MAX     (UINT64_C(1) << 53) /* what every JSON reader keeps exactly */

enum {
    HAVE_TIMESTAMP = 1u << 0,
    HAVE_INPUT     = 1u << 1,
    HAVE_OUTPUT    = 1u << 2,
    HAVE_IDS       = 1u << 3
};

typedef struct cursor {
    const char *start;
    const char *p;
    const char *end;
    char       *error;
} cursor_t;

__attribute__((format(printf, 2, 3))) static bool fail(cursor_t *c, const char *format, ...)
{
    va_list args;
    int     n;

    n = snprintf(c->error, TRACE_ERROR_MAX, "column %zu: ", (size_t)(c->p - c->start) + 1);
    va_start(args, format);
    vsnprintf(c->error + n, TRACE_ERROR_MAX - (size_t)n, format, args);
    va_end(args);
    return false;
}

/* The next byte, or -1 at the end of the line. */
static int peek(const cursor_t *c)
{
    return (c->p < c->end) ? (unsigned char)*c->p : -1;
}

static void skip_space(cursor_t *c)
{
    while ((c->p < c->end) && ((*c->p == ' ') || (*c->p == '\t') || (*c->p == '\r') || (*c->p == '\n'))) {
        ++c->p;
    }
}

static bool unexpected(cursor_t *c, const char *wanted)
{
    const int next = peek(c);

    if (next < 0) {
        return fail(c, "the line ends where %s should be", wanted);
    }
    if ((next > 0x20) && (next < 0x7f)) {
        return fail(c, "'%c' where %s should be", next, wanted);
    }
    return fail(c, "byte 0x%02x where %s should be", (unsigned)next, wanted);
}

static bool expect(cursor_t *c, char byte, const char *wanted)
{
    skip_space(c);
    if (peek(c) != (unsigned char)byte) {
        return unexpected(c, wanted);
    }
    ++c->p;
    skip_space(c);
    return true;
}

static bool is_digit(int byte)
{
    return (byte >= '0') && (byte <= '9');
}

/* A string's raw bytes between the quotes, escapes left as they are. */
static bool parse_string(cursor_t *c, const char **text_p, size_t *len_p)
{
    skip_space(c);
    if (peek(c) != '"') {
        return unexpected(c, "a string");
    }
    *text_p = ++c->p;
    while ((peek(c) >= 0x20) && (peek(c) != '"')) {
        if (*c->p == '\\') {
            ++c->p;
            if (peek(c) < 0x20) {
                break;
            }
        }
        ++c->p;
    }
    if (peek(c) != '"') {
        return unexpected(c, "the end of a string");
    }
    *len_p = (size_t)(c->p - *text_p);
    ++c->p;
    return true;
}

static bool skip_digits(cursor_t *c)
{
    if (!is_digit(peek(c))) {
        return unexpected(c, "a digit");
    }
    while (is_digit(peek(c))) {
        ++c->p;
    }
    return true;
}

/* A whole number of 0..2^53; with fraction, digits after a point are allowed and dropped. */
static bool parse_number(cursor_t *c, const char *name, bool fraction, uint64_t *value_p)
{
    uint64_t value = 0;

    skip_space(c);
    if (peek(c) == '-') {
        return fail(c, "%s is negative", name);
    }
    if (!is_digit(peek(c))) {
        return unexpected(c, "a number");
    }
    if ((*c->p == '0') && (c->p + 1 < c->end) && is_digit((unsigned char)c->p[1])) {
        return fail(c, "%s starts with 0", name);
    }
    while (is_digit(peek(c))) {
        value = (value * 10) + (uint64_t)(*c->p - '0');
        if (value > NUMBER_MAX) {
            return fail(c, "%s is larger than 2^53", name);
        }
        ++c->p;
    }
    if ((peek(c) == '.') || (peek(c) == 'e') || (peek(c) == 'E')) {
        if (!fraction || (*c->p != '.')) {
            return fail(c, "%s is no whole number", name);
        }
        ++c->p;
        if (!skip_digits(c)) {
            return false;
        }
    }
    *value_p = value;
    return true;
}

/* A number, true, false or null that nobody asked about. */
static bool skip_scalar(cursor_t *c)
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
    if ((peek(c) != '-') && !is_digit(peek(c))) {
        return unexpected(c, "a value");
    }
    c->p += (peek(c) == '-') ? 1 : 0;
    if (!skip_digits(c)) {
        return false;
    }
    if (peek(c) == '.') {
        ++c->p;
        if (!skip_digits(c)) {
            return false;
        }
    }
    if ((peek(c) == 'e') || (peek(c) == 'E')) {
        ++c->p;
        c->p += ((peek(c) == '-') || (peek(c) == '+')) ? 1 : 0;
        return skip_digits(c);
    }
    return true;
}

static bool skip_value(cursor_t *c, int depth)
{
    const char *text;
    size_t     len;
    char       close;

    skip_space(c);
    if (peek(c) == '"') {
        return parse_string(c, &text, &len);
    }
    if ((peek(c) != '[') && (peek(c) != '{')) {
        return skip_scalar(c);
    }
    if (depth == SKIP_DEPTH_MAX) {
        return fail(c, "nested deeper than %d", SKIP_DEPTH_MAX);
    }
    close = (*c->p == '[') ? ']' : '}';
    ++c->p;
    skip_space(c);
    if (peek(c) == close) {
        ++c->p;
        return true;
    }
    for (;;) {
        if ((close == '}') && !(parse_string(c, &text, &len) && expect(c, ':', "':'"))) {
            return false;
        }
        if (!skip_value(c, depth + 1)) {
            return false;
        }
        skip_space(c);
        if (peek(c) != ',') {
            return expect(c, close, (close == ']') ? "',' or ']'" : "',' or '}'");
        }
        ++c->p;
    }
}

static bool parse_ids(cursor_t *c, uint64_t *ids, uint32_t *n_p)
{
    uint32_t n = 0;

    if (!expect(c, '[', "'['")) {
        return false;
    }
    while (peek(c) != ']') {
        if ((n != 0) && !expect(c, ',', "',' or ']'")) {
            return false;
        }
        if (n == TRACE_IDS_MAX) {
            return fail(c, "more than %u ids", TRACE_IDS_MAX);
        }
        if (!parse_number(c, "an id", false, &ids[n])) {
            return false;
        }
        ++n;
        skip_space(c);
    }
    ++c->p;
    *n_p = n;
    return true;
}

static bool is_name(const char *text, size_t len, const char *name)
{
    return (len == strlen(name)) && (memcmp(text, name, len) == 0);
}

static bool parse_member(cursor_t *c, trace_request_t *request, uint64_t *ids, unsigned *have)
{
    const char *name;
    size_t     len;
    unsigned   what = 0;

    if (!parse_string(c, &name, &len) || !expect(c, ':', "':'")) {
        return false;
    }
    what |= is_name(name, len, "timestamp") ? HAVE_TIMESTAMP : 0u;
    what |= is_name(name, len, "input_length") ? HAVE_INPUT : 0u;
    what |= is_name(name, len, "output_length") ? HAVE_OUTPUT : 0u;
    what |= is_name(name, len, "hash_ids") ? HAVE_IDS : 0u;
    if ((*have & what) != 0) {
        return fail(c, "\"%.*s\" stands twice", (int)len, name);
    }
    *have |= what;
    switch (what) {
    case HAVE_TIMESTAMP:
        return parse_number(c, "timestamp", true, &request->timestamp_ms);
    case HAVE_INPUT:
        return parse_number(c, "input_length", false, &request->input_length);
    case HAVE_OUTPUT:
        return parse_number(c, "output_length", false, &request->output_length);
    case HAVE_IDS:
        return parse_ids(c, ids, &request->n);
    default:
        return skip_value(c, 0);
    }
}

static bool check_complete(cursor_t *c, unsigned have)
{
    static const char *const names[] = {"timestamp", "input_length", "output_length", "hash_ids"};
    unsigned                 i;

    for (i = 0; i < 4; ++i) {
        if ((have & (1u << i)) == 0) {
            snprintf(c->error, TRACE_ERROR_MAX, "\"%s\" is missing", names[i]);
            return false;
        }
    }
    return true;
}

bool trace_parse_line(const char *line, size_t len, trace_request_t *request, uint64_t *ids, char *error)
{
    cursor_t c    = {line, line, line + len, error};
    unsigned have = 0;
    bool     more;

    memset(request, 0, sizeof(*request));
    if (!expect(&c, '{', "'{'")) {
        return false;
    }
    more = (peek(&c) != '}');
    while (more) {
        if (!parse_member(&c, request, ids, &have)) {
            return false;
        }
        skip_space(&c);
        more = (peek(&c) == ',');
        c.p += more ? 1 : 0;
    }
    if (!expect(&c, '}', "',' or '}'")) {
        return false;
    }
    if (peek(&c) >= 0) {
        return unexpected(&c, "the end of the line");
    }
    return check_complete(&c, have);
}
