/*
 * Queries about the library itself (kvcl_query.h). Others have files of their own: paths and memory, latencies, the
 * table of the collectives.
 */
#include "config.h"
#include "base/error.h"
#include "core/comm.h"
#if KVCL_HAVE_NCCL
#include "nccl/nccl_api.h"
#endif
#include "topo/gpudirect.h"
#include "topo/topo.h"
#include "weave/bulk.h"
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

static kvcl_status_t give_text(const char *text, char *buf, size_t cap, size_t *len_p)
{
    *len_p = strlen(text) + 1;
    if (*len_p > cap) {
        return kvcl_fail(KVCL_ERR_TRUNCATED, "the answer needs %zu bytes", *len_p);
    }
    memcpy(buf, text, *len_p);
    return KVCL_OK;
}

kvcl_status_t kvcl_query_gpudirect(char *buf, size_t cap, size_t *len_p)
{
    char version[32], text[256];

    if ((len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_gpudirect: NULL argument");
    }
    kvcl_ucx_version(version, sizeof(version));
    (void)kvcl_gpudirect("", version, text, sizeof(text));
    return give_text(text, buf, cap, len_p);
}

#if KVCL_HAVE_NCCL
static void nccl_text(char *text, size_t cap)
{
    const kvcl_nccl_lib_t *lib = kvcl_nccl_lib();

    if (lib == NULL) {
        snprintf(text, cap, "no: %s", kvcl_last_error());
    } else {
        snprintf(text, cap, "%d.%d.%d", lib->code / 10000, (lib->code / 100) % 100, lib->code % 100);
    }
}
#else
static void nccl_text(char *text, size_t cap)
{
    snprintf(text, cap, "no: built without NCCL (--without-nccl or --without-cuda)");
}
#endif

kvcl_status_t kvcl_query_nccl(char *buf, size_t cap, size_t *len_p)
{
    char text[KVCL_ERROR_MAX];

    if ((len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_nccl: NULL argument");
    }
    nccl_text(text, sizeof(text));
    return give_text(text, buf, cap, len_p);
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

kvcl_status_t kvcl_query_copy(char *buf, size_t cap, size_t *len_p)
{
    kvcl_setting_source_t sources[KVCL_CONFIG_ROWS];
    kvcl_config_t         config;
    kvcl_status_t         status;

    if ((len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_copy: NULL argument");
    }
    status = kvcl_config_load(&config, NULL, sources);
    if (status != KVCL_OK) {
        return status;
    }
    *len_p = kvcl_bulk_describe(config.copy, config.copy_large, buf, cap) + 1;
    kvcl_config_free(&config);
    return (*len_p <= cap) ? KVCL_OK : kvcl_fail(KVCL_ERR_TRUNCATED, "the text needs %zu bytes, there is room for %zu",
                                                 *len_p, cap);
}
