/*
 * Sizes and times as people write them. Pure; no locale, no lock.
 *
 * Sizes: digits with an optional fraction, then nothing, B, K/M/G/T or KB..TB or KiB..TiB, any
 * case, all powers of 1024; "unlimited" (or "inf") is KVCL_UNLIMITED.
 * Times: digits with an optional fraction, then ns, us, ms, s, m (min) or h; a bare number is
 * seconds; "unlimited" (or "inf") is KVCL_UNLIMITED.
 */
#ifndef KVCL_BASE_UNITS_H
#define KVCL_BASE_UNITS_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

#define KVCL_UNLIMITED UINT64_MAX

/** *bytes_p is untouched on error. @return KVCL_OK, KVCL_ERR_INVALID_PARAM with a sentence. */
kvcl_status_t kvcl_size_parse(const char *str, uint64_t *bytes_p) KVCL_MUST_CHECK;
kvcl_status_t kvcl_time_parse(const char *str, uint64_t *ns_p) KVCL_MUST_CHECK;

/**
 * Write the shortest exact or three-digit form, "64K", "1.50G", "unlimited", "10ms". Always ends
 * in NUL, cut at @a n. Returns buf, to be used as a printf argument. What format writes for a whole
 * multiple of its unit, parse reads back to the same number.
 */
const char *kvcl_size_format(char *buf, size_t n, uint64_t bytes);
const char *kvcl_time_format(char *buf, size_t n, uint64_t ns);

#endif
