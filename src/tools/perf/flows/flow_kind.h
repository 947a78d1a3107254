/*
 * The patterns of kvcl_perf (--pattern): which rank moves blocks from or to which other one (flow_kind.c). Pure.
 */
#ifndef KVCL_TOOLS_PERF_FLOWS_FLOW_KIND_H
#define KVCL_TOOLS_PERF_FLOWS_FLOW_KIND_H

#include <stdbool.h>
#include <stddef.h>

typedef enum flow_kind {
    FLOW_NONE,   /* no pattern: rank 0 and rank 1 */
    FLOW_PAIRS,  /* rank 2i with rank 2i + 1 */
    FLOW_INCAST, /* every other rank with rank 0 */
    FLOW_ALL     /* every rank with every other one */
} flow_kind_t;

/* False, and *kind_p is unchanged: no pattern has that name. */
bool flow_kind_named(const char *name, flow_kind_t *kind_p);
const char *flow_kind_name(flow_kind_t kind);

/* NULL, or the number of ranks that the pattern needs, in words. */
const char *flow_kind_refuses(flow_kind_t kind, int size);

/* Whether rank initiates operations towards peer. */
bool flow_kind_initiates(flow_kind_t kind, int rank, int peer);

/* How many of the ranks below rank initiate towards peer: the place of rank's blocks among those of all that do. */
size_t flow_kind_place(flow_kind_t kind, int rank, int peer);

#endif
