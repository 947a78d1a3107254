/*
 * The requests that run: which ones wait for or are in their prefill, and which ones decode since when. Admission reads
 * from it what the load will be. A dense array and a map by id, both of a fixed size: requests beyond it, and those
 * without an id, are not followed. Pure.
 */
#ifndef KVCL_SCHED_FOLLOW_H
#define KVCL_SCHED_FOLLOW_H

#include <kvcl/kvcl_sched.h>
#include "base/map.h"

#include <stdbool.h>

typedef struct kvcl_followed {
    uint64_t id;
    uint32_t prefill, decode;
    uint32_t klass;
    bool     decodes;     /* its prefill has ended */
    double   prefill_s;   /* predicted, corrected */
    double   fetch_s;     /* predicted, of all its fetches */
    double   fetch_bytes; /* that they are planned to move */
    double   deadline_s;  /* of its first token, on the caller's clock; 0: none */
    double   start_s;     /* of its decode: predicted, then as it was */
    double   tokens;
    double   output;      /* reckoned with */
} kvcl_followed_t;

typedef struct kvcl_follow {
    kvcl_followed_t *at;   /* [max]; the first n are requests */
    uint32_t        n, max;
    kvcl_map_t      by_id; /* id -> index + 1 */
} kvcl_follow_t;

kvcl_status_t kvcl_follow_init(kvcl_follow_t *follow, uint32_t max) KVCL_MUST_CHECK;
void          kvcl_follow_fini(kvcl_follow_t *follow);

/** Follow a request; one of the same id is replaced. */
void             kvcl_follow_add(kvcl_follow_t *follow, const kvcl_followed_t *request);
/** NULL: it is not followed. */
kvcl_followed_t *kvcl_follow_find(kvcl_follow_t *follow, uint64_t id);
void             kvcl_follow_remove(kvcl_follow_t *follow, uint64_t id);
/** Remove the requests on an instance. Those that prefill elsewhere lose it as the place to decode. */
void             kvcl_follow_gone(kvcl_follow_t *follow, uint32_t inst);

/* What a moment will bring. */
typedef struct kvcl_forecast {
    double batch;   /* requests that decode then */
    double context; /* their tokens */
} kvcl_forecast_t;

/**
 * Of decode instance @a decode, or all of them (KVCL_SCHED_NONE), at the moment @a then_s. @a decode_s: how long each
 * request decodes; 0: its own output x step_s.
 */
kvcl_forecast_t kvcl_follow_forecast(const kvcl_follow_t *follow, uint32_t decode, double then_s, double decode_s,
                                     double step_s);

#endif
