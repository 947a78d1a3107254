/*
 * What a rank counted, and what all ranks counted together. Plain values of one byte order: ranks exchange them.
 */
#ifndef KVCL_TOOLS_REPLAY_TALLY_H
#define KVCL_TOOLS_REPLAY_TALLY_H

#include "tools/hist.h"
#include "tools/job.h"
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
    hist_t   get_ns;       /* of each get, whatever its number of blocks */
    hist_t   match_ns;
} tally_t;

/* Collective: the sum over all ranks into *sum (the longest elapsed_ns), on every rank. */
bool tally_gather(const job_t *job, const tally_t *mine, tally_t *sum);

/* Print the sum to stdout, as JSON or for people. One broadcast counts once. */
void tally_print(const job_t *job, const replay_options_t *opt, const tally_t *sum, uint64_t skipped_lines);

#endif
