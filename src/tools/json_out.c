/*
 * Owns the few rules of JSON that a flat object needs: commas, quoting, no NaN.
 */
#include "config.h"
#include "tools/json_out.h"

#include <inttypes.h>
#include <math.h>

static void quoted(FILE *file, const char *text)
{
    const unsigned char *p;

    fputc('"', file);
    for (p = (const unsigned char *)text; *p != '\0'; ++p) {
        if ((*p == '"') || (*p == '\\')) {
            fprintf(file, "\\%c", *p);
        } else if (*p < 0x20) {
            fprintf(file, "\\u%04x", *p);
        } else {
            fputc(*p, file);
        }
    }
    fputc('"', file);
}

static void member(json_out_t *json, const char *name)
{
    fputs((json->members++ == 0) ? "" : ", ", json->file);
    quoted(json->file, name);
    fputs(": ", json->file);
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

void json_end(json_out_t *json)
{
    fputs("}\n", json->file);
    fflush(json->file);
}
