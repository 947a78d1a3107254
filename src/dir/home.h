/*
 * The home's pure step: requests and view changes in, changes of its table and answers out.
 *
 * A request goes in as unpacked from the wire and the answer is written as a wire message into a
 * buffer of the caller, who sends it; nothing is copied in between. One step is one batch.
 *
 * Rules:
 *  - A publish is taken only from the incarnation that the home's view knows as live (a delayed one
 *    of a dead process is KVCL_ERR_STALE), and only for shards whose home or backup is this rank.
 *  - A publish from a later view than the home's is KVCL_ERR_STALE too, and its owner sends it again.
 *    Views that the home has not applied yet may take the shard from it and give it back. It would
 *    drop the location in between, and the owner, which has applied them, would not publish it again.
 *  - A copy (loc.source is not 0) is accepted only while its source, or the copy itself, is listed;
 *    otherwise KVCL_ERR_NOT_FOUND, because the key was removed meanwhile or has other bytes. The key's
 *    home decides; its backup, which may not have the source yet, accepts both.
 *  - Locations of processes that have gone, which are dropped by and by, make room for others where a key has
 *    KVCL_DIR_LOCS_MAX of them. KVCL_ERR_EXISTS thus means as many copies that live. Otherwise a block would count as
 *    listed at a home that forgets all copies it has, and nobody lists the block there again while that is its home.
 *    They also make room for their rank's present process where that lists the same key in the same slot: incarnations
 *    are random numbers, so half of them count as older than the one before (kvcl_dir_table_insert).
 *  - A remove deletes exactly the (incarnation, generation) it names. Any rank may send one: a reader
 *    that found a location's generation changed reports it by a remove.
 *  - Homes are rebuilt from the blocks. So where views change, a removal of a key has ended when the ranks that hold
 *    it have dropped their blocks, not before (kvcl_home_remove).
 *  - On a view change the home drops locations of ranks that are dead or reincarnated, and of shards
 *    that are no longer its own. So an owner republishes a key when the (home, its incarnation)
 *    changed in ANY view since the acknowledgement, not only between the first and the last: views
 *    are applied one by one, in the order of their numbers (kvcl_shard_map_t.view).
 *  - While shards move (moves.h) a home keeps, and lists, what the maps before give it as well (old, also).
 *  - A rank without a lease lists nothing, and a home removes nothing: KVCL_ERR_NO_QUORUM.
 *  - Ranks may have different maps under one number only while each map of a rank has fewer ranks
 *    than the one before: then no rank loses a shard while it lives.
 *  - A step is idempotent: lost replies are answered by sending the request again.
 *
 * Owns: nothing; table, map and incarnations are the caller's. One thread at a time (the table's
 * lock). No I/O, no clock, no allocation.
 */
#ifndef KVCL_DIR_HOME_H
#define KVCL_DIR_HOME_H

#include "dir/dir_wire.h"
#include "dir/shard.h"
#include "dir/table.h"

typedef struct kvcl_home {
    kvcl_dir_table_t       *table;
    const kvcl_shard_map_t *map;
    const kvcl_shard_map_t *old;          /* its shards are kept too; NULL: none move */
    const kvcl_shard_map_t *also;         /* and its shards (moves.h); NULL: there is none */
    const uint16_t         *incarnations; /* of the view, by rank id; 0 = not live */
    uint32_t                n_ranks;      /* elements of incarnations */
    uint32_t                me;
    uint64_t                n_published;  /* counters, by item */
    uint64_t                n_removed;
    uint64_t                n_looked_up;
    uint64_t                n_hits;
    uint64_t                n_refused;
} kvcl_home_t;

typedef enum {
    KVCL_HOME_REQUEST   = 1, /* a PUBLISH, REMOVE or LOOKUP message; answered */
    KVCL_HOME_VIEW      = 2, /* a new view: map and incarnations; no answer */
    /* One rank is known dead before the next view; no answer. A delayed publish of it may still come
     * in until that VIEW drops it: harmless, readers compare incarnations. */
    KVCL_HOME_RANK_DEAD = 3
} kvcl_home_event_type_t;

typedef struct kvcl_home_event {
    kvcl_home_event_type_t type;
    bool                   no_lease;   /* REQUEST: this rank may not own now */
    union {
        const kvcl_dir_msg_t *request; /* as unpacked; any other type is KVCL_ERR_INVALID_PARAM */
        struct {
            const kvcl_shard_map_t *map; /* kept by the home until the next VIEW, like the others */
            const uint16_t         *incarnations;
            uint32_t                n_ranks;
            const kvcl_shard_map_t *old; /* shards move from this map: kept, too; NULL: none do */
        } view;
        struct {
            uint16_t rank;
            uint16_t incarnation;
        } dead;
    } u;
} kvcl_home_event_t;

typedef struct kvcl_home_out {
    uint8_t *buf;     /* in: where the reply goes, kvcl_dir_reply_bytes_max() long */
    size_t   cap;     /* in */
    size_t   len;     /* out: bytes of the reply; 0 for events that have none */
    uint64_t dropped; /* out: locations removed by VIEW and RANK_DEAD */
} kvcl_home_out_t;

/** @a table is formatted; all pointers are kept and stay the caller's. @return KVCL_OK,
 * KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_home_init(kvcl_home_t *home, kvcl_dir_table_t *table, uint32_t me,
                             const kvcl_shard_map_t *map, const uint16_t *incarnations,
                             uint32_t n_ranks) KVCL_MUST_CHECK;

/** List a location of this rank, or one that was checked already: a publish without the rules on incarnations and
 * shards. @return as kvcl_dir_table_insert(); KVCL_ERR_NOT_FOUND: a copy whose source is no longer listed. */
kvcl_status_t kvcl_home_list(kvcl_home_t *home, const kvcl_key_t *key, const kvcl_dir_loc_t *loc) KVCL_MUST_CHECK;

/** As the event VIEW, but nothing is dropped: the caller drops what kvcl_home_keeps() does not want, by and by. */
void kvcl_home_adopt(kvcl_home_t *home, const kvcl_shard_map_t *map, const kvcl_shard_map_t *old,
                     const kvcl_shard_map_t *also, const uint16_t *incarnations, uint32_t n_ranks);
bool kvcl_home_keeps(const kvcl_home_t *home, const kvcl_key_t *key, const kvcl_dir_loc_t *loc);

/** May this rank list or remove the key now, as its home or its backup? The map of the view decides, and `old`.
 * @return KVCL_OK; KVCL_ERR_NO_QUORUM (no_lease); KVCL_ERR_STALE: it is neither. */
kvcl_status_t kvcl_home_may_change(const kvcl_home_t *home, const kvcl_key_t *key, bool no_lease) KVCL_MUST_CHECK;

/** The same of the removal of all of its locations. While a shard moves whose homes before have all gone, its records
 * are with their owners alone, and the removal would miss them: KVCL_ERR_STALE. two: keys have two homes. */
kvcl_status_t kvcl_home_may_remove(const kvcl_home_t *home, const kvcl_key_t *key, bool no_lease,
                                   bool two) KVCL_MUST_CHECK;

/** Remove a key from this home. locs: its locations at ranks that live; these ranks are to be told. waits: those of
 * other ranks stay listed until a remove, sent by their rank when it has dropped the block, names them. The key may be
 * said to be removed once none is left: if its homes go before, what they have removed is listed again from the blocks.
 * @return the number of locs. */
unsigned kvcl_home_remove(kvcl_home_t *home, const kvcl_key_t *key, bool waits, kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]);

/**
 * Take one event. The status of each item is in the reply, not in the result.
 * @return KVCL_OK; KVCL_ERR_NO_SPACE: the reply buffer is too small, nothing changed;
 *         KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_home_step(kvcl_home_t *home, const kvcl_home_event_t *event, kvcl_home_out_t *out) KVCL_MUST_CHECK;

#endif
