/*
 * An NCCL without a GPU, for ranks on one host: the functions of src/nccl/nccl_api.h in a library that is found under
 * the name libnccl.so.2, beside the driver without a device (fake_libcuda.c). Its collectives run in their streams and
 * wait there for the other ranks, as kernels do; ncclCommAbort ends the waits of its own rank only.
 */
#ifndef KVCL_TEST_FAKE_NCCL_H
#define KVCL_TEST_FAKE_NCCL_H

/* What it does from now on, in this process. */
typedef enum fake_nccl_mode {
    FAKE_NCCL_WORKS,
    FAKE_NCCL_SLOW,      /* each call is in progress for 20 ms */
    FAKE_NCCL_INIT_FAILS, /* later, by the asynchronous error */
    FAKE_NCCL_INIT_HANGS, /* in progress for ever */
    FAKE_NCCL_RUN_FAILS, /* by the asynchronous error; the stream does not go on */
    FAKE_NCCL_RUN_HANGS, /* the stream does not go on, until the abort */
    FAKE_NCCL_BLOCKS     /* ncclCommInitRankConfig does not return */
} fake_nccl_mode_t;

/* Its symbols beside NCCL's, for dlsym. */
typedef void     (*fake_nccl_set_fn_t)(fake_nccl_mode_t mode); /* "fake_nccl_set" */
typedef unsigned (*fake_nccl_count_fn_t)(int what); /* "fake_nccl_count": 0 inits, 1 aborts, 2 collectives done */

#endif
