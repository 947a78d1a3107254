/*
 * Messages that are not sent. First, one that the transport refuses before it has reported that the endpoint failed.
 * Over TCP that happens after a peer was killed, until this rank has polled the socket. Every key has a copy and a home
 * on other ranks, so no get, match or exists may miss one. Then, requests for copies that no rank receives.
 */
#include "config.h"
#include "conform.h"
#include "core/context.h"
#include "store/store.h"
#include <kvcl/kvcl_store.h>

#include <string.h>

enum { KEYS = 60, BLOCK = 512, PUTTER = 1, VICTIM = 2 };

static kvcl_status_t refuse(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                            unsigned flags, kvcl_xport_send_t *send)
{
    (void)ep;
    (void)hdr;
    (void)hdr_len;
    (void)iov;
    (void)n_iov;
    (void)flags;
    (void)send;
    return kvcl_fail(KVCL_ERR_RANK_FAILED, "the connection was reset");
}

/* Rank 0's messages to the victim are refused, and no home's table is read directly. */
static void break_sends(kvcl_store_h store, kvcl_xport_ops_t *ops)
{
    kvcl_peer_t *peer = store->ranks[VICTIM].peer;
    uint32_t    i;

    kvcl_lock(store->ctx);
    for (i = 1; i < store->n_ranks; ++i) {
        atomic_store(&store->ranks[i].view_state, KVCL_VIEW_BY_MESSAGE);
    }
    *ops         = *peer->ops;
    ops->am_send = refuse;
    peer->ops    = ops;
    kvcl_unlock(store->ctx);
}

typedef struct scene {
    cf_cache_t   cache;
    kvcl_store_h store;
    kvcl_key_t   keys[KEYS];
    uint32_t     ids[KEYS];
} scene_t;

static scene_t setup(cf_t *cf)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    char                name[32];
    scene_t             s;
    uint32_t            i;

    params.dir_entries = 1024;
    params.dram_bytes  = 4ull * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    s.cache            = cf_cache(cf, "unsent", &layout, true);
    CF_OK(cf, kvcl_store_open(cf->world, &params, &s.store));
    for (i = 0; i < KEYS; ++i) {
        snprintf(name, sizeof(name), "unsent/%u", i);
        kvcl_key_from_string(name, strlen(name), &s.keys[i]);
        s.ids[i] = i;
    }
    return s;
}

static void put(cf_t *cf, scene_t *s, size_t from, size_t n)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_store_put(s->store, s->keys + from, n, s->cache.h, s->ids + from, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
}

static void get_all(cf_t *cf, scene_t *s)
{
    kvcl_status_t status[KEYS];
    kvcl_req_h    req;
    uint32_t      i;

    CF_OK(cf, kvcl_store_get(s->store, s->keys, KEYS, s->cache.h, s->ids, status, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < KEYS; ++i) {
        CF_OK(cf, status[i]);
        cf_block_is(cf, s->cache.h, i, 7, i);
    }
}

static void see_all(cf_t *cf, scene_t *s)
{
    uint8_t  present[KEYS];
    size_t   hit;
    uint32_t i;

    CF_OK(cf, kvcl_store_exists(s->store, s->keys, KEYS, present, NULL));
    for (i = 0; i < KEYS; ++i) {
        CF_CHECK(cf, present[i]);
    }
    CF_OK(cf, kvcl_store_match(s->store, s->keys, KEYS, &hit, NULL));
    CF_CHECK(cf, hit == KEYS);
}

/* `first` is rank 0's first operation whose messages are refused. */
static void run(cf_t *cf, void (*first)(cf_t *cf, scene_t *s))
{
    static kvcl_xport_ops_t ops; /* rank 0's: must outlive the context's peers */
    scene_t                 s = setup(cf);
    kvcl_xport_ops_t        *mine = (cf->rank == 0) ? &ops : NULL;

    if (cf->rank == PUTTER) {
        cf_fill(cf, s.cache.h, 7);
        put(cf, &s, 0, KEYS);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        get_all(cf, &s); /* connects rank 0 with every rank */
        cf_fill(cf, s.cache.h, 8);
        break_sends(s.store, mine);
        first(cf, &s);
        get_all(cf, &s);
        see_all(cf, &s);
        /* over another pair of ports the victim may be reached again */
        CF_CHECK(cf, (s.store->ranks[VICTIM].peer->state == KVCL_PEER_FAILED) || (cf->ctx->peers.lost_links != 0));
    }
    cf_fence(cf);
    kvcl_store_close(s.store);
    cf_cache_end(&s.cache);
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
}

static kvcl_status_t (*send_really)(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                    size_t n_iov, unsigned flags, kvcl_xport_send_t *send);

static kvcl_status_t lose_copies(kvcl_xport_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                 size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    const kvcl_msg_t *msg = hdr;

    if ((msg->type == KVCL_MSG_DIR_REQUEST) && (msg->flags == KVCL_RPC_COPY)) {
        return KVCL_OK;
    }
    return send_really(ep, hdr, hdr_len, iov, n_iov, flags, send);
}

/* The other ranks answer all but the requests for copies: the put does not wait for its deadline, and says so. */
static void copies_that_nobody_makes(cf_t *cf)
{
    static kvcl_xport_ops_t ops; /* the putter's: must outlive the context's peers */
    scene_t                 s = setup(cf);
    kvcl_req_h              req;
    uint32_t                i;

    if (cf->rank == PUTTER) {
        cf_fill(cf, s.cache.h, 7);
        put(cf, &s, 0, 1); /* connects the ranks */
        kvcl_lock(s.store->ctx);
        for (i = 0; i < s.store->n_ranks; ++i) {
            if (i != PUTTER) {
                ops         = *s.store->ranks[i].peer->ops;
                send_really = s.store->ranks[i].peer->ops->am_send;
                ops.am_send = lose_copies;
                s.store->ranks[i].peer->ops = &ops;
            }
        }
        kvcl_unlock(s.store->ctx);
        CF_OK(cf, kvcl_store_put(s.store, s.keys, KEYS, s.cache.h, s.ids, NULL, &req));
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_TIMED_OUT);
        CF_CHECK(cf, strstr(kvcl_last_error(), "did not make them in time") != NULL);
    }
    cf_fence(cf);
    kvcl_store_close(s.store);
    cf_cache_end(&s.cache);
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
}

static void get_first(cf_t *cf)
{
    run(cf, get_all);
}

static void match_first(cf_t *cf)
{
    run(cf, see_all);
}

static const cf_case_t cases[] = {
    {"get_first", get_first, CF_DIES},
    {"match_first", match_first, CF_DIES},
    {"copies_that_nobody_makes", copies_that_nobody_makes, CF_DIES | CF_MAPPED},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {{"loop", false, 3, 0},
                                      {"shm", true, 3, 0},
                                      {"tcp", true, 3, 0},
                                      {"tcp", true, 3, KVCL_INIT_NO_THREAD},
                                      {NULL, false, 0, 0}};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
