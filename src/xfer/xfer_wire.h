/*
 * The wire format of the transfer room's messages: pull, put, send (wire/wire.h).
 *
 * Only pulls move bytes by message: the puller requests a stream of bytes from their owner; a put and a send only
 * announce, and the other side pulls. The owner sends DATA frames, at most `window` frames beyond those that CREDIT
 * acknowledged, and ends with a DATA that has KVCL_DATA_LAST (success) or with PULL_DONE. DATA frames may overtake each
 * other (KVCL_XPORT_UNORDERED), and PULL_DONE may overtake them: after a successful end the puller waits for the rest.
 */
#ifndef KVCL_XFER_WIRE_H
#define KVCL_XFER_WIRE_H

#include "kv/side.h"
#include "wire/wire.h"

enum { KVCL_SERVE_SMALL = 8 * 1024 }; /* bytes that an owner answers at once, in one message */

enum { KVCL_FROM_CACHE = 1, KVCL_FROM_REGION = 2, KVCL_FROM_OFFER = 3, KVCL_FROM_PIECES = 4 /* of a region */ };

enum {
    KVCL_PULL_GENS       = 1, /* msg.flags: the payload has a generation for each block, to be checked */
    KVCL_PULL_BACKGROUND = 2, /* of the lower class */
    KVCL_PULL_LANE       = 4  /* the puller reads its lane: bytes and end may use it */
};

typedef struct kvcl_msg_pull {
    kvcl_msg_t msg;       /* op: the puller's */
    uint8_t    from;      /* KVCL_FROM_* */
    uint8_t    reserved[3];
    uint32_t   order;     /* of the stream: KVCL_STREAM_* */
    uint32_t   window;
    uint32_t   target;    /* cache id, or region id */
    uint64_t   key;       /* region: the right to read; offer: its op */
    uint64_t   offset;    /* region */
    uint64_t   len;       /* bytes expected */
    uint32_t   layers[2];
    uint32_t   heads[2];
    uint64_t   n_blocks;  /* payload: n u32 block ids, then n u32 generations with KVCL_PULL_GENS; pieces: n
                             kvcl_wire_piece_t */
    uint32_t   tokens[2];
    uint32_t   unit;      /* cache, offer: of the stream, in tokens (kvcl_sel_unit); 0: the owner's own */
    uint32_t   reserved2;
} kvcl_msg_pull_t;
_Static_assert(sizeof(kvcl_msg_pull_t) == 112, "wire format");

enum { KVCL_DATA_LAST = 1 };

typedef struct kvcl_msg_data {
    kvcl_msg_t msg;       /* op: the puller's; flags: KVCL_DATA_LAST */
    uint64_t   offset;    /* of the payload in the stream */
} kvcl_msg_data_t;

typedef struct kvcl_msg_pull_done {
    kvcl_msg_t msg;       /* op: the puller's */
    int32_t    status;    /* KVCL_OK: every byte was sent, but see the payload: n i32, a status for each block */
    uint32_t   n;
} kvcl_msg_pull_done_t;

typedef struct kvcl_msg_credit {
    kvcl_msg_t msg;       /* CREDIT, PULL_STOP; op: the puller's */
    uint32_t   frames;
    uint32_t   reserved;
} kvcl_msg_credit_t;

typedef struct kvcl_msg_put {
    kvcl_msg_t msg;       /* op: the putter's offer; flags: KVCL_PUT_* */
    uint32_t   target;    /* cache id, or region id */
    uint32_t   order;
    uint64_t   key;       /* region: the right to write */
    uint64_t   offset;
    uint64_t   len;       /* bytes in all */
    uint32_t   layers[2];
    uint32_t   heads[2];
    uint64_t   n_blocks;
    uint32_t   signal_region;
    uint32_t   unit;      /* of the bytes, in tokens: a divisor of the target's own; 0: that one */
    uint64_t   signal_key;
    uint64_t   signal_offset;
    uint64_t   signal_add;
    uint64_t   offer;     /* to pull from, without KVCL_PUT_EAGER. Payload: the n_blocks block ids (kvcl_wire_piece_t
                             with KVCL_PUT_PIECES), then, eager, the bytes */
    uint32_t   tokens[2];
} kvcl_msg_put_t;
enum { KVCL_PUT_CACHE = 1, KVCL_PUT_EAGER = 2, KVCL_PUT_SIGNAL = 4, KVCL_PUT_BACKGROUND = 8, KVCL_PUT_PIECES = 16 };

typedef struct kvcl_msg_done { /* PUT_DONE, SEND_DONE, SIGNALED: op is the requester's */
    kvcl_msg_t msg;
    int32_t    status;
    uint32_t   reserved;
} kvcl_msg_done_t;

typedef struct kvcl_msg_signal {
    kvcl_msg_t msg;
    uint32_t   region;
    uint32_t   reserved;
    uint64_t   key;
    uint64_t   offset;
    uint64_t   add;
} kvcl_msg_signal_t;

typedef struct kvcl_msg_send {
    kvcl_msg_t   msg;     /* op: the sender's offer; flags: KVCL_SEND_* */
    uint64_t     comm;
    uint64_t     tag;
    int32_t      source;  /* the sender's rank in comm */
    uint32_t     cache;   /* with KVCL_SEND_CACHE: the sender's, which has the bytes */
    uint64_t     len;
    kvcl_token_t token;   /* what a token is; layers 0: plain bytes */
    uint64_t     offer;   /* to pull from, if not eager */
    uint64_t     revoked; /* with KVCL_SEND_CACHE: kvcl_revoked() at the sender */
    uint32_t     layers[2];
    uint32_t     heads[2];
    uint64_t     n_blocks; /* payload: eager bytes, block ids with KVCL_SEND_CACHE, kvcl_near_wire_t with _NEAR */
    uint32_t     tokens[2]; /* the range, with KVCL_SEND_CACHE */
    uint32_t     each;    /* tokens of one block */
    uint32_t     unit;    /* of the bytes, eager or offered, in tokens */
} kvcl_msg_send_t;
_Static_assert(sizeof(kvcl_msg_send_t) == sizeof(kvcl_msg_t) + 112, "wire format");
enum { KVCL_SEND_EAGER = 1, KVCL_SEND_CACHE = 2, KVCL_SEND_LAYERS = 4 /* layers.h */, KVCL_SEND_NEAR = 8 /* near.h */ };

typedef struct kvcl_msg_layers_want {
    kvcl_msg_t msg;       /* op: the send's; flags: KVCL_LAYERS_WHOLE */
    uint64_t   requester; /* the recv's op */
} kvcl_msg_layers_want_t;
enum { KVCL_LAYERS_WHOLE = 1 }; /* all layers in one group */

typedef struct kvcl_msg_layers {
    kvcl_msg_t msg;       /* op: the recv's */
    int32_t    status;    /* an error: the send has ended or failed */
    uint32_t   n;         /* payload: n kvcl_layer_group_t */
    uint64_t   revoked;   /* kvcl_revoked() at the sender */
} kvcl_msg_layers_t;
_Static_assert(sizeof(kvcl_msg_layers_t) == 48, "wire format");

typedef struct kvcl_layer_group {
    uint32_t   first, end; /* counted from the first selected layer */
    uint64_t   offer;
} kvcl_layer_group_t;
_Static_assert(sizeof(kvcl_layer_group_t) == 16, "wire format");

#endif
