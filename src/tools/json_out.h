/*
 * One JSON object on a stream: begin, members, end. A member may be an object or an array: json_open, its members,
 * json_close. In an array the members' names are NULL. The writer is a plain value; the caller owns the stream.
 */
#ifndef KVCL_TOOLS_JSON_OUT_H
#define KVCL_TOOLS_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_out {
    FILE     *file;
    unsigned members;
} json_out_t;

void json_begin(json_out_t *json, FILE *file);
void json_string(json_out_t *json, const char *name, const char *value);
void json_count(json_out_t *json, const char *name, uint64_t value);
/* decimals digits after the point; null if the value is not finite, which means not measured. */
void json_real(json_out_t *json, const char *name, double value, int decimals);
void json_null(json_out_t *json, const char *name);
void json_bool(json_out_t *json, const char *name, bool value);
void json_open(json_out_t *json, const char *name, char bracket); /* '{' or '[' */
void json_close(json_out_t *json, char bracket);                  /* '}' or ']', matching json_open */
void json_end(json_out_t *json);                                  /* closes the object, ends the line, flushes */

#endif
