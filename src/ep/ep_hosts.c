/*
 * Placing with min_hosts > 1: the copies are divided among the hosts first, then those of a host are packed on its
 * ranks with spread.
 *
 * kvcl_ep_replicate proposes the number of copies. The first of them, max(min_ranks, min_hosts) of each expert, are
 * divided in rounds over the experts by falling load; in a round an expert gets copies on different hosts, those with
 * the most slots left. For uniform demands this choice fails only where every choice does (Gale and Ryser), so
 * the first round always finds min_hosts hosts if kvcl_ep_hosts_reach has said that there are enough. The other copies
 * go to the host with the least load per rank. Where a copy finds no host, its expert stays without it; the slot that
 * remains free is filled at the end by the expert with the largest load per copy that its host can take. There is
 * always one: a host has no more slots than its ranks times the number of experts.
 *
 * An expert has at most as many copies on a host as that host has active ranks, so that packing can spread them.
 *
 * Pure; no lock.
 */
#include "ep/ep_place.h"

#include "base/error.h"

enum { NO_HOST = UINT32_MAX };

static uint32_t active_on(const kvcl_ep_shape_t *s, uint32_t host)
{
    uint32_t n = 0, i;

    for (i = 0; i < s->per_host; ++i) {
        n += (uint32_t)kvcl_ep_is_active(s, (host * s->per_host) + i);
    }
    return n;
}

uint32_t kvcl_ep_hosts_reach(const kvcl_ep_shape_t *s)
{
    uint64_t places = 0; /* of different experts on each host */
    uint32_t live = 0, h, slots;

    for (h = 0; h < s->hosts; ++h) {
        slots = active_on(s, h) * s->per_rank;
        live += (slots > 0);
        places += (slots < s->experts) ? slots : s->experts;
    }
    return (places / s->experts < live) ? (uint32_t)(places / s->experts) : live;
}

/* What is the same for all experts of a layer. */
typedef struct division {
    const kvcl_ep_shape_t *s;
    kvcl_ep_room_t        *room;
    uint32_t              visit; /* room->host_mark of the hosts that the expert has got in this round */
} division_t;

static int better(const division_t *d, uint32_t a, uint32_t b, int by_room)
{
    const kvcl_ep_room_t *room = d->room;
    int                  fresh_a = (room->host_mark[a] != d->visit), fresh_b = (room->host_mark[b] != d->visit);

    if (by_room && (fresh_a != fresh_b)) {
        return fresh_a;
    }
    if (by_room && (room->host_room[a] != room->host_room[b])) {
        return room->host_room[a] > room->host_room[b];
    }
    return room->host_level[a] < room->host_level[b];
}

static uint32_t host_for(const division_t *d, uint32_t expert, int by_room)
{
    const uint16_t *on  = &d->room->on_host[(size_t)expert * d->s->hosts];
    uint32_t       best = NO_HOST, h;

    for (h = 0; h < d->s->hosts; ++h) {
        if ((d->room->host_room[h] > 0) && (on[h] < d->room->host_ranks[h]) &&
            ((best == NO_HOST) || better(d, h, best, by_room))) {
            best = h;
        }
    }
    return best;
}

static void give(division_t *d, uint32_t host, uint32_t expert)
{
    kvcl_ep_room_t *room = d->room;

    ++room->on_host[((size_t)expert * d->s->hosts) + host];
    --room->host_room[host];
    room->host_mark[host] = d->visit;
    room->host_load[host] += room->load[expert];
    room->host_level[host] = room->host_load[host] / room->host_ranks[host];
}

/* The copies that each expert needs. */
static kvcl_status_t divide_first(division_t *d, uint32_t least, uint32_t layer)
{
    uint32_t round = kvcl_ep_hosts_reach(d->s), left, i, k, host, expert;

    for (left = least; left > 0; left -= round) {
        round = (left < round) ? left : round;
        for (i = 0; i < d->s->experts; ++i) {
            ++d->visit;
            expert = d->room->order[i];
            for (k = 0; k < round; ++k) {
                host = host_for(d, expert, 1);
                if (host == NO_HOST) {
                    return kvcl_fail(KVCL_ERR_NO_SPACE,
                                     "ep_place: layer %u: only %u of %u copies of expert %u find a rank: lower "
                                     "min_ranks, give more slots, or hosts with as many active ranks each", layer,
                                     least - left + k, least, expert);
                }
                give(d, host, expert);
            }
        }
    }
    return KVCL_OK;
}

/* The others, whose number the loads propose. */
static void divide_others(division_t *d, uint32_t least)
{
    kvcl_ep_room_t *room = d->room;
    uint32_t       i, expert, host, left;

    for (i = 0; i < d->s->experts; ++i) {
        expert = room->order[i];
        for (left = room->counts[expert] - least; left > 0; --left) {
            host = host_for(d, expert, 0);
            if (host == NO_HOST) {
                room->counts[expert] -= left;
                break;
            }
            give(d, host, expert);
        }
    }
}

static void fill_host(division_t *d, const uint64_t *loads, uint32_t host)
{
    kvcl_ep_room_t *room = d->room;
    uint32_t       best, x;
    kvcl_ep_load_t most, share;

    while (room->host_room[host] > 0) {
        best = NO_HOST;
        most = 0;
        for (x = 0; x < d->s->experts; ++x) {
            share = kvcl_ep_share(loads[x], room->counts[x]);
            if ((room->on_host[((size_t)x * d->s->hosts) + host] < room->host_ranks[host]) &&
                ((best == NO_HOST) || (share > most))) {
                best = x;
                most = share;
            }
        }
        ++room->counts[best];
        give(d, host, best);
    }
}

/* The copies of a host on its ranks, of which the first one is number @a first of the active ones. */
static void pack_host(const division_t *d, const uint64_t *loads, uint32_t host, uint32_t first, int32_t *placement)
{
    kvcl_ep_room_t *room = d->room;
    uint32_t       per_rank = d->s->per_rank, n = 0, x, i, rank;

    for (x = 0; x < d->s->experts; ++x) {
        for (i = 0; i < room->on_host[((size_t)x * d->s->hosts) + host]; ++i) {
            room->expert[n] = x;
            room->load[n++] = kvcl_ep_share(loads[x], room->counts[x]);
        }
    }
    if (n == 0) {
        return;
    }
    kvcl_ep_pack(room, n, room->host_ranks[host], 1);
    for (i = 0; i < n; ++i) {
        rank = room->ranks[first + (room->at[i] / per_rank)];

        placement[(rank * per_rank) + (room->at[i] % per_rank)] = (int32_t)room->expert[i];
    }
}

/* Empty hosts, and the experts by falling load of a copy. */
static void begin(division_t *d, const uint64_t *loads)
{
    kvcl_ep_room_t *room = d->room;
    uint32_t       h, x, n = d->s->experts;
    size_t         i;

    for (h = 0; h < d->s->hosts; ++h) {
        room->host_ranks[h] = active_on(d->s, h);
        room->host_room[h]  = room->host_ranks[h] * d->s->per_rank;
        room->host_load[h] = room->host_level[h] = 0;
        room->host_mark[h] = 0;
    }
    for (i = 0; i < (size_t)d->s->experts * d->s->hosts; ++i) {
        room->on_host[i] = 0;
    }
    for (x = 0; x < d->s->experts; ++x) {
        room->load[x]  = kvcl_ep_share(loads[x], room->counts[x]);
        room->items[x] = (kvcl_ep_item_t){~room->load[x], x};
    }
    kvcl_ep_heapify(room->items, n);
    for (x = 0; n > 0; ++x) {
        room->order[x] = kvcl_ep_pop(room->items, &n).index;
    }
}

kvcl_status_t kvcl_ep_place_on_hosts(const kvcl_ep_shape_t *s, kvcl_ep_room_t *room, const uint64_t *loads,
                                     uint32_t layer, int32_t *placement)
{
    uint32_t      least = (s->min_ranks > s->min_hosts) ? s->min_ranks : s->min_hosts, h, first = 0;
    division_t    d     = {s, room, 0};
    kvcl_status_t status;

    kvcl_ep_replicate(room, loads, s->experts, s->n_active * s->per_rank, least, s->n_active);
    begin(&d, loads);
    status = divide_first(&d, least, layer);
    if (status != KVCL_OK) {
        return status;
    }
    divide_others(&d, least);
    for (h = 0; h < s->hosts; ++h) {
        fill_host(&d, loads, h);
    }
    for (h = 0; h < s->hosts; ++h) {
        pack_host(&d, loads, h, first, placement);
        first += room->host_ranks[h];
    }
    return KVCL_OK;
}
