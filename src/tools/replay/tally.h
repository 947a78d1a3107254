/*
 * The counts of one rank, and their sums over all ranks. Plain values of one byte order: ranks exchange them.
 */
#ifndef KVCL_TOOLS_REPLAY_TALLY_H
#define KVCL_TOOLS_REPLAY_TALLY_H

#include "tools/hist.h"
#include "tools/job.h"
#include "tools/json_out.h"
#include "tools/replay/options.h"

typedef struct tally {
    uint64_t requests;
    uint64_t blocks;       /* blocks of the requests */
    uint64_t hits;         /* blocks fetched from a rank, or held by this one */
    uint64_t local;        /* hits held by this rank */
    uint64_t computed;
    uint64_t lookups;      /* keys passed to match */
    uint64_t bytes;        /* fetched from other ranks */
    uint64_t bcasts;       /* broadcasts that this rank received */
    uint64_t bcast_blocks;
    uint64_t vanished;     /* blocks that a match found and a get did not */
    uint64_t unpublished;  /* blocks that the directory had no room for */
    uint64_t evictions;
    uint64_t wrong;        /* blocks with wrong bytes */
    uint64_t elapsed_ns;
    /* With --store. hits are then remote + nvme + local. */
    uint64_t remote;       /* hits from other ranks' pools */
    uint64_t nvme;         /* hits from second tiers of any rank */
    uint64_t not_put;      /* computed blocks for which no pool had room */
    uint64_t few_copies;   /* blocks put with fewer copies than requested */
    uint64_t failed;       /* blocks whose query, get or put failed with a failing rank */
    uint64_t taken_over;   /* requests of the killed rank */
    uint64_t demoted;
    uint64_t promoted;
    uint64_t dropped;
    hist_t   get_ns;       /* of each get, with any number of blocks */
    hist_t   match_ns;
    hist_t   put_ns;       /* of each put */
} tally_t;

/* The effects of a kill, measured by the watcher. Times are since the kill; 0: the event did not occur. */
typedef struct kill_report {
    uint64_t struck_ns;   /* the moment of the kill, after the beginning */
    uint64_t served;      /* requests that the killed rank had served; their figures are lost */
    uint64_t held;        /* blocks in its pool just before */
    uint64_t alone;       /* examined blocks without another copy */
    uint64_t watched;     /* examined blocks with another copy */
    uint64_t gets;        /* of watched blocks, after the kill */
    uint64_t failed;      /* of these gets */
    uint64_t lost;        /* watched blocks that no later get returned */
    uint64_t wrong;
    uint64_t noticed_ns;  /* the watcher detected the death */
    uint64_t first_ns;    /* each watched block was fetched once and verified */
    uint64_t other_ns;    /* by gets begun after the death was known: certainly from other copies */
    uint64_t last_failed_ns;
    uint64_t longest_ns;  /* of the gets */
    uint64_t repaired_ns; /* each watched block had all its copies again; 0 also where one is enough */
} kill_report_t;

/* Collective: the sum over all ranks into *sum (the longest elapsed_ns), on every rank. */
bool tally_gather(const job_t *job, const tally_t *mine, tally_t *sum);

/* Print the sum to stdout, as JSON or for people. One broadcast counts once. kill: NULL if no rank was killed. */
void tally_print(const job_t *job, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill,
                 uint64_t skipped_lines);

/* The additions of --store to the two functions above (tally_store.c). */
void tally_store_json(json_out_t *json, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill);
void tally_store_text(const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill);

#endif
