/*
 * Data that a broadcast reports complete to a receiver is complete, though the root was stopped while the receiver
 * copied out of its memory, and overwrites that memory as soon as it may. Where ranks share memory the receiver is
 * stopped amid its copy; over every path the root stops at random moments. The same holds of plain bytes, whose staging
 * memory, or buffer, the root's next broadcast overwrites.
 */
#include "conform.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEN = 32 << 20, BLOCKS = 4, CROWD = 3000, SLICES = 3 };

enum { COPYING, REUSED, OVER }; /* words */

static bool all_are(const char *buf, char c, size_t len)
{
    return (buf[0] == c) && (memcmp(buf, buf + 1, len - 1) == 0);
}

/* Announce a step to the other rank, or wait for its step; no progress is made here meanwhile. */
static void say(cf_t *cf, unsigned what)
{
    atomic_store(cf_word(cf, what), 1);
}

static void until_said(cf_t *cf, unsigned what)
{
    while (atomic_load(cf_word(cf, what)) == 0) {
        usleep(100);
    }
}

static kvcl_req_h bcast(cf_t *cf, kvcl_cache_h cache, bool by_deadline)
{
    static const uint32_t ids[BLOCKS] = {0, 1, 2, 3};
    kvcl_xfer_params_t    params      = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t            sel         = cf_sel(ids, BLOCKS);
    kvcl_req_h            req;

    params.timeout_ns = (by_deadline && (cf->rank == 0)) ? 2 * KVCL_NS_PER_SEC : 0;
    CF_OK(cf, kvcl_bcast(cf->world, 0, cache, &sel, &params, &req));
    return req;
}

/* Much to a receiver that takes none of it: the next message to it comes late. */
static void send_crowd(cf_t *cf)
{
    static const char  text[8] = "crowding";
    kvcl_xfer_params_t params  = KVCL_XFER_PARAMS_INIT;
    int                i;

    params.timeout_ns = 60 * KVCL_NS_PER_SEC;
    for (i = 0; i < CROWD; ++i) {
        CF_OK(cf, kvcl_send_bytes(cf->world, 1, 99, text, sizeof(text), &params, NULL));
    }
}

/*
 * The root sends much to a stopped receiver, so that its ABORT does not arrive. Then it stops the broadcast, and its
 * grace period for the silent receiver ends.
 */
static void root(cf_t *cf, kvcl_cache_h cache, kvcl_req_h req, bool by_deadline)
{
    kvcl_status_t status;

    until_said(cf, COPYING);
    send_crowd(cf);
    if (!by_deadline) {
        kvcl_req_cancel(req);
    }
    status = cf_end(cf, req);
    CF_IS(cf, status, by_deadline ? KVCL_ERR_TIMED_OUT : KVCL_ERR_CANCELED);
    memset(cf_see(cache, 0), 0x42, LEN); /* the buffer is the caller's again */
    say(cf, REUSED);
    until_said(cf, OVER);
}

/* Copy a little, stop until the root has its memory back, and continue. */
static void receiver(cf_t *cf, kvcl_cache_h cache, kvcl_req_h req)
{
    char          *buf   = cf_see(cache, 0);
    kvcl_status_t status = KVCL_INPROGRESS;
    uint64_t      until;
    int           i;

    while ((buf[0] != 0x41) && (status == KVCL_INPROGRESS)) {
        status = kvcl_req_test(req);
    }
    for (i = 0; (i < SLICES) && (status == KVCL_INPROGRESS); ++i) {
        status = kvcl_req_test(req);
    }
    CF_IS(cf, status, KVCL_INPROGRESS);
    say(cf, COPYING);
    until_said(cf, REUSED);
    until = kvcl_deadline_after(KVCL_NS_PER_SEC);
    while ((status == KVCL_INPROGRESS) && !kvcl_deadline_passed(until)) {
        status = kvcl_req_test(req);
    }
    CF_CHECK(cf, (status != KVCL_OK) || all_are(buf, 0x41, LEN));
    say(cf, OVER);
    if (status == KVCL_INPROGRESS) { /* it has requested the bytes, and the root's program is stopped too */
        status = cf_end(cf, req);
    }
    CF_CHECK(cf, status < 0);
}

static void take_crowd(cf_t *cf)
{
    char       text[8];
    kvcl_req_h req;
    int        i;

    for (i = 0; i < CROWD; ++i) {
        CF_OK(cf, kvcl_recv_bytes(cf->world, 0, 99, text, sizeof(text), NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
}

static void root_takes_back(cf_t *cf, bool by_deadline)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, LEN / BLOCKS);
    cf_cache_t    cache  = cf_cache(cf, "blocks", &layout, true);
    char          *buf   = cf_see(cache.h, 0);
    unsigned      i;

    for (i = 0; i <= OVER; ++i) {
        atomic_store(cf_word(cf, i), 0);
    }
    memset(buf, (cf->rank == 0) ? 0x40 : 0, LEN);
    CF_OK(cf, cf_end(cf, bcast(cf, cache.h, false))); /* makes sessions, maps memory */
    CF_CHECK(cf, all_are(buf, 0x40, LEN));
    cf_fence(cf);
    memset(buf, (cf->rank == 0) ? 0x41 : 0, LEN);
    cf_fence(cf);
    if (cf->rank == 0) {
        root(cf, cache.h, bcast(cf, cache.h, by_deadline), by_deadline);
    } else {
        receiver(cf, cache.h, bcast(cf, cache.h, by_deadline));
        take_crowd(cf);
    }
    cf_fence(cf);
    memset(buf, (cf->rank == 0) ? 0x43 : 0, LEN);
    CF_OK(cf, cf_end(cf, bcast(cf, cache.h, false))); /* later broadcasts are unaffected */
    CF_CHECK(cf, all_are(buf, 0x43, LEN));
    cf_fence(cf);
    cf_cache_end(&cache);
}

static void root_canceled(cf_t *cf)
{
    root_takes_back(cf, false);
}

static void root_timed_out(cf_t *cf)
{
    root_takes_back(cf, true);
}

/* ---------------------------------------------------------------- plain bytes, and their staging memory */

static kvcl_req_h bcast_bytes(cf_t *cf, char *buf, size_t len)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_bcast_bytes(cf->world, 0, buf, len, NULL, &req));
    return req;
}

enum { STAGED = 48 << 10, NEAR = 512 << 10 }; /* all of it is announced at once, in the stage or in place */

/* The root announces its pieces and cancels. Its next broadcast has overwritten them when the receiver, which the
 * ABORT has not reached, begins the first one. */
static void used_again(cf_t *cf, size_t len)
{
    char          *buf = malloc(len);
    kvcl_status_t status;
    kvcl_req_h    req;
    unsigned      i;

    for (i = 0; i <= OVER; ++i) {
        atomic_store(cf_word(cf, i), 0);
    }
    memset(buf, (cf->rank == 0) ? 0x40 : 0, len);
    CF_OK(cf, cf_end(cf, bcast_bytes(cf, buf, len))); /* makes sessions, maps memory */
    CF_CHECK(cf, all_are(buf, 0x40, len));
    cf_fence(cf);
    memset(buf, (cf->rank == 0) ? 0x41 : 0, len);
    if (cf->rank == 0) {
        req = bcast_bytes(cf, buf, len);
        send_crowd(cf);
        kvcl_req_cancel(req);
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_CANCELED);
        memset(buf, 0x42, len);
        req = bcast_bytes(cf, buf, len);
        say(cf, REUSED);
        CF_OK(cf, cf_end(cf, req));
    } else {
        until_said(cf, REUSED);
        status = cf_end(cf, bcast_bytes(cf, buf, len));
        CF_CHECK(cf, status < 0);
        CF_OK(cf, cf_end(cf, bcast_bytes(cf, buf, len)));
        CF_CHECK(cf, all_are(buf, 0x42, len));
        take_crowd(cf);
    }
    cf_fence(cf);
    free(buf);
}

static void stage_is_used_again(cf_t *cf)
{
    used_again(cf, STAGED);
}

static void buffer_is_used_again(cf_t *cf)
{
    used_again(cf, NEAR);
}

/* Long pieces are read out of the giver's memory, which is stopped meanwhile: more of them than its stage has slots. */
static void giver_is_stopped(cf_t *cf)
{
    enum { PIECES = 3 << 20 };
    kvcl_context_stats_t before = KVCL_CONTEXT_STATS_INIT, after = KVCL_CONTEXT_STATS_INIT;
    char                 *in = malloc(PIECES), *out = calloc(2, PIECES);
    const bool           can = (cf->rank != 0) || cf_may_read(cf, 1);
    kvcl_req_h           req;

    memset(in, 0x61 + cf->rank, PIECES);
    CF_OK(cf, kvcl_gather(cf->world, 0, in, PIECES, out, NULL, &req)); /* makes sessions */
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    if (cf->rank == 1) {
        memset(in, 0x71, PIECES);
        CF_OK(cf, kvcl_gather(cf->world, 0, in, PIECES, out, NULL, &req));
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        CF_OK(cf, kvcl_context_stats(cf->ctx, &before));
        cf_kill(cf, 1, can ? SIGSTOP : SIGCONT);
        CF_OK(cf, kvcl_gather(cf->world, 0, in, PIECES, out, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        cf_kill(cf, 1, SIGCONT);
        CF_OK(cf, kvcl_context_stats(cf->ctx, &after));
        CF_CHECK(cf, all_are(out, 0x61, PIECES) && all_are(out + PIECES, 0x71, PIECES));
        CF_CHECK(cf, after.bytes_native - before.bytes_native == (can ? PIECES : 0));
        CF_CHECK(cf, after.bytes_in - before.bytes_in == PIECES);
    } else {
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    free(in);
    free(out);
}

/* ---------------------------------------------------------------- at any moment, over any path */

enum { ROUNDS = 12, PART = 512 << 10 };

/* The root cancels a broadcast and overwrites its memory, at another moment in each round: a receiver whose broadcast
 * ended well has the round's bytes. The first one, which makes sessions, and the last one are not canceled. */
static void root_stops(cf_t *cf, bool plain)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, PART);
    cf_cache_t    cache  = cf_cache(cf, "blocks", &layout, false);
    char          *buf   = cf_see(cache.h, 0);
    kvcl_status_t status;
    kvcl_req_h    req;
    int           round;
    bool          canceled;

    for (round = 0; round <= ROUNDS; ++round) {
        canceled = (round > 0) && (round < ROUNDS);
        memset(buf, (cf->rank == 0) ? 0x20 + round : 0, (size_t)BLOCKS * PART);
        cf_fence(cf);
        req = plain ? bcast_bytes(cf, buf, (size_t)BLOCKS * PART) : bcast(cf, cache.h, false);
        if ((cf->rank == 0) && canceled) {
            cf_sleep_us(cf, (unsigned)kvcl_rand_below(&cf->rnd, (round % 2 == 0) ? 500 : 20000));
            kvcl_req_cancel(req);
        }
        status = cf_end(cf, req);
        CF_CHECK(cf, (status == KVCL_OK) || canceled);
        if (cf->rank == 0) {
            memset(buf, 0x7e, (size_t)BLOCKS * PART); /* the caller's again */
        } else {
            CF_CHECK(cf, (status != KVCL_OK) || all_are(buf, (char)(0x20 + round), (size_t)BLOCKS * PART));
        }
        cf_fence(cf);
        cf_alive(cf);
    }
    cf_cache_end(&cache);
}

static void root_stops_at_any_moment(cf_t *cf)
{
    root_stops(cf, false);
}

static void root_stops_plain_bytes_at_any_moment(cf_t *cf)
{
    root_stops(cf, true);
}

static const cf_case_t cases[] = {
    {"root_canceled", root_canceled, CF_MAPPED | CF_PROCS},
    {"root_timed_out", root_timed_out, CF_MAPPED | CF_PROCS},
    {"stage_is_used_again", stage_is_used_again, CF_MAPPED | CF_PROCS},
    {"buffer_is_used_again", buffer_is_used_again, CF_MAPPED | CF_PROCS},
    {"giver_is_stopped", giver_is_stopped, CF_MAPPED | CF_PROCS},
    {"root_stops_at_any_moment", root_stops_at_any_moment, CF_RACY},
    {"root_stops_plain_bytes_at_any_moment", root_stops_plain_bytes_at_any_moment, CF_RACY},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"shm", true, 2, KVCL_INIT_NO_THREAD}, {"loop", false, 3, 0},       {"loop", false, 3, CF_NATIVE},
    {"loop", false, 3, CF_OVERTAKE},       {"tcp", true, 3, 0},         {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
