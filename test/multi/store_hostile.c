/*
 * A rank that has proven the secret and then sends garbage: every message of the store, with random fields and
 * payloads. The others must refuse it, reply correctly, and continue.
 */
#include "base/log.h"
#include "store/store.h"
#include "store_test.h"

enum { MESSAGES = 3000, PAYLOAD = 700 };

static const uint64_t pool_sizes[2] = {BLOCK, 1528}; /* of the pool's blocks */

static void random_bytes(kvcl_rand_t *rnd, void *buf, size_t len)
{
    uint8_t *bytes = buf;
    size_t  i;

    for (i = 0; i < len; ++i) {
        bytes[i] = (uint8_t)kvcl_rand_next(rnd);
    }
}

/* A directory message whose header is mostly right. */
static size_t dir_message(kvcl_rand_t *rnd, uint8_t *payload, uint32_t n)
{
    kvcl_dir_pack_t pack;
    kvcl_store_rec_t rec;
    uint32_t         i;
    size_t           len;

    if (kvcl_dir_pack_begin(&pack, payload, PAYLOAD, (kvcl_dir_msg_type_t)(1 + kvcl_rand_below(rnd, 3)), 1, 0) !=
        KVCL_OK) {
        return 0;
    }
    for (i = 0; i < n; ++i) {
        random_bytes(rnd, &rec, sizeof(rec));
        rec.loc.source   = (kvcl_rand_below(rnd, 2) != 0) ? 0 : rec.loc.source;
        rec.loc.rank     = (uint16_t)kvcl_rand_below(rnd, 4);
        rec.loc.flags   &= 0x0f;
        (void)!kvcl_dir_pack_add(&pack, &rec.key, &rec.loc);
    }
    len = kvcl_dir_pack_end(&pack);
    if (kvcl_rand_below(rnd, 2) == 0) {
        payload[kvcl_rand_below(rnd, len)] ^= (uint8_t)(1u << kvcl_rand_below(rnd, 8));
    }
    return len;
}

/* A mostly valid request for copies of blocks that do not exist. */
static size_t copy_message(kvcl_rand_t *rnd, kvcl_store_h store, uint8_t *payload, uint32_t n)
{
    kvcl_copy_head_t head = {.copies = (uint8_t)kvcl_rand_below(rnd, 6), .n_next = (uint8_t)kvcl_rand_below(rnd, 4),
                             .next = {(uint16_t)kvcl_rand_below(rnd, 5), (uint16_t)kvcl_rand_below(rnd, 5)}};
    uint32_t         len  = (uint32_t)pool_sizes[kvcl_rand_below(rnd, 2)], i;
    kvcl_store_rec_t rec;

    memcpy(payload, &head, sizeof(head));
    for (i = 0; i < n; ++i) {
        random_bytes(rnd, &rec, sizeof(rec));
        rec.loc.rank        = (uint16_t)kvcl_rand_below(rnd, store->n_ranks);
        rec.loc.incarnation = (uint16_t)store->ranks[rec.loc.rank].incarnation;
        rec.loc.flags      &= (kvcl_rand_below(rnd, 8) != 0) ? KVCL_DIR_FLAGS_MASK : 0xffff;
        rec.loc.source      = (kvcl_rand_below(rnd, 8) != 0) ? 0 : 1;
        rec.loc.cache       = (uint16_t)kvcl_rand_below(rnd, 4);
        rec.loc.slot        = (uint32_t)kvcl_rand_below(rnd, 12);
        rec.loc.len         = (kvcl_rand_below(rnd, 8) != 0) ? len : rec.loc.len;
        memcpy(payload + sizeof(head) + (i * sizeof(rec)), &rec, sizeof(rec));
    }
    return sizeof(head) + (n * sizeof(rec)) - ((kvcl_rand_below(rnd, 8) == 0) ? 1 : 0);
}

/* Keys to look up, and the size that their blocks are claimed to have. */
static size_t fetch_message(kvcl_rand_t *rnd, uint8_t *payload, uint32_t n)
{
    const uint64_t sizes[] = {BLOCK, 0, 1, KVCL_FETCH_MAX, KVCL_FETCH_MAX + 1, UINT64_MAX, kvcl_rand_next(rnd)};
    const size_t   keys    = (n % 12) * sizeof(kvcl_key_t);

    random_bytes(rnd, payload, keys);
    memcpy(payload + keys, &sizes[kvcl_rand_below(rnd, sizeof(sizes) / sizeof(sizes[0]))], sizeof(sizes[0]));
    return keys + sizeof(sizes[0]) - ((kvcl_rand_below(rnd, 8) == 0) ? 1 : 0);
}

/* Blocks of a tier that are requested, released or forgotten; mostly valid except for the names. */
static size_t stage_message(kvcl_rand_t *rnd, kvcl_store_h store, uint8_t kind, uint8_t *payload, uint32_t n)
{
    kvcl_stage_got_t got;
    uint32_t         i;
    size_t           len;

    if (kind == KVCL_RPC_STAGE) {
        len = copy_message(rnd, store, payload, n) - sizeof(kvcl_copy_head_t);
        memmove(payload, payload + sizeof(kvcl_copy_head_t), len);
        return len;
    }
    if (kind == KVCL_RPC_FORGET) {
        random_bytes(rnd, payload, n * sizeof(kvcl_key_t));
        return n * sizeof(kvcl_key_t);
    }
    for (i = 0; i < n; ++i) {
        random_bytes(rnd, &got, sizeof(got));
        got.cache = (uint16_t)kvcl_rand_below(rnd, 8);
        got.slot  = (uint32_t)kvcl_rand_below(rnd, 2000);
        memcpy(payload + (i * sizeof(got)), &got, sizeof(got));
    }
    return n * sizeof(got);
}

/* Queries for a rank's own part, mostly of the right length. CLEAR names tenants that do not exist, and DISCARD blocks
 * that do not exist: a rank that may query may also remove. */
static size_t ops_message(kvcl_rand_t *rnd, kvcl_store_h store, uint8_t kind, uint8_t *payload)
{
    uint64_t words[4], i, n = kvcl_rand_below(rnd, 8);
    size_t   fixed = 16, more = 0;

    for (i = 0; i < 4; ++i) {
        words[i] = (kvcl_rand_below(rnd, 2) == 0) ? kvcl_rand_next(rnd) : kvcl_rand_below(rnd, 6);
    }
    switch (kind) {
    case KVCL_RPC_EVENTS:
        fixed = 24;
        break;
    case KVCL_RPC_PIN:
        words[3] = n;
        fixed    = 32;
        more     = n * sizeof(kvcl_key_t);
        break;
    case KVCL_RPC_CLEAR:
        words[0] = 1 + (words[0] >> 1);
        break;
    case KVCL_RPC_DISCARD:
        words[0] = kvcl_rand_below(rnd, 4) - 1;
        words[1] = n;
        more     = copy_message(rnd, store, payload, (uint32_t)n) - fixed; /* its head has the same length */
        more     = (more <= PAYLOAD) ? more : 0;
        break;
    case KVCL_RPC_STATS:
        fixed = 0;
        break;
    case KVCL_RPC_HELD:
        fixed = 0;
        more  = copy_message(rnd, store, payload, (uint32_t)n) - sizeof(kvcl_copy_head_t);
        more  = (more <= PAYLOAD) ? more : 0;
        memmove(payload, payload + sizeof(kvcl_copy_head_t), more);
        break;
    default: /* two words */
        break;
    }
    memcpy(payload, words, fixed);
    return fixed + more + ((kvcl_rand_below(rnd, 6) != 0) ? 0 : kvcl_rand_below(rnd, 3) + 1);
}

static void send_nonsense(kvcl_rand_t *rnd, kvcl_store_h store, kvcl_peer_t *peer)
{
    static const uint8_t types[] = {KVCL_MSG_DIR_REQUEST, KVCL_MSG_DIR_REQUEST, KVCL_MSG_DIR_ANSWER, KVCL_MSG_WITHDRAW};
    uint8_t              payload[PAYLOAD + sizeof(kvcl_copy_head_t)];
    kvcl_msg_dir_request_t out;
    size_t               len = kvcl_rand_below(rnd, sizeof(payload));

    random_bytes(rnd, &out, sizeof(out));
    random_bytes(rnd, payload, sizeof(payload));
    out.msg.type  = types[kvcl_rand_below(rnd, 4)];
    out.msg.flags = (uint8_t)kvcl_rand_below(rnd, 10);
    out.msg.op    = kvcl_rand_below(rnd, 50);
    out.store     = (kvcl_rand_below(rnd, 8) != 0) ? store->id : out.store;
    out.n         = (kvcl_rand_below(rnd, 4) != 0) ? (uint32_t)kvcl_rand_below(rnd, 12) : out.n;
    if (kvcl_rand_below(rnd, 2) == 0) {
        len = dir_message(rnd, payload, out.n % 12);
    } else if (kvcl_rand_below(rnd, 2) == 0) {
        len = (out.n % 12) * ((kvcl_rand_below(rnd, 2) == 0) ? 32u : 64u);
        len = (len < sizeof(payload)) ? len : 0;
    }
    if ((out.msg.type == KVCL_MSG_DIR_REQUEST) && (out.msg.flags == KVCL_RPC_COPY) && (kvcl_rand_below(rnd, 8) != 0)) {
        out.n     = 1 + (uint32_t)kvcl_rand_below(rnd, PAYLOAD / sizeof(kvcl_store_rec_t) - 1);
        out.store = store->id;
        len       = copy_message(rnd, store, payload, out.n);
    }
    if ((out.msg.type == KVCL_MSG_DIR_REQUEST) && (out.msg.flags == KVCL_RPC_USED) && (kvcl_rand_below(rnd, 4) != 0)) {
        out.store = store->id;
        len       = (out.n % (PAYLOAD / sizeof(kvcl_store_use_t))) * sizeof(kvcl_store_use_t);
    }
    if ((out.msg.type == KVCL_MSG_DIR_REQUEST) && (out.msg.flags == KVCL_RPC_FETCH) && (kvcl_rand_below(rnd, 4) != 0)) {
        out.store = store->id;
        len       = fetch_message(rnd, payload, out.n);
    }
    if ((out.msg.type == KVCL_MSG_DIR_REQUEST) && (kvcl_rand_below(rnd, 4) == 0)) {
        out.n         = 1 + (uint32_t)kvcl_rand_below(rnd, PAYLOAD / sizeof(kvcl_store_rec_t) - 1);
        out.store     = store->id;
        out.msg.flags = (uint8_t)(KVCL_RPC_STAGE + kvcl_rand_below(rnd, 4));
        len           = stage_message(rnd, store, out.msg.flags, payload, out.n);
        out.n         = (kvcl_rand_below(rnd, 8) == 0) ? out.n + 1 : out.n;
    }
    if ((out.msg.type == KVCL_MSG_DIR_REQUEST) && (kvcl_rand_below(rnd, 3) == 0)) {
        out.store     = store->id;
        out.msg.flags = (uint8_t)(KVCL_RPC_EVENTS + kvcl_rand_below(rnd, KVCL_RPC_HELD - KVCL_RPC_EVENTS + 1));
        len           = ops_message(rnd, store, out.msg.flags, payload);
    }
    kvcl_lock(store->ctx);
    (void)!kvcl_peer_post(peer, &out.msg, (kvcl_rand_below(rnd, 10) == 0) ? sizeof(kvcl_msg_t) : sizeof(out), payload,
                          len);
    kvcl_unlock(store->ctx);
}

void test_hostile(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "hostile", 3, false);
    kvcl_key_t          mine   = key_of("hostile", w->seed, (uint64_t)w->rank), theirs;
    uint32_t            id     = 0, to = 1, i;
    int                 victim = (w->rank + 1) % w->size;
    kvcl_store_h        store;
    kvcl_rand_t         rnd;
    kvcl_req_h          req;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    params.dir_entries = 512;
    params.dram_bytes  = 12 * BLOCK;
    params.block_sizes = pool_sizes;
    params.n_block_sizes = 2;
    params.nvme        = tier_spec(w);
    kvcl_log_set_level(KVCL_LOG_ERROR); /* dropped messages are logged */
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    if (w->rank == 1) {
        for (i = 0; i < MESSAGES; ++i) {
            send_nonsense(&rnd, store, store->ranks[victim].peer);
        }
    }
    sync_all(w);
    fill(cache, id, &mine);
    CHECK(w, DO(kvcl_store_publish(store, &mine, 1, cache, &id, NULL, &req)) == KVCL_OK, "publish");
    sync_all(w);
    theirs = key_of("hostile", w->seed, (uint64_t)victim);
    CHECK(w, DO(kvcl_store_get(store, &theirs, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK, "get");
    CHECK(w, holds(cache, to, &theirs), "bytes");
    sync_all(w);
    kvcl_log_set_level(KVCL_LOG_WARN);
    kvcl_store_close(store);
    sync_all(w);
    tier_unlink();
    kvcl_cache_destroy(cache);
}
