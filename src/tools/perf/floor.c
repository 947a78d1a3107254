/*
 * The floor's life cycle: a separate UCX context and worker with the library's settings, memory, the exchange of
 * addresses, waiting, closing. See floor.h.
 */
#include "config.h"
#include "tools/perf/floor_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ADDRESS_MAX 2048u
#define RKEY_MAX    1024u
#define SLEEP_MS    1000

/* The data that each side sends to the other; fits KVCL_FLOOR_EXCHANGE_BYTES. */
typedef struct floor_card {
    uint64_t memory;
    uint32_t address_len;
    uint32_t rkey_len;
    uint8_t  address[ADDRESS_MAX];
    uint8_t  rkey[RKEY_MAX];
} floor_card_t;

_Static_assert(sizeof(floor_card_t) <= KVCL_FLOOR_EXCHANGE_BYTES, "a card fits the exchange");

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000000000u) + (uint64_t)now.tv_nsec;
}

bool kvcl_floor_fail(const char *what, ucs_status_t status)
{
    fprintf(stderr, "raw UCX: %s: %s\n", what, ucs_status_string(status));
    return false;
}

/* The same as ucx_glue/glue_side.c sets for the library. */
static void configure(ucp_config_t *config, const kvcl_floor_params_t *params)
{
    unsigned major, minor, release;
    bool     old;

    ucp_get_version(&major, &minor, &release);
    if (params->tcp) {
        /* before 1.17 the call needs a tcp key without its prefix, and accepts the other spelling without effect */
        old = (major == 1) && (minor < 17);
        (void)ucp_config_modify(config, "TLS", "tcp");
        (void)ucp_config_modify(config, "NET_DEVICES", params->net);
        (void)ucp_config_modify(config, old ? "RX_SEG_SIZE" : "TCP_RX_SEG_SIZE", "256k");
        (void)ucp_config_modify(config, old ? "TX_SEG_SIZE" : "TCP_TX_SEG_SIZE", "256k");
        return;
    }
    (void)ucp_config_modify(config, "TLS", "posix,cma");
    (void)ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
    (void)ucp_config_modify(config, "ALLOC_PRIO", "md:posix");
    (void)ucp_config_modify(config, "RNDV_THRESH", "inf");
    if ((major > 1) || (minor >= 22)) {
        (void)ucp_config_modify(config, "PROTO_EMULATION_ENABLE", "n");
    }
}

static bool open_worker(kvcl_floor_t *floor, const kvcl_floor_params_t *params)
{
    ucp_params_t        ucp    = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                  .features   = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t single = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t        *config;
    ucs_status_t        status = ucp_config_read(NULL, NULL, &config);

    if (status == UCS_OK) {
        configure(config, params);
        ucp.features |= params->tcp ? 0 : (uint64_t)UCP_FEATURE_RMA;
        status = ucp_init(&ucp, config, &floor->ctx);
        ucp_config_release(config);
    }
    if (status == UCS_OK) {
        status = ucp_worker_create(floor->ctx, &single, &floor->worker);
    }
    if (status == UCS_OK) {
        status = ucp_worker_get_efd(floor->worker, &floor->efd);
    }
    return (status == UCS_OK) || kvcl_floor_fail("cannot open a worker", status);
}

static bool allocate(kvcl_floor_t *floor, size_t bytes)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length     = bytes,
                                   .flags      = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucs_status_t         status;

    if (floor->tcp) {
        floor->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (floor->memory == MAP_FAILED) {
            floor->memory = NULL;
            return kvcl_floor_fail("mmap", UCS_ERR_NO_MEMORY);
        }
    } else {
        status = ucp_mem_map(floor->ctx, &params, &floor->memh);
        status = (status == UCS_OK) ? ucp_mem_query(floor->memh, &attr) : status;
        if (status != UCS_OK) {
            return kvcl_floor_fail("cannot allocate shared memory", status);
        }
        floor->memory = attr.address;
    }
    floor->bytes = bytes;
    memset(floor->memory, 0, bytes);
    return true;
}

static bool make_card(kvcl_floor_t *floor, floor_card_t *card)
{
    ucp_address_t *address;
    void          *rkey;
    size_t        len;
    ucs_status_t  status = ucp_worker_get_address(floor->worker, &address, &len);

    if (status != UCS_OK) {
        return kvcl_floor_fail("ucp_worker_get_address", status);
    }
    status = (len <= sizeof(card->address)) ? UCS_OK : UCS_ERR_BUFFER_TOO_SMALL;
    if (status == UCS_OK) {
        memcpy(card->address, address, len);
        card->address_len = (uint32_t)len;
    }
    ucp_worker_release_address(floor->worker, address);
    if ((status == UCS_OK) && (floor->memh != NULL)) {
        status = ucp_rkey_pack(floor->ctx, floor->memh, &rkey, &len);
        if (status == UCS_OK) {
            card->rkey_len = (uint32_t)len;
            status         = (len <= sizeof(card->rkey)) ? UCS_OK : UCS_ERR_BUFFER_TOO_SMALL;
            memcpy(card->rkey, rkey, (status == UCS_OK) ? len : 0);
            ucp_rkey_buffer_release(rkey);
        }
    }
    card->memory = (uint64_t)(uintptr_t)floor->memory;
    return (status == UCS_OK) || kvcl_floor_fail("cannot exchange the description of this side", status);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    kvcl_floor_t *floor = arg;

    (void)ep;
    (void)status;
    floor->broken = true;
}

static bool connect_to(kvcl_floor_t *floor, const floor_card_t *card)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER};
    ucs_status_t    status;

    params.address         = (const ucp_address_t *)card->address;
    params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb  = on_error;
    params.err_handler.arg = floor;
    status                 = ucp_ep_create(floor->worker, &params, &floor->ep);
    if ((status == UCS_OK) && (card->rkey_len != 0)) {
        status = ucp_ep_rkey_unpack(floor->ep, card->rkey, &floor->rkey);
    }
    if (status != UCS_OK) {
        return kvcl_floor_fail("cannot reach the other side", status);
    }
    floor->remote = card->memory;
    if ((floor->rkey != NULL) && (ucp_rkey_ptr(floor->rkey, floor->remote, &floor->mapped) != UCS_OK)) {
        floor->mapped = NULL;
    }
    return true;
}

bool kvcl_floor_open(const kvcl_floor_params_t *params, kvcl_floor_t **floor_p)
{
    kvcl_floor_t *floor  = calloc(1, sizeof(*floor));
    uint8_t      *mine   = calloc(1, KVCL_FLOOR_EXCHANGE_BYTES);
    uint8_t      *theirs = calloc(1, KVCL_FLOOR_EXCHANGE_BYTES);
    bool         good    = (floor != NULL) && (mine != NULL) && (theirs != NULL);

    if (good) {
        floor->initiator = params->initiator;
        floor->tcp       = params->tcp;
        floor->spin_ns   = params->spin_ns;
        good             = open_worker(floor, params) && kvcl_floor_am_init(floor) && allocate(floor, params->bytes) &&
               make_card(floor, (floor_card_t *)(void *)mine) && params->exchange(params->arg, mine, theirs) &&
               connect_to(floor, (const floor_card_t *)(const void *)theirs);
    }
    free(mine);
    free(theirs);
    if (!good) {
        kvcl_floor_close(floor);
        return false;
    }
    *floor_p = floor;
    return true;
}

static void close_ep(kvcl_floor_t *floor)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t    req   = ucp_ep_close_nbx(floor->ep, &param);

    while (UCS_PTR_IS_PTR(req) && (ucp_request_check_status(req) == UCS_INPROGRESS)) {
        ucp_worker_progress(floor->worker);
    }
    if (UCS_PTR_IS_PTR(req)) {
        ucp_request_free(req);
    }
}

void kvcl_floor_close(kvcl_floor_t *floor)
{
    if (floor == NULL) {
        return;
    }
    if (floor->rkey != NULL) {
        ucp_rkey_destroy(floor->rkey);
    }
    if (floor->ep != NULL) {
        close_ep(floor);
    }
    if (floor->memh != NULL) {
        (void)ucp_mem_unmap(floor->ctx, floor->memh);
    } else if (floor->memory != NULL) {
        (void)munmap(floor->memory, floor->bytes);
    }
    if (floor->worker != NULL) {
        ucp_worker_destroy(floor->worker);
    }
    if (floor->ctx != NULL) {
        ucp_cleanup(floor->ctx);
    }
    free(floor);
}

void *kvcl_floor_memory(kvcl_floor_t *floor)
{
    return floor->memory;
}

void kvcl_floor_wait_start(floor_wait_t *wait)
{
    wait->idle_since = now_ns();
}

bool kvcl_floor_wait_step(kvcl_floor_t *floor, floor_wait_t *wait, uint64_t timeout_ns)
{
    struct pollfd fd = {.fd = floor->efd, .events = POLLIN};
    uint64_t      now;

    if (ucp_worker_progress(floor->worker) != 0) {
        wait->idle_since = now_ns();
        return true;
    }
    now = now_ns();
    if (now - wait->idle_since > timeout_ns) {
        return false;
    }
    if ((now - wait->idle_since >= floor->spin_ns) && (ucp_worker_arm(floor->worker) == UCS_OK)) {
        (void)poll(&fd, 1, SLEEP_MS);
    }
    return true;
}

bool kvcl_floor_drain(kvcl_floor_t *floor, uint64_t left)
{
    floor_wait_t wait;

    kvcl_floor_wait_start(&wait);
    while (!floor->broken && (floor->posted - floor->done > left)) {
        if (!kvcl_floor_wait_step(floor, &wait, FLOOR_TIMEOUT_NS)) {
            return kvcl_floor_fail("a transfer", UCS_ERR_TIMED_OUT);
        }
    }
    return !floor->broken || kvcl_floor_fail("a transfer", UCS_ERR_IO_ERROR);
}
