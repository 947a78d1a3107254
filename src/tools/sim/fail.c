/*
 * The library's eviction order reports misuse by a sentence, which is hidden in the library. A pool never misuses it
 * (pool.c ends the program if it did), so the tools drop the sentence; a program that links the whole library keeps its
 * own function, since this one is weak.
 */
#include "config.h"
#include "base/error.h"

__attribute__((weak)) kvcl_status_t kvcl_fail(kvcl_status_t status, const char *fmt, ...)
{
    (void)fmt;
    return status;
}
