/*
 * A whole cluster of directory state machines in one thread: the types shared by its files.
 *
 * All random choices come from one generator with the given seed, and all events are steps of sim_step(), so a seed
 * replays exactly. Real: tables, homes, messages, shard maps, slots and the eviction order are the library's own.
 * Modelled: the network (a bag of messages), views (a list that each rank applies in order, at its own times), and
 * memory: a slot is SIM_WORDS words, written and copied one word per step. Every rank may take steps between two loads
 * of a table's reader.
 *
 * A process's memory outlives it, as shared memory does: sim_mem_t is one per (rank, incarnation).
 */
#ifndef SIM_H
#define SIM_H

#include "base/rand.h"
#include "dir/home.h"
#include "dir/slots.h"
#include "policy/evict.h"

enum {
    SIM_RANKS    = 7,
    SIM_KEYS     = 8,
    SIM_SLOTS    = 3,
    SIM_WORDS    = 4,
    SIM_INCS     = 5, /* incarnations 1..4 of a rank in one run */
    SIM_CELLS    = 66,
    SIM_MSGS     = 48,
    SIM_BYTES    = 512, /* of a message */
    SIM_GETS     = 2,   /* per rank at a time */
    SIM_SERVES   = 3,
    SIM_REMOVES  = 8,
    SIM_REQUESTS = 16,
    SIM_VIEWS    = 40,
    SIM_STEPS    = 2000,
    SIM_TIMEOUT  = 40 /* steps until a request is sent again */
};

/* The defects that a mutation introduces. Each must be detected. */
typedef enum {
    BREAK_NOTHING,
    BREAK_NO_GEN_BUMP,          /* withdraw leaves the word unchanged */
    BREAK_PUBLISH_BEFORE_BYTES, /* the location is published before the bytes are written */
    BREAK_LATE_REMOVE,          /* a home removes any generation, whichever a remove names */
    BREAK_SKIP_GEN_CHECK,       /* readers and servers do not check the word */
    BREAK_COMPARE_FIRST,        /* they check it before they copy, and not afterwards */
    BREAK_NO_READ_FENCE,        /* they check it before the last of the bytes */
    BREAK_NO_WRITE_FENCE,       /* the word is bumped, but the first new byte is visible before it */
    BREAK_STALE_INCARNATION,    /* incarnations are not compared */
    BREAK_GENS_WITH_BYTES,      /* native readers read it among the words, not after the last of them */
    BREAK_NO_ENTRY_CHECK,       /* neither an entry's sequence word nor its check word is compared */
    BREAK_HOME_BEHIND,          /* a home takes publishes from views that it has not applied yet */
    BREAK_END
} sim_break_t;

/* The memory of one process, as mapped by its peers. */
typedef struct sim_mem {
    _Atomic uint32_t gens[SIM_SLOTS];
    uint64_t         words[SIM_SLOTS][SIM_WORDS];
    uint32_t         touched[SIM_SLOTS]; /* number of writes: for the invariants, no rank reads it */
} sim_mem_t;

typedef struct sim_view {
    uint16_t inc[SIM_RANKS]; /* 0: not a member */
    uint32_t mask;
} sim_view_t;

/* One slot of an owner, in the owner's state. */
typedef struct sim_pub {
    unsigned       key;
    unsigned       written; /* words; SIM_WORDS: all */
    bool           filling; /* bytes are being written */
    bool           live;    /* published and not withdrawn */
    bool           acked;
    bool           refused; /* the home replied EXISTS or NO_SPACE */
    uint32_t       home;    /* rank that it was sent to */
    uint32_t       late;    /* BREAK_NO_WRITE_FENCE: the generation that is not visible yet; else 0 */
    uint32_t       target;  /* raised whenever it must be published again */
    uint64_t       retry_at;
    kvcl_dir_loc_t loc;
} sim_pub_t;

typedef struct sim_remove {
    bool           live;
    unsigned       tries;
    unsigned       key;
    uint64_t       retry_at;
    uint64_t       id;
    kvcl_dir_loc_t loc;
} sim_remove_t;

/* A PUBLISH that waits for its reply. */
typedef struct sim_request {
    uint64_t id;
    uint32_t n;
    uint32_t slot[SIM_SLOTS];
    uint32_t target[SIM_SLOTS];
} sim_request_t;

/* The bytes of one block, being copied by a reader: sim_copy.c. */
typedef struct sim_copy {
    unsigned i; /* words copied */
    unsigned done; /* native: which, as bits */
    bool     native; /* by the network, which completes the words in any order: `order` draws it */
    bool     early;
    uint32_t touched;
    uint64_t words[SIM_WORDS];
    kvcl_rand_t order; /* its own, so that a read's order changes nothing else of the run */
} sim_copy_t;

typedef enum { GET_IDLE, GET_READ, GET_ASKED, GET_TRY, GET_COPY, GET_SERVED } sim_get_state_t;

typedef struct sim_get {
    sim_get_state_t state;
    unsigned        key;
    uint64_t        id;
    uint64_t        give_up_at;
    uint32_t        home;
    unsigned        n_locs;
    unsigned        at; /* location in use */
    unsigned        inc;
    sim_copy_t      copy;
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX];
} sim_get_t;

/* A served read that an owner works on: the owner holds nothing for it. */
typedef struct sim_serve {
    bool           live;
    uint32_t       reader;
    uint64_t       id;
    kvcl_dir_loc_t loc;
    sim_copy_t     copy;
} sim_serve_t;

typedef struct sim_node {
    bool             up;
    uint16_t         inc;
    uint32_t         rank;
    unsigned         view; /* index of the last view it applied */
    uint64_t         paused_until;
    uint64_t         next_id;
    kvcl_slots_t     slots;
    kvcl_slot_t      slot_array[SIM_SLOTS];
    sim_pub_t        pub[SIM_SLOTS];
    kvcl_evict_t     evict;
    uint64_t         evict_mem[64];
    sim_remove_t     removes[SIM_REMOVES];
    sim_request_t    requests[SIM_REQUESTS];
    sim_get_t        gets[SIM_GETS];
    sim_serve_t      serves[SIM_SERVES];
    kvcl_dir_table_t table;
    kvcl_home_t      home;
    _Alignas(64) uint8_t table_mem[KVCL_DIR_HEADER_BYTES + SIM_CELLS * KVCL_DIR_ENTRY_BYTES];
} sim_node_t;

typedef enum { MSG_DIR, MSG_GET, MSG_GET_REPLY } sim_msg_kind_t;

typedef struct sim_msg {
    sim_msg_kind_t kind;
    uint32_t       from;
    uint32_t       to;
    size_t         len;             /* MSG_DIR */
    uint8_t        bytes[SIM_BYTES]; /* MSG_DIR: a message of dir_wire.h */
    uint64_t       id;              /* the others */
    unsigned       key;
    kvcl_status_t  status;
    kvcl_dir_loc_t loc;
    uint64_t       words[SIM_WORDS];
} sim_msg_t;

/* Counted over all seeds, to detect a simulator in which nothing happens. */
typedef struct sim_counts {
    uint64_t steps, gets_ok, gets_served_ok, misses, stale, torn, publishes, acks, withdrawals, serves_stale;
    uint64_t sent, lost, doubled, crashes, restarts, suspicions, views, pauses, checks, behind;
} sim_counts_t;

typedef struct sim {
    uint64_t     seed;
    uint64_t     step;
    bool         verbose;
    bool         quiet_end; /* the last phase: no faults, no new work */
    bool         failed;
    bool         reading;   /* a rank is between two loads of a table */
    sim_break_t  broken;
    kvcl_rand_t  rnd;
    unsigned     n_ranks;
    unsigned     loss, dup, crash, pause; /* per 1,000 */
    unsigned     n_views;
    unsigned     n_msgs;
    sim_view_t   views[SIM_VIEWS];
    kvcl_key_t   keys[SIM_KEYS];
    sim_node_t   nodes[SIM_RANKS];
    sim_mem_t    mems[SIM_RANKS][SIM_INCS];
    sim_msg_t    msgs[SIM_MSGS];
    sim_counts_t counts;
} sim_t;

/* sim_dir.c */
unsigned sim_below(sim_t *sim, unsigned n);
bool     sim_chance(sim_t *sim, unsigned per_mille);
void     sim_log(sim_t *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void     sim_fail(sim_t *sim, const char *invariant, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* sim_world.c: the network, views, crashes. */
void                    sim_start(sim_t *sim, uint64_t seed);
void                    sim_step(sim_t *sim);
void                    sim_quiet_end(sim_t *sim);
sim_msg_t              *sim_send(sim_t *sim, uint32_t from, uint32_t to, sim_msg_kind_t kind);
const kvcl_shard_map_t *sim_map(unsigned view); /* an index of views */
uint32_t                sim_home_of(sim_t *sim, const sim_node_t *node, unsigned key);

/* sim_owner.c: the owner and the home in a rank. */
void sim_node_start(sim_t *sim, uint32_t rank, uint16_t inc, unsigned view);
void sim_node_view(sim_t *sim, sim_node_t *node);
void sim_owner_step(sim_t *sim, sim_node_t *node);
void sim_owner_retry(sim_t *sim, sim_node_t *node);
void sim_owner_remove(sim_t *sim, sim_node_t *node, unsigned key, const kvcl_dir_loc_t *loc);
void sim_home_request(sim_t *sim, sim_node_t *node, const sim_msg_t *msg, const kvcl_dir_msg_t *request);
void sim_owner_reply(sim_t *sim, sim_node_t *node, const kvcl_dir_msg_t *reply);
void sim_serve_begin(sim_t *sim, sim_node_t *node, const sim_msg_t *msg);
void sim_serve_step(sim_t *sim, sim_node_t *node);

/* sim_copy.c */
void sim_copy_begin(const sim_t *sim, sim_copy_t *copy, bool one_sided);
bool sim_copy_step(const sim_t *sim, sim_copy_t *copy, const sim_mem_t *mem, const kvcl_dir_loc_t *loc); /* all here? */
bool sim_copy_holds(sim_t *sim, const sim_copy_t *copy, const sim_mem_t *mem, const kvcl_dir_loc_t *loc,
                    const char *how); /* whether they were that block's throughout */

/* sim_table.c: one at a time; other ranks take steps meanwhile, and may end the reader's rank. */
unsigned sim_table_read(sim_t *sim, uint32_t home, unsigned key, kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]);

/* sim_get.c: a reader in a rank. */
void sim_get_step(sim_t *sim, sim_node_t *node);
void sim_get_reply(sim_t *sim, sim_node_t *node, const kvcl_dir_msg_t *reply);
void sim_get_served(sim_t *sim, sim_node_t *node, const sim_msg_t *msg);

/* sim_check.c: the invariants. */
uint64_t sim_content(unsigned key, unsigned i);
void     sim_check_bytes(sim_t *sim, const sim_node_t *reader, unsigned key, const uint64_t *words,
                         const char *how);
void     sim_check_findable(sim_t *sim, sim_node_t *home);
void     sim_check_nodes(sim_t *sim);
void     sim_check_end(sim_t *sim);

#endif
