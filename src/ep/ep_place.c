/*
 * kvcl_ep_place: EPLB's rebalance_experts, hierarchical or global, layer by layer (ep_replicate.c, ep_pack.c; with
 * min_hosts ep_hosts.c).
 *
 * Whether the experts fit depends on the params alone, except for min_ranks with hosts of different numbers of active
 * ranks. The caller's array is written when all layers are placed.
 *
 * Pure but for one allocation; no lock.
 */
#include "ep/ep_place.h"

#include "base/error.h"

#include <stdlib.h>

/* ---- scratch ---- */

/* The next n elements of a size, at a multiple of 16. */
static void *carve(uint8_t *base, size_t *at_p, size_t n, size_t size)
{
    void *part = (base == NULL) ? NULL : base + *at_p;

    *at_p += ((n * size) + 15) & ~(size_t)15;
    return part;
}

/* Set the pointers into base. @return the number of bytes. */
static size_t lay_out(const kvcl_ep_shape_t *s, kvcl_ep_room_t *room, uint8_t *base)
{
    size_t n = (s->slots > s->experts) ? s->slots : s->experts, hosts = s->hosts, at = 0;

    room->placement  = carve(base, &at, (size_t)s->layers * s->slots, sizeof(*room->placement));
    room->items      = carve(base, &at, n, sizeof(*room->items));
    room->packs      = carve(base, &at, n, sizeof(*room->packs));
    room->aside      = carve(base, &at, n, sizeof(*room->aside));
    room->load       = carve(base, &at, n, sizeof(*room->load));
    room->pack_load  = carve(base, &at, n, sizeof(*room->pack_load));
    room->local      = carve(base, &at, n, sizeof(*room->local));
    room->expert     = carve(base, &at, n, sizeof(*room->expert));
    room->counts     = carve(base, &at, n, sizeof(*room->counts));
    room->at         = carve(base, &at, n, sizeof(*room->at));
    room->held       = carve(base, &at, n, sizeof(*room->held));
    room->used       = carve(base, &at, n, sizeof(*room->used));
    room->order      = carve(base, &at, n, sizeof(*room->order));
    room->ranks      = carve(base, &at, n, sizeof(*room->ranks));
    room->host_load  = carve(base, &at, hosts, sizeof(*room->host_load));
    room->host_level = carve(base, &at, hosts, sizeof(*room->host_level));
    room->host_ranks = carve(base, &at, hosts, sizeof(*room->host_ranks));
    room->host_room  = carve(base, &at, hosts, sizeof(*room->host_room));
    room->host_mark  = carve(base, &at, hosts, sizeof(*room->host_mark));
    room->on_host    = carve(base, &at, (s->min_hosts > 1) ? s->experts * hosts : 0, sizeof(*room->on_host));
    return at;
}

static kvcl_status_t open_room(const kvcl_ep_shape_t *s, kvcl_ep_room_t *room)
{
    size_t   bytes = lay_out(s, room, NULL);
    uint32_t n     = 0, r;

    room->memory = malloc(bytes);
    if (room->memory == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_place: no memory: %zu bytes for %u layers of %u slots", bytes,
                         s->layers, s->slots);
    }
    (void)lay_out(s, room, room->memory);
    for (r = 0; r < s->ranks; ++r) {
        room->ranks[n] = r;
        n += (uint32_t)kvcl_ep_is_active(s, r);
    }
    return KVCL_OK;
}

/* ---- checks ---- */

static int is_hierarchical(const kvcl_ep_shape_t *s)
{
    return (s->groups % s->hosts == 0) && (s->n_active == s->ranks) && (s->min_hosts == 1);
}

/* The number of hosts whose experts are placed apart: 1 is global. */
static uint32_t apart(const kvcl_ep_shape_t *s)
{
    return is_hierarchical(s) ? s->hosts : 1;
}

static kvcl_status_t check_spread(const kvcl_ep_shape_t *s)
{
    uint32_t experts = s->experts / apart(s), ranks = s->n_active / apart(s);

    if (s->min_ranks > ranks) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "ep_place: min_ranks is %u, %u ranks are %s", s->min_ranks, ranks,
                         (apart(s) > 1) ? "on a host, and groups keep an expert on one: set groups to 1" : "active");
    }
    if (s->spread && (s->per_rank > experts)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                         "ep_place: spread: each rank has %u slots for %u different experts: give fewer slots",
                         s->per_rank, experts);
    }
    return KVCL_OK;
}

static kvcl_status_t check_room(const kvcl_ep_shape_t *s)
{
    uint32_t least = (s->min_ranks > s->min_hosts) ? s->min_ranks : s->min_hosts;
    uint64_t slots = (uint64_t)s->n_active * s->per_rank;
    uint32_t reach;

    if (slots < (uint64_t)s->experts * least) {
        return kvcl_fail(KVCL_ERR_NO_SPACE,
                         "ep_place: %u active ranks have %llu slots for %u experts of at least %u copies each",
                         s->n_active, (unsigned long long)slots, s->experts, least);
    }
    reach = (s->min_hosts > 1) ? kvcl_ep_hosts_reach(s) : 1;
    if (s->min_hosts > reach) {
        return kvcl_fail(KVCL_ERR_NO_SPACE,
                         "ep_place: min_hosts is %u: the active ranks of %u hosts can hold each of %u experts on %u of "
                         "them", s->min_hosts, s->hosts, s->experts, reach);
    }
    return check_spread(s);
}

static kvcl_status_t check_loads(const kvcl_ep_shape_t *s, const uint64_t *loads)
{
    uint64_t sum;
    uint32_t l, e;

    for (l = 0; l < s->layers; ++l) {
        for (e = 0, sum = 0; e < s->experts; ++e, ++loads) {
            if (*loads > UINT64_MAX - sum) {
                return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                                 "ep_place: the loads of layer %u reach 2^64 at expert %u: %llu + %llu: scale them "
                                 "down", l, e, (unsigned long long)sum, (unsigned long long)*loads);
            }
            sum += *loads;
        }
    }
    return KVCL_OK;
}

/* ---- placing ---- */

/* Pack the groups on hosts: room->order, the expert at each position. */
static void order_groups(const kvcl_ep_shape_t *s, kvcl_ep_room_t *room, const uint64_t *loads, uint32_t hosts)
{
    uint32_t groups = is_hierarchical(s) ? s->groups : 1, size = s->experts / groups, e;

    for (e = 0; e < groups; ++e) {
        room->load[e] = 0;
    }
    for (e = 0; e < s->experts; ++e) {
        room->load[e / size] += (kvcl_ep_load_t)loads[e] << 64;
    }
    kvcl_ep_pack(room, groups, hosts, 0);
    for (e = 0; e < s->experts; ++e) {
        room->order[(room->at[e / size] * size) + (e % size)] = e;
    }
}

static void place_layer(const kvcl_ep_shape_t *s, kvcl_ep_room_t *room, const uint64_t *loads, int32_t *placement)
{
    uint32_t hosts = apart(s), experts = s->experts / hosts, ranks = s->n_active / hosts;
    uint32_t slots = ranks * s->per_rank, host, rank, k;
    const uint32_t *order;

    order_groups(s, room, loads, hosts);
    for (host = 0; host < hosts; ++host) {
        order = &room->order[host * experts];
        for (k = 0; k < experts; ++k) {
            room->local[k] = loads[order[k]];
        }
        kvcl_ep_replicate(room, room->local, experts, slots, s->min_ranks, s->spread ? ranks : UINT32_MAX);
        for (k = 0; k < slots; ++k) {
            room->load[k] = (k < experts) ? kvcl_ep_share(room->local[k], room->counts[k])
                                          : room->load[room->expert[k]];
        }
        kvcl_ep_pack(room, slots, ranks, s->spread);
        for (k = 0; k < slots; ++k) {
            rank = room->ranks[(host * ranks) + (room->at[k] / s->per_rank)];

            placement[(rank * s->per_rank) + (room->at[k] % s->per_rank)] = (int32_t)order[room->expert[k]];
        }
    }
}

static kvcl_status_t place_layers(const kvcl_ep_shape_t *s, kvcl_ep_room_t *room, const uint64_t *loads)
{
    size_t        n = (size_t)s->layers * s->slots, i;
    kvcl_status_t status = KVCL_OK;
    uint32_t      l;

    for (i = 0; i < n; ++i) {
        room->placement[i] = KVCL_EP_NONE;
    }
    for (l = 0; (l < s->layers) && (status == KVCL_OK); ++l) {
        if (s->min_hosts > 1) {
            status = kvcl_ep_place_on_hosts(s, room, &loads[(size_t)l * s->experts], l,
                                            &room->placement[(size_t)l * s->slots]);
        } else {
            place_layer(s, room, &loads[(size_t)l * s->experts], &room->placement[(size_t)l * s->slots]);
        }
    }
    return status;
}

kvcl_status_t kvcl_ep_place(const kvcl_ep_params_t *params, const uint64_t *loads, int32_t *placement)
{
    kvcl_ep_shape_t s;
    kvcl_ep_room_t  room;
    kvcl_status_t   status = kvcl_ep_take(params, "ep_place", &s);
    size_t          i;

    if ((status == KVCL_OK) && ((loads == NULL) || (placement == NULL))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_place: loads or placement is NULL");
    }
    if ((status != KVCL_OK) || ((status = check_room(&s)) != KVCL_OK) ||
        ((status = check_loads(&s, loads)) != KVCL_OK) ||
        ((status = open_room(&s, &room)) != KVCL_OK)) {
        return status;
    }
    status = place_layers(&s, &room, loads);
    for (i = 0; (status == KVCL_OK) && (i < (size_t)s.layers * s.slots); ++i) {
        placement[i] = room.placement[i];
    }
    free(room.memory);
    return status;
}
