/*
 * What a client and kvcl_serve say to each other, over the inter-communicator of a client's job (one rank) and one rank
 * of kvcl_serve. Little-endian, packed by hand into structs of fixed size. A client is a process that is no rank of the
 * store: it comes and goes while the job lives.
 *
 *   request   client -> server, tag SERVE_TAG_REQUEST: serve_request_t, n keys of 32 bytes, n ids of 4 bytes (of GET
 *             and PUT), or text_len bytes of text (HELLO)
 *   reply     server -> client, tag SERVE_TAG_REPLY: serve_reply_t, body_len bytes, text_len bytes of an error sentence
 *
 * Requests are answered in order. Payload never travels in them. HELLO makes a cache at the server for this client
 * alone, of blocks of block_bytes, which the client may write (its buffer). With n above 1 its blocks have n layers of
 * equal size, which gets and puts may select. The client chooses the ids in it, so that the server has no state of a
 * request:
 *
 *   PUT   the client puts blocks into its buffer (kvcl_put), then requests PUT: the server copies them into the store
 *   GET   the server fetches blocks from the store into the buffer, verified; after the reply the client gets them from
 *         there (kvcl_get)
 *
 * A message of no bytes says that the client has left, whose context may live on. When a client fails or leaves, its
 * buffer is destroyed: what it still reads or writes there fails (kvcl_cache.h).
 *
 *   kind     n          body of the reply
 *   HELLO    layers     serve_welcome_t, then the texts of clients before this one, each with its closing zero
 *   MATCH    keys       -; value is the length of the leading run that the store has
 *   EXISTS   keys       n bytes, 1: the store has it
 *   GET      keys, ids  n statuses (int32_t); the reply's own status is the first that is not KVCL_OK
 *   PUT      keys, ids  the same
 *   REMOVE   keys       -
 */
#ifndef KVCL_TOOLS_SERVE_CLIENT_WIRE_H
#define KVCL_TOOLS_SERVE_CLIENT_WIRE_H

#include <stdint.h>

enum { SERVE_VERSION = 1, SERVE_TAG_REQUEST = 1, SERVE_TAG_REPLY = 2 };
enum { SERVE_KEYS_MAX = 4096, SERVE_TEXT_MAX = 1024, SERVE_TEXTS = 32 };
enum { SERVE_HELLO = 1, SERVE_MATCH, SERVE_EXISTS, SERVE_GET, SERVE_PUT, SERVE_REMOVE };

typedef struct serve_request {
    uint32_t version;     /* SERVE_VERSION */
    uint32_t kind;        /* SERVE_HELLO, ... */
    uint64_t id;          /* the client's number, returned in the reply */
    uint64_t timeout_ns;  /* of the store's operation; 0: the default */
    uint64_t block_bytes; /* HELLO: of the buffer's blocks */
    uint32_t n;           /* keys, at most SERVE_KEYS_MAX; HELLO: layers */
    uint32_t text_len;    /* HELLO: at most SERVE_TEXT_MAX */
} serve_request_t;
_Static_assert(sizeof(serve_request_t) == 40, "the head of a request is sent as it is");

typedef struct serve_reply {
    uint32_t version;
    int32_t  status; /* kvcl_status_t */
    uint64_t id;
    uint64_t value;
    uint32_t body_len; /* 0 unless status is KVCL_OK, but for GET and PUT */
    uint32_t text_len;
} serve_reply_t;
_Static_assert(sizeof(serve_reply_t) == 32, "the head of a reply is sent as it is");

typedef struct serve_welcome {
    uint32_t blocks;    /* of the buffer */
    uint32_t texts;     /* of other clients that follow */
    char     cache[64]; /* the buffer's name */
} serve_welcome_t;
_Static_assert(sizeof(serve_welcome_t) == 72, "a welcome is sent as it is");

enum {
    SERVE_REQUEST_MAX = (int)sizeof(serve_request_t) + SERVE_KEYS_MAX * 36,
    SERVE_BODY_MAX    = (int)sizeof(serve_welcome_t) + SERVE_TEXTS * (SERVE_TEXT_MAX + 1)
};
_Static_assert(SERVE_BODY_MAX >= SERVE_KEYS_MAX * 4, "the statuses of all keys fit");

#endif
