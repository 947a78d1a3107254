/*
 * Messages that no recv has matched: kvcl_probe, and recvs of any tag. Communicators by color and key: kvcl_comm_split.
 */
#include "conform.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends a test that hangs; no result depends on it. */
#define WAIT_NS (60 * KVCL_NS_PER_SEC)

static kvcl_req_h send_to(cf_t *cf, int rank, uint64_t tag, const void *buf, size_t len)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_send_bytes(cf->world, rank, tag, buf, len, NULL, &req));
    return req;
}

static kvcl_recv_info_t recv_now(cf_t *cf, int rank, uint64_t tag, void *buf, size_t cap)
{
    kvcl_recv_info_t   info   = KVCL_RECV_INFO_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.info = &info;
    CF_OK(cf, kvcl_recv_bytes(cf->world, rank, tag, buf, cap, &params, &req));
    CF_OK(cf, cf_end(cf, req));
    return info;
}

/* ---------------------------------------------------------------- probes */

static void nothing_there(cf_t *cf)
{
    kvcl_recv_info_t info = {.size = sizeof(info), .source = 77, .tag = 78, .bytes = 79};
    char             who[48];
    uint64_t         began;

    CF_IS(cf, kvcl_probe(cf->world, KVCL_ANY_SOURCE, KVCL_ANY_TAG, 0, &info), KVCL_INPROGRESS);
    CF_IS(cf, kvcl_probe(cf->world, cf_after(cf), 5, 0, &info), KVCL_INPROGRESS);
    began = kvcl_now_ns();
    CF_IS(cf, kvcl_probe(cf->world, cf_after(cf), 5, 2 * KVCL_NS_PER_MS, &info), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, kvcl_now_ns() - began >= 2 * KVCL_NS_PER_MS);
    snprintf(who, sizeof(who), "a message of tag 5 from rank %d", cf_after(cf));
    CF_CHECK(cf, strstr(kvcl_last_error(), who) != NULL);
    CF_IS(cf, kvcl_probe(cf->world, KVCL_ANY_SOURCE, KVCL_ANY_TAG, 1, &info), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, strstr(kvcl_last_error(), "a message of any tag from any rank") != NULL);
    CF_CHECK(cf, (info.source == 77) && (info.tag == 78) && (info.bytes == 79));
    CF_IS(cf, kvcl_probe(cf->world, cf->size, 5, 0, &info), KVCL_ERR_UNKNOWN_RANK);
    CF_IS(cf, kvcl_probe(cf->world, -2, 5, 0, &info), KVCL_ERR_UNKNOWN_RANK);
    CF_IS(cf, kvcl_probe(cf->world, 0, 5, 0, NULL), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_probe(NULL, 0, 5, 0, &info), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_send_bytes(cf->world, cf_after(cf), KVCL_ANY_TAG, "x", 1, NULL, NULL), KVCL_ERR_INVALID_PARAM);
    CF_CHECK(cf, strstr(kvcl_last_error(), "KVCL_ANY_TAG") != NULL);
    cf_fence(cf);
}

/* A message is found, stays, and is taken by the recv that the probe describes; small and large ones. */
static void found(cf_t *cf)
{
    enum { BIG = 3000001 };
    static const size_t lens[] = {0, 5, 100000, BIG};
    char             *out = malloc(BIG), *in = malloc(BIG);
    uint64_t         seed = cf_same(cf);
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT, got;
    kvcl_req_h       s;
    size_t           i;

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        cf_bytes(seed + (uint64_t)cf->rank, (uint32_t)i, out, lens[i]);
        s = send_to(cf, cf_after(cf), 40 + i, out, lens[i]);
        CF_OK(cf, kvcl_probe(cf->world, KVCL_ANY_SOURCE, KVCL_ANY_TAG, WAIT_NS, &info));
        CF_CHECK(cf, (info.source == cf_before(cf)) && (info.tag == 40 + i) && (info.bytes == lens[i]));
        CF_IS(cf, kvcl_probe(cf->world, KVCL_ANY_SOURCE, 41 + i, 0, &info), KVCL_INPROGRESS);
        CF_OK(cf, kvcl_probe(cf->world, cf_before(cf), 40 + i, 0, &info));
        got = recv_now(cf, info.source, info.tag, in, (size_t)info.bytes);
        CF_CHECK(cf, (got.bytes == lens[i]) && cf_bytes_are(seed + (uint64_t)cf_before(cf), (uint32_t)i, in, lens[i]));
        CF_IS(cf, kvcl_probe(cf->world, cf_before(cf), 40 + i, 0, &info), KVCL_INPROGRESS);
        CF_OK(cf, cf_end(cf, s));
        cf_fence(cf);
    }
    free(out);
    free(in);
}

/* Any tag: in the order of arrival; a probe and a recv see the same message first, those of other communicators not. */
static void any_tag(cf_t *cf)
{
    enum { N = 12 };
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT, got;
    uint32_t         out[N], in, i;
    kvcl_req_h       s[N], other;
    int              ranks[CF_RANKS_MAX], r;
    kvcl_comm_h      second;

    for (r = 0; r < cf->size; ++r) {
        ranks[r] = r;
    }
    CF_OK(cf, kvcl_comm_create(cf->world, ranks, cf->size, &second));
    CF_OK(cf, kvcl_send_bytes(second, cf_after(cf), 1, "second", 6, NULL, &other));
    for (i = 0; i < N; ++i) {
        out[i] = i;
        s[i]   = send_to(cf, cf_after(cf), (7 * i) % 5, &out[i], sizeof(out[i]));
    }
    for (i = 0; i < N; ++i) {
        CF_OK(cf, kvcl_probe(cf->world, (i % 2) ? KVCL_ANY_SOURCE : cf_before(cf), KVCL_ANY_TAG, WAIT_NS, &info));
        got = recv_now(cf, (i % 2) ? cf_before(cf) : KVCL_ANY_SOURCE, KVCL_ANY_TAG, &in, sizeof(in));
        CF_CHECK(cf, (in == i) && (got.tag == (7 * i) % 5) && (info.tag == got.tag) && (got.source == cf_before(cf)));
    }
    CF_OK(cf, kvcl_req_wait_all(s, N, WAIT_NS));
    CF_IS(cf, kvcl_probe(cf->world, KVCL_ANY_SOURCE, KVCL_ANY_TAG, 0, &info), KVCL_INPROGRESS);
    CF_OK(cf, kvcl_probe(second, KVCL_ANY_SOURCE, KVCL_ANY_TAG, WAIT_NS, &info));
    CF_CHECK(cf, info.bytes == 6);
    CF_OK(cf, kvcl_recv_bytes(second, cf_before(cf), KVCL_ANY_TAG, &in, 4, NULL, &s[0]));
    CF_IS(cf, cf_end(cf, s[0]), KVCL_ERR_TRUNCATED);
    CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_recv_bytes of any tag") != NULL);
    CF_IS(cf, cf_end(cf, other), KVCL_ERR_TRUNCATED);
    cf_fence(cf);
    kvcl_comm_free(second);
}

/* A probe of a rank that dies ends; the message that it had sent is found first. */
static void dead_rank(cf_t *cf)
{
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    kvcl_req_h       s;
    char             in[8];

    if (cf->rank == 1) {
        s = send_to(cf, 0, 1, "last", 5);
        while (kvcl_req_test(s) == KVCL_INPROGRESS) {
            cf_sleep_us(cf, 1000); /* until rank 0 ends this process */
        }
        cf_sleep_us(cf, 100 * 1000 * 1000);
    }
    if (cf->rank != 0) {
        return;
    }
    CF_OK(cf, kvcl_probe(cf->world, 1, KVCL_ANY_TAG, WAIT_NS, &info));
    cf_kill(cf, 1, SIGKILL);
    CF_IS(cf, kvcl_probe(cf->world, 1, 2, WAIT_NS, &info), KVCL_ERR_RANK_FAILED);
    CF_CHECK(cf, strstr(kvcl_last_error(), "a message of tag 2 from rank 1") != NULL);
    CF_OK(cf, kvcl_probe(cf->world, 1, 1, 0, &info));
    (void)recv_now(cf, 1, 1, in, 8);
    CF_CHECK(cf, strcmp(in, "last") == 0);
    CF_IS(cf, kvcl_probe(cf->world, 1, 1, 0, &info), KVCL_ERR_RANK_FAILED);
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
}

/* ---------------------------------------------------------------- split */

/* The members of a communicator, by their ranks in the world. */
static void members_are(cf_t *cf, kvcl_comm_h comm, const int *want, int n)
{
    int        all[CF_RANKS_MAX], i;
    kvcl_req_h req;

    CF_CHECK(cf, kvcl_comm_size(comm) == n);
    CF_OK(cf, kvcl_allgather(comm, &cf->rank, sizeof(cf->rank), all, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < n; ++i) {
        CF_CHECK(cf, all[i] == want[i]);
    }
    CF_CHECK(cf, all[kvcl_comm_rank(comm)] == cf->rank);
}

static void split(cf_t *cf)
{
    kvcl_comm_h parity, twin, all, again;
    int         want[CF_RANKS_MAX], n = 0, r;

    CF_OK(cf, kvcl_comm_split(cf->world, cf->rank % 2, -cf->rank, WAIT_NS, &parity)); /* the highest rank first */
    for (r = cf->size - 1; r >= 0; --r) {
        if (r % 2 == cf->rank % 2) {
            want[n++] = r;
        }
    }
    members_are(cf, parity, want, n);
    CF_OK(cf, kvcl_comm_split(parity, 5, 0, KVCL_WAIT_DEFAULT, &twin)); /* equal keys: the parent's order */
    members_are(cf, twin, want, n);
    CF_OK(cf, kvcl_comm_split(cf->world, INT64_MAX, 0, WAIT_NS, &all));
    for (r = 0; r < cf->size; ++r) {
        want[r] = r;
    }
    members_are(cf, all, want, cf->size);
    again = parity;
    CF_OK(cf, kvcl_comm_split(all, (cf->rank == 0) ? KVCL_COLOR_NONE : INT64_MIN + 1, INT64_MAX - cf->rank, WAIT_NS,
                              &again));
    CF_CHECK(cf, (again == NULL) == (cf->rank == 0));
    if (cf->rank != 0) {
        for (r = 1; r < cf->size; ++r) {
            want[r - 1] = cf->size - r;
        }
        members_are(cf, again, want, cf->size - 1);
    }
    cf_fence(cf);
    kvcl_comm_free(again);
    kvcl_comm_free(all);
    kvcl_comm_free(twin);
    kvcl_comm_free(parity);
}

/* A rank that has made one communicator more over the same ranks, as where an earlier split has failed on the others
 * only. Those of the next one find each other all the same. */
static void split_once_more(cf_t *cf)
{
    kvcl_comm_h more, mine;
    int         all[CF_RANKS_MAX], r, i;

    for (r = 0; r < cf->size; ++r) {
        all[r] = r;
    }
    if (cf->rank == 0) {
        CF_OK(cf, kvcl_comm_create(cf->world, all, cf->size, &more));
        kvcl_comm_free(more);
    }
    for (i = 0; i < 2; ++i) {
        CF_OK(cf, kvcl_comm_split(cf->world, 1, 0, WAIT_NS, &mine));
        members_are(cf, mine, all, cf->size);
        cf_fence(cf);
        kvcl_comm_free(mine);
    }
}

/* Where a rank does not take part the others' calls end, and change nothing. */
static void split_alone(cf_t *cf)
{
    kvcl_comm_h mine, none = NULL;

    CF_OK(cf, kvcl_comm_split(cf->world, 1, 0, WAIT_NS, &mine));
    if (cf->rank == 0) {
        CF_IS(cf, kvcl_comm_split(mine, 1, 0, 5 * KVCL_NS_PER_MS, &none), KVCL_ERR_TIMED_OUT);
        CF_CHECK(cf, none == NULL);
        CF_IS(cf, kvcl_comm_split(mine, 1, 0, KVCL_WAIT_FOREVER, &none), KVCL_ERR_INVALID_PARAM);
        CF_IS(cf, kvcl_comm_split(mine, 1, 0, WAIT_NS, NULL), KVCL_ERR_INVALID_PARAM);
        CF_IS(cf, kvcl_comm_split(NULL, 1, 0, WAIT_NS, &none), KVCL_ERR_INVALID_PARAM);
    }
    cf_fence(cf);
    kvcl_comm_free(mine);
}

static const cf_case_t cases[] = {
    {"nothing_there", nothing_there, 0}, {"found", found, 0}, {"any_tag", any_tag, 0},
    {"split", split, 0},                 {"split_alone", split_alone, 0},
    {"split_once_more", split_once_more, 0},
    {"dead_rank", dead_rank, CF_PROCS | CF_DIES}, {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 3, 0}, {"loop", false, 3, CF_OVERTAKE}, {"shm", true, 3, 0}, {"tcp", false, 2, 0},
    {"tcp", true, 4, 0},   {"tcp", true, 2, KVCL_INIT_NO_THREAD},                {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
