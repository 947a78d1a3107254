/*
 * The tier's I/O without io_uring: a few threads with pread, pwrite and fdatasync.
 *
 * Lock: its own mutex around the queue. Threads sleep on a condition while the queue is empty; memory is not
 * registered.
 */
#include "config.h"

#include "base/error.h"
#include "tier/tier_io.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS_MAX = 8 };

typedef struct threads_io {
    kvcl_tio_t      super;
    int             fd;
    pthread_mutex_t lock;
    pthread_cond_t  cond;
    kvcl_list_t     queue;
    bool            stopping;
    pthread_t       threads[THREADS_MAX];
    unsigned        n;
} threads_io_t;

static int64_t move(int fd, const kvcl_tio_op_t *op)
{
    int64_t rc = 0;

    do {
        switch (op->kind) {
        case KVCL_TIO_READ:
            rc = pread(fd, op->buf, op->len, (off_t)op->off);
            break;
        case KVCL_TIO_WRITE:
            rc = pwrite(fd, op->buf, op->len, (off_t)op->off);
            break;
        case KVCL_TIO_SYNC:
            rc = fdatasync(fd);
            break;
        default:
            break;
        }
    } while ((rc < 0) && (errno == EINTR));
    return (rc < 0) ? -errno : rc;
}

static void *work(void *arg)
{
    threads_io_t *io = arg;
    kvcl_list_t  *link;

    pthread_mutex_lock(&io->lock);
    for (;;) {
        link = kvcl_list_pop(&io->queue);
        if (link != NULL) {
            kvcl_tio_op_t *op = kvcl_container_of(link, kvcl_tio_op_t, link);

            pthread_mutex_unlock(&io->lock);
            op->done(op, move(io->fd, op));
            pthread_mutex_lock(&io->lock);
        } else if (io->stopping) {
            break;
        } else {
            pthread_cond_wait(&io->cond, &io->lock);
        }
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

static void threads_close(kvcl_tio_t *base)
{
    threads_io_t *io = kvcl_container_of(base, threads_io_t, super);
    unsigned     i;

    pthread_mutex_lock(&io->lock);
    io->stopping = true;
    pthread_cond_broadcast(&io->cond);
    pthread_mutex_unlock(&io->lock);
    for (i = 0; i < io->n; ++i) {
        pthread_join(io->threads[i], NULL);
    }
    pthread_cond_destroy(&io->cond);
    pthread_mutex_destroy(&io->lock);
    free(io);
}

static kvcl_status_t threads_open(int fd, unsigned depth, const struct iovec *mem, unsigned n_mem, kvcl_tio_t **io_p)
{
    threads_io_t *io   = calloc(1, sizeof(*io));
    unsigned     want = (depth < THREADS_MAX) ? depth : THREADS_MAX;

    (void)mem;
    (void)n_mem;
    if (io == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a tier's threads");
    }
    io->super.ops = &kvcl_tio_threads;
    io->fd        = fd;
    pthread_mutex_init(&io->lock, NULL);
    pthread_cond_init(&io->cond, NULL);
    kvcl_list_init(&io->queue);
    while ((io->n < want) && (pthread_create(&io->threads[io->n], NULL, work, io) == 0)) {
        ++io->n;
    }
    if (io->n == 0) {
        threads_close(&io->super);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "a tier cannot start a thread");
    }
    *io_p = &io->super;
    return KVCL_OK;
}

static void threads_submit(kvcl_tio_t *base, kvcl_tio_op_t *op)
{
    threads_io_t *io = kvcl_container_of(base, threads_io_t, super);

    pthread_mutex_lock(&io->lock);
    kvcl_list_add_tail(&io->queue, &op->link);
    pthread_cond_signal(&io->cond);
    pthread_mutex_unlock(&io->lock);
}

const kvcl_tio_ops_t kvcl_tio_threads = {
    .name = "threads", .open = threads_open, .submit = threads_submit, .close = threads_close};
