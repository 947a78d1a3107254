/*
 * EPLB's rebalance_experts for one layer, in floating point and without a heap, with the lowest index at every tie:
 * what kvcl_ep_place is compared with. It also says whether two different packs had the same load, up to rounding, when
 * one of them was chosen: then the result depends on the rounding.
 */
#ifndef KVCL_TEST_EP_ORACLE_H
#define KVCL_TEST_EP_ORACLE_H

#include <stdint.h>
#include <stdlib.h>

enum { ORACLE_MAX = 1024 };

static int oracle_tied;

static void oracle_pack(const double *w, int n, int m, int *pack, int *number)
{
    double load[ORACLE_MAX] = {0}, eps;
    int    count[ORACLE_MAX] = {0}, done[ORACLE_MAX] = {0}, k, i, b, item, best;

    for (k = 0; k < n; ++k) {
        if (n == m) {
            pack[k]   = k;
            number[k] = 0;
            continue;
        }
        for (item = -1, i = 0; i < n; ++i) {
            item = (!done[i] && ((item < 0) || (w[i] > w[item]))) ? i : item;
        }
        for (best = -1, b = 0; b < m; ++b) {
            best = ((count[b] < n / m) && ((best < 0) || (load[b] < load[best]))) ? b : best;
        }
        for (b = 0; b < m; ++b) {
            eps = load[best] * 1e-9;
            oracle_tied |= (b != best) && (count[b] < n / m) && (load[b] > 0) && (load[b] - load[best] <= eps);
        }
        done[item]   = 1;
        pack[item]   = best;
        number[item] = count[best]++;
        load[best] += w[item];
    }
}

static void oracle_replicate(const double *w, int n, int copies, int *expert, int *count)
{
    int k, i, best;

    for (k = 0; k < copies; ++k) {
        best = (k < n) ? k : 0;
        for (i = 1; (k >= n) && (i < n); ++i) {
            best = (w[i] / count[i] > w[best] / count[best]) ? i : best;
        }
        count[best] = (k < n) ? 1 : count[best] + 1;
        expert[k]   = best;
    }
}

static void oracle_place(const uint64_t *loads, int experts, int slots, int groups, int hosts, int ranks, int32_t *out)
{
    static double w[ORACLE_MAX], part[ORACLE_MAX];
    static int    order[ORACLE_MAX], pack[ORACLE_MAX], number[ORACLE_MAX], expert[ORACLE_MAX], count[ORACLE_MAX];
    int           size, per, e, h, k;

    oracle_tied = 0;
    groups      = (groups % hosts == 0) ? groups : 1;
    hosts       = (groups % hosts == 0) ? hosts : 1;
    size        = experts / groups;
    per         = experts / hosts;
    for (e = 0; e < groups; ++e) {
        w[e] = 0;
    }
    for (e = 0; e < experts; ++e) {
        w[e / size] += (double)loads[e];
    }
    oracle_pack(w, groups, hosts, pack, number);
    for (e = 0; e < experts; ++e) {
        order[(((pack[e / size] * (groups / hosts)) + number[e / size]) * size) + (e % size)] = e;
    }
    for (h = 0; h < hosts; ++h) {
        for (k = 0; k < per; ++k) {
            part[k] = (double)loads[order[(h * per) + k]];
        }
        oracle_replicate(part, per, slots / hosts, expert, count);
        for (k = 0; k < slots / hosts; ++k) {
            w[k] = part[expert[k]] / count[expert[k]];
        }
        oracle_pack(w, slots / hosts, ranks / hosts, pack, number);
        for (k = 0; k < slots / hosts; ++k) {
            out[(h * (slots / hosts)) + (pack[k] * (slots / ranks)) + number[k]] = order[(h * per) + expert[k]];
        }
    }
}

static int oracle_has(const int32_t *out, int rank, int used, int per_rank, int expert)
{
    int i;

    for (i = 0; i < used; ++i) {
        if (out[(rank * per_rank) + i] == expert) {
            return 1;
        }
    }
    return 0;
}

/* The slot for a copy of x where all ranks with a free slot have x: its expert moves to the lightest of them, so that
 * the heavier of the two ranks is as light as possible. */
static int oracle_swap(int32_t *out, double *load, int *used, const double *w, int ranks, int per_rank, int x)
{
    int    to = -1, best = -1, r, i, y;
    double most, least = 0;

    for (r = 0; r < ranks; ++r) {
        to = ((used[r] < per_rank) && ((to < 0) || (load[r] < load[to]))) ? r : to;
    }
    for (i = 0; i < ranks * per_rank; ++i) {
        r = i / per_rank;
        y = out[i];
        if ((used[r] < per_rank) || oracle_has(out, r, per_rank, per_rank, x) ||
            oracle_has(out, to, used[to], per_rank, y)) {
            continue;
        }
        most = load[r] - w[y] + w[x];
        most = (load[to] + w[y] > most) ? load[to] + w[y] : most;
        if ((best < 0) || (most < least)) {
            best  = i;
            least = most;
        }
    }
    y = out[best];
    load[best / per_rank] -= w[y];
    load[to] += w[y];
    out[(to * per_rank) + used[to]++] = y;
    return best;
}

/* The same with spread, one group, and loads that the number of copies divides: sums are exact. */
static void oracle_spread(const uint64_t *loads, int experts, int slots, int ranks, int32_t *out)
{
    double load[ORACLE_MAX] = {0}, w[ORACLE_MAX];
    int    count[ORACLE_MAX], expert[ORACLE_MAX], used[ORACLE_MAX] = {0}, per_rank = slots / ranks;
    int    k, e, r, best, place;

    for (e = 0; e < experts; ++e) {
        count[e] = 1;
    }
    for (k = 0; k < slots; ++k) {
        for (best = (k < experts) ? k : -1, e = 0; (k >= experts) && (e < experts); ++e) {
            if ((count[e] < ranks) &&
                ((best < 0) || ((double)loads[e] / count[e] > (double)loads[best] / count[best]))) {
                best = e;
            }
        }
        count[best] += (k >= experts);
        expert[k] = best;
    }
    for (e = 0; e < experts; ++e) {
        w[e] = (double)loads[e] / count[e];
    }
    for (k = 0; k < slots; ++k) {
        out[k] = expert[k];
    }
    for (k = 0; (per_rank > 1) && (k < slots); ++k) {
        for (best = -1, e = 0; e < slots; ++e) {
            best = ((expert[e] >= 0) && ((best < 0) || (w[expert[e]] > w[expert[best]]))) ? e : best;
        }
        e            = expert[best];
        expert[best] = -1;
        for (best = -1, r = 0; r < ranks; ++r) {
            if ((used[r] < per_rank) && !oracle_has(out, r, used[r], per_rank, e) &&
                ((best < 0) || (load[r] < load[best]))) {
                best = r;
            }
        }
        place = (best < 0) ? oracle_swap(out, load, used, w, ranks, per_rank, e) : (best * per_rank) + used[best]++;
        out[place] = e;
        load[place / per_rank] += w[e];
    }
}

/* The load of the most loaded rank. */
static double oracle_most(const uint64_t *loads, const int32_t *placement, int slots, int ranks)
{
    int    count[ORACLE_MAX] = {0}, s;
    double load = 0, most = 0;

    for (s = 0; s < slots; ++s) {
        count[(placement[s] < 0) ? ORACLE_MAX - 1 : placement[s]]++;
    }
    for (s = 0; s < slots; ++s) {
        load = (s % (slots / ranks) == 0) ? 0 : load;
        load += (placement[s] < 0) ? 0 : (double)loads[placement[s]] / count[placement[s]];
        most = (load > most) ? load : most;
    }
    return most;
}

#endif
