/*
 * Shared by the files of this room. Engine lock held everywhere.
 */
#ifndef KVCL_LANE_LANE_IMPL_H
#define KVCL_LANE_LANE_IMPL_H

#include "base/list.h"
#include "lane/lane.h"

#include <stddef.h>

typedef enum { KVCL_LANE_IN, KVCL_LANE_OUT } kvcl_lane_kind_t;

typedef enum { KVCL_LANE_OPENING, KVCL_LANE_OPEN, KVCL_LANE_LOST } kvcl_lane_state_t;

enum { KVCL_LANE_DROP = 64 * 1024 };

/* An END frame that waits to be sent. */
typedef struct kvcl_lane_note {
    kvcl_list_t       link;
    size_t            len;
    kvcl_lane_frame_t frame;
    unsigned char     payload[];
} kvcl_lane_note_t;
_Static_assert(offsetof(kvcl_lane_note_t, payload) == offsetof(kvcl_lane_note_t, frame) + sizeof(kvcl_lane_frame_t),
               "the two are sent as one");

struct kvcl_lane {
    kvcl_lane_kind_t    kind;
    kvcl_lane_state_t   state;
    kvcl_xport_stream_t *stream;  /* NULL: LOST */
    kvcl_context_h      ctx;
    kvcl_peer_t         *peer;
    kvcl_list_t         link;     /* room's lanes */
    bool                ready;    /* the stream is readable (in) or writable (out) */
    kvcl_lane_frame_t   frame;    /* in: being received; out: being sent */
    uint32_t            head;     /* in: bytes of frame received */
    uint32_t            at;       /* in: bytes of its payload received */
    /* in */
    kvcl_lane_frame_t   next;     /* the next frame's head, received with the end of frame */
    unsigned char       *payload; /* of an END frame */
    bool                placing;  /* the bytes being received have a destination of place() */
    /* out */
    struct iovec        iov[KVCL_LANE_IOVS + 1]; /* [0]: the frame's head */
    int                 first, end; /* of iov: the pieces not sent yet */
    void                (*sent)(void *arg);
    void                *arg;
    uint32_t            zeros;    /* to follow in place of an abandoned frame's bytes */
    kvcl_list_t         notes;
    size_t              note_at;  /* bytes of the first note that were sent */
};

typedef struct kvcl_lane_room {
    kvcl_list_t            lanes;
    const kvcl_lane_user_t *user;    /* kvcl_lane_register() */
    bool                   any_lost;
    unsigned               readable; /* lanes to read from that are `ready` */
    unsigned char          dropped[KVCL_LANE_DROP]; /* destination of bytes that no transfer waits for */
} kvcl_lane_room_t;

static inline kvcl_lane_room_t *kvcl_lane_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_LANE];
}

/* lane.c */
void         kvcl_lane_set_ready(kvcl_lane_t *lane, bool ready);
/* Takes the stream, but for NULL: no memory. */
kvcl_lane_t *kvcl_lane_new(kvcl_peer_t *peer, kvcl_lane_kind_t kind, kvcl_xport_stream_t *stream);
void         kvcl_lane_bury(kvcl_lane_room_t *room); /* free lost lanes; no user refers to them */
/* lane_in.c, lane_out.c: receive, send; returns the number of events */
unsigned     kvcl_lane_take(kvcl_lane_t *lane);
unsigned     kvcl_lane_push(kvcl_lane_t *lane);
void         kvcl_lane_out_drop(kvcl_lane_t *lane);

#endif
