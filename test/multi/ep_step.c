/*
 * Dispatch and combine over real ranks (kvcl_ep_step.h), against an oracle that each rank computes alone: every output
 * bit, every lost weight. Ranks die and are late at several points. The ranks are forked here and meet at a rendezvous
 * address, since mpirun would end them all.
 *   ep_step RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { RANKS_MAX = 8, LOCAL = 3, TOKENS = 20, TOP_K = 4, HIDDEN = 300, STEPS = 12, AT = 5, WARM_MS = 60000 };

typedef enum { NOTHING, DIES_BEFORE, DIES_BETWEEN, DIES_AFTER, IS_LATE, CLOSES } what_t;

typedef struct plan {
    const char   *name;
    what_t       what; /* what the last rank does in step AT */
    kvcl_dtype_t dtype;
    bool         given; /* y is the caller's */
    unsigned     ms;    /* the deadline; 0: the longest possible */
} plan_t;

/* Of all processes. */
typedef struct shared {
    _Atomic int survivors_done; /* ranks that have ended step AT */
    _Atomic int checked;        /* ranks that have ended all steps */
} shared_t;

typedef struct job {
    const plan_t *plan;
    int          size;
    uint64_t     seed;
    shared_t     *shared;
} job_t;

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_ep_h      ep;
    const job_t    *job;
    uint32_t       rank, size, slots;
    unsigned       failed;
    char           *y;
} me_t;

#define CHECK(_me, _cond, ...)                                                                \
    do {                                                                                      \
        if (!(_cond)) {                                                                       \
            fprintf(stderr, "rank %u: line %d: %s: ", (_me)->rank, __LINE__, #_cond);         \
            fprintf(stderr, __VA_ARGS__);                                                     \
            fprintf(stderr, " [%s]\n", kvcl_last_error());                                    \
            ++(_me)->failed;                                                                  \
        }                                                                                     \
    } while (0)

/* ---- the oracle ---- */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t draw(const me_t *me, uint64_t rank, uint64_t step, uint64_t what)
{
    return mix(me->job->seed ^ mix(rank ^ mix(step ^ mix(what))));
}

static float wide(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint16_t narrow(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float rounded(const me_t *me, float x)
{
    return (me->job->plan->dtype == KVCL_DTYPE_BF16) ? wide(narrow(x)) : x;
}

static float get(const me_t *me, const void *row, uint32_t i)
{
    return (me->job->plan->dtype == KVCL_DTYPE_BF16) ? wide(((const uint16_t *)row)[i]) : ((const float *)row)[i];
}

static void set(const me_t *me, void *row, uint32_t i, float x)
{
    if (me->job->plan->dtype == KVCL_DTYPE_BF16) {
        ((uint16_t *)row)[i] = narrow(x);
    } else {
        ((float *)row)[i] = x;
    }
}

static size_t row_bytes(const me_t *me)
{
    return HIDDEN * ((me->job->plan->dtype == KVCL_DTYPE_BF16) ? 2u : 4u);
}

/* Element i of a rank's token. */
static float token(const me_t *me, uint32_t rank, uint64_t step, uint32_t t, uint32_t i)
{
    return rounded(me, (float)(int64_t)(draw(me, rank, step, ((uint64_t)t << 20) + i) % 2001) / 1000.0f - 1.0f);
}

/* The expert of a slot, on one element. */
static float expert(const me_t *me, uint32_t slot, float x)
{
    return rounded(me, x * (1.0f + ((float)slot / 8.0f)));
}

static uint32_t tokens_of(const me_t *me, uint32_t rank, uint64_t step)
{
    const uint64_t x = draw(me, rank, step, 1);

    return (x % 4 == 0) ? 0 : (uint32_t)(x / 4 % (TOKENS + 1)); /* a rank without tokens takes part, too */
}

static void choose(const me_t *me, uint64_t step, uint32_t n, int64_t *ids, float *weights)
{
    uint32_t t, k, i;
    uint64_t x;

    for (t = 0; t < n; ++t) {
        for (k = 0; k < TOP_K; ++k) {
            x = draw(me, me->rank, step, 1000 + (t * TOP_K) + k);
            weights[(t * TOP_K) + k] = (float)(1 + (x >> 40)) / 1e7f;
            ids[(t * TOP_K) + k]     = (x % 9 == 0) ? KVCL_EP_ID_NONE
                                       : (x % 31 == 1) ? KVCL_EP_ID_LOST : (int64_t)(x / 279 % me->slots);
            for (i = 0; i < k; ++i) {
                if (ids[(t * TOP_K) + i] == ids[(t * TOP_K) + k]) {
                    ids[(t * TOP_K) + k] = KVCL_EP_ID_NONE;
                }
            }
        }
    }
}

/* The weight that a token has lost if these ranks answered. */
static float lost_of(const int64_t *ids, const float *weights, const int32_t *answered)
{
    volatile float sum = 0.0f; /* volatile: each operation is rounded */
    uint32_t       k;

    for (k = 0; k < TOP_K; ++k) {
        if ((ids[k] == KVCL_EP_ID_LOST) || ((ids[k] >= 0) && (answered[ids[k] / LOCAL] == 0))) {
            sum = sum + weights[k];
        }
    }
    return sum;
}

/* The output of one token, of the ranks that answered, and its lost weight. */
static void check_token(me_t *me, uint64_t step, uint32_t t, const int64_t *ids, const float *weights,
                        const int32_t *answered, const void *out, float lost)
{
    const float    missing = lost_of(ids, weights, answered);
    volatile float sum, product; /* volatile: each operation is rounded */
    uint32_t       i, k;

    CHECK(me, lost == missing, "step %llu, token %u: %g lost, not %g", (unsigned long long)step, t, (double)lost,
          (double)missing);
    for (i = 0; i < HIDDEN; ++i) {
        sum = 0.0f;
        for (k = 0; k < TOP_K; ++k) {
            if ((ids[k] >= 0) && (answered[ids[k] / LOCAL] != 0)) {
                product = weights[k] * expert(me, (uint32_t)ids[k], token(me, me->rank, step, t, i));
                sum     = sum + product;
            }
        }
        if (get(me, out, i) != rounded(me, sum)) {
            CHECK(me, false, "step %llu, token %u, element %u: %a, not %a", (unsigned long long)step, t, i,
                  (double)get(me, out, i), (double)rounded(me, sum));
            return;
        }
    }
}

/* ---- a step ---- */

/* The tokens that came are those that were sent to these slots, in order; then the experts compute. */
static void compute(me_t *me, const kvcl_ep_batch_t *batch)
{
    char     *y = me->job->plan->given ? me->y : batch->y, *to;
    uint32_t e, r, row, first, n, i, sum;
    int64_t  range;

    CHECK(me, (batch->experts == LOCAL) && (batch->rows == me->size * TOKENS), "%u slots, %u rows", batch->experts,
          batch->rows);
    for (e = 0; e < LOCAL; ++e) {
        sum = 0;
        for (r = 0; r < me->size; ++r) {
            range = batch->ranges[(e * me->size) + r];
            first = (uint32_t)(range >> 32);
            n     = (uint32_t)range;
            sum  += n;
            CHECK(me, (first + n <= batch->counts[e]) && (n <= TOKENS), "slot %u, rank %u: %u + %u of %u", e, r, first,
                  n, batch->counts[e]);
        }
        CHECK(me, sum == batch->counts[e], "slot %u: %u rows of ranks, %u in all", e, sum, batch->counts[e]);
        for (row = 0; row < batch->counts[e]; ++row) {
            const char *x = (const char *)batch->x + (((size_t)e * batch->rows) + row) * row_bytes(me);

            to = y + (((size_t)e * batch->rows) + row) * row_bytes(me);
            for (i = 0; i < HIDDEN; ++i) {
                set(me, to, i, expert(me, (me->rank * LOCAL) + e, get(me, x, i)));
            }
        }
    }
}

static void misuse(me_t *me, const void *x)
{
    int64_t bad[TOP_K] = {0, KVCL_EP_ID_NONE, (int64_t)me->slots, KVCL_EP_ID_NONE};

    CHECK(me, kvcl_ep_combine(me->ep, NULL, NULL, NULL, NULL, NULL) == KVCL_ERR_INVALID_PARAM, "no dispatch");
    CHECK(me, kvcl_ep_dispatch(me->ep, x, bad, 1, TOP_K, NULL) == KVCL_ERR_OUT_OF_RANGE, "a wrong slot");
    CHECK(me, strstr(kvcl_last_error(), "place 2 of token 0") != NULL, "names no place");
    bad[2] = 0;
    CHECK(me, kvcl_ep_dispatch(me->ep, x, bad, 1, TOP_K, NULL) == KVCL_ERR_INVALID_PARAM, "a slot twice");
    CHECK(me, kvcl_ep_dispatch(me->ep, x, bad, TOKENS + 1, TOP_K, NULL) == KVCL_ERR_OUT_OF_RANGE, "tokens");
    CHECK(me, kvcl_ep_dispatch(me->ep, x, bad, 1, TOP_K + 1, NULL) == KVCL_ERR_OUT_OF_RANGE, "top_k");
    CHECK(me, kvcl_ep_dispatch(me->ep, NULL, bad, 1, TOP_K, NULL) == KVCL_ERR_INVALID_PARAM, "x NULL");
}

static void nap_ms(unsigned ms)
{
    usleep(ms * 1000);
}

static void befall(me_t *me, what_t now)
{
    const what_t what = me->job->plan->what;

    if ((me->rank != me->size - 1) || (what != now)) {
        return;
    }
    if (what == IS_LATE) {
        while (atomic_load(&me->job->shared->survivors_done) < (int)me->size - 1) {
            nap_ms(1);
        }
        return;
    }
    raise(SIGKILL);
}

/* The tokens that lack an expert if these ranks answered. */
static uint32_t lacking_of(const int64_t *ids, uint32_t n, const int32_t *answered)
{
    uint32_t t, k, sum = 0;
    bool     lacks;

    for (t = 0; t < n; ++t) {
        for (k = 0, lacks = false; k < TOP_K; ++k, ++ids) {
            lacks = lacks || (*ids == KVCL_EP_ID_LOST) || ((*ids >= 0) && (answered[*ids / LOCAL] == 0));
        }
        sum += lacks;
    }
    return sum;
}

/* A rank that is skipped now may have answered this step before, if it was active when the step began: then all of its
 * rows came. False: no such ranks, beside the active ones, explain what each token has lost. */
static bool find_answered(const me_t *me, const int32_t *before, const int32_t *active, const int64_t *ids,
                          const float *weights, uint32_t n, const float *lost, int32_t *answered)
{
    uint32_t set, r, t;
    bool     fits = false;

    for (set = 0; (set < (1u << me->size)) && !fits; ++set) {
        for (r = 0, fits = true; r < me->size; ++r) {
            answered[r] = (active[r] != 0) || ((set >> r) & 1);
            fits        = fits && (((set >> r) & 1) == 0 || ((active[r] == 0) && (before[r] != 0)));
        }
        for (t = 0; fits && (t < n); ++t) {
            fits = (lost[t] == lost_of(ids + (t * TOP_K), weights + (t * TOP_K), answered));
        }
    }
    return fits;
}

static void step(me_t *me, uint64_t number)
{
    static char      x[TOKENS * HIDDEN * 4], out[TOKENS * HIDDEN * 4];
    static int64_t   ids[TOKENS * TOP_K];
    static float     weights[TOKENS * TOP_K], lost[TOKENS];
    const uint32_t   n      = tokens_of(me, me->rank, number);
    kvcl_ep_batch_t  batch  = KVCL_EP_BATCH_INIT;
    kvcl_ep_result_t result = KVCL_EP_RESULT_INIT;
    kvcl_ep_state_t  state  = KVCL_EP_STATE_INIT;
    int32_t          active[RANKS_MAX];
    kvcl_status_t    why[RANKS_MAX];
    int32_t          before[RANKS_MAX], answered[RANKS_MAX];
    uint32_t         t, i;

    for (t = 0; t < n; ++t) {
        for (i = 0; i < HIDDEN; ++i) {
            set(me, x + (t * row_bytes(me)), i, token(me, me->rank, number, t, i));
        }
    }
    choose(me, number, n, ids, weights);
    if (number == 1) {
        misuse(me, x);
    }
    if (number == AT) {
        befall(me, DIES_BEFORE);
    }
    CHECK(me, kvcl_ep_query(me->ep, &state, before, why) == KVCL_OK, "query");
    CHECK(me, kvcl_ep_dispatch(me->ep, x, ids, n, TOP_K, &batch) == KVCL_OK, "dispatch %llu",
          (unsigned long long)number);
    CHECK(me, batch.step == number, "step %llu", (unsigned long long)batch.step);
    CHECK(me, kvcl_ep_query(me->ep, &state, active, why) == KVCL_OK, "query");
    compute(me, &batch);
    if (number == AT) {
        befall(me, DIES_BETWEEN);
        befall(me, IS_LATE);
    }
    memset(x, 0xff, sizeof(x)); /* the caller's again */
    CHECK(me, kvcl_ep_combine(me->ep, me->job->plan->given ? me->y : NULL, weights, out, lost, &result) == KVCL_OK,
          "combine %llu", (unsigned long long)number);
    CHECK(me, kvcl_ep_query(me->ep, &state, active, why) == KVCL_OK, "query");
    CHECK(me, (state.generation % 2 == 0) && (state.step == number) && (state.n_active == result.active), "state");
    CHECK(me, find_answered(me, before, active, ids, weights, n, lost, answered), "tokens lack what no ranks had");
    t = lacking_of(ids, n, answered);
    CHECK(me, t == result.tokens_lost, "%u tokens lost, not %u", result.tokens_lost, t);
    for (t = 0; t < n; ++t) {
        check_token(me, number, t, ids + (t * TOP_K), weights + (t * TOP_K), answered, out + (t * row_bytes(me)),
                    lost[t]);
    }
    if (number == AT) {
        befall(me, DIES_AFTER);
    }
}

/* The mask after the last step: what the plan says. */
static void check_end(me_t *me)
{
    const what_t    what  = me->job->plan->what;
    kvcl_ep_state_t state = KVCL_EP_STATE_INIT;
    int32_t         active[RANKS_MAX];
    kvcl_status_t   why[RANKS_MAX], wanted = KVCL_OK;
    uint32_t        r;
    bool            all;

    CHECK(me, kvcl_ep_query(me->ep, &state, active, why) == KVCL_OK, "query");
    if ((me->rank == me->size - 1) && (what == IS_LATE)) {
        CHECK(me, state.n_active == 1, "the late rank still counts %u", state.n_active);
        return;
    }
    wanted = (what == NOTHING) ? KVCL_OK : (what == IS_LATE) ? KVCL_ERR_TIMED_OUT
             : (what == CLOSES) ? KVCL_ERR_STALE : KVCL_ERR_RANK_FAILED;
    for (r = 0, all = true; r < me->size; ++r) {
        all = all && ((why[r] == KVCL_OK) == (active[r] == 1));
        /* Survivors that tell each other about a late rank may do so before their own deadline. */
        CHECK(me, (r == me->size - 1) ? (why[r] == wanted) : (why[r] == KVCL_OK), "rank %u: %s", r,
              kvcl_status_text(why[r]));
    }
    CHECK(me, all && (kvcl_ep_mask(me->ep)->n_active == state.n_active), "mask");
    CHECK(me, state.changes == ((what == NOTHING) ? 1u : 2u), "%llu changes of the mask",
          (unsigned long long)state.changes);
}

/* All ranks that do the last step have checked the mask. */
static void wait_for_checks(const me_t *me)
{
    int n = (int)me->size - ((me->job->plan->what != NOTHING) && (me->job->plan->what != IS_LATE));

    while (atomic_load(&me->job->shared->checked) < n) {
        nap_ms(1);
    }
}

static int live(const void *arg, int rank)
{
    const job_t           *job = arg;
    me_t                  me   = {.job = job, .rank = (uint32_t)rank, .size = (uint32_t)job->size};
    kvcl_ep_open_params_t p    = KVCL_EP_OPEN_PARAMS_INIT;
    uint64_t              i;

    me.slots           = me.size * LOCAL;
    p.slots            = me.slots;
    p.max_tokens       = TOKENS;
    p.top_k            = TOP_K;
    p.hidden           = HIDDEN;
    p.dtype            = job->plan->dtype;
    p.timeout_ns       = (job->plan->ms == 0) ? UINT64_MAX - 2 : job->plan->ms * UINT64_C(1000000);
    p.first_timeout_ns = WARM_MS * UINT64_C(1000000);
    p.first_steps      = AT - 1;
    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    me.y = malloc((size_t)LOCAL * me.size * TOKENS * row_bytes(&me));
    ++p.top_k;
    p.top_k -= (me.rank != 0) || (me.size == 1);
    if (me.size > 1) {
        CHECK(&me, kvcl_ep_open(me.world, &p, &me.ep) == KVCL_ERR_INVALID_PARAM, "params that differ");
    }
    p.top_k = TOP_K;
    KVCL_TRY(kvcl_ep_open(me.world, &p, &me.ep));
    for (i = 1; i <= STEPS; ++i) {
        if ((i == AT) && (job->plan->what == CLOSES) && (me.rank == me.size - 1)) {
            break;
        }
        step(&me, i);
        if (i == AT) {
            atomic_fetch_add(&job->shared->survivors_done, 1);
        }
    }
    if (i > STEPS) {
        check_end(&me);
        atomic_fetch_add(&job->shared->checked, 1);
        wait_for_checks(&me);
    }
    kvcl_ep_close(me.ep);
    if (i <= STEPS) {
        wait_for_checks(&me); /* a rank that has closed its handle, and not one whose process ends */
    }
    kvcl_finalize(me.ctx);
    free(me.y);
    return (me.failed == 0) ? 0 : 1;
}

static bool run(const plan_t *plan, int size, uint64_t seed)
{
    shared_t *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job_t    job     = {plan, size, seed, shared};
    bool     dies    = (plan->what >= DIES_BEFORE) && (plan->what <= DIES_AFTER), right = true;
    pid_t    pids[RANKS_MAX], pid;
    int      i, status;

    memset(shared, 0, sizeof(*shared));
    start_ranks(size, live, &job, pids);
    for (i = 0; i < size; ++i) {
        pid = waitpid(-1, &status, 0);
        if (!(dies && (pid == pids[size - 1])) && (!WIFEXITED(status) || (WEXITSTATUS(status) != 0))) {
            fprintf(stderr, "%s: process %d ended with wait status 0x%x\n", plan->name, (int)pid, status);
            right = false;
        }
    }
    munmap(shared, sizeof(*shared));
    printf("%s %s, %d ranks\n", right ? "ok" : "WRONG", plan->name, size);
    return right;
}

int main(int argc, char **argv)
{
    static const plan_t plans[] = {
        {"steps in bf16", NOTHING, KVCL_DTYPE_BF16, false, 0},
        {"steps in f32, outputs of the caller", NOTHING, KVCL_DTYPE_F32, true, 60000},
        {"a rank dies before a dispatch", DIES_BEFORE, KVCL_DTYPE_BF16, false, 60000},
        {"a rank dies before a combine", DIES_BETWEEN, KVCL_DTYPE_BF16, false, 60000},
        {"a rank dies after a step", DIES_AFTER, KVCL_DTYPE_F32, true, 60000},
        {"a rank is late", IS_LATE, KVCL_DTYPE_BF16, false, 3000},
        {"a rank closes its handle", CLOSES, KVCL_DTYPE_BF16, false, 60000},
    };
    const char *text = getenv("TEST_SEED");
    uint64_t   seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    int        size  = (argc > 1) ? atoi(argv[1]) : 3, bad = 0;
    size_t     i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    for (i = 0; i < sizeof(plans) / sizeof(plans[0]); ++i) {
        if (((argc < 3) || (strstr(plans[i].name, argv[2]) != NULL)) && ((size > 1) || (plans[i].what == NOTHING))) {
            bad += run(&plans[i], size, seed) ? 0 : 1;
        }
    }
    return (bad == 0) ? 0 : 1;
}
