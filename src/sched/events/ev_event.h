/*
 * Events of engines and of Mooncake, decoded from MessagePack (ev_decode.c). Hostile bytes; pure.
 */
#ifndef KVCL_SCHED_EVENTS_EV_EVENT_H
#define KVCL_SCHED_EVENTS_EV_EVENT_H

#include "sched/events/ev_msgpack.h"

typedef enum kvcl_ev_kind {
    KVCL_EV_UNKNOWN,
    KVCL_EV_STORED,
    KVCL_EV_REMOVED,
    KVCL_EV_CLEARED
} kvcl_ev_kind_t;

/* Text in the payload; NULL: none. */
typedef struct kvcl_ev_text {
    const char *at;
    uint32_t   len;
} kvcl_ev_text_t;

/* A list in the payload: n values from mp on. None: n is 0. */
typedef struct kvcl_ev_list {
    kvcl_mp_t mp;
    uint32_t  n;
} kvcl_ev_list_t;

typedef struct kvcl_ev {
    kvcl_ev_kind_t kind;
    kvcl_ev_list_t hashes;
    kvcl_ev_list_t tokens;
    kvcl_ev_list_t extra;      /* a value for each block, or none */
    kvcl_mp_item_t parent;     /* nil: none */
    uint32_t       block_size; /* 0: not told */
    uint32_t       group;
    uint64_t       lora_id;
    uint64_t       event_id;
    uint64_t       base;       /* position of the first block */
    uint64_t       dp_rank;
    bool           has_lora_id, has_event_id, has_base, has_dp_rank;
    kvcl_ev_text_t type, lora, medium, salt, tenant, backend, model;
} kvcl_ev_t;

/* A payload's events. */
typedef struct kvcl_ev_batch {
    kvcl_ev_list_t events;
    uint64_t       dp_rank;
    bool           has_dp_rank;
} kvcl_ev_batch_t;

/**
 * A payload: [time, [events], rank] or a map with "events"; with `bare` also a list of maps, or one map, which are the
 * events themselves (Mooncake's JSON). @return false: it is not; *at_p is where.
 */
bool kvcl_ev_batch(const uint8_t *payload, size_t len, bool bare, kvcl_ev_batch_t *batch, size_t *at_p);

/**
 * The next event, of a list of kvcl_ev_batch: [kind, fields...] or a map. Missing fields are as nil, unknown ones are
 * ignored. @return false: it is no event; the list is behind it all the same.
 */
bool kvcl_ev_next(kvcl_ev_list_t *events, kvcl_ev_t *ev);

#endif
