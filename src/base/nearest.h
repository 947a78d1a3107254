/*
 * The nearest known name to one that was misspelt, by edit distance. Pure.
 */
#ifndef KVCL_BASE_NEAREST_H
#define KVCL_BASE_NEAREST_H

#include <stddef.h>

/**
 * Insertions, deletions, replacements and swaps of neighbours that turn a[0..len_a) into b. SIZE_MAX if one has more
 * than 64 bytes. A distance above len_a / 3 is no hint.
 */
size_t kvcl_edit_distance(const char *a, size_t len_a, const char *b);

#endif
