/*
 * Owns the few rules of JSON: commas, quoting, no NaN, UTF-8 only. The writer keeps no stack: the parent of an object
 * or array that was just closed has a member, so a comma must follow.
 */
#include "config.h"
#include "tools/json_out.h"

#include <inttypes.h>
#include <math.h>

/* The bytes of the UTF-8 character at p; 0 if it is invalid (a stray byte, an overlong form, a surrogate). */
static size_t utf8_bytes(const unsigned char *p)
{
    const size_t n = (p[0] < 0x80) ? 1 : ((p[0] >= 0xc2) && (p[0] < 0xe0)) ? 2 : ((p[0] & 0xf0) == 0xe0) ? 3 :
                     ((p[0] >= 0xf0) && (p[0] < 0xf5)) ? 4 : 0;
    size_t       i;

    for (i = 1; i < n; ++i) { /* the text's closing zero ends this, too */
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if (((p[0] == 0xe0) && (p[1] < 0xa0)) || ((p[0] == 0xed) && (p[1] >= 0xa0)) ||
        ((p[0] == 0xf0) && (p[1] < 0x90)) || ((p[0] == 0xf4) && (p[1] >= 0x90))) {
        return 0;
    }
    return n;
}

/* A byte that is not valid UTF-8 is written as U+FFFD, the replacement character. */
static void quoted(FILE *file, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t              n;

    fputc('"', file);
    for (; *p != '\0'; p += (n != 0) ? n : 1) {
        n = utf8_bytes(p);
        if ((*p == '"') || (*p == '\\')) {
            fprintf(file, "\\%c", *p);
        } else if (*p < 0x20) {
            fprintf(file, "\\u%04x", *p);
        } else if (n == 0) {
            fputs("\\ufffd", file);
        } else {
            fwrite(p, 1, n, file);
        }
    }
    fputc('"', file);
}

static void member(json_out_t *json, const char *name)
{
    fputs((json->members++ == 0) ? "" : ", ", json->file);
    if (name != NULL) {
        quoted(json->file, name);
        fputs(": ", json->file);
    }
}

void json_begin(json_out_t *json, FILE *file)
{
    json->file    = file;
    json->members = 0;
    fputc('{', file);
}

void json_string(json_out_t *json, const char *name, const char *value)
{
    member(json, name);
    quoted(json->file, value);
}

void json_count(json_out_t *json, const char *name, uint64_t value)
{
    member(json, name);
    fprintf(json->file, "%" PRIu64, value);
}

void json_real(json_out_t *json, const char *name, double value, int decimals)
{
    member(json, name);
    if (isfinite(value)) {
        fprintf(json->file, "%.*f", decimals, value);
    } else {
        fputs("null", json->file);
    }
}

void json_null(json_out_t *json, const char *name)
{
    member(json, name);
    fputs("null", json->file);
}

void json_bool(json_out_t *json, const char *name, bool value)
{
    member(json, name);
    fputs(value ? "true" : "false", json->file);
}

void json_open(json_out_t *json, const char *name, char bracket)
{
    member(json, name);
    fputc(bracket, json->file);
    json->members = 0;
}

void json_close(json_out_t *json, char bracket)
{
    fputc(bracket, json->file);
    json->members = 1;
}

void json_end(json_out_t *json)
{
    fputs("}\n", json->file);
    fflush(json->file);
}
