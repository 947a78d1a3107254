/*
 * Reading JSON of a known schema from hostile bytes: a cursor over one line, and the functions of a reader. The first
 * error is kept, with its column. No allocation; nesting is bounded. Pure.
 */
#ifndef KVCL_TOOLS_REPLAY_JSON_READ_H
#define KVCL_TOOLS_REPLAY_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_NUMBER_MAX (UINT64_C(1) << 53) /* the largest number that every JSON reader represents exactly */

typedef struct json_cursor {
    const char *start;
    const char *p;
    const char *end;
    char       *error; /* cap bytes */
    size_t     cap;
} json_cursor_t;

/* Set the error. @return false, as do all functions below on an error. */
bool json_fail(json_cursor_t *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool json_unexpected(json_cursor_t *c, const char *wanted);

/* The next byte, or -1 at the end of the line. */
int  json_peek(const json_cursor_t *c);
void json_skip_space(json_cursor_t *c);

/* This byte, with optional space around it. */
bool json_expect(json_cursor_t *c, char byte, const char *wanted);

/* A string's raw bytes between the quotes, escapes left as they are. */
bool json_read_string(json_cursor_t *c, const char **text_p, size_t *len_p);

/* A whole number of 0..2^53; with fraction, digits after a point are allowed and dropped. name is for the error. */
bool json_read_number(json_cursor_t *c, const char *name, bool fraction, uint64_t *value_p);

/* A value of any kind, which is skipped. */
bool json_skip_value(json_cursor_t *c);

#endif
