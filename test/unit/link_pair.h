/*
 * Two contexts of one process over loop, which one thread progresses, and the loss of the link between them.
 */
#ifndef KVCL_TEST_LINK_PAIR_H
#define KVCL_TEST_LINK_PAIR_H

#include "test_base.h"
#include "base/error.h"
#include "core/comm.h"
#include "core/context.h"
#include "loop/xport_loop.h"
#include <kvcl/kvcl.h>

#include <pthread.h>
#include <string.h>

enum { BYTES = 64 * 1024, NTH_MAX = 24, BLOCKS = 4 };

static kvcl_context_h a, b;
static kvcl_comm_h    to_b, to_a; /* each one's world, in which rank 0 is the other */
static kvcl_peer_t    *b_at_a, *a_at_b, *own_a, *own_b;
static kvcl_mem_h     mem;        /* b's */
static char           *there;     /* its bytes */
static kvcl_rmem_h    rmem;
static kvcl_cache_h   cache_a, cache_b;
static char           here[BYTES];

static const kvcl_layout_t layout = {.size = sizeof(kvcl_layout_t), .layers = 2, .blocks = BLOCKS, .tokens = 16,
                                     .heads = 4, .head_dim = 32, .elem_bytes = 2};

static kvcl_context_h open_context(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = NULL;

    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    return ctx;
}

/* Rank 0 of the context's world becomes the other context. */
static kvcl_peer_t *face(kvcl_context_h ctx, kvcl_context_h other, kvcl_comm_h *world_p, kvcl_peer_t **own_p)
{
    kvcl_peer_t *peer = NULL;

    ck_assert_int_eq(kvcl_comm_world(ctx, world_p), KVCL_OK);
    kvcl_lock(ctx);
    ck_assert_int_eq(kvcl_peer_by_address(ctx, other->address, other->address_len, &peer), KVCL_OK);
    *own_p               = (*world_p)->peers[0];
    (*world_p)->peers[0] = peer;
    kvcl_unlock(ctx);
    return peer;
}

static void turn_both(void)
{
    (void)kvcl_progress(a);
    (void)kvcl_progress(b);
}

static kvcl_status_t ended(kvcl_req_h req)
{
    uint64_t      deadline = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);
    kvcl_status_t status;

    while ((status = kvcl_req_test(req)) == KVCL_INPROGRESS) {
        turn_both();
        if (kvcl_deadline_passed(deadline)) { /* each assertion of Check writes into a file, also one that holds */
            ck_abort_msg("a request does not end");
        }
    }
    return status;
}

static void spread(uint8_t seed)
{
    size_t i;

    for (i = 0; i < BYTES; ++i) {
        there[i] = (char)(seed + (i * 7) + (i >> 8));
    }
}

static void is_spread(const char *buf, uint8_t seed)
{
    size_t i = 0;

    while ((i < BYTES) && (buf[i] == (char)(seed + (i * 7) + (i >> 8)))) {
        ++i;
    }
    ck_assert_msg(i == BYTES, "byte %zu", i);
}

static kvcl_status_t get_all(char *buf)
{
    kvcl_req_h    req    = NULL;
    kvcl_status_t status;

    memset(buf, 0, BYTES);
    status = kvcl_get_bytes(rmem, 0, buf, BYTES, NULL, &req);
    ck_assert_int_ge(status, KVCL_OK);
    return (req == NULL) ? status : ended(req);
}

static void open_both(const kvcl_loop_faults_t *faults)
{
    static const uint8_t secret[32] = {7};
    static char          desc[1024];
    size_t               len = sizeof(desc);

    ck_assert_int_eq(setenv("KVCL_FRAME", "8K", 1), 0);
    ck_assert_int_eq(setenv("KVCL_WINDOW", "2", 1), 0);
    ck_assert_int_eq(setenv("KVCL_KEEPALIVE", "10s", 0), 0); /* a busy machine may stop this process for seconds */
    kvcl_loop_set_faults(faults);
    a         = open_context();
    b         = open_context();
    a->secret = secret;
    b->secret = secret;
    b_at_a    = face(a, b, &to_b, &own_a);
    a_at_b    = face(b, a, &to_a, &own_b);
    ck_assert_int_eq(kvcl_mem_alloc(b, BYTES, NULL, &mem), KVCL_OK);
    there = kvcl_mem_addr(mem);
    ck_assert_int_eq(kvcl_mem_export(mem, KVCL_READ_WRITE, desc, &len), KVCL_OK);
    ck_assert_int_eq(kvcl_rmem_import(to_b, 0, desc, len, &rmem), KVCL_OK);
}

static void *finalize(void *ctx)
{
    kvcl_finalize(ctx);
    return NULL;
}

static void close_both(void)
{
    pthread_t thread;

    kvcl_loop_set_faults(NULL);
    if (cache_a != NULL) {
        kvcl_cache_destroy(cache_a);
        kvcl_cache_destroy(cache_b);
        cache_a = cache_b = NULL;
    }
    kvcl_rmem_free(rmem);
    kvcl_mem_free(mem);
    to_b->peers[0] = own_a;
    to_a->peers[0] = own_b;
    ck_assert_int_eq(pthread_create(&thread, NULL, finalize, a), 0); /* each waits for the other's answer to BYE */
    kvcl_finalize(b);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static const kvcl_loop_faults_t kinds_of_loop[] = {
    {.no_rma = true, .async_sends = true},                          /* served */
    {.no_map = true, .async_sends = true},                          /* native */
    {.no_rma = true, .async_sends = true, .overtake_seed = 5},
};
enum { LOOP_KINDS = sizeof(kinds_of_loop) / sizeof(kinds_of_loop[0]) };

static inline void lose(const kvcl_loop_faults_t *kind, uint64_t nth, bool both)
{
    kvcl_loop_faults_t faults = *kind;

    faults.lose_link_nth = nth;
    faults.lose_both     = both;
    kvcl_loop_set_faults(&faults);
}

/* Links that are lost faster than sessions may begin wait for KVCL_KEEPALIVE. */
static inline void rest(void)
{
    while ((b_at_a->sessions_ns > kvcl_now_ns()) || (a_at_b->sessions_ns > kvcl_now_ns())) {
        turn_both();
    }
}

/* Both sides agree on the session, and no rank has failed. */
static inline void are_linked(void)
{
    uint64_t deadline = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);
    unsigned quiet    = 0;

    while ((quiet < 200) && !kvcl_deadline_passed(deadline)) {
        turn_both();
        if ((b_at_a->state == KVCL_PEER_FAILED) || (a_at_b->state == KVCL_PEER_FAILED)) {
            break;
        }
        quiet = ((b_at_a->state == KVCL_PEER_CONNECTING) || (a_at_b->state == KVCL_PEER_CONNECTING)) ? 0 : quiet + 1;
    }
    ck_assert_int_ne(b_at_a->state, KVCL_PEER_FAILED);
    ck_assert_int_ne(a_at_b->state, KVCL_PEER_FAILED);
    ck_assert_uint_eq(quiet, 200);
    if (a_at_b->state == KVCL_PEER_READY) {
        ck_assert_uint_eq(b_at_a->session, a_at_b->session);
        ck_assert_int_eq(b_at_a->state, KVCL_PEER_READY);
    }
    ck_assert_ptr_null(b_at_a->relink);
    ck_assert_ptr_null(a_at_b->relink);
    rest();
}

static void still_right(uint8_t seed)
{
    spread(seed);
    ck_assert_int_eq(get_all(here), KVCL_OK);
    is_spread(here, seed);
}

#endif
