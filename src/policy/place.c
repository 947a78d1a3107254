/*
 * Turns of places (place.h): smooth weighted round robin. Each choice adds its weight to every candidate's turn,
 * chooses the highest, and subtracts the sum of all weights from it. In as many choices as that sum each candidate is
 * chosen as often as its weight, evenly spread. Turns are bounded by a few sums.
 */
#include "config.h"

#include "policy/place.h"

#include <string.h>

enum { STEP_PART = 64 }; /* the ramp rises each time that a rank has received this part of its pool */

void kvcl_place_init(kvcl_place_t *place, uint64_t host, uint64_t bytes)
{
    memset(place, 0, sizeof(*place));
    place->host  = host;
    place->bytes = bytes;
    place->free  = bytes;
    kvcl_place_restart(place);
}

void kvcl_place_restart(kvcl_place_t *place)
{
    place->ramp  = 1;
    place->taken = 0;
}

void kvcl_place_seen(kvcl_place_t *place, uint64_t free_bytes)
{
    free_bytes = (free_bytes < place->bytes) ? free_bytes : place->bytes; /* hostile */
    if ((free_bytes > place->free) && (free_bytes - place->free > place->bytes / 2)) {
        kvcl_place_restart(place);
    }
    place->free = free_bytes;
}

void kvcl_place_took(kvcl_place_t *place, uint64_t bytes, uint64_t free_bytes)
{
    kvcl_place_seen(place, free_bytes);
    place->taken += (bytes < place->bytes) ? bytes : place->bytes;
    while ((place->ramp < KVCL_PLACE_POINTS) && (place->taken > place->bytes / STEP_PART)) {
        place->taken -= place->bytes / STEP_PART;
        place->taken -= (place->taken != 0) ? 1 : 0; /* it ends, however small the pool */
        ++place->ramp;
    }
}

uint64_t kvcl_place_weight(const kvcl_place_t *place)
{
    uint64_t unit   = (place->bytes / KVCL_PLACE_POINTS) + 1;
    uint64_t points = place->free / unit;

    return 1 + ((points < place->ramp) ? points : place->ramp);
}

static bool apart(const kvcl_place_t *place, const uint64_t *hosts, unsigned n_hosts)
{
    unsigned i;

    for (i = 0; (i < n_hosts) && (hosts[i] != place->host); ++i) {
    }
    return i == n_hosts;
}

uint32_t kvcl_place_next(kvcl_place_t *places, uint32_t n, const uint8_t *ok, const uint64_t *hosts, unsigned n_hosts)
{
    uint32_t best = UINT32_MAX, i;
    bool     any  = false;
    int64_t  sum  = 0;

    for (i = 0; i < n; ++i) {
        any = any || (ok[i] && apart(&places[i], hosts, n_hosts));
    }
    for (i = 0; i < n; ++i) {
        if (!ok[i] || (any && !apart(&places[i], hosts, n_hosts))) {
            continue;
        }
        places[i].turn += (int64_t)kvcl_place_weight(&places[i]);
        sum += (int64_t)kvcl_place_weight(&places[i]);
        if ((best == UINT32_MAX) || (places[i].turn > places[best].turn)) {
            best = i;
        }
    }
    if (best != UINT32_MAX) {
        places[best].turn -= sum;
    }
    return best;
}
