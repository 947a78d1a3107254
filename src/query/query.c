/*
 * Queries about the library itself (kvcl_query.h), except for the collectives' table (coll/coll_run.c).
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/comm.h"
#include "req/req.h"
#include "topo/topo.h"
#include <kvcl/kvcl_version.h>

#include <stdio.h>
#include <string.h>

int kvcl_version(int *major_p, int *minor_p, int *patch_p)
{
    if (major_p != NULL) {
        *major_p = KVCL_VERSION_MAJOR;
    }
    if (minor_p != NULL) {
        *minor_p = KVCL_VERSION_MINOR;
    }
    if (patch_p != NULL) {
        *patch_p = KVCL_VERSION_PATCH;
    }
    return KVCL_VERSION;
}

const char *kvcl_version_string(void)
{
    return KVCL_VERSION_STRING;
}

const char *kvcl_build_string(void)
{
    static char     text[256];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char            loaded[64];

    kvcl_ucx_version(loaded, sizeof(loaded));
    pthread_mutex_lock(&lock);
    snprintf(text, sizeof(text), "kvcl %s, wire version %d; ucx %s; boot %s; %s%s; hardening: %s", KVCL_VERSION_STRING,
             KVCL_WIRE_VERSION, loaded, kvcl_boot_kinds(), KVCL_ENABLE_DEBUG ? "debug" : "release",
             KVCL_HAVE_CUDA ? "; device memory: cuda" : "", (KVCL_HARDENED[0] != '\0') ? KVCL_HARDENED : "none");
    pthread_mutex_unlock(&lock);
    return text;
}

kvcl_status_t kvcl_query_settings(kvcl_setting_cb_t cb, void *arg)
{
    kvcl_setting_source_t sources[KVCL_CONFIG_ROWS];
    kvcl_setting_info_t   info;
    kvcl_config_t         config;
    kvcl_status_t         status;
    char                  value[256];
    size_t                i;

    if (cb == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_settings: cb is NULL");
    }
    status = kvcl_config_load(&config, NULL, sources);
    for (i = 0; (status == KVCL_OK) && (i < KVCL_CONFIG_ROWS); ++i) {
        info.size   = sizeof(info);
        info.name   = kvcl_config_table[i].name;
        info.deflt  = (kvcl_config_table[i].dflt != NULL) ? kvcl_config_table[i].dflt : "";
        info.help   = kvcl_config_table[i].help;
        info.source = kvcl_setting_source_name(sources[i]);
        info.value  = kvcl_settings_format(kvcl_config_table, i, &config, value, sizeof(value));
        cb(arg, &info);
    }
    kvcl_config_free(&config);
    return status;
}

kvcl_status_t kvcl_query_topology(char *buf, size_t cap, size_t *len_p)
{
    kvcl_topo_t   *topo;
    kvcl_status_t status;

    if ((len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_topology: NULL argument");
    }
    status = kvcl_topo_open_hwloc(&topo);
    if (status != KVCL_OK) {
        return status;
    }
    *len_p = (size_t)kvcl_topo_describe(topo, buf, cap) + 1;
    kvcl_topo_close(topo);
    return (*len_p <= cap) ? KVCL_OK : kvcl_fail(KVCL_ERR_TRUNCATED, "the topology needs %zu bytes", *len_p);
}

typedef struct path_wait {
    kvcl_peer_waiter_t waiter;
    bool               over;
    kvcl_status_t      status;
} path_wait_t;

static void on_peer(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    path_wait_t *wait = kvcl_container_of(waiter, path_wait_t, waiter);

    wait->over   = true;
    wait->status = status;
}

static bool is_over(void *arg)
{
    return ((path_wait_t *)arg)->over;
}

static kvcl_status_t connect_peer(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    path_wait_t   wait = {.waiter = {.fn = on_peer}};
    kvcl_status_t status;

    kvcl_list_init(&wait.waiter.link);
    kvcl_lock(ctx);
    status = kvcl_peer_ready(peer, &wait.waiter);
    kvcl_unlock(ctx);
    if (status != KVCL_INPROGRESS) {
        return status;
    }
    (void)kvcl_engine_wait(ctx, is_over, &wait, kvcl_deadline_after(kvcl_timeout(ctx, 0)));
    kvcl_lock(ctx);
    kvcl_peer_unwait(&wait.waiter);
    kvcl_unlock(ctx);
    return wait.over ? wait.status : kvcl_fail(KVCL_ERR_TIMED_OUT, "%s does not answer", peer->name);
}

kvcl_status_t kvcl_query_path(kvcl_comm_h comm, int rank, char *buf, size_t cap)
{
    kvcl_peer_t   *peer;
    kvcl_status_t status = kvcl_comm_check(comm, rank, "kvcl_query_path");
    char          text[128];
    const char    *kind;

    if ((status == KVCL_OK) && (buf == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_path: buf is NULL");
    }
    if ((status != KVCL_OK) || ((status = kvcl_comm_peer(comm, rank, &peer)) != KVCL_OK) ||
        ((status = connect_peer(comm->ctx, peer)) != KVCL_OK)) {
        return status;
    }
    kvcl_lock(comm->ctx);
    peer->ops->ep_describe(peer->ep, text, sizeof(text));
    kvcl_unlock(comm->ctx);
    if (peer->ops == &kvcl_xport_loop) {
        snprintf(buf, cap, "loop");
        return KVCL_OK;
    }
    kind = (peer->ops == &kvcl_xport_rdma) ? "rdma" :
           ((strstr(text, "posix") != NULL) || (strstr(text, "sysv") != NULL) || (strstr(text, "self") != NULL))
               ? "mapped" : "served";
    snprintf(buf, cap, "%s (%s)", kind, text);
    return KVCL_OK;
}
