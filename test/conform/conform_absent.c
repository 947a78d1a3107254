/*
 * Plain bytes in memory that the other side cannot simply read or write: pages of the sender that are absent, or that
 * nobody resolves (userfaultfd), a buffer that is unmapped before it is sent, a receive buffer that is read-only, bytes
 * that may be the sender's again. Each is one operation's affair: it gets the right bytes or an error, and all other
 * traffic goes on.
 */
#include "conform.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEN = 3 << 20, TAG = 40, WARM, ECHO };
enum { SKIPPED, ENDED }; /* words */

static char *map(cf_t *cf)
{
    /* Where no allocation of the process goes after munmap. */
    char *p = mmap((void *)(UINT64_C(1) << 40), LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CF_CHECK(cf, p != MAP_FAILED);
    return p;
}

static bool all_are(const char *buf, char c)
{
    return (buf[0] == c) && (memcmp(buf, buf + 1, LEN - 1) == 0);
}

static kvcl_status_t send_now(cf_t *cf, int to, uint64_t tag, const void *buf, size_t len)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_send_bytes(cf->world, to, tag, buf, len, NULL, &req));
    return cf_end(cf, req);
}

static kvcl_status_t recv_now(cf_t *cf, int from, uint64_t tag, void *buf, size_t cap)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_recv_bytes(cf->world, from, tag, buf, cap, NULL, &req));
    return cf_end(cf, req);
}

/* Rank 0 has sessions with all. */
static void connect_all(cf_t *cf)
{
    char byte = 0;
    int  r;

    for (r = 1; r < cf->size; ++r) {
        if (cf->rank == r) {
            CF_OK(cf, send_now(cf, 0, WARM, "x", 1));
        } else if (cf->rank == 0) {
            CF_OK(cf, recv_now(cf, r, WARM, &byte, 1));
        }
    }
    cf_fence(cf);
}

static uint64_t native_bytes(cf_t *cf)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    CF_OK(cf, kvcl_context_stats(cf->ctx, &stats));
    return stats.bytes_native;
}

/* ---------------------------------------------------------------- pages that nobody resolves */

typedef struct region {
    cf_t *cf;
    char *addr;
    int  fd;
} region_t;

/* False: not allowed here. */
static bool hold_pages(region_t *region)
{
    struct uffdio_api      api    = {.api = UFFD_API};
    struct uffdio_register range  = {.range = {(uintptr_t)region->addr, LEN}, .mode = UFFDIO_REGISTER_MODE_MISSING};

    region->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    return (region->fd >= 0) && (ioctl(region->fd, UFFDIO_API, &api) == 0) &&
           (ioctl(region->fd, UFFDIO_REGISTER, &range) == 0);
}

/* The sender's engine waits for a page meanwhile, so no call of its context is made. */
static void *release_pages(void *arg)
{
    region_t           *region = arg;
    struct uffdio_range range  = {(uintptr_t)region->addr, LEN};

    while (atomic_load(cf_word(region->cf, ENDED)) == 0) {
        usleep(1000);
    }
    CF_CHECK(region->cf, ioctl(region->fd, UFFDIO_UNREGISTER, &range) == 0);
    return NULL;
}

static void give_held(cf_t *cf, region_t *region)
{
    kvcl_req_h req;
    pthread_t  thread;

    CF_CHECK(cf, pthread_create(&thread, NULL, release_pages, region) == 0);
    CF_OK(cf, kvcl_send_bytes(cf->world, 0, TAG, region->addr, LEN, NULL, &req));
    CF_CHECK(cf, pthread_join(thread, NULL) == 0);
    CF_CHECK(cf, cf_end(cf, req) < 0);
}

/* The recv ends by its deadline, and rank 2 is answered until then. */
static void take_held(cf_t *cf, char *buf)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           began  = kvcl_now_ns(), trips = 0;
    char               byte   = 1;
    kvcl_req_h         req;
    kvcl_status_t      status;

    params.timeout_ns = KVCL_NS_PER_SEC;
    CF_OK(cf, kvcl_recv_bytes(cf->world, 1, TAG, buf, LEN, &params, &req));
    while ((status = kvcl_req_test(req)) == KVCL_INPROGRESS) {
        CF_OK(cf, send_now(cf, 2, ECHO, &byte, 1));
        CF_OK(cf, recv_now(cf, 2, ECHO, &byte, 1));
        ++trips;
    }
    printf("     ended after %llu ms, with %llu round trips beside it\n",
           (unsigned long long)((kvcl_now_ns() - began) / KVCL_NS_PER_MS), (unsigned long long)trips);
    atomic_store(cf_word(cf, ENDED), 1);
    CF_CHECK(cf, status == KVCL_ERR_TIMED_OUT);
    CF_CHECK(cf, trips > 1);
    byte = 0;
    CF_OK(cf, send_now(cf, 2, ECHO, &byte, 1));
}

static void answer(cf_t *cf)
{
    char byte = 1;

    for (;;) {
        CF_OK(cf, recv_now(cf, 0, ECHO, &byte, 1));
        if (byte == 0) {
            return;
        }
        CF_OK(cf, send_now(cf, 0, ECHO, &byte, 1));
    }
}

static void unresolved(cf_t *cf)
{
    region_t region = {.cf = cf, .addr = map(cf), .fd = -1};

    if ((cf->rank == 1) && !hold_pages(&region)) {
        atomic_store(cf_word(cf, SKIPPED), 1);
    }
    connect_all(cf);
    if (atomic_load(cf_word(cf, SKIPPED)) != 0) {
        if (cf->rank == 0) {
            printf("SKIP: userfaultfd is not allowed here: root, or vm.unprivileged_userfaultfd=1, is needed\n");
        }
    } else if (cf->rank == 0) {
        take_held(cf, region.addr);
    } else if (cf->rank == 1) {
        give_held(cf, &region);
    } else if (cf->rank == 2) {
        answer(cf);
    }
    cf_fence(cf);
    if (cf->rank == 0) { /* the same pages, which have zeros now */
        memset(region.addr, 1, LEN);
        CF_OK(cf, recv_now(cf, 1, TAG, region.addr, LEN));
        CF_CHECK(cf, all_are(region.addr, 0));
    } else if (cf->rank == 1) {
        CF_OK(cf, send_now(cf, 0, TAG, region.addr, LEN));
        if (region.fd >= 0) {
            close(region.fd);
        }
    }
    cf_fence(cf);
    munmap(region.addr, LEN);
}

/* ---------------------------------------------------------------- untouched pages */

/* The first time they are absent, and arrive as zeros in messages; then they are read where they lie. */
static void untouched(cf_t *cf)
{
    char     *buf = map(cf);
    uint64_t before;
    int      i;

    connect_all(cf);
    for (i = 0; i < 2; ++i) {
        if (cf->rank == 0) {
            before = native_bytes(cf);
            memset(buf, 1, LEN);
            CF_OK(cf, recv_now(cf, 1, TAG, buf, LEN));
            CF_CHECK(cf, all_are(buf, 0));
            CF_CHECK(cf, !cf_may_read(cf, 1) || (i == 0) || (native_bytes(cf) - before == LEN));
        } else if (cf->rank == 1) {
            CF_OK(cf, send_now(cf, 0, TAG, buf, LEN));
        }
        cf_fence(cf);
    }
    munmap(buf, LEN);
}

/* The same in a collective: absent pages of one piece do not end the reading of others. */
static void untouched_pieces(cf_t *cf)
{
    char       *in = map(cf), *out = malloc((size_t)cf->size * LEN);
    uint64_t   before = 0;
    kvcl_req_h req;
    int        i, r;

    connect_all(cf);
    for (i = 0; i < 3; ++i) { /* the first one makes sessions */
        if (i == 1) {
            CF_CHECK(cf, madvise(in, LEN, MADV_DONTNEED) == 0);
        }
        before = native_bytes(cf);
        memset(out, 1, (size_t)cf->size * LEN);
        cf_fence(cf);
        CF_OK(cf, kvcl_gather(cf->world, 0, in, LEN, out, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        for (r = 0; (r < cf->size) && (cf->rank == 0); ++r) {
            CF_CHECK(cf, all_are(out + (size_t)r * LEN, 0));
        }
        cf_fence(cf);
    }
    CF_CHECK(cf, (cf->rank != 0) || !cf_may_read(cf, 1) ||
                     (native_bytes(cf) - before == (uint64_t)(cf->size - 1) * LEN));
    free(out);
    munmap(in, LEN);
}

/* ---------------------------------------------------------------- bytes that may be the sender's again */

/* A send that stops counts for all that the sender has offered before: bytes that were read where they lie are dropped,
 * and arrive in messages. What it offers later is read again. */
static void stopped_another(cf_t *cf)
{
    char       *buf   = map(cf);
    uint64_t   before = 0;
    kvcl_req_h req    = NULL, other;
    int        i;

    connect_all(cf);
    for (i = 0; i < 2; ++i) {
        memset(buf, cf->rank, LEN);
        if (cf->rank == 1) {
            CF_OK(cf, kvcl_send_bytes(cf->world, 0, TAG, buf, LEN, NULL, &req));
        }
        if ((cf->rank == 1) && (i == 0)) {
            CF_OK(cf, kvcl_send_bytes(cf->world, 0, ECHO, buf, LEN, NULL, &other));
            kvcl_req_cancel(other);
            CF_IS(cf, cf_end(cf, other), KVCL_ERR_CANCELED);
        }
        cf_fence(cf);
        if (cf->rank == 0) {
            before = native_bytes(cf);
            CF_OK(cf, recv_now(cf, 1, TAG, buf, LEN));
            CF_CHECK(cf, all_are(buf, 1));
            CF_CHECK(cf, !cf_may_read(cf, 1) || (native_bytes(cf) - before == ((i == 0) ? 0 : LEN)));
        } else if (cf->rank == 1) {
            CF_OK(cf, cf_end(cf, req));
        }
        cf_fence(cf);
    }
    munmap(buf, LEN);
}

/* ---------------------------------------------------------------- buffers that are gone, or read-only */

static void unmapped_sender(cf_t *cf)
{
    char             *buf = map(cf);
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    kvcl_req_h       req  = NULL;

    memset(buf, 1, LEN);
    connect_all(cf);
    if (cf->rank == 1) {
        CF_OK(cf, kvcl_send_bytes(cf->world, 0, TAG, buf, LEN, NULL, &req));
        munmap(buf + LEN / 2, LEN / 2);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        CF_OK(cf, kvcl_probe(cf->world, 1, TAG, 60 * KVCL_NS_PER_SEC, &info));
        CF_IS(cf, recv_now(cf, 1, TAG, buf, LEN), KVCL_ERR_ACCESS);
        CF_CHECK(cf, strstr(kvcl_last_error(), "sender's buffer") != NULL);
        CF_OK(cf, recv_now(cf, 1, TAG, buf, LEN / 2));
        CF_CHECK(cf, (buf[0] == 1) && (buf[LEN / 2 - 1] == 1));
    } else if (cf->rank == 1) {
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
        CF_CHECK(cf, strstr(kvcl_last_error(), "this send's buffer") != NULL);
        CF_OK(cf, send_now(cf, 0, TAG, buf, LEN / 2));
    }
    cf_fence(cf);
    munmap(buf, LEN);
}

/* All of the buffer, or, where the kernel copies, a part in the middle. */
static void read_only(cf_t *cf, size_t from, size_t len)
{
    char *buf = map(cf);

    memset(buf, 1, LEN);
    connect_all(cf);
    if (cf->rank == 0) {
        CF_CHECK(cf, mprotect(buf + from, len, PROT_READ) == 0);
        CF_IS(cf, recv_now(cf, 1, TAG, buf, LEN), KVCL_ERR_ACCESS);
        CF_CHECK(cf, strstr(kvcl_last_error(), "not writable") != NULL);
        CF_CHECK(cf, mprotect(buf, LEN, PROT_READ | PROT_WRITE) == 0);
        CF_OK(cf, recv_now(cf, 1, TAG, buf, LEN));
    } else if (cf->rank == 1) {
        CF_IS(cf, send_now(cf, 0, TAG, buf, LEN), KVCL_ERR_ACCESS);
        CF_CHECK(cf, strstr(kvcl_last_error(), "its recv is not writable") != NULL);
        CF_OK(cf, send_now(cf, 0, TAG, buf, LEN));
    }
    cf_fence(cf);
    munmap(buf, LEN);
}

static void read_only_receiver(cf_t *cf)
{
    read_only(cf, 0, LEN);
}

static void read_only_middle(cf_t *cf)
{
    if ((cf->rank != 0) || cf_may_read(cf, 1)) {
        atomic_store(cf_word(cf, SKIPPED), (uint64_t)(cf->rank == 0));
    }
    cf_fence(cf);
    if (atomic_load(cf_word(cf, SKIPPED)) != 0) {
        read_only(cf, LEN / 2, 65536);
    }
}

static void read_only_collective(cf_t *cf)
{
    char       *in = map(cf), *out = mmap(NULL, (size_t)cf->size * LEN, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kvcl_req_h req;

    CF_CHECK(cf, out != MAP_FAILED);
    memset(in, 1, LEN);
    connect_all(cf);
    CF_OK(cf, kvcl_gather(cf->world, 0, in, LEN, out, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, mprotect(out + LEN, LEN, PROT_READ) == 0); /* of rank 1 */
    CF_OK(cf, kvcl_gather(cf->world, 0, in, LEN, out, NULL, &req));
    if ((cf->rank == 0) && cf_may_read(cf, 1)) {
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
    } else {
        (void)cf_end(cf, req); /* it may have given its piece before */
    }
    cf_fence(cf);
    munmap(out, (size_t)cf->size * LEN);
    munmap(in, LEN);
}

static const cf_case_t cases[] = {
    {"unresolved", unresolved, CF_THREE | CF_THREAD | CF_MAPPED},
    {"untouched", untouched, CF_PROCS | CF_MAPPED},
    {"untouched_pieces", untouched_pieces, CF_PROCS | CF_MAPPED},
    {"stopped_another", stopped_another, CF_PROCS | CF_MAPPED},
    {"unmapped_sender", unmapped_sender, CF_PROCS},
    {"read_only_receiver", read_only_receiver, CF_PROCS},
    {"read_only_middle", read_only_middle, CF_PROCS | CF_MAPPED},
    {"read_only_collective", read_only_collective, CF_PROCS | CF_MAPPED},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"shm", true, 3, 0}, {"tcp", true, 3, 0}, {"tcp", true, 2, CF_LANE}, {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
