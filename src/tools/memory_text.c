/*
 * The words for how a memory is reached (memory_text.h). Pure.
 */
#include "config.h"
#include "tools/memory_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void memory_text(const kvcl_memory_info_t *info, char *buf, size_t cap)
{
    const bool native = (strcmp(info->get_path, "native") == 0), same = (strcmp(info->get_path, info->put_path) == 0);
    const bool writes = (info->put_path[0] != '\0'), why = (info->why[0] != '\0');
    const bool put_why = (strcmp(info->put_path, "served") == 0) && (info->put_why[0] != '\0');
    int        n;

    n = snprintf(buf, cap, (why && native) ? "%s (%s)" : why ? "%s: %s" : "%s%s", info->get_path, info->why);
    if (writes && !same && (n > 0) && ((size_t)n < cap)) {
        snprintf(buf + n, cap - (size_t)n, put_why ? ", puts %s: %s" : ", puts %s%s", info->put_path,
                 put_why ? info->put_why : "");
    }
}
