/*
 * Lost links over several pairs of ports (core/peer_pairs.c, link/link.c): two contexts of one process, each with two
 * ports, which are instances of loop whose wires can be cut. What UCX needs is asserted in every case: over a pair of
 * ports each side makes at most one endpoint, and closes it only when the other side has answered or it has failed.
 */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "core/comm.h"
#include "core/context.h"
#include "loop/xport_loop.h"
#include <kvcl/kvcl.h>

#include <string.h>

enum { BYTES = 64 * 1024, PORTS = KVCL_RDMA_PORTS, EPS_MAX = 32 };

typedef struct side {
    kvcl_context_h ctx;
    kvcl_xport_t   *ports[PORTS];
    kvcl_xport_t   *tcp; /* an instance of loop in the place of TCP, or NULL */
    kvcl_comm_h    world; /* in which rank 0 is the other */
    kvcl_peer_t    *peer, *own;
    unsigned       made[PORTS][PORTS]; /* endpoints from a port to the other side's */
    char           order[64];          /* "0>0 1>1": in which order */
} side_t;

typedef struct rail {
    kvcl_xport_ep_t *ep;
    unsigned        own, to;
    bool            lost; /* a message of it */
} rail_t;

static side_t      sides[2];
static rail_t      rails[EPS_MAX];
static bool        cut[PORTS]; /* wires: what is sent from or to this port is lost, on both sides */
static bool        ending;
static kvcl_mem_h  mem; /* of side 1 */
static kvcl_rmem_h rmem;
static char        *there, here[BYTES];

static side_t *side_of(const kvcl_xport_t *xport)
{
    unsigned i, p;

    for (i = 0; i < 2; ++i) {
        for (p = 0; p < PORTS; ++p) {
            if (sides[i].ports[p] == xport) {
                return &sides[i];
            }
        }
    }
    ck_abort_msg("no such port");
    return NULL;
}

static rail_t *rail_of(const kvcl_xport_ep_t *ep)
{
    unsigned i;

    for (i = 0; i < EPS_MAX; ++i) {
        if (rails[i].ep == ep) {
            return &rails[i];
        }
    }
    return NULL;
}

static bool is_cut(const rail_t *rail)
{
    return cut[rail->own] || cut[rail->to];
}

static kvcl_status_t rail_ep_create(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p)
{
    side_t       *side = side_of(xport), *other = &sides[side == &sides[0]];
    unsigned     own   = xport->part - KVCL_ADDRESS_RDMA, to;
    const void   *theirs;
    size_t       bytes;
    rail_t       *rail = rail_of(NULL);

    if (ending) { /* the other side is closed, or is about to be */
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "the port is closed");
    }
    ck_assert_int_eq(kvcl_xport_loop.ep_create(xport, addr, len, ep_p), KVCL_OK);
    for (to = 0; to < PORTS; ++to) {
        kvcl_xport_loop.address(other->ports[to], &theirs, &bytes);
        if ((bytes == len) && (memcmp(theirs, addr, len) == 0)) {
            break;
        }
    }
    ck_assert_uint_lt(to, PORTS);
    ck_assert_uint_eq(side->made[own][to]++, 0);
    snprintf(side->order + strlen(side->order), sizeof(side->order) - strlen(side->order), "%s%u>%u",
             (side->order[0] != '\0') ? " " : "", own, to);
    ck_assert_ptr_nonnull(rail);
    *rail = (rail_t){.ep = *ep_p, .own = own, .to = to};
    return KVCL_OK;
}

static void rail_ep_close(kvcl_xport_ep_t *ep)
{
    rail_t *rail = rail_of(ep);

    ck_assert_ptr_nonnull(rail);
    ck_assert_ptr_null(ep->arg);
    ck_assert(ep->settled || ending);
    rail->ep = NULL;
    kvcl_xport_loop.ep_close(ep);
}

/* What is sent over a cut wire is lost in silence. */
static kvcl_status_t rail_am_send(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                  size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    rail_t *rail = rail_of(ep);

    if (is_cut(rail)) {
        rail->lost = true;
        return KVCL_OK;
    }
    return kvcl_xport_loop.am_send(ep, hdr, hdr_len, iov, n_iov, flags, send);
}

static void rail_describe(kvcl_xport_ep_t *ep, char *buf, size_t cap)
{
    snprintf(buf, cap, "rail %u>%u", rail_of(ep)->own, rail_of(ep)->to);
}

static kvcl_xport_ops_t rail_ops;

/* This side's endpoints over wires that are or were cut fail, as those that a NIC gives up. */
static void fail_cut(side_t *side)
{
    kvcl_xport_ep_t *ep;
    unsigned        i;

    for (i = 0; i < EPS_MAX; ++i) {
        ep = rails[i].ep;
        if ((ep != NULL) && (side_of(ep->xport) == side) && (rails[i].lost || is_cut(&rails[i]))) {
            kvcl_lock(side->ctx);
            kvcl_peer_ep_failed(side->ctx, ep, KVCL_ERR_RANK_FAILED);
            kvcl_unlock(side->ctx);
        }
    }
}

static kvcl_xport_t *open_loop(kvcl_context_h ctx, const kvcl_xport_ops_t *ops, unsigned part)
{
    kvcl_xport_params_t params = {.cbs = {.arg = ctx, .recv = kvcl_am_recv, .ep_failed = kvcl_peer_ep_failed}};
    kvcl_xport_t        *xport = NULL;

    ck_assert_int_eq(kvcl_xport_loop.init(&params, &xport), KVCL_OK);
    xport->ops                                   = ops;
    xport->part                                  = part;
    ctx->engine.xports[ctx->engine.n_xports++] = xport;
    return xport;
}

/* Its address names its ports, and TCP if it has it, not loop. */
static void publish(side_t *side)
{
    kvcl_context_h ctx = side->ctx;
    kvcl_address_t address;
    kvcl_xport_t   *xport;
    uint8_t        old[KVCL_ADDRESS_MAX];
    unsigned       i;

    memcpy(old, ctx->address, ctx->address_len);
    ck_assert_int_eq(kvcl_address_unpack(old, ctx->address_len, &address), KVCL_OK);
    address.part[KVCL_ADDRESS_LOOP].buf = NULL;
    for (i = 0; i < ctx->engine.n_xports; ++i) {
        xport = ctx->engine.xports[i];
        if (xport->part != KVCL_ADDRESS_LOOP) {
            kvcl_xport_loop.address(xport, &address.part[xport->part].buf, &address.part[xport->part].len);
        }
    }
    ctx->address_len = kvcl_address_pack(&address, ctx->address, KVCL_ADDRESS_MAX);
    ck_assert_uint_gt(ctx->address_len, 0);
}

static void open_side(side_t *side, bool tcp)
{
    static const uint8_t secret[32] = {7};
    kvcl_init_params_t   params     = KVCL_INIT_PARAMS_INIT;
    unsigned             i;

    *side        = (side_t){0};
    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    ck_assert_int_eq(kvcl_init(&params, &side->ctx), KVCL_OK);
    side->ctx->secret = secret;
    kvcl_lock(side->ctx);
    for (i = 0; i < PORTS; ++i) {
        side->ports[i]                  = open_loop(side->ctx, &rail_ops, KVCL_ADDRESS_RDMA + i);
        side->ctx->net.ports[i].gid     = 1;
    }
    side->ctx->net.n_ports = PORTS;
    if (tcp) {
        side->tcp = open_loop(side->ctx, &kvcl_xport_loop, KVCL_ADDRESS_TCP);
    }
    publish(side);
    kvcl_unlock(side->ctx);
}

static void face(side_t *side, const side_t *other)
{
    ck_assert_int_eq(kvcl_comm_world(side->ctx, &side->world), KVCL_OK);
    kvcl_lock(side->ctx);
    ck_assert_int_eq(kvcl_peer_by_address(side->ctx, other->ctx->address, other->ctx->address_len, &side->peer),
                     KVCL_OK);
    side->own             = side->world->peers[0];
    side->world->peers[0] = side->peer;
    kvcl_unlock(side->ctx);
}

static void open_both(const char *keepalive, bool tcp)
{
    static const kvcl_loop_faults_t served = {.no_rma = true, .async_sends = true};
    static char                     desc[1024];
    size_t                          len = sizeof(desc);

    rail_ops             = kvcl_xport_loop;
    rail_ops.links       = true;
    rail_ops.ep_create   = rail_ep_create;
    rail_ops.ep_close    = rail_ep_close;
    rail_ops.ep_describe = rail_describe;
    rail_ops.am_send     = rail_am_send;
    memset(rails, 0, sizeof(rails));
    memset(cut, 0, sizeof(cut));
    ending = false;
    ck_assert_int_eq(setenv("KVCL_FRAME", "8K", 1), 0);
    ck_assert_int_eq(setenv("KVCL_KEEPALIVE", keepalive, 1), 0);
    kvcl_loop_set_faults(&served);
    open_side(&sides[0], tcp);
    open_side(&sides[1], tcp);
    face(&sides[0], &sides[1]);
    face(&sides[1], &sides[0]);
    ck_assert_int_eq(kvcl_mem_alloc(sides[1].ctx, BYTES, NULL, &mem), KVCL_OK);
    there = kvcl_mem_addr(mem);
    ck_assert_int_eq(kvcl_mem_export(mem, KVCL_READ_WRITE, desc, &len), KVCL_OK);
    ck_assert_int_eq(kvcl_rmem_import(sides[0].world, 0, desc, len, &rmem), KVCL_OK);
}

static void close_both(void)
{
    unsigned i;

    ending = true;
    kvcl_rmem_free(rmem);
    kvcl_mem_free(mem);
    for (i = 0; i < 2; ++i) { /* neither waits for the other's BYE, which this thread would have to receive */
        kvcl_lock(sides[i].ctx);
        kvcl_peer_fail(sides[i].peer, KVCL_ERR_CANCELED);
        kvcl_unlock(sides[i].ctx);
    }
    for (i = 0; i < 2; ++i) {
        sides[i].world->peers[0] = sides[i].own;
        kvcl_finalize(sides[i].ctx);
    }
    kvcl_loop_set_faults(NULL);
}

static void turn_both(void)
{
    (void)kvcl_progress(sides[0].ctx);
    (void)kvcl_progress(sides[1].ctx);
}

static kvcl_req_h get(void)
{
    kvcl_req_h req = NULL;

    memset(here, 0, BYTES);
    ck_assert_int_ge(kvcl_get_bytes(rmem, 0, here, BYTES, NULL, &req), KVCL_OK);
    return req;
}

static kvcl_status_t ended(kvcl_req_h req)
{
    uint64_t      deadline = kvcl_deadline_after(100 * KVCL_NS_PER_SEC);
    kvcl_status_t status   = KVCL_OK;

    while ((req != NULL) && ((status = kvcl_req_test(req)) == KVCL_INPROGRESS)) {
        turn_both();
        ck_assert_msg(!kvcl_deadline_passed(deadline), "a request does not end");
    }
    return status;
}

static void still_right(int byte)
{
    memset(there, byte, BYTES);
    ck_assert_int_eq(ended(get()), KVCL_OK);
    ck_assert_mem_eq(here, there, BYTES);
}

static void are_linked(unsigned part, const char *order0, const char *order1)
{
    unsigned i;

    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(sides[i].peer->state, KVCL_PEER_READY);
        ck_assert_uint_eq(sides[i].peer->part, part);
        ck_assert_str_eq(sides[i].order, (i == 0) ? order0 : order1);
    }
    ck_assert_uint_eq(sides[0].peer->session, sides[1].peer->session);
}

/* Both sides notice the loss, or one does and its PROOF shows it to the other. */
static void lose_port(unsigned port, unsigned who)
{
    cut[port] = true;
    if (who != 1) {
        fail_cut(&sides[0]);
    }
    if (who != 0) {
        fail_cut(&sides[1]);
    }
}

enum { WHO = 3 }; /* 0: this rank, 1: the other, 2: both */

START_TEST(the_other_port_takes_over)
{
    kvcl_req_h req;

    open_both("60s", _i / WHO);
    still_right(1);
    are_linked(KVCL_ADDRESS_RDMA, "0>0", "0>0");
    req = get();
    lose_port(0, (unsigned)_i % WHO);
    ck_assert_int_eq(ended(req), KVCL_OK);
    ck_assert_mem_eq(here, there, BYTES);
    still_right(2);
    are_linked(KVCL_ADDRESS_RDMA + 1, "0>0 1>1", "0>0 1>1");
    close_both();
}
END_TEST

/* Both ports are cut: TCP, or the rank has failed once each pair has been tried. */
START_TEST(no_port_is_left)
{
    bool          tcp = (_i < WHO);
    kvcl_status_t status;
    kvcl_req_h    req;

    open_both(tcp ? "60s" : "200ms", tcp);
    still_right(1);
    req    = get();
    cut[1] = true;
    lose_port(0, (unsigned)_i % WHO);
    while ((status = kvcl_req_test(req)) == KVCL_INPROGRESS) {
        turn_both();
        if (tcp) {
            fail_cut(&sides[0]); /* the NIC gives up each try */
            fail_cut(&sides[1]);
        }
    }
    ck_assert_int_eq(status, tcp ? KVCL_OK : KVCL_ERR_RANK_FAILED);
    if (tcp) {
        ck_assert_mem_eq(here, there, BYTES);
        still_right(2);
        are_linked(KVCL_ADDRESS_TCP, "0>0 1>1", "0>0 1>1"); /* 0>1 and 1>0 are doubtful, and come later */
    }
    close_both();
}
END_TEST

/* The time of the present pair is over: the sides that search take the next one. */
static void next_pair(void)
{
    unsigned i;

    for (i = 0; i < 2; ++i) {
        kvcl_lock(sides[i].ctx);
        if (sides[i].peer->relink != NULL) {
            ck_assert(kvcl_links->lost(sides[i].peer));
        }
        kvcl_unlock(sides[i].ctx);
    }
}

/* No answer comes over any pair at first, and no failure: the endpoints stay open, and one carries the link later. */
START_TEST(a_silent_pair_answers_later)
{
    kvcl_req_h req;
    unsigned   i;

    open_both("60s", false);
    still_right(1);
    req    = get();
    cut[1] = true;
    lose_port(0, (unsigned)_i);
    for (i = 0; i < 3; ++i) {
        turn_both();
        next_pair();
    }
    ck_assert_str_eq(sides[_i == 1].order, "0>0 1>1 0>1 1>0");
    cut[0] = cut[1] = false;
    next_pair();
    ck_assert_int_eq(ended(req), KVCL_OK);
    ck_assert_mem_eq(here, there, BYTES);
    still_right(2);
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(sides[i].peer->state, KVCL_PEER_READY);
    }
    close_both();
}
END_TEST

/* The answer comes when another pair is tried already: the link is made over the first one. */
START_TEST(a_late_answer_counts)
{
    kvcl_req_h req;

    open_both("60s", false);
    still_right(1);
    req = get();
    lose_port(0, 0);
    while (kvcl_progress(sides[1].ctx) > 0) { /* it answers over 1>1 */
        continue;
    }
    next_pair();
    ck_assert_ptr_nonnull(sides[0].peer->relink);
    ck_assert_int_eq(ended(req), KVCL_OK);
    ck_assert_mem_eq(here, there, BYTES);
    still_right(2);
    are_linked(KVCL_ADDRESS_RDMA + 1, "0>0 1>1 0>1", "0>0 1>1");
    close_both();
}
END_TEST

/* Each pair carries the link once; then the rank has failed at once. */
START_TEST(pairs_are_used_up)
{
    static const char *const orders[] = {"0>0", "0>0 1>1", "0>0 1>1 0>1", "0>0 1>1 0>1 1>0"};
    unsigned                 i;

    open_both("60s", false);
    for (i = 0; i < 4; ++i) {
        still_right((int)i + 1);
        ck_assert_str_eq(sides[0].order, orders[i]);
        kvcl_lock(sides[0].ctx);
        kvcl_peer_ep_failed(sides[0].ctx, sides[0].peer->ep, KVCL_ERR_RANK_FAILED);
        kvcl_unlock(sides[0].ctx);
    }
    ck_assert_int_eq(sides[0].peer->state, KVCL_PEER_FAILED);
    close_both();
}
END_TEST

/* Wires are cut and mended at random while gets run; each ends well, or the rank has failed because no pair is left. */
START_TEST(random_cuts)
{
    unsigned      round, turn, port;
    kvcl_status_t status = KVCL_OK;
    kvcl_rand_t   rnd;
    kvcl_req_h    req;

    test_seed(&rnd);
    ck_assert_int_eq(setenv("KVCL_TIMEOUT", "2s", 1), 0);
    for (round = 0; round < 200; ++round) {
        open_both("40ms", kvcl_rand_below(&rnd, 2) != 0);
        while ((status == KVCL_OK) && (kvcl_rand_below(&rnd, 12) != 0)) {
            memset(there, (int)kvcl_rand_below(&rnd, 256), BYTES);
            req = get();
            for (turn = (unsigned)kvcl_rand_below(&rnd, 60); turn > 0; --turn) {
                port      = (unsigned)kvcl_rand_below(&rnd, PORTS);
                cut[port] = (kvcl_rand_below(&rnd, 8) == 0) ? !cut[port] : cut[port];
                if (kvcl_rand_below(&rnd, 4) == 0) {
                    fail_cut(&sides[kvcl_rand_below(&rnd, 2)]);
                }
                (void)kvcl_progress(sides[kvcl_rand_below(&rnd, 2)].ctx);
            }
            memset(cut, 0, sizeof(cut));
            fail_cut(&sides[0]);
            fail_cut(&sides[1]);
            while ((status = (req != NULL) ? kvcl_req_test(req) : KVCL_OK) == KVCL_INPROGRESS) {
                turn_both();
            }
            if (status == KVCL_OK) {
                ck_assert_mem_eq(here, there, BYTES);
            } else if (sides[0].peer->state == KVCL_PEER_FAILED) {
                ck_assert_int_eq(status, sides[0].peer->why);
            } else { /* the other rank has given this one up, and drops its messages */
                ck_assert_int_eq(status, KVCL_ERR_TIMED_OUT);
                ck_assert_int_eq(sides[1].peer->state, KVCL_PEER_FAILED);
            }
        }
        close_both();
        status = KVCL_OK;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rails");
    TCase *tc    = tcase_create("rails");

    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, the_other_port_takes_over, 0, 2 * WHO);
    tcase_add_loop_test(tc, no_port_is_left, 0, WHO + 1);
    tcase_add_loop_test(tc, a_silent_pair_answers_later, 0, WHO);
    tcase_add_test(tc, a_late_answer_counts);
    tcase_add_test(tc, pairs_are_used_up);
    suite_add_tcase(suite, tc);
    tc = tcase_create("random");
    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, random_cuts);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
