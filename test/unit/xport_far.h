/*
 * Another process with a transport of its own, which registers memory and then sleeps. Included once by a test program.
 */
#ifndef KVCL_TEST_XPORT_FAR_H
#define KVCL_TEST_XPORT_FAR_H

#include "near/near_ops.h"
#include "xport_pair.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAR_SIZE = 1 << 20 };

/* The data that the other process sends about itself. */
typedef struct far_info {
    char     addr[4096];
    size_t   addr_len;
    char     packed[512];
    size_t   packed_len;
    uint64_t mem;
    uint64_t holed; /* the same bytes, with an absent page in the middle */
    char     self[KVCL_NEAR_SELF];
} far_info_t;

typedef struct far {
    pid_t      pid;
    int        to; /* closing it ends the process */
    far_info_t info;
} far_t;

static void write_all(int fd, const void *buf, size_t len)
{
    ck_assert_int_eq(write(fd, buf, len), (ssize_t)len);
}

static void read_all(int fd, void *buf, size_t len)
{
    size_t  at = 0;
    ssize_t n;

    while (at < len) {
        n = read(fd, (char *)buf + at, len - at);
        ck_assert_int_gt(n, 0);
        at += (size_t)n;
    }
}

static char *holed_memory(void)
{
    char *p = mmap(NULL, FAR_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(p, MAP_FAILED);
    (void)madvise(p, FAR_SIZE, MADV_NOHUGEPAGE);
    fill(p, FAR_SIZE / 2, 11);
    fill(p + FAR_SIZE / 2 + sysconf(_SC_PAGESIZE), FAR_SIZE / 2 - (size_t)sysconf(_SC_PAGESIZE), 11);
    return p;
}

/* The other process: registers memory, sends its address, then sleeps in read() and never makes progress. */
static void far_main(pair_kind_t kind, int from, int to)
{
    static far_info_t info;
    kvcl_xport_mem_t  *mem;
    const void        *addr;
    side_t            side;
    void              *p;
    char              c;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    side_open(&side, kind);
    side.ops->address(side.xport, &addr, &info.addr_len);
    memcpy(info.addr, addr, info.addr_len);
    p = malloc(FAR_SIZE);
    ck_assert_int_eq(side.ops->mem_register(side.xport, p, FAR_SIZE, &mem), KVCL_OK);
    fill(p, FAR_SIZE, 11);
    info.mem        = (uintptr_t)p;
    info.holed      = (uintptr_t)holed_memory();
    info.packed_len = sizeof(info.packed);
    ck_assert_int_eq(side.ops->mem_pack(mem, info.packed, &info.packed_len), KVCL_OK);
    (void)side.ops->near->self(side.xport, info.self); /* false: over UCX's own tcp */
    write_all(to, &info, sizeof(info));
    while (read(from, &c, 1) == 1) {
        (void)side.ops->progress(side.xport);
    }
    _exit(0);
}

static void far_start(far_t *far, pair_kind_t kind)
{
    int down[2], up[2];

    ck_assert_int_eq(pipe(down), 0);
    ck_assert_int_eq(pipe(up), 0);
    far->pid = fork();
    if (far->pid == 0) {
        close(down[1]);
        far_main(kind, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    far->to = down[1];
    read_all(up[0], &far->info, sizeof(far->info));
    close(up[0]);
}

static void far_connect(side_t *side, const far_t *far, pair_kind_t kind)
{
    side_open(side, kind);
    ck_assert_int_eq(side->ops->ep_create(side->xport, far->info.addr, far->info.addr_len, &side->ep), KVCL_OK);
}

/* process_vm_readv needs ptrace access to the other process. */
static bool may_read(const far_t *far)
{
    char         c;
    struct iovec to = {&c, 1}, from = {(void *)(uintptr_t)far->info.mem, 1};

    return process_vm_readv(far->pid, &to, 1, &from, 1, 0) == 1;
}

#endif
