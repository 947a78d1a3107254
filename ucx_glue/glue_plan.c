/*
 * Selects the UCX transports and devices that an instance of ucx or rdma may use, from KVCL_PATH, the interfaces or the
 * port named, the machine's devices, and the user's UCX_TLS. Strings only, no UCX object survives the call.
 *
 * Rules: sysv is never used, its segments are readable by the group (0660 in UCX 1.13), posix segments are 0600.
 * tcp is never on the data list, whatever the user says. Nor is it on the list for messages unless KVCL_NET names an
 * interface: UCX's tcp listens, and any process that connects can write to this one before KVCL sees a message. Names
 * of transports that the library lacks are not written, because UCX warns about them: a probing context is created
 * where there is a GPU.
 *
 * rdma uses rc alone, which brings ud for its wire-up. With ud or dc as a path for messages, or with UCX's keepalive,
 * which takes ud for itself, UCX 1.13 aborts when an endpoint is closed whose wire-up has not ended.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/error.h"
#include "base/net.h"
#include "base/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* TCP is not for data. Those before CUDA_COPY exist on every machine, the others where there is a GPU. */
enum { TCP, POSIX, CMA, CUDA_COPY, CUDA_IPC, TRANSPORTS };

static const struct {
    const char *name;
    const char *aliases; /* the user's names for it, with a comma before and after each */
} transports[TRANSPORTS] = {
    [TCP]       = {"tcp", ",tcp,all,"},
    [POSIX]     = {"posix", ",posix,mm,sm,shm,all,"},
    [CMA]       = {"cma", ",cma,sm,shm,all,"},
    [CUDA_COPY] = {"cuda_copy", ",cuda_copy,cuda,all,"},
    [CUDA_IPC]  = {"cuda_ipc", ",cuda_ipc,cuda,all,"},
};

static void __attribute__((format(printf, 3, 4))) append(char *list, size_t cap, const char *fmt, ...)
{
    size_t  used = strlen(list);
    va_list ap;

    if ((used > 0) && (used + 1 < cap)) {
        list[used++] = ',';
        list[used]   = '\0';
    }
    va_start(ap, fmt);
    vsnprintf(list + used, cap - used, fmt, ap);
    va_end(ap);
}

/* All transports of this library on this machine: only needed where there is a GPU. */
static void probe(char *list, size_t cap)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_RMA};
    ucp_config_t  *config;
    ucp_context_h ctx;

    list[0] = '\0';
    if (ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        return;
    }
    if ((ucp_config_modify(config, "TLS", "all") == UCS_OK) &&
        (ucp_config_modify(config, "NET_DEVICES", "all") == UCS_OK) && (ucp_init(&params, config, &ctx) == UCS_OK)) {
        kvcl_glue_ctx_transports(ctx, list, cap);
        ucp_cleanup(ctx);
    }
    ucp_config_release(config);
}

/* Does a list as in UCX_TLS ("a,b" or "^a,b"; NULL: anything) allow a transport known by these names? Pure. */
static bool allows(const char *tls, const char *aliases)
{
    bool       negated = (tls != NULL) && (tls[0] == '^');
    bool       named   = false;
    const char *at     = negated ? tls + 1 : tls;
    char       token[64];
    size_t     len;

    while (!named && (at != NULL) && (*at != '\0')) {
        len = strcspn(at, ",");
        if (len < sizeof(token) - 2) {
            snprintf(token, sizeof(token), ",%.*s,", (int)len, at);
            named = (strstr(aliases, token) != NULL);
        }
        at += len + (at[len] == ',');
    }
    return (tls == NULL) || (named != negated);
}

bool kvcl_glue_am_uses(const glue_plan_t *plan, const char *name)
{
    const char *user = plan->listens ? kvcl_settings_getenv(NULL, "UCX_TLS") : NULL;
    size_t     i;

    for (i = 0; (user != NULL) && (i < TRANSPORTS); ++i) {
        if (strcmp(transports[i].name, name) == 0) {
            return allows(user, transports[i].aliases);
        }
    }
    return kvcl_glue_list_has(plan->am_tls, name);
}

/* The data side of ucx is for devices. Where there is none, no key of UCX exists. */
static void plan_data(glue_plan_t *plan, const char *have)
{
    const char *user = kvcl_settings_getenv(NULL, "UCX_TLS");
    bool       any   = false;
    size_t     i;

    plan->cma = allows(user, transports[CMA].aliases);
    for (i = CUDA_COPY; i < TRANSPORTS; ++i) {
        any = any || (allows(user, transports[i].aliases) && (plan->path == GLUE_PATH_AUTO) &&
                      kvcl_glue_list_has(have, transports[i].name));
    }
    for (i = POSIX; any && (i < TRANSPORTS); ++i) {
        if (allows(user, transports[i].aliases) &&
            ((i < CUDA_COPY) || kvcl_glue_list_has(have, transports[i].name))) {
            append(plan->data_tls, sizeof(plan->data_tls), "%s", transports[i].name);
        }
    }
}

static kvcl_status_t plan_path(const char *path, glue_plan_t *plan)
{
    static const char *const names[] = {"auto", "shm", "tcp"};
    int                      i;

    for (i = 0; i < 3; ++i) {
        if ((path == NULL) || (strcmp(path, names[i]) == 0)) {
            plan->path = (glue_path_t)i;
            return KVCL_OK;
        }
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ucx: no such path \"%s\": auto, shm or tcp", path);
}

/* Without an interface no transport may listen, whatever UCX_TLS says; "self" is always allowed: it reaches only
 * this process. */
static kvcl_status_t plan_messages(glue_plan_t *plan, bool beside_tcp)
{
    const char *user = kvcl_settings_getenv(NULL, "UCX_TLS");
    bool       posix = allows(user, transports[POSIX].aliases);

    if (plan->listens) {
        append(plan->am_tls, sizeof(plan->am_tls), "%s", (plan->path == GLUE_PATH_TCP) ? "tcp" :
               (plan->path == GLUE_PATH_SHM) ? "posix,self" : "posix,self,tcp");
        return KVCL_OK;
    }
    if (!posix && !beside_tcp) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "UCX_TLS=%s forbids shared memory, and KVCL_NET names no interface "
                         "for TCP: unset UCX_TLS, or set KVCL_NET (lo for ranks of one host)", user);
    }
    append(plan->am_tls, sizeof(plan->am_tls), "%s", posix ? "posix,self" : "self");
    return KVCL_OK;
}

kvcl_status_t kvcl_glue_plan(const kvcl_xport_params_t *params, glue_plan_t *plan)
{
    char          have[GLUE_TLS_MAX] = "";
    kvcl_status_t status;

    memset(plan, 0, sizeof(*plan));
    status = plan_path(params->path, plan);
    if (status != KVCL_OK) {
        return status;
    }
    plan->listens = (plan->path != GLUE_PATH_SHM) && (params->net != NULL) && (params->net[0] != '\0');
    if ((plan->path == GLUE_PATH_TCP) && !plan->listens) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_PATH=tcp needs KVCL_NET to name a network interface: "
                         "lo for ranks of one host");
    }
    status = plan->listens ? kvcl_net_check(params->net) : KVCL_OK;
    if (status != KVCL_OK) {
        return status;
    }
    plan->keepalive_ns = params->keepalive_ns;
    append(plan->devices, sizeof(plan->devices), "%s", plan->listens ? params->net : "lo");
    if ((plan->path == GLUE_PATH_AUTO) && (access("/dev/nvidiactl", F_OK) == 0)) {
        probe(have, sizeof(have));
    }
    status = plan_messages(plan, params->beside_tcp);
    if (status != KVCL_OK) {
        return status;
    }
    if (plan->path != GLUE_PATH_TCP) {
        plan_data(plan, have);
    }
    return KVCL_OK;
}

/* UCX_TLS and UCX_NET_DEVICES narrow; they add nothing. */
kvcl_status_t kvcl_glue_plan_rdma(const kvcl_xport_params_t *params, glue_plan_t *plan)
{
    const char *tls     = kvcl_settings_getenv(NULL, "UCX_TLS");
    const char *devices = kvcl_settings_getenv(NULL, "UCX_NET_DEVICES");
    bool       verbs    = allows(tls, ",rc,rc_v,rc_verbs,ib,all,");
    bool       mlx5     = allows(tls, ",rc,rc_x,rc_mlx5,ib,all,");
    char       have[GLUE_TLS_MAX] = "";

    memset(plan, 0, sizeof(*plan));
    if (!verbs && !mlx5) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "UCX_TLS=%s does not allow RDMA (rc): unset it", tls);
    }
    if ((devices != NULL) && !kvcl_glue_list_has(devices, "all") && !kvcl_glue_list_has(devices, params->port)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "UCX_NET_DEVICES=%s does not allow the port: unset it", devices);
    }
    plan->rdma         = true;
    plan->gid          = params->gid;
    plan->keepalive_ns = params->keepalive_ns;
    append(plan->am_tls, sizeof(plan->am_tls), "%s", !mlx5 ? "rc_v" : !verbs ? "rc_x" : "rc");
    append(plan->data_tls, sizeof(plan->data_tls), "%s", plan->am_tls);
    if (params->gpudirect) {
        probe(have, sizeof(have));
        plan->gpudirect = kvcl_glue_list_has(have, "cuda_copy");
    }
    if (plan->gpudirect) { /* by it UCX recognises device memory, and gets its dmabuf */
        append(plan->data_tls, sizeof(plan->data_tls), "cuda_copy");
    }
    append(plan->devices, sizeof(plan->devices), "%s", params->port);
    return KVCL_OK;
}
