/*
 * A mixture-of-experts model on 4 ranks, one of which is killed (SIGKILL) in the middle of a layer. The next step runs
 * without it; its experts are restored from a store; every output of a token that lost nothing equals that of a model
 * in one process, bit by bit.
 *
 *   moe [STEPS]     default 60, at least 4; it forks the ranks itself. Exit status 0: no output was wrong
 *
 * How soon a death is noticed over shared memory depends on KVCL_KEEPALIVE: 20ms here, unless it is set.
 *
 * The order of a serving engine: choose experts (its router), kvcl_ep_choose (their slots), kvcl_ep_dispatch, compute,
 * kvcl_ep_combine, for each layer; and after each step a look at the mask. When a rank is gone: repair the placement,
 * restore what is lost, activate the new map. Until then tokens go to the copies that live, or lack a weight, which is
 * counted.
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

enum { RANKS = 4, LAYERS = 2, EXPERTS = 16, SLOTS = 24, PER = SLOTS / RANKS, VICTIM = 2 };
enum { HIDDEN = 64, TOKENS = 32, TOP_K = 2, BYTES = HIDDEN * HIDDEN * (int)sizeof(float), BLOCKS = 2 * LAYERS * PER };

/* Of all ranks. */
typedef struct shared {
    _Atomic uint64_t killed_ns;
} shared_t;

typedef struct model {
    kvcl_context_h    ctx;
    kvcl_comm_h       world;
    kvcl_ep_h         ep;
    kvcl_store_h      store;
    kvcl_ep_params_t  params;
    kvcl_ep_weights_t weights;
    kvcl_cache_h      cache;
    uint64_t          number; /* of the activation */
    uint8_t           active[RANKS];
    int32_t           placement[LAYERS * SLOTS];
    uint64_t          sums[LAYERS * EXPERTS];
    kvcl_key_t        keys[LAYERS * EXPERTS];
    unsigned          rank, tokens, lacking, wrong;
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
        x[i] = number(((uint64_t)((step * RANKS) + rank) << 32) + (t * HIDDEN) + i + 77);
    }
}

static void route(unsigned rank, unsigned step, unsigned layer, unsigned t, int64_t *experts, float *weights)
{
    const uint64_t seed = ((uint64_t)((step * RANKS) + rank) << 32) + ((uint64_t)layer << 24) + (t * 8u);

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
    return (const float *)kvcl_cache_base(m->cache, 0) + ((size_t)((layer * PER) + local) * HIDDEN * HIDDEN);
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

static void step(model_t *m, unsigned step, bool die, shared_t *shared)
{
    static float    x[TOKENS][HIDDEN], out[TOKENS][HIDDEN], weights[TOKENS][TOP_K], lost[TOKENS], right[HIDDEN];
    bool            lacks[TOKENS] = {false};
    int64_t         ids[TOKENS][TOP_K];
    kvcl_ep_batch_t batch = KVCL_EP_BATCH_INIT;
    unsigned        layer, t, i;

    for (t = 0; t < TOKENS; ++t) {
        make_token(x[t], m->rank, step, t);
    }
    for (layer = 0; layer < LAYERS; ++layer) {
        for (t = 0; t < TOKENS; ++t) {
            route(m->rank, step, layer, t, ids[t], weights[t]);
        }
        KVCL_TRY(kvcl_ep_choose(m->ep, layer, ids[0], TOKENS, TOP_K, ids[0]));
        KVCL_TRY(kvcl_ep_dispatch(m->ep, x, ids[0], TOKENS, TOP_K, &batch));
        compute(m, layer, &batch);
        if (die && (layer == 1)) {
            atomic_store(&shared->killed_ns, now_ns());
            raise(SIGKILL);
        }
        KVCL_TRY(kvcl_ep_combine(m->ep, NULL, weights[0], out, lost, NULL));
        for (t = 0; t < TOKENS; ++t) {
            lacks[t] = lacks[t] || (lost[t] != 0.0f);
            for (i = 0; i < HIDDEN; ++i) {
                x[t][i] += out[t][i];
            }
        }
    }
    for (t = 0; t < TOKENS; ++t) {
        oracle(m->rank, step, t, right);
        m->lacking += lacks[t];
        m->wrong   += !lacks[t] && (memcmp(right, x[t], sizeof(right)) != 0);
    }
    m->tokens += TOKENS;
}

/* ---- after a step ---- */

/* All living ranks tell each other a number and which ranks live: the same for all afterwards, if nobody dies here.
 * Also a barrier. */
static bool agree(model_t *m, uint64_t point)
{
    const kvcl_ep_mask_t *mask = kvcl_ep_mask(m->ep);
    uint8_t              mine[RANKS], theirs[RANKS][RANKS];
    kvcl_req_h           in[RANKS], out[RANKS];
    bool                 changed = false;
    unsigned             r, i;

    for (r = 0; r < RANKS; ++r) {
        mine[r] = (mask->active[r] != 0);
    }
    for (r = 0; r < RANKS; ++r) {
        KVCL_TRY(kvcl_recv_bytes(m->world, (int)r, point, theirs[r], RANKS, NULL, &in[r]));
        KVCL_TRY(kvcl_send_bytes(m->world, (int)r, point, mine, RANKS, NULL, &out[r]));
    }
    for (r = 0; r < RANKS; ++r) {
        const bool lives = (kvcl_req_wait(in[r], KVCL_WAIT_FOREVER) == KVCL_OK);

        (void)!kvcl_req_wait(out[r], KVCL_WAIT_FOREVER);
        for (i = 0; i < RANKS; ++i) {
            m->active[i] = (uint8_t)(m->active[i] && ((i == r) ? lives : (!lives || theirs[r][i])));
        }
    }
    for (r = 0; r < RANKS; ++r) {
        changed = changed || (m->active[r] != (m->params.active[r] != 0));
    }
    return changed;
}

/* Repair first; an engine computes a new placement in the background afterwards. */
static size_t repair(model_t *m, uint64_t point)
{
    static kvcl_ep_move_t moves[LAYERS * SLOTS];
    static uint32_t       blocks[LAYERS * SLOTS];
    static uint8_t        active[RANKS];
    int32_t               repaired[LAYERS * SLOTS];
    size_t                n, missing, lost;

    memcpy(active, m->active, sizeof(active));
    m->params.active = active;
    KVCL_TRY(kvcl_ep_repair(&m->params, m->placement, repaired, &lost, NULL));
    KVCL_TRY(kvcl_ep_moves(&m->params, m->placement, repaired, moves, sizeof(moves[0]), LAYERS * SLOTS, &n, NULL));
    KVCL_TRY(kvcl_ep_restore(&m->params, &m->weights, m->placement, moves, sizeof(moves[0]), n, blocks, &missing));
    (void)agree(m, point); /* nobody reads slots any more */
    KVCL_TRY(kvcl_ep_settle(&m->params, &m->weights, moves, sizeof(moves[0]), n, blocks));
    KVCL_TRY(kvcl_ep_activate(m->ep, ++m->number, &m->params, repaired));
    memcpy(m->placement, repaired, sizeof(repaired));
    return lost;
}

/* ---- a rank ---- */

static void load(model_t *m)
{
    static float        w[HIDDEN * HIDDEN];
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, BYTES);
    kvcl_store_params_t p      = KVCL_STORE_PARAMS_INIT;
    uint64_t            loads[LAYERS * EXPERTS];
    kvcl_req_h          req;
    uint32_t            spare = LAYERS * PER, i;
    char                name[40];

    KVCL_TRY(kvcl_cache_create(m->ctx, "experts", &layout, NULL, &m->cache));
    p.dram_bytes  = LAYERS * EXPERTS * BYTES;
    p.block_bytes = BYTES;
    p.replicas    = 2;
    KVCL_TRY(kvcl_store_open(m->world, &p, &m->store));
    for (i = 0; i < LAYERS * EXPERTS; ++i) {
        loads[i] = 100 + ((i * 37) % 200);
    }
    KVCL_TRY(kvcl_ep_place(&m->params, loads, m->placement));
    for (i = 0; i < LAYERS * EXPERTS; ++i) { /* sums of all, and one rank puts each into the store */
        make_expert(w, i / EXPERTS, i % EXPERTS);
        KVCL_TRY(kvcl_cache_write_block(m->cache, spare, w, BYTES));
        KVCL_TRY(kvcl_ep_weights_sum(m->cache, spare, &m->sums[i]));
        snprintf(name, sizeof(name), "moe: expert %u of layer %u", i % EXPERTS, i / EXPERTS);
        kvcl_key_from_string(name, strlen(name), &m->keys[i]);
        if (i % RANKS == m->rank) {
            must(kvcl_store_put(m->store, &m->keys[i], 1, m->cache, &spare, NULL, &req), &req);
        }
    }
    for (i = 0; i < LAYERS * PER; ++i) {
        make_expert(w, i / PER, (unsigned)m->placement[((i / PER) * SLOTS) + (m->rank * PER) + (i % PER)]);
        KVCL_TRY(kvcl_cache_write_block(m->cache, i, w, BYTES));
    }
    m->weights.comm  = m->world;
    m->weights.cache = m->cache;
    m->weights.sums  = m->sums;
    m->weights.store = m->store;
    m->weights.keys  = m->keys;
}

static int live(unsigned rank, unsigned steps, shared_t *shared)
{
    static const uint8_t  all[RANKS] = {1, 1, 1, 1};
    model_t               m          = {.rank = rank, .params = KVCL_EP_PARAMS_INIT, .weights = KVCL_EP_WEIGHTS_INIT};
    kvcl_ep_open_params_t p          = KVCL_EP_OPEN_PARAMS_INIT;
    unsigned              i;
    size_t                lost;
    double                done_ms;

    KVCL_TRY(kvcl_init(NULL, &m.ctx));
    KVCL_TRY(kvcl_comm_world(m.ctx, &m.world));
    memcpy(m.active, all, sizeof(all));
    m.params.layers    = LAYERS;
    m.params.experts   = EXPERTS;
    m.params.slots     = SLOTS;
    m.params.ranks     = RANKS;
    m.params.active    = all;
    m.params.min_ranks = 1;
    p.slots            = SLOTS;
    p.max_tokens       = TOKENS;
    p.top_k            = TOP_K;
    p.hidden           = HIDDEN;
    p.dtype            = KVCL_DTYPE_F32;
    load(&m);
    KVCL_TRY(kvcl_ep_open(m.world, &p, &m.ep));
    KVCL_TRY(kvcl_ep_activate(m.ep, ++m.number, &m.params, m.placement));
    for (i = 1; i <= steps; ++i) {
        step(&m, i, (rank == VICTIM) && (i == (steps / 2)), shared);
        if (!agree(&m, 3 * (uint64_t)i)) {
            continue;
        }
        done_ms = (double)(now_ns() - atomic_load(&shared->killed_ns)) / 1e6;
        lost    = repair(&m, (3 * (uint64_t)i) + 1);
        printf("rank %u: step %u ended %.1f ms after the kill; %zu experts restored and activated after %.1f ms\n",
               rank, i, done_ms, lost, (double)(now_ns() - atomic_load(&shared->killed_ns)) / 1e6);
    }
    printf("rank %u: %u tokens in %u steps, %u lacked an expert, wrong %u\n", rank, m.tokens, steps, m.lacking,
           m.wrong);
    (void)agree(&m, 1); /* nobody leaves before the others are done */
    kvcl_ep_close(m.ep);
    kvcl_store_close(m.store);
    kvcl_cache_destroy(m.cache);
    kvcl_finalize(m.ctx);
    return (m.wrong == 0) ? 0 : 1;
}

/* ---- starting: a launcher would do this ---- */

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

int main(int argc, char **argv)
{
    shared_t *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned steps   = (argc > 1) ? (unsigned)strtoul(argv[1], NULL, 0) : 60, r;
    int      status, bad = 0;
    char     text[64];
    pid_t    pids[RANKS], pid;

    if (steps < 4) {
        fprintf(stderr, "usage: moe [STEPS], at least 4\n");
        return 2;
    }
    setenv("KVCL_KEEPALIVE", "20ms", 0);
    snprintf(text, sizeof(text), "tcp://127.0.0.1:%d", free_port());
    setenv("KVCL_RENDEZVOUS", text, 1);
    snprintf(text, sizeof(text), "%d", RANKS);
    setenv("KVCL_SIZE", text, 1);
    for (r = 0; r < RANKS; ++r) {
        pids[r] = fork();
        if (pids[r] == 0) {
            snprintf(text, sizeof(text), "%u", r);
            setenv("KVCL_RANK", text, 1);
            status = live(r, steps, shared);
            fflush(stdout);
            _exit(status);
        }
    }
    for (r = 0; r < RANKS; ++r) {
        pid  = wait(&status);
        bad += ((pid == pids[VICTIM]) ? !WIFSIGNALED(status) : (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)));
    }
    printf("%s\n", (bad == 0) ? "all ranks that lived were right" : "FAILED");
    return (bad == 0) ? 0 : 1;
}
