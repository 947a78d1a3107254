/*
 * I/O that fails: a layer over either method of moving a tier's bytes that corrupts every nth read or write, or stops a
 * disk.
 */
#ifndef TEST_TIER_FAULT_H
#define TEST_TIER_FAULT_H

#include "tier/tier_io.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

typedef enum {
    FAULT_NONE,
    FAULT_EIO,
    FAULT_ENOSPC,
    FAULT_SHORT,   /* half is moved and reported */
    FAULT_TORN,    /* half is moved, then the error */
    FAULT_LIE,     /* half is moved, all of it is reported */
    FAULT_KINDS
} fault_kind_t;

typedef struct fault_io {
    kvcl_tio_t super;
    kvcl_tio_t *below;
} fault_io_t;

typedef struct fault_op {
    kvcl_tio_op_t op;
    kvcl_tio_op_t *requested;
    fault_kind_t  kind; /* fault to apply to it */
    fault_io_t    *io;
    struct fault_op *next; /* while the disk is stopped */
} fault_op_t;

static struct {
    const kvcl_tio_ops_t *below;
    _Atomic int          kind[4];  /* by kvcl_tio_kind_t */
    _Atomic unsigned     every[4];
    _Atomic unsigned     n[4], done;
    pthread_mutex_t      lock;
    pthread_cond_t       ended;    /* an op of moving */
    unsigned             moving;   /* lock: ops that the disk has and whose ends have not been told */
    bool                 still;    /* lock: writes and syncs wait, */
    fault_op_t           *waiting; /* here */
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

/* Take the op if the disk is stopped. */
static bool fault_wait(fault_op_t *op)
{
    bool waits;

    pthread_mutex_lock(&fault.lock);
    waits = fault.still && (op->op.kind != KVCL_TIO_READ);
    if (waits) {
        op->next      = fault.waiting;
        fault.waiting = op;
    } else {
        ++fault.moving;
    }
    pthread_mutex_unlock(&fault.lock);
    return waits;
}

/* Stop the disk, and wait for the ops that it has begun: nothing makes room in the tier from then on. Or let it go on
 * with the ops that wait. */
static inline void fault_still(bool still)
{
    fault_op_t *op, *next;

    pthread_mutex_lock(&fault.lock);
    fault.still = still;
    op          = still ? NULL : fault.waiting;
    fault.waiting = still ? fault.waiting : NULL;
    for (next = op; next != NULL; next = next->next) {
        ++fault.moving;
    }
    while (still && (fault.moving != 0)) {
        pthread_cond_wait(&fault.ended, &fault.lock);
    }
    pthread_mutex_unlock(&fault.lock);
    for (; op != NULL; op = next) {
        next = op->next;
        op->io->below->ops->submit(op->io->below, &op->op);
    }
}

static void fault_done(kvcl_tio_op_t *op, int64_t result)
{
    fault_op_t    *mine  = kvcl_container_of(op, fault_op_t, op);
    kvcl_tio_op_t *requested = mine->requested;

    if ((result >= 0) && ((mine->kind == FAULT_EIO) || (mine->kind == FAULT_TORN))) {
        result = -EIO;
    } else if ((result >= 0) && (mine->kind == FAULT_ENOSPC)) {
        result = -ENOSPC;
    } else if ((result >= 0) && (mine->kind == FAULT_LIE)) {
        result = (int64_t)requested->len;
    }
    free(mine);
    requested->done(requested, result);
    pthread_mutex_lock(&fault.lock);
    --fault.moving;
    pthread_cond_signal(&fault.ended);
    pthread_mutex_unlock(&fault.lock);
}

static void fault_submit(kvcl_tio_t *base, kvcl_tio_op_t *op)
{
    fault_io_t *io   = kvcl_container_of(base, fault_io_t, super);
    fault_op_t *mine = calloc(1, sizeof(*mine));
    unsigned   every = atomic_load(&fault.every[op->kind]);

    if (mine == NULL) {
        abort();
    }
    mine->op      = *op;
    mine->op.done = fault_done;
    mine->requested   = op;
    mine->io      = io;
    if ((every > 0) && ((atomic_fetch_add(&fault.n[op->kind], 1) + 1) % every == 0)) {
        mine->kind = (fault_kind_t)atomic_load(&fault.kind[op->kind]);
        atomic_fetch_add(&fault.done, 1);
        if ((mine->kind == FAULT_EIO) || (mine->kind == FAULT_ENOSPC) || (op->kind >= KVCL_TIO_SYNC)) {
            mine->op.kind = KVCL_TIO_NOP;
        } else if (mine->kind != FAULT_NONE) {
            mine->op.len = op->len / 2 / 4096 * 4096;
            if (mine->op.len == 0) {
                mine->op.kind = KVCL_TIO_NOP;
            }
        }
    }
    if (!fault_wait(mine)) {
        io->below->ops->submit(io->below, &mine->op);
    }
}

static void fault_close(kvcl_tio_t *base)
{
    fault_io_t *io = kvcl_container_of(base, fault_io_t, super);

    io->below->ops->close(io->below);
    free(io);
}

static kvcl_status_t fault_open(int fd, unsigned depth, const struct iovec *mem, unsigned n_mem, kvcl_tio_t **io_p);

static const kvcl_tio_ops_t fault_ops = {
    .name = "faults", .open = fault_open, .submit = fault_submit, .close = fault_close};

static kvcl_status_t fault_open(int fd, unsigned depth, const struct iovec *mem, unsigned n_mem, kvcl_tio_t **io_p)
{
    fault_io_t    *io    = calloc(1, sizeof(*io));
    kvcl_status_t status = (io == NULL) ? KVCL_ERR_NO_MEMORY : fault.below->open(fd, depth, mem, n_mem, &io->below);

    if (status != KVCL_OK) {
        free(io);
        return status;
    }
    io->super.ops = &fault_ops;
    *io_p         = &io->super;
    return KVCL_OK;
}

#endif
