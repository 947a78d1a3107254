/*
 * Revoked communicators: see revokes.h.
 */
#include "config.h"
#include "view/revokes.h"

#include <string.h>

void kvcl_revokes_init(kvcl_revokes_t *revokes, uint32_t me, const kvcl_revokes_ops_t *ops, void *arg)
{
    memset(revokes, 0, sizeof(*revokes));
    revokes->me  = me;
    revokes->ops = ops;
    revokes->arg = arg;
}

static unsigned kept(const kvcl_revokes_t *revokes)
{
    return (revokes->n < KVCL_REVOKES_MAX) ? revokes->n : KVCL_REVOKES_MAX;
}

bool kvcl_revokes_has(const kvcl_revokes_t *revokes, uint64_t comm)
{
    unsigned i;

    for (i = 0; i < kept(revokes); ++i) {
        if (revokes->comms[i] == comm) {
            return true;
        }
    }
    return false;
}

static bool was_forgotten(const kvcl_revokes_t *revokes, uint64_t comm)
{
    unsigned i;

    for (i = 0; (i < KVCL_REVOKES_PAST) && (revokes->past[i] != 0); ++i) {
        if (revokes->past[i] == comm) {
            return true;
        }
    }
    return false;
}

static void tell(kvcl_revokes_t *revokes, unsigned i)
{
    kvcl_revoked_t       *revoked = &revokes->ring[i];
    const kvcl_rankset_t untold   = revoked->untold;
    uint32_t             slot;

    KVCL_RANKSET_EACH(&untold, slot) {
        if (revokes->ops->tell(revokes->arg, slot, revokes->comms[i], &revoked->members)) {
            kvcl_rankset_del(&revoked->untold, slot);
        }
    }
}

bool kvcl_revokes_take(kvcl_revokes_t *revokes, uint64_t comm, const kvcl_rankset_t *members, uint32_t from)
{
    const unsigned at       = revokes->n % KVCL_REVOKES_MAX;
    kvcl_revoked_t *revoked = &revokes->ring[at];

    if (kvcl_revokes_has(revokes, comm) || was_forgotten(revokes, comm)) {
        return false;
    }
    if (revokes->comms[at] != 0) {
        revokes->past[revokes->n_past++ % KVCL_REVOKES_PAST] = revokes->comms[at];
    }
    /* Of 2 * KVCL_REVOKES_MAX the count begins at the ring's size again, never below it. */
    revokes->n = (revokes->n + 1 == 2 * KVCL_REVOKES_MAX) ? KVCL_REVOKES_MAX : revokes->n + 1;
    *revoked   = (kvcl_revoked_t){.members = *members, .untold = *members};
    revokes->comms[at] = comm;
    kvcl_rankset_del(&revoked->untold, revokes->me);
    if (from != KVCL_SLOT_NONE) {
        kvcl_rankset_del(&revoked->untold, from);
    }
    tell(revokes, at);
    return true;
}

void kvcl_revokes_again(kvcl_revokes_t *revokes)
{
    unsigned i;

    for (i = 0; i < kept(revokes); ++i) {
        tell(revokes, i);
    }
}

void kvcl_revokes_lost(kvcl_revokes_t *revokes, uint32_t slot)
{
    unsigned i;

    for (i = 0; i < kept(revokes); ++i) {
        if ((slot != revokes->me) && kvcl_rankset_has(&revokes->ring[i].members, slot)) {
            kvcl_rankset_add(&revokes->ring[i].untold, slot);
        }
    }
}

bool kvcl_revokes_unpack(const void *data, size_t len, uint32_t n, uint32_t from, uint32_t me, kvcl_rankset_t *members)
{
    uint32_t slot;

    if (len != sizeof(*members)) {
        return false;
    }
    memcpy(members, data, sizeof(*members));
    KVCL_RANKSET_EACH(members, slot) {
        if (slot >= n) {
            return false;
        }
    }
    return (from != me) && kvcl_rankset_has(members, from) && kvcl_rankset_has(members, me);
}
