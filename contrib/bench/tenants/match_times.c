/*
 * Measures what the time of a match tells about the blocks of another tenant: match_times [MATCHES]. One rank puts
 * half of some chains and leaves the others out, then matches one of each half in turn. Many chains are needed: the
 * time of a match also depends on where its keys happen to be in the directory.
 *
 * Prints the area under the ROC curve (AUC) of a test that takes the slower of two matches for the chain that was
 * put: 1 tells the chains apart each time, 0.5 is chance. AUC is the Mann-Whitney statistic U / (n * n): J. Hanley
 * and B. McNeil, "The Meaning and Use of the Area under a Receiver Operating Characteristic (ROC) Curve", Radiology
 * 143(1), 1982.
 *
 *   without   the store's own handle puts and matches: the match reports the chain, and so does its time
 *   tenants   tenant 1 puts, tenant 2 matches with the same keys
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAINS = 64 /* of each half */, KEYS = 64, BLOCK = 4096, TOKENS = 4 /* of a block */, WARM_UP = 500 };

typedef struct times {
    double *of[2]; /* ns of each match of an absent chain, and of one that was put */
    size_t n;
} times_t;

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Both arrays are sorted here. Counts the pairs in which the put chain took longer; equal ones count half. */
static double auc(times_t *times)
{
    size_t less = 0, same = 0, i;
    double sum  = 0;

    qsort(times->of[0], times->n, sizeof(double), compare);
    qsort(times->of[1], times->n, sizeof(double), compare);
    for (i = 0; i < times->n; ++i) {
        for (; (less < times->n) && (times->of[0][less] < times->of[1][i]); ++less) {
        }
        for (same = less; (same < times->n) && (times->of[0][same] == times->of[1][i]); ++same) {
        }
        sum += (double)less + (double)(same - less) / 2;
    }
    return sum / (double)times->n / (double)times->n;
}

static void make_chain(unsigned which, kvcl_key_t *keys)
{
    uint32_t   tokens[KEYS * TOKENS];
    kvcl_key_t root;
    size_t     i, n;

    for (i = 0; i < KEYS * TOKENS; ++i) {
        tokens[i] = which;
    }
    kvcl_key_root("match_times", 11, "model", &root);
    KVCL_TRY(kvcl_key_chain(&root, 0, tokens, KEYS * TOKENS, TOKENS, keys, KEYS, &n));
}

static void put_chain(kvcl_store_h store, const kvcl_key_t *keys, kvcl_cache_h cache)
{
    uint32_t   ids[KEYS], i;
    kvcl_req_h req;

    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
    }
    KVCL_TRY(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
}

typedef kvcl_key_t chain_t[KEYS];

static void put(kvcl_store_h store, const chain_t *chains, kvcl_cache_h cache)
{
    unsigned i;

    for (i = 0; i < CHAINS; ++i) {
        put_chain(store, chains[i], cache);
    }
}

static void measure(const char *name, kvcl_store_h store, const chain_t chains[2][CHAINS], size_t matches)
{
    times_t  times = {{calloc(matches, sizeof(double)), calloc(matches, sizeof(double))}, matches};
    size_t   hit, i;
    double   from, took, area;
    unsigned turn, which;

    if ((times.of[0] == NULL) || (times.of[1] == NULL)) {
        fprintf(stderr, "match_times: out of memory\n");
        exit(1);
    }
    for (i = 0; i < matches + WARM_UP; ++i) {
        for (turn = 0; turn < 2; ++turn) {
            which = (unsigned)((i / CHAINS) + turn) & 1; /* each chain goes first every other time */
            from  = now_ns();
            KVCL_TRY(kvcl_store_match(store, chains[which][i % CHAINS], KEYS, &hit, NULL));
            took = now_ns() - from;
            if (i >= WARM_UP) {
                times.of[which][i - WARM_UP] = took;
            }
        }
    }
    area = auc(&times);
    printf("%-8s AUC %.3f   median of an absent chain %.0f ns, of the one put %.0f ns\n", name, area,
           times.of[0][matches / 2], times.of[1][matches / 2]);
    free(times.of[0]);
    free(times.of[1]);
}

int main(int argc, char **argv)
{
    const size_t        matches = (argc > 1) ? strtoul(argv[1], NULL, 10) : 20000;
    kvcl_init_params_t  init    = KVCL_INIT_PARAMS_INIT;
    kvcl_store_params_t params  = KVCL_STORE_PARAMS_INIT;
    kvcl_layout_t       layout  = KVCL_LAYOUT_BYTES(KEYS, BLOCK);
    static chain_t      chains[2][CHAINS];
    kvcl_store_h        store, one, two;
    unsigned            i;
    kvcl_context_h      ctx;
    kvcl_cache_h        cache;
    kvcl_comm_h         world;

    if (matches == 0) {
        fprintf(stderr, "match_times: %s matches: give a number of 1 or more\n", argv[1]);
        return 2;
    }
    init.boot          = "self";
    params.dram_bytes  = UINT64_C(4) * CHAINS * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    KVCL_TRY(kvcl_init(&init, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    KVCL_TRY(kvcl_cache_create(ctx, "blocks", &layout, NULL, &cache));
    KVCL_TRY(kvcl_store_tenant(store, 1, "the secret of one", 17, &one));
    KVCL_TRY(kvcl_store_tenant(store, 2, "the secret of two", 17, &two));
    for (i = 0; i < 2 * CHAINS; ++i) {
        make_chain(i, chains[i & 1][i / 2]);
    }
    put(store, chains[1], cache);
    measure("without", store, chains, matches);
    put(one, chains[1], cache);
    measure("tenants", two, chains, matches);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return 0;
}
