/*
 * The library's settings: one struct, one table, read once when a context is created.
 */
#ifndef KVCL_CONF_CONF_H
#define KVCL_CONF_CONF_H

#include "base/settings.h"
#include <kvcl/kvcl_context.h>

enum { KVCL_PATH_AUTO, KVCL_PATH_SHM, KVCL_PATH_TCP, KVCL_PATH_LOOP, KVCL_PATH_RDMA };
enum { KVCL_WIRE_AUTO, KVCL_WIRE_PLAIN, KVCL_WIRE_AEAD, KVCL_WIRE_UCX };

typedef struct kvcl_config {
    char     *boot;
    char     *rendezvous;
    int64_t  rank;
    int64_t  size;
    uint64_t boot_timeout_ns;
    char     *secret_file;
    int      path;
    char     *net;
    int      wire;
    int      numa; /* kvcl_numa_mode_t */
    uint64_t timeout_ns;
    uint64_t spin_ns;
    char     *log;
    uint64_t keepalive_ns;
    char     *coll_table;
    uint64_t coll_chunk;
    int      nccl;
    uint64_t inline_copy;
    uint64_t frame;
    int64_t  window;
    uint64_t eager;
    uint64_t lane_min;
    char     *native_table;
    uint64_t store_hedge_ns;
    int      store_hedge_auto;
    int64_t  background_share;
    int      copy;
    uint64_t copy_large;
    uint64_t store_repair_bytes;
    int64_t  store_hot;
    char     *store_nvme;
    char     *store_nvme_key;
    char     *store_tenant_key;
    uint64_t store_stripe;
    int64_t  store_stripe_ranks;
    char     *metrics;
    int      views;
    uint64_t beat_ns;
    uint64_t suspect_ns;
    uint64_t dead_ns;
    uint64_t lease_ns;
    uint64_t warm_ns;
    int      fence;   /* kvcl_fence_t: what becomes of a silent process of this host */
    int64_t  slots;
    char     *join;
    char     *join_at;
    int      join_waits; /* a process that joins is a member once kvcl_comm_activate names it */
} kvcl_config_t;

typedef enum { KVCL_FENCE_NO, KVCL_FENCE_KILL } kvcl_fence_t;

enum { KVCL_CONFIG_ROWS = 47 };

extern const kvcl_setting_t kvcl_config_table[];

/** Read the environment, then lay params (may be NULL) over it. kvcl_config_free() afterwards, also on failure. */
kvcl_status_t kvcl_config_load(kvcl_config_t *config, const kvcl_init_params_t *params,
                               kvcl_setting_source_t sources[KVCL_CONFIG_ROWS]) KVCL_MUST_CHECK;
void          kvcl_config_free(kvcl_config_t *config);

const char *kvcl_path_name(int path); /* "auto", "shm", "tcp", "loop", "rdma" */
const char *kvcl_wire_name(int wire); /* "auto", "plain", "aead", "ucx" */

#endif
