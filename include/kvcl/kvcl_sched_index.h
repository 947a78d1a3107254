/*
 * The prefix index of a router: which instance holds which blocks on which tier, learnt from events; and for a prompt,
 * the runs of its blocks that each instance holds, as kvcl_sched_decide takes them.
 *
 * A *source* is one stream of events: of a rank of a KVCL store, of a vLLM or SGLang engine, of Mooncake. It speaks for
 * one instance and for some tiers. Two sources of an instance share no tier. Bytes come from the caller: this library
 * opens no socket. False events of a source cost hits, never a wrong answer, and its memory is bounded.
 *
 * Keys are those of kvcl_key_chain. An engine names its blocks by hashes that cannot be computed from a prompt, so the
 * index computes the key of each block from the event's tokens and the key of the block before it, and remembers which
 * hash of the engine means which key until the source has removed it. The root of a prompt's chain:
 *   base    = kvcl_key_root(salt, model) of the source's params
 *   root    = base, if there is no LoRA adapter, no group but 0, no tenant and no salt in the event; otherwise
 *             kvcl_key_from_bytes(base as the salt, text), where text is the lines that apply, in this order, each
 *             with "\n" at its end: "lora:NAME" (or "lora:#ID" without a name), "group:N", "tenant:NAME", "salt:TEXT"
 * kvcl_sched_index_root computes it. Each of the four texts may have 1024 bytes. A block with extra keys (vLLM's
 * extra_keys: images, a cache's salt) continues from kvcl_key_from_bytes(parent as the salt, the values of the list in
 * MessagePack as sent, one behind the other) in place of its parent; the adapter's name is left out of them, and a list
 * of nothing else has no effect. Groups of a hybrid model are chains of their own: match each that the model needs.
 *
 * Sequence numbers: a source is EXACT as long as nothing is missing. After a gap, or a message that cannot be read, it
 * is DEGRADED: its events are applied all the same. It is EXACT again when the missing messages were replayed, when an
 * event says that all blocks are gone, after kvcl_sched_index_clear, or after a listing of the store. A sequence that
 * begins again (the engine was restarted) drops the blocks of before.
 *
 * Thread: any. kvcl_sched_index_match never waits: neither for a writer nor for another reader; it sees each block as
 * it was at some time during the call. The other calls take turns. A reader counts itself in at one of 64 counters;
 * memory that a writer took out of the index is used again when the readers of that time have left, so a reader that is
 * stopped delays the reuse of memory and nothing else. Only kvcl_sched_index_destroy needs that no other call runs.
 */
#ifndef KVCL_SCHED_INDEX_H
#define KVCL_SCHED_INDEX_H

#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_sched.h>
#include <kvcl/kvcl_store_events.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_sched_index *kvcl_sched_index_h;

typedef struct kvcl_sched_index_params {
    size_t   size;          /* sizeof(kvcl_sched_index_params_t) */
    uint64_t flags;         /* must be 0 */
    uint32_t max_instances; /* at a time; 0: 16384; at most 1048576 */
    uint32_t reserved;      /* 0 */
    uint64_t max_blocks;    /* different ones; 0: 67108864; at most 1073741824 */
    uint64_t predict_ns;    /* life time of a predicted block; 0: 5 s */
} kvcl_sched_index_params_t;
#define KVCL_SCHED_INDEX_PARAMS_INIT {sizeof(kvcl_sched_index_params_t), 0, 0, 0, 0, 0}

/**
 * Make an empty index. An index takes about 76 bytes for a block and 6 for each further holder of it, and 18 more for
 * each holder whose source is an engine.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_sched_index_create(const kvcl_sched_index_params_t *params, kvcl_sched_index_h *index_p)
    KVCL_MUST_CHECK;
KVCL_API void          kvcl_sched_index_destroy(kvcl_sched_index_h index);

/* ---- sources ---- */

/* Where the events come from. Numbers are append-only. */
typedef enum kvcl_sched_feed {
    KVCL_SCHED_FEED_KEYS     = 0, /* only kvcl_sched_index_add and _remove */
    KVCL_SCHED_FEED_STORE    = 1, /* kvcl_sched_index_store_events: a rank of a KVCL store */
    KVCL_SCHED_FEED_VLLM     = 2, /* kvcl_sched_index_feed: both encodings of vLLM's batches */
    KVCL_SCHED_FEED_SGLANG   = 3,
    KVCL_SCHED_FEED_MOONCAKE = 4  /* the events of its Conductor API, as JSON or in batches of MessagePack */
} kvcl_sched_feed_t;

/* kvcl_sched_source_params_t.flags */
enum {
    KVCL_SCHED_SOURCE_DP_RANK = 1, /* batches of another data-parallel rank than dp_rank are ignored, and counted */
    KVCL_SCHED_SOURCE_SKIPS   = 2  /* a store's events, read by a tenant's handle: their numbers have gaps */
};

typedef struct kvcl_sched_source_params {
    size_t     size;          /* sizeof(kvcl_sched_source_params_t) */
    uint64_t   flags;         /* KVCL_SCHED_SOURCE_* */
    const char *name;         /* 1 to 255 bytes, of this source alone; a saved index knows it by it */
    uint32_t   instance;      /* id in kvcl_sched_inst_t and kvcl_sched_hold_t */
    uint32_t   feed;          /* kvcl_sched_feed_t */
    uint32_t   tiers;         /* mask of 1 << kvcl_store_tier_t that it speaks for; 0: all three. Events of others are
                                 ignored, and counted */
    uint32_t   block_tokens;  /* events of other sizes are ignored, and counted; 0: any size */
    uint32_t   dp_rank;
    uint32_t   reserved;      /* 0 */
    const void *salt;         /* with model: the base of its keys */
    size_t     salt_len;
    const char *model;
    const char *only_model;   /* Mooncake: events of another model_name are ignored; NULL: none is */
    const char *only_tenant;  /* of another tenant_id */
    const char *only_backend; /* of another backend_id */
    uint64_t   max_blocks;    /* more are ignored, and counted; 0: 16777216 */
} kvcl_sched_source_params_t;
#define KVCL_SCHED_SOURCE_PARAMS_INIT \
    {sizeof(kvcl_sched_source_params_t), 0, NULL, 0, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL, NULL, 0}

/**
 * Add a source. *source_p: its number, until kvcl_sched_index_forget. The params are copied. It is EXACT, has no block,
 * and expects its first message: number 0 of an engine, 1 of a store.
 * @return KVCL_OK; KVCL_ERR_EXISTS (the name; or another source of the instance speaks for one of the tiers);
 *         KVCL_ERR_NO_SPACE (max_instances); KVCL_ERR_INVALID_PARAM; KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_sched_index_source(kvcl_sched_index_h index, const kvcl_sched_source_params_t *params,
                                               uint32_t *source_p) KVCL_MUST_CHECK;
/** The number of the source of that name: after kvcl_sched_index_load. @return KVCL_OK, KVCL_ERR_NOT_FOUND. */
KVCL_API kvcl_status_t kvcl_sched_index_find(kvcl_sched_index_h index, const char *name, uint32_t *source_p)
    KVCL_MUST_CHECK;
/** The source has gone, with its blocks. @return KVCL_OK, KVCL_ERR_NOT_FOUND. */
KVCL_API kvcl_status_t kvcl_sched_index_forget(kvcl_sched_index_h index, uint32_t source) KVCL_MUST_CHECK;
/**
 * Drop the blocks of a source that has none now, such as a restarted engine. It is EXACT, and expects its first
 * message. @return KVCL_OK, KVCL_ERR_NOT_FOUND.
 */
KVCL_API kvcl_status_t kvcl_sched_index_clear(kvcl_sched_index_h index, uint32_t source) KVCL_MUST_CHECK;

typedef enum kvcl_sched_source_state {
    KVCL_SCHED_EXACT    = 1,
    KVCL_SCHED_DEGRADED = 2
} kvcl_sched_source_state_t;

typedef struct kvcl_sched_source_info {
    size_t   size;         /* sizeof(kvcl_sched_source_info_t) */
    uint32_t instance;
    uint32_t state;        /* kvcl_sched_source_state_t */
    uint64_t next;         /* number of the next message; of the first missing one after a gap */
    uint64_t blocks;       /* that it holds now */
    uint64_t messages;     /* applied */
    uint64_t stored;       /* blocks that events named as stored, */
    uint64_t removed;      /* and as removed */
    uint64_t gaps;
    uint64_t lost;         /* messages that no replay brought */
    uint64_t repeated;     /* messages that came again, and were ignored */
    uint64_t restarts;     /* its sequence began again */
    uint64_t cleared;      /* events that all its blocks are gone */
    uint64_t malformed;    /* messages and events that could not be read */
    uint64_t unknown;      /* events of kinds not known */
    uint64_t orphans;      /* blocks whose key is not known: no tokens, or the block before them was never seen */
    uint64_t others;       /* events of another tier, block size, rank, model, tenant or backend */
    uint64_t full;         /* blocks left out: max_blocks, or no memory */
} kvcl_sched_source_info_t;
#define KVCL_SCHED_SOURCE_INFO_INIT \
    {sizeof(kvcl_sched_source_info_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** @return KVCL_OK, KVCL_ERR_NOT_FOUND, KVCL_ERR_INVALID_PARAM. */
KVCL_API kvcl_status_t kvcl_sched_index_info(kvcl_sched_index_h index, uint32_t source,
                                             kvcl_sched_source_info_t *info_p) KVCL_MUST_CHECK;

/* ---- input ---- */

/**
 * The source's instance holds these n blocks on a tier (it must speak for it), or does not any more. A block that is
 * there already, or is not, changes nothing. @return KVCL_OK; KVCL_ERR_NOT_FOUND (source); KVCL_ERR_INVALID_PARAM
 * (tier); KVCL_ERR_NO_SPACE, KVCL_ERR_NO_MEMORY (some were left out; the source is DEGRADED).
 */
KVCL_API kvcl_status_t kvcl_sched_index_add(kvcl_sched_index_h index, uint32_t source, uint32_t tier,
                                            const kvcl_key_t *keys, size_t n) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_sched_index_remove(kvcl_sched_index_h index, uint32_t source, uint32_t tier,
                                               const kvcl_key_t *keys, size_t n) KVCL_MUST_CHECK;

/**
 * Events of a store's rank, as kvcl_store_events returns them; stride: sizeof(kvcl_store_event_t). *state_p (may be
 * NULL): the source's state afterwards. If it is DEGRADED, or kvcl_store_events fails with KVCL_ERR_STALE, list the
 * rank: kvcl_sched_index_store_list with the pages of kvcl_store_list, begin on the first, and end with seq, the number
 * of the first page, on the last. Then go on with the events after that number. @return KVCL_OK; KVCL_ERR_NOT_FOUND;
 * KVCL_ERR_INVALID_PARAM (not a source of a store; stride).
 */
KVCL_API kvcl_status_t kvcl_sched_index_store_events(kvcl_sched_index_h index, uint32_t source,
                                                     const kvcl_store_event_t *events, size_t stride, size_t n,
                                                     uint32_t *state_p) KVCL_MUST_CHECK;
enum { KVCL_SCHED_LIST_BEGIN = 1, KVCL_SCHED_LIST_END = 2 };
KVCL_API kvcl_status_t kvcl_sched_index_store_list(kvcl_sched_index_h index, uint32_t source, uint64_t flags,
                                                   const kvcl_store_item_t *items, size_t stride, size_t n,
                                                   uint64_t seq) KVCL_MUST_CHECK;

/* A frame of a message. Fixed for ever: two words. */
typedef struct kvcl_sched_frame {
    const void *data;
    size_t     len;
} kvcl_sched_frame_t;

/* kvcl_sched_index_feed */
enum { KVCL_SCHED_REPLAYED = 1 /* the message is an answer to a replay request */ };

/**
 * One message of an engine or of Mooncake, of n frames: the last is the payload, the one before it the sequence number
 * (8 bytes, big-endian), those before these (a topic, an empty delimiter) are ignored. A single frame is JSON: an event
 * of Mooncake's Conductor API, or a list of them, numbered by event_id. *state_p (may be NULL): the state afterwards.
 *
 * DEGRADED: call kvcl_sched_index_replay, send the request to the publisher's replay socket and feed the answers with
 * KVCL_SCHED_REPLAYED, the end marker too (number -1, no payload).
 * @return KVCL_OK, also if the message was ignored; KVCL_ERR_PROTOCOL (it cannot be read: the source is DEGRADED, and
 *         counts it; the sentence names the byte); KVCL_ERR_NOT_FOUND; KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_sched_index_feed(kvcl_sched_index_h index, uint32_t source, uint64_t flags,
                                             const kvcl_sched_frame_t *frames, size_t n, uint32_t *state_p)
    KVCL_MUST_CHECK;
/**
 * The request of a replay: the number of the first message that was not seen, 8 bytes, big-endian. If messages are lost
 * for good, the source stays DEGRADED after it; a replay of everything follows kvcl_sched_index_clear.
 * @return KVCL_OK, KVCL_ERR_NOT_FOUND.
 */
KVCL_API kvcl_status_t kvcl_sched_index_replay(kvcl_sched_index_h index, uint32_t source, uint8_t request[8])
    KVCL_MUST_CHECK;

/**
 * An instance will hold these blocks: a request with them was sent there. They are matched as KVCL_SCHED_PENDING until
 * now_ns + predict_ns, on any clock of the caller that does not run backwards; kvcl_sched_index_expire, and this call,
 * drop those whose time is over. The instance needs a source. @return KVCL_OK; KVCL_ERR_NOT_FOUND (instance);
 * KVCL_ERR_NO_SPACE, KVCL_ERR_NO_MEMORY (some were left out).
 */
KVCL_API kvcl_status_t kvcl_sched_index_predict(kvcl_sched_index_h index, uint32_t instance, const kvcl_key_t *keys,
                                                size_t n, uint64_t now_ns) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_sched_index_expire(kvcl_sched_index_h index, uint64_t now_ns) KVCL_MUST_CHECK;

/* ---- output ---- */

/* kvcl_sched_index_match */
enum { KVCL_SCHED_MATCH_ALL = 1 /* also runs that do not begin at block 0 and are not joined to one that does */ };

/**
 * The runs of n blocks that instances hold. A run is on one tier, the fastest of each block; where the tier changes,
 * another hold begins. Without KVCL_SCHED_MATCH_ALL these are the leading runs: the holds of an instance cover blocks 0
 * to the first that it lacks. least: runs that end before that block are left out (0: none is). Predicted blocks are
 * holds with KVCL_SCHED_PENDING.
 *
 * *n_p is the number of holds. The first cap of them are in holds; if there are more, those that end first are left
 * out. They come in no order. Any thread; it waits for nothing, and allocates only while more threads than ever before
 * are in the call. @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_sched_index_match(kvcl_sched_index_h index, const kvcl_key_t *keys, size_t n,
                                              uint64_t flags, uint32_t least, kvcl_sched_hold_t *holds, size_t cap,
                                              size_t *n_p) KVCL_MUST_CHECK;

typedef struct kvcl_sched_root {
    size_t     size;     /* sizeof(kvcl_sched_root_t) */
    const void *salt;    /* of the source */
    size_t     salt_len;
    const char *model;   /* of the source */
    const char *lora;    /* adapter's name; NULL: none */
    const char *tenant;  /* Mooncake's tenant_id; NULL and "default": none */
    const char *extra;   /* SGLang's cache_salt, Mooncake's additional_salt; NULL: none */
    uint32_t   group;    /* of a hybrid model's caches */
    uint32_t   reserved; /* 0 */
} kvcl_sched_root_t;
#define KVCL_SCHED_ROOT_INIT {sizeof(kvcl_sched_root_t), NULL, 0, NULL, NULL, NULL, NULL, 0, 0}

/** The root of a prompt's keys, as in the events: for kvcl_key_chain. @return KVCL_OK, KVCL_ERR_INVALID_PARAM. */
KVCL_API kvcl_status_t kvcl_sched_index_root(const kvcl_sched_root_t *root, kvcl_key_t *key_p) KVCL_MUST_CHECK;

/**
 * Keys of a prompt for blocks that Mooncake named by hash alone, without tokens: block i is
 * kvcl_key_from_bytes(root as the salt, 8 bytes of h[i], little-endian), where h is the rolling hash of its Conductor
 * API: XXH3-64 with a seed over the tokens of a block, then over h[i-1] and that. *n_p: full blocks; at most cap are
 * written. @return KVCL_OK, KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_sched_index_hash_keys(const kvcl_key_t *root, uint64_t seed, const uint32_t *tokens,
                                                  size_t n_tokens, size_t tokens_per_block, kvcl_key_t *keys,
                                                  size_t cap, size_t *n_p) KVCL_MUST_CHECK;

typedef struct kvcl_sched_index_stats {
    size_t   size;       /* sizeof(kvcl_sched_index_stats_t) */
    uint64_t instances;
    uint64_t sources;
    uint64_t degraded;   /* sources */
    uint64_t blocks;     /* different ones */
    uint64_t holders;    /* blocks, counted for each instance that holds them */
    uint64_t predicted;  /* of these, predictions that still live */
    uint64_t bytes;      /* memory of the index */
    uint64_t retired;    /* pieces of memory that wait for readers */
} kvcl_sched_index_stats_t;
#define KVCL_SCHED_INDEX_STATS_INIT {sizeof(kvcl_sched_index_stats_t), 0, 0, 0, 0, 0, 0, 0, 0}

/** @return KVCL_OK, KVCL_ERR_INVALID_PARAM. */
KVCL_API kvcl_status_t kvcl_sched_index_stats(kvcl_sched_index_h index, kvcl_sched_index_stats_t *stats_p)
    KVCL_MUST_CHECK;

/* ---- to bytes and back ---- */

/**
 * Save the index: the sources with their params and states, and all blocks; not predictions. *len_p: the bytes. buf
 * NULL and cap 0: only count. The bytes have a version and a checksum, and hold the sources' salts: keep them as a
 * secret. @return KVCL_OK; KVCL_ERR_NO_SPACE (*len_p are needed); KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_sched_index_save(kvcl_sched_index_h index, void *buf, size_t cap, size_t *len_p)
    KVCL_MUST_CHECK;
/**
 * Load into an index that has no source. kvcl_sched_index_find names the sources. A source that was EXACT goes on from
 * its next message: replay it, if its events went on meanwhile.
 * @return KVCL_OK; KVCL_ERR_PROTOCOL (bytes that were changed or cut), KVCL_ERR_VERSION, KVCL_ERR_EXISTS (it has
 *         sources), KVCL_ERR_NO_SPACE (its limits), KVCL_ERR_NO_MEMORY: the index is empty.
 */
KVCL_API kvcl_status_t kvcl_sched_index_load(kvcl_sched_index_h index, const void *buf, size_t len) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
