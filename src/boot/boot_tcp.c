/*
 * A meeting at an address: KVCL_RENDEZVOUS=tcp://host:port, KVCL_SIZE ranks, ranks by KVCL_RANK or assigned.
 *
 * Rank 0 runs a boot_server; without KVCL_RANK, the process that binds the port first does. All ranks, that one
 * included, join it as members over a socket. Exchange sends one message and receives the blobs of all ranks, so later
 * gets are local and the serving rank may leave: a meeting is over for its members once they have the table.
 *
 * Secret: the named file; without one, on loopback, the user's own (secret.h); otherwise an error.
 */
#include "config.h"
#include "boot/boot.h"
#include "boot/boot_blobs.h"
#include "boot/boot_server.h"
#include "boot/boot_sock.h"
#include "boot/boot_wire.h"
#include "boot/secret.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MIN_NS   (1 * KVCL_NS_PER_MS)
#define RETRY_MAX_NS   (100 * KVCL_NS_PER_MS)
#define CONNECT_MAX_NS (5 * KVCL_NS_PER_SEC)
#define GRACE_NS       (500 * KVCL_NS_PER_MS) /* the server has the reason of a timeout: let it report first */

typedef struct boot_tcp {
    kvcl_boot_t         super;
    int                 fd;
    kvcl_boot_server_t *server; /* NULL: another process serves */
    kvcl_boot_addr_t    addr;
    kvcl_boot_addr_t    bind_addr; /* where to listen: addr, or the interface named */
    kvcl_blobs_t        blobs;
    uint8_t             frame[KVCL_BOOT_FRAME_MAX];
} boot_tcp_t;

/* ---------------------------------------------------------------- messages */

static kvcl_status_t send_msg(boot_tcp_t *tcp, const kvcl_boot_msg_t *msg, uint64_t deadline_ns)
{
    size_t len = kvcl_boot_msg_pack(msg, tcp->frame, sizeof(tcp->frame));

    if (len == 0) {
        return kvcl_fail(KVCL_ERR_INTERNAL, "a boot message of type %d does not fit", (int)msg->type);
    }
    return kvcl_boot_sock_send(tcp->fd, tcp->frame, len, deadline_ns);
}

/* Receive one message of the wanted type. msg->blob points into tcp->frame, until the next message. */
static kvcl_status_t recv_msg(boot_tcp_t *tcp, kvcl_boot_type_t type, kvcl_boot_msg_t *msg, uint64_t deadline_ns)
{
    uint8_t         *body = tcp->frame + KVCL_BOOT_HEAD_LEN;
    kvcl_boot_head_t head;
    kvcl_status_t    status;

    status = kvcl_boot_sock_recv(tcp->fd, tcp->frame, KVCL_BOOT_HEAD_LEN, deadline_ns);
    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_boot_head_parse(tcp->frame, &head);
    if (status == KVCL_ERR_VERSION) {
        return kvcl_fail(status, "the ranks run different versions of KVCL: the rendezvous %s speaks boot protocol %u, "
                         "we speak %d", tcp->addr.url, (unsigned)head.version, (int)KVCL_BOOT_WIRE_VERSION);
    }
    if (status != KVCL_OK) {
        return kvcl_fail(status, "what answers at %s is no KVCL rendezvous: another program has the port; \"ss -ltnp\" "
                         "shows which: stop it, or name another port in KVCL_RENDEZVOUS", tcp->addr.url);
    }
    status = kvcl_boot_sock_recv(tcp->fd, body, head.len, deadline_ns);
    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_boot_body_parse(&head, body, msg);
    if ((status == KVCL_OK) && (msg->type == KVCL_BOOT_REFUSE)) {
        status = (msg->status < 0) ? msg->status : KVCL_ERR_PROTOCOL;
        return kvcl_fail(status, "the rendezvous %s refused: %s", tcp->addr.url, msg->text);
    }
    if ((status != KVCL_OK) || (msg->type != type)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "the rendezvous %s sent message %d, expected %d",
                         tcp->addr.url, (int)head.type, (int)type);
    }
    return KVCL_OK;
}

/* Send a request and wait for the answer. If sending fails, a message received before may have the reason. */
static kvcl_status_t request(boot_tcp_t *tcp, const kvcl_boot_msg_t *question, kvcl_boot_type_t type,
                             kvcl_boot_msg_t *answer, uint64_t deadline_ns)
{
    kvcl_status_t status = send_msg(tcp, question, deadline_ns);

    if ((status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE)) {
        status = recv_msg(tcp, type, answer, deadline_ns);
    }
    return status;
}

/* ---------------------------------------------------------------- joining */

/* A process listens there, and does not answer or closes the connection. */
static kvcl_status_t no_rendezvous(const boot_tcp_t *tcp, kvcl_status_t status)
{
    return kvcl_fail(status, "what listens at %s does not answer as a KVCL rendezvous%s (%s): another program may have "
                     "the port; \"ss -ltnp\" shows which: stop it, or name another port in KVCL_RENDEZVOUS",
                     tcp->addr.url, (status == KVCL_ERR_TIMED_OUT) ? " within KVCL_BOOT_TIMEOUT" : "",
                     kvcl_last_error());
}

/* Prove the secret both ways and get a rank. */
static kvcl_status_t shake_hands(boot_tcp_t *tcp, const kvcl_boot_params_t *params, uint64_t deadline_ns)
{
    kvcl_boot_msg_t hello = {.type = KVCL_BOOT_HELLO};
    kvcl_boot_msg_t join  = {.type = KVCL_BOOT_JOIN, .rank = params->rank, .size = (uint32_t)params->size};
    kvcl_boot_msg_t challenge, welcome;
    uint8_t         proof[KVCL_SHA256_LEN];
    kvcl_status_t   status = kvcl_random_bytes(hello.nonce, sizeof(hello.nonce));

    if (status == KVCL_OK) {
        status = request(tcp, &hello, KVCL_BOOT_CHALLENGE, &challenge, deadline_ns);
        if ((status == KVCL_ERR_TIMED_OUT) || (status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_IO)) {
            return no_rendezvous(tcp, status);
        }
    }
    if (status == KVCL_OK) {
        kvcl_boot_prove(&join, tcp->super.secret, hello.nonce, challenge.nonce, join.proof);
        status = request(tcp, &join, KVCL_BOOT_WELCOME, &welcome, deadline_ns);
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_boot_prove(&welcome, tcp->super.secret, hello.nonce, challenge.nonce, proof);
    if (!kvcl_ct_equal(proof, welcome.proof, sizeof(proof))) {
        return kvcl_fail(KVCL_ERR_AUTH, "what answers at %s does not know the job secret (KVCL_SECRET_FILE)",
                         tcp->addr.url);
    }
    if ((welcome.size != (uint32_t)params->size) || (welcome.rank < 0) || (welcome.rank >= params->size) ||
        ((params->rank >= 0) && (welcome.rank != params->rank))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "the rendezvous %s gave rank %d of %u", tcp->addr.url, (int)welcome.rank,
                         (unsigned)welcome.size);
    }
    tcp->super.rank = welcome.rank;
    tcp->super.size = params->size;
    snprintf(tcp->super.job, sizeof(tcp->super.job), "tcp-%016" PRIx64, welcome.id);
    return KVCL_OK;
}

/* Serve the meeting if this process is the one to serve it and no other process serves it yet. */
static kvcl_status_t try_serve(boot_tcp_t *tcp, const kvcl_boot_params_t *params)
{
    kvcl_boot_server_params_t server_params = {.listen_fd = -1, .size = params->size, .secret = tcp->super.secret};
    kvcl_status_t             status;
    int                       err = 0;

    if ((tcp->server != NULL) || (params->rank > 0)) {
        return KVCL_OK;
    }
    status = kvcl_boot_sock_listen(&tcp->bind_addr, &server_params.listen_fd, &err);
    if (status == KVCL_OK) {
        return kvcl_boot_server_start(&server_params, &tcp->server);
    }
    if ((status == KVCL_ERR_BUSY) || ((status == KVCL_ERR_UNREACHABLE) && (params->rank == -1))) {
        return KVCL_OK; /* another process serves it, or another host will */
    }
    return kvcl_fail_errno(status, err, "rank 0 cannot listen at %s%s", tcp->addr.url,
                           (status == KVCL_ERR_UNREACHABLE) ? ", it must run on that host" : "");
}

/* One attempt to connect and join. *final_p: trying again would not help. */
static kvcl_status_t try_join(boot_tcp_t *tcp, const kvcl_boot_params_t *params, uint64_t deadline_ns, int *final_p)
{
    uint64_t      connect_ns = kvcl_deadline_after(CONNECT_MAX_NS);
    int           err        = 0;
    kvcl_status_t status;

    *final_p = 0;
    if (deadline_ns < connect_ns) {
        connect_ns = deadline_ns;
    }
    status = kvcl_boot_sock_connect(&tcp->addr, connect_ns, &tcp->fd, &err);
    if (status != KVCL_OK) {
        return kvcl_fail_errno(status, err, "nobody serves the rendezvous %s", tcp->addr.url);
    }
    status = shake_hands(tcp, params, deadline_ns);
    if (status != KVCL_OK) {
        close(tcp->fd);
        tcp->fd  = -1;
        /* Cut off, by a restart or a full queue: try again. */
        *final_p = (status != KVCL_ERR_UNREACHABLE) && (status != KVCL_ERR_IO);
    }
    return status;
}

static void nap(uint64_t *ns_p, uint64_t deadline_ns)
{
    uint64_t        left_ns = kvcl_deadline_left(deadline_ns);
    uint64_t        ns      = (*ns_p < left_ns) ? *ns_p : left_ns;
    struct timespec ts      = {.tv_sec = 0, .tv_nsec = (long)ns};

    nanosleep(&ts, NULL);
    *ns_p = (*ns_p * 2 < RETRY_MAX_NS) ? *ns_p * 2 : RETRY_MAX_NS;
}

static kvcl_status_t meet(boot_tcp_t *tcp, const kvcl_boot_params_t *params, uint64_t deadline_ns)
{
    uint64_t      nap_ns = RETRY_MIN_NS;
    int           final  = 0;
    kvcl_status_t status;
    char          wait[32];

    for (;;) {
        status = try_serve(tcp, params);
        if (status != KVCL_OK) {
            return status;
        }
        status = try_join(tcp, params, deadline_ns, &final);
        if ((status == KVCL_OK) || final) {
            return status;
        }
        if (kvcl_deadline_passed(deadline_ns)) {
            return kvcl_fail(KVCL_ERR_TIMED_OUT, "%s, within %s (KVCL_BOOT_TIMEOUT)", kvcl_last_error(),
                             kvcl_time_format(wait, sizeof(wait), kvcl_boot_timeout(params)));
        }
        nap(&nap_ns, deadline_ns);
    }
}

/* ---------------------------------------------------------------- the contract */

/* For a member, a lost connection means that the serving rank has failed. */
static kvcl_status_t as_member(const boot_tcp_t *tcp, kvcl_status_t status)
{
    if (status != KVCL_ERR_UNREACHABLE) {
        return status;
    }
    return kvcl_fail(KVCL_ERR_RANK_FAILED, "the rank that served the rendezvous %s has left or failed",
                     tcp->addr.url);
}

static int tcp_available(const kvcl_boot_params_t *params)
{
    return params->rendezvous != NULL;
}

static void tcp_close(kvcl_boot_t *boot)
{
    boot_tcp_t     *tcp = (boot_tcp_t *)(void *)boot;
    kvcl_boot_msg_t bye = {.type = KVCL_BOOT_BYE};
    kvcl_status_t   status;

    if (tcp->fd >= 0) {
        status = send_msg(tcp, &bye, kvcl_deadline_after(GRACE_NS));
        (void)status; /* without BYE the server sees the end of the connection */
        close(tcp->fd);
    }
    kvcl_boot_server_stop(tcp->server);
    kvcl_blobs_fini(&tcp->blobs);
    free(tcp);
}

/* The name may be registered later (a Kubernetes service): resolve until the deadline. */
static kvcl_status_t resolve(boot_tcp_t *tcp, const kvcl_boot_params_t *params, uint64_t deadline_ns)
{
    uint64_t      nap_ns = RETRY_MAX_NS;
    kvcl_status_t status;

    while ((status = kvcl_boot_addr_resolve(params->rendezvous, &tcp->addr)) == KVCL_ERR_UNREACHABLE) {
        if (kvcl_deadline_passed(deadline_ns)) {
            break;
        }
        nap(&nap_ns, deadline_ns);
    }
    tcp->bind_addr = tcp->addr;
    if ((status == KVCL_OK) && (params->interface != NULL)) {
        status = kvcl_boot_addr_bind_to(&tcp->bind_addr, params->interface);
    }
    return status;
}

static kvcl_status_t find_secret(boot_tcp_t *tcp, const kvcl_boot_params_t *params)
{
    if (params->secret_file != NULL) {
        return kvcl_secret_named(params->secret_file, tcp->super.secret);
    }
    if (tcp->addr.loopback && tcp->bind_addr.loopback) {
        return kvcl_secret_of_user(tcp->super.secret);
    }
    return kvcl_fail(KVCL_ERR_AUTH, "the rendezvous %s is not on loopback alone: name a file with the job secret, the "
                     "same on all hosts, by KVCL_SECRET_FILE", tcp->addr.url);
}

static kvcl_status_t check_params(const kvcl_boot_params_t *params)
{
    if (params->rendezvous == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_BOOT=tcp needs KVCL_RENDEZVOUS=tcp://host:port");
    }
    if (params->size < 1) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_RENDEZVOUS=%s needs KVCL_SIZE, the number of ranks that meet "
                         "there", params->rendezvous);
    }
    return KVCL_OK;
}

static kvcl_status_t tcp_open(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p)
{
    uint64_t      deadline_ns = kvcl_deadline_after(kvcl_boot_timeout(params));
    kvcl_status_t status      = check_params(params);
    boot_tcp_t   *tcp;

    if (status != KVCL_OK) {
        return status;
    }
    tcp = (boot_tcp_t *)calloc(1, sizeof(*tcp));
    if (tcp == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
    }
    tcp->super.ops        = &kvcl_boot_tcp_ops;
    tcp->super.secret     = secret;
    tcp->super.local_rank = -1;
    tcp->fd               = -1;
    kvcl_blobs_init(&tcp->blobs);
    status = resolve(tcp, params, deadline_ns);
    if (status == KVCL_OK) {
        status = find_secret(tcp, params);
    }
    if ((status == KVCL_OK) && !(tcp->addr.loopback && tcp->bind_addr.loopback) && (params->net != NULL) &&
        (params->net[0] == '\0')) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "the rendezvous %s is for ranks of several hosts, but KVCL_NET "
                           "names no interface: set KVCL_NET to the one that leads to the other hosts (for example "
                           "eth0), in every rank", tcp->addr.url);
    }
    if (status == KVCL_OK) {
        status = meet(tcp, params, deadline_ns);
    }
    if (status != KVCL_OK) {
        tcp_close(&tcp->super);
        return status;
    }
    *boot_p = &tcp->super;
    return KVCL_OK;
}

static kvcl_status_t tcp_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    boot_tcp_t     *tcp = (boot_tcp_t *)(void *)boot;
    kvcl_boot_msg_t put = {.type = KVCL_BOOT_PUT, .wait_ns = boot->timeout_ns, .blob = blob, .blob_len = len};
    kvcl_boot_msg_t msg;
    uint64_t        deadline_ns = kvcl_deadline_add(kvcl_deadline_after(boot->timeout_ns), GRACE_NS);
    kvcl_status_t   status;
    int             rank;

    status = request(tcp, &put, KVCL_BOOT_BLOB, &msg, deadline_ns);
    for (rank = 0; status == KVCL_OK;) {
        if (msg.rank != rank) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "the rendezvous %s sent the blob of rank %d instead of %d",
                             tcp->addr.url, (int)msg.rank, rank);
        }
        status = kvcl_blobs_put(&tcp->blobs, rank, msg.blob, msg.blob_len);
        if ((status != KVCL_OK) || (++rank == boot->size)) {
            break;
        }
        status = recv_msg(tcp, KVCL_BOOT_BLOB, &msg, deadline_ns);
    }
    return as_member(tcp, status);
}

static kvcl_status_t tcp_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    boot_tcp_t *tcp = (boot_tcp_t *)(void *)boot;

    return kvcl_blobs_get(&tcp->blobs, rank, blob_p, len_p); /* all are there after the exchange */
}

const kvcl_boot_ops_t kvcl_boot_tcp_ops = {
    .size      = sizeof(kvcl_boot_ops_t),
    .name      = "tcp",
    .available = tcp_available,
    .open      = tcp_open,
    .exchange  = tcp_exchange,
    .get       = tcp_get,
    .close     = tcp_close
};
