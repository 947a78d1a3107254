/*
 * kvcl_comm_get_failed, _ack_failed, _agree, _shrink (kvcl_recover.h). Locks: none is held on entry; the engine lock
 * inside.
 */
#include "config.h"
#include "base/error.h"
#include "base/clock.h"
#include "base/rand.h"
#include "handle/handle.h"
#include "member/recover.h"
#include "req/callback.h"
#include "req/timeout.h"
#include <kvcl/kvcl_recover.h>

#include <stdlib.h>

kvcl_status_t kvcl_recover_check(kvcl_comm_h comm, const char *call, kvcl_member_room_t **room_p)
{
    kvcl_status_t status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);

    if (status != KVCL_OK) {
        return status;
    }
    if (comm->inter || ((comm->world == NULL) && (comm != comm->ctx->world))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: a communicator of another job, or of contexts that connect one "
                         "by one", call);
    }
    *room_p = kvcl_member_room(comm->ctx);
    return (*room_p != NULL) ? KVCL_OK
                             : kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: this job has no views: set KVCL_VIEWS=yes on all "
                                         "of its ranks", call);
}

/* What an agreement has decided, with all of the communicator that its caller needs: another thread may free it as soon
 * as the lock is released. */
typedef struct outcome {
    kvcl_context_h     ctx;
    uint64_t           comm_id;
    uint64_t           round;   /* of the communicator's agreements, the same number on all ranks */
    kvcl_agree_value_t value;
    int                missing; /* the first rank that has failed, which not all have acknowledged; -1: there is none */
    int                n;       /* ranks that are left: */
    int                slots[KVCL_SLOTS_MAX];
} outcome_t;

/* The rank in comm of a slot; -1: it is none. */
static int rank_of(const struct kvcl_comm *comm, uint32_t slot)
{
    int i;

    for (i = 0; i < comm->size; ++i) {
        if (kvcl_recover_slot(comm, i) == slot) {
            return i;
        }
    }
    return -1;
}

/* Lock held. The first failures of comm: their numbers go to ranks (cap of them), their slots to slots (limit of them;
 * NULL: not wanted). @return how many there are. */
static int list_failed(const kvcl_member_room_t *room, const struct kvcl_comm *comm, int *ranks, int cap, int limit,
                       kvcl_rankset_t *slots)
{
    unsigned i;
    int      n = 0, rank;

    kvcl_assert_locked(room->ctx);
    for (i = 0; i < room->n_told; ++i) {
        rank = rank_of(comm, room->told[i]);
        if (rank < 0) {
            continue;
        }
        if (n < cap) {
            ranks[n] = rank;
        }
        if ((slots != NULL) && (n < limit)) {
            kvcl_rankset_add(slots, room->told[i]);
        }
        ++n;
    }
    return n;
}

kvcl_status_t kvcl_comm_get_failed(kvcl_comm_h comm, int *ranks, int cap, int *n_p)
{
    static const char  call[] = "kvcl_comm_get_failed";
    kvcl_member_room_t *room;
    kvcl_status_t      status = kvcl_recover_check(comm, call, &room);

    if (status != KVCL_OK) {
        return status;
    }
    if ((n_p == NULL) || (cap < 0) || ((ranks == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: NULL argument, or room for %d ranks", call, cap);
    }
    kvcl_lock(comm->ctx);
    *n_p = list_failed(room, comm, ranks, cap, 0, NULL);
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_ack_failed(kvcl_comm_h comm, int n, int *acked_p)
{
    kvcl_member_room_t *room;
    kvcl_recover_t     *recover;
    kvcl_status_t      status = kvcl_recover_check(comm, "kvcl_comm_ack_failed", &room);
    int                all;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(comm->ctx);
    recover = kvcl_recover_of(room, comm);
    if (recover != NULL) {
        all = list_failed(room, comm, NULL, 0, 0, NULL);
        n   = (n < all) ? n : all;
        recover->n_acked = (n > recover->n_acked) ? n : recover->n_acked;
        if (acked_p != NULL) {
            *acked_p = recover->n_acked;
        }
    }
    kvcl_unlock(comm->ctx);
    return (recover != NULL) ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_comm_ack_failed: no memory");
}

/* ---- agreeing ---- */

static bool is_over(void *arg)
{
    const kvcl_recover_t *recover = arg;

    return recover->done || (recover->comm == NULL) || recover->room->excluded;
}

/* Lock held. Slots that nobody has, as far as this rank knows: those are no failures. */
static void add_empty(const kvcl_member_room_t *room, const kvcl_rankset_t *group, kvcl_rankset_t *slots)
{
    kvcl_rankset_t empty = *group;
    unsigned       i;
    uint32_t       slot;

    kvcl_assert_locked(room->ctx);
    for (slot = 0; !room->started && (slot < room->n_first); ++slot) {
        kvcl_rankset_del(&empty, slot);
    }
    if (room->started) {
        kvcl_rankset_drop(&empty, &room->views.view.members);
    }
    for (i = 0; i < room->n_told; ++i) {
        kvcl_rankset_del(&empty, room->told[i]);
    }
    kvcl_rankset_join(slots, &empty);
}

/* Lock held. */
static kvcl_status_t begin(kvcl_member_room_t *room, kvcl_comm_h comm, uint32_t number, uint64_t flags,
                           const char *call, kvcl_recover_t **recover_p)
{
    kvcl_recover_t     *recover = kvcl_recover_of(room, comm);
    kvcl_agree_value_t value    = {.call = number, .flags = flags, .names = {kvcl_recover_name(number)}};
    uint64_t           at;

    kvcl_assert_locked(comm->ctx);
    if (recover == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call);
    }
    if (atomic_load(&comm->ctx->slots.quiet)) {
        return kvcl_fail(KVCL_ERR_NO_QUORUM, "%s: this process has joined the job, and no member has activated it "
                         "yet: wait for that by kvcl_comm_sync", call);
    }
    if (recover->busy) {
        return kvcl_fail(KVCL_ERR_BUSY, "%s: another thread agrees on something, or shrinks, with this communicator",
                         call);
    }
    (void)list_failed(room, comm, NULL, 0, recover->n_acked, &value.acked);
    add_empty(room, &recover->agree.group, &value.acked);
    recover->busy    = true;
    recover->done    = false;
    recover->awaited = kvcl_agree_next(&recover->agree);
    at               = kvcl_recover_begin(recover);
    (void)kvcl_agree_give(&recover->agree, &value, at);
    kvcl_recover_take_unlike(recover);
    *recover_p = recover;
    return KVCL_OK;
}

/* Lock held. */
static void read_ranks(const struct kvcl_comm *comm, outcome_t *out)
{
    uint32_t slot;
    int      i;

    kvcl_assert_locked(comm->ctx);
    out->comm_id = comm->id;
    out->missing = -1;
    for (i = 0; i < comm->size; ++i) {
        slot = kvcl_recover_slot(comm, i);
        if (kvcl_rankset_has(&out->value.members, slot)) {
            out->slots[out->n++] = (int)slot;
        } else if ((out->missing < 0) && !kvcl_rankset_has(&out->value.acked, slot)) {
            out->missing = i;
        }
    }
}

/* Lock held. */
static kvcl_status_t end(kvcl_member_room_t *room, kvcl_recover_t *recover, uint32_t number, const char *call,
                         outcome_t *out)
{
    const bool quorum = !room->started || kvcl_views_has_quorum(&room->views);

    kvcl_assert_locked(room->ctx);
    recover->busy = false;
    if (recover->comm == NULL) {
        return kvcl_fail(KVCL_ERR_CANCELED, "%s: another thread has freed the communicator meanwhile", call);
    }
    if (!recover->done) {
        return room->excluded
                   ? kvcl_fail(KVCL_ERR_STALE, "%s: the other ranks have excluded this one", call)
                   : kvcl_fail(quorum ? KVCL_ERR_TIMED_OUT : KVCL_ERR_NO_QUORUM, quorum
                               ? "%s: not all ranks that are left have called it in the time given: all call it, and "
                                 "collectives of the communicator, in the same order"
                               : "%s: this rank reaches too few others to decide anything", call);
    }
    kvcl_recover_end(recover);
    if (recover->value.call != number) {
        return kvcl_recover_unlike_fail(recover, call);
    }
    out->round = recover->awaited;
    out->value = recover->value;
    read_ranks(recover->comm, out);
    return KVCL_OK;
}

static kvcl_status_t agree(kvcl_comm_h comm, uint32_t number, uint64_t flags, uint64_t timeout_ns, const char *call,
                           outcome_t *out)
{
    kvcl_member_room_t *room;
    kvcl_recover_t     *recover = NULL;
    kvcl_status_t      status   = kvcl_recover_check(comm, call, &room);
    kvcl_context_h     ctx;
    uint64_t           deadline_ns;

    if (status != KVCL_OK) {
        return status;
    }
    ctx = out->ctx = comm->ctx;
    if (kvcl_callback_inside(ctx)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: it would block in a callback of the context", call);
    }
    status = kvcl_call_timeout(ctx, timeout_ns, call, &timeout_ns);
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_deadline_after(timeout_ns);
    kvcl_lock(ctx);
    status = begin(room, comm, number, flags, call, &recover);
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        return status;
    }
    (void)kvcl_engine_wait(ctx, is_over, recover, deadline_ns);
    kvcl_lock(ctx);
    status = end(room, recover, number, call, out);
    kvcl_unlock(ctx);
    return status;
}

kvcl_status_t kvcl_comm_agree(kvcl_comm_h comm, uint64_t *flags, uint64_t timeout_ns)
{
    static const char call[] = "kvcl_comm_agree";
    outcome_t         out    = {.n = 0};
    kvcl_status_t     status;

    if (flags == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: flags is NULL", call);
    }
    status = agree(comm, KVCL_RECOVER_AGREE, *flags, timeout_ns, call, &out);
    if (status != KVCL_OK) {
        return status;
    }
    *flags = out.value.flags;
    return (out.missing < 0) ? KVCL_OK
                             : kvcl_fail(KVCL_ERR_RANK_FAILED, "%s: all have agreed; rank %d has failed, and not all "
                                         "have acknowledged that", call, out.missing);
}

/* This rank among those that are left; -1: it is none of them. */
static int own_rank(const outcome_t *out)
{
    const int me = (int)kvcl_member_room(out->ctx)->me;
    int       i;

    for (i = 0; (i < out->n) && (out->slots[i] != me); ++i) {
    }
    return (i < out->n) ? i : -1;
}

/* Its id is that of the round: not the count of communicators that this rank has made over the same ranks, since a rank
 * whose earlier shrink ended with an error has made one less. */
static kvcl_status_t make_shrunk(const outcome_t *out, int rank, const char *call, kvcl_comm_h *shrunk_p)
{
    uint64_t       seed   = out->comm_id ^ (out->round * UINT64_C(0x9e3779b97f4a7c15));
    kvcl_recover_t *recover;
    int            *world = malloc((size_t)out->n * sizeof(*world)), i;
    kvcl_status_t  status = (world != NULL)
                               ? kvcl_comm_make(out->ctx, 0, rank, out->n, shrunk_p)
                               : kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %d ranks", call, out->n);

    if (status != KVCL_OK) {
        free(world);
        return status;
    }
    for (i = 0; i < out->n; ++i) {
        world[i] = out->slots[i];
    }
    kvcl_lock(out->ctx);
    (*shrunk_p)->world = world;
    kvcl_comm_set_id(*shrunk_p, kvcl_splitmix64(&seed) | 2); /* as kvcl_comm_new_id */
    recover = kvcl_recover_of(kvcl_member_room(out->ctx), *shrunk_p);
    if (recover != NULL) { /* else its first agreement makes it */
        kvcl_recover_start(recover);
    }
    kvcl_unlock(out->ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_shrink(kvcl_comm_h comm, uint64_t timeout_ns, kvcl_comm_h *shrunk_p)
{
    static const char call[] = "kvcl_comm_shrink";
    outcome_t         out    = {.n = 0};
    kvcl_status_t     status;
    int               rank;

    if (shrunk_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: shrunk_p is NULL", call);
    }
    status = agree(comm, KVCL_RECOVER_SHRINK, 0, timeout_ns, call, &out);
    if (status != KVCL_OK) {
        return status;
    }
    rank = own_rank(&out);
    return (rank >= 0) ? make_shrunk(&out, rank, call, shrunk_p)
                       : kvcl_fail(KVCL_ERR_STALE, "%s: the other ranks have excluded this one", call);
}
