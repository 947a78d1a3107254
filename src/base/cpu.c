/*
 * Usable cores: affinity and cgroup quota. Reads /proc and /sys once per call, keeps nothing.
 */
#include "config.h"
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int affinity_cores(void)
{
    int        max  = 1024;
    int        n    = 0;
    cpu_set_t *set;
    size_t     len;

    /* A machine with more CPUs than the set holds gives EINVAL: try larger ones. */
    for (; (n == 0) && (max <= 1024 * 1024); max *= 4) {
        set = CPU_ALLOC((size_t)max);
        if (set == NULL) {
            break;
        }
        len = CPU_ALLOC_SIZE((size_t)max);
        if (sched_getaffinity(0, len, set) == 0) {
            n = CPU_COUNT_S(len, set);
        }
        CPU_FREE(set);
    }
    if (n <= 0) {
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return (n <= 0) ? 1 : n;
}

static int read_line(const char *path, char *line, int len)
{
    FILE *file = fopen(path, "re");
    int   ok;

    if (file == NULL) {
        return 0;
    }
    ok = fgets(line, len, file) != NULL;
    fclose(file);
    return ok;
}

static int quota_to_cores(long long quota, long long period)
{
    return ((quota <= 0) || (period <= 0)) ? 0 : (int)((quota + period - 1) / period);
}

/* The path of this process's v2 group, "/" if there is none to be seen. */
static void v2_group(char *group, size_t len)
{
    char  line[512];
    FILE *file = fopen("/proc/self/cgroup", "re");

    snprintf(group, len, "/");
    if (file == NULL) {
        return;
    }
    while (fgets(line, (int)sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0) {
            snprintf(group, len, "%s", line + 3);
        }
    }
    fclose(file);
}

/* 0: no limit. The tightest limit of the groups from this process up to the root counts. */
static int v2_cores(void)
{
    char      group[512], path[640], line[64];
    long long quota, period;
    int       cores, least = 0;
    char     *slash;

    for (v2_group(group, sizeof(group));; *slash = '\0') {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", (strcmp(group, "/") == 0) ? "" : group);
        if (read_line(path, line, (int)sizeof(line)) && (sscanf(line, "%lld %lld", &quota, &period) == 2)) {
            cores = quota_to_cores(quota, period);
            least = ((least == 0) || ((cores > 0) && (cores < least))) ? cores : least;
        }
        slash = strrchr(group, '/');
        if (slash == NULL) {
            return least;
        }
    }
}

static int v1_cores(void)
{
    char quota[64], period[64];

    if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, (int)sizeof(quota)) &&
        read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, (int)sizeof(period))) {
        return quota_to_cores(atoll(quota), atoll(period));
    }
    return 0;
}

int kvcl_online_cores(void)
{
    int cores = affinity_cores();
    int limit = v2_cores();

    if (limit == 0) {
        limit = v1_cores();
    }
    return ((limit > 0) && (limit < cores)) ? limit : cores;
}
