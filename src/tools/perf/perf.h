/*
 * One measurement: its options, caches, keys and results. Rank 0 initiates towards rank 1 (a single rank: towards
 * itself); the other ranks only take part in collective calls. perf_t owns everything that it points at except job, opt
 * and test.
 *
 * Files: perf_options.c the command line; perf_blocks.c caches, orders, patterns; perf_xfer.c, perf_store.c,
 * perf_keys.c and perf_bcast.c the tests; perf_control.c the synchronisation of initiator and target; perf_measure.c
 * the rounds of a measurement; perf_beside.c a concurrent bulk transfer; perf_floor.c raw UCX and memcpy;
 * perf_report.c the output; perf_asked.c the ratios that are asked; perf_copy.c and perf_plot.c the test that needs no
 * ranks; flows/ the measurements with a pattern.
 */
#ifndef KVCL_TOOLS_PERF_PERF_H
#define KVCL_TOOLS_PERF_PERF_H

#include "tools/cli.h"
#include "tools/clock.h"
#include "tools/hist.h"
#include "tools/job.h"
#include "tools/memory_text.h"
#include "tools/perf/floor.h"
#include "tools/perf/flows/flow_kind.h"

#define PERF_TIMEOUT_NS   UINT64_C(600000000000) /* of one operation of any size */
#define PERF_COPY_UNIT_MAX (UINT64_C(16) << 20)  /* bytes of a piece of the test copy */
#define PERF_FLOORS       2u                     /* methods of raw UCX */
#define PERF_BESIDE_BLOCK (UINT64_C(1) << 20)    /* bytes of a block of the bulk transfer */

typedef struct perf_options {
    const char *test;
    uint64_t   unit;
    uint64_t   count;
    uint64_t   iters;   /* 0: about one second of them */
    uint64_t   threads;
    uint64_t   batch;   /* keys of one lookup; blocks of one get or put by keys, 0: all */
    bool       random;
    bool       verify;  /* every iteration, with new bytes each time */
    bool       floor;
    bool       cold;    /* time the very first iteration separately */
    uint64_t   beside;  /* bytes of a bulk transfer repeated meanwhile, 0: none */
    bool       unsummed; /* the store neither makes nor checks checksums */
    bool       apart;   /* store-get: a get for each key */
    bool       json;
    const char *plot;  /* copy: the file of the picture, or NULL */
    flow_kind_t pattern; /* many ranks at the same time (perf/flows) */
    cli_sizes_t sweep; /* block sizes to measure one after the other; n is 0: unit alone */
} perf_options_t;

typedef struct perf perf_t;
typedef struct perf_beside perf_beside_t;

/* One thread's part of the blocks, and what it measured. */
typedef struct perf_slice {
    perf_t        *perf;
    unsigned      index;
    size_t        first;  /* of the block lists */
    size_t        n;
    size_t        cursor; /* start of the next batch, relative to first */
    size_t        part;   /* the blocks of this iteration */
    size_t        n_part;
    uint64_t      iters;
    kvcl_status_t *status;
    kvcl_req_h    *reqs;  /* --apart */
    uint8_t       *present;
    hist_t        ns;
    uint64_t      op_ns;  /* the sum of ns */
    bool          time_post; /* this iteration's posting call is timed: two more clock reads */
    uint64_t      post_ns;
    uint64_t      posts;  /* timed ones */
    uint64_t      serial; /* grows with each iteration; before() makes keys of it */
    uint64_t      wrong;  /* keys with wrong answers, blocks with an error */
    bool          good;
} perf_slice_t;

/* The bytes that raw UCX moves for the same operation. */
typedef enum perf_raw {
    PERF_RAW_NONE,
    PERF_RAW_GET,
    PERF_RAW_PUT
} perf_raw_t;

typedef struct perf_test {
    const char *name;
    perf_raw_t raw;
    bool       bytes;     /* moves blocks: gbps is defined */
    bool       batched;   /* an iteration is --batch keys, not all */
    bool       parts;     /* --batch may select a part of the blocks */
    bool       store;
    int        (*alone)(const perf_options_t *opt); /* needs no ranks: the whole test; @return the exit status */
    const struct flow_op *flow; /* with --pattern, or NULL */
    bool       (*drive)(perf_t *perf); /* runs on all ranks together; NULL: rank 0 and 1, by the functions below */
    uint64_t   unit;      /* defaults */
    uint64_t   count;
    /* Initiator: unmeasured preparation of an iteration, or NULL. */
    void       (*before)(perf_slice_t *slice);
    /* Initiator: one iteration over the slice's blocks, its posting call between perf_post_begin and _end. */
    bool       (*op)(perf_slice_t *slice);
    /* Target: its part of one iteration, or NULL. */
    bool       (*target_op)(perf_t *perf);
    /* Initiator and target, before iteration number perf->iter is measured: new bytes, new keys.
     * NULL: nothing to do. */
    bool       (*renew)(perf_t *perf);
    /* Blocks that do not hold what iteration perf->iter should have put there: on the initiator, on the target. */
    uint64_t   (*check_near)(perf_t *perf);
    uint64_t   (*check_far)(perf_t *perf);
} perf_test_t;

/* One thing measured: raw UCX by one method, memcpy. */
typedef struct perf_lane {
    hist_t   ns;
    uint64_t total_ns;
    uint64_t iters;
    uint64_t cpu_ns;    /* of both processes, over cpu_iters: those that are not counted too */
    uint64_t cpu_iters;
} perf_lane_t;

typedef struct perf_result {
    hist_t      ns;
    uint64_t    iters;      /* over all threads */
    uint64_t    wall_ns;    /* time in operations, of the slowest thread */
    uint64_t    post_ns;
    uint64_t    posts;
    uint64_t    cpu_ns;     /* of both processes */
    uint64_t    cpu_blocks; /* moved in that time: with those of iterations that are not counted */
    uint64_t    blocks;     /* or keys, of all iterations */
    uint64_t    wrong;
    uint64_t    cold_ns;    /* --cold: the first iteration of this process, and the second */
    uint64_t    warm_ns;
    hist_t      idle;       /* --beside: iterations without the bulk transfer */
    perf_lane_t floor[PERF_FLOORS]; /* the same runs */
    perf_lane_t frames[PERF_FLOORS]; /* TCP: as many bytes in order, in frames of 1 MiB */
    perf_lane_t copy;
    perf_lane_t copy2;      /* by two threads */
    double      dir_bytes;  /* store-keys: resident memory per key, of the directory, and of the holder of the block */
    double      holder_bytes;
    char        path[192];
    char        memory[MEMORY_TEXT_MAX]; /* how the initiator reaches the target's blocks; empty: not needed */
    uint64_t    native_bytes; /* that the initiator got or put natively, all iterations */
} perf_result_t;

struct perf {
    const job_t          *job;
    const perf_options_t *opt;
    const perf_test_t    *test;
    bool                 self;      /* one rank: initiator and target */
    bool                 initiator;
    bool                 target;
    int                  peer;
    kvcl_cache_h         near;      /* initiator's blocks */
    kvcl_cache_h         far;       /* target's blocks */
    uint8_t              *near_base;
    uint8_t              *far_base;
    uint32_t             *near_ids; /* the order of the transfer, on each side */
    uint32_t             *far_ids;
    kvcl_floor_run_t     *runs;     /* the same as merged runs */
    size_t               n_runs;
    kvcl_store_h         store;
    kvcl_key_t           *keys;
    size_t               part;      /* blocks that the last iteration moved: all, unless --batch is given */
    size_t               n_part;
    uint64_t             iter;      /* selects the bytes to expect */
    kvcl_floor_t         *floor;
    void                 *copy_from; /* memory for the local memcpy */
    perf_beside_t        *beside;
    perf_result_t        result;
};

static inline uint64_t perf_post_begin(const perf_slice_t *slice)
{
    return slice->time_post ? clock_ns() : 0;
}

static inline void perf_post_end(perf_slice_t *slice, uint64_t start)
{
    if (slice->time_post) {
        slice->post_ns += clock_ns() - start;
        ++slice->posts;
    }
}

extern const perf_test_t perf_tests[];
extern const size_t      perf_n_tests;

cli_result_t perf_options_parse(perf_options_t *opt, int argc, char **argv, const perf_test_t **test_p);
/* The options of measurement number i of a sweep, or of the only one: as many bytes in blocks of its size. */
perf_options_t perf_options_at(const perf_options_t *opt, const perf_test_t *test, size_t i);

/* All below: false after the error was printed. */
bool perf_blocks_open(perf_t *perf);
/* 0..n-1, in order or shuffled: the caller's, or NULL. */
uint32_t *perf_make_ids(size_t n, bool shuffled, uint64_t seed);
void perf_blocks_close(perf_t *perf);
void perf_fill(const perf_t *perf, uint8_t *base, const uint32_t *ids);
uint64_t perf_check(const perf_t *perf, const uint8_t *base, const uint32_t *ids);
/* Whether an iteration moves fewer blocks than --count. */
static inline bool perf_in_parts(const perf_t *perf)
{
    return perf->test->parts && (perf->opt->batch != 0);
}

/* Blocks or keys that one iteration of all threads touches. */
uint64_t perf_touched(const perf_t *perf);
size_t   perf_count_runs(const perf_t *perf, size_t first, size_t n);

/* All ranks: open the store and have the target publish its blocks. */
bool perf_store_open(perf_t *perf);
/* perf->keys[first..first+n) of generation a.b. */
bool perf_make_keys(perf_t *perf, uint64_t a, uint64_t b, size_t first, size_t n);

/* Initiator: notify the target, and receive its CPU time or its wrong blocks. One rank: does the target's part. */
bool perf_query_renew(perf_t *perf);
bool perf_query_check(perf_t *perf);
bool perf_query_begin(perf_t *perf, uint64_t iters, uint64_t *cpu_p);
bool perf_query_end(perf_t *perf, uint64_t *cpu_p);
bool perf_query_floor(perf_t *perf, uint64_t *cpu_p);
bool perf_query_quit(perf_t *perf);
/* Target: serve until it receives quit. */
bool perf_target(perf_t *perf);

bool perf_measure(perf_t *perf);
/* How many iterations of each_ns to measure: --iters, or as many as take about a second. */
uint64_t perf_iters(const perf_options_t *opt, uint64_t each_ns);

/* Initiator and target: the caches of the bulk transfer. Initiator: repeat it from start to stop, on a thread. */
bool perf_beside_open(perf_t *perf);
bool perf_beside_start(perf_t *perf);
bool perf_beside_stop(perf_t *perf);
double perf_beside_gbps(const perf_t *perf);
void perf_beside_close(perf_t *perf);

bool perf_bcast(perf_t *perf);
bool perf_allreduce(perf_t *perf);
bool perf_keys(perf_t *perf);

/* Bytes of one iteration of the floor. */
uint64_t perf_floor_bytes(const perf_t *perf);
bool perf_floor_open(perf_t *perf);
bool perf_floor_round(perf_t *perf, uint64_t iters);
void perf_floor_close(perf_t *perf);

void perf_report(const perf_t *perf);

#endif
