/*
 * Bits that flip between a holder and a getter: in frames of served transfers, in bytes from a lane, in memory while it
 * is read, in the directory's requests and replies, in headers. A get returns the right bytes or a miss, soon.
 *
 * A message is changed at its receiver, before its handler runs; one whose header was changed passes kvcl_am_recv
 * again. Bytes from a lane are changed by this program's recvmsg. One bit each time.
 */
#include "base/log.h"
#include "store/store.h"
#include "store_test.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KEYS = 32, POOL = 256, ROUNDS = 24, SOON_S = 60 };

/* ---- the wire ---- */

typedef enum { FRAMES, LANES, DIRECTORY, HEADERS, KINDS } kind_t;

/* All but `on` and `flips` under the engine lock. */
static struct {
    kvcl_msg_handler_t real[KVCL_MSG_LAST + 1];
    kvcl_rand_t        rnd;
    unsigned           every;   /* one message in this many */
    bool               at_door; /* a changed header passes it */
    _Atomic unsigned   on;      /* bits, by kind */
    _Atomic uint64_t   flips[KINDS];
} wire;

static bool is_due(kind_t kind)
{
    return ((wire.on & (1u << kind)) != 0) && (kvcl_rand_below(&wire.rnd, wire.every) == 0);
}

static void flip_bit(kind_t kind, void *buf, size_t len)
{
    ((uint8_t *)buf)[kvcl_rand_below(&wire.rnd, len)] ^= (uint8_t)(1u << kvcl_rand_below(&wire.rnd, 8));
    ++wire.flips[kind];
}

static kvcl_status_t no_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len)
{
    (void)reply;
    (void)hdr;
    (void)hdr_len;
    return KVCL_ERR_UNSUPPORTED;
}

static void flip_header(kvcl_context_h ctx, const kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len)
{
    static const kvcl_xport_ops_t ops   = {.size = sizeof(ops), .name = "flips", .reply = no_reply};
    static kvcl_xport_t           xport = {.ops = &ops};
    kvcl_xport_reply_t            reply = {&xport};
    uint64_t                      words[32];
    kvcl_msg_t                    *copy = (kvcl_msg_t *)(void *)words;

    memcpy(words, msg, hdr_len);
    flip_bit(HEADERS, words, hdr_len);
    if (copy->type == KVCL_MSG_BYE) { /* without this peer, which sent BYE, the rest of the test could not run */
        copy->type = msg->type;
    }
    wire.at_door = true;
    kvcl_am_recv(ctx, words, hdr_len, data, len, &reply);
    wire.at_door = false;
}

static void on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len)
{
    const kvcl_msg_fn_t real = wire.real[msg->type].fn;
    const bool          brings = (msg->type == KVCL_MSG_DIR_ANSWER) && (msg->flags == KVCL_RPC_FETCH) && (len > BLOCK);
    kind_t              kind   = ((msg->type == KVCL_MSG_DATA) || brings) ? FRAMES : DIRECTORY;
    uint8_t             *copy;

    if (!wire.at_door && (hdr_len <= 256) && is_due(HEADERS)) {
        flip_header(ctx, msg, hdr_len, data, len);
    } else if (!wire.at_door && (len > 0) && is_due(kind)) {
        copy = malloc(len);
        memcpy(copy, data, len);
        flip_bit(kind, copy + (brings ? len - BLOCK : 0), brings ? BLOCK : len);
        real(ctx, peer, msg, hdr_len, copy, len);
        free(copy);
    } else {
        real(ctx, peer, msg, hdr_len, data, len);
    }
}

/* Lanes' frames are received under the engine lock; other receives are shorter, or have other flags. */
ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    ssize_t got = syscall(SYS_recvmsg, fd, msg, flags);

    if ((got > 0) && (wire.on & (1u << LANES)) && (flags == MSG_DONTWAIT) && (msg->msg_iov[0].iov_len >= 2048) &&
        is_due(LANES)) {
        flip_bit(LANES, msg->msg_iov[0].iov_base, ((size_t)got < msg->msg_iov[0].iov_len) ? (size_t)got
                                                                                         : msg->msg_iov[0].iov_len);
    }
    return got;
}

static void wire_tap(world_t *w, bool tapped)
{
    static const uint8_t types[] = {KVCL_MSG_PULL, KVCL_MSG_DATA, KVCL_MSG_PULL_DONE, KVCL_MSG_CREDIT,
                                    KVCL_MSG_PULL_STOP, KVCL_MSG_DIR_REQUEST, KVCL_MSG_DIR_ANSWER, KVCL_MSG_WITHDRAW};
    size_t               i;

    kvcl_lock(w->ctx);
    if (tapped) {
        memcpy(wire.real, w->ctx->handlers, sizeof(wire.real));
        kvcl_rand_seed(&wire.rnd, w->seed + (uint64_t)w->rank);
    }
    for (i = 0; i < sizeof(types); ++i) {
        w->ctx->handlers[types[i]].fn = tapped ? on_message : wire.real[types[i]].fn;
    }
    kvcl_unlock(w->ctx);
    kvcl_log_set_level(tapped ? KVCL_LOG_ERROR : KVCL_LOG_WARN); /* dropped messages are logged */
}

static void flip_on(world_t *w, unsigned kinds, unsigned every)
{
    kvcl_lock(w->ctx);
    wire.every = every;
    wire.on    = kinds;
    kvcl_unlock(w->ctx);
}

/* Change a setting that others may read. */
static void set(world_t *w, uint64_t *setting, uint64_t value)
{
    kvcl_lock(w->ctx);
    *setting = value;
    kvcl_unlock(w->ctx);
}

/* ---- counts ---- */

typedef struct tally {
    uint64_t right, missed, failed, wrong;
} tally_t;

static void count(world_t *w, tally_t *tally, kvcl_status_t status, bool is_right)
{
    tally->right  += ((status == KVCL_OK) && is_right) ? 1 : 0;
    tally->wrong  += ((status == KVCL_OK) && !is_right) ? 1 : 0;
    tally->missed += (status == KVCL_ERR_NOT_FOUND) ? 1 : 0;
    tally->failed += ((status != KVCL_OK) && (status != KVCL_ERR_NOT_FOUND)) ? 1 : 0;
    CHECK(w, (status != KVCL_OK) || is_right, "WRONG bytes");
}

/* Whether blocks and replies of the directory travel in messages. */
static bool by_message(const world_t *w)
{
    const char *path = getenv("KVCL_PATH");

    return (w->size > 1) && (path != NULL) && (strcmp(path, "tcp") == 0);
}

/* UCX's TCP has no lanes, and those of the aead wire carry records: a flipped bit there ends the connection. */
static bool has_open_lanes(const world_t *w)
{
    return by_message(w) && ((w->ctx->config.wire == KVCL_WIRE_AUTO) || (w->ctx->config.wire == KVCL_WIRE_PLAIN));
}

static void report(world_t *w, const char *name, kvcl_store_h store, const tally_t *mine, uint64_t flips)
{
    tally_t            sum = {sum_of(w, mine->right), sum_of(w, mine->missed), sum_of(w, mine->failed),
                              sum_of(w, mine->wrong)};
    uint64_t           all = sum_of(w, flips), corrupt = sum_of(w, stats_of(store).corrupt);

    if (w->rank == 0) {
        printf("%s: %llu flips, %llu copies refused; %llu right, %llu absent, %llu failed, %llu wrong\n", name,
               (unsigned long long)all, (unsigned long long)corrupt, (unsigned long long)sum.right,
               (unsigned long long)sum.missed, (unsigned long long)sum.failed, (unsigned long long)sum.wrong);
    }
    CHECK(w, sum.right > 0, "nothing came");
}

/* ---- blocks ---- */

static kvcl_status_t put_round(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, uint64_t round,
                               uint64_t timeout_ns)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[KEYS];
    uint32_t           ids[KEYS], i;
    kvcl_req_h         req;

    p.timeout_ns = timeout_ns;
    p.replicas   = ((w->size > 1) && (round % 2 != 0)) ? 2 : 1;
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, (round * KEYS) + i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    return DO(kvcl_store_put(store, keys, KEYS, cache, ids, &p, &req));
}

/* Get all ranks' blocks of a round, in one call for each rank or in one for each block. */
static void get_round(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, uint64_t round,
                      uint64_t timeout_ns, tally_t *tally)
{
    uint32_t           some = (round % 4 < 2) ? KEYS : 1, ids[KEYS], i, at;
    kvcl_xfer_params_t p    = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status[KEYS];
    kvcl_key_t         keys[KEYS];
    uint64_t           begun;
    kvcl_req_h         req;
    int                r;

    p.timeout_ns = timeout_ns;
    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < KEYS; ++i) {
            keys[i]   = key_of(what, (uint64_t)((w->rank + r) % w->size), (round * KEYS) + i);
            ids[i]    = KEYS + i;
            status[i] = KVCL_ERR_INTERNAL;
        }
        for (at = 0; at < KEYS; at += some) {
            begun = kvcl_now_ns();
            (void)!DO(kvcl_store_get(store, keys + at, some, cache, ids + at, status + at, &p, &req));
            CHECK(w, kvcl_now_ns() - begun < p.timeout_ns + (SOON_S * KVCL_NS_PER_SEC), "a get came to no end");
        }
        for (i = 0; i < KEYS; ++i) {
            count(w, tally, status[i], (status[i] == KVCL_OK) && holds(cache, ids[i], &keys[i]));
        }
    }
}

/* Bytes of blocks flip in the messages that carry them. */
void test_wire_frames(world_t *w)
{
    kvcl_cache_h cache = make_cache(w, "frames", 2 * KEYS, false);
    kvcl_store_h store = open_with_pool(w, POOL, NULL);
    uint64_t     begun = wire.flips[FRAMES], flips;
    tally_t      tally = {0};
    uint64_t     round;

    wire_tap(w, true);
    for (round = 0; round < ROUNDS; ++round) {
        CHECK(w, put_round(w, store, cache, "frames", round, 0) == KVCL_OK, "put");
        sync_all(w);
        flip_on(w, 1u << FRAMES, 4);
        get_round(w, store, cache, "frames", round, 0, &tally);
        flip_on(w, 0, 1);
        sync_all(w);
    }
    wire_tap(w, false);
    for (round = ROUNDS - 2; round < ROUNDS; ++round) { /* only the transfer was bad: no rank has dropped a block */
        tally_t again = {0};
        get_round(w, store, cache, "frames", round, 0, &again);
        CHECK(w, again.right == (uint64_t)w->size * KEYS, "%llu came afterwards, %llu are absent",
              (unsigned long long)again.right, (unsigned long long)again.missed);
        sync_all(w);
    }
    flips = wire.flips[FRAMES] - begun;
    report(w, "frames", store, &tally, flips);
    flips = sum_of(w, flips);
    CHECK(w, tally.failed == 0, "%llu gets failed", (unsigned long long)tally.failed);
    CHECK(w, !by_message(w) || (flips > 0), "no bit was flipped");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* A barrier with a timeout of its own, whatever config.timeout_ns is at the moment. */
static void sync_within(world_t *w, uint64_t timeout_ns)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    p.timeout_ns = timeout_ns;
    KVCL_TRY(DO(kvcl_barrier(w->comm, &p, &req)));
}

/* Requests to the directory, its replies and headers of all messages change, in puts and in gets. Any call may fail or
 * last until its deadline, and a rank may be taken for one that has closed its part. The next store works. */
void test_wire_messages(world_t *w)
{
    const uint64_t limit = 200 * KVCL_NS_PER_MS, usual = w->ctx->config.timeout_ns;
    kvcl_cache_h   cache = make_cache(w, "messages", 2 * KEYS, false);
    kvcl_store_h   store = open_with_pool(w, POOL, NULL);
    uint64_t       begun = wire.flips[DIRECTORY] + wire.flips[HEADERS], flips, round;
    tally_t        tally = {0}, after = {0};

    sync_all(w);
    wire_tap(w, true);
    for (round = 0; round < ROUNDS / 3; ++round) {
        set(w, &w->ctx->config.timeout_ns, limit); /* for the store's own queries */
        flip_on(w, (round % 2 != 0) ? 1u << HEADERS : 1u << DIRECTORY, 16);
        (void)!put_round(w, store, cache, "messages", round, limit);
        get_round(w, store, cache, "messages", round, limit, &tally);
        flip_on(w, 0, 1);
        sync_within(w, usual);
        set(w, &w->ctx->config.timeout_ns, usual);
    }
    wire_tap(w, false);
    sync_all(w);
    flips = wire.flips[DIRECTORY] + wire.flips[HEADERS] - begun;
    report(w, "messages", store, &tally, flips);
    flips = sum_of(w, flips);
    CHECK(w, !by_message(w) || (flips > 0), "no bit was flipped");
    kvcl_store_close(store);
    store = open_with_pool(w, POOL, NULL);
    CHECK(w, put_round(w, store, cache, "after", 0, 0) == KVCL_OK, "a put afterwards");
    sync_all(w);
    get_round(w, store, cache, "after", 0, 0, &after);
    CHECK(w, after.right == (uint64_t)w->size * KEYS, "%llu came afterwards, %llu are absent",
          (unsigned long long)after.right, (unsigned long long)after.missed);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- memory ---- */

typedef struct flipper {
    uint8_t          *bytes;
    kvcl_rand_t      rnd;
    _Atomic bool     stop, begun;
    uint64_t         flips;
} flipper_t;

/* Memory that fails: an intentional race, hidden from the thread sanitizer. */
__attribute__((noinline, no_sanitize("thread"))) static void corrupt_bit(uint8_t *at, uint8_t bit)
{
    __atomic_fetch_xor(at, bit, __ATOMIC_RELAXED);
}

/* Flip a bit of published memory for a moment, repeatedly. */
static void *flip_memory(void *arg)
{
    flipper_t *f = arg;
    uint64_t  at;
    uint8_t   bit;

    while (!f->stop) {
        at  = kvcl_rand_below(&f->rnd, KEYS * BLOCK);
        bit = (uint8_t)(1u << kvcl_rand_below(&f->rnd, 8));
        corrupt_bit(&f->bytes[at], bit);
        f->begun = true;
        nap(100000);
        corrupt_bit(&f->bytes[at], bit);
        ++f->flips;
        nap(100000);
    }
    return NULL;
}

static void publish_round(world_t *w, kvcl_store_h store, kvcl_cache_h cache, uint64_t round)
{
    kvcl_key_t keys[KEYS];
    uint32_t   ids[KEYS], i;
    kvcl_req_h req;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("memory", (uint64_t)w->rank, (round * KEYS) + i);
        ids[i]  = i;
    }
    if (round > 0) {
        KVCL_TRY(kvcl_store_withdraw(store, cache, ids, KEYS));
    }
    for (i = 0; i < KEYS; ++i) {
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_publish(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "publish");
}

/* Published memory changes while it is copied out of, by a rank that maps it, or served. */
void test_wire_memory(world_t *w)
{
    const uint64_t inline_copy = w->ctx->config.inline_copy;
    kvcl_cache_h   cache   = make_cache(w, "memory", 2 * KEYS, false);
    kvcl_store_h   store   = open_with_pool(w, 0, NULL);
    flipper_t      flipper = {.bytes = kvcl_cache_base(cache, 0)};
    tally_t        tally   = {0};
    pthread_t      thread;
    uint64_t       round;

    kvcl_rand_seed(&flipper.rnd, w->seed + (uint64_t)w->rank);
    for (round = 0; round < ROUNDS; ++round) {
        publish_round(w, store, cache, round);
        sync_all(w);
        flipper.stop = flipper.begun = false;
        set(w, &w->ctx->config.inline_copy, (round % 3 != 0) ? inline_copy : 0); /* inside the call or not */
        pthread_create(&thread, NULL, flip_memory, &flipper);
        while (!flipper.begun) {
            nap(10000);
        }
        get_round(w, store, cache, "memory", round, 0, &tally);
        set(w, &w->ctx->config.inline_copy, inline_copy);
        sync_all(w);
        flipper.stop = true;
        pthread_join(thread, NULL);
    }
    report(w, "memory", store, &tally, flipper.flips);
    CHECK(w, tally.failed == 0, "%llu gets failed", (unsigned long long)tally.failed);
    CHECK(w, sum_of(w, tally.missed) > 0, "no flip was met");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* Flip a bit of one of this rank's blocks permanently; whichever rank holds it, the next rank does not get it. */
static void corrupt(world_t *w, kvcl_store_h store, const char *what, kvcl_cache_h cache, uint32_t id)
{
    kvcl_key_t        key   = key_of(what, (uint64_t)w->rank, 0);
    kvcl_key_t        other = key_of(what, (uint64_t)((w->rank + w->size - 1) % w->size), 0);
    uint64_t          until = 0;
    bool              gone  = false;
    kvcl_owner_node_t *node;
    kvcl_status_t     status;
    kvcl_req_h        req;

    sync_all(w);
    kvcl_lock(w->ctx);
    node = kvcl_owner_find(store, &key, NULL);
    if (node != NULL) {
        ((uint8_t *)node->owner->cache->bases[0])[(uint64_t)kvcl_owner_slot(node) * BLOCK] ^= 1;
    }
    kvcl_unlock(w->ctx);
    CHECK(w, node != NULL, "%s: it is not here", what);
    sync_all(w);
    status = DO(kvcl_store_get(store, &other, 1, cache, &id, NULL, NULL, &req));
    CHECK(w, status == KVCL_ERR_NOT_FOUND, "%s: %s", what, kvcl_status_text(status));
    do {
        kvcl_lock(w->ctx);
        gone = (kvcl_owner_find(store, &key, NULL) == NULL);
        kvcl_unlock(w->ctx);
    } while (!gone && keep_waiting(&until));
    CHECK(w, gone, "%s: it is found as if it were well", what);
    sync_all(w);
}

/* In a pool a corrupt block is evicted, pinned or not, and a put of its key makes a new one. In the store's own cache
 * it stays for the holder of its pin, and no get finds it. */
void test_wire_corrupt(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        own    = make_cache(w, "own", 4, false), cache = make_cache(w, "spoilt", 2, false);
    kvcl_key_t          mine   = key_of("pool", (uint64_t)w->rank, 0), here = key_of("own", (uint64_t)w->rank, 0);
    kvcl_key_t          other  = key_of("pool", (uint64_t)((w->rank + w->size - 1) % w->size), 0);
    const uint32_t      from = 0, to = 1;
    kvcl_store_h        store;
    kvcl_req_h          req;
    uint32_t            id, at;
    int                 turn;

    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    params.cache       = own;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    fill(cache, from, &mine);
    for (turn = 0; turn < 3; ++turn) {
        CHECK(w, DO(kvcl_store_put(store, &mine, 1, cache, &from, NULL, &req)) == KVCL_OK, "put %d", turn);
        sync_all(w);
        CHECK(w, (DO(kvcl_store_get(store, &other, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK) &&
                 holds(cache, to, &other), "get %d", turn);
        if (turn == 1) {
            CHECK(w, kvcl_store_pin(store, &mine, 1, 7, 60 * KVCL_NS_PER_SEC, 0, NULL, NULL) == KVCL_OK, "pin");
        }
        if (turn < 2) {
            corrupt(w, store, "pool", cache, to);
        }
    }
    KVCL_TRY(kvcl_store_alloc(store, 1, &id));
    fill(own, id, &here);
    CHECK(w, DO(kvcl_store_publish(store, &here, 1, own, &id, NULL, &req)) == KVCL_OK, "publish");
    CHECK(w, (kvcl_store_pin_local(store, &here, &at) == KVCL_OK) && (at == id), "pin_local");
    corrupt(w, store, "own", cache, to);
    CHECK(w, kvcl_store_pin_local(store, &here, &at) == KVCL_ERR_NOT_FOUND, "pin_local of a spoilt block");
    kvcl_store_unpin_local(store, id);
    KVCL_TRY(kvcl_store_withdraw(store, own, &id, 1));
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(own);
    kvcl_cache_destroy(cache);
}

/* ---- values ---- */

static void make_bytes(const kvcl_key_t *key, uint64_t *words, size_t n)
{
    kvcl_rand_t rnd;
    uint64_t    seed;
    size_t      i;

    memcpy(&seed, key->bytes + 8, sizeof(seed));
    kvcl_rand_seed(&rnd, seed);
    for (i = 0; i < n; ++i) {
        words[i] = kvcl_rand_next(&rnd);
    }
}

/* Values whose parts are spread over ranks: they arrive by lanes where blocks are served. */
void test_wire_values(world_t *w)
{
    enum { B = 65536, BYTES = (9 << 20) + 776, TURNS = 6 };
    const uint64_t      stripe = w->ctx->config.store_stripe;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    uint64_t            *want  = malloc(BYTES), *got = malloc(BYTES);
    uint64_t            lanes  = wire.flips[LANES], frames = wire.flips[FRAMES], round;
    tally_t             tally  = {0};
    kvcl_status_t       status;
    kvcl_key_t          key;
    kvcl_store_h        store;
    kvcl_req_h          req;
    int                 r;

    params.dir_entries = 8192;
    params.dram_bytes  = 640 * B;
    params.block_bytes = B;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    set(w, &w->ctx->config.store_stripe, 1 << 20);
    wire_tap(w, true);
    for (round = 0; round < TURNS; ++round) {
        key = key_of("values", (uint64_t)w->rank, round);
        make_bytes(&key, want, BYTES / sizeof(*want));
        CHECK(w, DO(kvcl_store_put_value(store, &key, want, BYTES, NULL, &req)) == KVCL_OK, "put");
        sync_all(w);
        flip_on(w, (round == 0) ? 0 : (1u << LANES) | (1u << FRAMES), 16); /* the first round makes the lanes */
        for (r = 0; r < w->size; ++r) {
            key    = key_of("values", (uint64_t)((w->rank + r) % w->size), round);
            status = DO(kvcl_store_get_value(store, &key, got, BYTES, NULL, &req));
            make_bytes(&key, want, BYTES / sizeof(*want));
            count(w, &tally, status, (status == KVCL_OK) && (memcmp(want, got, BYTES) == 0));
        }
        flip_on(w, 0, 1);
        sync_all(w);
    }
    wire_tap(w, false);
    set(w, &w->ctx->config.store_stripe, stripe);
    lanes  = wire.flips[LANES] - lanes;
    frames = wire.flips[FRAMES] - frames;
    report(w, "values", store, &tally, lanes + frames);
    lanes = sum_of(w, lanes);
    CHECK(w, tally.failed == 0, "%llu gets failed", (unsigned long long)tally.failed);
    CHECK(w, !has_open_lanes(w) || (lanes > 0), "no bit was flipped in a lane");
    sync_all(w);
    free(want);
    free(got);
    kvcl_store_close(store);
}
