/*
 * A proven rank that floods another: gets that it never continues, gets whose bytes it does not read, puts whose bytes
 * it never serves, sends that no recv waits for. What it makes the other hold stays bounded and is counted, and a third
 * rank is served meanwhile.
 */
#include "config.h"
#include "conform.h"
#include "core/context.h"
#include "mem/rmem.h"
#include "p2p/p2p.h"
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>

enum { VICTIM = 0, HONEST = 1, EVIL = 2, LEN = 8 << 20, GETS = 100, PULLS = 20000, PUTS = 200000,
       EAGER = 1 << 20 };

static void pull(cf_t *cf, kvcl_rmem_h from, uint64_t op, uint64_t len, uint32_t window)
{
    kvcl_msg_pull_t out = {.msg    = {.type = KVCL_MSG_PULL, .op = op},
                           .from   = KVCL_FROM_REGION,
                           .window = window,
                           .target = from->rregion.id,
                           .key    = from->rregion.keys[0],
                           .len    = len};

    CF_OK(cf, kvcl_peer_post(from->peer, &out.msg, sizeof(out), NULL, 0));
}

static void stop_pulls(cf_t *cf, const kvcl_rmem_h from, unsigned n)
{
    unsigned i;

    for (i = 0; i < n; ++i) {
        kvcl_msg_credit_t out = {.msg = {.type = KVCL_MSG_PULL_STOP, .op = i + 1}};

        kvcl_lock(cf->ctx);
        CF_OK(cf, kvcl_peer_post(from->peer, &out.msg, sizeof(out), NULL, 0));
        kvcl_unlock(cf->ctx);
    }
}

static uint64_t refused(cf_t *cf)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    CF_OK(cf, kvcl_context_stats(cf->ctx, &stats));
    return stats.refused;
}

/* A copy of the victim's numbers of a peer. */
static kvcl_serve_peer_t numbers(cf_t *cf, const kvcl_peer_t *peer)
{
    kvcl_serve_peer_t now = {.active = 0};

    kvcl_lock(cf->ctx);
    if (peer->serves != NULL) {
        now = *peer->serves;
    }
    kvcl_unlock(cf->ctx);
    return now;
}

static void honest_gets(cf_t *cf, kvcl_rmem_h from)
{
    char       *buf = malloc(LEN);
    kvcl_req_h req;
    unsigned   i;

    for (i = 0; i < GETS; ++i) {
        uint64_t len = (i % 10 == 0) ? LEN : 1 + kvcl_rand_below(&cf->rnd, 300000);

        memset(buf, 0, len);
        CF_OK(cf, kvcl_get_bytes(from, 0, buf, len, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, (buf[0] == 0x5a) && (buf[len - 1] == 0x5a) && (memchr(buf, 0, len) == NULL));
        cf_alive(cf);
    }
    free(buf);
}

static cf_mem_t scene(cf_t *cf)
{
    cf_mem_t mem = cf_mem(cf, LEN, false, KVCL_READ);

    memset(mem.addr, 0x5a, LEN);
    cf_fence(cf);
    if (cf->rank != VICTIM) { /* all are connected, and the victim's memory is not mapped anywhere */
        char       byte;
        kvcl_req_h req;

        CF_OK(cf, kvcl_get_bytes(mem.of[VICTIM], 0, &byte, 1, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    return mem;
}

/* 20,000 gets of 8 MiB with a window of one frame, and no credit ever. */
static void gets_that_stall(cf_t *cf)
{
    cf_mem_t          mem = scene(cf);
    kvcl_serve_peer_t now;
    uint64_t          before = refused(cf);
    unsigned          i;

    if (cf->rank == EVIL) {
        for (i = 0; i < PULLS; ++i) {
            kvcl_lock(cf->ctx);
            pull(cf, mem.of[VICTIM], i + 1, LEN, 1);
            kvcl_unlock(cf->ctx);
        }
    } else if (cf->rank == VICTIM) {
        while (refused(cf) < before + PULLS - KVCL_SERVE_PULLS) {
            cf_sleep_us(cf, 1000);
        }
        now = numbers(cf, mem.of[EVIL]->peer);
        CF_CHECK(cf, now.active == KVCL_SERVE_ACTIVE);
        CF_CHECK(cf, now.active + now.n_waiting == KVCL_SERVE_PULLS);
        CF_CHECK(cf, now.held <= KVCL_SERVE_HELD);
        CF_CHECK(cf, refused(cf) == before + PULLS - KVCL_SERVE_PULLS);
    }
    cf_fence(cf);
    if (cf->rank == HONEST) {
        honest_gets(cf, mem.of[VICTIM]);
    }
    cf_fence(cf);
    if (cf->rank == EVIL) {
        stop_pulls(cf, mem.of[VICTIM], PULLS);
    } else if (cf->rank == VICTIM) {
        do {
            cf_sleep_us(cf, 1000);
            now = numbers(cf, mem.of[EVIL]->peer);
        } while (now.active + now.n_waiting + now.held + now.flight > 0);
    }
    cf_mem_end(cf, &mem);
}

/* A gigabyte requested at once by a rank that reads no byte of it. */
static void gets_that_are_not_read(cf_t *cf)
{
    cf_mem_t          mem = scene(cf);
    kvcl_serve_peer_t now;
    size_t            most = 0;
    unsigned          i, n = 128;

    if (cf->rank == EVIL) {
        kvcl_lock(cf->ctx);
        for (i = 0; i < n; ++i) {
            pull(cf, mem.of[VICTIM], i + 1, LEN, 1024);
        }
        while (atomic_load(cf_word(cf, 0)) == 0) { /* the lock is held: nothing is polled */
            cf_alive(cf);
        }
        kvcl_unlock(cf->ctx);
        stop_pulls(cf, mem.of[VICTIM], n);
    } else if (cf->rank == HONEST) {
        honest_gets(cf, mem.of[VICTIM]);
        atomic_store(cf_word(cf, 0), 1);
    } else if (cf->rank == VICTIM) {
        while (atomic_load(cf_word(cf, 0)) == 0) {
            now  = numbers(cf, mem.of[EVIL]->peer);
            most = (now.flight > most) ? now.flight : most;
            cf_sleep_us(cf, 100);
        }
        CF_CHECK(cf, most <= KVCL_SERVE_FLIGHT + (64u << 20) / 16);
        do {
            cf_sleep_us(cf, 1000);
            now = numbers(cf, mem.of[EVIL]->peer);
        } while (now.active + now.n_waiting + now.held + now.flight > 0);
    }
    cf_mem_end(cf, &mem);
}

static void ignore(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                   size_t len)
{
    (void)ctx, (void)peer, (void)msg, (void)hdr_len, (void)data, (void)len;
}

static void announce_put(cf_t *cf, kvcl_rmem_h to, uint64_t op)
{
    kvcl_msg_put_t out = {.msg = {.type = KVCL_MSG_PUT, .op = op}, .target = to->rregion.id,
                          .key = to->rregion.keys[1], .len = LEN, .offer = op};

    kvcl_lock(cf->ctx);
    CF_OK(cf, kvcl_peer_post(to->peer, &out.msg, sizeof(out), NULL, 0));
    kvcl_unlock(cf->ctx);
}

static kvcl_msg_fn_t    take_put;
static _Atomic uint64_t *n_taken; /* the announced puts that the victim has read */

static void count_put(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    take_put(ctx, peer, msg, hdr_len, data, len);
    atomic_fetch_add(n_taken, 1);
}

static void count_puts(cf_t *cf)
{
    n_taken = cf_word(cf, 1);
    if (cf->rank == VICTIM) {
        kvcl_lock(cf->ctx);
        take_put                           = cf->ctx->handlers[KVCL_MSG_PUT].fn;
        cf->ctx->handlers[KVCL_MSG_PUT].fn = count_put;
        kvcl_unlock(cf->ctx);
    }
}

static size_t taking_bytes(cf_t *cf, const kvcl_peer_t *peer)
{
    size_t bytes;

    kvcl_lock(cf->ctx);
    bytes = peer->taking_bytes;
    kvcl_unlock(cf->ctx);
    return bytes;
}

/* Puts that are announced, and whose bytes their rank never serves. */
static void puts_that_are_not_served(cf_t *cf)
{
    cf_mem_t   mem    = cf_mem(cf, LEN, false, KVCL_READ_WRITE);
    uint64_t   before = refused(cf), i;
    kvcl_req_h req;

    memset(mem.addr, 1, LEN);
    cf_fence(cf);
    if (cf->rank != VICTIM) { /* connected, and the victim's memory is not mapped anywhere */
        CF_OK(cf, kvcl_put_bytes(mem.of[VICTIM], 0, mem.addr, 1, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    count_puts(cf);
    cf_fence(cf);
    if (cf->rank == EVIL) {
        kvcl_lock(cf->ctx);
        cf->ctx->handlers[KVCL_MSG_PULL].fn = ignore;
        kvcl_unlock(cf->ctx);
        for (i = 1; (i <= PUTS) && (atomic_load(cf_word(cf, 0)) == 0); ++i) {
            announce_put(cf, mem.of[VICTIM], i);
            while ((i > atomic_load(n_taken) + 1024) && (atomic_load(cf_word(cf, 0)) == 0)) { /* the victim does read */
                cf_sleep_us(cf, 100);
                cf_alive(cf);
            }
        }
    } else if (cf->rank == VICTIM) {
        while (refused(cf) == before) {
            cf_sleep_us(cf, 1000);
        }
        CF_CHECK(cf, taking_bytes(cf, mem.of[EVIL]->peer) <= 64u << 20);
        CF_CHECK(cf, taking_bytes(cf, mem.of[EVIL]->peer) >= 48u << 20);
        atomic_store(cf_word(cf, 0), 1);
    } else if (cf->rank == HONEST) {
        while (atomic_load(cf_word(cf, 0)) == 0) {
            cf_sleep_us(cf, 1000);
        }
        CF_OK(cf, kvcl_put_bytes(mem.of[VICTIM], 0, mem.addr, LEN, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    if (cf->rank == VICTIM) { /* they end by their deadline, or with the memory */
        CF_OK(cf, kvcl_mem_revoke(mem.mine));
        while (taking_bytes(cf, mem.of[EVIL]->peer) > 0) {
            cf_sleep_us(cf, 1000);
        }
    }
    cf_fence(cf);
    cf_mem_end(cf, &mem);
}

static void send_eager(cf_t *cf, kvcl_peer_t *to, uint64_t op, const void *buf, size_t len)
{
    kvcl_msg_send_t out = {.msg    = {.type = KVCL_MSG_SEND, .op = op, .flags = KVCL_SEND_EAGER},
                           .comm   = UINT64_MAX, /* no recv is for it */
                           .source = cf->rank,
                           .len    = len};

    kvcl_lock(cf->ctx);
    CF_OK(cf, kvcl_peer_post(to, &out.msg, sizeof(out), buf, len));
    kvcl_unlock(cf->ctx);
}

/* Sends that no recv takes: four ranks fill all the room, a fifth has its part nevertheless. */
static void sends_without_a_recv(cf_t *cf)
{
    cf_mem_t         mem    = scene(cf);
    kvcl_p2p_state_t *p2p   = kvcl_p2p_state(cf->ctx);
    uint64_t         before = refused(cf), op = UINT64_C(1) << 40;
    char             *buf   = malloc(EAGER);
    kvcl_req_h       req;
    unsigned         i, n = 80;
    int              r;

    memset(buf, 1, EAGER);
    for (i = 0; (cf->rank >= EVIL) && (i < n); ++i) {
        send_eager(cf, mem.of[VICTIM]->peer, op + i, buf, EAGER);
        cf_sleep_us(cf, 1000);
    }
    while ((cf->rank == VICTIM) && (refused(cf) < before + 4 * (n - 63))) {
        cf_sleep_us(cf, 1000);
    }
    cf_fence(cf);
    for (i = 0; (cf->rank == HONEST) && (i < 32); ++i) {
        send_eager(cf, mem.of[VICTIM]->peer, op + i, buf, EAGER);
    }
    if (cf->rank == HONEST) {
        CF_OK(cf, kvcl_send_bytes(cf->world, VICTIM, 7, "hello", 5, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    } else if (cf->rank == VICTIM) {
        CF_OK(cf, kvcl_recv_bytes(cf->world, HONEST, 7, buf, EAGER, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, memcmp(buf, "hello", 5) == 0);
        kvcl_lock(cf->ctx);
        CF_CHECK(cf, p2p->arrived_bytes <= 256u << 20);
        CF_CHECK(cf, mem.of[HONEST]->peer->arrived_bytes >= 32u * EAGER);
        for (r = EVIL; r < cf->size; ++r) {
            CF_CHECK(cf, mem.of[r]->peer->arrived_bytes <= 64u << 20);
            CF_CHECK(cf, mem.of[r]->peer->arrived_bytes >= 48u << 20); /* each gives way a little */
        }
        kvcl_unlock(cf->ctx);
        CF_CHECK(cf, refused(cf) > before + 4 * (n - 63));
    }
    free(buf);
    cf_mem_end(cf, &mem);
}

/* A send whose flags name two kinds of payload, one of which fits, is dropped: the recv waits for the next one. */
static void sends_of_two_kinds(cf_t *cf)
{
    static const uint32_t kinds[] = {KVCL_SEND_CACHE | KVCL_SEND_NEAR, KVCL_SEND_EAGER | KVCL_SEND_NEAR,
                                     KVCL_SEND_LAYERS | KVCL_SEND_NEAR, KVCL_SEND_EAGER | KVCL_SEND_CACHE};
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), WORDS = 14 }; /* of which kvcl_near_wire_t has as many */
    cf_mem_t              mem           = scene(cf);
    kvcl_context_stats_t  before        = KVCL_CONTEXT_STATS_INIT, after = KVCL_CONTEXT_STATS_INIT;
    uint32_t              ids[WORDS]    = {0};
    char                  text[WORDS * 4] = "";
    kvcl_req_h            req;
    unsigned              i;

    CF_OK(cf, kvcl_context_stats(cf->ctx, &before));
    if (cf->rank == VICTIM) {
        CF_OK(cf, kvcl_recv_bytes(cf->world, EVIL, 7, text, sizeof(text), NULL, &req));
    }
    cf_fence(cf);
    for (i = 0; (cf->rank == EVIL) && (i < KINDS); ++i) {
        kvcl_msg_send_t out = {.msg    = {.type = KVCL_MSG_SEND, .op = (UINT64_C(1) << 40) + i, .flags = kinds[i]},
                               .comm   = cf->world->id,
                               .tag    = 7,
                               .source = cf->rank,
                               .len    = sizeof(ids),
                               .cache  = 1, .n_blocks = WORDS};

        kvcl_lock(cf->ctx);
        CF_OK(cf, kvcl_peer_post(mem.of[VICTIM]->peer, &out.msg, sizeof(out), ids, sizeof(ids)));
        kvcl_unlock(cf->ctx);
    }
    if (cf->rank == EVIL) {
        CF_OK(cf, kvcl_send_bytes(cf->world, VICTIM, 7, "hello", 6, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    } else if (cf->rank == VICTIM) {
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, strcmp(text, "hello") == 0);
        CF_OK(cf, kvcl_context_stats(cf->ctx, &after));
        CF_CHECK(cf, after.malformed == before.malformed + KINDS);
    }
    cf_fence(cf);
    cf_mem_end(cf, &mem);
}

static const cf_case_t cases[] = {
    {"gets_that_stall", gets_that_stall, CF_DIES},
    {"gets_that_are_not_read", gets_that_are_not_read, CF_DIES | CF_THREAD},
    {"puts_that_are_not_served", puts_that_are_not_served, CF_DIES | CF_THREAD},
    {"sends_without_a_recv", sends_without_a_recv, CF_DIES},
    {"sends_of_two_kinds", sends_of_two_kinds, CF_DIES},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {{"shm", true, 6, 0}, {"tcp", true, 6, 0}, {NULL, false, 0, 0}};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
