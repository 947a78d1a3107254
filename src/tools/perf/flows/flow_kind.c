/*
 * The patterns: their names, the numbers of ranks that they need, and their flows. Pure.
 */
#include "config.h"
#include "tools/perf/flows/flow_kind.h"

#include <string.h>

static const char *const names[] = {
    [FLOW_NONE] = "none", [FLOW_PAIRS] = "pairs", [FLOW_INCAST] = "incast", [FLOW_ALL] = "all"};

bool flow_kind_named(const char *name, flow_kind_t *kind_p)
{
    int i;

    for (i = FLOW_PAIRS; i <= FLOW_ALL; ++i) {
        if (strcmp(names[i], name) == 0) {
            *kind_p = (flow_kind_t)i;
            return true;
        }
    }
    return false;
}

const char *flow_kind_name(flow_kind_t kind)
{
    return names[kind];
}

const char *flow_kind_refuses(flow_kind_t kind, int size)
{
    if (size < 2) {
        return "2 ranks or more";
    }
    return ((kind == FLOW_PAIRS) && (size % 2 != 0)) ? "an even number of ranks" : NULL;
}

bool flow_kind_initiates(flow_kind_t kind, int rank, int peer)
{
    switch (kind) {
    case FLOW_PAIRS:
        return (rank % 2 == 0) && (peer == rank + 1);
    case FLOW_INCAST:
        return (rank != 0) && (peer == 0);
    case FLOW_ALL:
        return rank != peer;
    default:
        return false;
    }
}

size_t flow_kind_place(flow_kind_t kind, int rank, int peer)
{
    size_t place = 0;
    int    i;

    for (i = 0; i < rank; ++i) {
        place += flow_kind_initiates(kind, i, peer) ? 1u : 0u;
    }
    return place;
}
