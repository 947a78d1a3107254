/*
 * The sockets on which other processes may connect to this one.
 */
#ifndef KVCL_TEST_LISTENING_H
#define KVCL_TEST_LISTENING_H

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

static inline unsigned owned(unsigned long inode)
{
    char          path[300], target[64];
    unsigned long own;
    struct dirent *entry;
    unsigned      n    = 0;
    DIR           *dir = opendir("/proc/self/fd");
    ssize_t       len;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        len                           = readlink(path, target, sizeof(target) - 1);
        target[(len > 0) ? len : 0] = '\0';
        n += ((sscanf(target, "socket:[%lu]", &own) == 1) && (own == inode)) ? 1 : 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* The number of this process's listening TCP sockets, from the kernel's own tables. */
static inline unsigned listening(void)
{
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    enum { LISTEN = 0x0a };
    unsigned long inode;
    unsigned      state, n = 0;
    char          line[512];
    size_t        i;
    FILE          *file;

    for (i = 0; i < sizeof(tables) / sizeof(tables[0]); ++i) {
        file = fopen(tables[i], "r");
        while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
            if ((sscanf(line, " %*d: %*s %*s %x %*s %*s %*s %*u %*u %lu", &state, &inode) == 2) && (state == LISTEN)) {
                n += owned(inode);
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    return n;
}

#endif
