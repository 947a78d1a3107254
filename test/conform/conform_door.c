/*
 * Contexts that listen and contexts that connect to them, over every path: every kind of transfer in both directions,
 * several connections of one context, disconnecting on either side, and peers that die.
 */
#include "conform.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 192 * 1024, BLOCKS = 8, PIECES = 7, AT_MAX = 1500 };

#define LONG_NS UINT64_C(60000000000)

static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};

/* A rank listens, at a port or by its context's address alone, and all learn where. */
static kvcl_comm_h listens(cf_t *cf, int rank, bool port, char at[AT_MAX])
{
    kvcl_comm_h door = NULL;
    size_t      len  = 0;

    if (cf->rank == rank) {
        CF_OK(cf, kvcl_context_listen(cf->ctx, port ? "127.0.0.1:0" : NULL, at, AT_MAX, &len, &door));
        CF_CHECK(cf, (len == strlen(at) + 1) && (strncmp(at, port ? "127.0.0.1:" : "kvcl1:", 6) == 0));
        CF_CHECK(cf, (kvcl_comm_size(door) == 0) && (kvcl_comm_rank(door) == 0) && kvcl_comm_is_inter(door));
    }
    cf_give(cf, at, len);
    cf_fence(cf);
    memcpy(at, cf_blob(cf, rank, &len), AT_MAX);
    cf_fence(cf);
    return door;
}

static kvcl_comm_h open_door(cf_t *cf, bool port, char at[AT_MAX])
{
    return listens(cf, 0, port, at);
}

static kvcl_comm_h go_there(cf_t *cf, const char *at)
{
    kvcl_comm_h comm;

    CF_OK(cf, kvcl_context_connect(cf->ctx, at, LONG_NS, &comm));
    CF_CHECK(cf, (kvcl_comm_size(comm) == 1) && kvcl_comm_is_inter(comm) && (kvcl_comm_rank(comm) >= 0));
    return comm;
}

static void say(cf_t *cf, kvcl_comm_h comm, int rank, const char *text)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_notify(comm, rank, text, strlen(text), NULL, &req));
    CF_OK(cf, cf_end(cf, req));
}

/* The next notification over comm is this text; its source. */
static int hear(cf_t *cf, kvcl_comm_h comm, const char *text)
{
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    char             got[64] = "";

    CF_OK(cf, kvcl_notify_recv(comm, got, sizeof(got) - 1, &info, LONG_NS));
    CF_CHECK(cf, strcmp(got, text) == 0);
    return info.source;
}

/* ---- every kind of transfer ---- */

typedef struct side {
    kvcl_mem_h  mem;
    char        *bytes;
    cf_cache_t  cache;
    kvcl_rmem_h theirs;
    char        *buf;
} side_t;

/* What is sent to the other side, by a notification: how its memory is imported. */
typedef struct card {
    size_t len;
    char   desc[1500];
} card_t;

static card_t make_side(cf_t *cf, side_t *s, const char *cache)
{
    kvcl_layout_t             layout   = KVCL_LAYOUT_BYTES(BLOCKS, BYTES / BLOCKS);
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};
    card_t                    card     = {.len = sizeof(card.desc)};

    CF_OK(cf, kvcl_mem_alloc(cf->ctx, BYTES, NULL, &s->mem));
    s->bytes = kvcl_mem_addr(s->mem);
    s->buf   = malloc(BYTES);
    CF_OK(cf, kvcl_cache_create(cf->ctx, cache, &layout, &writable, &s->cache.h));
    CF_OK(cf, kvcl_mem_export(s->mem, KVCL_READ_WRITE, card.desc, &card.len));
    return card;
}

static void end_side(side_t *s)
{
    kvcl_rmem_free(s->theirs);
    kvcl_cache_destroy(s->cache.h);
    kvcl_mem_free(s->mem);
    free(s->buf);
}

/* Put into the other's memory and cache, get it back, by bytes, by pieces and by blocks. */
static void one_sided(cf_t *cf, side_t *s, kvcl_comm_h comm, int rank, const char *remote_cache, uint64_t seed)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         sel    = cf_sel(ids, BLOCKS);
    kvcl_vec_t         v[PIECES];
    kvcl_req_h         req;
    unsigned           i;

    cf_bytes(seed, 1, s->buf, BYTES);
    CF_OK(cf, kvcl_put_bytes(s->theirs, 0, s->buf, BYTES, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    memset(s->buf, 0, BYTES);
    for (i = 0; i < PIECES; ++i) {
        v[i] = (kvcl_vec_t){(uint64_t)i * 1000, s->buf + ((size_t)i * 1000), 1000};
    }
    CF_OK(cf, kvcl_get_vec(s->theirs, v, PIECES, NULL, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, cf_bytes_are(seed, 1, s->buf, PIECES * 1000));
    cf_bytes(seed, 2, s->buf, PIECES * 1000);
    CF_OK(cf, kvcl_put_vec(s->theirs, v, PIECES, NULL, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    memset(s->buf, 0, BYTES);
    CF_OK(cf, kvcl_get_bytes(s->theirs, 0, s->buf, PIECES * 1000, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, cf_bytes_are(seed, 2, s->buf, PIECES * 1000));
    params.remote_cache = remote_cache;
    cf_fill(cf, s->cache.h, seed);
    CF_OK(cf, kvcl_put(comm, rank, s->cache.h, &sel, &sel, &params, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fill(cf, s->cache.h, seed + 1);
    CF_OK(cf, kvcl_get(comm, rank, s->cache.h, &sel, &sel, &params, &req));
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < BLOCKS; ++i) {
        cf_block_is(cf, s->cache.h, i, seed, i);
    }
}

/* A send is matched by the other's recv; from_any: the recv learns who sent. */
static void two_sided(cf_t *cf, kvcl_comm_h comm, int rank, bool sends, bool from_any)
{
    kvcl_recv_info_t   info   = KVCL_RECV_INFO_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               *buf   = malloc(BYTES);
    kvcl_req_h         req;

    if (sends) {
        cf_bytes(7, 3, buf, BYTES);
        CF_OK(cf, kvcl_send_bytes(comm, rank, 5, buf, BYTES, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    } else {
        params.info = &info;
        CF_OK(cf, kvcl_recv_bytes(comm, from_any ? KVCL_ANY_SOURCE : rank, 5, buf, BYTES, &params, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, (info.source == rank) && (info.bytes == BYTES) && cf_bytes_are(7, 3, buf, BYTES));
    }
    free(buf);
}

/* One caller after the other; each does everything, and then the listening side does. */
static void all_transfers(cf_t *cf)
{
    char             at[AT_MAX], mine[16];
    card_t           card = {0}, theirs = {0};
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    kvcl_req_h       req;
    side_t           s = {0};
    int              caller;

    for (caller = 1; caller < cf->size; ++caller) {
        kvcl_comm_h door = open_door(cf, (caller & 1) != 0, at), comm = door;

        snprintf(mine, sizeof(mine), "door%d", cf->rank);
        if ((cf->rank == caller) || (cf->rank == 0)) {
            card = make_side(cf, &s, mine);
        }
        cf_fence(cf);
        if (cf->rank == caller) {
            comm = go_there(cf, at);
            CF_OK(cf, kvcl_notify(comm, 0, &card, sizeof(card), NULL, &req));
            CF_OK(cf, cf_end(cf, req));
        }
        if ((cf->rank == caller) || (cf->rank == 0)) {
            CF_OK(cf, kvcl_notify_recv((cf->rank == 0) ? door : comm, &theirs, sizeof(theirs), &info, LONG_NS));
            CF_CHECK(cf, (info.source == 0) && (info.bytes == sizeof(theirs)));
        }
        if (cf->rank == 0) {
            CF_CHECK(cf, kvcl_comm_size(door) == 1);
            CF_OK(cf, kvcl_notify(door, 0, &card, sizeof(card), NULL, &req));
            CF_OK(cf, cf_end(cf, req));
        }
        if ((cf->rank == caller) || (cf->rank == 0)) {
            CF_OK(cf, kvcl_rmem_import(comm, 0, theirs.desc, theirs.len, &s.theirs));
        }
        cf_fence(cf);
        if (cf->rank == caller) {
            one_sided(cf, &s, comm, 0, "door0", cf_same(cf));
            two_sided(cf, comm, 0, true, false);
            two_sided(cf, comm, 0, false, false);
            say(cf, comm, 0, "your turn");
            (void)hear(cf, comm, "done");
            kvcl_comm_free(comm);
        } else if (cf->rank == 0) {
            char peer[16];
            snprintf(peer, sizeof(peer), "door%d", caller);
            two_sided(cf, door, 0, false, true);
            two_sided(cf, door, 0, true, false);
            (void)hear(cf, door, "your turn");
            one_sided(cf, &s, door, 0, peer, cf_same(cf) + 99);
            say(cf, door, 0, "done");
        }
        cf_fence(cf);
        if ((cf->rank == caller) || (cf->rank == 0)) {
            end_side(&s);
        }
        kvcl_comm_free(door);
        cf_fence(cf);
    }
}

/* ---- many connections ---- */

/* All connect at once, twice each, the listening context itself too. Numbers are given once, and each connection's
 * messages stay its own. */
static void connections_are_apart(cf_t *cf)
{
    enum { EACH = 2, ALL_MAX = EACH * CF_RANKS_MAX };
    char         at[AT_MAX], text[32];
    bool         seen[ALL_MAX] = {false};
    kvcl_comm_h  door = open_door(cf, true, at), comms[EACH];
    unsigned     i;
    int          n, source;

    for (i = 0; i < EACH; ++i) {
        comms[i] = go_there(cf, at);
        snprintf(text, sizeof(text), "%d", kvcl_comm_rank(comms[i]));
        say(cf, comms[i], 0, text);
    }
    for (n = 0; (cf->rank == 0) && (n < EACH * cf->size); ++n) {
        kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
        char             got[32] = "";

        CF_OK(cf, kvcl_notify_recv(door, got, sizeof(got) - 1, &info, LONG_NS));
        source = info.source;
        CF_CHECK(cf, (source >= 0) && (source < EACH * cf->size) && !seen[source] && (atoi(got) == source));
        seen[source] = true;
    }
    cf_fence(cf);
    for (n = 0; (cf->rank == 0) && (n < kvcl_comm_size(door)); ++n) {
        snprintf(text, sizeof(text), "you are %d", n);
        say(cf, door, n, text);
    }
    for (i = EACH; i-- > 0;) {
        snprintf(text, sizeof(text), "you are %d", kvcl_comm_rank(comms[i]));
        CF_CHECK(cf, hear(cf, comms[i], text) == 0);
    }
    cf_fence(cf);
    for (i = 0; i < EACH; ++i) {
        kvcl_comm_free(comms[i]);
    }
    cf_fence(cf);
    kvcl_comm_free(door);
    cf_fence(cf);
}

/* A context has so many connections to one door, and not more; one that is freed makes room. */
static void connections_are_bounded(cf_t *cf)
{
    enum { MOST = 64 };
    char        at[AT_MAX];
    kvcl_comm_h door = open_door(cf, false, at), comms[MOST], more;
    unsigned    i;

    if (cf->rank == 1) {
        for (i = 0; i < MOST; ++i) {
            comms[i] = go_there(cf, at);
        }
        CF_IS(cf, kvcl_context_connect(cf->ctx, at, LONG_NS, &more), KVCL_ERR_BUSY);
        CF_CHECK(cf, strstr(kvcl_last_error(), "disconnect some") != NULL);
        kvcl_comm_free(comms[0]);
        comms[0] = go_there(cf, at);
        CF_CHECK(cf, kvcl_comm_rank(comms[0]) == MOST);
        for (i = 0; i < MOST; ++i) {
            kvcl_comm_free(comms[i]);
        }
    }
    cf_fence(cf);
    kvcl_comm_free(door);
    cf_fence(cf);
}

/* Every rank listens and connects to all others at the same time, and to itself; then it reads and writes their memory,
 * and they learn it. */
/* By posts, which run at the same time, or one after the other. */
static void go_to_all(cf_t *cf, char others[][AT_MAX], bool posted, kvcl_comm_h *comms)
{
    kvcl_req_h reqs[CF_RANKS_MAX];
    int        r;

    for (r = 0; r < cf->size; ++r) {
        if (!posted) {
            comms[r] = go_there(cf, others[r]);
            continue;
        }
        CF_OK(cf, kvcl_context_connect_post(cf->ctx, others[r], NULL, &comms[r], &reqs[r]));
        CF_CHECK(cf, kvcl_comm_is_inter(comms[r]));
    }
    for (r = 0; posted && (r < cf->size); ++r) {
        CF_OK(cf, cf_end(cf, reqs[r]));
        CF_CHECK(cf, (kvcl_comm_size(comms[r]) == 1) && (kvcl_comm_rank(comms[r]) >= 0));
    }
}

static void meet_all(cf_t *cf, bool posted)
{
    char               at[AT_MAX], others[CF_RANKS_MAX][AT_MAX], text[32], buf[64];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_recv_info_t   info   = KVCL_RECV_INFO_INIT;
    kvcl_comm_h        door, comms[CF_RANKS_MAX];
    kvcl_rmem_h        rmem;
    kvcl_mem_h         mem;
    kvcl_req_h         req;
    card_t             card = {.len = sizeof(card.desc)};
    size_t             len, i;
    const void         *blob;
    int                r;

    CF_OK(cf, kvcl_mem_alloc(cf->ctx, 4096, NULL, &mem));
    CF_OK(cf, kvcl_mem_export(mem, KVCL_READ_WRITE, card.desc, &card.len));
    CF_OK(cf, kvcl_context_listen(cf->ctx, (cf->rank & 1) ? "127.0.0.1:0" : NULL, at, sizeof(at), &len, &door));
    cf_give(cf, at, len);
    cf_fence(cf);
    for (r = 0; r < cf->size; ++r) {
        blob = cf_blob(cf, r, &len);
        memcpy(others[r], blob, len);
    }
    cf_fence(cf);
    cf_give(cf, &card, sizeof(card));
    cf_fence(cf);
    go_to_all(cf, others, posted, comms);
    for (r = 0; r < cf->size; ++r) {
        memcpy(&card, cf_blob(cf, r, &len), sizeof(card));
        CF_OK(cf, kvcl_rmem_import(comms[r], 0, card.desc, card.len, &rmem));
        snprintf(text, sizeof(text), "from %d", cf->rank);
        params.notify       = text;
        params.notify_bytes = strlen(text) + 1;
        CF_OK(cf, kvcl_put_bytes(rmem, (uint64_t)cf->rank * 64, text, sizeof(text), &params, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, kvcl_get_bytes(rmem, (uint64_t)cf->rank * 64, buf, sizeof(text), NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, strcmp(buf, text) == 0);
        if (r & 1) { /* in either order */
            kvcl_comm_free(comms[r]);
        }
        kvcl_rmem_free(rmem);
        if ((r & 1) == 0) {
            kvcl_comm_free(comms[r]);
        }
    }
    cf_fence(cf); /* all senders have left: what they sent can still be taken, and its bytes are there */
    for (i = 0; i < (size_t)cf->size; ++i) {
        CF_OK(cf, kvcl_notify_recv(door, buf, sizeof(buf), &info, LONG_NS));
        CF_CHECK(cf, (info.source >= 0) && (info.source < cf->size));
        CF_CHECK(cf, strcmp((char *)kvcl_mem_addr(mem) + ((size_t)atoi(buf + 5) * 64), buf) == 0);
    }
    kvcl_comm_free(door);
    kvcl_mem_free(mem);
    cf_fence(cf);
}

static void all_meet_all(cf_t *cf)
{
    meet_all(cf, false);
}

static void all_post_to_all(cf_t *cf)
{
    meet_all(cf, true);
}

/* Connections that come and go disturb no other: hundreds, while one carries messages. */
static void come_and_go(cf_t *cf)
{
    enum { ROUNDS = 150 };
    char        at[AT_MAX], text[32];
    kvcl_comm_h door = open_door(cf, false, at), stays, comm;
    int         i;

    if (cf->rank == 1) {
        stays = go_there(cf, at);
        for (i = 1; i <= ROUNDS; ++i) {
            comm = go_there(cf, at);
            CF_CHECK(cf, kvcl_comm_rank(comm) == i);
            snprintf(text, sizeof(text), "%d", i);
            say(cf, (i & 1) ? comm : stays, 0, text);
            kvcl_comm_free(comm);
        }
        CF_CHECK(cf, hear(cf, stays, "all") == 0);
        kvcl_comm_free(stays);
    } else if (cf->rank == 0) {
        for (i = 1; i <= ROUNDS; ++i) {
            snprintf(text, sizeof(text), "%d", i);
            CF_CHECK(cf, hear(cf, door, text) == ((i & 1) ? i : 0));
        }
        say(cf, door, 0, "all");
    }
    cf_fence(cf);
    kvcl_comm_free(door);
    cf_fence(cf);
}

/* ---- leaving ---- */

static void is_gone(cf_t *cf, kvcl_comm_h comm, int rank)
{
    kvcl_rank_state_t state;
    kvcl_req_h        req;
    char              byte = 0;

    for (;;) {
        CF_OK(cf, kvcl_rank_state(comm, rank, &state));
        if (state == KVCL_RANK_FAILED) {
            break;
        }
        cf_sleep_us(cf, 100);
    }
    CF_IS(cf, kvcl_notify(comm, rank, "x", 1, NULL, &req), KVCL_ERR_RANK_FAILED);
    CF_IS(cf, kvcl_send_bytes(comm, rank, 1, &byte, 1, NULL, &req), KVCL_ERR_RANK_FAILED);
    CF_IS(cf, kvcl_recv_bytes(comm, rank, 1, &byte, 1, NULL, &req), KVCL_ERR_RANK_FAILED);
    CF_CHECK(cf, strstr(kvcl_last_error(), "has disconnected") != NULL);
    CF_OK(cf, kvcl_context_disconnect(comm, rank)); /* again: nothing happens */
}

/* By its address the context is reached, and does not listen; then it does again, at the same port. */
static void listen_again(cf_t *cf, const char *at)
{
    char        text[AT_MAX];
    kvcl_comm_h door = NULL, comm;
    size_t      len  = 0;

    if (cf->rank == 0) {
        CF_OK(cf, kvcl_context_address(cf->ctx, text, sizeof(text), &len));
    }
    cf_give(cf, text, len);
    cf_fence(cf);
    if (cf->rank == 1) {
        CF_IS(cf, kvcl_context_connect(cf->ctx, cf_blob(cf, 0, &len), LONG_NS, &comm), KVCL_ERR_NOT_FOUND);
        CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_context_listen") != NULL);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        CF_OK(cf, kvcl_context_listen(cf->ctx, at, text, sizeof(text), &len, &door));
        CF_CHECK(cf, strcmp(at, text) == 0);
    }
    cf_fence(cf);
    if (cf->rank == 1) {
        comm = go_there(cf, at);
        CF_CHECK(cf, kvcl_comm_rank(comm) == 0);
        kvcl_comm_free(comm);
    }
    cf_fence(cf);
    kvcl_comm_free(door);
    cf_fence(cf);
}

static void either_side_disconnects(cf_t *cf)
{
    char          at[AT_MAX];
    kvcl_comm_h   door = open_door(cf, true, at), comm, other;
    kvcl_status_t status;

    if (cf->rank == 1) {
        comm = go_there(cf, at); /* 0: this side leaves */
        CF_OK(cf, kvcl_context_disconnect(comm, 0));
        is_gone(cf, comm, 0);
        kvcl_comm_free(comm);
        comm = go_there(cf, at); /* 1: it is put out */
        CF_CHECK(cf, kvcl_comm_rank(comm) == 1);
        say(cf, comm, 0, "put me out");
        is_gone(cf, comm, 0);
        other = go_there(cf, at); /* 2: the door closes */
        say(cf, other, 0, "close");
        is_gone(cf, other, 0);
        kvcl_comm_free(comm);
        status = kvcl_context_connect(cf->ctx, at, LONG_NS, &comm); /* the port may close a little later */
        CF_CHECK(cf, (status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_NOT_FOUND));
        kvcl_comm_free(other);
    } else if (cf->rank == 0) {
        CF_IS(cf, kvcl_context_listen(cf->ctx, NULL, at, AT_MAX, &(size_t){0}, &other), KVCL_ERR_EXISTS);
        CF_CHECK(cf, hear(cf, door, "put me out") == 1);
        is_gone(cf, door, 0);
        CF_OK(cf, kvcl_context_disconnect(door, 1));
        is_gone(cf, door, 1);
        CF_IS(cf, kvcl_context_disconnect(door, 7), KVCL_ERR_UNKNOWN_RANK);
        CF_IS(cf, kvcl_context_disconnect(cf->world, 0), KVCL_ERR_INVALID_PARAM);
        CF_CHECK(cf, hear(cf, door, "close") == 2);
        kvcl_comm_free(door);
    }
    cf_fence(cf);
    listen_again(cf, at);
}

/* A caller dies: what waits for it ends, what it sent can be taken, and the door serves the others. */
static void a_caller_dies(cf_t *cf)
{
    char              at[AT_MAX], byte;
    kvcl_comm_h       door = open_door(cf, true, at), comm;
    const int         last = cf->size - 1;
    kvcl_rank_state_t state;
    kvcl_req_h        req;

    if (cf->rank == last) {
        comm = go_there(cf, at);
        say(cf, comm, 0, "mortal");
        say(cf, comm, 0, "my last words");
        atomic_store(cf_word(cf, 1), 1);
        cf_sleep_us(cf, 60u * 1000 * 1000); /* until it is killed */
    } else if (cf->rank == 0) {
        CF_CHECK(cf, hear(cf, door, "mortal") == 0);
        CF_OK(cf, kvcl_recv_bytes(door, 0, 1, &byte, 1, NULL, &req));
        while (atomic_load(cf_word(cf, 1)) == 0) {
            cf_sleep_us(cf, 100);
        }
        cf_kill(cf, last, SIGKILL);
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_RANK_FAILED);
        CF_CHECK(cf, hear(cf, door, "my last words") == 0);
        atomic_store(cf_word(cf, 0), 1);
        CF_OK(cf, kvcl_rank_state(door, 0, &state));
        CF_CHECK(cf, state == KVCL_RANK_FAILED);
        CF_OK(cf, kvcl_notify(door, 0, "x", 1, NULL, &req));
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_RANK_FAILED);
        CF_CHECK(cf, hear(cf, door, "alive") == 1);
        kvcl_comm_free(door);
    } else if (cf->rank == 1) {
        while (atomic_load(cf_word(cf, 0)) == 0) {
            cf_sleep_us(cf, 100);
        }
        comm = go_there(cf, at);
        say(cf, comm, 0, "alive");
        kvcl_comm_free(comm);
    }
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
}

/* The listening side dies. */
static void the_door_dies(cf_t *cf)
{
    char        at[AT_MAX], byte;
    kvcl_comm_h comm, more;
    kvcl_req_h  req;

    (void)listens(cf, 1, true, at);
    if (cf->rank == 1) {
        cf_sleep_us(cf, 60u * 1000 * 1000); /* until it is killed */
    } else if (cf->rank == 0) {
        comm = go_there(cf, at);
        CF_OK(cf, kvcl_recv_bytes(comm, 0, 1, &byte, 1, NULL, &req));
        cf_kill(cf, 1, SIGKILL);
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_RANK_FAILED);
        CF_IS(cf, kvcl_context_connect(cf->ctx, at, LONG_NS, &more), KVCL_ERR_UNREACHABLE);
        kvcl_comm_free(comm);
    }
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
}

static const cf_case_t cases[] = {
    {"all_transfers", all_transfers, 0},
    {"connections_are_apart", connections_are_apart, 0},
    {"connections_are_bounded", connections_are_bounded, 0},
    {"all_meet_all", all_meet_all, 0},
    {"all_post_to_all", all_post_to_all, 0},
    {"come_and_go", come_and_go, 0},
    {"either_side_disconnects", either_side_disconnects, 0},
    {"a_caller_dies", a_caller_dies, CF_DIES | CF_PROCS | CF_THREE},
    {"the_door_dies", the_door_dies, CF_DIES | CF_PROCS},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"shm", false, 2, 0}, {"shm", true, 3, 0},
    {"tcp", false, 2, 0},  {"tcp", true, 3, 0},           {"tcp", true, 2, KVCL_INIT_NO_THREAD},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
