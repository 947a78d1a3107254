/*
 * Words and numbers of the small texts of the scheduler: model files and policy strings. Pure; no locale: a decimal
 * point is always ".".
 */
#ifndef KVCL_SCHED_PREDICT_TEXT_H
#define KVCL_SCHED_PREDICT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/**
 * A number that is all of text[0..len): digits, a fraction, an exponent; no sign. @return false: it is none, is above
 * 1e300, or has more than 40 bytes.
 */
bool kvcl_sched_number(const char *text, size_t len, double *value_p);

/** ", is it NAME?" for the nearest of n names, "" if none is near. stride: of the pointers to them. Returns buf. */
const char *kvcl_sched_hint(char *buf, size_t buf_len, const char *word, size_t len, const char *const *names,
                            size_t stride, size_t n);

#endif
