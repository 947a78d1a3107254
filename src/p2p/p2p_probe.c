/*
 * kvcl_probe: a look at the sends that have arrived and that no recv has matched.
 *
 * Owns: nothing; the sends belong to p2p_match.c. Invariant: a probe takes no send. Locks: none is held on entry; the
 * condition of its wait runs under the engine lock.
 */
#include "config.h"
#include "p2p/p2p.h"
#include "p2p/p2p_match.h"
#include "p2p/p2p_words.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "req/timeout.h"
#include "xfer/describe.h"

#include <stdio.h>

typedef struct probe {
    kvcl_context_h   ctx;
    kvcl_comm_h      comm;
    kvcl_posted_t    wanted;
    kvcl_peer_t      *from;   /* NULL: any */
    kvcl_status_t    status;  /* KVCL_INPROGRESS until one was found, or from has failed */
    kvcl_recv_info_t info;
} probe_t;

/* Lock held. */
static bool look(void *arg)
{
    probe_t               *probe = arg;
    const kvcl_msg_send_t *msg;

    kvcl_assert_locked(probe->ctx);
    msg = kvcl_match_look(probe->ctx, &probe->wanted);
    if (atomic_load(&probe->comm->revoked)) {
        probe->status = KVCL_ERR_REVOKED;
    } else if (msg != NULL) {
        probe->info   = (kvcl_recv_info_t){.size = sizeof(probe->info), .source = msg->source, .tag = msg->tag,
                                           .bytes = msg->len};
        probe->status = KVCL_OK;
    } else if ((probe->from != NULL) && (probe->from->state == KVCL_PEER_FAILED)) {
        probe->status = probe->from->why;
    }
    return probe->status != KVCL_INPROGRESS;
}

/* "a message of tag 7 from rank 1" */
static const char *describe(const probe_t *probe, char *buf, size_t cap)
{
    char peer[48], tag[32];

    kvcl_lock(probe->ctx);
    kvcl_describe_peer(probe->from, peer, sizeof(peer));
    kvcl_unlock(probe->ctx);
    snprintf(buf, cap, "a message of %s from %s", kvcl_describe_tag(probe->wanted.tag, tag, sizeof(tag)), peer);
    return buf;
}

kvcl_status_t kvcl_probe(kvcl_comm_h comm, int rank, uint64_t tag, uint64_t timeout_ns, kvcl_recv_info_t *info_p)
{
    static const char call[] = "kvcl_probe";
    probe_t           probe  = {.status = KVCL_INPROGRESS};
    kvcl_status_t     status = kvcl_comm_check_any(comm, rank, call);
    char              what[128];

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(info_p, KVCL_UP_TO(kvcl_recv_info_t, bytes), "kvcl_recv_info_t", call);
    }
    if ((status == KVCL_OK) && (rank != KVCL_ANY_SOURCE)) {
        status = kvcl_comm_peer(comm, rank, &probe.from);
    }
    if (status != KVCL_OK) {
        return status;
    }
    probe.ctx    = comm->ctx;
    probe.comm   = comm;
    probe.wanted = (kvcl_posted_t){.comm = comm->id, .source = rank, .tag = tag};
    if (!kvcl_wait_for(comm->ctx, look, &probe, timeout_ns)) {
        return (timeout_ns == 0) ? KVCL_INPROGRESS
                                 : kvcl_wait_ended(comm->ctx, timeout_ns, call, describe(&probe, what, sizeof(what)));
    }
    if (probe.status != KVCL_OK) {
        return kvcl_fail(probe.status, "%s: %s can no longer arrive: %s", call, describe(&probe, what, sizeof(what)),
                         kvcl_status_text(probe.status));
    }
    kvcl_struct_out(info_p, &probe.info, sizeof(probe.info));
    return KVCL_OK;
}
