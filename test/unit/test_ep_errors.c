/*
 * What the functions of kvcl_ep.h refuse: the status, the numbers in the sentence, and that nothing is written.
 */
#include "kvcl/kvcl_ep.h"
#include "test_base.h"

#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

enum { EXPERTS = 8, SLOTS = 12, RANKS = 4 };

static const uint64_t loads[EXPERTS]   = {1, 2, 3, 4, 5, 6, 7, 8};
static const int32_t  old[SLOTS]       = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3};
static const int32_t  placement[SLOTS] = {1, 0, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3};

static struct outs {
    int32_t        placement[SLOTS], copies[EXPERTS * SLOTS];
    uint32_t       counts[EXPERTS], rounds;
    size_t         restored, missing, n;
    kvcl_ep_move_t moves[SLOTS];
} out, kept;

static kvcl_ep_params_t good(void)
{
    kvcl_ep_params_t p = KVCL_EP_PARAMS_INIT;

    p.experts = EXPERTS;
    p.slots   = SLOTS;
    p.ranks   = RANKS;
    p.hosts   = 2;
    p.groups  = 2;
    return p;
}

static void refused(kvcl_status_t got, kvcl_status_t want, const char *words)
{
    ck_assert_msg(got == want, "%s, not %s: %s", kvcl_status_name(got), kvcl_status_name(want), kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), words) != NULL, "\"%s\" does not say \"%s\"", kvcl_last_error(), words);
    ck_assert_msg(memcmp(&out, &kept, sizeof(out)) == 0, "%s: something was written", words);
}

static kvcl_status_t call(int which, const kvcl_ep_params_t *p)
{
    switch (which) {
    case 0: return kvcl_ep_place(p, loads, out.placement);
    case 1: return kvcl_ep_index(p, old, out.copies, SLOTS, out.counts);
    case 2: return kvcl_ep_repair(p, old, out.placement, &out.restored, &out.missing);
    default:
        return kvcl_ep_moves(p, old, placement, out.moves, sizeof(*out.moves), SLOTS, &out.n, &out.rounds);
    }
}

static void begin(void)
{
    memset(&out, 0x5a, sizeof(out));
    kept = out;
}

/* Counts that no call accepts. */
START_TEST(params_of_every_call)
{
    static const struct {
        size_t     field;
        uint32_t   value;
        const char *words;
    } bad[] = {
        {offsetof(kvcl_ep_params_t, layers), 4097, "4097 layers: at most 4096"},
        {offsetof(kvcl_ep_params_t, experts), 0, "0 experts: 1 to 65536"},
        {offsetof(kvcl_ep_params_t, experts), 65537, "65537 experts: 1 to 65536"},
        {offsetof(kvcl_ep_params_t, ranks), 0, "0 ranks: 1 to 4096"},
        {offsetof(kvcl_ep_params_t, ranks), 4097, "4097 ranks: 1 to 4096"},
        {offsetof(kvcl_ep_params_t, slots), 0, "0 slots: 1 to 65536"},
        {offsetof(kvcl_ep_params_t, slots), 65540, "65540 slots: 1 to 65536"},
        {offsetof(kvcl_ep_params_t, slots), 13, "13 slots are no multiple of 4 ranks: give 16 slots"},
        {offsetof(kvcl_ep_params_t, hosts), 3, "3 hosts do not divide 4 ranks"},
        {offsetof(kvcl_ep_params_t, hosts), 8, "8 hosts do not divide 4 ranks"},
        {offsetof(kvcl_ep_params_t, groups), 3, "3 groups do not divide 8 experts"},
    };
    static const uint8_t none[RANKS];
    kvcl_ep_params_t     p;
    size_t               i;

    begin();
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        p = good();
        memcpy((char *)&p + bad[i].field, &bad[i].value, sizeof(bad[i].value));
        refused(call(_i, &p), KVCL_ERR_INVALID_PARAM, bad[i].words);
    }
    p        = good();
    p.active = none;
    refused(call(_i, &p), KVCL_ERR_INVALID_PARAM, "none of the 4 ranks is active");
    p       = good();
    p.flags = 0x13;
    refused(call(_i, &p), KVCL_ERR_INVALID_PARAM, "unknown flags 0x10");
    p      = good();
    p.size = 8;
    refused(call(_i, &p), KVCL_ERR_INVALID_PARAM, "kvcl_ep_params_t.size is 8");
    refused(call(_i, NULL), KVCL_ERR_INVALID_PARAM, "params is NULL");
    p = good();
    ck_assert_msg(call(_i, &p) == KVCL_OK, "%s", kvcl_last_error());
}
END_TEST

START_TEST(placing)
{
    const uint64_t   large[2 * EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1, 5, 0, UINT64_MAX - 5, 0, 1, 0, 0, 0};
    const uint8_t    active[RANKS]      = {1, 0, 1, 0}, uneven[RANKS] = {1, 1, 1, 0};
    kvcl_ep_params_t p                  = good();

    begin();
    refused(kvcl_ep_place(&p, NULL, out.placement), KVCL_ERR_INVALID_PARAM, "loads or placement is NULL");
    refused(kvcl_ep_place(&p, loads, NULL), KVCL_ERR_INVALID_PARAM, "loads or placement is NULL");
    p.layers = 2;
    refused(kvcl_ep_place(&p, large, out.placement), KVCL_ERR_INVALID_PARAM,
            "layer 1 reach 2^64 at expert 4: 18446744073709551615 + 1");
    p        = good();
    p.active = active;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE,
            "2 active ranks have 6 slots for 8 experts of at least 1 copies");
    p.experts = 16;
    p.active  = NULL;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE,
            "4 active ranks have 12 slots for 16 experts");
    p           = good();
    p.min_ranks = 2;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE, "12 slots for 8 experts of at least 2 copies");
    p.experts   = 4;
    p.min_ranks = 3;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE,
            "min_ranks is 3, 2 ranks are on a host, and groups keep an expert on one");
    p.groups  = 1;
    p.active  = active;
    p.experts = 2;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE, "min_ranks is 3, 2 ranks are active");
    p           = good();
    p.experts   = 4;
    p.min_hosts = 3;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE, "min_hosts is 3");
    p.min_hosts = 2;
    p.active    = uneven; /* the second host has 3 slots */
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE,
            "min_hosts is 2: the active ranks of 2 hosts can hold each of 4 experts on 1 of them");
    p         = good();
    p.experts = 2;
    p.groups  = 1;
    p.flags   = KVCL_EP_SPREAD;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_INVALID_PARAM,
            "each rank has 3 slots for 2 different experts");
}
END_TEST

/* Hosts of 1 and 3 active ranks of 2 slots: the small host holds 2 experts, each on all 4 ranks. */
START_TEST(hosts_of_different_sizes)
{
    const uint8_t    active[8] = {1, 0, 0, 0, 1, 1, 1, 0};
    kvcl_ep_params_t p         = KVCL_EP_PARAMS_INIT;
    int32_t          got[16];

    begin();
    p.experts   = 3;
    p.slots     = 16;
    p.ranks     = 8;
    p.hosts     = 2;
    p.active    = active;
    p.min_hosts = 2;
    refused(kvcl_ep_place(&p, loads, out.placement), KVCL_ERR_NO_SPACE,
            "the active ranks of 2 hosts can hold each of 3 experts on 1 of them");
    p.experts   = 2;
    p.min_ranks = 4;
    ck_assert_msg(kvcl_ep_place(&p, loads, got) == KVCL_OK, "%s", kvcl_last_error());
}
END_TEST

/* Rounds of min_ranks beyond the hosts: the error comes when copies are placed already, in the second layer. */
START_TEST(copies_that_find_no_rank)
{
    const uint64_t   mixed[10] = {5, 4, 3, 2, 1, 1, 1, 7, 2, 3};
    const uint8_t    active[6] = {1, 1, 1, 1, 0, 1};
    kvcl_ep_params_t p         = KVCL_EP_PARAMS_INIT;
    int32_t          got[48], i;

    begin();
    memset(got, 0x5a, sizeof(got));
    p.layers    = 2;
    p.experts   = 5;
    p.slots     = 24;
    p.ranks     = 6;
    p.hosts     = 3;
    p.active    = active;
    p.min_hosts = 2;
    p.min_ranks = 4;
    refused(kvcl_ep_place(&p, mixed, got), KVCL_ERR_NO_SPACE, "only 3 of 4 copies of expert");
    for (i = 0; i < 48; ++i) {
        ck_assert_int_eq(got[i], 0x5a5a5a5a);
    }
}
END_TEST

START_TEST(slots_that_name_no_expert)
{
    kvcl_ep_params_t p = good();
    int32_t          bad[2 * SLOTS];
    int              i;

    begin();
    p.layers = 2;
    for (i = 0; i < 2; ++i) {
        memcpy(bad, old, sizeof(old));
        memcpy(bad + SLOTS, old, sizeof(old));
        bad[SLOTS + 3] = (i == 0) ? EXPERTS : -2;
        refused(kvcl_ep_index(&p, bad, out.copies, 1, out.counts), KVCL_ERR_OUT_OF_RANGE,
                (i == 0) ? "placement has expert 8 in slot 3 of layer 1: there are 0 to 7"
                         : "placement has expert -2 in slot 3 of layer 1");
        refused(kvcl_ep_repair(&p, bad, out.placement, &out.restored, &out.missing), KVCL_ERR_OUT_OF_RANGE,
                "old has expert");
        p.layers = 1;
        bad[3]   = bad[SLOTS + 3];
        refused(kvcl_ep_moves(&p, bad, placement, out.moves, sizeof(*out.moves), SLOTS, &out.n, &out.rounds),
                KVCL_ERR_OUT_OF_RANGE, "ep_moves: old has expert");
        refused(kvcl_ep_moves(&p, old, bad, out.moves, sizeof(*out.moves), SLOTS, &out.n, &out.rounds),
                KVCL_ERR_OUT_OF_RANGE, "ep_moves: placement has expert");
        p.layers = 2;
    }
}
END_TEST

START_TEST(arrays_that_are_missing)
{
    const uint8_t    active[RANKS] = {1, 1, 1, 0};
    kvcl_ep_params_t p             = good();

    begin();
    refused(kvcl_ep_index(&p, NULL, out.copies, SLOTS, out.counts), KVCL_ERR_INVALID_PARAM, "placement is NULL");
    refused(kvcl_ep_index(&p, old, out.copies, 65537, out.counts), KVCL_ERR_INVALID_PARAM, "copies_max is 65537");
    refused(kvcl_ep_index(&p, old, out.copies, 1, out.counts), KVCL_ERR_TRUNCATED,
            "layer 0: expert 0 has 2 copies, copies_max is 1");
    refused(kvcl_ep_repair(&p, NULL, out.placement, &out.restored, &out.missing), KVCL_ERR_INVALID_PARAM,
            "old is NULL");
    refused(kvcl_ep_repair(&p, old, NULL, &out.restored, &out.missing), KVCL_ERR_INVALID_PARAM, "placement is NULL");
    refused(kvcl_ep_moves(&p, NULL, placement, out.moves, sizeof(*out.moves), SLOTS, &out.n, &out.rounds),
            KVCL_ERR_INVALID_PARAM, "old is NULL");
    refused(kvcl_ep_moves(&p, old, NULL, out.moves, sizeof(*out.moves), SLOTS, &out.n, &out.rounds),
            KVCL_ERR_INVALID_PARAM, "placement is NULL");
    refused(kvcl_ep_moves(&p, old, placement, NULL, sizeof(*out.moves), 1, &out.n, &out.rounds),
            KVCL_ERR_INVALID_PARAM, "moves or n_p is NULL");
    refused(kvcl_ep_moves(&p, old, placement, out.moves, sizeof(*out.moves), SLOTS, NULL, &out.rounds),
            KVCL_ERR_INVALID_PARAM, "moves or n_p is NULL");
    refused(kvcl_ep_moves(&p, old, placement, out.moves, 20, SLOTS, &out.n, &out.rounds), KVCL_ERR_INVALID_PARAM,
            "stride is 20");
    p.active = active;
    refused(kvcl_ep_moves(&p, old, placement, out.moves, sizeof(*out.moves), SLOTS, &out.n, &out.rounds),
            KVCL_ERR_INVALID_PARAM, "placement has expert 1 in slot 9 of rank 3, which is not active");
}
END_TEST

/* An address space that is too small for the scratch memory of the largest call. */
START_TEST(no_memory)
{
    const char       *sanitize = getenv("TEST_SANITIZE");
    struct rlimit    limit;
    kvcl_ep_params_t p = KVCL_EP_PARAMS_INIT;
    static uint64_t  zeros[KVCL_EP_MAX_LAYERS];

    if ((sanitize != NULL) && (strcmp(sanitize, "no") != 0)) {
        return; /* a sanitizer ends the process where malloc would return NULL */
    }
    begin();
    p.layers  = KVCL_EP_MAX_LAYERS;
    p.experts = 1;
    p.slots   = KVCL_EP_MAX_SLOTS;
    p.ranks   = 1;
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = (rlim_t)1 << 30; /* the result alone is 1 GiB */
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    refused(kvcl_ep_place(&p, zeros, out.placement), KVCL_ERR_NO_MEMORY, "for 4096 layers of 65536 slots");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ep_errors");
    TCase *tc    = tcase_create("errors");

    tcase_add_loop_test(tc, params_of_every_call, 0, 4);
    tcase_add_test(tc, placing);
    tcase_add_test(tc, hosts_of_different_sizes);
    tcase_add_test(tc, copies_that_find_no_rank);
    tcase_add_test(tc, slots_that_name_no_expert);
    tcase_add_test(tc, arrays_that_are_missing);
    tcase_add_test(tc, no_memory);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
