/*
 * How much memory a segment may take (segment.h): the kernel would rather end a process than fail its page fault, so a
 * request that cannot succeed is refused before. Reads /proc/meminfo and the limits of the control groups (versions 1
 * and 2) of this process, each time. What cannot be read does not limit.
 */
#include "config.h"
#include "mem/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 512 };

/* The first number behind key in a file of "key number" lines; key NULL: the file is the number. */
static bool read_number(const char *path, const char *key, uint64_t *value_p)
{
    FILE *file  = fopen(path, "re");
    bool  found = false;
    char  line[256];

    while ((file != NULL) && !found && (fgets(line, sizeof(line), file) != NULL)) {
        size_t skip = (key != NULL) ? strlen(key) : 0;
        found = ((key == NULL) || (strncmp(line, key, skip) == 0)) && (sscanf(line + skip, "%" SCNu64, value_p) == 1);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

static uint64_t machine_room(void)
{
    uint64_t free_kib, swap_kib = 0;

    if (!read_number("/proc/meminfo", "MemAvailable:", &free_kib)) {
        return UINT64_MAX;
    }
    (void)read_number("/proc/meminfo", "SwapFree:", &swap_kib);
    return (free_kib + swap_kib) << 10;
}

/* One control group: its limit less its use, where its file pages that are easily dropped do not count as use. */
static uint64_t group_room(const char *dir, const char *limit, const char *use)
{
    char     path[PATH_BYTES + 64];
    uint64_t most, used, dropped = 0;

    snprintf(path, sizeof(path), "%s/%s", dir, limit);
    if (!read_number(path, NULL, &most)) { /* "max" is no number */
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "%s/%s", dir, use);
    if (!read_number(path, NULL, &used)) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    (void)read_number(path, "inactive_file ", &dropped);
    used -= least(used, dropped);
    return (most > used) ? most - used : 0;
}

/* The group at path below mount, and the groups above it. */
static uint64_t groups_room(const char *mount, const char *group, const char *limit, const char *use)
{
    char     path[PATH_BYTES];
    size_t   top  = strlen(mount);
    uint64_t room = UINT64_MAX;
    char     *cut;

    if ((size_t)snprintf(path, sizeof(path), "%s%s", mount, group) >= sizeof(path)) {
        return room;
    }
    for (;;) {
        room = least(room, group_room(path, limit, use));
        cut  = strrchr(path, '/');
        if ((strlen(path) <= top) || (cut == NULL)) {
            return room;
        }
        *cut = '\0';
    }
}

uint64_t kvcl_segment_room(void)
{
    FILE     *file = fopen("/proc/self/cgroup", "re");
    uint64_t room  = machine_room();
    char     line[PATH_BYTES];
    char     *memory;

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) { /* "0::/group" or "5:memory:/group" */
        line[strcspn(line, "\n")] = '\0';
        memory = strstr(line, ":memory:");
        if (strncmp(line, "0::/", 4) == 0) {
            room = least(room, groups_room("/sys/fs/cgroup", line + 3, "memory.max", "memory.current"));
        } else if (memory != NULL) {
            room = least(room, groups_room("/sys/fs/cgroup/memory", memory + 8, "memory.limit_in_bytes",
                                           "memory.usage_in_bytes"));
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return room;
}
