/*
 * Copy jobs: memcpy of a run list between mapped memories, or what a job has instead, by all idle threads of the
 * context.
 *
 * A job is divided into slices. Waiting threads and the progress thread take slices under the engine lock and copy them
 * without it, so every idle thread copies a part of a large list, and the posting call returns at once.
 * A job with sums is divided between blocks. A stopped job finishes when the slices being copied have ended; after that
 * its buffers are not accessed.
 */
#ifndef KVCL_XFER_COPY_H
#define KVCL_XFER_COPY_H

#include "core/context.h"
#include "kv/runs.h"
#include "weave/bulk.h"

typedef struct kvcl_copy kvcl_copy_t;
struct kvcl_copy {
    kvcl_list_t   link;
    kvcl_runs_t   runs;
    kvcl_status_t (*part)(kvcl_copy_t *copy, uint64_t from, uint64_t to); /* no lock. Copies a part; NULL: of runs */
    uint64_t      slice;       /* with part: the most of one call, in its own unit */
    uint64_t      next, total; /* position of the next slice, and of the end */
    unsigned      active;      /* slices being copied */
    bool          background;  /* set by the poster before kvcl_copy_start: others go first */
    kvcl_bulk_how_t how;       /* set by the poster if the job is a part of a large transfer, and by kvcl_copy_start for
                                  a large job */
    uint64_t      *sums;       /* set by the poster: of each block, in the pass that copies it; NULL: none */
    kvcl_status_t status;
    void          (*done)(kvcl_copy_t *copy, kvcl_status_t status); /* lock held, once */
};

/** Lock held. Copies bytes [from, to) of the list, or all of that by copy->part. */
void kvcl_copy_start(kvcl_context_h ctx, kvcl_copy_t *copy, uint64_t from, uint64_t to);
/** Lock held. done() is called with status, now or when the last slice has ended. */
void kvcl_copy_stop(kvcl_copy_t *copy, kvcl_status_t status);
/** Whether a job of this list may have sums (kvcl_runs_can_sum), and its blocks are short enough for slices. */
bool kvcl_copy_can_sum(const kvcl_runs_t *runs);
/** Blocks of @a block bytes (> 0) that one slice sums: as many as are woven, or a multiple; or one long block. */
size_t kvcl_copy_slice_blocks(uint64_t block);
/** The room's work: one slice. Lock held on entry and exit, dropped while copying. */
bool kvcl_copy_work(kvcl_context_h ctx);

#endif
