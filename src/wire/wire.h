/*
 * What travels between contexts: the header every message begins with, and the list of message types. Fields are
 * little-endian structs sent as they lie (big-endian hosts are not supported; the build says so). The first eight
 * bytes of the header never change, so that any two versions can refuse each other with a clear sentence.
 *
 * Each type's own struct, which begins with kvcl_msg_t, is in the room that handles it.
 */
#ifndef KVCL_WIRE_WIRE_H
#define KVCL_WIRE_WIRE_H

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "KVCL's wire format is little-endian and so must be the host"
#endif

enum { KVCL_WIRE_MAGIC = 0x4b56, KVCL_WIRE_VERSION = 6 };

/* X(NAME, value): values are wire format, append only. 27 and 28 were used up to version 2. */
#define KVCL_MSG_MAP(X) \
    X(HELLO, 1)         /* handshake, see peer.c */ \
    X(CHALLENGE, 2) \
    X(PROOF, 3) \
    X(WELCOME, 4) \
    X(REFUSE, 5) \
    X(BYE, 6)           /* the sender leaves; flags 1: the answer, everything sent before was read */ \
    X(BUNDLE, 7)        /* several of the others, whole: see bundle.h */ \
    X(DESCRIBE, 10)     /* a cache: its layout and memory, please */ \
    X(DESCRIPTION, 11) \
    X(SIGNAL, 12)       /* add to a counter in the sender's peer's memory */ \
    X(SIGNALED, 13) \
    X(NOTIFY, 14)       /* bytes for the receiver's program; the sender's data is there */ \
    X(NOTIFIED, 15) \
    X(PULL, 20)         /* stream these bytes to the sender */ \
    X(DATA, 21) \
    X(PULL_DONE, 22) \
    X(CREDIT, 23) \
    X(PULL_STOP, 24) \
    X(PUT, 25)          /* pull these bytes from the sender into local memory */ \
    X(PUT_DONE, 26) \
    X(SEND, 30)         /* matched by (comm, source, tag) */ \
    X(SEND_DONE, 31) \
    X(SEND_STOP, 32) \
    X(LAYERS_WANT, 33)  /* of a layer-wise send: report the ready layers */ \
    X(LAYERS, 34) \
    X(COLL, 40) \
    X(DEV_STOP, 41)     /* a collective on device memory has failed at the sender */ \
    X(CONNECT, 45)      /* inter-communicators */ \
    X(CONNECTED, 46) \
    X(DOOR, 47)         /* connections to a context that listens: see door.h */ \
    X(DIR_REQUEST, 50)  /* the store: see store_wire.h */ \
    X(DIR_ANSWER, 51) \
    X(WITHDRAW, 52) \
    X(VIEW, 53)         /* beats, and the decisions on who is a member: see member.h */ \
    X(AGREE, 54)        /* what the ranks of a communicator agree on: see recover.h */ \
    X(REVOKE, 55)       /* a communicator was revoked: see member/revoke.h */ \
    X(JOIN, 58)         /* a process that joins, and who is in which slot: see joins.h */

typedef enum kvcl_msg_type {
#define X(_name, _value) KVCL_MSG_##_name = _value,
    KVCL_MSG_MAP(X)
#undef X
    KVCL_MSG_LAST = 63
} kvcl_msg_type_t;

typedef struct kvcl_msg {
    uint16_t magic;
    uint16_t version;
    uint8_t  type;
    uint8_t  flags; /* each type's own; 0 otherwise */
    uint16_t reserved;
    uint32_t peer;  /* the sender's index in the receiver's table of peers, given in the handshake */
    uint32_t reserved2;
    uint64_t token; /* proves the handshake */
    uint64_t op;    /* an operation: the receiver's id for it in answers, the sender's in requests */
} kvcl_msg_t;
_Static_assert(sizeof(kvcl_msg_t) == 32, "wire format");

#endif
