/*
 * The tier's I/O by io_uring: one ring, one thread that sleeps until something completes.
 *
 * Submitters share the submission queue under the ring's own mutex; only the thread reads completions. The thread takes
 * the mutex once after it reaps an op, so the op's done() sees what its submitter wrote. Registered memory is found by
 * address; ops on other memory run unregistered. If the kernel refuses to register all of it (RLIMIT_MEMLOCK), only the
 * first piece, the tier's own, is registered.
 */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "tier/tier_io.h"

#if KVCL_HAVE_URING

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEM_MAX = 64, RETRIES = 1000, REAP = 16 };

/* The kernel takes no longer pieces. */
#define MEM_PIECE (UINT64_C(1) << 30)

typedef struct uring_io {
    kvcl_tio_t      super;
    int             fd;
    struct io_uring ring;
    pthread_mutex_t lock;
    kvcl_list_t     queue; /* beyond the depth */
    unsigned        depth, in_flight;
    struct iovec    mem[MEM_MAX];
    unsigned        n_mem;
    pthread_t       thread;
} uring_io_t;

/* The registered piece that holds all of the op's memory, or -1. */
static int mem_of(const uring_io_t *io, const kvcl_tio_op_t *op)
{
    unsigned i;

    for (i = 0; i < io->n_mem; ++i) {
        const uint8_t *base = io->mem[i].iov_base;

        if ((op->buf >= base) && (op->len <= io->mem[i].iov_len) &&
            ((size_t)(op->buf - base) <= io->mem[i].iov_len - op->len)) {
            return (int)i;
        }
    }
    return -1;
}

static void prepare(const uring_io_t *io, struct io_uring_sqe *sqe, kvcl_tio_op_t *op)
{
    int mem = mem_of(io, op);

    switch (op->kind) {
    case KVCL_TIO_READ:
        if (mem >= 0) {
            io_uring_prep_read_fixed(sqe, io->fd, op->buf, (unsigned)op->len, op->off, mem);
        } else {
            io_uring_prep_read(sqe, io->fd, op->buf, (unsigned)op->len, op->off);
        }
        break;
    case KVCL_TIO_WRITE:
        if (mem >= 0) {
            io_uring_prep_write_fixed(sqe, io->fd, op->buf, (unsigned)op->len, op->off, mem);
        } else {
            io_uring_prep_write(sqe, io->fd, op->buf, (unsigned)op->len, op->off);
        }
        break;
    case KVCL_TIO_SYNC:
        io_uring_prep_fsync(sqe, io->fd, IORING_FSYNC_DATASYNC);
        break;
    default:
        io_uring_prep_nop(sqe);
        break;
    }
    io_uring_sqe_set_data(sqe, op);
}

/* Lock held: give the kernel what is ready. Out of memory for a moment is its only reason to refuse. */
static void give(uring_io_t *io)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    int                          rc, i;

    for (i = 0; (io_uring_sq_ready(&io->ring) > 0) && (i < RETRIES); ++i) {
        rc = io_uring_submit(&io->ring);
        if ((rc < 0) && (rc != -EINTR)) {
            nanosleep(&moment, NULL);
        }
    }
    if (io_uring_sq_ready(&io->ring) > 0) {
        kvcl_log_error("a tier's io_uring takes no more operations");
    }
}

/* Lock held. */
static void pump(uring_io_t *io)
{
    struct io_uring_sqe *sqe;

    while ((io->in_flight < io->depth) && !kvcl_list_is_empty(&io->queue) &&
           ((sqe = io_uring_get_sqe(&io->ring)) != NULL)) {
        prepare(io, sqe, kvcl_container_of(kvcl_list_pop(&io->queue), kvcl_tio_op_t, link));
        ++io->in_flight;
    }
    give(io);
}

/* What has ended, at most REAP of it. */
static unsigned reap(uring_io_t *io, kvcl_tio_op_t **ops, int64_t *results)
{
    struct io_uring_cqe *cqes[REAP];
    unsigned            n = io_uring_peek_batch_cqe(&io->ring, cqes, REAP), i;

    for (i = 0; i < n; ++i) {
        ops[i]     = io_uring_cqe_get_data(cqes[i]);
        results[i] = cqes[i]->res;
    }
    io_uring_cq_advance(&io->ring, n);
    return n;
}

/* Submit the waiting ops before the callbacks run, since callbacks may take long. */
static void *work(void *arg)
{
    uring_io_t          *io = arg;
    struct io_uring_cqe *cqe;
    kvcl_tio_op_t       *ops[REAP];
    int64_t             results[REAP];
    unsigned            n, i;

    for (;;) {
        if (io_uring_wait_cqe(&io->ring, &cqe) != 0) {
            continue; /* a signal */
        }
        n = reap(io, ops, results);
        if ((n == 1) && (ops[0] == NULL)) {
            return NULL; /* closing: nothing else is in flight */
        }
        pthread_mutex_lock(&io->lock);
        io->in_flight -= n;
        pump(io);
        pthread_mutex_unlock(&io->lock);
        for (i = 0; i < n; ++i) {
            ops[i]->done(ops[i], results[i]);
        }
    }
}

static void uring_submit(kvcl_tio_t *base, kvcl_tio_op_t *op)
{
    uring_io_t *io = kvcl_container_of(base, uring_io_t, super);

    pthread_mutex_lock(&io->lock);
    kvcl_list_add_tail(&io->queue, &op->link);
    pump(io);
    pthread_mutex_unlock(&io->lock);
}

static void uring_close(kvcl_tio_t *base)
{
    uring_io_t          *io = kvcl_container_of(base, uring_io_t, super);
    struct io_uring_sqe *sqe;

    pthread_mutex_lock(&io->lock);
    sqe = io_uring_get_sqe(&io->ring); /* nothing is in flight: there is one */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    give(io);
    pthread_mutex_unlock(&io->lock);
    pthread_join(io->thread, NULL);
    io_uring_queue_exit(&io->ring);
    pthread_mutex_destroy(&io->lock);
    free(io);
}

static void register_memory(uring_io_t *io, const struct iovec *mem, unsigned n_mem)
{
    unsigned i, n = 0;
    uint64_t at;

    for (i = 0; i < n_mem; ++i) {
        for (at = 0; (at < mem[i].iov_len) && (n < MEM_MAX); at += MEM_PIECE, ++n) {
            uint64_t len = mem[i].iov_len - at;

            io->mem[n] = (struct iovec){.iov_base = (uint8_t *)mem[i].iov_base + at,
                                        .iov_len  = (len < MEM_PIECE) ? len : MEM_PIECE};
        }
    }
    for (; n > 0; n = (n > 1) ? 1 : 0) {
        int rc = io_uring_register_buffers(&io->ring, io->mem, n);

        if (rc == 0) {
            break;
        }
        kvcl_log_info("a tier uses %u pieces of memory unregistered: %s", n, strerror(-rc));
    }
    io->n_mem = n;
}

static kvcl_status_t uring_open(int fd, unsigned depth, const struct iovec *mem, unsigned n_mem, kvcl_tio_t **io_p)
{
    uring_io_t *io = calloc(1, sizeof(*io));
    int        rc;

    if (io == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a ring");
    }
    rc = io_uring_queue_init(depth + 1, &io->ring, 0);
    if (rc != 0) {
        free(io);
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "io_uring cannot be used here: %s", strerror(-rc));
    }
    io->super.ops = &kvcl_tio_uring;
    io->fd        = fd;
    io->depth     = depth;
    kvcl_list_init(&io->queue);
    pthread_mutex_init(&io->lock, NULL);
    register_memory(io, mem, n_mem);
    rc = pthread_create(&io->thread, NULL, work, io);
    if (rc != 0) {
        io_uring_queue_exit(&io->ring);
        pthread_mutex_destroy(&io->lock);
        free(io);
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, rc, "a tier cannot start a thread");
    }
    *io_p = &io->super;
    return KVCL_OK;
}

const kvcl_tio_ops_t kvcl_tio_uring = {
    .name = "io_uring", .open = uring_open, .submit = uring_submit, .close = uring_close};

#else

static kvcl_status_t uring_open(int fd, unsigned depth, const struct iovec *mem, unsigned n_mem, kvcl_tio_t **io_p)
{
    (void)fd;
    (void)depth;
    (void)mem;
    (void)n_mem;
    (void)io_p;
    return kvcl_fail(KVCL_ERR_UNSUPPORTED, "this build has no io_uring");
}

const kvcl_tio_ops_t kvcl_tio_uring = {.name = "io_uring", .open = uring_open};

#endif
