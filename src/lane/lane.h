/*
 * Lanes: a separate byte stream for large served transfers, beside a peer's messages, where its transport has streams
 * (xport.h). The bytes are gathered from and scattered into the blocks themselves, so no frame is packed or unpacked;
 * the stream's own window is the credit; and small messages do not queue behind large transfers.
 *
 * A lane has one direction: the puller (the in side) opens the stream to the owner (the out side). The transport has
 * proven both to each other when it is open. Until then, where it cannot be opened, and when it breaks, transfers
 * travel in messages.
 *
 * A lane carries frames: a kvcl_lane_frame_t and its bytes. This room moves them and is independent of transfers: its
 * user sets the destination of a frame's bytes (place) and is notified of arrivals (placed, notified) and of a lane's
 * end (lost). All calls are non-blocking, under the engine lock; bytes land only inside a call, so a transfer that its
 * user has removed is fenced.
 */
#ifndef KVCL_LANE_LANE_H
#define KVCL_LANE_LANE_H

#include "core/context.h"

#include <sys/uio.h>

enum { KVCL_LANE_DATA = 1, KVCL_LANE_END = 2 };
enum { KVCL_LANE_MAGIC = 0x454e414c, KVCL_LANE_FRAME_MAX = 1 << 20, KVCL_LANE_END_MAX = 1 << 26, KVCL_LANE_IOVS = 512 };

typedef struct kvcl_lane_frame {
    uint32_t magic;
    uint32_t kind;    /* KVCL_LANE_DATA, _END */
    uint64_t op;      /* the puller's */
    uint64_t offset;  /* DATA: of the bytes in the stream */
    uint32_t len;     /* bytes that follow: DATA 1 to KVCL_LANE_FRAME_MAX, END at most KVCL_LANE_END_MAX */
    int32_t  status;  /* END */
} kvcl_lane_frame_t;
_Static_assert(sizeof(kvcl_lane_frame_t) == 32, "wire format");

typedef struct kvcl_lane kvcl_lane_t;

/* The callbacks of the room above; lock held. Frames are hostile except for magic, kind and length. */
typedef struct kvcl_lane_user {
    /* The destination of a DATA frame's bytes from byte `at` on: at most max pieces. Returns their number; 0: drop. */
    int  (*place)(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_lane_frame_t *frame, uint32_t at,
                  struct iovec *iov, int max);
    /* n bytes have arrived: `place` is called again for the rest. */
    void (*placed)(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_lane_frame_t *frame, uint32_t n);
    /* An END frame and its payload, during the call. */
    void (*notified)(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_lane_frame_t *frame, const void *payload);
    /* The lane has ended; its frames in flight are lost. in: this rank pulled by it. */
    void (*lost)(kvcl_context_h ctx, kvcl_peer_t *peer, bool in);
} kvcl_lane_user_t;

/** Sets the only user, before any lane is established. */
void kvcl_lane_register(kvcl_context_h ctx, const kvcl_lane_user_t *user);

/** Lock held, peer READY. Is there a lane to pull by? If not, one is opened, unless one was lost recently. */
bool kvcl_lane_in_ready(kvcl_peer_t *peer);

/** Lock held. The lane by which this peer pulls; NULL: none. Valid until `lost` reports its end. */
kvcl_lane_t *kvcl_lane_out(kvcl_peer_t *peer);

/** Does it accept a frame now? Not while a frame is being sent or the stream is full: room_poll continues then. */
bool kvcl_lane_idle(const kvcl_lane_t *lane);

/** The array for the pieces of the next frame: KVCL_LANE_IOVS. Only while the lane is idle. */
struct iovec *kvcl_lane_pieces(kvcl_lane_t *lane);

/**
 * Send a DATA frame of the n pieces written, which have len bytes. sent(arg) is called once all of them have been read,
 * perhaps inside this call; not after kvcl_lane_abandon(), nor if the lane is lost.
 */
void kvcl_lane_send(kvcl_lane_t *lane, uint64_t op, uint64_t offset, uint32_t len, int n, void (*sent)(void *arg),
                    void *arg);

/** If arg's frame is being sent, stop reading its memory: zeros are sent instead, and END makes the receiver drop them.
 * @return whether it was being sent. */
bool kvcl_lane_abandon(kvcl_lane_t *lane, const void *arg);

/** End the lane for this reason: `lost` is called. */
void kvcl_lane_lose(kvcl_lane_t *lane, const char *why);

/** Send an END frame after all frames so far; the payload is copied. @return KVCL_OK, KVCL_ERR_NO_MEMORY,
 * KVCL_ERR_RANK_FAILED (the lane is lost). */
kvcl_status_t kvcl_lane_tell(kvcl_lane_t *lane, uint64_t op, kvcl_status_t status, const void *payload, uint32_t len)
    KVCL_MUST_CHECK;

#endif
