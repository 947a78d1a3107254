/*
 * Owns the schema of a trace line: one JSON object with timestamp, input_length, output_length and hash_ids, each once,
 * in any order; other members are skipped with any value. No allocation.
 */
#include "config.h"
#include "tools/replay/trace.h"

#include "tools/replay/json_read.h"

#include <string.h>

enum {
    HAVE_TIMESTAMP = 1u << 0,
    HAVE_INPUT     = 1u << 1,
    HAVE_OUTPUT    = 1u << 2,
    HAVE_IDS       = 1u << 3
};

static bool parse_ids(json_cursor_t *c, uint64_t *ids, uint32_t *n_p)
{
    uint32_t n = 0;

    if (!json_expect(c, '[', "'['")) {
        return false;
    }
    while (json_peek(c) != ']') {
        if ((n != 0) && !json_expect(c, ',', "',' or ']'")) {
            return false;
        }
        if (n == TRACE_IDS_MAX) {
            return json_fail(c, "more than %u ids", TRACE_IDS_MAX);
        }
        if (!json_read_number(c, "an id", false, &ids[n])) {
            return false;
        }
        ++n;
        json_skip_space(c);
    }
    ++c->p;
    *n_p = n;
    return true;
}

static bool is_name(const char *text, size_t len, const char *name)
{
    return (len == strlen(name)) && (memcmp(text, name, len) == 0);
}

static bool parse_member(json_cursor_t *c, trace_request_t *request, uint64_t *ids, unsigned *have)
{
    const char *name;
    size_t     len;
    unsigned   what = 0;

    if (!json_read_string(c, &name, &len) || !json_expect(c, ':', "':'")) {
        return false;
    }
    what |= is_name(name, len, "timestamp") ? HAVE_TIMESTAMP : 0u;
    what |= is_name(name, len, "input_length") ? HAVE_INPUT : 0u;
    what |= is_name(name, len, "output_length") ? HAVE_OUTPUT : 0u;
    what |= is_name(name, len, "hash_ids") ? HAVE_IDS : 0u;
    if ((*have & what) != 0) {
        return json_fail(c, "\"%.*s\" occurs twice", (int)len, name);
    }
    *have |= what;
    switch (what) {
    case HAVE_TIMESTAMP:
        return json_read_number(c, "timestamp", true, &request->timestamp_ms);
    case HAVE_INPUT:
        return json_read_number(c, "input_length", false, &request->input_length);
    case HAVE_OUTPUT:
        return json_read_number(c, "output_length", false, &request->output_length);
    case HAVE_IDS:
        return parse_ids(c, ids, &request->n);
    default:
        return json_skip_value(c);
    }
}

static bool check_complete(json_cursor_t *c, unsigned have)
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
    json_cursor_t c    = {line, line, line + len, error, TRACE_ERROR_MAX};
    unsigned      have = 0;
    bool          more;

    memset(request, 0, sizeof(*request));
    if (!json_expect(&c, '{', "'{'")) {
        return false;
    }
    more = (json_peek(&c) != '}');
    while (more) {
        if (!parse_member(&c, request, ids, &have)) {
            return false;
        }
        json_skip_space(&c);
        more = (json_peek(&c) == ',');
        c.p += more ? 1 : 0;
    }
    if (!json_expect(&c, '}', "',' or '}'")) {
        return false;
    }
    if (json_peek(&c) >= 0) {
        return json_unexpected(&c, "the end of the line");
    }
    return check_complete(&c, have);
}
