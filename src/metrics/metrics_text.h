/*
 * Numbers in Prometheus' text format, version 0.0.4: a family is its HELP and TYPE lines, then all its samples in
 * sequence. Names end in the unit in full (bytes, seconds), then _total for a counter. Owns nothing; one thread per
 * stream.
 */
#ifndef KVCL_METRICS_METRICS_TEXT_H
#define KVCL_METRICS_METRICS_TEXT_H

#include <stdint.h>
#include <stdio.h>

enum { KVCL_METRIC_NAME_MAX = 96, KVCL_METRIC_VALUE_MAX = 256 };

/** type: "counter", "gauge", "histogram". */
void kvcl_metric_family(FILE *file, const char *name, const char *type, const char *help);
/** labels: name="value" with commas between them, formatted; pass external values through kvcl_metric_value first. */
void kvcl_metric_count(FILE *file, const char *name, uint64_t value, const char *labels, ...)
    __attribute__((format(printf, 4, 5)));
/** Escape a label's value into to, cut at KVCL_METRIC_VALUE_MAX - 1 bytes. Returns to. */
const char *kvcl_metric_value(char to[KVCL_METRIC_VALUE_MAX], const char *from);

#endif
