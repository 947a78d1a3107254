/*
 * What a rank counted, and what all ranks counted together. Plain values of one byte order: ranks exchange them.
 */
#ifndef KVCL_TOOLS_REPLAY_TALLY_H
#define KVCL_TOOLS_REPLAY_TALLY_H

#include "tools/hist.h"
#include "tools/job.h"
#include "tools/json_out.h"
#include "tools/replay/options.h"

typedef struct tally {
    uint64_t requests;
    uint64_t blocks;       /* asked for by requests */
    uint64_t hits;         /* of them: got from a rank, or held by this one */
    uint64_t local;        /* of the hits: held by this rank */
    uint64_t computed;
    uint64_t lookups;      /* keys given to match */
    uint64_t bytes;        /* fetched from the ranks that had them */
    uint64_t bcasts;       /* this rank took part in, and got */
    uint64_t bcast_blocks;
    uint64_t vanished;     /* blocks that a match promised and a get did not find */
    uint64_t unpublished;  /* blocks that the directory had no room for */
    uint64_t evictions;
    uint64_t wrong;        /* blocks whose bytes were not theirs */
    uint64_t elapsed_ns;
    /* With --store. hits are then remote + nvme + local. */
    uint64_t remote;       /* of the hits: out of other ranks' pools */
    uint64_t nvme;         /* from second tiers, of this rank and of others */
    uint64_t not_put;      /* blocks computed, and kept nowhere: no room */
    uint64_t few_copies;   /* kept, in fewer copies than asked for */
    uint64_t failed;       /* blocks that could not be asked for, or got, or put, since a rank was going */
    uint64_t taken_over;   /* of requests: the killed rank's */
    uint64_t demoted;
    uint64_t promoted;
    uint64_t dropped;
    hist_t   get_ns;       /* of each get, whatever its number of blocks */
    hist_t   match_ns;
    hist_t   put_ns;       /* of each put */
} tally_t;

/* What a kill cost, as the rank saw it that watched. Times are since the kill; 0: it did not come to that. */
typedef struct kill_report {
    uint64_t served;      /* requests that the killed rank had served; their figures went with it */
    uint64_t held;        /* blocks in its pool just before */
    uint64_t alone;       /* of those looked at: nowhere else */
    uint64_t watched;     /* of those looked at: with another copy */
    uint64_t gets;        /* of watched blocks, after the kill */
    uint64_t failed;      /* of these gets */
    uint64_t lost;        /* watched blocks that did not come any more */
    uint64_t wrong;
    uint64_t noticed_ns;  /* the watching rank knew of the death */
    uint64_t first_ns;    /* each watched block had been got once, and verified */
    uint64_t other_ns;    /* by gets begun after that: from other copies for certain */
    uint64_t last_failed_ns;
    uint64_t longest_ns;  /* of the gets */
    uint64_t repaired_ns; /* each watched block had as many copies as there shall be; 0 as well where one is enough */
} kill_report_t;

/* Collective: the sum over all ranks into *sum (the longest elapsed_ns), on every rank. */
bool tally_gather(const job_t *job, const tally_t *mine, tally_t *sum);

/* Print the sum to stdout, as JSON or for people. One broadcast counts once. kill: NULL if nobody was killed. */
void tally_print(const job_t *job, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill,
                 uint64_t skipped_lines);

/* Of these, what --store adds (tally_store.c). */
void tally_store_json(json_out_t *json, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill);
void tally_store_text(const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill);

#endif
