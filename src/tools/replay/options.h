/*
 * The options of a replay. A plain value; strings are argv's.
 */
#ifndef KVCL_TOOLS_REPLAY_OPTIONS_H
#define KVCL_TOOLS_REPLAY_OPTIONS_H

#include "tools/cli.h"

#define REPLAY_BLOCK_TOKENS   512u /* tokens of one block, which is one id of a trace */
#define REPLAY_POOL_UNLIMITED 0u
#define REPLAY_KILL_NONE      (-1)
#define REPLAY_KILL_HELD      UINT64_MAX

typedef struct replay_options {
    const char *trace;          /* NULL: generate one */
    const char *model;          /* NULL: none named */
    uint64_t   bytes_per_token;
    uint64_t   block_bytes;     /* of 512 tokens */
    uint64_t   pool_bytes;      /* each rank's, or REPLAY_POOL_UNLIMITED */
    uint64_t   requests;        /* of a generated trace */
    uint64_t   seed;
    double     speed;           /* 0: as fast as possible */
    bool       in_order;
    bool       strict;
    bool       json;
    bool       store;           /* use the whole store: puts into pools, gets from any rank and tier */
    double     pool_share;      /* of the distinct blocks, all pools together, 0..1; 0: see pool_bytes */
    const char *nvme;           /* PATH:SIZE, or NULL */
    uint64_t   replicas;
    int        kill_rank;       /* or REPLAY_KILL_NONE */
    uint64_t   kill_ns;         /* after the beginning, or REPLAY_KILL_HELD: as soon as it holds copied blocks */
} replay_options_t;

/* Fill from a command line. Returns as cli_parse(): on CLI_BAD the error has been printed. */
cli_result_t replay_options_parse(replay_options_t *opt, int argc, char **argv);

#endif
