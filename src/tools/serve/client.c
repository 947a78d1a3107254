/*
 * A client of kvcl_serve (client.h). The thread of a client is the only one that uses its buffers; the lock is for the
 * request that it waits for, which serve_client_stop() cancels.
 */
#include "config.h"
#include "tools/serve/client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_SEC   UINT64_C(1000000000)
#define IDLE_NS      (3600 * NS_PER_SEC) /* a client may be silent for longer: the next recv follows */
#define REPLY_NS     (30 * NS_PER_SEC)
#define WORK_NS_MAX  (120 * NS_PER_SEC)

enum { BLOCKS_MAX = 4096 };

_Static_assert(sizeof(kvcl_status_t) == sizeof(int32_t), "statuses are sent as they are");

struct serve_texts {
    pthread_mutex_t lock;
    char            text[SERVE_TEXTS][SERVE_TEXT_MAX + 1];
    uint32_t        n;
    uint32_t        next; /* the oldest, once all are in use */
};

struct serve_client {
    kvcl_context_h  ctx;
    kvcl_store_h    store;
    kvcl_comm_h     inter;
    uint64_t        number;
    uint64_t        buffer_bytes;
    serve_texts_t   *texts;
    kvcl_cache_h    cache; /* the buffer; NULL before HELLO */
    uint32_t        blocks;
    const char      *why; /* of a request that was refused here; NULL: the library's sentence */
    pthread_t       thread;
    pthread_mutex_t lock;
    kvcl_req_h      waiting;
    bool            stopping;
    atomic_bool     ended;
    uint8_t         in[SERVE_REQUEST_MAX];
    kvcl_key_t      keys[SERVE_KEYS_MAX];
    uint32_t        ids[SERVE_KEYS_MAX];
    kvcl_status_t   status[SERVE_KEYS_MAX];
    struct {
        serve_reply_t head;
        uint8_t       rest[SERVE_BODY_MAX + SERVE_TEXT_MAX];
    } out;
};

/* ---- texts ---- */

serve_texts_t *serve_texts_new(void)
{
    serve_texts_t *texts = calloc(1, sizeof(*texts));

    if (texts != NULL) {
        pthread_mutex_init(&texts->lock, NULL);
    }
    return texts;
}

void serve_texts_free(serve_texts_t *texts)
{
    if (texts != NULL) {
        pthread_mutex_destroy(&texts->lock);
        free(texts);
    }
}

/* Writes the texts before this one into out, and keeps it. @return how many; *len_p: their bytes. */
static uint32_t exchange(serve_texts_t *texts, const char *text, uint8_t *out, size_t *len_p)
{
    bool     known = (text[0] == '\0');
    uint32_t i, n;
    size_t   len = 0, one;

    pthread_mutex_lock(&texts->lock);
    n = texts->n;
    for (i = 0; i < n; ++i) {
        one = strlen(texts->text[i]) + 1;
        memcpy(out + len, texts->text[i], one);
        len  += one;
        known = known || (strcmp(texts->text[i], text) == 0);
    }
    if (!known) {
        snprintf(texts->text[texts->next], sizeof(texts->text[0]), "%s", text);
        texts->next = (texts->next + 1) % SERVE_TEXTS;
        texts->n   += (texts->n < SERVE_TEXTS) ? 1 : 0;
    }
    pthread_mutex_unlock(&texts->lock);
    *len_p = len;
    return n;
}

/* ---- the kinds of requests; each fills client->out ---- */

/* Of a client's buffer: opaque blocks, or, if it names layers, blocks whose layers follow each other, so that gets and
 * puts can select layers. Any of them matches the store's opaque blocks. */
static kvcl_layout_t buffer_layout(uint32_t blocks, uint32_t block_bytes, uint32_t layers)
{
    kvcl_layout_t layout = kvcl_layout_opaque(blocks, block_bytes);

    if (layers > 1) {
        layout.layers       = layers;
        layout.head_dim     = block_bytes / layers;
        layout.layer_stride = block_bytes / layers;
        layout.block_stride = block_bytes;
    }
    return layout;
}

static kvcl_status_t hello(serve_client_t *c, const serve_request_t *request, const char *text)
{
    kvcl_cache_params_t params  = KVCL_CACHE_PARAMS_INIT;
    serve_welcome_t     welcome = {.blocks = 0};
    uint64_t            blocks;
    kvcl_layout_t       layout;
    kvcl_status_t       status;
    size_t              len = 0;

    if ((c->cache != NULL) || (request->block_bytes > c->buffer_bytes) || (request->block_bytes > UINT32_MAX - 1)) {
        c->why = "kvcl_serve: blocks larger than a client's buffer (--client-buffer) and than the store's, or a second "
                 "introduction";
        return KVCL_ERR_INVALID_PARAM;
    }
    if (request->block_bytes != 0) {
        blocks    = c->buffer_bytes / request->block_bytes;
        c->blocks = (uint32_t)((blocks > BLOCKS_MAX) ? BLOCKS_MAX : blocks);
        layout    = buffer_layout(c->blocks, (uint32_t)request->block_bytes, request->n);
        snprintf(welcome.cache, sizeof(welcome.cache), "client.%llu", (unsigned long long)c->number);
        params.flags = KVCL_CACHE_WRITABLE;
        status       = kvcl_cache_create(c->ctx, welcome.cache, &layout, &params, &c->cache);
        if (status != KVCL_OK) {
            return status;
        }
    }
    welcome.blocks = (c->cache != NULL) ? c->blocks : 0;
    welcome.texts  = exchange(c->texts, text, c->out.rest + sizeof(welcome), &len);
    memcpy(c->out.rest, &welcome, sizeof(welcome));
    c->out.head.body_len = (uint32_t)(sizeof(welcome) + len);
    return KVCL_OK;
}

/* Posted operations of the store: the statuses of the keys go into the reply. */
static kvcl_status_t move(serve_client_t *c, const serve_request_t *request, const kvcl_xfer_params_t *params)
{
    kvcl_xfer_params_t own = *params;
    kvcl_req_h         req = NULL;
    kvcl_status_t      status;
    uint32_t           i;

    for (i = 0; i < request->n; ++i) {
        c->status[i] = KVCL_INPROGRESS;
    }
    own.status = c->status;
    status     = (request->kind == SERVE_GET)
                     ? kvcl_store_get(c->store, c->keys, request->n, c->cache, c->ids, NULL, &own, &req)
                     : kvcl_store_put(c->store, c->keys, request->n, c->cache, c->ids, &own, &req);
    if (status == KVCL_OK) {
        status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* the operation has a deadline */
    }
    for (i = 0; i < request->n; ++i) { /* refused at once: no entry was written */
        c->status[i] = (c->status[i] == KVCL_INPROGRESS) ? status : c->status[i];
    }
    memcpy(c->out.rest, c->status, request->n * sizeof(c->status[0]));
    c->out.head.body_len = (uint32_t)(request->n * sizeof(c->status[0]));
    return status;
}

static kvcl_status_t remove_keys(serve_client_t *c, const serve_request_t *request, const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req    = NULL;
    kvcl_status_t status = kvcl_store_remove(c->store, c->keys, request->n, params, &req);

    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

static kvcl_status_t answer(serve_client_t *c, const serve_request_t *request, const char *text)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    size_t             hit    = 0;
    kvcl_status_t      status;

    params.timeout_ns = (request->timeout_ns > WORK_NS_MAX) ? WORK_NS_MAX : request->timeout_ns;
    switch (request->kind) {
    case SERVE_HELLO:
        return hello(c, request, text);
    case SERVE_MATCH:
        status            = kvcl_store_match(c->store, c->keys, request->n, &hit, &params);
        c->out.head.value = hit;
        return status;
    case SERVE_EXISTS:
        status               = kvcl_store_exists(c->store, c->keys, request->n, c->out.rest, &params);
        c->out.head.body_len = (status == KVCL_OK) ? request->n : 0;
        return status;
    case SERVE_GET:
    case SERVE_PUT:
        return move(c, request, &params);
    default:
        return remove_keys(c, request, &params);
    }
}

/* ---- receiving and replying ---- */

/* Whether a message of len bytes is a request; it is copied apart. text has room for SERVE_TEXT_MAX + 1. */
static bool check(serve_client_t *c, size_t len, serve_request_t *request, char *text)
{
    const uint8_t *at = c->in + sizeof(*request);
    size_t        ids;
    uint32_t      i;

    if (len < sizeof(*request)) {
        return false;
    }
    memcpy(request, c->in, sizeof(*request));
    len -= sizeof(*request);
    if ((request->version != SERVE_VERSION) || (request->kind < SERVE_HELLO) || (request->kind > SERVE_REMOVE) ||
        (request->n > SERVE_KEYS_MAX) || (request->text_len > SERVE_TEXT_MAX)) {
        return false;
    }
    if (request->kind == SERVE_HELLO) {
        if ((len != request->text_len) || (memchr(at, '\0', len) != NULL) ||
            ((request->n > 1) && (request->block_bytes % request->n != 0))) {
            return false;
        }
        memcpy(text, at, len);
        text[len] = '\0';
        return true;
    }
    ids = ((request->kind == SERVE_GET) || (request->kind == SERVE_PUT)) ? request->n : 0;
    if ((request->text_len != 0) || (len != request->n * sizeof(c->keys[0]) + ids * sizeof(c->ids[0])) ||
        ((ids != 0) && (c->cache == NULL))) {
        return false;
    }
    memcpy(c->keys, at, request->n * sizeof(c->keys[0]));
    memcpy(c->ids, at + request->n * sizeof(c->keys[0]), ids * sizeof(c->ids[0]));
    for (i = 0; i < ids; ++i) {
        if (c->ids[i] >= c->blocks) {
            return false;
        }
    }
    return true;
}

/* Wait for c->waiting. It is collected under the lock, since serve_client_stop() may cancel it until then. */
static kvcl_status_t wait_for(serve_client_t *c, kvcl_req_h req)
{
    kvcl_status_t status = kvcl_req_layer_wait(req, 0, KVCL_WAIT_FOREVER), collected;

    pthread_mutex_lock(&c->lock);
    collected  = kvcl_req_wait(req, KVCL_WAIT_FOREVER);
    c->waiting = NULL;
    pthread_mutex_unlock(&c->lock);
    return (status == KVCL_OK) ? collected : status;
}

/* The next message. */
static kvcl_status_t next(serve_client_t *c, size_t *len_p)
{
    kvcl_recv_info_t   info   = KVCL_RECV_INFO_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status = KVCL_ERR_CANCELED;
    kvcl_req_h         req    = NULL;

    params.timeout_ns = IDLE_NS;
    params.info       = &info;
    pthread_mutex_lock(&c->lock);
    if (!c->stopping) {
        status     = kvcl_recv_bytes(c->inter, 0, SERVE_TAG_REQUEST, c->in, sizeof(c->in), &params, &req);
        c->waiting = (status == KVCL_OK) ? req : NULL;
    }
    pthread_mutex_unlock(&c->lock);
    status = (status == KVCL_OK) ? wait_for(c, req) : status;
    *len_p = info.bytes;
    return status;
}

static kvcl_status_t reply(serve_client_t *c, const serve_request_t *request, kvcl_status_t status)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    serve_reply_t      *head  = &c->out.head;
    const char         *why   = (status == KVCL_OK) ? "" : (c->why != NULL) ? c->why : kvcl_last_error();
    kvcl_req_h         req    = NULL;

    params.timeout_ns = REPLY_NS;
    head->version     = SERVE_VERSION;
    head->status      = status;
    head->id          = request->id;
    head->text_len    = (uint32_t)strnlen(why, SERVE_TEXT_MAX);
    memcpy(c->out.rest + head->body_len, why, head->text_len);
    status = kvcl_send_bytes(c->inter, 0, SERVE_TAG_REPLY, &c->out, sizeof(*head) + head->body_len + head->text_len,
                             &params, &req);
    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

/* Said for the first and at each doubling, since clients can cause as many as they like. */
static void note_stranger(const serve_client_t *c, size_t len)
{
    static atomic_uint strangers;
    const unsigned     n = atomic_fetch_add(&strangers, 1) + 1;

    if ((n & (n - 1)) == 0) {
        fprintf(stderr, "kvcl_serve: client %llu sent %zu bytes that are no request of version %d: its session ends "
                "(%u such so far)\n", (unsigned long long)c->number, len, SERVE_VERSION, n);
    }
}

static void *serve(void *arg)
{
    serve_client_t  *c = arg;
    serve_request_t request;
    char            text[SERVE_TEXT_MAX + 1] = "";
    kvcl_status_t   status;
    size_t          len;

    do {
        status = next(c, &len);
        if (status == KVCL_OK) {
            if (len == 0) {
                break; /* it has left */
            }
            if (!check(c, len, &request, text)) {
                note_stranger(c, len);
                break;
            }
            memset(&c->out.head, 0, sizeof(c->out.head));
            c->why = NULL;
            if (reply(c, &request, answer(c, &request, text)) != KVCL_OK) {
                break; /* the client does not read: the order of later replies would be wrong */
            }
        }
    } while ((status == KVCL_OK) || (status == KVCL_ERR_TIMED_OUT)); /* silent for longer than IDLE_NS */
    kvcl_cache_destroy(c->cache);
    kvcl_comm_free(c->inter);
    c->ended = true;
    return NULL;
}

serve_client_t *serve_client_new(kvcl_context_h ctx, kvcl_store_h store, kvcl_comm_h inter, uint64_t number,
                                 uint64_t buffer_bytes, serve_texts_t *texts)
{
    serve_client_t *c = calloc(1, sizeof(*c));

    if (c == NULL) {
        kvcl_comm_free(inter);
        return NULL;
    }
    c->ctx          = ctx;
    c->store        = store;
    c->inter        = inter;
    c->number       = number;
    c->buffer_bytes = buffer_bytes;
    c->texts        = texts;
    pthread_mutex_init(&c->lock, NULL);
    if (pthread_create(&c->thread, NULL, serve, c) != 0) {
        kvcl_comm_free(inter);
        pthread_mutex_destroy(&c->lock);
        free(c);
        return NULL;
    }
    return c;
}

bool serve_client_ended(serve_client_t *client)
{
    return client->ended;
}

void serve_client_stop(serve_client_t *client)
{
    pthread_mutex_lock(&client->lock);
    client->stopping = true;
    kvcl_req_cancel(client->waiting);
    pthread_mutex_unlock(&client->lock);
}

void serve_client_free(serve_client_t *client)
{
    pthread_join(client->thread, NULL);
    pthread_mutex_destroy(&client->lock);
    free(client);
}
