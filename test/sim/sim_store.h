/*
 * Views and the directory together, in one thread: processes decide who is a member (the world of sim_view.h), and what
 * is listed follows their views. Types and functions that the files of sim_store share.
 *
 * Real: the machine of src/view; tables, homes, maps and moving shards (dir/home.h, dir/moves.h), as they ship.
 * Modelled: what store/home/follow_views.c, pool/rehome.c and store/grow do with them (processes that join the job come
 * to the store, ranks that leave hand it over), owners (a slot names one key for ever), puts of two copies, removals
 * and gets. Messages of the directory are not lost, since a session repeats them: across a cut
 * they wait. A receiver drops those of processes that are not in its view or have failed, as the core does.
 */
#ifndef KVCL_TEST_SIM_STORE_H
#define KVCL_TEST_SIM_STORE_H

#include "sim_view.h"

#include "dir/home.h"
#include "dir/moves.h"

enum { KEYS = 96, BLOCKS = 200, CELLS = 1024, MAILS = 4096, FAULTS_MS = 5000, END_MS = 13000, RETRY_MS = 20,
       GIVE_UP_MS = 4000, SWEEP_MS = 3000, SAY_MS = 200 };

typedef enum {
    BREAK_NOTHING,
    BREAK_NO_LEASE,        /* a rank owns, lists and removes without a lease */
    BREAK_BEFORE_COMMIT,   /* the map follows a change that is accepted, not committed */
    BREAK_STALE_SENDER,    /* messages of excluded processes are taken */
    BREAK_NO_WALK,         /* blocks are not listed at new homes */
    BREAK_ASK_NEW,         /* keys are looked up at new homes at once */
    BREAK_ANY_INCARNATION, /* locations of a slot's process before are read from the present one */
    BREAK_TAKE_UNSETTLED,  /* a rank is taken into the store while shards move */
    BREAK_EARLY_GET,       /* a rank that comes gets before its first move is over */
    BREAK_NO_DRAIN,        /* a rank leaves with the blocks that it has */
    BREAK_FORGET_OLD,      /* a rank that has switched forgets the map by which others still look up */
    BREAK_SURE_OF_NONE,    /* a rank that comes says it is sure, since another one that comes knows it */
    BREAK_UNHEARD_HOLDERS, /* a removal ends before the ranks with the blocks have dropped them */
    BREAK_END
} break_t;

typedef enum { MAIL_DIR, MAIL_DIR_REPLY, MAIL_REMOVE, MAIL_REMOVE_REPLY, MAIL_LOOKUP, MAIL_LOOKUP_REPLY, MAIL_FETCH,
               MAIL_FETCH_REPLY, MAIL_COPY, MAIL_COPY_REPLY, MAIL_WITHDRAW, MAIL_DROPPED, MAIL_MOVED,
               MAIL_ASK, MAIL_ASK_REPLY, MAIL_TAKE, MAIL_TAKE_REPLY } kind_t;

enum { SURE = 1, LEAVES = 2 }; /* TAKE, its reply: flags, in step */

typedef struct mail {
    uint64_t       at; /* 0: unused */
    unsigned       from, to;
    kind_t         kind;
    uint64_t       id;   /* the operation's; MOVED: of the set; ASK, TAKE: the stage */
    unsigned       key, step;
    kvcl_status_t  status;
    kvcl_dir_loc_t loc;
    unsigned       n;
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
} mail_t;

typedef enum { OP_NONE, OP_LIST, OP_REMOVE, OP_GET, OP_COPY, OP_HAND } op_kind_t;

/* An operation of a process: at most one of each kind for a key. */
typedef struct op {
    op_kind_t      kind;
    uint64_t       id, retry_at, end_at;
    unsigned       key;
    uint64_t       acked;   /* bits: slots that have answered, in this map */
    uint64_t       map_id;
    bool           then_copy;      /* LIST, of a put: the copy is next */
    unsigned       reply_to;       /* LIST, of a copy: the putter, plus 1 */
    uint64_t       reply_id;
    bool           sure;           /* GET: it must be found */
    bool           fetching;
    unsigned       at, n;          /* GET: the location that is tried; HAND: the slot */
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
} op_t;

enum { STORE_OPS = 24 };

typedef enum { ASKS, IS_TAKEN, COMES, OPEN } stage_t; /* of its part; COMES: its first move is under way */
typedef enum { STAYS, GIVES_SHARDS, GIVES_BLOCKS, GOES } leaving_t;

typedef struct part {
    bool              begun, moving, listed, switched;
    stage_t           stage;
    leaving_t         leaving;
    bool              sure;     /* some rank has taken it, or knows that it leaves */
    uint64_t          answered; /* bits: slots that have */
    uint64_t          absent;   /* bits: slots whose last answer is that they have no store */
    uint64_t          fresh;    /* bits: ranks that have come, until their shards have moved: no copies go there */
    uint64_t          round_at, say_at;
    unsigned          handed;   /* keys below it, in this view */
    uint64_t          hand_view;
    uint64_t          view_id;
    kvcl_moves_rank_t ranks[SLOTS];
    kvcl_moves_t      moves;
    uint16_t          incs[SLOTS];
    bool              has_also; /* of a move; settled: what the next one begins with */
    uint8_t           held[KEYS];  /* the slot, plus 1, of the block of this key */
    unsigned          key_of[BLOCKS]; /* by slot */
    unsigned          n_slots;
    unsigned          walk;
    uint64_t          tick_at, sweep_at;
    op_t              ops[STORE_OPS];
    kvcl_shard_map_t  map, old, also; /* these and the rest are made when the part begins */
    kvcl_home_t       home;
    kvcl_dir_table_t  table;
    _Alignas(64) uint8_t mem[KVCL_DIR_HEADER_BYTES + CELLS * KVCL_DIR_ENTRY_BYTES];
} part_t;

typedef enum { KEY_NEW, KEY_BUSY, KEY_ACKED, KEY_REMOVED, KEY_UNSURE } key_state_t;

extern part_t      parts[PROCS];
extern mail_t      mails[MAILS];
extern unsigned    n_mails; /* those in use are below */
extern kvcl_key_t  keys[KEYS];
extern key_state_t states[KEYS];
extern uint64_t    n_acked, n_removed, n_got, n_moved;
extern unsigned    n_lost; /* processes that were killed or excluded */
extern uint64_t    n_come, n_left;
extern unsigned    handing[KEYS]; /* ranks that hand this key over: it is not removed */
extern break_t     broken;

/* sim_store_run.c */
extern uint64_t store_tick_ms, store_client_ends, store_give_up_ms; /* client_ends: of sim.now */
extern void     (*store_on_post)(unsigned from, unsigned to);       /* before each message; NULL: nothing */
/** Forget the run before. Before sim_begin. */
void store_begin(void);
/** Draw the keys. After sim_begin. */
void store_keys(void);
/** Do and check what is due now. */
void store_run(void);
/** When something is due next, of sim.now; UINT64_MAX: nothing is. */
uint64_t store_next(void);
/** At the end of a run that has healed. */
void store_check_end(void);

/* sim_store_part.c: maps, homes, and what is sent. */
unsigned       index_of(const proc_t *p);
bool           is_excluded(const proc_t *p);
mail_t        *post(const proc_t *from, uint32_t slot, kind_t kind);
void           answer(const proc_t *p, const mail_t *mail, kind_t kind, kvcl_status_t status);
void           say(proc_t *p, kvcl_moves_step_t step);
void           say_again(proc_t *p);
void           tell(proc_t *p, uint32_t slot, bool asks);
void           go_on(proc_t *p);
void           move(proc_t *p, bool grows);
/** The maps in which records are listed. */
kvcl_moves_maps_t maps_of(const part_t *part);
bool           has_failed(const proc_t *p, uint32_t slot);
void           sweep(proc_t *p);
void           follow(proc_t *p);
/** Who is asked for a key: its home, or another one if that has failed. */
uint32_t       asked(const proc_t *p, const part_t *part, const kvcl_key_t *key);
void           check_owners(void);
kvcl_dir_loc_t loc_of(const proc_t *p, unsigned key);
kvcl_status_t  list_here(const proc_t *p, unsigned key, const kvcl_dir_loc_t *loc);
kvcl_status_t  remove_here(const proc_t *p, unsigned key);
unsigned       look_up(const proc_t *p, unsigned key, kvcl_dir_loc_t *locs);

/* sim_store_grow.c: ranks that come and leave. */
void grow(proc_t *p);
void leave(proc_t *p);
void take_grow(proc_t *p, const mail_t *mail);

/* sim_store_ops.c: operations, and what comes in. */
void run_op(proc_t *p, op_t *op);
void walk(proc_t *p);
void client(proc_t *p);
void deliver(mail_t *mail);
/** Hands the next blocks over. True: all are at other ranks. */
bool hand_over(proc_t *p);

#endif
