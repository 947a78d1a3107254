/*
 * The detector of one rank: who is silent, and who is proven to have ended. Pure: time and what is heard come in.
 *
 * Silence: no message of a member for some time, in which this rank was awake: a gap between two ticks shows nothing
 * about others (A. Dadgar et al., "Lifeguard", DSN 2018). A member is suspected after suspect_ns, and is silent after
 * dead_ns. Silence ends with the next message. While a member says that it warms up (compiles, loads, captures), it is
 * silent after warm_ns only.
 *
 * Proof: the kernel's word that the process has ended. It is final, at once, and no phase delays it. Silence, however
 * long, is never proof.
 */
#ifndef KVCL_VIEW_DETECT_H
#define KVCL_VIEW_DETECT_H

#include "view/rankset.h"

typedef struct kvcl_detect_times {
    uint64_t beat_ns;    /* between two messages of a member, at most */
    uint64_t suspect_ns; /* of silence */
    uint64_t dead_ns;    /* of silence, at least three beats */
    uint64_t warm_ns;    /* the same for a member that warms up */
} kvcl_detect_times_t;

typedef struct kvcl_detect {
    uint32_t            me;
    kvcl_detect_times_t times;
    kvcl_rankset_t      members;
    kvcl_rankset_t      proven;   /* members that have ended */
    kvcl_rankset_t      suspects; /* not heard for suspect_ns */
    kvcl_rankset_t      silent;   /* not heard for dead_ns, and not proven; they are suspects, too */
    kvcl_rankset_t      warm;     /* members that warm up */
    uint64_t            ticked_ns;
    uint64_t            heard_ns[KVCL_SLOTS_MAX]; /* when a message came last, less the time that this rank slept */
} kvcl_detect_t;

/** What is wrong with these times, as a sentence; NULL: nothing. */
const char *kvcl_detect_times_wrong(const kvcl_detect_times_t *times);

/** No members yet. */
void kvcl_detect_init(kvcl_detect_t *detect, uint32_t me, const kvcl_detect_times_t *times, uint64_t now_ns);

/** The members from now on. Of those in @a fresh, which are other processes than before, nothing is known. */
void kvcl_detect_members(kvcl_detect_t *detect, const kvcl_rankset_t *members, const kvcl_rankset_t *fresh,
                         uint64_t now_ns);

/** Any message of a member came. @a warm: it says that it warms up. */
void kvcl_detect_heard(kvcl_detect_t *detect, uint32_t slot, bool warm, uint64_t now_ns);

/** These have ended. @a news_p: the members among them of which that was not known. */
void kvcl_detect_prove(kvcl_detect_t *detect, const kvcl_rankset_t *ended, kvcl_rankset_t *news_p);

/** Called at least once a beat. @a suspected_p: new suspects; @a again_p: suspects that were heard again. */
void kvcl_detect_tick(kvcl_detect_t *detect, uint64_t now_ns, kvcl_rankset_t *suspected_p, kvcl_rankset_t *again_p);

/** The time of the next tick that may suspect a member, or find it silent, if none is heard meanwhile. UINT64_MAX:
 * none may. */
uint64_t kvcl_detect_due(const kvcl_detect_t *detect, uint64_t now_ns);

/** The members that are neither proven nor silent, this rank among them. */
void kvcl_detect_there(const kvcl_detect_t *detect, kvcl_rankset_t *there_p);

#endif
