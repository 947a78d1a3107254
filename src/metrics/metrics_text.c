/*
 * Prometheus' text format (metrics_text.h).
 */
#include "config.h"
#include "metrics/metrics_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void kvcl_metric_family(FILE *file, const char *name, const char *type, const char *help)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void kvcl_metric_count(FILE *file, const char *name, uint64_t value, const char *labels, ...)
{
    va_list args;

    va_start(args, labels);
    fprintf(file, "%s{", name);
    vfprintf(file, labels, args);
    fprintf(file, "} %" PRIu64 "\n", value);
    va_end(args);
}

const char *kvcl_metric_value(char to[KVCL_METRIC_VALUE_MAX], const char *from)
{
    size_t n = 0;

    for (; (*from != '\0') && (n + 2 < KVCL_METRIC_VALUE_MAX); ++from) {
        if ((*from == '\\') || (*from == '"') || (*from == '\n')) {
            to[n++] = '\\';
        }
        to[n++] = (*from == '\n') ? 'n' : *from;
    }
    to[n] = '\0';
    return to;
}
