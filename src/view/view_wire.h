/*
 * The messages of the machine as bytes. Pure.
 *
 * All fields little-endian, without padding:
 *   u8 type, u8 lease, u16 0, u32 from, u64 incarnation, number, id, stamp, echo, accepted, ballot, u32 phase,
 *   set dead, set leaving
 *   JOIN, PROMISE, ACCEPT: the change: set gone, u8 n, n times (u32 slot, u64 incarnation)
 *   PROMISE, ACCEPT: set proposers
 *   ACCEPT: set excused
 *   COMMIT: the view: u64 number, id, set members, for each member, by slot: u64 incarnation
 * A set: u8 n, n words of 64 bits; the last one is not zero. So a message has one form only.
 */
#ifndef KVCL_VIEW_VIEW_WIRE_H
#define KVCL_VIEW_VIEW_WIRE_H

#include "view/views.h"

#include <kvcl/kvcl_status.h>
#include <stddef.h>

enum {
    KVCL_VIEW_SET_MAX = 1 + (KVCL_RANKSET_WORDS * 8),
    KVCL_VIEW_MSG_MAX = 68 + (2 * KVCL_VIEW_SET_MAX) + 16 + KVCL_VIEW_SET_MAX + (KVCL_SLOTS_MAX * 8)
};

/** Fields that the type does not have are left out. @return bytes written; 0: cap is too small. */
size_t kvcl_view_msg_pack(const kvcl_view_msg_t *msg, void *buf, size_t cap);

/**
 * The bytes of a peer: what is wrong with them is said in the error's sentence. A message is refused that is not of
 * this sender, or names a slot that the job does not have, or whose view has another id than its content makes, or
 * lacks the sender.
 * @param from, incarnation  who is at the other end of the session
 * @param n  slots of the job: all that the message names are below it
 * @param [out] view  of a COMMIT; msg->view points to it. Otherwise untouched.
 * @return KVCL_OK, KVCL_ERR_PROTOCOL.
 */
kvcl_status_t kvcl_view_msg_unpack(const void *buf, size_t len, uint32_t from, uint64_t incarnation, uint32_t n,
                                   kvcl_view_msg_t *msg, kvcl_view_t *view) KVCL_MUST_CHECK;

#endif
