/*
 * JSON as MessagePack (ev_json.h). Owns nothing. Pure.
 *
 * Room: a number takes at most twice as many bytes as its digits; a string's head 1 byte, or 3 or 5 of a long one, for
 * 2 quotes; a list or map 5 bytes for its 2 brackets, of which one may be missing in the innermost 16.
 */
#include "config.h"

#include "sched/events/ev_json.h"

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

enum { DEPTH_MAX = 16 };

typedef struct open {
    uint8_t  *head; /* 0xdd or 0xdf and 4 bytes, written at the end */
    uint32_t n;     /* values, without keys */
    bool     map;
} open_t;

typedef struct json {
    const uint8_t *start;
    const uint8_t *p;
    const uint8_t *end;
    uint8_t       *out;
    open_t        open[DEPTH_MAX];
    unsigned      depth;
} json_t;

static kvcl_status_t fail(const json_t *j, const char *what)
{
    return kvcl_fail(KVCL_ERR_PROTOCOL, "byte %zu of an event's JSON: %s", (size_t)(j->p - j->start), what);
}

static int peek(json_t *j)
{
    while ((j->p < j->end) && ((*j->p == ' ') || (*j->p == '\t') || (*j->p == '\r') || (*j->p == '\n'))) {
        ++j->p;
    }
    return (j->p < j->end) ? *j->p : -1;
}

static void put_be(json_t *j, uint8_t head, uint64_t value, unsigned n)
{
    *j->out++ = head;
    while (n-- > 0) {
        *j->out++ = (uint8_t)(value >> (8 * n));
    }
}

/* ---- strings ---- */

static int hex4(const json_t *j, const uint8_t *p, uint32_t *value_p)
{
    unsigned i, digit;

    *value_p = 0;
    for (i = 0; i < 4; ++i) {
        if (p + i >= j->end) {
            return -1;
        }
        digit = p[i] | 32u;
        if ((p[i] >= '0') && (p[i] <= '9')) {
            digit = p[i] - '0';
        } else if ((digit >= 'a') && (digit <= 'f')) {
            digit -= 'a' - 10;
        } else {
            return -1;
        }
        *value_p = *value_p << 4 | digit;
    }
    return 0;
}

/* A code point as UTF-8: at most 3 bytes for 6 of JSON, or 4 for 12. */
static void put_point(json_t *j, uint32_t point)
{
    if (point < 0x80) {
        *j->out++ = (uint8_t)point;
    } else if (point < 0x800) {
        *j->out++ = (uint8_t)(0xc0 | point >> 6);
        *j->out++ = (uint8_t)(0x80 | (point & 63));
    } else if (point < 0x10000) {
        *j->out++ = (uint8_t)(0xe0 | point >> 12);
        *j->out++ = (uint8_t)(0x80 | (point >> 6 & 63));
        *j->out++ = (uint8_t)(0x80 | (point & 63));
    } else {
        *j->out++ = (uint8_t)(0xf0 | point >> 18);
        *j->out++ = (uint8_t)(0x80 | (point >> 12 & 63));
        *j->out++ = (uint8_t)(0x80 | (point >> 6 & 63));
        *j->out++ = (uint8_t)(0x80 | (point & 63));
    }
}

/* Behind the backslash. */
static bool escape(json_t *j)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char        *at;
    uint32_t          point, low;

    if (j->p >= j->end) {
        return false;
    }
    if (*j->p != 'u') {
        at = (*j->p != 0) ? strchr(from, *j->p) : NULL;
        if (at == NULL) {
            return false;
        }
        ++j->p;
        *j->out++ = (uint8_t)to[at - from];
        return true;
    }
    if (hex4(j, j->p + 1, &point) != 0) {
        return false;
    }
    j->p += 5;
    if ((point >= 0xd800) && (point < 0xdc00) && (j->end - j->p >= 6) && (j->p[0] == '\\') && (j->p[1] == 'u') &&
        (hex4(j, j->p + 2, &low) == 0) && (low >= 0xdc00) && (low < 0xe000)) {
        point = 0x10000 + ((point - 0xd800) << 10 | (low - 0xdc00));
        j->p += 6;
    }
    put_point(j, point);
    return true;
}

static kvcl_status_t string(json_t *j)
{
    uint8_t *head = j->out, *body;
    size_t  len, room;

    ++j->p;
    /* The head's size follows from the bytes up to the closing quote, which are as many or more. */
    for (len = 0; ((size_t)(j->end - j->p) > len) && (j->p[len] != '"');) {
        len += ((j->p[len] == '\\') && ((size_t)(j->end - j->p) > len + 1)) ? 2 : 1;
    }
    if (len >= (size_t)(j->end - j->p)) {
        return fail(j, "a string does not end");
    }
    room   = (len < 32) ? 1 : (len < 65536) ? 3 : 5;
    j->out = body = head + room;
    while (*j->p != '"') {
        if (*j->p < 0x20) {
            return fail(j, "a control character in a string");
        }
        if (*j->p == '\\') {
            ++j->p;
            if (!escape(j)) {
                return fail(j, "an escape that JSON does not have");
            }
        } else {
            *j->out++ = *j->p++;
        }
    }
    ++j->p;
    len    = (size_t)(j->out - body);
    j->out = head;
    if (room == 1) {
        *j->out++ = (uint8_t)(0xa0 | len);
    } else {
        put_be(j, (room == 3) ? 0xda : 0xdb, len, (unsigned)room - 1);
    }
    j->out = body + len;
    return KVCL_OK;
}

/* ---- numbers and words ---- */

static void put_number(json_t *j, bool negative, uint64_t value)
{
    if (negative) {
        put_be(j, (value <= 0x8000) ? 0xd1 : 0xd3, 0 - value, (value <= 0x8000) ? 2 : 8);
    } else if (value < 0x80) {
        *j->out++ = (uint8_t)value;
    } else if (value <= UINT8_MAX) {
        put_be(j, 0xcc, value, 1);
    } else if (value <= UINT16_MAX) {
        put_be(j, 0xcd, value, 2);
    } else if (value <= UINT32_MAX) {
        put_be(j, 0xce, value, 4);
    } else {
        put_be(j, 0xcf, value, 8);
    }
}

static kvcl_status_t number(json_t *j)
{
    bool           negative = (*j->p == '-'), whole = true;
    uint64_t       value = 0;
    const uint8_t  *digits;

    j->p += negative;
    for (digits = j->p; (j->p < j->end) && (*j->p >= '0') && (*j->p <= '9'); ++j->p) {
        whole = whole && (value <= (UINT64_MAX - (*j->p - '0')) / 10);
        value = value * 10 + (uint64_t)(*j->p - '0');
    }
    if (j->p == digits) {
        return fail(j, "no value");
    }
    while ((j->p < j->end) && (strchr("0123456789.eE+-", *j->p) != NULL) && (*j->p != 0)) {
        whole = false;
        ++j->p;
    }
    if (whole && (!negative || (value <= UINT64_C(1) << 63))) {
        put_number(j, negative, value);
    } else {
        *j->out++ = 0xc0;
    }
    return KVCL_OK;
}

static kvcl_status_t word(json_t *j)
{
    static const struct {
        const char *text;
        uint8_t    as;
    } words[] = {{"null", 0xc0}, {"true", 0xc3}, {"false", 0xc2}};
    size_t i, len;

    for (i = 0; i < 3; ++i) {
        len = strlen(words[i].text);
        if (((size_t)(j->end - j->p) >= len) && (memcmp(j->p, words[i].text, len) == 0)) {
            j->p += len;
            *j->out++ = words[i].as;
            return KVCL_OK;
        }
    }
    return fail(j, "no value");
}

/* ---- lists and maps ---- */

static kvcl_status_t begin(json_t *j, bool map)
{
    if (j->depth == DEPTH_MAX) {
        return fail(j, "nested more than 16 deep");
    }
    ++j->p;
    j->open[j->depth++] = (open_t){j->out, 0, map};
    j->out += 5;
    return KVCL_OK;
}

static void finish(json_t *j)
{
    open_t  *top = &j->open[--j->depth];
    uint8_t *out = j->out;

    ++j->p;
    j->out = top->head;
    put_be(j, top->map ? 0xdf : 0xdd, top->n, 4);
    j->out = out;
}

/* A key and its colon, in a map. */
static kvcl_status_t key(json_t *j)
{
    kvcl_status_t status = (peek(j) == '"') ? string(j) : fail(j, "no key");

    if ((status == KVCL_OK) && (peek(j) != ':')) {
        return fail(j, "no colon behind a key");
    }
    j->p += (status == KVCL_OK);
    return status;
}

/* A value, or the beginning of one that contains others. */
static kvcl_status_t value(json_t *j)
{
    int next = peek(j);

    if ((next == '[') || (next == '{')) {
        return begin(j, next == '{');
    }
    if (next == '"') {
        return string(j);
    }
    if ((next == '-') || ((next >= '0') && (next <= '9'))) {
        return number(j);
    }
    return word(j);
}

/* What follows in the innermost list or map: its end, or one more value. */
static kvcl_status_t go_on(json_t *j)
{
    open_t        *top  = &j->open[j->depth - 1];
    kvcl_status_t status;

    if (peek(j) == (top->map ? '}' : ']')) {
        finish(j);
        return KVCL_OK;
    }
    if (top->n > 0) {
        if (peek(j) != ',') {
            return fail(j, "neither a comma nor the end");
        }
        ++j->p;
    }
    ++top->n;
    status = top->map ? key(j) : KVCL_OK;
    return (status == KVCL_OK) ? value(j) : status;
}

kvcl_status_t kvcl_ev_json(const void *json, size_t len, uint8_t *out, size_t *len_p)
{
    json_t        j      = {.start = json, .p = json, .end = (const uint8_t *)json + len, .out = out};
    kvcl_status_t status = value(&j);

    while ((status == KVCL_OK) && (j.depth > 0)) {
        status = go_on(&j);
    }
    if ((status == KVCL_OK) && (peek(&j) >= 0)) {
        status = fail(&j, "more than one value");
    }
    *len_p = (size_t)(j.out - out);
    return status;
}
