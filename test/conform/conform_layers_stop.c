/*
 * Layer-wise sends that end in the middle: by cancel, deadline or death, on either side. Layers that had arrived stay;
 * the others are fenced; no rank waits for ever.
 */
#include "conform_layers.h"

#include <signal.h>
#include <unistd.h>

/* ---------------------------------------------------------------- giving up */

/* The layers from `from` on still have the bytes that were written over them: nothing arrived after the end. */
static void nothing_comes(cf_t *cf, const le_end_t *end, const le_what_t *what)
{
    uint32_t l;

    le_corrupt(end, what);
    cf_sleep_us(cf, 500);
    for (l = 0; l < what->layers; ++l) {
        CF_CHECK(cf, le_visit(end, what, l, 0, LE_CHECK_SPOILT));
    }
}

/* Rank 0 or 1 stops, by cancel or deadline, when some layers are complete; the other rank gets the error. */
static void stopped_once(cf_t *cf, const le_what_t *what, le_end_t *ends, uint64_t seed, int stopper, bool cancel,
                         uint32_t marked)
{
    le_end_t      end  = *ends;
    bool          mine = (cf->rank == stopper);
    uint64_t      limit = (mine && !cancel) ? 3 * KVCL_NS_PER_MS + kvcl_rand_below(&cf->rnd, 2 * KVCL_NS_PER_MS) : 0;
    kvcl_status_t status, layer;
    uint32_t      l;
    kvcl_req_h    req;

    le_corrupt(&end, what);
    cf_fence(cf);
    if (cf->rank == 0) {
        req = le_send(cf, 1, &end, limit);
        for (l = 0; l < marked; ++l) {
            (void)le_visit(&end, what, l, seed, LE_WRITE);
            status = kvcl_req_layer_ready(req, end.sel.layers.first + l);
            CF_CHECK(cf, (status == KVCL_OK) || (status == KVCL_ERR_CANCELED) || (status == KVCL_ERR_TIMED_OUT));
        }
    } else {
        req = le_recv(cf, 0, &end, limit);
    }
    if (mine && cancel) {
        cf_sleep_us(cf, le_below(&cf->rnd, 1500));
        kvcl_req_cancel(req);
    }
    if (cf->rank == 0) {
        status = kvcl_req_wait(req, mine ? 20 * KVCL_NS_PER_SEC : 60 * KVCL_NS_PER_MS);
        if (status == KVCL_ERR_WAIT_TIMEOUT) { /* the recv had ended before it matched */
            kvcl_req_cancel(req);
            status = cf_end(cf, req);
        }
        for (l = 0; l < what->layers; ++l) {
            (void)le_visit(&end, what, l, 0, LE_SPOIL); /* the caller's again */
        }
    } else {
        if (!mine && (kvcl_req_layer_wait(req, end.sel.layers.first + what->layers - 1, 60 * KVCL_NS_PER_MS) ==
                      KVCL_ERR_WAIT_TIMEOUT)) {
            kvcl_req_cancel(req); /* the send had ended before it matched */
        }
        for (l = 0; l < what->layers; ++l) { /* all the time until it is collected */
            layer = kvcl_req_layer_test(req, end.sel.layers.first + l);
            CF_CHECK(cf, (layer != KVCL_OK) || ((l < marked) && le_visit(&end, what, l, seed, LE_CHECK)));
        }
        while (((status = kvcl_req_layer_test(req, end.sel.layers.first + what->layers - 1)) == KVCL_INPROGRESS)) {
        }
        for (l = 0; l < what->layers; ++l) {
            layer = kvcl_req_layer_test(req, end.sel.layers.first + l);
            CF_CHECK(cf, (layer == KVCL_OK) ? le_visit(&end, what, l, seed, LE_CHECK) : (layer == status));
        }
        CF_IS(cf, cf_end(cf, req), status);
        nothing_comes(cf, &end, what);
    }
    CF_CHECK(cf, (status == KVCL_ERR_CANCELED) || (status == KVCL_ERR_TIMED_OUT));
    cf_fence(cf);
}

static void stop_in_the_middle(cf_t *cf)
{
    le_what_t      what = {.layers = 8, .blocks = 16, .tokens = 16, .heads = 4, .head_bytes = 128};
    kvcl_rand_t same;
    le_end_t    ends[2];
    unsigned    i;

    ends[0] = le_new(cf, &what, false);
    ends[1] = le_new(cf, &what, true);
    kvcl_rand_seed(&same, cf_same(cf));
    for (i = 0; i < 40; ++i) {
        uint32_t marked = le_below(&same, what.layers); /* never all layers, so it cannot succeed */
        cf_alive(cf);
        if (cf->rank > 1) {
            cf_fence(cf);
            cf_fence(cf);
            continue;
        }
        stopped_once(cf, &what, &ends[i & 1], cf_same(cf) + i, (i & 2) ? 1 : 0, (i & 4) != 0, marked);
    }
    cf_fence(cf);
    cf_cache_end(&ends[0].cache);
    cf_cache_end(&ends[1].cache);
}

/* ---------------------------------------------------------------- dying */

/*
 * Rank 0 sends to rank 1 and one of them dies halfway; rank 2 only stays connected. Over shared memory a rank dies from
 * a callback, when no thread is inside UCX (conform_death.c gives the reason).
 */
static void die(void *arg, kvcl_status_t status)
{
    (void)arg;
    (void)status;
    kill(getpid(), SIGKILL);
}

static void die_soon(cf_t *cf)
{
    static char        in[8];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = kvcl_rand_below(&cf->rnd, 4 * KVCL_NS_PER_MS) + 1;
    params.cb         = die;
    CF_OK(cf, kvcl_recv_bytes(cf->world, 2, 77, in, 8, &params, NULL));
    pause();
}

static void killed(cf_t *cf, int victim)
{
    le_what_t        what = {.layers = 8, .blocks = 16, .tokens = 16, .heads = 4, .head_bytes = 128};
    uint64_t      seed = cf_same(cf);
    le_end_t         end  = le_new(cf, &what, true);
    kvcl_status_t status;
    kvcl_req_h    req = NULL;
    uint32_t      l;

    le_corrupt(&end, &what);
    cf_fence(cf);
    if (cf->rank == 0) {
        req = le_send(cf, 1, &end, 0);
        for (l = 0; l < 4; ++l) {
            (void)le_visit(&end, &what, l, seed, LE_WRITE);
            CF_OK(cf, kvcl_req_layer_ready(req, end.sel.layers.first + l));
        }
    } else if (cf->rank == 1) {
        req = le_recv(cf, 0, &end, 0);
        for (l = 0; l < 4; ++l) {
            CF_OK(cf, le_wait(cf, req, &end, l));
            CF_CHECK(cf, le_visit(&end, &what, l, seed, LE_CHECK));
        }
        *cf_word(cf, 0) = 1;
    }
    while (*cf_word(cf, 0) == 0) {
        cf_sleep_us(cf, 100);
    }
    if (cf->rank == victim) {
        die_soon(cf);
    }
    if (cf->rank == 2) {
        while (*cf_word(cf, 1) == 0) {
            cf_sleep_us(cf, 100);
        }
    } else {
        if (cf->rank == 1) {
            CF_IS(cf, le_wait(cf, req, &end, 6), KVCL_ERR_RANK_FAILED);
            CF_OK(cf, kvcl_req_layer_test(req, end.sel.layers.first + 2));
            CF_CHECK(cf, le_visit(&end, &what, 2, seed, LE_CHECK));
        }
        status = cf_end(cf, req);
        CF_IS(cf, status, KVCL_ERR_RANK_FAILED);
        if (cf->rank == 1) {
            nothing_comes(cf, &end, &what);
        }
        *cf_word(cf, 1) = 1;
    }
    cf_cache_end(&end.cache);
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
}

static void sender_killed(cf_t *cf)
{
    killed(cf, 0);
}

static void receiver_killed(cf_t *cf)
{
    killed(cf, 1);
}

static const cf_case_t cases[] = {
    {"stop_in_the_middle", stop_in_the_middle, CF_RACY},
    {"sender_killed", sender_killed, CF_DIES | CF_THREE},
    {"receiver_killed", receiver_killed, CF_DIES | CF_THREE},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", false, 2, 0},
    {"shm", true, 3, 0},   {"shm", true, 2, KVCL_INIT_NO_THREAD}, {"tcp", false, 2, 0},
    {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE}, {"tcp", true, 2, KVCL_INIT_NO_THREAD}, {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
