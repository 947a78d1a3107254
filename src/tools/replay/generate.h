/*
 * A generated trace: the shape of Mooncake's published conversation trace without its data. Deterministic: the same
 * seed and number give the same trace on every machine (whole-number arithmetic only).
 */
#ifndef KVCL_TOOLS_REPLAY_GENERATE_H
#define KVCL_TOOLS_REPLAY_GENERATE_H

#include "tools/replay/trace.h"

/* Append requests to an empty trace. False when out of memory. */
bool trace_generate(trace_t *trace, uint64_t requests, uint64_t seed);

#endif
