/*
 * The slots of a job: the ranks of its world, which are never renumbered. A job that starts with n processes has them
 * in slots 0 to n - 1; more slots (KVCL_SLOTS) have no process until one joins (src/member). A process that joins
 * takes a free slot, or that of one that has ended: it is another peer then, in all communicators that have the slot.
 *
 * Collectives are numbered anew in a communicator into which a process has come: the one that has come does not know
 * how many there have been. The numbering's name is a hash of the processes in the communicator's slots (comm->epoch),
 * so all that see the same processes have the same one.
 *
 * Locks: the engine lock guards all but n, unless a function says otherwise.
 */
#ifndef KVCL_SLOTS_RANK_SLOTS_H
#define KVCL_SLOTS_RANK_SLOTS_H

#include "core/peer.h"

#include <stdbool.h>

struct kvcl_comm;

typedef struct kvcl_rank_slot {
    kvcl_peer_t *peer;       /* of a process that has come; NULL: the one that boot knows, or nobody */
    uint64_t    incarnation; /* of the member in it, as views name it; 0: none, or not known */
    bool        come;        /* a process has joined in it, perhaps this one */
} kvcl_rank_slot_t;

typedef struct kvcl_rank_slots {
    int         n;
    _Atomic bool quiet; /* this process joins, and is no member yet: it has nothing to do with other ranks */
    kvcl_rank_slot_t *v;
} kvcl_rank_slots_t;

/** No lock held, in kvcl_init; boot is open. KVCL_ERR_INVALID_PARAM (KVCL_SLOTS), KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_rank_slots_open(struct kvcl_context *ctx) KVCL_MUST_CHECK;
void          kvcl_rank_slots_close(struct kvcl_context *ctx);

/**
 * The packed address of the process in a slot: the one that boot knows, or of the peer that has come. It stays valid.
 * The boot lock is held, the engine lock is not. KVCL_ERR_RANK_FAILED: nobody has the slot; or as kvcl_boot_get().
 */
kvcl_status_t kvcl_rank_slot_address(struct kvcl_context *ctx, int slot, const void **address_p, size_t *len_p)
    KVCL_MUST_CHECK;

/** No lock held. Has or had each slot of the communicator a process? KVCL_ERR_RANK_FAILED: not that; or as
 * kvcl_boot_get(). */
kvcl_status_t kvcl_rank_slots_check(struct kvcl_comm *comm) KVCL_MUST_CHECK;

/** Lock held. A process has come into the slot; peer NULL: this one. */
void kvcl_rank_slot_come(struct kvcl_context *ctx, int slot, kvcl_peer_t *peer);

/** Lock held. Takes the processes that are in the slots now, by slot; in the communicators that have a slot of renewed
 * (one bool each) the numbering begins anew. */
void kvcl_rank_slots_view(struct kvcl_context *ctx, const uint64_t *incarnations, const bool *renewed);

/** Lock held. The part of a communicator's id that comes from the processes in these slots; 0: none has joined. */
uint64_t kvcl_rank_slots_epoch(struct kvcl_context *ctx, const int *slots, int n);

#endif
