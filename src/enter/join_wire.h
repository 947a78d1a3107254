/*
 * What a process that wants to join a running job asks at a member's port, and what it is told: bytes both ways, over a
 * connection that has proven the job's secret (sock/sock_port.h). Pure.
 *
 * A question has KVCL_JOIN_QUESTION bytes: magic, wire version, the slot that is wanted (-1: any), 0.
 * An answer: status, slot, slots of the job, five times of its views in ns (beat, suspect, dead, lease, warm), how many
 * members, and for each its slot, the length of its packed address, and the address. Of a refusal: no members.
 */
#ifndef KVCL_BOOT_JOIN_WIRE_H
#define KVCL_BOOT_JOIN_WIRE_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

enum {
    KVCL_JOIN_QUESTION    = 16,
    KVCL_JOIN_SLOTS_MAX   = 1024,
    KVCL_JOIN_ADDRESS_MAX = 8192,
    KVCL_JOIN_ANSWER_MAX  = 64 + (KVCL_JOIN_SLOTS_MAX * (8 + KVCL_JOIN_ADDRESS_MAX)),
    KVCL_JOIN_TIMES       = 5, /* KVCL_BEAT, KVCL_SUSPECT, KVCL_DEAD, KVCL_LEASE, KVCL_WARM */
    KVCL_JOIN_TIME_DEAD   = 2
};

/* The id of all ports where one may join: 16 bytes. */
extern const uint8_t kvcl_join_id[16];

typedef struct kvcl_join_member {
    uint32_t      slot;
    uint32_t      len;
    const uint8_t *address; /* packed; of the buffer that was read */
} kvcl_join_member_t;

typedef struct kvcl_join_answer {
    kvcl_status_t      status; /* KVCL_OK; KVCL_ERR_NO_SPACE, _BUSY, _VERSION, _UNKNOWN_RANK, or KVCL_INPROGRESS: ask
                                * again */
    uint32_t           slot, n_slots;
    uint64_t           times_ns[KVCL_JOIN_TIMES];
    uint32_t           n_members;
    kvcl_join_member_t members[KVCL_JOIN_SLOTS_MAX]; /* by rising slot */
} kvcl_join_answer_t;

void kvcl_join_question_pack(int32_t slot, uint8_t buf[KVCL_JOIN_QUESTION], uint32_t version);
/** @return KVCL_OK, KVCL_ERR_PROTOCOL, KVCL_ERR_VERSION (another wire version). */
kvcl_status_t kvcl_join_question_unpack(const uint8_t buf[KVCL_JOIN_QUESTION], uint32_t version, int32_t *slot_p)
    KVCL_MUST_CHECK;

/** @return its bytes, at most KVCL_JOIN_ANSWER_MAX; 0: cap is too small. */
size_t        kvcl_join_answer_pack(const kvcl_join_answer_t *answer, void *buf, size_t cap);
/** @return KVCL_OK, KVCL_ERR_PROTOCOL. Addresses are not looked into. */
kvcl_status_t kvcl_join_answer_unpack(const void *buf, size_t len, kvcl_join_answer_t *answer) KVCL_MUST_CHECK;

#endif
