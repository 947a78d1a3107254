/*
 * What this library is, how it is set, what it sees: the facts behind kvcl_info.
 */
#ifndef KVCL_QUERY_H
#define KVCL_QUERY_H

#include <kvcl/kvcl_comm.h>

KVCL_BEGIN_DECLS

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

/** The machine as the library sees it (NUMA nodes, cores, GPUs, NICs), as text. */
KVCL_API kvcl_status_t kvcl_query_topology(char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/**
 * How this rank reaches another: "loop", "mapped (posix)", "rdma (rc_mlx5)", "served (tcp/lo)", ... Memory that the
 * other rank only registered is served on a mapped path too. Sets up the connection if there is none yet. Blocks.
 */
KVCL_API kvcl_status_t kvcl_query_path(kvcl_comm_h comm, int rank, char *buf, size_t cap) KVCL_MUST_CHECK;

typedef struct kvcl_context_stats {
    size_t   size;            /* sizeof(kvcl_context_stats_t): set it before the call */
    uint64_t bytes_out;       /* payload this rank sent or wrote */
    uint64_t bytes_in;        /* payload this rank got or received */
    uint64_t bytes_served;    /* of bytes_out: on behalf of peers' gets */
    uint64_t ops;             /* operations completed */
    uint64_t strangers;       /* messages dropped because their sender has not proven the job secret */
    uint64_t malformed;       /* messages dropped because their bytes make no sense */
    uint64_t late;            /* frames dropped because their operation had ended: the fence at work */
} kvcl_context_stats_t;
#define KVCL_CONTEXT_STATS_INIT {sizeof(kvcl_context_stats_t), 0, 0, 0, 0, 0, 0, 0}

/** @return KVCL_OK; KVCL_ERR_INVALID_PARAM: NULL, or stats->size is no size. */
KVCL_API kvcl_status_t kvcl_context_stats(kvcl_context_h ctx, kvcl_context_stats_t *stats) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
