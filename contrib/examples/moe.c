/*
 * A mixture-of-experts model on some ranks, any of which may be killed: the others go on in the same layer without it,
 * restore its experts, and every output of a token that lost nothing equals that of a model in one process, bit by bit.
 *
 *   moe --ranks 8                      in one terminal: it starts the ranks, and prints their processes and a line a
 *                                      second. SECONDS: --seconds; otherwise until Ctrl-C
 *   kill -9 PID                        in another one: the lines go on
 *   moe --join ADDRESS[,ADDRESS...]    one process comes in the place of a killed rank, and gets experts
 *   moe [--steps N] [--kill RANK]      RANK kills itself in the middle of a layer, halfway; says how long that took
 *
 * Alone it is a test: 4 ranks, 60 steps, rank 2 is killed. Exit status 0: no output was wrong.
 *
 * The order of a serving engine: choose experts (its router), kvcl_ep_choose (their slots), kvcl_ep_dispatch, compute,
 * kvcl_ep_combine, for each layer. After each step the ranks agree who took part in it (kvcl_comm_agree). When a rank
 * is gone they repair the placement, restore what is lost, and activate the new map. Until then tokens go to the copies
 * that live, or lack a weight, which is counted.
 *
 * A process that joins waits (KVCL_JOIN_WAITS) until one waits in the place of each killed rank. Then a member
 * activates them (kvcl_comm_activate), and they take part in the agreements. When all ranks agree that all are members,
 * all open the experts' handle and the store anew, and the new ones fetch their experts from the others. A rank that is
 * killed in the fraction of a second which that takes ends the program.
 */
#include "moe_watch.h"

#include <kvcl/kvcl.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOTS_MAX = 3 * EXPERTS + RANKS_MAX };
/* In what the ranks agree on, beside a bit for each rank. */
#define GO_ON (UINT64_C(1) << 63)
#define WHOLE (UINT64_C(1) << 62) /* all ranks are members */
#define RANKS ((UINT64_C(1) << RANKS_MAX) - 1)

typedef struct model {
    kvcl_context_h    ctx;
    kvcl_comm_h       world;
    kvcl_ep_h         ep;
    kvcl_store_h      store;
    kvcl_ep_params_t  params;
    kvcl_ep_weights_t weights;
    kvcl_cache_h      cache;
    kvcl_comm_h       comm;   /* of the handle and the store: made anew when processes have joined */
    uint64_t          number; /* of the activation */
    uint64_t          mask;   /* of the ranks that the map is for */
    uint64_t          all;    /* of all ranks */
    uint64_t          waiting; /* of those in whose places processes wait */
    uint8_t           active[RANKS_MAX];
    int32_t           placement[LAYERS * SLOTS_MAX];
    uint64_t          sums[LAYERS * EXPERTS];
    kvcl_key_t        keys[LAYERS * EXPERTS];
    unsigned          rank, ranks, per; /* per: slots of a rank */
    shared_t          *shared;
    shown_t           *shown;
} model_t;

static void must(kvcl_status_t posted, const kvcl_req_h *req)
{
    KVCL_TRY(posted);
    KVCL_TRY(kvcl_req_wait(*req, KVCL_WAIT_FOREVER));
}

/* ---- a step ---- */

static const float *weights_of(const model_t *m, unsigned layer, unsigned local)
{
    return (const float *)kvcl_cache_base(m->cache, 0) + ((size_t)((layer * m->per) + local) * HIDDEN * HIDDEN);
}

static void compute(const model_t *m, unsigned layer, const kvcl_ep_batch_t *batch)
{
    unsigned e, row;

    for (e = 0; e < batch->experts; ++e) {
        for (row = 0; row < batch->counts[e]; ++row) {
            const size_t at = (((size_t)e * batch->rows) + row) * HIDDEN;

            run_expert(weights_of(m, layer, e), (const float *)batch->x + at, (float *)batch->y + at);
        }
    }
}

/* One layer; x becomes its output. */
static void run_layer(model_t *m, unsigned step, unsigned layer, float x[TOKENS][HIDDEN], bool *lacks, bool die)
{
    static float    out[TOKENS][HIDDEN], weights[TOKENS][TOP_K], lost[TOKENS];
    int64_t         ids[TOKENS][TOP_K];
    kvcl_ep_batch_t batch = KVCL_EP_BATCH_INIT;
    const uint64_t  began = now_ns();
    unsigned        t, i;

    for (t = 0; t < TOKENS; ++t) {
        route(m->rank, step, layer, t, ids[t], weights[t]);
    }
    KVCL_TRY(kvcl_ep_choose(m->ep, layer, ids[0], TOKENS, TOP_K, ids[0]));
    KVCL_TRY(kvcl_ep_dispatch(m->ep, x, ids[0], TOKENS, TOP_K, &batch));
    compute(m, layer, &batch);
    if (die) {
        atomic_store(&m->shared->killed_ns, now_ns());
        raise(SIGKILL);
    }
    KVCL_TRY(kvcl_ep_combine(m->ep, NULL, weights[0], out, lost, NULL));
    for (t = 0; t < TOKENS; ++t) {
        lacks[t] = lacks[t] || (lost[t] != 0.0f);
        atomic_fetch_add(&m->shown->lost_ppm, (uint64_t)(lost[t] * 1e6f / LAYERS));
        for (i = 0; i < HIDDEN; ++i) {
            x[t][i] += out[t][i];
        }
    }
    if ((atomic_load(&m->shared->killed_ns) != 0) && (began > atomic_load(&m->shared->killed_ns)) &&
        (atomic_load(&m->shown->next_ns) == 0)) {
        atomic_store(&m->shown->next_ns, now_ns());
    }
}

static void step(model_t *m, unsigned number, bool die)
{
    static float x[TOKENS][HIDDEN], right[HIDDEN];
    bool         lacks[TOKENS] = {false};
    unsigned     layer, t;

    for (t = 0; t < TOKENS; ++t) {
        make_token(x[t], m->rank, number, t);
    }
    for (layer = 0; layer < LAYERS; ++layer) {
        run_layer(m, number, layer, x, lacks, die && (layer == 1));
    }
    for (t = 0; t < TOKENS; ++t) {
        oracle(m->rank, number, t, right);
        if (!lacks[t] && (memcmp(right, x[t], sizeof(right)) != 0)) {
            atomic_fetch_add(&m->shown->wrong, 1);
        }
    }
    atomic_fetch_add(&m->shown->tokens, TOKENS);
    atomic_store(&m->shown->steps, number);
}

/* ---- after a step ---- */

/* The ranks that have taken part, as this one has seen it; WHOLE, if no other one has failed since the map was made.
 * One that has joined, and has no experts yet, says that it has not. */
static uint64_t seen(const model_t *m)
{
    uint64_t      flags = m->all & ~(UINT64_C(1) << m->rank), members = 0;
    unsigned char active[RANKS_MAX];
    unsigned      r;

    KVCL_TRY(kvcl_comm_active(m->world, active, (int)m->ranks, NULL));
    for (r = 0; r < m->ranks; ++r) {
        members |= (active[r] != 0) ? UINT64_C(1) << r : 0;
    }
    if (m->ep == NULL) {
        return flags | ((members == m->all) ? WHOLE : 0);
    }
    for (r = 0, flags = 0; r < m->ranks; ++r) {
        flags |= (kvcl_ep_mask(m->ep)->active[r] != 0) ? UINT64_C(1) << r : 0;
    }
    return (flags & members) | (((members == m->all) && (flags == m->mask)) ? WHOLE : 0);
}

/* What all living ranks have seen; of `may` where all say so: the same at all. Also a barrier. */
static uint64_t agree(model_t *m, uint64_t may)
{
    uint64_t      flags = seen(m);
    kvcl_status_t status;
    int           n;

    flags = (flags & RANKS) | (flags & may & WHOLE) | (may & GO_ON);
    KVCL_TRY(kvcl_comm_get_failed(m->world, NULL, 0, &n));
    KVCL_TRY(kvcl_comm_ack_failed(m->world, n, NULL));
    status = kvcl_comm_agree(m->world, &flags, KVCL_WAIT_DEFAULT);
    if (status != KVCL_ERR_RANK_FAILED) { /* agreed, and a rank has died since: the next step finds out */
        KVCL_TRY(status);
    }
    if ((m->ep != NULL) && ((flags & (UINT64_C(1) << m->rank)) == 0)) {
        fprintf(stderr, "rank %u was skipped by the others\n", m->rank);
        exit(2);
    }
    atomic_store(&m->shown->view, kvcl_comm_view(m->world));
    atomic_store(&m->shown->alive, (uint64_t)__builtin_popcountll(flags & RANKS));
    return flags;
}

/* Fetches what this rank's slots get by the placement, from the ranks that have it by the present one. @return the
 * ranks that have agreed; GO_ON: nothing is missing anywhere. Until kvcl_ep_settle the old map serves. */
static uint64_t fetch(model_t *m, const int32_t *next, kvcl_ep_move_t *moves, uint32_t *blocks, size_t *n_p)
{
    size_t missing;

    KVCL_TRY(kvcl_ep_moves(&m->params, m->placement, next, moves, sizeof(moves[0]), LAYERS * SLOTS_MAX, n_p, NULL));
    if (kvcl_ep_restore(&m->params, &m->weights, m->placement, moves, sizeof(moves[0]), *n_p, blocks, &missing) !=
        KVCL_OK) {
        fprintf(stderr, "rank %u: %s\n", m->rank, kvcl_last_error());
    }
    return agree(m, (missing == 0) ? GO_ON : 0); /* nobody reads slots any more */
}

static void use(model_t *m, const int32_t *next, const kvcl_ep_move_t *moves, const uint32_t *blocks, size_t n,
                uint64_t mask)
{
    KVCL_TRY(kvcl_ep_settle(&m->params, &m->weights, moves, sizeof(moves[0]), n, blocks));
    KVCL_TRY(kvcl_ep_activate(m->ep, ++m->number, &m->params, next));
    memcpy(m->placement, next, sizeof(m->placement));
    m->mask = mask;
}

/* Repair first; an engine computes a new placement in the background afterwards. Again if one more dies meanwhile. */
static void repair(model_t *m, uint64_t mask)
{
    static kvcl_ep_move_t moves[LAYERS * SLOTS_MAX];
    static uint32_t       blocks[LAYERS * SLOTS_MAX];
    int32_t               repaired[LAYERS * SLOTS_MAX];
    size_t                n, lost;
    uint64_t              left = mask;
    unsigned              r, tries = 0;

    m->params.flags = KVCL_EP_HOLES;
    do {
        mask = left & RANKS;
        for (r = 0; r < m->ranks; ++r) {
            m->active[r] = (uint8_t)((mask >> r) & 1);
        }
        KVCL_TRY(kvcl_ep_repair(&m->params, m->placement, repaired, &lost, NULL));
        left = fetch(m, repaired, moves, blocks, &n);
    } while (((left & RANKS) != mask) || (((left & GO_ON) == 0) && (++tries < 5)));
    if ((left & GO_ON) == 0) {
        fprintf(stderr, "rank %u: experts are lost for good\n", m->rank);
        exit(1);
    }
    use(m, repaired, moves, blocks, n, mask);
    atomic_store(&m->shown->restored, lost);
    atomic_store(&m->shown->restored_ns, now_ns());
}

/* ---- a rank ---- */

/* Sums and keys of all experts. */
static void know(model_t *m)
{
    static float w[HIDDEN * HIDDEN];
    char         name[40];
    uint32_t     i;

    for (i = 0; i < LAYERS * EXPERTS; ++i) {
        make_expert(w, i / EXPERTS, i % EXPERTS);
        KVCL_TRY(kvcl_cache_write_block(m->cache, LAYERS * m->per, w, BYTES));
        KVCL_TRY(kvcl_ep_weights_sum(m->cache, LAYERS * m->per, &m->sums[i]));
        snprintf(name, sizeof(name), "moe: expert %u of layer %u", i % EXPERTS, i / EXPERTS);
        kvcl_key_from_string(name, strlen(name), &m->keys[i]);
    }
    m->weights.cache = m->cache;
    m->weights.sums  = m->sums;
    m->weights.keys  = m->keys;
}

/* What the ranks open together; all experts are in the store, each put by one rank. */
static void open_all(model_t *m)
{
    static float          w[HIDDEN * HIDDEN];
    kvcl_ep_open_params_t p     = KVCL_EP_OPEN_PARAMS_INIT;
    kvcl_store_params_t   store = KVCL_STORE_PARAMS_INIT;
    int                   ranks[RANKS_MAX];
    uint32_t              spare = LAYERS * m->per, i;
    kvcl_req_h            req;

    for (i = 0; i < m->ranks; ++i) {
        ranks[i]     = (int)i;
        m->active[i] = 1;
    }
    KVCL_TRY(kvcl_comm_create(m->world, ranks, (int)m->ranks, &m->comm));
    store.dram_bytes  = LAYERS * EXPERTS * BYTES;
    store.block_bytes = BYTES;
    store.replicas    = 2;
    KVCL_TRY(kvcl_store_open(m->comm, &store, &m->store));
    for (i = m->rank; i < LAYERS * EXPERTS; i += m->ranks) {
        make_expert(w, i / EXPERTS, i % EXPERTS);
        KVCL_TRY(kvcl_cache_write_block(m->cache, spare, w, BYTES));
        must(kvcl_store_put(m->store, &m->keys[i], 1, m->cache, &spare, NULL, &req), &req);
    }
    m->weights.comm  = m->comm;
    m->weights.store = m->store;
    p.slots          = m->params.slots;
    p.max_tokens     = TOKENS;
    p.top_k          = TOP_K;
    p.hidden         = HIDDEN;
    p.dtype          = KVCL_DTYPE_F32;
    KVCL_TRY(kvcl_ep_open(m->comm, &p, &m->ep));
}

static void close_all(model_t *m)
{
    kvcl_ep_close(m->ep);
    kvcl_store_close(m->store);
    kvcl_comm_free(m->comm);
    m->ep    = NULL;
    m->store = NULL;
    m->comm  = NULL;
}

static void place(const model_t *m, int32_t *placement)
{
    uint64_t loads[LAYERS * EXPERTS];
    uint32_t i;

    for (i = 0; i < LAYERS * EXPERTS; ++i) {
        loads[i] = 100 + ((i * 37) % 200);
    }
    KVCL_TRY(kvcl_ep_place(&m->params, loads, placement));
}

static void show_address(model_t *m)
{
    size_t len;

    if (kvcl_join_address(m->ctx, m->shown->address, sizeof(m->shown->address), &len) == KVCL_OK) {
        atomic_store(&m->shown->has_address, 1);
    }
}

/* This rank, and what it has alone. */
static void begin(model_t *m)
{
    kvcl_layout_t layout;

    KVCL_TRY(kvcl_init(NULL, &m->ctx));
    KVCL_TRY(kvcl_comm_world(m->ctx, &m->world));
    m->rank           = (unsigned)kvcl_comm_rank(m->world);
    m->ranks          = (unsigned)kvcl_comm_size(m->world);
    m->all            = (UINT64_C(1) << m->ranks) - 1;
    m->per            = ((3 * EXPERTS) + m->ranks - 1) / m->ranks;
    m->params.layers  = LAYERS;
    m->params.experts = EXPERTS;
    m->params.slots   = m->per * m->ranks;
    m->params.ranks   = m->ranks;
    m->params.active  = m->active;
    layout            = (kvcl_layout_t)KVCL_LAYOUT_BYTES(2 * LAYERS * m->per, BYTES);
    KVCL_TRY(kvcl_cache_create(m->ctx, "experts", &layout, NULL, &m->cache));
    know(m);
    show_address(m);
    atomic_store(&m->shown->ranks, m->ranks);
}

/* At the start each rank makes the experts of its slots. */
static void load(model_t *m)
{
    static float w[HIDDEN * HIDDEN];
    uint32_t     i;

    open_all(m);
    place(m, m->placement);
    for (i = 0; i < LAYERS * m->per; ++i) {
        make_expert(w, i / m->per,
                    (unsigned)m->placement[((i / m->per) * m->params.slots) + (m->rank * m->per) + (i % m->per)]);
        KVCL_TRY(kvcl_cache_write_block(m->cache, i, w, BYTES));
    }
    KVCL_TRY(kvcl_ep_activate(m->ep, ++m->number, &m->params, m->placement));
    m->mask = m->all;
}

/* ---- processes that join ---- */

/* The lowest rank activates those that wait, when one waits in the place of each killed rank. */
static void let_in(model_t *m)
{
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    kvcl_event_t              event  = KVCL_EVENT_INIT;
    int                       ranks[RANKS_MAX], n = 0;
    unsigned                  r;

    while (kvcl_event_next(m->ctx, &event) == KVCL_OK) {
        m->waiting |= (event.type == KVCL_EVENT_WAITING) ? event.ranks[0] : 0;
        m->waiting &= (event.type == KVCL_EVENT_JOINED) ? ~event.ranks[0] : UINT64_MAX;
    }
    if ((m->mask == m->all) || ((m->waiting | m->mask) != m->all) ||
        ((m->mask & ((UINT64_C(1) << m->rank) - 1)) != 0)) {
        return;
    }
    for (r = 0; r < m->ranks; ++r) {
        if (((m->mask >> r) & 1) == 0) {
            ranks[n++] = (int)r;
        }
    }
    if (kvcl_comm_activate(m->world, ranks, n, KVCL_WAIT_DEFAULT, &result) == KVCL_OK) {
        m->waiting &= ~result.dropped[0];
    }
}

/* All ranks are members. Those that have experts, named by had, tell the others what they need to know. */
static void take_in(model_t *m, uint64_t had, unsigned *step)
{
    static kvcl_ep_move_t moves[LAYERS * SLOTS_MAX];
    static uint32_t       blocks[LAYERS * SLOTS_MAX];
    int32_t               next[LAYERS * SLOTS_MAX];
    uint64_t              told[2] = {m->number, *step};
    const int             root    = __builtin_ctzll(had);
    size_t                n;
    kvcl_req_h            req;

    close_all(m);
    open_all(m);
    must(kvcl_bcast_bytes(m->comm, root, told, sizeof(told), NULL, &req), &req);
    must(kvcl_bcast_bytes(m->comm, root, m->placement, sizeof(m->placement), NULL, &req), &req);
    m->number = told[0];
    *step     = (unsigned)told[1];
    place(m, next);
    m->params.flags = 0;
    if (fetch(m, next, moves, blocks, &n) != (m->all | GO_ON)) {
        fprintf(stderr, "rank %u: the experts of a rank that has joined are not there\n", m->rank);
        exit(1);
    }
    use(m, next, moves, blocks, n, m->all);
}

/* ---- a rank ---- */

static int live(const plan_t *plan, shared_t *shared, shown_t *shown)
{
    model_t  m = {.shared = shared, .shown = shown, .params = KVCL_EP_PARAMS_INIT, .weights = KVCL_EP_WEIGHTS_INIT};
    uint64_t end_ns, all = GO_ON;
    unsigned i;

    begin(&m);
    if (plan->join != NULL) {
        KVCL_TRY(kvcl_comm_sync(m.world, KVCL_WAIT_FOREVER, NULL)); /* until a member has activated this process */
    } else {
        load(&m);
        (void)agree(&m, 0);
    }
    end_ns = now_ns() + (plan->seconds * UINT64_C(1000000000));
    for (i = 1; ((all & GO_ON) != 0) && ((plan->steps == 0) || (i <= plan->steps)); ++i) {
        if (m.ep != NULL) {
            step(&m, i, ((int)m.rank == plan->kill) && (i == plan->steps / 2));
            let_in(&m);
        }
        all = agree(&m, WHOLE | (((atomic_load(&shared->stop) == 0) &&
                                  ((plan->seconds == 0) || (now_ns() < end_ns))) ? GO_ON : 0));
        if (((all & WHOLE) != 0) && ((all & RANKS) != m.all)) {
            take_in(&m, all & RANKS, &i);
        } else if ((m.ep != NULL) && ((all & RANKS) != m.mask)) {
            repair(&m, all & RANKS);
        }
    }
    (void)agree(&m, 0); /* nobody leaves before the others are done */
    close_all(&m);
    kvcl_cache_destroy(m.cache);
    kvcl_finalize(m.ctx);
    return (atomic_load(&m.shown->wrong) == 0) ? 0 : 1;
}

/* ---- starting, which a launcher would do, and watching ---- */

static int free_port(void)
{
    struct sockaddr_in at  = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len = sizeof(at);
    int                fd  = socket(AF_INET, SOCK_STREAM, 0), port = 0;

    if ((fd >= 0) && (bind(fd, (struct sockaddr *)&at, len) == 0) &&
        (getsockname(fd, (struct sockaddr *)&at, &len) == 0)) {
        port = ntohs(at.sin_port);
    }
    close(fd);
    return port;
}

static pid_t start(unsigned rank, const plan_t *plan, shared_t *shared)
{
    char        text[16];
    const pid_t pid = fork();
    int         status;

    if (pid != 0) {
        return pid;
    }
    if (plan->join == NULL) {
        snprintf(text, sizeof(text), "%u", rank);
        setenv("KVCL_RANK", text, 1);
    }
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches all processes: the first one tells the ranks */
    signal(SIGTERM, SIG_DFL);
    status = live(plan, shared, &shared->ranks[rank]);
    fflush(stdout);
    _exit(status);
}

static _Atomic int *stop_flag;

static void stop(int number)
{
    (void)number;
    atomic_store(stop_flag, 1);
}

/* @return whether the arguments are understood. */
static bool parse(int argc, char **argv, plan_t *plan)
{
    int i;

    for (i = 1; i + 1 < argc; i += 2) {
        const long n = strtol(argv[i + 1], NULL, 10);

        if ((strcmp(argv[i], "--ranks") == 0) && (n >= 2) && (n <= RANKS_MAX)) {
            plan->ranks = (unsigned)n;
        } else if ((strcmp(argv[i], "--steps") == 0) && (n >= 4)) {
            plan->steps = (unsigned)n;
        } else if ((strcmp(argv[i], "--seconds") == 0) && (n >= 1)) {
            plan->seconds = (unsigned)n;
        } else if (strcmp(argv[i], "--join") == 0) {
            plan->join  = argv[i + 1];
            plan->ranks = 1;
        } else if ((strcmp(argv[i], "--kill") == 0) && (n >= 0) && (n < RANKS_MAX)) {
            plan->kill = (int)n;
        } else {
            return false;
        }
    }
    if (argc == 1) {
        *plan = (plan_t){4, 60, 0, 2, NULL};
    }
    if ((plan->kill >= 0) && (plan->steps == 0)) {
        plan->steps = 60;
    }
    return (i == argc) && (plan->kill < (int)plan->ranks) && ((plan->join == NULL) || (argc == 3));
}

int main(int argc, char **argv)
{
    shared_t *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plan_t   plan    = {4, 0, 0, -1, NULL};
    char     text[64];
    pid_t    pids[RANKS_MAX];
    unsigned r;
    int      bad;

    if ((shared == MAP_FAILED) || !parse(argc, argv, &plan)) {
        fprintf(stderr, "usage: moe [--ranks 2..%d] [--seconds N] [--steps N, at least 4] [--kill RANK]\n"
                "       moe --join ADDRESS[,ADDRESS...]\n", RANKS_MAX);
        return 2;
    }
    setenv("KVCL_VIEWS", "yes", 1);
    setenv("KVCL_JOIN_AT", "127.0.0.1:0", 1);
    setenv("KVCL_JOIN_WAITS", "yes", 1);
    if (plan.join != NULL) {
        setenv("KVCL_JOIN", plan.join, 1);
    } else {
        snprintf(text, sizeof(text), "tcp://127.0.0.1:%d", free_port());
        setenv("KVCL_RENDEZVOUS", text, 1);
        snprintf(text, sizeof(text), "%u", plan.ranks);
        setenv("KVCL_SIZE", text, 1);
        stop_flag = &shared->stop;
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
    }
    for (r = 0; r < plan.ranks; ++r) {
        pids[r] = start(r, &plan, shared);
        if (plan.steps == 0) {
            if (plan.join == NULL) {
                printf("rank %u: ", r);
            }
            printf("pid %d\n", (int)pids[r]);
            fflush(stdout);
        }
    }
    bad = watch(pids, &plan, shared);
    print_end(shared, &plan);
    printf("%s\n", (bad == 0) ? "all ranks that lived were right" : "FAILED");
    return (bad == 0) ? 0 : 1;
}
