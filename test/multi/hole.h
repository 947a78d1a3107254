/*
 * A hole in this process's own queue of UCX in shared memory, as a sender leaves that is killed in the midst of
 * writing: the number of entries that were taken is one higher, and that entry is never complete. The layout is that of
 * UCX (uct/sm/mm/base/mm_iface.h): the queue begins with that number, the length of an address, and the address of the
 * datagram socket that wakes the reader, by which this process's own queue is told from those of others.
 */
#ifndef KVCL_TEST_HOLE_H
#define KVCL_TEST_HOLE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HOLE_ARMED (UINT64_C(1) << 63) /* the reader sleeps */

typedef struct hole_queue {
    _Atomic uint64_t   taken;
    socklen_t          len;
    struct sockaddr_un name;
} hole_queue_t;

static inline bool is_own_socket(const struct sockaddr_un *name, socklen_t len)
{
    struct sockaddr_un own;
    socklen_t          own_len;
    int                fd;

    for (fd = 0; fd < 1024; ++fd) {
        own_len = sizeof(own);
        if ((getsockname(fd, (struct sockaddr *)&own, &own_len) == 0) && (own_len == len) &&
            (memcmp(&own, name, len) == 0)) {
            return true;
        }
    }
    return false;
}

/** Any thread. @return how many queues have a hole now; queues that had one before are no exception. Queues that nobody
 * has written to get none: UCX may be opening them, and waits in vain for that message then. */
static inline int make_holes(void)
{
    FILE               *maps = fopen("/proc/self/maps", "r");
    int                mem   = open("/proc/self/mem", O_RDONLY); /* UCX may unmap another process's queue meanwhile */
    char               line[512];
    unsigned long long start, end;
    hole_queue_t       queue;
    int                n = 0;

    while ((maps != NULL) && (fgets(line, sizeof(line), maps) != NULL)) {
        if ((strstr(line, "ucx_shm_posix") == NULL) || (sscanf(line, "%llx-%llx rw-s 00000000", &start, &end) != 2) ||
            (pread(mem, &queue, sizeof(queue), (off_t)start) != sizeof(queue))) {
            continue;
        }
        if (((queue.taken & ~HOLE_ARMED) > 0) && (queue.len > sizeof(sa_family_t)) &&
            (queue.len <= sizeof(queue.name)) && (queue.name.sun_family == AF_UNIX) &&
            is_own_socket(&queue.name, queue.len)) {
            ++((hole_queue_t *)(uintptr_t)start)->taken;
            ++n;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    close(mem);
    return n;
}

#endif
