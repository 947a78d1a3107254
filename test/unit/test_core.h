/*
 * A stranger at a context's door: a raw endpoint of the loop transport that says what a test makes it say, and can go
 * through the handshake if it is given the secret. The context has no thread and moves when the test moves it.
 */
#ifndef KVCL_TEST_CORE_H
#define KVCL_TEST_CORE_H

#include "base/rand.h"
#include "core/address.h"
#include "core/comm.h"
#include "core/handshake.h"
#include <kvcl/kvcl.h>

#include <stdlib.h>
#include <string.h>

typedef struct stranger {
    kvcl_context_h  ctx;     /* at whose door */
    kvcl_xport_t    *xport;
    kvcl_xport_ep_t *ep;
    uint8_t         uuid[16];
    uint8_t         address[KVCL_ADDRESS_MAX];
    size_t          address_len;
    kvcl_hs_ids_t   ids;     /* of the handshake */
    uint64_t        token;   /* once proven */
    uint32_t        index;
    unsigned        heard;   /* messages that came */
    kvcl_hs_msg_t   last;    /* the last of them, its first bytes */
    kvcl_xport_reply_t *reply; /* while one is told */
    void            (*on_heard)(struct stranger *s);
} stranger_t;

static inline void stranger_recv(void *arg, const void *hdr, size_t hdr_len, const void *data, size_t len,
                                 kvcl_xport_reply_t *reply)
{
    stranger_t *s = arg;

    (void)data;
    (void)len;
    ++s->heard;
    memset(&s->last, 0, sizeof(s->last));
    memcpy(&s->last, hdr, (hdr_len < sizeof(s->last)) ? hdr_len : sizeof(s->last));
    if (s->on_heard != NULL) {
        s->reply = reply;
        s->on_heard(s);
    }
}

static inline void stranger_failed(void *arg, kvcl_xport_ep_t *ep, kvcl_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
}

static inline void stranger_move(stranger_t *s)
{
    int i;

    for (i = 0; i < 3; ++i) {
        (void)kvcl_progress(s->ctx);
        (void)s->xport->ops->progress(s->xport);
    }
}

static inline kvcl_context_h lone_context(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;

    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    if (kvcl_init(&params, &ctx) != KVCL_OK) {
        abort();
    }
    return ctx;
}

static inline void stranger_open(stranger_t *s, kvcl_context_h ctx)
{
    kvcl_xport_params_t params = {.cbs = {s, stranger_recv, stranger_failed}};
    kvcl_address_t      theirs, mine;

    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    memset(&mine, 0, sizeof(mine));
    if ((kvcl_xport_loop.init(&params, &s->xport) != KVCL_OK) ||
        (kvcl_address_unpack(ctx->address, ctx->address_len, &theirs) != KVCL_OK) ||
        (kvcl_xport_loop.ep_create(s->xport, theirs.part[KVCL_ADDRESS_LOOP].buf, theirs.part[KVCL_ADDRESS_LOOP].len,
                                   &s->ep) != KVCL_OK) ||
        (kvcl_random_bytes(s->uuid, sizeof(s->uuid)) != KVCL_OK)) {
        abort();
    }
    memcpy(mine.uuid, s->uuid, 16);
    memcpy(mine.process, theirs.process, 16);
    s->xport->ops->address(s->xport, &mine.part[KVCL_ADDRESS_LOOP].buf, &mine.part[KVCL_ADDRESS_LOOP].len);
    s->address_len = kvcl_address_pack(&mine, s->address, sizeof(s->address));
}

static inline void stranger_close(stranger_t *s)
{
    s->xport->ops->ep_close(s->ep);
    s->xport->ops->fini(s->xport);
}

/* Say it, and let the context hear it and answer. */
static inline void stranger_say(stranger_t *s, const void *hdr, size_t hdr_len, const void *data, size_t len)
{
    kvcl_iov_t iov = {data, len};

    if (s->xport->ops->am_send(s->ep, hdr, hdr_len, &iov, (len > 0) ? 1 : 0, KVCL_XPORT_REPLY, NULL) != KVCL_OK) {
        abort();
    }
    stranger_move(s);
}

static inline kvcl_hs_msg_t stranger_hs(const stranger_t *s, uint8_t type)
{
    kvcl_hs_msg_t hs;

    memset(&hs, 0, sizeof(hs));
    hs.msg.magic   = KVCL_WIRE_MAGIC;
    hs.msg.version = KVCL_WIRE_VERSION;
    hs.msg.type    = type;
    hs.ids         = s->ids;
    return hs;
}

static inline void stranger_hello(stranger_t *s)
{
    kvcl_hs_msg_t hs;

    memset(&s->ids, 0, sizeof(s->ids));
    memcpy(s->ids.uuid_a, s->uuid, 16);
    memcpy(s->ids.uuid_b, s->ctx->uuid, 16);
    memset(s->ids.nonce_a, 0x11, 16);
    hs = stranger_hs(s, KVCL_MSG_HELLO);
    stranger_say(s, &hs, sizeof(hs), NULL, 0);
}

/* The proof that a challenge asks for; with the right secret it is accepted. */
static inline kvcl_hs_msg_t stranger_proof(stranger_t *s, const uint8_t secret[32])
{
    kvcl_hs_msg_t hs = s->last;

    s->ids        = s->last.ids;
    hs.msg.type   = KVCL_MSG_PROOF;
    hs.index      = 7;
    kvcl_hs_mac(secret, "A", &hs.ids, hs.index, s->address, s->address_len, hs.mac);
    return hs;
}

/* The whole handshake, with the secret. */
static inline void stranger_enter(stranger_t *s)
{
    kvcl_hs_msg_t hs;

    stranger_hello(s);
    hs = stranger_proof(s, s->ctx->secret);
    stranger_say(s, &hs, sizeof(hs), s->address, s->address_len);
    if (s->last.msg.type != KVCL_MSG_WELCOME) {
        abort();
    }
    s->index = s->last.index;
    s->token = kvcl_hs_token(s->ctx->secret, &s->ids, true);
}

#endif
