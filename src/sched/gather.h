/*
 * The segments of a prompt's blocks that can be fetched, each with the holders that send it fastest. Made once for a
 * decision; each candidate then weighs how far to fetch. Pure; memory is the scheduler's.
 */
#ifndef KVCL_SCHED_GATHER_H
#define KVCL_SCHED_GATHER_H

#include "sched/sched.h"

enum { KVCL_GATHER_RUNS = 8, KVCL_GATHER_SEGS = 2 * KVCL_GATHER_RUNS, KVCL_GATHER_HOLDERS = 4 };

typedef struct kvcl_seg {
    uint32_t first, end;                   /* blocks */
    uint32_t n;                            /* holders; 0: a gap */
    uint32_t inst[KVCL_GATHER_HOLDERS];    /* indices, the fastest sender first */
    double   out[KVCL_GATHER_HOLDERS];     /* bytes a second, its share for one more transfer */
    double   wait[KVCL_GATHER_HOLDERS];    /* seconds that a byte costs the other transfers of this sender */
    uint16_t tier[KVCL_GATHER_HOLDERS];
} kvcl_seg_t;

typedef struct kvcl_gather {
    uint32_t   n;
    kvcl_seg_t seg[KVCL_GATHER_SEGS];
} kvcl_gather_t;

/* How far a candidate fetches, and what that costs. */
typedef struct kvcl_reach {
    uint32_t upto;
    double   fetch_s;
    double   prefill_s;
    double   price_s; /* what the fetches cost others */
    double   cost_s;  /* max(queue, fetch) + prefill x work + price: this is the least */
} kvcl_reach_t;

/* What a request pays for others. */
typedef struct kvcl_prices {
    double work;   /* of a second of prefill, itself included */
    double sender; /* of a second that the other transfers of a sender lose */
    double room;   /* of a byte that is fetched: it stays, and takes the room of other blocks */
} kvcl_prices_t;

/** @a holder: the most holders of a segment, at least 1. */
void kvcl_gather_make(const kvcl_job_t *job, kvcl_gather_t *gather, uint32_t holders);

/**
 * The best reach of a candidate. Only ends of segments, and the blocks where the queue ceases to hide the fetch, can be
 * best: between them the cost is concave, since T = a + b m + c m (n + p) + d p is, in p, and the fetch is linear.
 */
void kvcl_gather_reach(const kvcl_job_t *job, const kvcl_gather_t *gather, const kvcl_cand_t *cand,
                       const kvcl_prices_t *prices, kvcl_reach_t *reach);

/** Write the picked candidate's fetches, own .. upto, into job->piece. */
void kvcl_gather_pieces(kvcl_job_t *job, const kvcl_gather_t *gather, const kvcl_cand_t *cand);

#endif
