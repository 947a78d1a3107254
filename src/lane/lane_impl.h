/*
 * Shared by the files of this room. Engine lock held everywhere.
 */
#ifndef KVCL_LANE_LANE_IMPL_H
#define KVCL_LANE_LANE_IMPL_H

#include "base/list.h"
#include "lane/lane.h"

#include <stddef.h>

/* What epoll's data points at. */
typedef enum { KVCL_LANE_LISTENER, KVCL_LANE_GUEST, KVCL_LANE_IN, KVCL_LANE_OUT } kvcl_lane_kind_t;

typedef enum { KVCL_LANE_REQUESTED, KVCL_LANE_CONNECTING, KVCL_LANE_OPEN, KVCL_LANE_LOST } kvcl_lane_state_t;

enum { KVCL_LANE_KEY = 16, KVCL_LANE_GUESTS = 32, KVCL_LANE_DROP = 64 * 1024 };

/* The first bytes of a connection. */
typedef struct kvcl_lane_hello {
    uint32_t magic;
    uint16_t version;  /* KVCL_WIRE_VERSION */
    uint16_t reserved;
    uint32_t peer;     /* the sender's index at the receiver */
    uint32_t reserved2;
    uint8_t  key[KVCL_LANE_KEY];
} kvcl_lane_hello_t;
_Static_assert(sizeof(kvcl_lane_hello_t) == 32, "wire format");

typedef struct kvcl_msg_lane_at {
    kvcl_msg_t msg;
    uint16_t   port;   /* 0: no lanes here */
    uint16_t   family; /* 4 or 6 */
    uint32_t   reserved;
    uint8_t    addr[16];
    uint8_t    key[KVCL_LANE_KEY];
} kvcl_msg_lane_at_t;
_Static_assert(sizeof(kvcl_msg_lane_at_t) == 72, "wire format");

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
    kvcl_lane_kind_t  kind;     /* first: what epoll's data points at */
    int               fd;
    kvcl_lane_state_t state;
    kvcl_context_h    ctx;
    kvcl_peer_t       *peer;
    kvcl_list_t       link;     /* room's lanes */
    bool              hup;      /* in: the peer has closed its end; no other event reports that */
    bool              ready;    /* by the last event the socket can be read (in) or written (out) */
    kvcl_lane_frame_t frame;    /* in: being received; out: being sent */
    uint32_t          head;     /* in: bytes of frame received */
    uint32_t          at;       /* in: bytes of its payload received */
    /* in */
    uint8_t           key[KVCL_LANE_KEY];
    kvcl_lane_frame_t next;     /* the next frame's head, received with the end of frame */
    unsigned char     *payload; /* of an END frame */
    bool              placing;  /* the bytes being received have a destination of place() */
    /* out */
    struct iovec      iov[KVCL_LANE_IOVS + 1]; /* [0]: the frame's head */
    int               first, end; /* of iov: the pieces not sent yet */
    void              (*sent)(void *arg);
    void              *arg;
    uint32_t          zeros;    /* to follow in place of an abandoned frame's bytes */
    kvcl_list_t       notes;
    size_t            note_at;  /* bytes of the first note that were sent */
};

typedef struct kvcl_lane_guest {
    kvcl_lane_kind_t  kind;
    int               fd;
    uint32_t          got;
    uint64_t          deadline_ns;
    kvcl_lane_hello_t hello;
} kvcl_lane_guest_t;

typedef struct kvcl_lane_room {
    kvcl_lane_kind_t       kind;    /* LISTENER */
    int                    epfd;    /* -1: no lanes in this context */
    int                    listen_fd;
    bool                   listening;
    bool                   cannot_listen;
    kvcl_msg_lane_at_t     where;   /* port, family, addr */
    kvcl_list_t            lanes;
    const kvcl_lane_user_t *user;   /* kvcl_lane_register() */
    bool                   any_lost;
    bool                   knocked; /* connections wait to be accepted */
    unsigned               readable; /* lanes to read from that are `ready` */
    kvcl_lane_guest_t      *guests[KVCL_LANE_GUESTS];
    unsigned               n_guests;
    unsigned char          dropped[KVCL_LANE_DROP]; /* destination of bytes that no transfer waits for */
} kvcl_lane_room_t;

static inline kvcl_lane_room_t *kvcl_lane_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_LANE];
}

/* lane.c */
void         kvcl_lane_set_ready(kvcl_lane_t *lane, bool ready);
kvcl_lane_t *kvcl_lane_new(kvcl_context_h ctx, kvcl_peer_t *peer, kvcl_lane_kind_t kind, int fd);
void         kvcl_lane_bury(kvcl_lane_room_t *room); /* free lost lanes; no user refers to them */
/* lane_sock.c */
bool         kvcl_lane_watch(kvcl_lane_room_t *room, int fd, void *kind);
void         kvcl_lane_hang_up(kvcl_lane_room_t *room, int fd);
bool         kvcl_lane_listen(kvcl_context_h ctx);
int          kvcl_lane_connect(const kvcl_msg_lane_at_t *at);
bool         kvcl_lane_connected(kvcl_lane_t *lane); /* the socket became writable: send the session and the key */
void         kvcl_lane_accept(kvcl_context_h ctx);
void         kvcl_lane_guest_speaks(kvcl_context_h ctx, kvcl_lane_guest_t *guest);
void         kvcl_lane_guests_expire(kvcl_context_h ctx, bool all);
/* lane_in.c, lane_out.c: receive, send; returns the number of events */
unsigned     kvcl_lane_take(kvcl_lane_t *lane);
unsigned     kvcl_lane_push(kvcl_lane_t *lane);
void         kvcl_lane_out_drop(kvcl_lane_t *lane);

#endif
