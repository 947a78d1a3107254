/*
 * One UCP context and its worker, opened with the settings that win (each measured; see the table), set in UCX's
 * configuration object and never in the environment, so that a UCX_<KEY> of the user's environment stays the last word.
 * UCX_TLS is the exception: it narrows glue_plan.c's lists instead, because the data side must never get tcp, and no
 * side may listen unless KVCL_NET names an interface. UCX_NET_DEVICES is another: it narrows RDMA ports alone.
 *
 * UCX 1.13 accepts any key silently, 1.22 refuses unknown ones: a refusal means that this version has no such setting.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "ucx_glue/glue_renew.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_AM = 1, SIDE_DATA = 2 };

/* A key that no transport in use reads must not be set: UCX 1.13 then warns of an "invalid configuration". */
static const struct {
    const char *key;
    const char *value;
    unsigned   sides;
    const char *transport; /* set only with this transport in TLS; NULL: always */
    unsigned   since;      /* UCP version; 0: all */
} settings[] = {
    /* without it UCX refuses shared memory in peer error mode */
    {"MM_ERROR_HANDLING", "y", SIDE_AM | SIDE_DATA, "posix", 0},
    /* 3 times the speed of the default from 64 KiB up; tx may not exceed rx */
    {"TCP_RX_SEG_SIZE", "256k", SIDE_AM, "tcp", 0},
    {"TCP_TX_SEG_SIZE", "256k", SIDE_AM, "tcp", 0},
    /* one socket per poll: if the handling of one event closes another socket of the same batch (a message to a dead
     * rank fails), UCX would still handle that one's event, and builds with assertions (Debian's 1.13) abort */
    {"TCP_MAX_POLL", "1", SIDE_AM, "tcp", 0},
    /* detects a lost link; the kernel also counts the time of a stopped peer with full buffers, which is not dead: 1 s
     * was too short */
    {"TCP_USER_TIMEOUT", "10s", SIDE_AM, "tcp", UCP_VERSION(1, 22)},
    {"RNDV_THRESH", "inf", SIDE_AM | SIDE_DATA, NULL, 0},
    {"PROTO_EMULATION_ENABLE", "n", SIDE_DATA, NULL, UCP_VERSION(1, 22)}, /* emulation is an error, not a hang */
    /* UCX turns gets off where it sees no NVLink, as in a virtual machine; nothing else here gets device memory */
    {"CUDA_IPC_ENABLE_GET_ZCOPY", "on", SIDE_DATA, "cuda_ipc", UCP_VERSION(1, 17)},
    {"KEEPALIVE_INTERVAL", "inf", SIDE_DATA, NULL, 0}, /* the am side watches the peer */
};

/* Exported by libucs of both versions; restores the program's handlers of SIGSEGV etc. (1.13 replaces them at load). */
void ucs_debug_disable_signals(void) __attribute__((weak));

static unsigned library_version(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    return UCP_VERSION(major, minor);
}

static void modify(ucp_config_t *config, const char *key, const char *value, bool forced)
{
    char         name[64];
    ucs_status_t status;

    snprintf(name, sizeof(name), "UCX_%s", key);
    if (!forced && (kvcl_settings_getenv(NULL, name) != NULL)) {
        return;
    }
    /* before 1.17 ucp_config_modify needs the key of one transport without its prefix, and returns OK for the other
     * spelling */
    if ((library_version() < UCP_VERSION(1, 17)) &&
        ((strncmp(key, "TCP_", 4) == 0) || (strncmp(key, "POSIX_", 6) == 0) || (strncmp(key, "IB_", 3) == 0))) {
        key = strchr(key, '_') + 1;
    }
    status = ucp_config_modify(config, key, value);
    if (status != UCS_OK) {
        kvcl_log_debug("ucx: this version has no setting %s (%s)", key, ucs_status_string(status));
    }
}

static void modify_us(ucp_config_t *config, const char *key, uint64_t ns)
{
    char value[64];

    snprintf(value, sizeof(value), "%lluus", (unsigned long long)(ns / 1000));
    modify(config, key, value, false);
}

static uint64_t at_least(uint64_t ns, uint64_t least)
{
    return (ns > least) ? ns : least;
}

/*
 * UCX's own times for a lost peer are 8 s and more, and an unbounded number of retries with some drivers. These make it
 * known after 1 to 3 intervals of KVCL_KEEPALIVE: an interval until an idle endpoint is probed, and four timeouts of rc
 * (a NIC takes the next power of two); a peer that never answered after four intervals.
 */
static void set_rdma(ucp_config_t *config, bool data, const glue_plan_t *plan)
{
    char value[16];

    if (data) {
        modify(config, "RCACHE_MAX_REGIONS", "0", true); /* glue_keys.c relies on it */
        if (library_version() < UCP_VERSION(1, 16)) { /* memory of two users in one cache line is two registrations */
            modify(config, "RCACHE_ADDR_ALIGN", "16", false);
        }
    } else {
        modify(config, "KEEPALIVE_INTERVAL", "inf", false); /* glue_plan.c says why; glue_probe.c instead */
    }
    if (plan->keepalive_ns > 0) {
        modify_us(config, "RC_TIMEOUT", at_least(plan->keepalive_ns / 8, 16 * KVCL_NS_PER_MS));
        modify_us(config, "UD_TIMEOUT", at_least(plan->keepalive_ns * 4, KVCL_NS_PER_SEC));
        modify(config, "RC_RETRY_COUNT", "3", false); /* software RDMA reads 7 as "for ever" */
    }
    if (plan->gid >= 0) {
        snprintf(value, sizeof(value), "%d", plan->gid);
        modify(config, "IB_GID_INDEX", value, false);
    }
}

static ucs_status_t configure(ucp_config_t **config_p, bool data, const char *tls, const glue_plan_t *plan)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    const char   *dir;
    bool         needed;
    size_t       i;

    if (status != UCS_OK) {
        return status;
    }
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); ++i) {
        needed = (settings[i].transport == NULL) || (data ? kvcl_glue_list_has(tls, settings[i].transport) :
                                                            kvcl_glue_am_uses(plan, settings[i].transport));
        if (needed && (settings[i].sides & (data ? SIDE_DATA : SIDE_AM)) &&
            (library_version() >= settings[i].since)) {
            modify(config, settings[i].key, settings[i].value, false);
        }
    }
    dir = (!data && kvcl_glue_am_uses(plan, "posix")) ? kvcl_glue_queue_dir() : NULL;
    if (dir != NULL) {
        modify(config, "POSIX_DIR", dir, false);
    }
    modify(config, "TLS", tls, data || !plan->listens);
    modify(config, "NET_DEVICES", plan->devices, true);
    if (plan->rdma) {
        set_rdma(config, data, plan);
    } else if (!data && (plan->keepalive_ns > 0)) {
        modify_us(config, "KEEPALIVE_INTERVAL", plan->keepalive_ns);
    }
    *config_p = config;
    return UCS_OK;
}

ucs_status_t kvcl_glue_side_open_worker(glue_side_t *side)
{
    ucp_worker_params_t params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    glue_signals_t      signals;
    ucs_status_t        status;

    kvcl_glue_signals_note(&signals);
    status = ucp_worker_create(side->ctx, &params, &side->worker);
    kvcl_glue_signals_guard(&signals);
    if (status != UCS_OK) {
        return status;
    }
    status = ucp_worker_get_efd(side->worker, &side->efd);
    if (status == UCS_OK) {
        status = ucp_worker_get_address(side->worker, &side->addr, &side->addr_len);
    }
    return status;
}

kvcl_status_t kvcl_glue_side_open(glue_side_t *side, uint64_t features, const char *tls, const glue_plan_t *plan)
{
    /* any thread may register memory while another one is in the worker */
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .mt_workers_shared = 1,
                           .features   = features | UCP_FEATURE_WAKEUP,
                           .name       = (features & UCP_FEATURE_RMA) ? "kvcl-data" : "kvcl-am"};
    ucp_config_t *config;
    ucs_status_t status;

    memset(side, 0, sizeof(*side));
    if ((ucs_debug_disable_signals != NULL) && (kvcl_settings_getenv(NULL, "UCX_HANDLE_ERRORS") == NULL)) {
        ucs_debug_disable_signals();
    }
    status = configure(&config, (features & UCP_FEATURE_RMA) != 0, tls, plan);
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &side->ctx);
        ucp_config_release(config);
    }
    if (status == UCS_OK) {
        side->features = features;
        status         = kvcl_glue_side_open_worker(side);
    }
    if (status != UCS_OK) {
        kvcl_glue_side_close(side);
        return kvcl_fail(kvcl_glue_status(status), "ucx: cannot use transports %s on %s: %s", tls, plan->devices,
                         ucs_status_string(status));
    }
    return KVCL_OK;
}

void kvcl_glue_side_close(glue_side_t *side)
{
    if (side->addr != NULL) {
        ucp_worker_release_address(side->worker, side->addr);
    }
    if (side->worker != NULL) {
        ucp_worker_destroy(side->worker);
    }
    if (side->ctx != NULL) {
        ucp_cleanup(side->ctx);
    }
    memset(side, 0, sizeof(*side));
}

/* Collect the transports of the "tl/dev" words in UCX's printout, each once; UCX has no query for it before 1.14. */
static void collect(const char *text, const char *mark, char *buf, size_t cap)
{
    const char *line = text;
    const char *end;
    const char *at;
    char       tl[32];
    size_t     len;

    buf[0] = '\0';
    for (; (line != NULL) && (*line != '\0'); line = (*end == '\n') ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        at  = strstr(line, mark);
        if ((at == NULL) || (at > end)) {
            continue;
        }
        for (at = memchr(at, '/', (size_t)(end - at)); (at != NULL) && (at > line); --at) {
            if (strchr(" :\t", at[-1]) != NULL) {
                break;
            }
        }
        if (at == NULL) {
            continue;
        }
        len = strcspn(at, "/");
        if ((len == 0) || (len >= sizeof(tl)) || (strlen(buf) + len + 2 > cap)) {
            continue;
        }
        snprintf(tl, sizeof(tl), "%.*s", (int)len, at);
        if (!kvcl_glue_list_has(buf, tl)) {
            snprintf(buf + strlen(buf), cap - strlen(buf), "%s%s", (buf[0] == '\0') ? "" : ",", tl);
        }
    }
}

void kvcl_glue_ctx_transports(ucp_context_h ctx, char *buf, size_t cap)
{
    char   *text = NULL;
    size_t size  = 0;
    FILE   *file = open_memstream(&text, &size);

    buf[0] = '\0';
    if (file != NULL) {
        ucp_context_print_info(ctx, file);
        fclose(file);
        collect(text, "resource ", buf, cap);
        free(text);
    }
}

void kvcl_glue_ep_transports(ucp_ep_h ep, char *buf, size_t cap)
{
    char   *text = NULL;
    size_t size  = 0;
    FILE   *file = open_memstream(&text, &size);

    buf[0] = '\0';
    if (file != NULL) {
        ucp_ep_print_info(ep, file);
        fclose(file);
        collect(text, "lane[", buf, cap);
        free(text);
    }
}

bool kvcl_glue_list_has(const char *list, const char *prefix)
{
    size_t len = strlen(prefix);

    while (*list != '\0') {
        if (strncmp(list, prefix, len) == 0) {
            return true;
        }
        list += strcspn(list, ",");
        list += (*list == ',');
    }
    return false;
}
