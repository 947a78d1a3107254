/*
 * Two transports in one process, driven by one thread: the base of every transport test.
 *
 * A side records the messages it received and the failures; the tests read the record. Kinds: loop, ucx over shared
 * memory, ucx over tcp, ucx with its own choice, tcp plain and aead. Nothing here is shared between tests: Check forks
 * for each.
 */
#ifndef KVCL_TEST_XPORT_PAIR_H
#define KVCL_TEST_XPORT_PAIR_H

#include "core/xport.h"

#include "base/clock.h"
#include "base/error.h"

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

typedef enum { PAIR_LOOP, PAIR_SHM, PAIR_TCP, PAIR_AUTO, PAIR_KINDS, PAIR_PLAIN = PAIR_KINDS, PAIR_AEAD,
               PAIR_ALL_KINDS } pair_kind_t;

typedef struct side {
    const kvcl_xport_ops_t *ops;
    kvcl_xport_t           *xport;
    kvcl_xport_ep_t        *ep; /* to the other side */
    void                   (*on_recv)(struct side *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                                      kvcl_xport_reply_t *reply);
    uint64_t               received;
    uint64_t               wrong;
    uint64_t               failures;
    kvcl_status_t          failed_with;
    char                   hdr[1024];
    size_t                 hdr_len;
    char                   *data; /* of the last message; room is data_cap */
    size_t                 data_cap;
    size_t                 len;
} side_t;

typedef struct waited {
    kvcl_xport_send_t send; /* first */
    int               done;
    kvcl_status_t     status;
} waited_t;

static inline void pair_recv(void *arg, const void *hdr, size_t hdr_len, const void *data, size_t len,
                             kvcl_xport_reply_t *reply)
{
    side_t *side = arg;

    side->wrong += ((uintptr_t)hdr & 7) != 0;
    if (side->on_recv != NULL) {
        side->on_recv(side, hdr, hdr_len, data, len, reply);
    } else {
        ck_assert_uint_le(hdr_len, sizeof(side->hdr));
        memcpy(side->hdr, hdr, hdr_len);
        if (len > side->data_cap) {
            side->data     = realloc(side->data, len);
            side->data_cap = len;
        }
        if (len > 0) {
            memcpy(side->data, data, len);
        }
    }
    side->hdr_len = hdr_len;
    side->len     = len;
    ++side->received;
}

static inline void pair_failed(void *arg, kvcl_xport_ep_t *ep, kvcl_status_t status)
{
    side_t *side = arg;

    ck_assert_ptr_eq(ep, side->ep);
    ++side->failures;
    side->failed_with = status;
}

static inline void pair_done(kvcl_xport_send_t *send, kvcl_status_t status)
{
    waited_t *waited = (waited_t *)(void *)send;

    ++waited->done;
    waited->status = status;
}

static inline waited_t waited_new(void)
{
    waited_t waited = {.send = {.done = pair_done}};

    return waited;
}

static uint8_t pair_secret[32] = {1, 2, 3}; /* for the transports that prove it */

static inline const char *pair_name(pair_kind_t kind)
{
    static const char *const names[] = {"loop", "shm", "tcp", "auto", "tcp", "tcp"};

    return names[kind];
}

static inline void side_open(side_t *side, pair_kind_t kind)
{
    kvcl_xport_params_t params = {.cbs          = {.arg = side, .recv = pair_recv, .ep_failed = pair_failed},
                                  .path         = pair_name(kind),
                                  .net          = "lo",
                                  .keepalive_ns = 100 * KVCL_NS_PER_MS};
    kvcl_status_t       status;

    memset(side, 0, sizeof(*side));
    params.wire = (kind == PAIR_AEAD) ? "aead" : "plain";
    side->ops   = (kind == PAIR_LOOP) ? &kvcl_xport_loop : (kind >= PAIR_PLAIN) ? &kvcl_xport_tcp : &kvcl_xport_ucx;
    status      = side->ops->init(&params, &side->xport);
    if ((status == KVCL_OK) && (side->ops->secure != NULL)) {
        status = side->ops->secure(side->xport, pair_secret);
    }
    ck_assert_msg(status == KVCL_OK, "%s: %s", pair_name(kind), kvcl_last_error());
}

static inline void side_connect(side_t *side, const side_t *to)
{
    const void    *addr;
    size_t        len;
    kvcl_status_t status;

    to->ops->address(to->xport, &addr, &len);
    ck_assert_uint_le(len, 4096);
    status = side->ops->ep_create(side->xport, addr, len, &side->ep);
    ck_assert_msg(status == KVCL_OK, "%s", kvcl_last_error());
}

static inline void side_close(side_t *side)
{
    if (side->ep != NULL) {
        side->ops->ep_close(side->ep);
    }
    side->ops->fini(side->xport);
    free(side->data);
}

typedef struct pair {
    side_t a;
    side_t b;
} pair_t;

static inline void pair_open(pair_t *pair, pair_kind_t kind)
{
    side_open(&pair->a, kind);
    side_open(&pair->b, kind);
    side_connect(&pair->a, &pair->b);
    side_connect(&pair->b, &pair->a);
}

static inline unsigned pair_progress(pair_t *pair)
{
    return pair->a.ops->progress(pair->a.xport) + pair->b.ops->progress(pair->b.xport);
}

/* Drive both until the condition holds; 10 s at most, then the test fails. */
#define PAIR_UNTIL(_pair, _cond)                                                                                       \
    do {                                                                                                               \
        uint64_t deadline_ = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);                                                \
        while (!(_cond)) {                                                                                             \
            (void)pair_progress(_pair);                                                                                \
            ck_assert_msg(!kvcl_deadline_passed(deadline_), "not in 50 s: %s", #_cond);                                \
        }                                                                                                              \
    } while (0)

/* An armed b sleeps until a's message comes. */
static inline void pair_sleeps_and_wakes(pair_t *pair)
{
    enum { ROUNDS = 20 };
    struct pollfd  pfd    = {.fd = pair->b.ops->event_fd(pair->b.xport), .events = POLLIN};
    const uint64_t before = pair->b.received;
    uint64_t       hdr    = 42, round;
    int            early  = 0;

    for (round = 1; round <= ROUNDS; ++round) {
        while (pair->b.ops->arm(pair->b.xport) == KVCL_ERR_BUSY) {
            (void)pair_progress(pair);
        }
        early += poll(&pfd, 1, 5); /* wire-up traffic and timers wake it now and then */
        ck_assert_int_eq(pair->a.ops->am_send(pair->a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
        while (poll(&pfd, 1, 0) == 0) {
            (void)pair->a.ops->progress(pair->a.xport); /* b sleeps */
        }
        PAIR_UNTIL(pair, pair->b.received == before + round);
    }
    ck_assert_int_lt(early, ROUNDS); /* a descriptor that is always readable wakes it each time */
}

static inline void pair_close(pair_t *pair)
{
    side_close(&pair->a);
    side_close(&pair->b);
}

static inline void fill(void *buf, size_t len, uint64_t seed)
{
    uint8_t *at = buf;
    size_t  i;

    for (i = 0; i < len; ++i) {
        at[i] = (uint8_t)((i * 131 + seed * 7919 + (i >> 8)) & 0xff);
    }
}

static inline int filled(const void *buf, size_t len, uint64_t seed)
{
    const uint8_t *at = buf;
    size_t        i;

    for (i = 0; i < len; ++i) {
        if (at[i] != (uint8_t)((i * 131 + seed * 7919 + (i >> 8)) & 0xff)) {
            return 0;
        }
    }
    return 1;
}

#endif
