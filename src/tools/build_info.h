/*
 * The parts of kvcl_build_string(), which is one line for people, by their names.
 */
#ifndef KVCL_TOOLS_BUILD_INFO_H
#define KVCL_TOOLS_BUILD_INFO_H

#include <stdbool.h>
#include <stddef.h>

/* Copy the text after name ("ucx" -> "1.13.1") up to the end of its part, cut at size - 1 bytes. False, and part
 * is empty, if text has no such part. */
bool build_part(const char *text, const char *name, char *part, size_t size);

#endif
