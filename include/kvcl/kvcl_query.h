/*
 * Queries about the library: its build, its settings, the machine. kvcl_info prints the results.
 */
#ifndef KVCL_QUERY_H
#define KVCL_QUERY_H

#include <kvcl/kvcl_comm.h>

KVCL_BEGIN_DECLS

/** The version of the library that is loaded, which may be another than KVCL_VERSION of the headers compiled against:
 * KVCL_MAKE_VERSION(*major_p, *minor_p, *patch_p), also returned. Any pointer may be NULL. */
KVCL_API int kvcl_version(int *major_p, int *minor_p, int *patch_p);

/** "0.1.0", and one line that names the build's parts (of UCX: the version that is loaded). */
KVCL_API const char *kvcl_version_string(void);
KVCL_API const char *kvcl_build_string(void);

/* size is the library's: a program reads a later field only if size covers it. */
typedef struct kvcl_setting_info {
    size_t     size;
    const char *name;    /* "KVCL_SPIN" */
    const char *value;   /* as it is in force */
    const char *deflt;
    const char *source;  /* "default", "environment" */
    const char *help;
} kvcl_setting_info_t;
typedef void (*kvcl_setting_cb_t)(void *arg, const kvcl_setting_info_t *info);

/** Every setting, in order. The strings live during the callback. KVCL_ERR_INVALID_PARAM if a variable is bad. */
KVCL_API kvcl_status_t kvcl_query_settings(kvcl_setting_cb_t cb, void *arg) KVCL_MUST_CHECK;

/** One line per collective algorithm and the selection table, as text. len_p as in kvcl_context_address. */
KVCL_API kvcl_status_t kvcl_query_colls(char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/**
 * How large copies are made on this machine, which ones are large, and why (KVCL_COPY, KVCL_COPY_LARGE), as text. With
 * KVCL_COPY=auto the call measures the copies (about 20 ms), unless the user's cache folder has the speeds of an
 * earlier measurement. len_p as in kvcl_context_address.
 */
KVCL_API kvcl_status_t kvcl_query_copy(char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/** The machine as the library detects it (NUMA nodes, cores, GPUs, NICs), as text. */
KVCL_API kvcl_status_t kvcl_query_topology(char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/** Whether RDMA ports of this host can reach the memory of its GPUs, as text: "yes (peermem)", "yes (dmabuf ...)", or
 * "no: " and the reason. Where they cannot, device memory is served. len_p as in kvcl_context_address. */
KVCL_API kvcl_status_t kvcl_query_gpudirect(char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/** Whether collectives on device memory can use NCCL in this process, as text: its version ("2.28.9"), or "no: " and
 * the reason; then device memory is staged through the host. Loads libnccl.so.2 (some 30 ms, once). len_p as in
 * kvcl_context_address. */
KVCL_API kvcl_status_t kvcl_query_nccl(char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/**
 * How this rank reaches memory that another rank's library allocated, and in parentheses the transport that carries
 * messages to that rank, as one line of text:
 *   "loop"                              within one process
 *   "mapped (posix)"                    mapped by this process; "native (posix)": copied by the kernel
 *   "rdma, native (rc_verbs/mlx5_0:1)"  got and put by the network, without the other rank's processor
 *   "rdma, served (rc_verbs/mlx5_0:1): its control word cannot be read"   ... by its processor, and why
 *   "served (tcp/eth0 aead)"            over TCP; where one of the two ranks has RDMA ports, followed by
 *                                       ": RDMA: " and why they are not used
 * The other rank describes such memory at the first query; the text states what transfers decide about that
 * description, not the transport's name. Memory that the other rank only registered may differ.
 * Sets up the connection if there is none yet. Blocks, for KVCL_TIMEOUT at most, until the other rank has replied.
 * @param buf  for cap bytes; a longer text is cut off. 256 suffice.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (buf is NULL), KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_UNREACHABLE,
 *         KVCL_ERR_RANK_FAILED, KVCL_ERR_TIMED_OUT.
 */
KVCL_API kvcl_status_t kvcl_query_path(kvcl_comm_h comm, int rank, char *buf, size_t cap) KVCL_MUST_CHECK;

/* One memory of another rank, and what was decided about it. The words for paths are those of kvcl_latency_info_t. */
typedef struct kvcl_memory_info {
    size_t     size;      /* bytes of this structure in the library that is running */
    const char *what;     /* "cache": a cache that the rank has described to this one; "memory": kvcl_rmem_import */
    const char *name;     /* the cache's; "": of imported memory, and of a cache that the rank offered without a name */
    uint64_t   bytes;     /* of all blocks; of the memory */
    const char *get_path; /* "loop", "mapped", "native", "served". "": this rank has no right to read it */
    const char *put_path; /* as get_path, for puts. "": this rank has no right to write it */
    const char *why;      /* of gets, or of puts if get_path is "". "native": the mechanism ("rdma", "cma", "cuda_ipc");
                             "served": why it is not native; otherwise "" */
    const char *put_why;  /* as why, for puts; "" if put_path is "" */
} kvcl_memory_info_t;
typedef void (*kvcl_memory_cb_t)(void *arg, const kvcl_memory_info_t *info);

/**
 * What was decided about the memory of another rank: each cache that the rank has described to this one, which happens
 * at the first transfer with it, and each memory imported from it. cb is called once for each, in no order, without a
 * lock; the structure and its strings live during the callback.
 * "native" says that the network reaches the memory; for single transfers KVCL_NATIVE_TABLE may still choose the owner.
 * The library learns that a cache was destroyed at the next transfer with it; until then it may be listed.
 * Sets up the connection if there is none yet. Blocks, for KVCL_TIMEOUT at most.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (cb is NULL), KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_UNREACHABLE,
 *         KVCL_ERR_RANK_FAILED, KVCL_ERR_TIMED_OUT, KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_query_memory(kvcl_comm_h comm, int rank, kvcl_memory_cb_t cb, void *arg) KVCL_MUST_CHECK;

typedef struct kvcl_context_stats {
    size_t   size;            /* sizeof(kvcl_context_stats_t): set it before the call */
    uint64_t bytes_out;       /* payload this rank sent or wrote */
    uint64_t bytes_in;        /* payload this rank got or received */
    uint64_t bytes_served;    /* of bytes_out: on behalf of peers' gets */
    uint64_t ops;             /* operations completed */
    uint64_t strangers;       /* messages dropped because their sender has not proven the job secret */
    uint64_t malformed;       /* messages dropped because their bytes make no sense */
    uint64_t late;            /* frames dropped because their operation had ended (the fence) */
    uint64_t refused;         /* sends, gets and puts of peers that were refused with KVCL_ERR_NO_SPACE: a peer
                                 made this rank hold too much: 64 MiB of sends without a recv (of all peers: 256 MiB;
                                 the peer that has the most gives way), 16,384 gets in progress, or 64 MiB of them, or
                                 64 MiB of puts in progress */
    uint64_t bytes_native;    /* of bytes_in and bytes_out: got or put natively, by the network or the kernel, without
                                 the other rank's processor */
} kvcl_context_stats_t;
#define KVCL_CONTEXT_STATS_INIT {sizeof(kvcl_context_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** @return KVCL_OK; KVCL_ERR_INVALID_PARAM: NULL, or stats->size is no size. */
KVCL_API kvcl_status_t kvcl_context_stats(kvcl_context_h ctx, kvcl_context_stats_t *stats) KVCL_MUST_CHECK;

/* How long one kind of call took on one kind of path, as a histogram. */
typedef struct kvcl_latency_info {
    size_t         size;       /* bytes of this structure in the library that is running */
    const char     *op;        /* "get", "put": kvcl_get, kvcl_put and their _bytes; "store_get"; "store_put" (and
                                  upsert); "store_match"; "store_copy": fetches of blocks that this rank then
                                  holds copies of */
    const char     *path;      /* how the bytes went: "loop" (in this process), "mapped", "native" (got or put by the
                                  network), "served" (their owner's processor took part). Of the store's calls: how
                                  the memory of the farthest rank that took part is reached */
    uint64_t       count;      /* calls: the sum of counts */
    uint64_t       sum_ns;     /* nanoseconds that they took, all together */
    size_t         n_buckets;
    const uint64_t *bounds_ns; /* [n_buckets]: the longest time of each bucket, in nanoseconds, rising, each at most a
                                  quarter above the one before; the first is 64, the last UINT64_MAX */
    const uint64_t *counts;    /* [n_buckets]: calls that took longer than the bound before, and not longer than this */
} kvcl_latency_info_t;
typedef void (*kvcl_latency_cb_t)(void *arg, const kvcl_latency_info_t *info);

/**
 * Latencies of this context's calls since kvcl_init, from the call to the completion of its operation. Only
 * calls that ended with KVCL_OK count, and none that waited for a CUDA stream, or moved values. Calls that end inside
 * the posting call, as those on mapped memory do, are sampled: one in 61 is timed and counts for 61. cb is called once
 * for each op and path with at least one counted call; the structure and its pointers live during the callback. Any
 * thread; takes no lock, so numbers may grow while it reads.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (ctx or cb is NULL).
 */
KVCL_API kvcl_status_t kvcl_query_latency(kvcl_context_h ctx, kvcl_latency_cb_t cb, void *arg) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
