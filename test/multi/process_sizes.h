/*
 * What a process holds: memory, descriptors, threads.
 */
#ifndef KVCL_TEST_PROCESS_SIZES_H
#define KVCL_TEST_PROCESS_SIZES_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static inline long count_files(const char *path)
{
    DIR           *dir = opendir(path);
    struct dirent *entry;
    long          n = 0;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        n += (entry->d_name[0] != '.') ? 1 : 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* KiB resident, descriptors, threads. */
static inline void measure(long sizes[3])
{
    FILE *file  = fopen("/proc/self/statm", "r");
    long all, resident = 0;

    if ((file != NULL) && (fscanf(file, "%ld %ld", &all, &resident) != 2)) {
        resident = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    sizes[0] = resident * (sysconf(_SC_PAGESIZE) / 1024);
    sizes[1] = count_files("/proc/self/fd");
    sizes[2] = count_files("/proc/self/task");
}

#endif
