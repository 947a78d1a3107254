/*
 * The I/O contract of the tier. io_uring or a few threads implement it; tests put faults in front of either.
 *
 * Any thread may submit an op, also from within a done(); submit never blocks, and ops beyond the depth wait in order.
 * done() runs once for each op, on an I/O thread, with no lock held, never inside submit. Its result is raw: the bytes
 * moved, which may be fewer than requested, or -errno. While no op is in flight every thread sleeps in the kernel.
 */
#ifndef KVCL_TIER_IO_H
#define KVCL_TIER_IO_H

#include "base/list.h"

#include "kvcl/kvcl_status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

typedef enum { KVCL_TIO_READ, KVCL_TIO_WRITE, KVCL_TIO_SYNC, KVCL_TIO_NOP } kvcl_tio_kind_t;

typedef struct kvcl_tio_op {
    kvcl_list_t     link; /* owned by the I/O from submit to done */
    kvcl_tio_kind_t kind;
    uint64_t        off;
    uint8_t         *buf; /* READ, WRITE: the submitter's, untouched by others until done */
    size_t          len;
    void            (*done)(struct kvcl_tio_op *op, int64_t result);
} kvcl_tio_op_t;

typedef struct kvcl_tio kvcl_tio_t;

typedef struct kvcl_tio_ops {
    const char *name;
    /**
     * @param fd   the caller's, open until close. @param depth  ops in flight at most.
     * @param mem  memory that ops will often name: registered with the kernel where that is possible.
     * @return KVCL_OK, KVCL_ERR_UNSUPPORTED (not in this build, or refused by the kernel), KVCL_ERR_NO_MEMORY.
     */
    kvcl_status_t (*open)(int fd, unsigned depth, const struct iovec *mem, unsigned n_mem, kvcl_tio_t **io_p);
    void          (*submit)(kvcl_tio_t *io, kvcl_tio_op_t *op);
    void          (*close)(kvcl_tio_t *io); /* every op is done; joins the threads */
} kvcl_tio_ops_t;

struct kvcl_tio {
    const kvcl_tio_ops_t *ops;
};

extern const kvcl_tio_ops_t kvcl_tio_threads;
extern const kvcl_tio_ops_t kvcl_tio_uring; /* open says KVCL_ERR_UNSUPPORTED where it was not built in */

#endif
