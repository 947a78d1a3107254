/*
 * Puts of several copies while one rank dies: a simulator of the lists and holders of copies.
 *
 *   sim_copies [--seeds N] [--seed S] [--break NAME]
 *
 *  AckedSurvivesOneDeath  a put that was acknowledged with two copies is found, after any one death, at the home that
 *                         the survivors' map names, at a location whose rank is alive and holds the block.
 *
 * Real are the shard maps, the tables, the home's step and its messages. Modelled are the put, the chain and the
 * publish (store_put.c, store_chain.c, store_copy.c, store_publish.c), and the network (a bag: any order). Each rank
 * learns of the death at its own time; until then its messages to the dead rank are lost, and then its operations that
 * wait for that rank fail. A seed replays exactly.
 */
#include "config.h"

#include "base/rand.h"
#include "dir/home.h"
#include "sim_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, PUTS = 10, OPS = 256, MSGS = 512, CELLS = 130, DEAD_NONE = 99, ROUNDS_MAX = 64, STEPS = 1000 };

typedef enum { BREAK_NOTHING, BREAK_ONE_HOME, BREAK_ANSWER_UNLISTED, BREAK_ACK_EARLY, BREAK_END } break_t;
static const char *const break_names[] = {"nothing", "one-home", "answer-before-listed", "ack-before-copies"};

/* A publish, or a request for a copy, that a rank waits for. */
typedef struct op {
    bool     live, is_copy, again;
    unsigned rank, put, rounds;
    unsigned waits[RANKS]; /* replies to come, by rank */
    int      requester;        /* publish of a copy: the op that requested the copy, else -1 */
} op_t;

typedef struct put {
    bool       begun, acked;
    unsigned   rank, parts, made;
    bool       tried[RANKS];
    kvcl_key_t key;
} put_t;

typedef struct msg {
    enum { PUBLISH, PUBLISHED, COPY, COPIED } kind;
    unsigned      from, to, op, put;
    kvcl_status_t status;
} msg_t;

typedef struct node {
    bool             up;
    bool             knows; /* of the death */
    bool             holds[PUTS];
    uint16_t         incs[RANKS];
    kvcl_shard_map_t map;
    kvcl_dir_table_t table;
    kvcl_home_t      home;
    _Alignas(64) uint8_t mem[KVCL_DIR_HEADER_BYTES + (CELLS * KVCL_DIR_ENTRY_BYTES)];
} node_t;

static struct {
    uint64_t    seed;
    kvcl_rand_t rnd;
    break_t     broken;
    unsigned    n, dead, n_msgs;
    node_t      nodes[RANKS];
    put_t       puts[PUTS];
    op_t        ops[OPS];
    msg_t       msgs[MSGS];
    uint64_t    acked, two, died_holding;
} sim;

static unsigned below(unsigned n)
{
    return (unsigned)kvcl_rand_below(&sim.rnd, n);
}

static void internal(const char *what)
{
    fprintf(stderr, "sim_copies: seed %" PRIu64 ": %s\n", sim.seed, what);
    exit(2);
}

static void make_map(node_t *node)
{
    uint32_t ranks[RANKS], n = 0, i;

    for (i = 0; i < sim.n; ++i) {
        if (node->incs[i] != 0) {
            ranks[n++] = i;
        }
    }
    if (kvcl_shard_map_build(&node->map, 1, ranks, n) != KVCL_OK) {
        internal("no map");
    }
}

static void post(int kind, unsigned from, unsigned to, unsigned op, unsigned put, kvcl_status_t status)
{
    if (sim.n_msgs == MSGS) {
        internal("too many messages");
    }
    sim.msgs[sim.n_msgs++] = (msg_t){.kind = kind, .from = from, .to = to, .op = op, .put = put, .status = status};
}

static unsigned new_op(unsigned rank, unsigned put, bool is_copy, int requester)
{
    unsigned i;

    for (i = 0; (i < OPS) && sim.ops[i].live; ++i) {
    }
    if (i == OPS) {
        internal("too many operations");
    }
    sim.ops[i] = (op_t){.live = true, .is_copy = is_copy, .rank = rank, .put = put, .requester = requester};
    return i;
}

/* Send to all homes in the sender's map. */
static void send_publish(unsigned id)
{
    op_t                   *op   = &sim.ops[id];
    const kvcl_shard_map_t *map  = &sim.nodes[op->rank].map;
    const kvcl_key_t       *key  = &sim.puts[op->put].key;
    uint32_t               homes[2] = {kvcl_shard_home(map, key), kvcl_shard_backup(map, key)};
    unsigned               i;

    for (i = 0; i < ((sim.broken == BREAK_ONE_HOME) ? 1 : 2); ++i) {
        if (homes[i] != KVCL_SHARD_NO_RANK) {
            ++op->waits[homes[i]];
            post(PUBLISH, op->rank, homes[i], id, op->put, KVCL_OK);
        }
    }
}

static void publish(unsigned rank, unsigned put, int requester)
{
    send_publish(new_op(rank, put, false, requester));
}

static void part_over(put_t *put)
{
    if (--put->parts == 0) {
        put->acked  = true;
        sim.acked += 1;
        sim.two   += (put->made > 1) ? 1 : 0;
    }
}

/* Request a copy from the next rank that has not been tried, or end. */
static void request_copy(unsigned p)
{
    put_t    *put = &sim.puts[p];
    unsigned first = below(sim.n), i, r, id;

    for (i = 0; i < sim.n; ++i) {
        r = (first + i) % sim.n;
        if ((r != put->rank) && !put->tried[r] && (sim.nodes[put->rank].incs[r] != 0)) {
            put->tried[r] = true;
            id = new_op(put->rank, p, true, -1);
            sim.ops[id].waits[r] = 1;
            post(COPY, put->rank, r, id, p, KVCL_OK);
            return;
        }
    }
    part_over(put);
}

static void begin_put(unsigned p)
{
    put_t *put = &sim.puts[p];

    put->begun = true;
    put->made  = 1;
    put->parts = (sim.broken == BREAK_ACK_EARLY) ? 1 : 2;
    sim.nodes[put->rank].holds[p] = true;
    publish(put->rank, p, -1);
    if (sim.broken == BREAK_ACK_EARLY) {
        put->made = 2; /* the copy is not made yet */
        put->parts = 2;
        request_copy(p);
        part_over(put);
    } else {
        request_copy(p);
    }
}

/* All replies of an operation have arrived. */
static void op_over(unsigned id, kvcl_status_t status)
{
    op_t  *op  = &sim.ops[id];
    put_t *put = &sim.puts[op->put];

    if (!op->is_copy && op->again && (++op->rounds < ROUNDS_MAX)) {
        op->again = false;
        send_publish(id);
        return;
    }
    op->live = false;
    if (op->is_copy) {
        if (status != KVCL_OK) {
            request_copy(op->put);
            return;
        }
        put->made += (sim.broken == BREAK_ACK_EARLY) ? 0 : 1;
        part_over(put);
    } else if (op->requester >= 0) {
        if (sim.broken != BREAK_ANSWER_UNLISTED) {
            post(COPIED, op->rank, put->rank, (unsigned)op->requester, op->put, KVCL_OK);
        }
    } else {
        part_over(put);
    }
}

static void answered(unsigned id, unsigned from, kvcl_status_t status)
{
    op_t     *op = &sim.ops[id];
    unsigned i;

    if (!op->live || (op->waits[from] == 0)) {
        return; /* it is not waited for any more */
    }
    --op->waits[from];
    op->again = op->again || (status == KVCL_ERR_STALE) || (status == KVCL_ERR_RANK_FAILED);
    for (i = 0; i < RANKS; ++i) {
        if (op->waits[i] != 0) {
            return;
        }
    }
    op_over(id, status);
}

/* The home's own step, on a message in wire form. */
static kvcl_status_t home_step(node_t *node, const msg_t *msg)
{
    uint8_t           buf[256], answer[256];
    kvcl_dir_pack_t   pack;
    kvcl_dir_msg_t    request, reply;
    kvcl_home_event_t event = {.type = KVCL_HOME_REQUEST, .u.request = &request};
    kvcl_home_out_t   out   = {.buf = answer, .cap = sizeof(answer)};
    kvcl_dir_loc_t    loc   = {.rank = (uint16_t)msg->from, .incarnation = 1, .slot = msg->put, .len = 8, .gen = 1};

    if ((kvcl_dir_pack_begin(&pack, buf, sizeof(buf), KVCL_DIR_MSG_PUBLISH, 1, 1) != KVCL_OK) ||
        (kvcl_dir_pack_add(&pack, &sim.puts[msg->put].key, &loc) != KVCL_OK) ||
        (kvcl_dir_msg_unpack(&request, buf, kvcl_dir_pack_end(&pack)) != KVCL_OK) ||
        (kvcl_home_step(&node->home, &event, &out) != KVCL_OK) ||
        (kvcl_dir_msg_unpack(&reply, answer, out.len) != KVCL_OK)) {
        internal("a home does not answer");
    }
    return kvcl_dir_msg_status(&reply, 0);
}

static void deliver(void)
{
    unsigned i    = below(sim.n_msgs);
    msg_t    msg  = sim.msgs[i];
    node_t   *node = &sim.nodes[msg.to];

    sim.msgs[i] = sim.msgs[--sim.n_msgs];
    if (!node->up) {
        return;
    }
    switch (msg.kind) {
    case PUBLISH:
        post(PUBLISHED, msg.to, msg.from, msg.op, msg.put, home_step(node, &msg));
        break;
    case COPY:
        if (!sim.nodes[msg.from].up) {
            return; /* nothing to fetch, and no rank to reply to */
        }
        node->holds[msg.put] = true;
        publish(msg.to, msg.put, (int)msg.op);
        if (sim.broken == BREAK_ANSWER_UNLISTED) {
            post(COPIED, msg.to, msg.from, msg.op, msg.put, KVCL_OK);
        }
        break;
    default:
        answered(msg.op, msg.from, msg.status);
        break;
    }
}

/* A rank learns of the death: its map changes, then its operations that wait for the dead rank fail. */
static void learn(unsigned rank)
{
    node_t   *node = &sim.nodes[rank];
    unsigned i;

    node->knows          = true;
    node->incs[sim.dead] = 0;
    make_map(node);
    for (i = 0; i < OPS; ++i) {
        while (sim.ops[i].live && (sim.ops[i].rank == rank) && (sim.ops[i].waits[sim.dead] != 0)) {
            answered(i, sim.dead, KVCL_ERR_RANK_FAILED);
        }
    }
}

static void die(unsigned rank)
{
    unsigned i;

    sim.dead           = rank;
    sim.nodes[rank].up = false;
    for (i = 0; i < OPS; ++i) {
        sim.ops[i].live = sim.ops[i].live && (sim.ops[i].rank != rank);
    }
    for (i = 0; i < PUTS; ++i) {
        sim.died_holding += sim.puts[i].acked && sim.nodes[rank].holds[i];
    }
}

static void start(uint64_t seed)
{
    unsigned i, b;

    memset(sim.nodes, 0, sizeof(sim.nodes));
    memset(sim.puts, 0, sizeof(sim.puts));
    memset(sim.ops, 0, sizeof(sim.ops));
    sim.seed   = seed;
    sim.n_msgs = 0;
    sim.dead   = DEAD_NONE;
    kvcl_rand_seed(&sim.rnd, seed);
    sim.n = 3 + below(RANKS - 2);
    for (i = 0; i < sim.n; ++i) {
        node_t *node = &sim.nodes[i];
        node->up = true;
        for (b = 0; b < sim.n; ++b) {
            node->incs[b] = 1;
        }
        make_map(node);
        if ((kvcl_dir_table_format(&node->table, node->mem, sizeof(node->mem)) != KVCL_OK) ||
            (kvcl_home_init(&node->home, &node->table, i, &node->map, node->incs, sim.n) != KVCL_OK)) {
            internal("a rank does not start");
        }
    }
    for (i = 0; i < PUTS; ++i) {
        sim.puts[i].rank = below(sim.n);
        for (b = 0; b < sizeof(kvcl_key_t); ++b) {
            sim.puts[i].key.bytes[b] = (uint8_t)kvcl_rand_next(&sim.rnd);
        }
    }
}

/* Whether put p is found on a live rank through the survivors' map. */
static bool survives(unsigned p)
{
    const kvcl_shard_map_t *map = NULL;
    kvcl_dir_loc_t         locs[KVCL_DIR_LOCS_MAX];
    unsigned               i, n;

    for (i = 0; (i < sim.n) && (map == NULL); ++i) {
        map = sim.nodes[i].up ? &sim.nodes[i].map : NULL;
    }
    n = kvcl_dir_table_find(&sim.nodes[kvcl_shard_home(map, &sim.puts[p].key)].table, &sim.puts[p].key, locs);
    for (i = 0; i < n; ++i) {
        if (sim.nodes[locs[i].rank].up && sim.nodes[locs[i].rank].holds[p]) {
            return true;
        }
    }
    return false;
}

static bool all_know(void)
{
    unsigned i;

    for (i = 0; i < sim.n; ++i) {
        if (sim.nodes[i].up && !sim.nodes[i].knows) {
            return false;
        }
    }
    return true;
}

/* At any moment after all ranks know of the death, whatever is still in flight. */
static bool check(unsigned step)
{
    unsigned i;

    for (i = 0; i < PUTS; ++i) {
        if (sim.puts[i].acked && (sim.puts[i].made > 1) && !survives(i)) {
            printf("seed %" PRIu64 " step %u: AckedSurvivesOneDeath: put %u of rank %u is lost with rank %u of %u\n",
                   sim.seed, step, i, sim.puts[i].rank, sim.dead, sim.n);
            printf("replay: sim_copies --seed %" PRIu64 " --seeds 1 --break %s\n", sim.seed, break_names[sim.broken]);
            return false;
        }
    }
    return true;
}

/* Run one seed. False: an invariant does not hold. */
static bool run_seed(uint64_t seed)
{
    unsigned step, what, i, fate;

    start(seed);
    fate = 20 + below(200);
    for (step = 0; step < STEPS; ++step) {
        what = below(100);
        i    = below(PUTS);
        if (step == fate) {
            die(below(sim.n));
        } else if ((what < 10) && !sim.puts[i].begun && sim.nodes[sim.puts[i].rank].up) {
            begin_put(i);
        } else if ((what < 30) && (sim.dead != DEAD_NONE)) {
            i = below(sim.n);
            if (sim.nodes[i].up && !sim.nodes[i].knows) {
                learn(i);
            }
        } else if (sim.n_msgs > 0) {
            deliver();
        }
        if ((sim.dead != DEAD_NONE) && all_know() && !check(step)) {
            return false;
        }
    }
    for (i = 0; i < PUTS; ++i) {
        if (sim.puts[i].begun && !sim.puts[i].acked && sim.nodes[sim.puts[i].rank].up) {
            printf("seed %" PRIu64 " step %u: EveryPutEnds: put %u of rank %u has no end\n", seed, step, i,
                   sim.puts[i].rank);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    sim_args_t args = {.first = 1, .seeds = 3000};
    uint64_t   i;

    if (!sim_args_take(&args, argc, argv, "sim_copies", break_names, BREAK_END)) {
        return 2;
    }
    sim.broken = (break_t)args.broken;
    for (i = 0; i < args.seeds; ++i) {
        if (!run_seed(args.first + i)) {
            return 1;
        }
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " puts acknowledged, %" PRIu64 " of two copies, %" PRIu64
           " of them lost one with the dead rank\n", args.seeds, sim.acked, sim.two, sim.died_holding);
    return ((args.seeds >= 1000) && ((sim.two == 0) || (sim.died_holding == 0))) ? 1 : 0;
}
