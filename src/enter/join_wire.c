/*
 * What is asked and answered by a process that joins: see join_wire.h.
 */
#include "config.h"
#include "enter/join_wire.h"
#include "base/error.h"
#include "base/wirebuf.h"

#include <stdbool.h>

enum { MAGIC = 0x4e4a564b }; /* "KVJN" in memory */

const uint8_t kvcl_join_id[16] = "kvcl join";

void kvcl_join_question_pack(int32_t slot, uint8_t buf[KVCL_JOIN_QUESTION], uint32_t version)
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, buf, KVCL_JOIN_QUESTION);
    kvcl_wr_u32(&wr, MAGIC);
    kvcl_wr_u32(&wr, version);
    kvcl_wr_u32(&wr, (uint32_t)slot);
    kvcl_wr_u32(&wr, 0);
}

kvcl_status_t kvcl_join_question_unpack(const uint8_t buf[KVCL_JOIN_QUESTION], uint32_t version, int32_t *slot_p)
{
    uint32_t  magic, theirs, slot, zero;
    kvcl_rd_t rd;

    kvcl_rd_init(&rd, buf, KVCL_JOIN_QUESTION);
    magic  = kvcl_rd_u32(&rd);
    theirs = kvcl_rd_u32(&rd);
    slot   = kvcl_rd_u32(&rd);
    zero   = kvcl_rd_u32(&rd);
    if (magic != MAGIC) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "what asks to join is no process of KVCL");
    }
    if (theirs != version) {
        return kvcl_fail(KVCL_ERR_VERSION, "a process with wire version %u asks to join, this library has %u",
                         (unsigned)theirs, (unsigned)version);
    }
    if ((zero != 0) || ((slot >= KVCL_JOIN_SLOTS_MAX) && (slot != UINT32_MAX))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a process asks to join in slot %u", (unsigned)slot);
    }
    *slot_p = (int32_t)slot;
    return KVCL_OK;
}

size_t kvcl_join_answer_pack(const kvcl_join_answer_t *answer, void *buf, size_t cap)
{
    kvcl_wr_t wr;
    uint32_t  i;

    kvcl_wr_init(&wr, buf, cap);
    kvcl_wr_u32(&wr, (uint32_t)answer->status);
    kvcl_wr_u32(&wr, answer->slot);
    kvcl_wr_u32(&wr, answer->n_slots);
    for (i = 0; i < KVCL_JOIN_TIMES; ++i) {
        kvcl_wr_u64(&wr, answer->times_ns[i]);
    }
    kvcl_wr_u32(&wr, answer->n_members);
    for (i = 0; i < answer->n_members; ++i) {
        kvcl_wr_u32(&wr, answer->members[i].slot);
        kvcl_wr_u32(&wr, answer->members[i].len);
        kvcl_wr_bytes(&wr, answer->members[i].address, answer->members[i].len);
    }
    return kvcl_wr_ok(&wr) ? kvcl_wr_len(&wr) : 0;
}

/* The reader fails where a value is not one that a member writes. */
static void must(kvcl_rd_t *rd, bool truth)
{
    rd->failed = rd->failed || !truth;
}

static void get_members(kvcl_rd_t *rd, kvcl_join_answer_t *answer)
{
    kvcl_join_member_t *member;
    uint32_t           i;

    for (i = 0; (i < answer->n_members) && kvcl_rd_ok(rd); ++i) {
        member       = &answer->members[i];
        member->slot = kvcl_rd_u32(rd);
        member->len  = kvcl_rd_u32(rd);
        must(rd, (member->slot < answer->n_slots) && (member->slot != answer->slot) && (member->len > 0) &&
                     (member->len <= KVCL_JOIN_ADDRESS_MAX));
        must(rd, (i == 0) || (member->slot > answer->members[i - 1].slot));
        member->address = kvcl_rd_ok(rd) ? kvcl_rd_bytes(rd, member->len) : NULL;
    }
}

static bool is_answer(kvcl_status_t status)
{
    return (status == KVCL_OK) || (status == KVCL_ERR_NO_SPACE) || (status == KVCL_ERR_BUSY) ||
           (status == KVCL_ERR_VERSION) || (status == KVCL_ERR_UNKNOWN_RANK) || (status == KVCL_INPROGRESS);
}

kvcl_status_t kvcl_join_answer_unpack(const void *buf, size_t len, kvcl_join_answer_t *answer)
{
    kvcl_rd_t rd;
    uint32_t  i;

    kvcl_rd_init(&rd, buf, len);
    answer->status  = (kvcl_status_t)(int32_t)kvcl_rd_u32(&rd);
    answer->slot    = kvcl_rd_u32(&rd);
    answer->n_slots = kvcl_rd_u32(&rd);
    for (i = 0; i < KVCL_JOIN_TIMES; ++i) {
        answer->times_ns[i] = kvcl_rd_u64(&rd);
    }
    answer->n_members = kvcl_rd_u32(&rd);
    must(&rd, is_answer(answer->status) && (answer->n_slots <= KVCL_JOIN_SLOTS_MAX) &&
                  (answer->n_members <= KVCL_JOIN_SLOTS_MAX));
    must(&rd, (answer->status == KVCL_OK) ? ((answer->slot < answer->n_slots) && (answer->n_members > 0))
                                          : (answer->n_members == 0));
    if (kvcl_rd_ok(&rd)) {
        get_members(&rd, answer);
    }
    return kvcl_rd_done(&rd) ? KVCL_OK
                             : kvcl_fail(KVCL_ERR_PROTOCOL, "an answer to a process that joins is cut off, too long, "
                                         "or has a value that no member writes");
}
