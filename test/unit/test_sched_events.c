/*
 * Events of engines, of Mooncake and of stores into the prefix index: both encodings of vLLM and SGLang byte for byte,
 * keys as kvcl_key_chain makes them, sequence gaps and replays, restarts, and messages that are cut at every byte.
 */
#include "index_scene.h"

#include "sched/events/ev_json.h"

enum { BLOCK = 4, HOLDS = 64 };

static kvcl_sched_index_h tested;
static uint32_t           source;
static kvcl_key_t         prompt[8]; /* of tokens 1, 2, 3, ..., 4 a block */
static uint32_t           state;

static void prompt_keys(const kvcl_key_t *root)
{
    uint32_t tokens[8 * BLOCK], i;
    size_t   n;

    for (i = 0; i < 8 * BLOCK; ++i) {
        tokens[i] = i + 1;
    }
    ck_assert_int_eq(kvcl_key_chain(root, 0, tokens, 8 * BLOCK, BLOCK, prompt, 8, &n), KVCL_OK);
}

static void begin(uint32_t feed)
{
    kvcl_sched_root_t root = KVCL_SCHED_ROOT_INIT;
    kvcl_key_t        key;

    root.model = "m";
    ck_assert_int_eq(kvcl_sched_index_root(&root, &key), KVCL_OK);
    prompt_keys(&key);
    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    source = test_source(tested, "engine", 3, feed);
    state  = 0;
}

static void end(void)
{
    kvcl_sched_index_destroy(tested);
}

static kvcl_status_t feed(uint64_t number, const void *payload, size_t len, uint64_t flags)
{
    uint8_t            bytes[8];
    kvcl_sched_frame_t frames[3] = {{"kv", 2}, {bytes, 8}, {payload, len}};
    unsigned           i;

    for (i = 0; i < 8; ++i) {
        bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    }
    return kvcl_sched_index_feed(tested, source, flags, frames, 3, &state);
}

static kvcl_status_t feed_hex(uint64_t number, const char *hex)
{
    uint8_t  bytes[1024];
    unsigned byte;
    size_t   n = 0;

    for (; hex[0] != '\0'; hex += (hex[0] == ' ') ? 1 : 2) {
        if (hex[0] != ' ') {
            ck_assert_int_eq(sscanf(hex, "%2x", &byte), 1);
            bytes[n++] = (uint8_t)byte;
        }
    }
    return feed(number, bytes, n, 0);
}

/* The blocks of the prompt from the first on that the instance holds, and the tier of the first hold. */
static uint32_t run(uint32_t *tier_p)
{
    kvcl_sched_hold_t holds[HOLDS];
    size_t            n, i;
    uint32_t          blocks = 0;

    ck_assert_int_eq(kvcl_sched_index_match(tested, prompt, 8, 0, 0, holds, HOLDS, &n), KVCL_OK);
    for (i = 0; i < n; ++i) {
        ck_assert_uint_eq(holds[i].inst, 3);
        blocks += holds[i].blocks;
        if ((holds[i].first == 0) && (tier_p != NULL)) {
            *tier_p = holds[i].tier;
        }
    }
    return blocks;
}

/* ---- bytes as the encoders of vLLM and SGLang write them (msgspec and msgpack agree on all of these) ---- */

/* [1.0, [["BlockStored", [10, 11], nil, [1..8], 4, nil, "GPU"]]] */
#define HEX_TWO_BLOCKS                                                                                                 \
    "92 cb3ff0000000000000 91 97 ab426c6f636b53746f726564 92 0a 0b c0 98 0102030405060708 04 c0 a3475055"
/* [1.0, [["BlockStored", [12], 11, [9..12], 4, nil, "GPU"], ["BlockRemoved", [10], "GPU"]], 0] */
#define HEX_ONE_MORE                                                                                                   \
    "93 cb3ff0000000000000 92 97 ab426c6f636b53746f726564 91 0c 0b 94 090a0b0c 04 c0 a3475055 "                        \
    "93 ac426c6f636b52656d6f766564 91 0a a3475055 00"
/* [1.0, [["AllBlocksCleared"]]] */
#define HEX_CLEARED "92 cb3ff0000000000000 91 91 b0416c6c426c6f636b73436c6561726564"
/* {"ts": 1.0, "events": [{"type": "BlockStored", "block_hashes": [b"\x01..\x20"], "parent_block_hash": nil,
 *  "token_ids": [1, 2, 3, 4], "block_size": 4, "lora_id": nil, "medium": "CPU", "lora_name": nil, "new_field": [1]}],
 *  "data_parallel_rank": 0} */
#define HEX_MAP                                                                                                        \
    "83 a27473 cb3ff0000000000000 a66576656e7473 91 89 a474797065 ab426c6f636b53746f726564 "                           \
    "ac626c6f636b5f686173686573 91 c420 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20 "             \
    "b1706172656e745f626c6f636b5f68617368 c0 a9746f6b656e5f696473 94 01020304 aa626c6f636b5f73697a65 04 "              \
    "a76c6f72615f6964 c0 a66d656469756d a3435055 a96c6f72615f6e616d65 c0 a96e65775f6669656c64 91 01 "                  \
    "b2646174615f706172616c6c656c5f72616e6b 00"
/* [1.0, [{"type": "BlockRemoved", "block_hashes": [b"\x01..\x20"], "medium": "CPU"}]] */
#define HEX_MAP_REMOVED                                                                                                \
    "92 cb3ff0000000000000 91 83 a474797065 ac426c6f636b52656d6f766564 ac626c6f636b5f686173686573 91 c420 "            \
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20 a66d656469756d a3435055"
/* SGLang: [1.0, [["BlockStored", [-5], nil, [1..4], 4, nil, "CPU_PINNED", {"cache_salt": "s"}]]] */
#define HEX_SALT                                                                                                       \
    "92 cb3ff0000000000000 91 98 ab426c6f636b53746f726564 91 fb c0 94 01020304 04 c0 aa4350555f50494e4e4544 "          \
    "81 aa63616368655f73616c74 a173"

START_TEST(both_encodings_are_read)
{
    uint32_t tier = 9;

    begin(KVCL_SCHED_FEED_VLLM);
    ck_assert_int_eq(feed_hex(0, HEX_TWO_BLOCKS), KVCL_OK);
    ck_assert_uint_eq(run(&tier), 2);
    ck_assert_uint_eq(tier, 0);
    ck_assert_int_eq(feed_hex(1, HEX_ONE_MORE), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 0); /* block 0 has gone */
    ck_assert_uint_eq(test_info(tested, source).blocks, 2);
    ck_assert_int_eq(feed_hex(2, HEX_MAP), KVCL_OK);
    ck_assert_uint_eq(run(&tier), 3);
    ck_assert_uint_eq(tier, 1);
    ck_assert_int_eq(feed_hex(3, HEX_MAP_REMOVED), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 0);
    ck_assert_int_eq(feed_hex(4, HEX_CLEARED), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).blocks, 0);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    ck_assert_uint_eq(test_info(tested, source).malformed, 0);
    end();
}
END_TEST

START_TEST(a_salt_and_an_adapter_make_other_keys)
{
    kvcl_sched_root_t root = KVCL_SCHED_ROOT_INIT;
    uint32_t          tier;
    kvcl_key_t        key;

    begin(KVCL_SCHED_FEED_SGLANG);
    ck_assert_int_eq(feed_hex(0, HEX_SALT), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 0);
    root.model = "m";
    root.extra = "s";
    ck_assert_int_eq(kvcl_sched_index_root(&root, &key), KVCL_OK);
    prompt_keys(&key);
    ck_assert_uint_eq(run(&tier), 1);
    ck_assert_uint_eq(tier, 1);
    /* [0, [["BlockStored", [1], nil, [1..4], 4, 7, nil, "ad", [["ad", "img"]], 2]]]: adapter, extra keys, group */
    ck_assert_int_eq(feed_hex(1, "92 00 91 9a ab426c6f636b53746f726564 91 01 c0 94 01020304 04 07 c0 a26164 "
                                 "91 92 a26164 a3696d67 02"), KVCL_OK);
    root.extra = NULL;
    root.lora  = "ad";
    root.group = 2;
    ck_assert_int_eq(kvcl_sched_index_root(&root, &key), KVCL_OK);
    kvcl_key_from_bytes(key.bytes, sizeof(key.bytes), "\xa3img", 4, &key);
    prompt_keys(&key);
    ck_assert_uint_eq(run(&tier), 1);
    ck_assert_uint_eq(tier, 0);
    end();
}
END_TEST

START_TEST(gaps_degrade_and_a_replay_mends)
{
    uint8_t request[8];

    begin(KVCL_SCHED_FEED_VLLM);
    ck_assert_int_eq(feed_hex(0, HEX_TWO_BLOCKS), KVCL_OK);
    ck_assert_int_eq(feed_hex(3, HEX_CLEARED), KVCL_OK); /* what was missed before it does not matter */
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    ck_assert_int_eq(feed_hex(6, HEX_TWO_BLOCKS), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    ck_assert_uint_eq(run(NULL), 2); /* it counts all the same */
    ck_assert_int_eq(kvcl_sched_index_replay(tested, source, request), KVCL_OK);
    ck_assert_int_eq(memcmp(request, "\0\0\0\0\0\0\0\4", 8), 0);
    ck_assert_int_eq(feed(4, "\x92\x00\x90", 3, KVCL_SCHED_REPLAYED), KVCL_OK);
    ck_assert_int_eq(feed(5, "\x92\x00\x90", 3, KVCL_SCHED_REPLAYED), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    ck_assert_int_eq(feed(6, "\x92\x00\x90", 3, KVCL_SCHED_REPLAYED), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    ck_assert_int_eq(feed(6, "\x92\x00\x91\x91\xb0" "AllBlocksCleared", 21, KVCL_SCHED_REPLAYED), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 2); /* it came again: ignored */
    ck_assert_int_eq(feed(UINT64_MAX, "", 0, KVCL_SCHED_REPLAYED), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    ck_assert_int_eq(feed_hex(7, HEX_ONE_MORE), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    ck_assert_uint_eq(test_info(tested, source).gaps, 2);
    ck_assert_uint_eq(test_info(tested, source).repeated, 1);
    ck_assert_uint_eq(test_info(tested, source).lost, 0);
    end();
}
END_TEST

START_TEST(what_no_replay_brings_is_lost_until_a_clear)
{
    begin(KVCL_SCHED_FEED_VLLM);
    ck_assert_int_eq(feed_hex(5, HEX_TWO_BLOCKS), KVCL_OK);
    ck_assert_int_eq(feed(3, "\x92\x00\x90", 3, KVCL_SCHED_REPLAYED), KVCL_OK); /* 0 to 2 are not kept */
    ck_assert_int_eq(feed(UINT64_MAX, "", 0, KVCL_SCHED_REPLAYED), KVCL_OK);    /* nor 4 and 5 */
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    ck_assert_uint_eq(test_info(tested, source).lost, 5);
    ck_assert_int_eq(feed_hex(6, HEX_ONE_MORE), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    ck_assert_int_eq(kvcl_sched_index_clear(tested, source), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).state, KVCL_SCHED_EXACT);
    ck_assert_uint_eq(run(NULL), 0);
    ck_assert_uint_eq(test_info(tested, source).next, 0);
    end();
}
END_TEST

START_TEST(a_sequence_that_begins_again_drops_the_phantoms)
{
    begin(KVCL_SCHED_FEED_VLLM);
    ck_assert_int_eq(feed_hex(0, HEX_TWO_BLOCKS), KVCL_OK);
    ck_assert_int_eq(feed_hex(1, HEX_ONE_MORE), KVCL_OK);
    ck_assert_int_eq(feed(0, "\x92\x00\x90", 3, 0), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).blocks, 0);
    ck_assert_uint_eq(test_info(tested, source).restarts, 1);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    end();
}
END_TEST

START_TEST(offloaded_blocks_without_tokens_are_known_by_hash)
{
    begin(KVCL_SCHED_FEED_VLLM);
    ck_assert_int_eq(feed_hex(0, HEX_TWO_BLOCKS), KVCL_OK);
    /* [0, [["BlockStored", [10, 99], nil, [], 4, nil, "CPU"], ["BlockRemoved", [10], "GPU"]]] */
    ck_assert_int_eq(feed_hex(1, "92 00 92 97 ab426c6f636b53746f726564 92 0a 63 c0 90 04 c0 a3435055 "
                                 "93 ac426c6f636b52656d6f766564 91 0a a3475055"), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 2);
    ck_assert_uint_eq(test_info(tested, source).orphans, 1);
    /* a block whose parent was never seen */
    ck_assert_int_eq(feed_hex(2, "92 00 91 97 ab426c6f636b53746f726564 91 20 21 94 01020304 04 c0 c0"), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).orphans, 2);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    end();
}
END_TEST

/* ---- longer ones, written here ---- */

static uint8_t message[65536];
static size_t  message_len;

static void put(const void *bytes, size_t len)
{
    memcpy(message + message_len, bytes, len);
    message_len += len;
}

static void put_u16(uint8_t head, uint32_t value)
{
    const uint8_t bytes[3] = {head, (uint8_t)(value >> 8), (uint8_t)value};

    put(bytes, sizeof(bytes));
}

/* [0, [["BlockStored", hashes first.., parent, tokens first.., 1, nil, nil]]]: a token a block, its hash and itself. */
static void feed_stored(uint64_t number, uint32_t first, uint32_t n, bool with_parent)
{
    uint32_t i;

    message_len = 0;
    put("\x92\x00\x91\x97\xab" "BlockStored", 16);
    for (put_u16(0xdc, n), i = 0; i < n; ++i) {
        put_u16(0xcd, first + i);
    }
    if (with_parent) {
        put_u16(0xcd, first - 1);
    } else {
        put("\xc0", 1);
    }
    for (put_u16(0xdc, n), i = 0; i < n; ++i) {
        put_u16(0xcd, first + i);
    }
    put("\x01\xc0\xc0", 3);
    ck_assert_int_eq(feed(number, message, message_len, 0), KVCL_OK);
}

static void feed_removed(uint64_t number, uint32_t hash)
{
    message_len = 0;
    put("\x92\x00\x91\x93\xac" "BlockRemoved" "\x91", 18);
    put_u16(0xcd, hash);
    put("\xc0", 1);
    ck_assert_int_eq(feed(number, message, message_len, 0), KVCL_OK);
}

START_TEST(a_chain_goes_on_over_messages)
{
    uint32_t          tokens[100], i;
    kvcl_key_t        root, keys[100];
    kvcl_sched_hold_t hold;
    size_t            n;

    begin(KVCL_SCHED_FEED_VLLM);
    for (i = 0; i < 100; ++i) {
        tokens[i] = i + 1;
    }
    kvcl_key_root(NULL, 0, "m", &root);
    ck_assert_int_eq(kvcl_key_chain(&root, 0, tokens, 100, 1, keys, 100, &n), KVCL_OK);
    feed_stored(0, 1, 10, false);
    for (i = 1; i < 10; ++i) {
        feed_stored(i, 1 + i * 10, 10, true);
    }
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys, 100, 0, 0, &hold, 1, &n), KVCL_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(hold.blocks, 100);
    end();
}
END_TEST

START_TEST(what_an_engine_removes_is_gone_and_nothing_else)
{
    enum { HASHES = 400, STEPS = 20000 };
    kvcl_sched_index_stats_t stats = KVCL_SCHED_INDEX_STATS_INIT;
    bool                     there[HASHES + 1] = {false};
    uint32_t                 step, hash, n = 0;

    begin(KVCL_SCHED_FEED_VLLM);
    for (step = 0; step < STEPS; ++step) {
        hash = 1 + below(HASHES);
        n -= there[hash];
        there[hash] = (below(2) == 0);
        n += there[hash];
        if (there[hash]) {
            feed_stored(step, hash, 1, false);
        } else {
            feed_removed(step, hash);
        }
        ck_assert_uint_eq(test_info(tested, source).blocks, n);
    }
    ck_assert_int_eq(kvcl_sched_index_stats(tested, &stats), KVCL_OK);
    ck_assert_uint_eq(stats.blocks, n);
    for (hash = 1; hash <= HASHES; ++hash) {
        feed_removed(step++, hash);
    }
    ck_assert_int_eq(kvcl_sched_index_stats(tested, &stats), KVCL_OK);
    ck_assert_uint_eq(stats.blocks + stats.holders, 0);
    end();
}
END_TEST

/* ---- hostile ---- */

START_TEST(a_message_that_is_cut_or_lies_is_refused)
{
    static const char *const bad[] = {
        "dd ffffffff",                                                                  /* 4 G items */
        "92 00 dd ffffffff",
        "92 00 91 97 ab426c6f636b53746f726564 dd00ffffff c0 90 04 c0 c0",               /* hashes that do not follow */
        "c1", "", "92 00 c0", "a0", "93 00 90 00 00",
    };
    uint8_t  whole[256];
    unsigned byte;
    size_t   len = 0, i;
    const char *hex;

    begin(KVCL_SCHED_FEED_VLLM);
    for (hex = HEX_TWO_BLOCKS; *hex != '\0'; hex += (*hex == ' ') ? 1 : 2) {
        if (*hex != ' ') {
            ck_assert_int_eq(sscanf(hex, "%2x", &byte), 1);
            whole[len++] = (uint8_t)byte;
        }
    }
    for (i = 0; i < len; ++i) {
        uint8_t *exact = malloc(i + 1); /* of exact length: a sanitizer sees a read past it */

        memcpy(exact, whole, i);
        ck_assert_int_eq(feed(i, exact, i, 0), KVCL_ERR_PROTOCOL);
        free(exact);
    }
    ck_assert_uint_eq(test_info(tested, source).malformed, len);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ck_assert_int_eq(feed_hex(len + i, bad[i]), KVCL_ERR_PROTOCOL);
    }
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    ck_assert_uint_eq(test_info(tested, source).blocks, 0);
    /* an event that is none leaves the others of its message: [0, [7, ["BlockStored", ...]]] */
    ck_assert_int_eq(feed_hex(100, "92 00 92 07 97 ab426c6f636b53746f726564 91 0a c0 94 01020304 04 c0 c0"),
                     KVCL_ERR_PROTOCOL);
    ck_assert_uint_eq(run(NULL), 1);
    /* and so does one with a field that is none, and more fields than are known behind it */
    ck_assert_int_eq(feed_hex(101, "92 00 92 98 ab426c6f636b53746f726564 91 0b c0 07 04 c0 c0 91 01 "
                              "9b ab426c6f636b53746f726564 91 0c 0a 94 05060708 04 c0 c0 c0 c0 c0 91 c0"),
                     KVCL_ERR_PROTOCOL);
    ck_assert_uint_eq(run(NULL), 2);
    /* an unknown kind is no error, but counted */
    ck_assert_int_eq(feed_hex(102, "92 00 91 92 a3666f6f 01"), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).unknown, 1);
    end();
}
END_TEST

START_TEST(frames_that_are_none_are_refused)
{
    kvcl_sched_frame_t frames[2] = {{"1234567", 7}, {"", 0}};

    begin(KVCL_SCHED_FEED_VLLM);
    ck_assert_int_eq(kvcl_sched_index_feed(tested, source, 0, frames, 2, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sched_index_feed(tested, source, 0, frames, 1, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sched_index_feed(tested, source, 0, NULL, 0, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sched_index_feed(tested, source, 8, frames, 2, NULL), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sched_index_feed(tested, 9, 0, frames, 2, NULL), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(feed(UINT64_MAX, "", 0, 0), KVCL_ERR_PROTOCOL); /* the end of a replay that is none */
    ck_assert_int_eq(kvcl_sched_index_add(tested, source, 0, prompt, 1), KVCL_ERR_INVALID_PARAM);
    end();
}
END_TEST

/* ---- Mooncake ---- */

static kvcl_status_t feed_json(const char *json)
{
    kvcl_sched_frame_t frame = {json, strlen(json)};

    return kvcl_sched_index_feed(tested, source, 0, &frame, 1, &state);
}

START_TEST(events_of_the_conductor_api_are_read)
{
    const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    kvcl_sched_root_t root = KVCL_SCHED_ROOT_INIT;
    kvcl_key_t     key, by_hash[2];
    size_t         n;

    begin(KVCL_SCHED_FEED_MOONCAKE);
    ck_assert_int_eq(feed_json("{\"event_id\": 0, \"timestamp\": 1.5e3, \"event_type\": \"stored\", "
                               "\"model_name\": null, \"block_size\": 4, \"tenant_id\": \"default\", "
                               "\"backend_id\": \"w\", \"medium\": \"cpu\", "
                               "\"seq_hashes\": [10, 18446744073709551615], \"base_block_idx\": 0, "
                               "\"parent_hash\": null, \"token_ids\": [1, 2, 3, 4, 5, 6, 7, 8]}"), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 2);
    ck_assert_int_eq(feed_json("[{\"event_id\": 1, \"event_type\": \"removed\", \"medium\": \"c\\u0070u\", "
                               "\"seq_hashes\": [18446744073709551615]}]"), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 1);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    ck_assert_int_eq(feed_json("{\"event_id\": 7, \"event_type\": \"cleared\", \"medium\": null}"), KVCL_OK);
    ck_assert_uint_eq(run(NULL), 0);
    /* Without tokens: keys of the standard hash. XXH3-64 of [1,2,3,4] as u32, by kvcl_sched_index_hash_keys. */
    root.model = "m";
    ck_assert_int_eq(kvcl_sched_index_root(&root, &key), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_hash_keys(&key, 0, tokens, 8, 4, by_hash, 2, &n), KVCL_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(feed_json("{\"event_id\": 0, \"event_type\": \"stored\", \"medium\": \"disk\", \"seq_hashes\": "
                               "[12345]}"), KVCL_OK);
    kvcl_key_from_bytes(key.bytes, 32, "\x39\x30\0\0\0\0\0\0", 8, &prompt[0]);
    ck_assert_uint_eq(run(NULL), 1);
    ck_assert_int_eq(feed_json("{\"event_id\": 1, \"event_type\": \"stored\""), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "byte "));
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    end();
}
END_TEST

START_TEST(json_becomes_messagepack)
{
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\"}", "{\"a\":}", "nul", "\"\\x\"", "\"\\u12g4\"", "[1] 2",
                                      "\"a", "{1:2}", "[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "-", "\"\n\""};
    static const char good[] = "[0, -1, 128, 65536, 4294967296, \"\\u00e9\\ud83d\\ude00\", null, true, {}, 1e3]";
    uint8_t out[512];
    size_t  len, i;

    ck_assert_int_eq(kvcl_ev_json(good, sizeof(good) - 1, out, &len), KVCL_OK);
    ck_assert_uint_eq(len, 5 + 1 + 3 + 2 + 5 + 9 + 7 + 1 + 1 + 5 + 1);
    ck_assert_int_eq(memcmp(out, "\xdd\0\0\0\x0a\0\xd1\xff\xff\xcc\x80\xce\0\1\0\0\xcf\0\0\0\1\0\0\0\0"
                            "\xa6\xc3\xa9\xf0\x9f\x98\x80\xc0\xc3\xdf\0\0\0\0\xc0", len), 0);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ck_assert_int_eq(kvcl_ev_json(bad[i], strlen(bad[i]), out, &len), KVCL_ERR_PROTOCOL);
    }
}
END_TEST

/* ---- a store ---- */

START_TEST(events_of_a_store_follow_a_listing)
{
    kvcl_store_event_t events[4];
    kvcl_store_item_t  items[3];
    uint32_t           tier, i;

    begin(KVCL_SCHED_FEED_STORE);
    memset(events, 0, sizeof(events));
    memset(items, 0, sizeof(items));
    for (i = 0; i < 4; ++i) {
        events[i] = (kvcl_store_event_t){i + 1, KVCL_STORE_STORED, KVCL_STORE_TIER_DRAM, prompt[i], 0, 1, -1};
    }
    ck_assert_int_eq(kvcl_sched_index_store_events(tested, source, events, sizeof(events[0]), 4, &state), KVCL_OK);
    ck_assert_uint_eq(run(&tier), 4);
    ck_assert_uint_eq(state, KVCL_SCHED_EXACT);
    events[0].seq  = 5;
    events[0].kind = KVCL_STORE_DEMOTED;
    events[0].tier = KVCL_STORE_TIER_NVME;
    events[1].seq  = 6;
    events[1].kind = KVCL_STORE_MOVED;
    ck_assert_int_eq(kvcl_sched_index_store_events(tested, source, events, sizeof(events[0]), 2, &state), KVCL_OK);
    ck_assert_uint_eq(run(&tier), 1);
    ck_assert_uint_eq(tier, 2);
    events[2].seq = 9; /* 7 and 8 are missing */
    ck_assert_int_eq(kvcl_sched_index_store_events(tested, source, &events[2], sizeof(events[0]), 1, &state), KVCL_OK);
    ck_assert_uint_eq(state, KVCL_SCHED_DEGRADED);
    for (i = 0; i < 3; ++i) {
        items[i] = (kvcl_store_item_t){prompt[i], 0, 1, KVCL_STORE_TIER_DRAM, 0, 0};
    }
    ck_assert_int_eq(kvcl_sched_index_store_list(tested, source, KVCL_SCHED_LIST_BEGIN, items, sizeof(items[0]), 2, 0),
                     KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).state, KVCL_SCHED_DEGRADED);
    ck_assert_int_eq(kvcl_sched_index_store_list(tested, source, KVCL_SCHED_LIST_END, items + 2, sizeof(items[0]), 1,
                                                 20), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).state, KVCL_SCHED_EXACT);
    ck_assert_uint_eq(run(&tier), 3);
    ck_assert_uint_eq(test_info(tested, source).next, 21);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_events");
    TCase *tc    = tcase_create("events");

    test_seed(&rnd);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, both_encodings_are_read);
    tcase_add_test(tc, a_salt_and_an_adapter_make_other_keys);
    tcase_add_test(tc, gaps_degrade_and_a_replay_mends);
    tcase_add_test(tc, what_no_replay_brings_is_lost_until_a_clear);
    tcase_add_test(tc, a_sequence_that_begins_again_drops_the_phantoms);
    tcase_add_test(tc, offloaded_blocks_without_tokens_are_known_by_hash);
    tcase_add_test(tc, a_chain_goes_on_over_messages);
    tcase_add_test(tc, what_an_engine_removes_is_gone_and_nothing_else);
    tcase_add_test(tc, a_message_that_is_cut_or_lies_is_refused);
    tcase_add_test(tc, frames_that_are_none_are_refused);
    tcase_add_test(tc, events_of_the_conductor_api_are_read);
    tcase_add_test(tc, json_becomes_messagepack);
    tcase_add_test(tc, events_of_a_store_follow_a_listing);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
