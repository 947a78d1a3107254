/*
 * The open and close of a tcp transport: its settings, descriptors, listeners and address. Owns nothing that outlives
 * fini. Locks: none held in init and fini.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/x25519.h"
#include "wire/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Accepts a half-built object. */
static void destroy(tcp_t *tcp)
{
    kvcl_tcp_doors_close(tcp);
    kvcl_tcp_conns_bury(tcp);
    if (tcp->timer_fd >= 0) {
        close(tcp->timer_fd);
    }
    if (tcp->epfd >= 0) {
        close(tcp->epfd);
    }
    (void)kvcl_mpool_fini(&tcp->gather);
    kvcl_map_fini(&tcp->by_id);
    if (tcp->scratch != NULL) { /* what an encrypted connection has received */
        kvcl_wipe(tcp->scratch, TCP_SCRATCH);
        free(tcp->scratch);
    }
    free(tcp);
}

static kvcl_status_t open_fds(tcp_t *tcp)
{
    struct epoll_event ev = {.events = EPOLLIN | (uint32_t)EPOLLET, .data.ptr = &tcp->timer_kind};

    tcp->timer_kind = TCP_TIMER;
    tcp->epfd       = epoll_create1(EPOLL_CLOEXEC);
    tcp->timer_fd   = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if ((tcp->epfd < 0) || (tcp->timer_fd < 0) || (epoll_ctl(tcp->epfd, EPOLL_CTL_ADD, tcp->timer_fd, &ev) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "tcp: cannot make its descriptors");
    }
    return KVCL_OK;
}

static kvcl_status_t set_wire(tcp_t *tcp, const char *name)
{
    static const char *const names[] = {"auto", "plain", "aead"};
    int                      i;

    for (i = 0; i < 3; ++i) {
        if ((name != NULL) && (strcmp(name, names[i]) == 0)) {
            tcp->wire = (tcp_wire_t)i;
            return KVCL_OK;
        }
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tcp: no such wire \"%s\": auto, plain or aead",
                     (name != NULL) ? name : "");
}

static kvcl_status_t make_address(tcp_t *tcp)
{
    kvcl_status_t status = kvcl_random_bytes(tcp->own.id, sizeof(tcp->own.id));
    unsigned      i;

    kvcl_host_id(tcp->own.host);
    memcpy(tcp->side.id, tcp->own.id, sizeof(tcp->side.id));
    tcp->side.cipher = kvcl_aead_preferred();
    tcp->own.n       = tcp->n_doors;
    for (i = 0; i < tcp->n_doors; ++i) {
        const tcp_door_t *door = &tcp->doors[i];

        tcp->own.at[i] = (tcp_where_t){door->listener.at.family, (uint8_t)door->side.wire, door->listener.port, {0}};
        memcpy(tcp->own.at[i].addr, door->listener.at.addr, sizeof(tcp->own.at[i].addr));
    }
    tcp->packed_len = kvcl_tcp_addr_pack(&tcp->own, tcp->packed);
    return status;
}

/* Every connection needs a key, an encrypted one a cipher. libcrypto may lack them: a FIPS provider has no X25519. */
static kvcl_status_t check_crypto(const tcp_t *tcp)
{
    const uint8_t   priv[32] = {8};
    kvcl_aead_key_t key      = {{0}, {0}};
    kvcl_aead_t     aead     = {NULL, {0}};
    kvcl_status_t   status   = KVCL_OK;
    uint8_t         pub[32];

    if (kvcl_x25519_public(priv, pub) != KVCL_OK) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "tcp: libcrypto has no X25519, which each connection needs: activate "
                         "its default provider");
    }
    if (tcp->wire != TCP_WIRE_PLAIN) {
        status = kvcl_aead_create(kvcl_aead_preferred(), &key, true, &aead);
        kvcl_aead_destroy(&aead);
    }
    return status;
}

static kvcl_status_t open_all(tcp_t *tcp, const kvcl_xport_params_t *params)
{
    kvcl_status_t status;

    if ((params->net == NULL) || (params->net[0] == '\0')) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_PATH=tcp needs KVCL_NET to name a network interface: "
                         "lo for ranks of one host");
    }
    if (((status = set_wire(tcp, params->wire)) != KVCL_OK) || ((status = check_crypto(tcp)) != KVCL_OK) ||
        ((status = kvcl_net_check(params->net)) != KVCL_OK) ||
        ((status = open_fds(tcp)) != KVCL_OK) || ((status = kvcl_tcp_doors_open(tcp, params->net)) != KVCL_OK)) {
        return status;
    }
    tcp->scratch = malloc(TCP_SCRATCH);
    if (tcp->scratch == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a context");
    }
    snprintf(tcp->text, sizeof(tcp->text), "tcp/%s", params->net);
    return make_address(tcp);
}

kvcl_status_t kvcl_tcp_init(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p)
{
    tcp_t         *tcp = calloc(1, sizeof(*tcp));
    kvcl_status_t status;

    if (tcp == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a context");
    }
    tcp->super.ops           = &kvcl_xport_tcp;
    tcp->cbs                 = params->cbs;
    tcp->tuning.keepalive_ns = params->keepalive_ns;
    tcp->epfd = tcp->timer_fd = -1;
    tcp->done_tail = &tcp->done_head;
    kvcl_list_init(&tcp->strangers);
    kvcl_list_init(&tcp->conns);
    kvcl_list_init(&tcp->dead);
    kvcl_list_init(&tcp->ready);
    kvcl_list_init(&tcp->eps);
    kvcl_map_init(&tcp->by_id);
    kvcl_list_init(&tcp->failed);
    kvcl_list_init(&tcp->selves);
    kvcl_mpool_init(&tcp->gather, "tcp gathering sends", sizeof(tcp_out_t), 64, 0);
    status = open_all(tcp, params);
    if (status != KVCL_OK) {
        destroy(tcp);
        return status;
    }
    *xport_p = &tcp->super;
    return KVCL_OK;
}

void kvcl_tcp_fini(kvcl_xport_t *xport)
{
    tcp_t      *tcp = tcp_of(xport);
    tcp_conn_t *conn, *tmp;

    if (!kvcl_list_is_empty(&tcp->eps)) {
        kvcl_log_warn("tcp: a context is closed with endpoints still open");
    }
    kvcl_list_foreach_safe (conn, tmp, &tcp->conns, tcp_conn_t, link) {
        kvcl_tcp_conn_kill(conn, KVCL_ERR_CANCELED);
    }
    kvcl_list_foreach_safe (conn, tmp, &tcp->strangers, tcp_conn_t, link) {
        kvcl_tcp_conn_kill(conn, KVCL_ERR_CANCELED);
    }
    (void)kvcl_tcp_report_done(tcp);
    kvcl_tcp_self_drop(tcp);
    destroy(tcp);
}
