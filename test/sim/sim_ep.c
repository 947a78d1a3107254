/*
 * Steps of experts on 2 to 4 ranks: the machine (ep_turn.h), the routes and the places are the library's own, the
 * network is this file's. One fault at each message in turn: a rank ends (with proof or without) or stops for a while,
 * or the message is lost, delayed beyond its step, or comes twice.
 *
 *   sim_ep [--seeds N] [--seed S] [--break NAME]     a seed is the number of a case
 *
 * The network keeps messages that nobody has taken, and delivers them in any order: what is withdrawn in the library is
 * not here, so only tags and steps tell an old message from a new one.
 *
 * Invariants:
 *   Ends         each call ends by its last deadline
 *   OwnStep      a row that counts is that of this step: of the right rank, token and slot
 *   AllRows      without a loss, every choice of every token comes back
 *   FalseLoss    a rank that the fault does not concern is skipped by no other such rank
 *   Told         nobody waits a whole deadline for a rank that skips it
 */
#include "config.h"

#include "base/rand.h"
#include "ep/ep_step.h"
#include "ep/ep_turn.h"
#include "sim_args.h"

#include <inttypes.h>

enum { RANKS = 4, LOCAL = 2, SLOTS = RANKS * LOCAL, TOKENS = 3, TOP_K = 2, ROWS = TOKENS * TOP_K, STEPS = 6 };
enum { DEADLINE = 1000, LONG = 3500, SHORT = 400, PROOF = 7, DELAY = 12, COMPUTE = 20, MSGS = 4096, INDICES = 160 };
enum { DIE_PROVEN, DIE_SILENTLY, STOP_LONG, STOP_SHORT, LOSE, DELAY_LONG, TWICE, FAULTS };
enum { NOTICE, PAYLOAD, WORD, KINDS };

/* Defects, each of which must be detected. */
enum { BREAK_NOTHING, BREAK_TAGS, BREAK_COUNT_LOST, BREAK_NO_SKIP, BREAK_NO_BEATS, BREAKS };
static const char *const breaks[BREAKS] = {"nothing", "tags-without-step", "lost-rows-count", "no-skip",
                                           "no-beats"};

typedef struct msg {
    unsigned from, to, kind;
    uint64_t tag, at, id, call; /* call: of a beat; 0: a skip */
    bool     used, ack;
    uint32_t n;
    uint64_t rows[ROWS];
    unsigned char notice[sizeof(kvcl_ep_notice_t) + (LOCAL * sizeof(uint32_t))];
} msg_t;

typedef struct node {
    kvcl_ep_dims_t  dims;
    kvcl_ep_turn_t  turn;
    kvcl_ep_peer_t  peers[RANKS];
    kvcl_ep_route_t route;
    kvcl_ep_inbox_t inbox;
    int64_t         ids[ROWS];
    uint32_t        rows_to[RANKS];
    uint64_t        in[LOCAL * RANKS * TOKENS]; /* what lies in each place */
    uint64_t        back[ROWS];
    bool            takes[KINDS][RANKS];
    uint64_t        take_tag[KINDS][RANKS], send_id[KINDS][RANKS];
    uint64_t        begun, wakes, ticks; /* the call; the next action; the machine's */
    bool            in_call, dead, late, proven;
} node_t;

static struct {
    kvcl_rand_t rnd;
    uint64_t    seed, now, ids;
    unsigned    n, broken, fault, victim, index, sent, bad;
    bool        happened;
    node_t      nodes[RANKS];
    msg_t       msgs[MSGS];
    unsigned    n_msgs;
} sim;

static uint64_t below(uint64_t n)
{
    return kvcl_rand_below(&sim.rnd, n);
}

static void wrong(const char *invariant, const node_t *node, unsigned peer)
{
    if (sim.bad++ == 0) {
        printf("seed %" PRIu64 " step %" PRIu64 ": %s: rank %u, peer %u, time %" PRIu64 "; %u ranks, fault %u of rank "
               "%u at message %u\n", sim.seed, node->turn.step, invariant, node->dims.self, peer, sim.now, sim.n,
               sim.fault, sim.victim, sim.index);
    }
}

/* A row: its token's rank, step and number, and its slot. */
static uint64_t row_of(unsigned rank, uint64_t step, uint32_t token, uint32_t slot)
{
    return ((uint64_t)rank << 48) | (step << 32) | ((uint64_t)token << 16) | slot;
}

static uint64_t tag_of(const node_t *node, unsigned kind)
{
    return kvcl_ep_tag(node->turn.number, ((sim.broken == BREAK_TAGS) || (kind == KVCL_EP_TAG_WORD)) ? 0
                       : node->turn.step, kind);
}

/* ---- the network ---- */

static void happens(msg_t *msg)
{
    node_t *victim = &sim.nodes[sim.victim];

    sim.happened = true;
    switch (sim.fault) {
    case DIE_PROVEN:
    case DIE_SILENTLY:
        victim->dead = true;
        break;
    case STOP_LONG:
    case STOP_SHORT:
        victim->wakes = sim.now + ((sim.fault == STOP_LONG) ? LONG : SHORT);
        victim->late  = true;
        break;
    case LOSE:
        msg->used = true;
        break;
    case DELAY_LONG:
        msg->at += DEADLINE + below(LONG);
        break;
    default:
        sim.msgs[sim.n_msgs]     = *msg;
        sim.msgs[sim.n_msgs].at += below(DEADLINE);
        ++sim.n_msgs;
        break;
    }
}

/* Faults of a message concern both of its ranks. */
static bool concerns(const msg_t *msg)
{
    return (sim.fault < LOSE) || (msg->from == sim.victim);
}

static msg_t *send(node_t *node, unsigned to, unsigned kind, uint64_t tag)
{
    msg_t *msg = &sim.msgs[sim.n_msgs++];

    if (sim.n_msgs + 2 > MSGS) {
        printf("too many messages\n");
        exit(1);
    }
    *msg = (msg_t){.from = node->dims.self, .to = to, .kind = kind, .tag = tag, .at = sim.now + 1 + below(DELAY),
                   .id = ++sim.ids};
    node->send_id[kind][to] = msg->id;
    return msg;
}

static void count(msg_t *msg)
{
    if (concerns(msg) && !sim.happened && (sim.sent++ == sim.index)) {
        happens(msg);
    }
}

/* ---- acts ---- */

static void take(node_t *node, unsigned peer, unsigned kind, uint64_t tag)
{
    node->takes[kind][peer]    = true;
    node->take_tag[kind][peer] = tag;
}

static unsigned rows_kind(const node_t *node)
{
    return (node->turn.phase == KVCL_EP_DISPATCH) ? KVCL_EP_TAG_ROWS : KVCL_EP_TAG_BACK;
}

static void act_take_notice(void *arg, uint32_t peer)
{
    take(arg, peer, NOTICE, tag_of(arg, KVCL_EP_TAG_NOTICE));
}

static void act_take_rows(void *arg, uint32_t peer)
{
    take(arg, peer, PAYLOAD, tag_of(arg, rows_kind(arg)));
}

static void act_send_notice(void *arg, uint32_t peer)
{
    node_t *node = arg;
    msg_t  *msg  = send(node, peer, NOTICE, tag_of(node, KVCL_EP_TAG_NOTICE));

    kvcl_ep_notice_write(msg->notice, &node->dims, &node->route, peer, node->turn.number, node->turn.step);
    count(msg);
}

static uint32_t slot_of(const node_t *node, uint32_t row)
{
    uint32_t s = 0;

    while (node->route.begin[s + 1] <= row) {
        ++s;
    }
    return s;
}

static void act_send_rows(void *arg, uint32_t peer)
{
    node_t         *node   = arg;
    const uint32_t first   = kvcl_ep_route_first(&node->route, &node->dims, peer);
    const uint32_t *blocks = kvcl_ep_inbox_blocks(&node->inbox, &node->dims, peer);
    msg_t          *msg;
    uint32_t       i;

    msg    = send(node, peer, PAYLOAD, tag_of(node, rows_kind(node)));
    msg->n = (node->turn.phase == KVCL_EP_DISPATCH) ? node->rows_to[peer] : node->inbox.n_from[peer];
    for (i = 0; i < msg->n; ++i) {
        msg->rows[i] = (node->turn.phase == KVCL_EP_DISPATCH)
                           ? row_of(node->dims.self, node->turn.step, node->route.tokens[first + i],
                                    slot_of(node, first + i))
                           : node->in[blocks[i]];
    }
    count(msg);
}

static void act_beat(void *arg, uint32_t peer)
{
    node_t *node = arg;

    if (sim.broken != BREAK_NO_BEATS) {
        send(node, peer, WORD, tag_of(node, KVCL_EP_TAG_WORD))->call = kvcl_ep_turn_call(&node->turn);
    }
}

static void act_lost(void *arg, uint32_t peer)
{
    node_t              *node = arg;
    const kvcl_status_t why   = node->turn.peers[peer].why;

    node->takes[NOTICE][peer] = node->takes[PAYLOAD][peer] = node->takes[WORD][peer] = false;
    node->send_id[NOTICE][peer] = node->send_id[PAYLOAD][peer] = 0;
    if ((why != KVCL_ERR_RANK_FAILED) && (why != KVCL_ERR_STALE) && (sim.broken != BREAK_NO_SKIP)) {
        (void)send(node, peer, WORD, tag_of(node, KVCL_EP_TAG_WORD));
    }
    /* Who may be skipped: the rank of the fault; its peer where a message was at fault; by such a rank, anybody. */
    if ((peer != sim.victim) && (node->dims.self != sim.victim)) {
        wrong("FalseLoss", node, peer);
    }
    if ((sim.fault == STOP_SHORT) || (sim.fault == TWICE) || !sim.happened) {
        wrong("FalseLoss", node, peer);
    }
}

static const kvcl_ep_acts_t acts = {.send_notice = act_send_notice, .send_rows = act_send_rows,
                                    .take_notice = act_take_notice, .take_rows = act_take_rows, .beat = act_beat,
                                    .lost = act_lost};

/* ---- a rank ---- */

static void take_notice(node_t *node, unsigned peer, const msg_t *msg)
{
    kvcl_ep_notice_t notice;
    uint32_t         counts[LOCAL];

    if ((kvcl_ep_notice_read(msg->notice, kvcl_ep_notice_bytes(&node->dims), &node->dims, &notice, counts) !=
         KVCL_OK) || (kvcl_ep_turn_notice(&node->turn, peer, notice.number, notice.step) != KVCL_OK)) {
        wrong("OwnStep", node, peer);
        kvcl_ep_turn_lose(&node->turn, peer, KVCL_ERR_PROTOCOL);
        return;
    }
    kvcl_ep_inbox_place(&node->inbox, &node->dims, peer, counts);
    kvcl_ep_turn_announced(&node->turn, peer, notice.rows);
}

static void take_rows(node_t *node, unsigned peer, const msg_t *msg)
{
    const uint32_t *blocks = kvcl_ep_inbox_blocks(&node->inbox, &node->dims, peer);
    const uint32_t first   = kvcl_ep_route_first(&node->route, &node->dims, peer);
    uint32_t       i;

    for (i = 0; (node->turn.phase == KVCL_EP_DISPATCH) && (i < node->inbox.n_from[peer]); ++i) {
        node->in[blocks[i]] = msg->rows[i];
    }
    for (i = 0; (node->turn.phase == KVCL_EP_COMBINE) && (i < node->rows_to[peer]); ++i) {
        node->back[first + i] = msg->rows[i];
    }
    kvcl_ep_turn_rows(&node->turn, peer);
}

/* A message that this rank can use now. */
static bool deliver(node_t *node, msg_t *msg)
{
    const unsigned peer = msg->from, kind = msg->kind;

    if (msg->ack) {
        if ((node->send_id[kind][peer] == msg->id) && kvcl_ep_turn_active(&node->turn, peer) && node->in_call) {
            node->send_id[kind][peer] = 0;
            kvcl_ep_turn_sent(&node->turn, peer);
        }
        return true;
    }
    if (!node->in_call || !node->takes[kind][peer] || (node->take_tag[kind][peer] != msg->tag)) {
        return false;
    }
    if ((kind == WORD) && (msg->call != 0)) {
        kvcl_ep_turn_beat(&node->turn, peer, msg->call, sim.now);
        return true;
    }
    node->takes[kind][peer] = false;
    if (kind == WORD) {
        kvcl_ep_turn_lose(&node->turn, peer, KVCL_ERR_STALE);
        return true;
    }
    sim.msgs[sim.n_msgs]      = (msg_t){.from = node->dims.self, .to = peer, .kind = kind, .ack = true, .id = msg->id,
                                        .at = sim.now + 1 + below(DELAY)};
    ++sim.n_msgs;
    if (kind == NOTICE) {
        take_notice(node, peer, msg);
    } else {
        take_rows(node, peer, msg);
    }
    return true;
}

static void check_dispatch(const node_t *node)
{
    const node_t   *from;
    const uint32_t *blocks;
    uint32_t       r, i, first;

    for (r = 0; r < sim.n; ++r) {
        from   = &sim.nodes[r];
        blocks = kvcl_ep_inbox_blocks(&node->inbox, &node->dims, r);
        first  = kvcl_ep_route_first(&from->route, &from->dims, node->dims.self);
        for (i = 0; kvcl_ep_turn_active(&node->turn, r) && (i < node->inbox.n_from[r]); ++i) {
            if ((from->turn.step != node->turn.step) || /* it cannot be elsewhere: this rank has not combined */
                (node->in[blocks[i]] != row_of(r, node->turn.step, from->route.tokens[first + i],
                                               slot_of(from, first + i))) ||
                ((blocks[i] / node->dims.rows) + (node->dims.self * LOCAL) != (node->in[blocks[i]] & 0xffff))) {
                wrong("OwnStep", node, r);
                return;
            }
        }
    }
}

static void check_combine(const node_t *node)
{
    uint32_t i, rank, slot;
    bool     counts;

    for (i = 0; i < ROWS; ++i) {
        if (node->route.place[i] >= KVCL_EP_ROW_LOST) {
            if (!sim.happened) {
                wrong("AllRows", node, 0);
            }
            continue;
        }
        slot   = slot_of(node, node->route.place[i]);
        rank   = slot / LOCAL;
        counts = (sim.broken == BREAK_COUNT_LOST) || node->peers[rank].back;
        if (rank == node->dims.self) {
            continue;
        }
        if (!counts && (!sim.happened || (sim.fault == TWICE) || (sim.fault == STOP_SHORT))) {
            wrong("AllRows", node, rank);
        }
        if (counts && (node->back[node->route.place[i]] != row_of(node->dims.self, node->turn.step, i / TOP_K, slot))) {
            wrong("OwnStep", node, rank);
        }
    }
}

static void begin_step(node_t *node)
{
    int32_t  active[RANKS];
    uint32_t r, i;

    for (i = 0; i < ROWS; ++i) {
        node->ids[i] = (int64_t)below(node->dims.slots);
        if ((i % TOP_K == 1) && (node->ids[i] == node->ids[i - 1])) {
            node->ids[i] = (node->ids[i] + 1) % node->dims.slots;
        }
    }
    for (r = 0; r < sim.n; ++r) {
        active[r] = kvcl_ep_turn_active(&node->turn, r);
    }
    kvcl_ep_route_make(&node->route, &node->dims, node->ids, TOKENS, TOP_K, active);
    kvcl_ep_inbox_clear(&node->inbox, &node->dims);
    for (r = 0; r < sim.n; ++r) {
        node->rows_to[r] = kvcl_ep_route_rows(&node->route, &node->dims, r);
    }
    kvcl_ep_turn_dispatch(&node->turn, node->rows_to, sim.now, DEADLINE);
}

/* Begin the next call, or end the one in progress. */
static void act(node_t *node)
{
    unsigned r;

    if (node->in_call) {
        if (!kvcl_ep_turn_is_over(&node->turn) && (sim.now >= node->ticks)) {
            node->ticks = kvcl_ep_turn_tick(&node->turn, sim.now);
        }
        if (!kvcl_ep_turn_is_over(&node->turn)) {
            return;
        }
        if (sim.now - node->begun >
            ((uint64_t)KVCL_EP_LIMITS * DEADLINE) + ((node->dims.self == sim.victim) ? LONG : 1)) {
            wrong("Ends", node, 0);
        }
        if (node->turn.phase == KVCL_EP_DISPATCH) {
            check_dispatch(node);
        } else {
            check_combine(node);
        }
        kvcl_ep_turn_end(&node->turn);
        node->in_call = false;
        node->wakes   = sim.now + below(COMPUTE);
        return;
    }
    if ((node->turn.step == STEPS) && (node->turn.phase == KVCL_EP_IDLE)) {
        return;
    }
    for (r = 0; r < sim.n; ++r) {
        if (sim.nodes[r].proven && kvcl_ep_turn_active(&node->turn, r)) {
            kvcl_ep_turn_lose(&node->turn, r, KVCL_ERR_RANK_FAILED);
        }
    }
    node->in_call = true;
    node->begun   = sim.now;
    node->ticks   = sim.now;
    if (node->turn.phase == KVCL_EP_IDLE) {
        begin_step(node);
    } else {
        kvcl_ep_turn_combine(&node->turn, sim.now, DEADLINE);
    }
}

static void tick(void)
{
    unsigned i, end = sim.n_msgs, r;
    node_t   *node;

    for (i = 0; i < end; ++i) {
        node = &sim.nodes[sim.msgs[i].to];
        if (!sim.msgs[i].used && (sim.msgs[i].at <= sim.now) && !node->dead && (node->wakes <= sim.now)) {
            sim.msgs[i].used = deliver(node, &sim.msgs[i]);
        }
    }
    for (i = 0; i < sim.n; ++i) {
        node = &sim.nodes[i];
        if (node->dead && (sim.fault == DIE_PROVEN) && !node->proven && (below(PROOF) == 0)) {
            node->proven = true;
            for (r = 0; r < sim.n; ++r) {
                if ((r != i) && sim.nodes[r].in_call) {
                    kvcl_ep_turn_lose(&sim.nodes[r].turn, i, KVCL_ERR_RANK_FAILED);
                }
            }
        }
        if (!node->dead && (node->wakes <= sim.now)) {
            act(node);
        }
    }
}

/* ---- a case ---- */

static void init(node_t *node, unsigned rank)
{
    kvcl_ep_open_params_t p = KVCL_EP_OPEN_PARAMS_INIT;
    unsigned              r;

    p.slots      = sim.n * LOCAL;
    p.max_tokens = TOKENS;
    p.top_k      = TOP_K;
    p.hidden     = 1;
    *node        = (node_t){0};
    if ((kvcl_ep_dims_take(&p, sim.n, rank, &node->dims) != KVCL_OK) ||
        (kvcl_ep_route_init(&node->route, &node->dims) != KVCL_OK) ||
        (kvcl_ep_inbox_init(&node->inbox, &node->dims) != KVCL_OK)) {
        exit(1);
    }
    kvcl_ep_turn_init(&node->turn, sim.n, rank, node->peers, &acts, node);
    kvcl_ep_turn_activate(&node->turn, 7, NULL);
    for (r = 0; r < sim.n; ++r) {
        take(node, r, WORD, tag_of(node, KVCL_EP_TAG_WORD));
    }
    node->wakes = below(COMPUTE);
}

static bool is_over(void)
{
    unsigned i;

    for (i = 0; i < sim.n; ++i) {
        if (!sim.nodes[i].dead && ((sim.nodes[i].turn.step < STEPS) || (sim.nodes[i].turn.phase != KVCL_EP_IDLE))) {
            return false;
        }
    }
    return true;
}

/* Case: ranks, fault, victim, message. False: no such case. */
static bool run(uint64_t number)
{
    /* The victim waits once itself; the others once for it: 2 deadlines each suffice, if they are told. */
    const uint64_t most = (3 * DEADLINE) + LONG + ((uint64_t)STEPS * 2 * (COMPUTE + (4 * DELAY)));
    unsigned       i;

    sim.seed   = number;
    sim.index  = (unsigned)(number % INDICES);
    sim.fault  = (unsigned)(number / INDICES % FAULTS);
    sim.victim = (unsigned)(number / INDICES / FAULTS % RANKS);
    sim.n      = 2 + (unsigned)(number / INDICES / FAULTS / RANKS % (RANKS - 1));
    if (sim.victim >= sim.n) {
        return false;
    }
    sim.now = sim.ids = sim.sent = sim.n_msgs = sim.bad = 0;
    sim.happened = false;
    kvcl_rand_seed(&sim.rnd, number);
    for (i = 0; i < sim.n; ++i) {
        init(&sim.nodes[i], i);
    }
    while (!is_over() && (sim.now < most) && (sim.bad == 0)) {
        ++sim.now;
        tick();
    }
    if ((sim.bad == 0) && !is_over()) {
        wrong("Told", &sim.nodes[0], 0);
    }
    for (i = 0; i < sim.n; ++i) {
        kvcl_ep_route_fini(&sim.nodes[i].route);
        kvcl_ep_inbox_fini(&sim.nodes[i].inbox);
    }
    return true;
}

int main(int argc, char **argv)
{
    const uint64_t all  = (uint64_t)INDICES * FAULTS * RANKS * (RANKS - 1);
    sim_args_t     args = {.first = 0, .seeds = all};
    uint64_t       i, cases = 0, bad = 0;

    if (!sim_args_take(&args, argc, argv, "sim_ep", breaks, BREAKS)) {
        return 2;
    }
    sim.broken = args.broken;
    for (i = args.first; (i < args.first + args.seeds) && (bad < 3); ++i) {
        if (run(i)) {
            ++cases;
            bad += (sim.bad != 0);
        }
    }
    printf("%" PRIu64 " cases, %" PRIu64 " wrong (%s)\n", cases, bad, breaks[sim.broken]);
    return (bad == 0) ? 0 : 1;
}
