/*
 * Owns the table of settings and its loading: the environment, then params over it.
 */
#include "conf/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "topo/numa.h"
#include "weave/bulk.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const fence_names[] = {[KVCL_FENCE_NO] = "no", [KVCL_FENCE_KILL] = "kill", NULL};
static const char *const path_names[] = {"auto", "shm", "tcp", "loop", "rdma", NULL};
static const char *const wire_names[] = {"auto", "plain", "aead", "ucx", NULL};

#define ROW(_name, _dflt, _type, _field, _min, _max, _enums, _help) \
    {_name, _dflt, _help, KVCL_SETTING_##_type, offsetof(kvcl_config_t, _field), _min, _max, _enums}

const kvcl_setting_t kvcl_config_table[] = {
    ROW("KVCL_BOOT", "auto", STRING, boot, 0, 0, NULL,
        "how ranks meet: auto, pmix, tcp (a rendezvous address), join (a running job), oob (own callbacks), self"),
    ROW("KVCL_RENDEZVOUS", NULL, STRING, rendezvous, 0, 0, NULL,
        "tcp://host:port where the ranks of a job meet when no launcher started them"),
    ROW("KVCL_RANK", "-1", INT, rank, -1, 65535, NULL,
        "this rank, with KVCL_RENDEZVOUS (-1: in order of arrival); the slot to take, with KVCL_JOIN (-1: a free one)"),
    ROW("KVCL_SIZE", "0", INT, size, 0, 65536, NULL, "number of ranks, with KVCL_RENDEZVOUS"),
    ROW("KVCL_BOOT_TIMEOUT", "60s", TIME, boot_timeout_ns, 1000000, INT64_MAX, NULL,
        "time that ranks wait for each other at start, or that a process waits until it has joined a running job"),
    ROW("KVCL_SECRET_FILE", NULL, STRING, secret_file, 0, 0, NULL,
        "file (mode 0600) with the secret that all ranks of the job share; by default the ranks agree on one through "
        "PMIx or the program's callbacks; with a rendezvous on loopback it is $HOME/.kvcl/secret"),
    ROW("KVCL_PATH", "auto", ENUM, path, 0, 0, path_names,
        "paths between ranks: auto, shm (shared memory only), tcp (messages only), loop (inside one process only), "
        "rdma (the RDMA ports that KVCL_NET names only)"),
    ROW("KVCL_NET", NULL, STRING, net, 0, 0, NULL,
        "network interfaces for TCP, comma separated (lo: this host only), each with its RDMA port (RoCE), and RDMA "
        "devices: DEVICE, DEVICE:PORT or DEVICE:PORT/GID (index); all: all of both; a rank listens there, and "
        "KVCL_WIRE says how TCP is protected; default: listen nowhere, no RDMA, reach ranks of this host only"),
    ROW("KVCL_WIRE", "auto", ENUM, wire, 0, 0, wire_names,
        "TCP connections: aead (authenticated and encrypted), plain (authenticated when they begin), auto (plain on "
        "loopback, aead elsewhere), ucx (UCX's own, not authenticated: for trusted networks only); a pair uses aead if "
        "either of its ranks has it"),
    ROW("KVCL_NUMA", "auto", ENUM, numa, 0, 0, kvcl_numa_mode_names,
        "NUMA nodes for memory of 4 MiB and more: auto (the node of the bound cpus; interleaved if they are of several "
        "nodes), local, interleave, off (first touch)"),
    ROW("KVCL_TIMEOUT", "30s", TIME, timeout_ns, 1000000, INT64_MAX, NULL, "default timeout of operations"),
    ROW("KVCL_SPIN", "100us", TIME, spin_ns, 0, 1000000000, NULL,
        "most time to poll after the last event before sleeping; by default 0 when ranks outnumber cores"),
    ROW("KVCL_LOG", "warn", STRING, log, 0, 0, NULL, "log level: error, warn, info, debug, trace"),
    ROW("KVCL_KEEPALIVE", "500ms", TIME, keepalive_ns, 10000000, INT64_MAX, NULL,
        "interval of probes on an idle connection; a shorter one detects a dead rank sooner; at least 10ms"),
    ROW("KVCL_COLL_TABLE", NULL, STRING, coll_table, 0, 0, NULL,
        "collective algorithms by path and size; overrides the built-in table (kvcl_info --colls prints it)"),
    ROW("KVCL_COLL_CHUNK", "1M", SIZE, coll_chunk, 4096, 1ll << 30, NULL, "pipeline chunk of collectives"),
    ROW("KVCL_NCCL", "yes", BOOL, nccl, 0, 0, NULL,
        "collectives on device memory by NCCL where all ranks have it and a GPU each; no: by the host"),
    ROW("KVCL_INLINE_COPY", "4M", SIZE, inline_copy, 0, 1ll << 40, NULL,
        "over shared memory, and into this rank's pool, up to this size is copied inside the posting call"),
    ROW("KVCL_FRAME", "0", SIZE, frame, 0, 1 << 26, NULL,
        "bytes of one served data message; 0: the transport's preference"),
    ROW("KVCL_WINDOW", "16", INT, window, 1, 1024, NULL, "served data messages in flight per transfer"),
    ROW("KVCL_BACKGROUND_SHARE", "10", INT, background_share, 0, 90, NULL,
        "percent of the turns that transfers with KVCL_BACKGROUND get while other transfers are active"),
    ROW("KVCL_COPY", "auto", ENUM, copy, 0, 0, kvcl_bulk_settings,
        "large copies in shared memory: memcpy, weave1, weave2 or weave4 (as many pieces in turn, past the caches), or "
        "auto: by speeds measured once on this machine (kvcl_info --copy prints them)"),
    ROW("KVCL_COPY_LARGE", "0", SIZE, copy_large, 0, 1ll << 40, NULL,
        "transfers of at least this size are large for KVCL_COPY; 0: those of 16M, and from a measured size on those "
        "whose source is not in the processor's caches"),
    ROW("KVCL_NATIVE_TABLE", NULL, STRING, native_table, 0, 0, NULL,
        "native (RDMA, CMA) gets and puts that the owner serves instead, KIND:FROM-TO:WAY[:RUNS],...; overrides the "
        "built-in table (KVCL_LOG=debug prints it)"),
    ROW("KVCL_EAGER", "8K", SIZE, eager, 0, 1 << 20, NULL,
        "largest payload that travels within a send's or put's message"),
    ROW("KVCL_LANE_MIN", "2M", SIZE, lane_min, 0, 1ll << 40, NULL,
        "over tcp, transfers of at least this size, in pieces of 2K or more, use a separate connection; 0: none; "
        "KVCL_WIRE=ucx has none"),
    ROW("KVCL_STORE_HEDGE", "200ms", TIME, store_hedge_ns, 0, INT64_MAX, NULL,
        "time that a store waits for a silent rank before it uses another copy or home; 0: no limit"),
    ROW("KVCL_STORE_HEDGE_AUTO", "no", BOOL, store_hedge_auto, 0, 0, NULL,
        "limit KVCL_STORE_HEDGE to the p99 latency of gets of the same class (at least 1 ms)"),
    ROW("KVCL_STORE_HOT", "0", INT, store_hot, 0, 255, NULL,
        "gets of a remote block after which a rank keeps a copy in its pool; 0: never"),
    ROW("KVCL_STORE_REPAIR", "256M", SIZE, store_repair_bytes, 0, 1ll << 40, NULL,
        "bytes per second that a store's home re-replicates after a rank failed or left; 0: none"),
    ROW("KVCL_STORE_NVME", NULL, STRING, store_nvme, 0, 0, NULL,
        "/path/of/a/file:size, a second tier of a store's pool, on a local NVMe; %r is the rank"),
    ROW("KVCL_STORE_NVME_KEY", NULL, STRING, store_nvme_key, 0, 0, NULL,
        "a file (mode 0600, 32 bytes or more) whose key proves every block that is read from the second tier"),
    ROW("KVCL_STORE_TENANT_KEY", NULL, STRING, store_tenant_key, 0, 0, NULL,
        "a file (mode 0600, 16 bytes or more) with the secret of a tenant's handle that is opened without one"),
    ROW("KVCL_STORE_STRIPE", "16M", SIZE, store_stripe, 0, 1ll << 40, NULL,
        "larger values of a store are striped over the pools of several ranks; 0: none"),
    ROW("KVCL_STORE_STRIPE_RANKS", "4", INT, store_stripe_ranks, 1, 16, NULL,
        "maximum number of ranks of a striped value, including the one that puts"),
    ROW("KVCL_METRICS", NULL, STRING, metrics, 0, 0, NULL,
        "host:port where a context serves its counters for Prometheus (http://host:port/metrics); rank r of a job "
        "listens at port + r; port 0: a free one, which the log names at level info; default: nowhere"),
    ROW("KVCL_VIEWS", "no", BOOL, views, 0, 0, NULL,
        "members agree on who is left when ranks end or are silent (kvcl_view.h); the same on all ranks of a job"),
    ROW("KVCL_BEAT", "100ms", TIME, beat_ns, 1000000, INT64_MAX, NULL,
        "with KVCL_VIEWS: time between two messages of a rank, at most; the same on all ranks"),
    ROW("KVCL_SUSPECT", "300ms", TIME, suspect_ns, 1000000, INT64_MAX, NULL,
        "with KVCL_VIEWS: silence after which a rank is suspected"),
    ROW("KVCL_DEAD", "1s", TIME, dead_ns, 1000000, INT64_MAX, NULL,
        "with KVCL_VIEWS: silence after which a rank is excluded, at least three beats; the same on all ranks"),
    ROW("KVCL_LEASE", "800ms", TIME, lease_ns, 1000000, INT64_MAX, NULL,
        "with KVCL_VIEWS: time after which a rank that no quorum answers owns nothing; more than two beats, less than "
        "KVCL_DEAD; the same on all ranks"),
    ROW("KVCL_WARM", "60s", TIME, warm_ns, 1000000, INT64_MAX, NULL,
        "with KVCL_VIEWS: as KVCL_DEAD, for a rank that warms up (kvcl_phase)"),
    ROW("KVCL_FENCE", "no", ENUM, fence, 0, 0, fence_names,
        "with KVCL_VIEWS: a process of this host and user that is silent for KVCL_DEAD is left alone (no), or killed, "
        "which proves its end (kill)"),
    ROW("KVCL_SLOTS", "0", INT, slots, 0, 1024, NULL,
        "with KVCL_VIEWS: ranks of the world, of which those beyond the job's size are free for processes that join; "
        "0: the job's size; the same on all ranks"),
    ROW("KVCL_JOIN", NULL, STRING, join, 0, 0, NULL,
        "host:port[,host:port...], where members of a running job let processes join (KVCL_JOIN_AT); any of them may "
        "be gone; this process joins that job, as rank KVCL_RANK or in a free slot, with the job's KVCL_BEAT to "
        "KVCL_WARM"),
    ROW("KVCL_JOIN_AT", NULL, STRING, join_at, 0, 0, NULL,
        "with KVCL_VIEWS: host:port where processes that know the job's secret may join through this rank; rank r "
        "listens at port + r; port 0: a free one (kvcl_join_address); default: nowhere"),
    ROW("KVCL_JOIN_WAITS", "no", BOOL, join_waits, 0, 0, NULL,
        "with KVCL_JOIN_AT: a process that joins is a member only once kvcl_comm_activate names it; no: as soon as all "
        "members have met it; the same on all ranks"),
    KVCL_SETTING_END,
};
_Static_assert(sizeof(kvcl_config_table) / sizeof(kvcl_config_table[0]) == KVCL_CONFIG_ROWS + 1, "rows");

const char *kvcl_path_name(int path)
{
    return path_names[path];
}

const char *kvcl_wire_name(int wire)
{
    return wire_names[wire];
}

static kvcl_status_t set_param(kvcl_config_t *config, kvcl_setting_source_t *sources, const char *name,
                               const char *value)
{
    if (value == NULL) {
        return KVCL_OK;
    }
    return kvcl_settings_set(kvcl_config_table, config, name, value, KVCL_SOURCE_PARAM, sources);
}

static kvcl_status_t overlay(kvcl_config_t *config, const kvcl_init_params_t *p, kvcl_setting_source_t *sources)
{
    kvcl_status_t status;
    char number[24];

    if (((status = set_param(config, sources, "KVCL_BOOT", p->boot)) != KVCL_OK) ||
        ((status = set_param(config, sources, "KVCL_RENDEZVOUS", p->rendezvous)) != KVCL_OK) ||
        ((status = set_param(config, sources, "KVCL_SECRET_FILE", p->secret_file)) != KVCL_OK) ||
        ((status = set_param(config, sources, "KVCL_PATH", p->path)) != KVCL_OK)) {
        return status;
    }
    if (p->nranks != 0) {
        snprintf(number, sizeof(number), "%d", p->nranks);
        status = set_param(config, sources, "KVCL_SIZE", number);
    }
    if ((status == KVCL_OK) && ((p->nranks != 0) || ((p->flags & KVCL_INIT_RANK) != 0))) {
        snprintf(number, sizeof(number), "%d", p->rank);
        status = set_param(config, sources, "KVCL_RANK", number);
    }
    return status;
}

kvcl_status_t kvcl_config_load(kvcl_config_t *config, const kvcl_init_params_t *params,
                               kvcl_setting_source_t sources[KVCL_CONFIG_ROWS])
{
    static const kvcl_setting_t *const tables[] = {kvcl_config_table, NULL};
    kvcl_status_t status;
    int level;

    memset(config, 0, sizeof(*config));
    status = kvcl_settings_load(kvcl_config_table, config, kvcl_settings_getenv, NULL, sources);
    if ((status == KVCL_OK) && (params != NULL)) {
        status = overlay(config, params, sources);
    }
    if ((config->net != NULL) && (config->net[strspn(config->net, ", ")] == '\0')) { /* a list that names nothing */
        free(config->net);
        config->net = NULL;
    }
    if (status == KVCL_OK) {
        status = kvcl_log_level_parse(config->log, &level);
        status = (status == KVCL_OK) ? status : kvcl_fail(status, "KVCL_LOG: %s", kvcl_last_error());
    }
    if (status != KVCL_OK) {
        return status;
    }
    config->views = config->views || (config->join != NULL); /* only a job with views can be joined */
    kvcl_log_set_level(level);
    (void)kvcl_settings_check_unknown(environ, tables);
    return KVCL_OK;
}

void kvcl_config_free(kvcl_config_t *config)
{
    kvcl_settings_free(kvcl_config_table, config);
}
