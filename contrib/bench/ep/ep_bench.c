/*
 * The time that the functions of kvcl_ep.h take, on one core: a model of 58 layers of 256 experts in 320 slots on 64
 * ranks of 8 hosts. Prints the median and the least of 101 runs of each, and how even the loads are.
 *
 *   make contrib/bench/ep/ep_bench && contrib/bench/ep/ep_bench [SEED]
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <time.h>

enum { LAYERS = 58, EXPERTS = 256, SLOTS = 320, RANKS = 64, HOSTS = 8, RUNS = 101, COPIES = SLOTS - EXPERTS + 1 };

static uint64_t       loads[LAYERS * EXPERTS], later[LAYERS * EXPERTS], state = 1;
static int32_t        placement[LAYERS * SLOTS], next[LAYERS * SLOTS], copies[LAYERS * EXPERTS * COPIES];
static uint32_t       counts[LAYERS * EXPERTS], rounds;
static uint8_t        active[RANKS];
static kvcl_ep_move_t moves[LAYERS * SLOTS];
static size_t         n_moves, restored;

static kvcl_ep_params_t params(uint64_t flags, uint32_t groups, uint32_t min_hosts)
{
    kvcl_ep_params_t p = KVCL_EP_PARAMS_INIT;

    p.flags     = flags;
    p.layers    = LAYERS;
    p.experts   = EXPERTS;
    p.slots     = SLOTS;
    p.ranks     = RANKS;
    p.hosts     = HOSTS;
    p.groups    = groups;
    p.min_hosts = min_hosts;
    return p;
}

static double us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec * 1e6) + ((double)t.tv_nsec / 1e3);
}

static uint64_t chance(void)
{
    state = (state * UINT64_C(6364136223846793005)) + UINT64_C(1442695040888963407);
    return state >> 33;
}

/* Zipf's law over experts in random order, each layer its own. */
static void make_loads(uint64_t *to)
{
    uint32_t l, e, other;
    uint64_t load;

    for (l = 0; l < LAYERS; ++l, to += EXPERTS) {
        for (e = 0; e < EXPERTS; ++e) {
            to[e] = (UINT64_C(100000000) / (e + 4)) + (chance() % 1000);
        }
        for (e = EXPERTS - 1; e > 0; --e) {
            other     = (uint32_t)(chance() % (e + 1));
            load      = to[e];
            to[e]     = to[other];
            to[other] = load;
        }
    }
}

/* The mean over the layers of the most loaded rank's load, over the mean rank's. */
static double unevenness(void)
{
    kvcl_ep_params_t p = params(0, 1, 0);
    double           sum = 0, total, load, most;
    uint32_t         l, s;
    int32_t          e;

    KVCL_TRY(kvcl_ep_index(&p, placement, NULL, 0, counts));
    for (l = 0; l < LAYERS; ++l) {
        total = load = most = 0;
        for (s = 0; s < SLOTS; ++s) {
            e    = placement[(l * SLOTS) + s];
            load = (s % (SLOTS / RANKS) == 0) ? 0 : load;
            load += (double)loads[(l * EXPERTS) + (uint32_t)e] / counts[(l * EXPERTS) + (uint32_t)e];
            most = (load > most) ? load : most;
            total += (double)loads[(l * EXPERTS) + (uint32_t)e] / counts[(l * EXPERTS) + (uint32_t)e];
        }
        sum += most * RANKS / total;
    }
    return sum / LAYERS;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

#define TIMED(_name, _call)                                                                    \
    do {                                                                                       \
        double   times_[RUNS], begin_;                                                         \
        unsigned i_;                                                                           \
        for (i_ = 0; i_ < RUNS; ++i_) {                                                        \
            begin_ = us();                                                                     \
            KVCL_TRY(_call);                                                                   \
            times_[i_] = us() - begin_;                                                        \
        }                                                                                      \
        qsort(times_, RUNS, sizeof(times_[0]), ascending);                                     \
        printf("%-28s %9.0f us median %9.0f us least", _name, times_[RUNS / 2], times_[0]);    \
    } while (0)

int main(int argc, char **argv)
{
    kvcl_ep_params_t plain = params(0, 1, 0), near = params(0, 8, 0), spread = params(KVCL_EP_SPREAD, 1, 0);
    kvcl_ep_params_t far = params(0, 1, 1), dead = params(0, 1, 0);
    uint32_t         r;

    state = (argc > 1) ? strtoull(argv[1], NULL, 0) : 1;
    make_loads(loads);
    make_loads(later);
    TIMED("place, hierarchical", kvcl_ep_place(&near, loads, placement));
    printf("   max/mean %.3f\n", unevenness());
    TIMED("place, spread", kvcl_ep_place(&spread, loads, placement));
    printf("   max/mean %.3f\n", unevenness());
    far.slots     = 2 * SLOTS; /* two copies of each, on two hosts */
    far.layers    = LAYERS / 2;
    far.min_hosts = 2;
    TIMED("place, min_hosts 2, half", kvcl_ep_place(&far, loads, placement));
    printf("\n");
    TIMED("place, global", kvcl_ep_place(&plain, loads, placement));
    printf("   max/mean %.3f\n", unevenness());
    TIMED("index", kvcl_ep_index(&plain, placement, copies, COPIES, counts));
    printf("\n");
    for (r = 0; r < RANKS; ++r) {
        active[r] = (r != 17) && (r != 40);
    }
    dead.active = active;
    TIMED("repair, 2 ranks failed", kvcl_ep_repair(&dead, placement, next, &restored, NULL));
    printf("   %zu experts lost\n", restored);
    TIMED("moves of the repair",
          kvcl_ep_moves(&dead, placement, next, moves, sizeof(moves[0]), LAYERS * SLOTS, &n_moves, &rounds));
    printf("   %zu moves, %u rounds\n", n_moves, rounds);
    KVCL_TRY(kvcl_ep_place(&plain, later, next));
    TIMED("moves to other loads",
          kvcl_ep_moves(&plain, placement, next, moves, sizeof(moves[0]), LAYERS * SLOTS, &n_moves, &rounds));
    printf("   %zu moves, %u rounds\n", n_moves, rounds);
    return 0;
}
