/*
 * Placing experts: EPLB's own examples, 10,000 random inputs against a plain implementation (ep_oracle.h), and what
 * each option promises: spread, min_ranks, min_hosts, the mask of active ranks. TEST_SEED replays.
 */
#include "kvcl/kvcl_ep.h"
#include "ep_oracle.h"
#include "test_base.h"

#include <string.h>

enum { INPUTS = 10000, SLOTS = 640, EXPERTS = 256, RANKS = 64 };

static kvcl_rand_t rnd;

static const uint64_t readme[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                       {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};

static void place(const kvcl_ep_params_t *p, const uint64_t *loads, int32_t *placement)
{
    ck_assert_msg(kvcl_ep_place(p, loads, placement) == KVCL_OK, "%s", kvcl_last_error());
}

static void expect(const int32_t *got, const int32_t *want, int n)
{
    int i;

    for (i = 0; i < n; ++i) {
        ck_assert_msg(got[i] == want[i], "slot %d has expert %d, not %d", i, got[i], want[i]);
    }
}

/* ---- examples ---- */

START_TEST(the_examples_of_eplb)
{
    static const int32_t hierarchical[32] = {5,  6,  5, 7, 8,  4,  3, 4, 10, 9, 10, 2, 0, 1, 11, 1,
                                             7, 10, 6, 8, 6, 11, 8, 9, 2,  4, 5, 1, 5, 0, 3, 1};
    static const int32_t global[32] = {10, 6,  10, 7, 0, 2,  11, 4, 5, 9, 5, 4, 8, 3, 1, 1,
                                       1,  10, 2,  4, 5, 11, 5,  0, 6, 7, 6, 3, 8, 8, 9, 7};
    static const int32_t idle[16] = {0, 1, 2, 3, 4, 5, 0, 0, 6, 7, 8, 9, 10, 11, 6, 6};
    static const uint64_t zeros[12];
    kvcl_ep_params_t p = KVCL_EP_PARAMS_INIT;
    int32_t          got[32];

    p.layers  = 2;
    p.experts = 12;
    p.slots   = 16;
    p.groups  = 4;
    p.hosts   = 2;
    p.ranks   = 8;
    place(&p, readme[0], got);
    expect(got, hierarchical, 32);
    ck_assert_int_eq((int)(oracle_most(readme[0], got, 16, 8) / (1033.0 / 8) * 1000 + 0.5), 1208);
    ck_assert_int_eq((int)(oracle_most(readme[1], got + 16, 16, 8) / (1156.0 / 8) * 1000 + 0.5), 1242);
    p.groups = 1;
    p.hosts  = 1;
    place(&p, readme[0], got);
    expect(got, global, 32);
    p.groups = 0;
    p.hosts  = 2; /* one group on two hosts: global */
    place(&p, readme[0], got);
    expect(got, global, 32);
    p.layers = 0;
    p.groups = 4;
    place(&p, zeros, got);
    expect(got, idle, 16);
}
END_TEST

START_TEST(six_experts_on_four_ranks)
{
    static const uint64_t loads[6] = {60, 30, 20, 10, 10, 10};
    static const int32_t  want[8]  = {1, 5, 0, 0, 2, 3, 0, 4};
    kvcl_ep_params_t      p        = KVCL_EP_PARAMS_INIT;
    int32_t               got[8];

    p.experts = 6;
    p.slots   = 8;
    p.ranks   = 4;
    place(&p, loads, got);
    expect(got, want, 8);
}
END_TEST

/* ---- random inputs ---- */

typedef struct input {
    kvcl_ep_params_t p;
    uint8_t          active[RANKS];
    uint64_t         loads[EXPERTS];
    int32_t          got[SLOTS];
    char             text[200];
} input_t;

static uint32_t below(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

static void make_loads(input_t *in)
{
    uint32_t kind = below(8), e;

    for (e = 0; e < in->p.experts; ++e) {
        in->loads[e] = (kind < 4)    ? 1 + below(1000000)
                       : (kind == 4) ? UINT64_C(1000000000) / (1 + below(in->p.experts)) /* zipf */
                       : (kind == 5) ? below(4)
                       : (kind == 6) ? (below(4) == 0) * (uint64_t)below(1000)
                                     : 7;
    }
}

/* Experts in groups on hosts, all ranks active, with at least as many slots as experts. */
static void make_input(input_t *in)
{
    uint32_t hosts = 1u << below(4), per_host = 1 + below(8), size = 1 + below(6), groups = hosts * (1 + below(4));
    uint32_t ranks = hosts * per_host, experts, least;

    memset(in, 0, sizeof(*in));
    groups  = (below(4) == 0) ? 1 + below(6) : groups;
    experts = groups * size;
    least   = (experts + ranks - 1) / ranks;
    in->p   = (kvcl_ep_params_t){.size = sizeof(in->p), .experts = experts, .ranks = ranks, .hosts = hosts,
                                 .groups = groups, .slots = ranks * (least + below(4))};
    make_loads(in);
    snprintf(in->text, sizeof(in->text), "%u experts in %u groups, %u slots, %u ranks on %u hosts, loads %llu %llu ..",
             experts, groups, in->p.slots, ranks, hosts, (unsigned long long)in->loads[0],
             (unsigned long long)in->loads[1]);
}

START_TEST(random_inputs_are_placed_as_eplb_does)
{
    int32_t want[SLOTS];
    input_t in;
    int     i, same, exact = 0, tied = 0;
    double  most, least;

    for (i = 0; i < INPUTS; ++i) {
        make_input(&in);
        place(&in.p, in.loads, in.got);
        oracle_place(in.loads, (int)in.p.experts, (int)in.p.slots, (int)in.p.groups, (int)in.p.hosts, (int)in.p.ranks,
                     want);
        same  = (memcmp(want, in.got, in.p.slots * sizeof(*want)) == 0);
        most  = oracle_most(in.loads, in.got, (int)in.p.slots, (int)in.p.ranks);
        least = oracle_most(in.loads, want, (int)in.p.slots, (int)in.p.ranks);
        ck_assert_msg(same || oracle_tied, "input %d: another placement: %s", i, in.text);
        ck_assert_msg(most <= least * 1.01, "input %d: load %f instead of %f: %s", i, most, least, in.text);
        exact += !oracle_tied;
        tied += oracle_tied;
    }
    printf("%d inputs without a tie, %d with one\n", exact, tied);
    ck_assert_int_ge(exact, INPUTS / 10);
}
END_TEST

/* ---- promises ---- */

static uint32_t per_rank(const input_t *in)
{
    return in->p.slots / in->p.ranks;
}

/* On how many ranks, or hosts, an expert is; *copies_p: in how many slots. */
static uint32_t places_of(const input_t *in, uint32_t expert, int hosts, uint32_t *copies_p)
{
    uint32_t n = 0, last = UINT32_MAX, slot, at;

    *copies_p = 0;
    for (slot = 0; slot < in->p.slots; ++slot) {
        if (in->got[slot] == (int32_t)expert) {
            at = slot / per_rank(in);
            at = hosts ? at / (in->p.ranks / in->p.hosts) : at;
            n += (at != last);
            last = at;
            ++*copies_p;
        }
    }
    return n;
}

static void check_promises(const input_t *in)
{
    uint32_t slot, e, ranks, hosts, copies;
    int      active, spread = (in->p.flags != 0) || (in->p.min_ranks > 1) || (in->p.min_hosts > 1);

    for (slot = 0; slot < in->p.slots; ++slot) {
        active = (in->p.active == NULL) || in->active[slot / per_rank(in)];
        ck_assert_msg(active ? (in->got[slot] >= 0) && (in->got[slot] < (int32_t)in->p.experts)
                             : in->got[slot] == KVCL_EP_NONE, "slot %u has %d: %s", slot, in->got[slot], in->text);
    }
    for (e = 0; e < in->p.experts; ++e) {
        hosts = places_of(in, e, 1, &copies);
        ranks = places_of(in, e, 0, &copies);
        ck_assert_msg(ranks >= 1, "expert %u is nowhere: %s", e, in->text);
        ck_assert_msg(!spread || (ranks == copies), "expert %u is twice on a rank: %s", e, in->text);
        ck_assert_msg(ranks >= in->p.min_ranks, "expert %u is on %u ranks: %s", e, ranks, in->text);
        ck_assert_msg(hosts >= in->p.min_hosts, "expert %u is on %u hosts: %s", e, hosts, in->text);
    }
}

/* Active ranks, and how many of them the hosts have. */
static uint32_t make_mask(input_t *in, uint32_t *fewest_p, uint32_t *most_p, uint32_t *live_p)
{
    uint32_t per_host = in->p.ranks / in->p.hosts, n = 0, on = 0, r;

    in->p.active = in->active;
    *fewest_p    = UINT32_MAX;
    *most_p = *live_p = 0;
    for (r = 0; r < in->p.ranks; ++r) {
        in->active[r] = (below(4) != 0);
        n += in->active[r];
        on += in->active[r];
        if (r % per_host == per_host - 1) {
            *fewest_p = (on < *fewest_p) ? on : *fewest_p;
            *most_p   = (on > *most_p) ? on : *most_p;
            *live_p += (on > 0);
            on = 0;
        }
    }
    return n;
}

/* An input with options; what must fit is known. */
static void make_options(input_t *in, int *must_fit_p)
{
    uint32_t fewest, most, live, active, apart, slots, per_host, least;

    make_input(in);
    per_host = fewest = most = in->p.ranks / in->p.hosts;
    active = in->p.ranks;
    live   = in->p.hosts;
    if (below(2) == 0) {
        active = make_mask(in, &fewest, &most, &live);
    }
    in->p.flags     = (below(2) == 0) ? KVCL_EP_SPREAD : 0;
    in->p.min_ranks = below(4);
    in->p.min_hosts = below(4);
    least = (in->p.min_ranks > in->p.min_hosts) ? in->p.min_ranks : in->p.min_hosts;
    least = (least == 0) ? 1 : least;
    apart = ((in->p.groups % in->p.hosts == 0) && (active == in->p.ranks) && (in->p.min_hosts <= 1)) ? in->p.hosts : 1;
    slots = active * per_rank(in);
    *must_fit_p = (active > 0) && (slots >= in->p.experts * least) && (in->p.min_ranks <= active / apart) &&
                  (in->p.min_hosts <= live) && ((in->p.min_hosts <= 1) || ((fewest == most) && (most > 0))) &&
                  (((in->p.flags == 0) && (least == 1)) || (per_rank(in) <= in->p.experts / apart));
    snprintf(in->text + strlen(in->text), sizeof(in->text) - strlen(in->text),
             ", %u of %u active, fewest %u, flags %llu, min %u %u", active, per_host, fewest,
             (unsigned long long)in->p.flags, in->p.min_ranks, in->p.min_hosts);
}

START_TEST(what_fits_is_placed_as_the_options_promise)
{
    int           i, j, must, placed = 0, hosts = 0, uneven = 0;
    kvcl_status_t status;
    input_t       in;

    for (i = 0; i < INPUTS; ++i) {
        make_options(&in, &must);
        memset(in.got, 0x5a, sizeof(in.got));
        status = kvcl_ep_place(&in.p, in.loads, in.got);
        ck_assert_msg((status == KVCL_OK) || !must, "input %d: %s: %s", i, in.text, kvcl_last_error());
        if (status == KVCL_OK) {
            check_promises(&in);
            ++placed;
            hosts += (in.p.min_hosts > 1);
            uneven += !must;
            continue;
        }
        ck_assert_msg((status == KVCL_ERR_NO_SPACE) || (status == KVCL_ERR_INVALID_PARAM), "%s", kvcl_last_error());
        for (j = 0; j < SLOTS; ++j) {
            ck_assert_msg(in.got[j] == 0x5a5a5a5a, "input %d: written on failure: %s", i, in.text);
        }
    }
    printf("%d placed, %d of them on several hosts, %d on hosts of different sizes\n", placed, hosts, uneven);
    ck_assert_int_ge(hosts, 100);
    ck_assert_int_ge(uneven, 10);
}
END_TEST

/* A hot expert, and enough copies of it for each rank: packing has to make room by moving others. */
START_TEST(spread_finds_a_place_for_every_copy)
{
    int32_t  want[SLOTS];
    uint32_t i, e, hot;
    input_t  in;

    for (i = 0; i < 5000; ++i) {
        memset(&in, 0, sizeof(in));
        in.p.size    = sizeof(in.p);
        in.p.flags   = KVCL_EP_SPREAD;
        in.p.hosts   = 1;
        in.p.ranks   = 2 + below(7);
        in.p.experts = 2 + below(8);
        in.p.slots   = in.p.ranks * (1 + below(in.p.experts));
        in.p.slots   = (in.p.slots < in.p.experts) ? in.p.ranks * in.p.experts : in.p.slots;
        hot          = 1 + below(in.p.experts);
        for (e = 0; e < in.p.experts; ++e) {
            in.loads[e] = 840 * (uint64_t)((e < hot) ? 900 + below(100) : 1 + below(300)); /* all ranks divide 840 */
        }
        snprintf(in.text, sizeof(in.text), "%u experts, %u slots, %u ranks", in.p.experts, in.p.slots, in.p.ranks);
        place(&in.p, in.loads, in.got);
        check_promises(&in);
        oracle_spread(in.loads, (int)in.p.experts, (int)in.p.slots, (int)in.p.ranks, want);
        ck_assert_msg(memcmp(want, in.got, in.p.slots * sizeof(*want)) == 0, "input %u: another placement: %s", i,
                      in.text);
    }
}
END_TEST

/* The load of the most loaded rank, over the mean, of 256 experts by zipf's law. */
static double balance(uint32_t slots, uint32_t ranks, uint32_t hosts, uint64_t flags, uint32_t min_ranks,
                      uint32_t min_hosts)
{
    static uint64_t  loads[EXPERTS];
    static int32_t   got[SLOTS];
    kvcl_ep_params_t p = KVCL_EP_PARAMS_INIT;
    double           sum = 0;
    uint32_t         e;

    p.experts   = EXPERTS;
    p.slots     = slots;
    p.ranks     = ranks;
    p.hosts     = hosts;
    p.flags     = flags;
    p.min_ranks = min_ranks;
    p.min_hosts = min_hosts;
    for (e = 0; e < EXPERTS; ++e) {
        loads[(e * 37) % EXPERTS] = UINT64_C(1000000000) / (e + 1);
    }
    for (e = 0; e < EXPERTS; ++e) {
        sum += (double)loads[e];
    }
    place(&p, loads, got);
    return oracle_most(loads, got, (int)slots, (int)ranks) * ranks / sum;
}

START_TEST(options_keep_the_load_even)
{
    ck_assert_double_le(balance(288, 32, 1, 0, 0, 0), 1.02);
    ck_assert_double_le(balance(320, 64, 1, 0, 0, 0), 1.04);
    ck_assert_double_le(balance(320, 64, 8, KVCL_EP_SPREAD, 0, 0), 1.05);
    ck_assert_double_le(balance(640, 64, 8, 0, 2, 0), 1.02);
    ck_assert_double_le(balance(640, 64, 8, 0, 0, 2), 1.02);
    printf("640 slots on 64 ranks: max/mean %.3f plain, %.3f spread, %.3f min_ranks 2, %.3f min_hosts 2\n",
           balance(640, 64, 8, 0, 0, 0), balance(640, 64, 8, KVCL_EP_SPREAD, 0, 0), balance(640, 64, 8, 0, 2, 0),
           balance(640, 64, 8, 0, 0, 2));
}
END_TEST

/* Loads whose sum is 2^64 - 1, the largest that is allowed. */
START_TEST(the_largest_loads)
{
    const uint64_t   loads[3] = {UINT64_MAX - 2, 1, 1};
    const int32_t    want[6]  = {0, 0, 0, 1, 0, 2};
    kvcl_ep_params_t p        = KVCL_EP_PARAMS_INIT;
    int32_t          got[6];

    p.experts = 3;
    p.slots   = 6;
    p.ranks   = 3;
    place(&p, loads, got);
    expect(got, want, 6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ep_place");
    TCase *tc    = tcase_create("place");

    test_seed(&rnd); /* before the forks: all tests of a run begin with it */
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, the_examples_of_eplb);
    tcase_add_test(tc, six_experts_on_four_ranks);
    tcase_add_test(tc, random_inputs_are_placed_as_eplb_does);
    tcase_add_test(tc, what_fits_is_placed_as_the_options_promise);
    tcase_add_test(tc, spread_finds_a_place_for_every_copy);
    tcase_add_test(tc, options_keep_the_load_even);
    tcase_add_test(tc, the_largest_loads);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
