/*
 * The one order of a communicator's agreements and collectives (recover.h): this rank's place in it, the collective
 * that it has called at a place where others agree, and the end of all calls at a place where they differ.
 *
 * Invariants: a place is compared with another only if both count from the same agreement, which both ranks know to
 * have ended, and if both are sure. Where a round is decided to be of different calls, all ranks that are left have
 * given to it in one view, so all of them end the collectives from that place on, and number the next ones anew, in one
 * new epoch. If a process has joined since, the view with it has done that already. Locks: the engine lock.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "coll/coll_called.h"
#include "coll/coll_order.h"
#include "member/recover.h"
#include "req/failures.h"

#include <string.h>

_Static_assert(sizeof(((kvcl_agree_name_t *)0)->words) == sizeof(kvcl_coll_called_t), "a call is the words of a name");

static kvcl_recover_place_t place_now(const kvcl_recover_t *recover)
{
    const struct kvcl_comm *comm = recover->comm;

    kvcl_assert_locked(comm->ctx);
    return (kvcl_recover_place_t){.epoch = comm->epoch, .seq = comm->coll_seq, .failed = kvcl_req_failures(),
                                  .living = recover->agree.living};
}

/* One that the view still has. */
static bool has_failed_peer(const kvcl_recover_t *recover)
{
    const struct kvcl_comm *comm = recover->comm;
    const kvcl_peer_t      *peer;
    int                    i;

    for (i = 0; i < comm->size; ++i) {
        peer = comm->peers[i];
        if ((peer != NULL) && (peer->state == KVCL_PEER_FAILED) &&
            kvcl_rankset_has(&recover->agree.living, kvcl_recover_slot(comm, i))) {
            return true;
        }
    }
    return false;
}

/* Has nothing happened here since the last agreement that could have any rank leave the order? */
static bool is_sure(const kvcl_recover_t *recover)
{
    const struct kvcl_comm *comm = recover->comm;

    return (comm != NULL) && !recover->lost && !recover->agree.lost && !atomic_load(&comm->revoked) &&
           (comm->epoch == recover->base.epoch) && (comm->coll_seq >= recover->base.seq) &&
           (kvcl_req_failures() == recover->base.failed) &&
           kvcl_rankset_equal(&recover->agree.living, &recover->base.living) && !has_failed_peer(recover);
}

void kvcl_recover_start(kvcl_recover_t *recover)
{
    const kvcl_member_room_t *room = recover->room;
    uint32_t                 slot;

    recover->base        = place_now(recover);
    recover->base.living = recover->agree.group;
    for (slot = room->n_first; slot < room->n; ++slot) { /* nobody has these before one joins */
        if (!room->started || !kvcl_rankset_has(&room->views.view.members, slot)) {
            kvcl_rankset_del(&recover->base.living, slot);
        }
    }
}

bool kvcl_recover_called(void *arg, uint64_t at, kvcl_agree_name_t *name_p)
{
    kvcl_recover_t     *recover = arg;
    kvcl_coll_called_t called;

    if (recover->busy || !is_sure(recover) || (at >= recover->comm->coll_seq - recover->base.seq) ||
        !kvcl_coll_order_called(recover->comm, recover->base.seq + at, &called)) {
        return false;
    }
    recover->here  = place_now(recover);
    recover->first = recover->base.seq + at;
    memcpy(name_p->words, &called, sizeof(called));
    kvcl_log_info("communicator %llx: this rank has called a collective where another one agrees or shrinks",
                  (unsigned long long)recover->comm->id);
    return true;
}

uint64_t kvcl_recover_begin(kvcl_recover_t *recover)
{
    const uint64_t at    = is_sure(recover) ? (recover->comm->coll_seq - recover->base.seq) : KVCL_AGREE_NOWHERE;
    const bool     again = (recover->awaited != 0) && (recover->awaited == recover->agree.round); /* a call was given */

    recover->here  = place_now(recover);
    recover->first = again ? recover->first : recover->here.seq;
    recover->lost  = true; /* until it has ended */
    return at;
}

void kvcl_recover_end(kvcl_recover_t *recover)
{
    if (recover->value.unlike != 0) {
        return; /* kvcl_recover_take_unlike has */
    }
    recover->lost        = false;
    recover->base        = recover->here;
    recover->base.living = recover->agree.group;
    kvcl_rankset_keep(&recover->base.living, &recover->value.members);
}

kvcl_agree_name_t kvcl_recover_name(uint32_t call)
{
    const kvcl_coll_called_t called = {.kind = (call == KVCL_RECOVER_AGREE) ? KVCL_COLL_CALLED_AGREE
                                                                           : KVCL_COLL_CALLED_SHRINK};
    kvcl_agree_name_t        name   = {.slot = 0};

    memcpy(name.words, &called, sizeof(called));
    return name;
}

/* The ranks are those of comm. False: a slot is of none, so the calls are not known. */
static bool read_calls(const struct kvcl_comm *comm, const kvcl_agree_value_t *value, kvcl_coll_unlike_t *unlike)
{
    unsigned i;
    int      rank, n = 0;

    for (i = 0; i < 2; ++i) {
        memcpy(&unlike->calls[i], value->names[i].words, sizeof(unlike->calls[i]));
        for (rank = 0; rank < comm->size; ++rank) {
            if (kvcl_recover_slot(comm, rank) == value->names[i].slot) {
                unlike->ranks[i] = (uint32_t)rank;
                ++n;
            }
        }
    }
    return (n == 2) && (unlike->calls[0].kind != unlike->calls[1].kind);
}

kvcl_status_t kvcl_recover_unlike_fail(const kvcl_recover_t *recover, const char *call)
{
    kvcl_coll_unlike_t unlike = {.ranks = {0}};

    return read_calls(recover->comm, &recover->value, &unlike)
               ? kvcl_coll_unlike_fail(&unlike)
               : kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: some ranks called kvcl_comm_agree, others kvcl_comm_shrink or "
                           "a collective: all call them in the same order", call);
}

void kvcl_recover_take_unlike(kvcl_recover_t *recover)
{
    kvcl_coll_unlike_t unlike = {.ranks = {0}};
    uint64_t           seed;
    bool               known;

    if ((recover->unlike == 0) || (recover->comm == NULL)) {
        return;
    }
    if (recover->here.epoch != recover->comm->epoch) {
        recover->unlike = 0;
        return; /* a process has joined, and its view has ended that numbering */
    }
    known = read_calls(recover->comm, &recover->calls, &unlike);
    seed  = recover->comm->epoch ^ (recover->unlike * UINT64_C(0x9e3779b97f4a7c15));
    kvcl_coll_order_end(recover->comm, recover->first, known ? &unlike : NULL, kvcl_splitmix64(&seed));
    recover->unlike      = 0;
    recover->lost        = false;
    recover->base        = place_now(recover);
    recover->base.living = recover->agree.group;
    kvcl_rankset_keep(&recover->base.living, &recover->calls.members);
}
