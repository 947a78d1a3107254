/*
 * The port where processes ask to join through this rank (KVCL_JOIN_AT; enter/join_wire.h has what is said).
 *
 * Owns: room->port. The port's thread answers, under the engine lock. A slot that was given to a process that named
 * none is not given to another one for a moment, so that several find slots of their own.
 */
#include "config.h"
#include "enter/join_wire.h"
#include "member/join/joins.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hostport.h"
#include "base/log.h"
#include "handle/handle.h"
#include "sock/sock_port.h"
#include "wire/wire.h"
#include <kvcl/kvcl_recover.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESERVED_NS (3 * KVCL_NS_PER_SEC)

static bool is_member(const kvcl_member_room_t *room, uint32_t slot)
{
    return kvcl_rankset_has(&room->views.view.members, slot);
}

static bool is_going(const kvcl_member_room_t *room, uint32_t slot)
{
    const kvcl_detect_t *detect = &room->views.detect;

    return kvcl_rankset_has(&detect->proven, slot) || kvcl_rankset_has(&detect->silent, slot) ||
           kvcl_rankset_has(&room->gone, slot) || kvcl_rankset_has(&room->views.leaving, slot);
}

/* KVCL_INPROGRESS: there may be one soon. The process that has one in view may die, as may a member have. */
static kvcl_status_t find_slot(kvcl_member_room_t *room, uint32_t *slot_p)
{
    const uint64_t now_ns = kvcl_now_ns();
    kvcl_status_t  status = KVCL_ERR_NO_SPACE;
    uint32_t       slot;

    for (slot = 0; slot < room->n; ++slot) {
        kvcl_member_rank_t *rank = &room->ranks[slot];

        if (!is_member(room, slot) && (rank->next == NULL) && (now_ns >= rank->reserved_ns)) {
            rank->reserved_ns = now_ns + RESERVED_NS;
            *slot_p           = slot;
            return KVCL_OK;
        }
        if (is_member(room, slot) ? is_going(room, slot) : ((rank->next == NULL) || !rank->next_ready)) {
            status = KVCL_INPROGRESS;
        }
    }
    return status;
}

/* Lock held. wanted -1: any. */
static kvcl_status_t choose(kvcl_member_room_t *room, int32_t wanted, uint32_t *slot_p)
{
    kvcl_assert_locked(room->ctx);
    if (!room->started || (room->views.state != KVCL_VIEWS_MEMBER) || room->excluded) {
        return KVCL_INPROGRESS;
    }
    if (wanted < 0) {
        return find_slot(room, slot_p);
    }
    *slot_p = (uint32_t)wanted;
    if (*slot_p >= room->n) {
        return KVCL_ERR_UNKNOWN_RANK;
    }
    return !is_member(room, *slot_p) ? KVCL_OK : is_going(room, *slot_p) ? KVCL_INPROGRESS : KVCL_ERR_BUSY;
}

/* Lock held. */
static void list_members(const kvcl_member_room_t *room, kvcl_join_answer_t *answer)
{
    const kvcl_context_h ctx = room->ctx;
    const kvcl_peer_t    *peer;
    uint32_t             slot;

    kvcl_assert_locked(ctx);
    KVCL_RANKSET_EACH(&room->views.view.members, slot) {
        peer = room->ranks[slot].peer;
        if (slot == room->me) {
            answer->members[answer->n_members++] =
                (kvcl_join_member_t){.slot = slot, .len = (uint32_t)ctx->address_len, .address = ctx->address};
        } else if ((slot != answer->slot) && (peer != NULL) && (peer->state != KVCL_PEER_FAILED)) {
            answer->members[answer->n_members++] =
                (kvcl_join_member_t){.slot = slot, .len = (uint32_t)peer->address_len, .address = peer->address};
        }
    }
}

static void *pack(const kvcl_join_answer_t *answer, size_t *len_p)
{
    size_t   cap = 64 + (answer->n_members * (size_t)8);
    uint32_t i;
    void     *buf;

    for (i = 0; i < answer->n_members; ++i) {
        cap += answer->members[i].len;
    }
    buf    = malloc(cap);
    *len_p = (buf != NULL) ? kvcl_join_answer_pack(answer, buf, cap) : 0;
    return buf;
}

/* In the port's thread. */
static void *answer_question(void *arg, const void *question, size_t *len_p)
{
    kvcl_member_room_t       *room   = arg;
    const kvcl_views_times_t *times  = &room->times; /* the job's: this process may have joined it as well */
    kvcl_join_answer_t       *answer = calloc(1, sizeof(*answer));
    int32_t                  wanted;
    void                     *bytes;

    if (answer == NULL) {
        return NULL;
    }
    answer->status  = kvcl_join_question_unpack(question, KVCL_WIRE_VERSION, &wanted);
    answer->n_slots = room->n;
    memcpy(answer->times_ns, (const uint64_t[KVCL_JOIN_TIMES]){times->detect.beat_ns, times->detect.suspect_ns,
           times->detect.dead_ns, times->lease_ns, times->detect.warm_ns}, sizeof(answer->times_ns));
    kvcl_lock(room->ctx);
    answer->status = (answer->status == KVCL_OK) ? choose(room, wanted, &answer->slot) : answer->status;
    if (answer->status == KVCL_OK) {
        list_members(room, answer);
    } else {
        ++room->joins_refused;
    }
    bytes = (answer->status != KVCL_ERR_PROTOCOL) ? pack(answer, len_p) : NULL;
    kvcl_unlock(room->ctx);
    free(answer);
    return bytes;
}

/* port + rank, so that the ranks of a host have ports of their own; port 0 stays. */
static kvcl_status_t port_of_rank(kvcl_context_h ctx, char at[KVCL_HOSTPORT_MAX])
{
    kvcl_hostport_t hostport;
    kvcl_status_t   status = kvcl_hostport_parse(ctx->config.join_at, "KVCL_JOIN_AT", 0, &hostport);
    unsigned        port;

    if (status != KVCL_OK) {
        return status;
    }
    port = (hostport.port != 0) ? hostport.port + (unsigned)ctx->boot->rank : 0;
    if (port > UINT16_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_JOIN_AT: \"%s\": rank %d listens at the port plus its rank, %u, "
                         "which is no port: take a lower one", ctx->config.join_at, ctx->boot->rank, port);
    }
    hostport.port = (uint16_t)port;
    (void)kvcl_hostport_print(&hostport, at);
    return KVCL_OK;
}

/* Others must be able to know the job's secret. */
static kvcl_status_t check_secret(kvcl_context_h ctx)
{
    const char *boot = ctx->boot->ops->name;

    if ((ctx->config.secret_file != NULL) || (strcmp(boot, "tcp") == 0) || (strcmp(boot, "join") == 0)) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_AUTH, "KVCL_JOIN_AT: the ranks have made their secret by themselves, and no process that "
                     "joins can know it: name a file with one by KVCL_SECRET_FILE, on all ranks and on those that "
                     "join");
}

kvcl_status_t kvcl_joins_open(kvcl_member_room_t *room)
{
    kvcl_context_h          ctx    = room->ctx;
    kvcl_sock_port_params_t params = {.what = "KVCL_JOIN_AT", .secret = ctx->secret, .id = kvcl_join_id,
                                      .question_len = KVCL_JOIN_QUESTION, .answer = answer_question, .arg = room};
    char                    at[KVCL_HOSTPORT_MAX];
    kvcl_status_t           status;

    if (ctx->config.join_at == NULL) {
        return KVCL_OK;
    }
    status    = check_secret(ctx);
    status    = (status == KVCL_OK) ? port_of_rank(ctx, at) : status;
    params.at = at;
    status    = (status == KVCL_OK) ? kvcl_sock_port_open(&params, room->join_at, &room->port) : status;
    if ((status == KVCL_ERR_BUSY) && room->joining) { /* perhaps the slot's earlier process, stopped */
        kvcl_log_warn("nobody can join through this rank: %s", kvcl_last_error());
        room->join_at[0] = '\0';
        return KVCL_OK;
    }
    if (status == KVCL_OK) {
        kvcl_log_info("processes may join through rank %d at %s", ctx->boot->rank, room->join_at);
    }
    return status;
}

kvcl_status_t kvcl_join_address(kvcl_context_h ctx, char *buf, size_t cap, size_t *len_p)
{
    static const char        call[] = "kvcl_join_address";
    kvcl_status_t            status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call);
    const kvcl_member_room_t *room;

    if (status != KVCL_OK) {
        return status;
    }
    if ((len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: NULL argument", call);
    }
    room = kvcl_member_room(ctx);
    if ((room == NULL) || (room->join_at[0] == '\0')) {
        return kvcl_fail(KVCL_ERR_NOT_FOUND, "%s: nobody can join through this rank: set KVCL_JOIN_AT", call);
    }
    *len_p = strlen(room->join_at) + 1;
    if (*len_p > cap) {
        return kvcl_fail(KVCL_ERR_TRUNCATED, "%s: the address needs %zu bytes, there is room for %zu", call, *len_p,
                         cap);
    }
    snprintf(buf, cap, "%s", room->join_at);
    return KVCL_OK;
}
