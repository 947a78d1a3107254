/*
 * Numbers without a locale, and hints for misspelt words (text.h). Pure.
 */
#include "config.h"
#include "sched/predict/text.h"
#include "base/nearest.h"

#include <stdint.h>
#include <stdio.h>

enum { NUMBER_MAX = 40, EXPONENT_MAX = 300, DIGITS_MAX = 18 };

static bool is_digit(char c)
{
    return (c >= '0') && (c <= '9');
}

/* mantissa x 10^exponent */
static double scaled(uint64_t mantissa, int exponent)
{
    long double value = (long double)mantissa;
    long double ten   = 10;
    unsigned    left  = (unsigned)((exponent < 0) ? -exponent : exponent);

    for (; left > 0; left /= 2) {
        if ((left % 2) != 0) {
            value = (exponent < 0) ? value / ten : value * ten;
        }
        ten *= ten;
    }
    return (double)value;
}

bool kvcl_sched_number(const char *text, size_t len, double *value_p)
{
    uint64_t mantissa = 0;
    size_t   i        = 0;
    int      exponent = 0, power = 0, digits = 0;
    bool     point    = false, minus = false;

    if ((len == 0) || (len > NUMBER_MAX)) {
        return false;
    }
    for (; (i < len) && (is_digit(text[i]) || ((text[i] == '.') && !point)); ++i) {
        if (text[i] == '.') {
            point = true;
            continue;
        }
        if (mantissa < UINT64_C(100000000000000000)) {
            mantissa = (mantissa * 10) + (uint64_t)(text[i] - '0');
            exponent -= point ? 1 : 0;
        } else {
            exponent += point ? 0 : 1;
        }
        ++digits;
    }
    if ((digits > 0) && (i + 1 < len) && ((text[i] == 'e') || (text[i] == 'E'))) {
        minus = (text[++i] == '-');
        i    += ((text[i] == '-') || (text[i] == '+')) ? 1 : 0;
        if (i == len) {
            return false;
        }
        for (; (i < len) && is_digit(text[i]) && (power <= EXPONENT_MAX); ++i) {
            power = (power * 10) + (text[i] - '0');
        }
        exponent += minus ? -power : power;
    }
    if ((digits == 0) || (i != len) || (exponent > EXPONENT_MAX - DIGITS_MAX) || (exponent < -EXPONENT_MAX)) {
        return false;
    }
    *value_p = scaled(mantissa, exponent);
    return true;
}

const char *kvcl_sched_hint(char *buf, size_t buf_len, const char *word, size_t len, const char *const *names,
                            size_t stride, size_t n)
{
    const char *name, *best = NULL;
    size_t     i, distance, least = 1 + ((len + 1) / 3);

    buf[0] = '\0';
    for (i = 0; i < n; ++i) {
        name     = *(const char *const *)((const char *)names + (i * stride));
        distance = (name == NULL) ? SIZE_MAX : kvcl_edit_distance(word, len, name);
        if (distance < least) {
            least = distance;
            best  = name;
        }
    }
    if (best != NULL) {
        (void)snprintf(buf, buf_len, ", is it %s?", best);
    }
    return buf;
}
