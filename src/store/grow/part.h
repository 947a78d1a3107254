/*
 * Ranks that come to a store which others have open, and ranks that leave it, while gets and puts go on.
 *
 *   comes                                   each other rank
 *   ASK, with the name of its slots  ->
 *                                    <-     its part: the store's id, its replicas, its pool; or that it has no store
 *                                           over these slots in which the other takes no part
 *   TAKE, with its own part          ->
 *                                    <-     its part: from here on the other takes part, and shards move (dir/moves.h);
 *                                           KVCL_ERR_BUSY: shards still move, or it does not know the process yet
 *
 * A rank takes another one when it has settled, or (KVCL_PART_SURE) when some rank that had settled has: dir/moves.h
 * says why. A rank that comes asks those without the store again in each round. One of them may come as well, meet the
 * first, and be taken before it. Its set then has the first, and that of the others has not: no move ends, and no rank
 * takes the first until it has heard from the second that it is sure.
 *
 * The rank that comes begins its first move when all have taken it; they list their records at it as they do at any new
 * home. Its open ends when that move is over: only then does it look up, put or get. No copies are placed in its pool
 * before. It leaves in the same way (KVCL_PART_LEAVES): it keeps its blocks and its lookups, and gives up its shards.
 * If all ranks leave, each keeps its own, and hands nothing over.
 *
 * Owns nothing. Locks: as stated.
 */
#ifndef KVCL_STORE_GROW_PART_H
#define KVCL_STORE_GROW_PART_H

#include "store/hello.h"
#include "store/store.h"

enum {
    KVCL_PART_SURE   = 1, /* TAKE, and its answer: some rank that had settled has taken the one that asks */
    KVCL_PART_LEAVES = 2  /* TAKE: it is to have no shards */
};

/* A rank's part of a store, as it travels. */
typedef struct kvcl_part {
    kvcl_hello_t hello;
    uint64_t     comm;      /* of the store's communicator: its id, */
    uint64_t     epoch;     /* and the numbering of its collectives */
    uint64_t     coll_seq;
    uint32_t     flags;     /* KVCL_PART_* */
    uint32_t     reserved;
} kvcl_part_t;
_Static_assert(sizeof(kvcl_part_t) == sizeof(kvcl_hello_t) + 32, "wire format");

/** Pure. Reads a part from bytes of another rank; its hello is to be checked still (hello.h). False: no rank of this
 * version sends it. */
bool kvcl_part_read(const void *data, size_t len, kvcl_part_t *part_p);

/** What this rank says of its part when it meets the others. ok: it could open it. */
kvcl_hello_t kvcl_grow_hello(const struct kvcl_store *store, bool ok);
kvcl_part_t  kvcl_grow_part(const struct kvcl_store *store);

/** Lock held. Does another rank take part that does not leave? */
bool kvcl_grow_others_stay(const struct kvcl_store *store);

/** The name of the slots that the store is over. */
uint64_t kvcl_grow_name(const struct kvcl_store *store);

/** Lock held. The store that an ASK means; NULL: there is none. */
kvcl_store_h kvcl_grow_find(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in);

/* Rows of kinds.c. */
bool kvcl_grow_on_moved(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len);
bool kvcl_grow_on_ask(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                      size_t len);
bool kvcl_grow_on_take(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                       size_t len);

/** Lock held: kvcl_store_listener_t.ask_moved. A query, so that a rank which has closed its part is not waited for. */
void kvcl_grow_ask_moved(kvcl_store_h store, uint32_t rank, uint64_t id, bool listed, bool switched);

/** No lock held; the store is not linked. Finds the others' store; replicas: the caller's, 0: any. It changes nothing
 * at other ranks. As kvcl_store_open(). */
kvcl_status_t kvcl_grow_seek(kvcl_store_h store, uint64_t replicas, uint64_t deadline_ns) KVCL_MUST_CHECK;
/** The same, after kvcl_grow_seek(). Becomes a part of that store: KVCL_ERR_NOT_FOUND if the others have closed it, or
 * have failed, meanwhile. The store is linked if it has come so far that others know it, also on failure. */
kvcl_status_t kvcl_grow_join(kvcl_store_h store, uint64_t deadline_ns) KVCL_MUST_CHECK;

/** No lock held: kvcl_room_t.leave. Gives the shards of each store to the others, and the blocks that only this rank
 * has. KVCL_OK: they have them, or nobody is left to have them. KVCL_ERR_TIMED_OUT, or as kvcl_store_drain(), with the
 * error sentence: what is left stays here. */
kvcl_status_t kvcl_grow_leave_all(kvcl_context_h ctx, void *state, uint64_t deadline_ns) KVCL_MUST_CHECK;

#endif
