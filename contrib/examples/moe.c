/*
 * A mixture-of-experts model on some ranks, any of which may be killed: the others go on in the same layer without it,
 * restore its experts, and every output of a token that lost nothing equals that of a model in one process, bit by bit.
 *
 *   moe --ranks 8                      in one terminal: it starts the ranks, and prints their processes and a line a
 *                                      second. SECONDS: --seconds; otherwise until Ctrl-C
 *   kill -9 PID                        in another one: the lines go on
 *   moe [--steps N] [--kill RANK]      RANK kills itself in the middle of a layer, halfway; says how long that took
 *
 * Alone it is a test: 4 ranks, 60 steps, rank 2 is killed. Exit status 0: no output was wrong.
 *
 * The order of a serving engine: choose experts (its router), kvcl_ep_choose (their slots), kvcl_ep_dispatch, compute,
 * kvcl_ep_combine, for each layer. After each step the ranks agree who took part in it (kvcl_comm_agree). When a rank
 * is gone they repair the placement, restore what is lost, and activate the new map. Until then tokens go to the copies
 * that live, or lack a weight, which is counted.
 */
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 16, LAYERS = 4, EXPERTS = 64, SLOTS_MAX = 3 * EXPERTS + RANKS_MAX };
enum { HIDDEN = 64, TOKENS = 16, TOP_K = 2, BYTES = HIDDEN * HIDDEN * (int)sizeof(float) };
#define GO_ON (UINT64_C(1) << 63) /* in what the ranks agree on, beside a bit for each rank */

/* What a rank shows to the process that has started it. */
typedef struct shown {
    _Atomic uint64_t steps, tokens, wrong, view, alive;
    _Atomic uint64_t lost_ppm;    /* the weight that tokens lacked, in millionths of a token */
    _Atomic uint64_t next_ns;     /* the first dispatch and combine after the kill have ended */
    _Atomic uint64_t restored_ns; /* the new map is active */
    _Atomic uint64_t restored;    /* experts that came back */
} shown_t;

/* Of all processes. */
typedef struct shared {
    _Atomic uint64_t killed_ns;
    shown_t          ranks[RANKS_MAX];
} shared_t;

typedef struct plan {
    unsigned ranks, steps, seconds; /* 0: no limit */
    int      kill;                  /* -1: none */
} plan_t;

typedef struct model {
    kvcl_context_h    ctx;
    kvcl_comm_h       world;
    kvcl_ep_h         ep;
    kvcl_store_h      store;
    kvcl_ep_params_t  params;
    kvcl_ep_weights_t weights;
    kvcl_cache_h      cache;
    uint64_t          number; /* of the activation */
    uint64_t          mask;   /* of the ranks that the map is for */
    uint8_t           active[RANKS_MAX];
    int32_t           placement[LAYERS * SLOTS_MAX];
    uint64_t          sums[LAYERS * EXPERTS];
    kvcl_key_t        keys[LAYERS * EXPERTS];
    unsigned          rank, ranks, per; /* per: slots of a rank */
    shared_t          *shared;
    shown_t           *shown;
} model_t;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_sec * UINT64_C(1000000000)) + (uint64_t)t.tv_nsec;
}

static void must(kvcl_status_t posted, const kvcl_req_h *req)
{
    KVCL_TRY(posted);
    KVCL_TRY(kvcl_req_wait(*req, KVCL_WAIT_FOREVER));
}

/* ---- the model: any numbers will do ---- */

static float number(uint64_t seed)
{
    seed = (seed + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ (seed >> 29)) * UINT64_C(0x94d049bb133111eb);
    return ((float)(seed >> 40) / (float)(1u << 23)) - 1.0f;
}

static void make_expert(float *w, unsigned layer, unsigned expert)
{
    unsigned i;

    for (i = 0; i < HIDDEN * HIDDEN; ++i) {
        w[i] = number(((uint64_t)(layer * EXPERTS + expert) << 32) + i) / 8.0f;
    }
}

/* One token through one expert: max(0, W x). */
static void run_expert(const float *w, const float *x, float *y)
{
    unsigned i, j;
    float    sum;

    for (i = 0; i < HIDDEN; ++i) {
        for (j = 0, sum = 0.0f; j < HIDDEN; ++j) {
            sum += w[(i * HIDDEN) + j] * x[j];
        }
        y[i] = (sum > 0.0f) ? sum : 0.0f;
    }
}

static void make_token(float *x, unsigned rank, unsigned step, unsigned t)
{
    unsigned i;

    for (i = 0; i < HIDDEN; ++i) {
        x[i] = number(((uint64_t)((step * RANKS_MAX) + rank) << 32) + (t * HIDDEN) + i + 77);
    }
}

static void route(unsigned rank, unsigned step, unsigned layer, unsigned t, int64_t *experts, float *weights)
{
    const uint64_t seed = ((uint64_t)((step * RANKS_MAX) + rank) << 32) + ((uint64_t)layer << 24) + (t * 8u);

    experts[0] = (int64_t)((number(seed) + 1.0f) / 2.0f * EXPERTS) % EXPERTS;
    experts[1] = (experts[0] + 1 + (int64_t)((number(seed + 1) + 1.0f) / 2.0f * (EXPERTS - 1))) % EXPERTS;
    weights[0] = 0.5f + (number(seed + 2) / 4.0f);
    weights[1] = 1.0f - weights[0];
}

/* The model in one process. */
static void oracle(unsigned rank, unsigned step, unsigned t, float *x)
{
    static float w[LAYERS * EXPERTS][HIDDEN * HIDDEN];
    static bool  made;
    float        y[TOP_K][HIDDEN], weights[TOP_K], sum;
    int64_t      experts[TOP_K];
    unsigned     layer, i, k;

    for (i = 0; !made && (i < LAYERS * EXPERTS); ++i) {
        make_expert(w[i], i / EXPERTS, i % EXPERTS);
    }
    made = true;
    make_token(x, rank, step, t);
    for (layer = 0; layer < LAYERS; ++layer) {
        route(rank, step, layer, t, experts, weights);
        for (k = 0; k < TOP_K; ++k) {
            run_expert(w[(layer * EXPERTS) + (unsigned)experts[k]], x, y[k]);
        }
        for (i = 0; i < HIDDEN; ++i) {
            for (k = 0, sum = 0.0f; k < TOP_K; ++k) {
                const volatile float product = weights[k] * y[k][i]; /* rounded, as the library's */

                sum += product;
            }
            x[i] += sum;
        }
    }
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

static void step(model_t *m, unsigned step, bool die)
{
    static float x[TOKENS][HIDDEN], right[HIDDEN];
    bool         lacks[TOKENS] = {false};
    unsigned     layer, t;

    for (t = 0; t < TOKENS; ++t) {
        make_token(x[t], m->rank, step, t);
    }
    for (layer = 0; layer < LAYERS; ++layer) {
        run_layer(m, step, layer, x, lacks, die && (layer == 1));
    }
    for (t = 0; t < TOKENS; ++t) {
        oracle(m->rank, step, t, right);
        if (!lacks[t] && (memcmp(right, x[t], sizeof(right)) != 0)) {
            atomic_fetch_add(&m->shown->wrong, 1);
        }
    }
    atomic_fetch_add(&m->shown->tokens, TOKENS);
    atomic_store(&m->shown->steps, step);
}

/* ---- after a step ---- */

/* The ranks that all living ones have seen take part, and GO_ON where all are to: the same at all. Also a barrier. */
static uint64_t agree(model_t *m, uint64_t flags)
{
    const kvcl_ep_mask_t *mask = kvcl_ep_mask(m->ep);
    uint64_t             view  = 0;
    unsigned char        members[RANKS_MAX];
    kvcl_status_t        status;
    unsigned             r;
    int                  n;

    KVCL_TRY(kvcl_comm_active(m->world, members, (int)m->ranks, &view));
    for (r = 0; r < m->ranks; ++r) {
        flags |= ((mask->active[r] != 0) && (members[r] != 0)) ? UINT64_C(1) << r : 0;
    }
    KVCL_TRY(kvcl_comm_get_failed(m->world, NULL, 0, &n));
    KVCL_TRY(kvcl_comm_ack_failed(m->world, n, NULL));
    status = kvcl_comm_agree(m->world, &flags, KVCL_WAIT_DEFAULT);
    if (status != KVCL_ERR_RANK_FAILED) { /* agreed, and a rank has died since: the next step finds out */
        KVCL_TRY(status);
    }
    if ((flags & (UINT64_C(1) << m->rank)) == 0) {
        fprintf(stderr, "rank %u was skipped by the others\n", m->rank);
        exit(2);
    }
    atomic_store(&m->shown->view, kvcl_comm_view(m->world));
    atomic_store(&m->shown->alive, (uint64_t)__builtin_popcountll(flags & ~GO_ON));
    return flags;
}

/* Repair first; an engine computes a new placement in the background afterwards. Again if one more dies meanwhile. */
static void repair(model_t *m, uint64_t mask)
{
    static kvcl_ep_move_t moves[LAYERS * SLOTS_MAX];
    static uint32_t       blocks[LAYERS * SLOTS_MAX];
    int32_t               repaired[LAYERS * SLOTS_MAX];
    size_t                n, missing, lost;
    uint64_t              left = mask;
    unsigned              r, tries = 0;

    m->params.flags = KVCL_EP_HOLES;
    do {
        mask = left;
        for (r = 0; r < m->ranks; ++r) {
            m->active[r] = (uint8_t)((mask >> r) & 1);
        }
        KVCL_TRY(kvcl_ep_repair(&m->params, m->placement, repaired, &lost, NULL));
        KVCL_TRY(kvcl_ep_moves(&m->params, m->placement, repaired, moves, sizeof(moves[0]), LAYERS * SLOTS_MAX, &n,
                               NULL));
        if (kvcl_ep_restore(&m->params, &m->weights, m->placement, moves, sizeof(moves[0]), n, blocks, &missing) !=
            KVCL_OK) {
            fprintf(stderr, "rank %u: %s\n", m->rank, kvcl_last_error());
        }
        left = agree(m, (missing == 0) ? GO_ON : 0); /* nobody reads slots any more */
    } while (((left & ~GO_ON) != mask) || (((left & GO_ON) == 0) && (++tries < 5)));
    if ((left & GO_ON) == 0) {
        fprintf(stderr, "rank %u: experts are lost for good\n", m->rank);
        exit(1);
    }
    KVCL_TRY(kvcl_ep_settle(&m->params, &m->weights, moves, sizeof(moves[0]), n, blocks));
    KVCL_TRY(kvcl_ep_activate(m->ep, ++m->number, &m->params, repaired));
    memcpy(m->placement, repaired, sizeof(repaired));
    m->mask = mask;
    atomic_store(&m->shown->restored, lost);
    atomic_store(&m->shown->restored_ns, now_ns());
}

/* ---- a rank ---- */

static void fill(model_t *m)
{
    static float w[HIDDEN * HIDDEN];
    uint32_t     spare = LAYERS * m->per, i, slots = m->params.slots;
    char         name[40];
    kvcl_req_h   req;

    for (i = 0; i < LAYERS * EXPERTS; ++i) { /* sums of all, and one rank puts each into the store */
        make_expert(w, i / EXPERTS, i % EXPERTS);
        KVCL_TRY(kvcl_cache_write_block(m->cache, spare, w, BYTES));
        KVCL_TRY(kvcl_ep_weights_sum(m->cache, spare, &m->sums[i]));
        snprintf(name, sizeof(name), "moe: expert %u of layer %u", i % EXPERTS, i / EXPERTS);
        kvcl_key_from_string(name, strlen(name), &m->keys[i]);
        if (i % m->ranks == m->rank) {
            must(kvcl_store_put(m->store, &m->keys[i], 1, m->cache, &spare, NULL, &req), &req);
        }
    }
    for (i = 0; i < LAYERS * m->per; ++i) {
        make_expert(w, i / m->per, (unsigned)m->placement[((i / m->per) * slots) + (m->rank * m->per) + (i % m->per)]);
        KVCL_TRY(kvcl_cache_write_block(m->cache, i, w, BYTES));
    }
}

static void load(model_t *m)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2 * LAYERS * m->per, BYTES);
    kvcl_store_params_t p      = KVCL_STORE_PARAMS_INIT;
    uint64_t            loads[LAYERS * EXPERTS];
    uint32_t            i;

    KVCL_TRY(kvcl_cache_create(m->ctx, "experts", &layout, NULL, &m->cache));
    p.dram_bytes  = LAYERS * EXPERTS * BYTES;
    p.block_bytes = BYTES;
    p.replicas    = 2;
    KVCL_TRY(kvcl_store_open(m->world, &p, &m->store));
    for (i = 0; i < LAYERS * EXPERTS; ++i) {
        loads[i] = 100 + ((i * 37) % 200);
    }
    KVCL_TRY(kvcl_ep_place(&m->params, loads, m->placement));
    fill(m);
    m->weights.comm  = m->world;
    m->weights.cache = m->cache;
    m->weights.sums  = m->sums;
    m->weights.store = m->store;
    m->weights.keys  = m->keys;
}

static void begin(model_t *m)
{
    kvcl_ep_open_params_t p = KVCL_EP_OPEN_PARAMS_INIT;

    KVCL_TRY(kvcl_init(NULL, &m->ctx));
    KVCL_TRY(kvcl_comm_world(m->ctx, &m->world));
    memset(m->active, 1, m->ranks);
    m->mask           = (UINT64_C(1) << m->ranks) - 1;
    m->per            = ((3 * EXPERTS) + m->ranks - 1) / m->ranks;
    m->params.layers  = LAYERS;
    m->params.experts = EXPERTS;
    m->params.slots   = m->per * m->ranks;
    m->params.ranks   = m->ranks;
    m->params.active  = m->active;
    p.slots           = m->params.slots;
    p.max_tokens      = TOKENS;
    p.top_k           = TOP_K;
    p.hidden          = HIDDEN;
    p.dtype           = KVCL_DTYPE_F32;
    load(m);
    KVCL_TRY(kvcl_ep_open(m->world, &p, &m->ep));
    KVCL_TRY(kvcl_ep_activate(m->ep, ++m->number, &m->params, m->placement));
}

static int live(unsigned rank, const plan_t *plan, shared_t *shared)
{
    model_t  m    = {.rank = rank, .ranks = plan->ranks, .shared = shared, .shown = &shared->ranks[rank],
                     .params = KVCL_EP_PARAMS_INIT, .weights = KVCL_EP_WEIGHTS_INIT};
    uint64_t end_ns, seen;
    unsigned i;

    begin(&m);
    (void)agree(&m, 0);
    end_ns = now_ns() + (plan->seconds * UINT64_C(1000000000));
    seen   = GO_ON;
    for (i = 1; ((seen & GO_ON) != 0) && ((plan->steps == 0) || (i <= plan->steps)); ++i) {
        step(&m, i, ((int)rank == plan->kill) && (i == plan->steps / 2));
        seen = agree(&m, ((plan->seconds == 0) || (now_ns() < end_ns)) ? GO_ON : 0);
        if ((seen & ~GO_ON) != m.mask) {
            repair(&m, seen & ~GO_ON);
        }
    }
    (void)agree(&m, 0); /* nobody leaves before the others are done */
    kvcl_ep_close(m.ep);
    kvcl_store_close(m.store);
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
    snprintf(text, sizeof(text), "%u", rank);
    setenv("KVCL_RANK", text, 1);
    status = live(rank, plan, shared);
    fflush(stdout);
    _exit(status);
}

/* A line of what all ranks have done since the one before it. */
static void print_line(const shared_t *shared, unsigned ranks)
{
    static uint64_t tokens, lost;
    uint64_t        all = 0, lacking = 0, wrong = 0;
    const shown_t   *first = &shared->ranks[0];
    unsigned        r;

    for (r = 0; r < ranks; ++r) {
        all     += atomic_load(&shared->ranks[r].tokens);
        lacking += atomic_load(&shared->ranks[r].lost_ppm);
        wrong   += atomic_load(&shared->ranks[r].wrong);
        first    = (atomic_load(&shared->ranks[r].steps) > atomic_load(&first->steps)) ? &shared->ranks[r] : first;
    }
    printf("step %6llu  view %llu  alive %llu of %u  %6llu tokens/s  lost %.4f of a token's weight  wrong %llu\n",
           (unsigned long long)atomic_load(&first->steps), (unsigned long long)atomic_load(&first->view),
           (unsigned long long)atomic_load(&first->alive), ranks, (unsigned long long)(all - tokens),
           (all > tokens) ? (double)(lacking - lost) / 1e6 / (double)(all - tokens) : 0.0, (unsigned long long)wrong);
    fflush(stdout);
    tokens = all;
    lost   = lacking;
}

/* What the death of a rank has cost the slowest of the others. */
static void print_kill(const shared_t *shared, const plan_t *plan)
{
    const uint64_t killed = atomic_load(&shared->killed_ns);
    uint64_t       next = 0, restored = 0, tokens = 0, wrong = 0, lacking = 0;
    unsigned       r;

    for (r = 0; r < plan->ranks; ++r) {
        const shown_t *shown = &shared->ranks[r];

        next     = (atomic_load(&shown->next_ns) > next) ? atomic_load(&shown->next_ns) : next;
        restored = (atomic_load(&shown->restored_ns) > restored) ? atomic_load(&shown->restored_ns) : restored;
        tokens  += atomic_load(&shown->tokens);
        lacking += atomic_load(&shown->lost_ppm);
        wrong   += atomic_load(&shown->wrong);
    }
    if (killed != 0) {
        printf("rank %d was killed in a step: the next dispatch and combine of all others ended %.1f ms later, %llu "
               "experts were restored and active after %.1f ms\n", plan->kill, (double)(next - killed) / 1e6,
               (unsigned long long)atomic_load(&shared->ranks[(plan->kill == 0) ? 1 : 0].restored),
               (double)(restored - killed) / 1e6);
    }
    printf("%llu tokens, the weight of %.2f was lost, wrong %llu\n", (unsigned long long)tokens, (double)lacking / 1e6,
           (unsigned long long)wrong);
}

/* Ranks that are killed are no failure; ranks that end otherwise are. */
static int watch(const pid_t *pids, const plan_t *plan, const shared_t *shared)
{
    const struct timespec nap = {0, 20000000};
    uint64_t              line_ns = now_ns();
    unsigned              left = plan->ranks, bad = 0, r;
    pid_t                 pid;
    int                   status;

    while (left > 0) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            for (r = 0; (r < plan->ranks) && (pids[r] != pid); ++r) {
            }
            left -= 1;
            bad  += WIFSIGNALED(status) ? (WTERMSIG(status) != SIGKILL) : (WEXITSTATUS(status) != 0);
            if (WIFSIGNALED(status) && (plan->kill < 0)) {
                printf("rank %u, pid %d, was killed\n", r, (int)pid);
            }
            continue;
        }
        nanosleep(&nap, NULL);
        if ((plan->steps == 0) && (now_ns() - line_ns >= UINT64_C(1000000000))) {
            line_ns += UINT64_C(1000000000);
            print_line(shared, plan->ranks);
        }
    }
    return (int)bad;
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
        } else if ((strcmp(argv[i], "--kill") == 0) && (n >= 0) && (n < RANKS_MAX)) {
            plan->kill = (int)n;
        } else {
            return false;
        }
    }
    if (argc == 1) {
        *plan = (plan_t){4, 60, 0, 2};
    }
    if ((plan->kill >= 0) && (plan->steps == 0)) {
        plan->steps = 60;
    }
    return (i == argc) && (plan->kill < (int)plan->ranks);
}

int main(int argc, char **argv)
{
    shared_t *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plan_t   plan    = {4, 0, 0, -1};
    char     text[64];
    pid_t    pids[RANKS_MAX];
    unsigned r;
    int      bad;

    if ((shared == MAP_FAILED) || !parse(argc, argv, &plan)) {
        fprintf(stderr, "usage: moe [--ranks 2..%d] [--seconds N] [--steps N, at least 4] [--kill RANK]\n", RANKS_MAX);
        return 2;
    }
    setenv("KVCL_VIEWS", "yes", 1);
    snprintf(text, sizeof(text), "tcp://127.0.0.1:%d", free_port());
    setenv("KVCL_RENDEZVOUS", text, 1);
    snprintf(text, sizeof(text), "%u", plan.ranks);
    setenv("KVCL_SIZE", text, 1);
    for (r = 0; r < plan.ranks; ++r) {
        pids[r] = start(r, &plan, shared);
        if (plan.steps == 0) {
            printf("rank %u: pid %d\n", r, (int)pids[r]);
            fflush(stdout);
        }
    }
    bad = watch(pids, &plan, shared);
    print_kill(shared, &plan);
    printf("%s\n", (bad == 0) ? "all ranks that lived were right" : "FAILED");
    return (bad == 0) ? 0 : 1;
}
