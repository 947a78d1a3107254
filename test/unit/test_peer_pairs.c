/* By which pair of ports a peer is reached: the order, the next one where no answer comes, and the one of a proof. */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "core/context.h"
#include "loop/xport_loop.h"
#include "query/why_no_port.h"

#include <string.h>

/* A port of RDMA whose packets do not arrive: each endpoint fails, unless it is silent. */
typedef struct port {
    kvcl_xport_t   super;
    kvcl_context_h ctx;
    bool           refuses; /* no endpoint can be made */
    bool           silent;
    unsigned       open;
} port_t;

typedef struct port_ep {
    kvcl_xport_ep_t super;
    kvcl_list_t     link;
} port_ep_t;

static port_t      ports[2];
static kvcl_list_t eps; /* open ones of all ports */
static char        tried[128]; /* "0>a 1>b": by which port to which address */

static kvcl_status_t port_ep_create(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p)
{
    port_t    *port = kvcl_container_of(xport, port_t, super);
    port_ep_t *ep;

    snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%u>%.*s", (tried[0] != '\0') ? " " : "",
             xport->part - KVCL_ADDRESS_RDMA, (int)len, (const char *)addr);
    if (port->refuses) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "no route");
    }
    ep = calloc(1, sizeof(*ep));
    ck_assert_ptr_nonnull(ep);
    ep->super.xport       = xport;
    ep->super.frame_bytes = 4096;
    kvcl_list_add_tail(&eps, &ep->link);
    ++port->open;
    *ep_p = &ep->super;
    return KVCL_OK;
}

static void port_ep_close(kvcl_xport_ep_t *super)
{
    port_ep_t *ep = kvcl_container_of(super, port_ep_t, super);

    ck_assert_ptr_null(super->arg);
    --kvcl_container_of(super->xport, port_t, super)->open;
    kvcl_list_del(&ep->link);
    free(ep);
}

static kvcl_status_t port_am_send(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                  size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    (void)ep;
    (void)hdr;
    (void)hdr_len;
    (void)iov;
    (void)n_iov;
    (void)flags;
    ck_assert_ptr_null(send);
    return KVCL_OK;
}

static unsigned port_progress(kvcl_xport_t *xport)
{
    port_t    *port = kvcl_container_of(xport, port_t, super);
    port_ep_t *ep;

    kvcl_list_foreach(ep, &eps, port_ep_t, link) {
        if ((ep->super.xport == xport) && !port->silent) {
            kvcl_peer_ep_failed(port->ctx, &ep->super, KVCL_ERR_RANK_FAILED); /* may close it */
            return 1;
        }
    }
    return 0;
}

static void port_query(kvcl_xport_t *xport, kvcl_xport_attr_t *attr)
{
    (void)xport;
    *attr = (kvcl_xport_attr_t){.name = "port", .frame_bytes = 4096, .inline_bytes = 512, .max_hdr = 256};
}

static void port_describe(kvcl_xport_ep_t *ep, char *buf, size_t cap)
{
    snprintf(buf, cap, "port %u", ep->xport->part);
}

static kvcl_status_t port_arm(kvcl_xport_t *xport)
{
    (void)xport;
    return KVCL_OK;
}

static const kvcl_xport_ops_t port_ops = {.size = sizeof(kvcl_xport_ops_t), .name = "port", .messages_only = true,
                                          .links = true, .query = port_query, .ep_create = port_ep_create,
                                          .ep_close = port_ep_close, .ep_describe = port_describe,
                                          .am_send = port_am_send, .progress = port_progress, .arm = port_arm};

static kvcl_context_h a, b;
static kvcl_xport_t   *loop_a, *loop_b;

static kvcl_context_h open_context(kvcl_xport_t **loop_p)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = NULL;

    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_uint_eq(ctx->engine.n_xports, 1);
    *loop_p = ctx->engine.xports[0];
    return ctx;
}

/* All contexts of a process have one secret here, so that they take each other for ranks. */
static void set_up(void)
{
    static const uint8_t secret[32] = {7};

    kvcl_list_init(&eps);
    tried[0]  = '\0';
    a         = open_context(&loop_a);
    b         = open_context(&loop_b);
    a->secret = secret;
    b->secret = secret;
}

/* n ports before loop, in the order in which a context opens them. */
static void give_ports(kvcl_context_h ctx, kvcl_xport_t *loop, unsigned n)
{
    unsigned i;

    kvcl_lock(ctx);
    for (i = 0; i < n; ++i) {
        ports[i]                = (port_t){.super = {.ops = &port_ops, .part = KVCL_ADDRESS_RDMA + i}, .ctx = ctx};
        ctx->engine.xports[i]   = &ports[i].super;
        ctx->net.ports[i].gid   = 1;
    }
    ctx->net.n_ports      = n;
    ctx->engine.xports[n] = loop;
    ctx->engine.n_xports  = n + 1;
    kvcl_unlock(ctx);
}

static void tear_down(void)
{
    kvcl_lock(a);
    a->engine.xports[0] = loop_a;
    a->engine.n_xports  = 1;
    kvcl_unlock(a);
    kvcl_lock(b);
    b->engine.xports[0] = loop_b;
    b->engine.n_xports  = 1;
    kvcl_unlock(b);
    kvcl_finalize(a);
    kvcl_finalize(b);
    ck_assert(kvcl_list_is_empty(&eps));
}

/* The context's address with n ports, "a" and "b"; loop: with that of loop too. */
static size_t address_with(kvcl_context_h ctx, unsigned n, bool loop, uint8_t *buf)
{
    kvcl_address_t address;
    unsigned       i;
    size_t         len;

    ck_assert_int_eq(kvcl_address_unpack(ctx->address, ctx->address_len, &address), KVCL_OK);
    for (i = 0; i < n; ++i) {
        address.part[KVCL_ADDRESS_RDMA + i].buf = (i == 0) ? "a" : "b";
        address.part[KVCL_ADDRESS_RDMA + i].len = 1;
    }
    if (!loop) {
        address.part[KVCL_ADDRESS_LOOP].buf = NULL;
    }
    len = kvcl_address_pack(&address, buf, KVCL_ADDRESS_MAX);
    ck_assert_uint_gt(len, 0);
    return len;
}

typedef struct wait {
    kvcl_peer_waiter_t waiter;
    bool               over;
    kvcl_status_t      status;
} wait_t;

static void on_ready(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    wait_t *wait = kvcl_container_of(waiter, wait_t, waiter);

    wait->over   = true;
    wait->status = status;
}

static kvcl_peer_t *greet(kvcl_context_h ctx, const uint8_t *address, size_t len, wait_t *wait)
{
    kvcl_peer_t *peer = NULL;

    *wait = (wait_t){.waiter = {.fn = on_ready}};
    kvcl_list_init(&wait->waiter.link);
    kvcl_lock(ctx);
    ck_assert_int_eq(kvcl_peer_by_address(ctx, address, len, &peer), KVCL_OK);
    wait->status = kvcl_peer_ready(peer, &wait->waiter);
    wait->over   = (wait->status != KVCL_INPROGRESS);
    kvcl_unlock(ctx);
    return peer;
}

static void until_over(wait_t *wait)
{
    uint64_t deadline = kvcl_now_ns() + 60 * KVCL_NS_PER_SEC;

    while (!wait->over) {
        (void)kvcl_progress(a);
        (void)kvcl_progress(b);
        ck_assert(kvcl_now_ns() < deadline);
    }
}

/* Ports of this rank, of the peer, the order in which the pairs are tried, and why none is used in the end. */
static const struct {
    unsigned   own, theirs;
    const char *order;
    const char *why;
} orders[] = {{1, 1, "0>a", "the peer's ports do not answer"},
              {1, 2, "0>a 0>b", "the peer's ports do not answer"},
              {2, 1, "0>a 1>a", "the peer's ports do not answer"},
              {2, 2, "0>a 1>b 0>b 1>a", "the peer's ports do not answer"},
              {2, 0, "", "the peer names no port"},
              {0, 2, "", "this rank names no port"},
              {0, 0, "", NULL}};

START_TEST(pairs_are_tried_in_order)
{
    uint8_t     address[KVCL_ADDRESS_MAX];
    size_t      len = address_with(b, orders[_i].theirs, true, address);
    const char  *why;
    kvcl_peer_t *peer;
    wait_t      wait;

    give_ports(a, loop_a, orders[_i].own);
    peer = greet(a, address, len, &wait);
    until_over(&wait);
    ck_assert_int_eq(wait.status, KVCL_OK);
    ck_assert_str_eq(tried, orders[_i].order);
    ck_assert_ptr_eq(peer->ops, &kvcl_xport_loop);
    ck_assert_uint_eq(peer->part, KVCL_ADDRESS_LOOP);
    ck_assert_uint_eq(ports[0].open + ports[1].open, 0);
    kvcl_lock(a);
    why = kvcl_why_no_port(peer);
    kvcl_unlock(a);
    ck_assert((why == NULL) == (orders[_i].why == NULL));
    ck_assert((why == NULL) || (strstr(why, orders[_i].why) != NULL));
}
END_TEST

START_TEST(a_peer_that_no_pair_reaches)
{
    uint8_t     address[KVCL_ADDRESS_MAX];
    size_t      len = address_with(b, 2, false, address);
    kvcl_peer_t *peer;
    wait_t      wait;

    give_ports(a, loop_a, 2);
    peer = greet(a, address, len, &wait);
    until_over(&wait);
    ck_assert_int_eq(wait.status, KVCL_ERR_UNREACHABLE);
    ck_assert_int_eq(peer->state, KVCL_PEER_FAILED);
    ck_assert_str_eq(tried, "0>a 1>b 0>b 1>a");
    ck_assert_uint_eq(ports[0].open + ports[1].open, 0);
}
END_TEST

/* No route: the next pair is tried within the call. */
START_TEST(a_port_that_makes_no_endpoint)
{
    uint8_t     address[KVCL_ADDRESS_MAX];
    size_t      len = address_with(b, 1, true, address);
    kvcl_peer_t *peer;
    wait_t      wait;

    give_ports(a, loop_a, 1);
    ports[0].refuses = true;
    peer = greet(a, address, len, &wait);
    ck_assert_str_eq(tried, "0>a");
    ck_assert_ptr_eq(peer->ops, &kvcl_xport_loop);
    until_over(&wait);
    ck_assert_int_eq(wait.status, KVCL_OK);
}
END_TEST

/* b waits for an answer over its port; a's proof arrives by another pair, which is used at once. */
START_TEST(the_pair_of_a_proof_is_used)
{
    uint8_t     address[KVCL_ADDRESS_MAX];
    size_t      len;
    kvcl_peer_t *peer;
    wait_t      from_a, from_b;

    a->address_len = address_with(a, 1, true, address); /* a shows it in its proof */
    memcpy(a->address, address, a->address_len);
    give_ports(b, loop_b, 1);
    ports[0].silent = true;
    peer = greet(b, a->address, a->address_len, &from_b);
    ck_assert_uint_eq(ports[0].open, 1);
    len = address_with(b, 0, true, address);
    (void)greet(a, address, len, &from_a);
    until_over(&from_a);
    until_over(&from_b);
    ck_assert_int_eq(from_a.status, KVCL_OK);
    ck_assert_int_eq(from_b.status, KVCL_OK);
    ck_assert_ptr_eq(peer->ops, &kvcl_xport_loop);
    ck_assert_str_eq(tried, "0>a");
    ck_assert_uint_eq(ports[0].open, 1); /* it may still be wired up: it is kept until it fails */
    ports[0].silent = false;
    (void)kvcl_progress(b);
    ck_assert_uint_eq(ports[0].open, 0);
    ck_assert_int_eq(peer->state, KVCL_PEER_READY);
}
END_TEST

/* b cannot make an endpoint over the pair of a's proof: its own greeting stays open, and goes on over the next pair. */
START_TEST(a_proof_over_a_pair_that_cannot_be_opened)
{
    kvcl_loop_faults_t faults = {.fail_alloc_nth = 1};
    uint8_t            address[KVCL_ADDRESS_MAX];
    size_t             len;
    kvcl_peer_t        *peer;
    wait_t             from_a, from_b;

    a->address_len = address_with(a, 1, true, address);
    memcpy(a->address, address, a->address_len);
    give_ports(b, loop_b, 1);
    ports[0].silent = true;
    peer = greet(b, a->address, a->address_len, &from_b);
    len  = address_with(b, 0, true, address);
    (void)greet(a, address, len, &from_a);
    (void)kvcl_progress(b); /* CHALLENGE */
    (void)kvcl_progress(a); /* PROOF */
    kvcl_loop_set_faults(&faults);
    until_over(&from_a);
    ck_assert_int_eq(from_a.status, KVCL_ERR_UNREACHABLE);
    ck_assert_int_eq(peer->state, KVCL_PEER_CONNECTING);
    ck_assert_ptr_nonnull(peer->ep);
    ports[0].silent = false;
    until_over(&from_b);
    ck_assert_int_eq(from_b.status, KVCL_ERR_UNREACHABLE); /* a has given b up */
    ck_assert_str_eq(tried, "0>a");
    ck_assert_uint_eq(ports[0].open, 0);
    kvcl_loop_set_faults(NULL);
}
END_TEST

/* Every address has a part for loop; a peer that was reached over a port is not reached by it. */
START_TEST(a_lost_link_without_another_pair)
{
    uint8_t     address[KVCL_ADDRESS_MAX];
    size_t      len = address_with(b, 1, true, address);
    kvcl_peer_t *peer;
    wait_t      wait;

    give_ports(a, loop_a, 1);
    ports[0].silent = true;
    peer = greet(a, address, len, &wait);
    ck_assert_str_eq(tried, "0>a");
    kvcl_lock(a);
    kvcl_peer_set_ready(peer, 0, 1);
    kvcl_peer_ep_failed(a, peer->ep, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(peer->state, KVCL_PEER_FAILED);
    ck_assert_int_eq(peer->why, KVCL_ERR_RANK_FAILED);
    kvcl_unlock(a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pairs");
    TCase *tc    = tcase_create("pairs");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, pairs_are_tried_in_order, 0, sizeof(orders) / sizeof(orders[0]));
    tcase_add_test(tc, a_peer_that_no_pair_reaches);
    tcase_add_test(tc, a_port_that_makes_no_endpoint);
    tcase_add_test(tc, the_pair_of_a_proof_is_used);
    tcase_add_test(tc, a_proof_over_a_pair_that_cannot_be_opened);
    tcase_add_test(tc, a_lost_link_without_another_pair);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
