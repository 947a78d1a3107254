/*
 * Bad calls, one row each: the right status, a sentence that names what was wrong, and nothing changed. Then what may
 * be NULL, and settings that nobody knows. Sees what a user sees: libkvcl.so and include/kvcl.
 */
#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int passed, failed;

/* want: the status; word: what the sentence must name. */
static void row(int line, const char *call, kvcl_status_t got, kvcl_status_t want, const char *word)
{
    const char *said = kvcl_last_error();

    if ((got == want) && (strstr(said, word) != NULL)) {
        ++passed;
        return;
    }
    ++failed;
    fprintf(stderr, "%s:%d: %s: %s, not %s; \"%s\" should name \"%s\"\n", __FILE__, line, call, kvcl_status_name(got),
            kvcl_status_name(want), said, word);
}

#define BAD(_call, _status, _word) row(__LINE__, #_call, (_call), KVCL_ERR_##_status, (_word))
#define GOOD(_call)                row(__LINE__, #_call, (_call), KVCL_OK, "")
#define IS(_cond)                                                           \
    do {                                                                    \
        if (_cond) {                                                        \
            ++passed;                                                       \
        } else {                                                            \
            ++failed;                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #_cond); \
        }                                                                   \
    } while (0)

typedef struct world {
    kvcl_context_h ctx;
    kvcl_comm_h    comm;
    kvcl_cache_h   cache; /* 8 blocks of 64 bytes, named "cache" */
    kvcl_mem_h     mem;   /* 4096 bytes */
    kvcl_rmem_h    rmem;  /* the same, imported: readable */
    kvcl_rmem_h    wmem;  /* writable */
} world_t;

static kvcl_rmem_h import(world_t *w, unsigned rights)
{
    char        desc[1024];
    size_t      len = sizeof(desc);
    kvcl_rmem_h rmem;

    GOOD(kvcl_mem_export(w->mem, rights, desc, &len));
    GOOD(kvcl_rmem_import(w->comm, 0, desc, len, &rmem));
    return rmem;
}

static world_t make_world(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(8, 64);
    world_t            w;

    params.boot = "self";
    GOOD(kvcl_init(&params, &w.ctx));
    GOOD(kvcl_comm_world(w.ctx, &w.comm));
    GOOD(kvcl_cache_create(w.ctx, "cache", &layout, NULL, KVCL_MEM_HOST, &w.cache));
    GOOD(kvcl_mem_alloc(w.ctx, 4096, NULL, &w.mem));
    w.rmem = import(&w, KVCL_READ);
    w.wmem = import(&w, KVCL_WRITE);
    return w;
}

static void end_world(world_t *w)
{
    kvcl_rmem_free(w->rmem);
    kvcl_rmem_free(w->wmem);
    kvcl_mem_free(w->mem);
    kvcl_cache_destroy(w->cache);
    kvcl_finalize(w->ctx);
}

/* ---------------------------------------------------------------- contexts and communicators */

/* A params struct of the future, with and without something set beyond what we know. */
typedef struct future_init {
    kvcl_init_params_t now;
    uint64_t           later;
} future_init_t;

static kvcl_status_t no_set(void *arg, const char *key, const void *val, size_t len)
{
    (void)arg;
    (void)key;
    (void)val;
    (void)len;
    return KVCL_ERR_IO;
}

static void contexts(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    future_init_t      future = {.now = KVCL_INIT_PARAMS_INIT, .later = 1};
    kvcl_oob_t         oob    = {0, 1, no_set, NULL, NULL, NULL};
    kvcl_context_h     ctx    = (kvcl_context_h)&params;
    struct {
        size_t   size;
        uint64_t flags;
    } old = {sizeof(old), 0};

    BAD(kvcl_init(&params, NULL), INVALID_PARAM, "ctx_p");
    params.size = 4;
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "size");
    params.size  = sizeof(params);
    params.flags = 1u << 20;
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "flags");
    params.flags = 0;
    params.boot  = "carrier pigeon";
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "carrier pigeon");
    params.boot = NULL;
    params.path = "by sea";
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "KVCL_PATH");
    params.path       = NULL;
    params.rendezvous = "ftp://nowhere";
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "ftp");
    params.rendezvous = NULL;
    params.nranks     = -5;
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "KVCL_SIZE");
    params.nranks = 0;
    params.oob    = &oob;
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "oob");
    future.now.size = sizeof(future);
    BAD(kvcl_init(&future.now, &ctx), INVALID_PARAM, "does not know");
    IS(ctx == (kvcl_context_h)&params); /* untouched by all of it */
    future.later    = 0;
    future.now.boot = "self";
    GOOD(kvcl_init(&future.now, &ctx));
    kvcl_finalize(ctx);
    GOOD(kvcl_init((const kvcl_init_params_t *)(const void *)&old, &ctx)); /* a struct of the past: the rest is default */
    kvcl_finalize(ctx);
    kvcl_finalize(NULL);
}

static void communicators(world_t *w)
{
    kvcl_comm_h comm    = NULL;
    char        buf[64];
    size_t      len;
    int         fd, ranks[] = {0, 0, 1};

    BAD(kvcl_comm_world(NULL, &comm), INVALID_PARAM, "kvcl_comm_world");
    BAD(kvcl_comm_world(w->ctx, NULL), INVALID_PARAM, "kvcl_comm_world");
    BAD(kvcl_comm_create(NULL, ranks, 1, &comm), INVALID_PARAM, "kvcl_comm_create");
    BAD(kvcl_comm_create(w->comm, NULL, 1, &comm), INVALID_PARAM, "kvcl_comm_create");
    BAD(kvcl_comm_create(w->comm, ranks, 0, &comm), INVALID_PARAM, "kvcl_comm_create");
    BAD(kvcl_comm_create(w->comm, ranks, 1, NULL), INVALID_PARAM, "kvcl_comm_create");
    BAD(kvcl_comm_create(w->comm, ranks, 2, &comm), UNKNOWN_RANK, "twice");
    BAD(kvcl_comm_create(w->comm, ranks + 1, 2, &comm), UNKNOWN_RANK, "rank 1");
    IS(comm == NULL);
    BAD(kvcl_context_address(NULL, buf, 64, &len), INVALID_PARAM, "kvcl_context_address");
    BAD(kvcl_context_address(w->ctx, buf, 64, NULL), INVALID_PARAM, "kvcl_context_address");
    BAD(kvcl_context_address(w->ctx, buf, 64, &len), TRUNCATED, "64");
    IS(len > 64);
    BAD(kvcl_context_eventfd(w->ctx, NULL), INVALID_PARAM, "fd_p");
    BAD(kvcl_context_eventfd(NULL, &fd), INVALID_PARAM, "kvcl_context_eventfd");
    BAD(kvcl_comm_connect(NULL, "x", 1, &comm), INVALID_PARAM, "kvcl_comm_connect");
    BAD(kvcl_comm_connect(w->comm, "not an address", 1000000, &comm), INVALID_PARAM, "address");
    BAD(kvcl_comm_connect(w->comm, NULL, 1000000, &comm), INVALID_PARAM, "kvcl_comm_connect");
    BAD(kvcl_comm_accept(NULL, 1, &comm), INVALID_PARAM, "kvcl_comm_accept");
    BAD(kvcl_comm_accept(w->comm, 1000000, NULL), INVALID_PARAM, "kvcl_comm_accept");
    BAD(kvcl_comm_accept(w->comm, 1000000, &comm), TIMED_OUT, "");
    BAD(kvcl_query_settings(NULL, NULL), INVALID_PARAM, "cb");
    BAD(kvcl_query_topology(NULL, 4, &len), INVALID_PARAM, "kvcl_query_topology");
    BAD(kvcl_query_topology(buf, 1, &len), TRUNCATED, "");
    BAD(kvcl_query_colls(NULL, 4, &len), INVALID_PARAM, "kvcl_query_colls");
    BAD(kvcl_query_path(NULL, 0, buf, 64), INVALID_PARAM, "kvcl_query_path");
    BAD(kvcl_query_path(w->comm, 1, buf, 64), UNKNOWN_RANK, "rank 1");
    BAD(kvcl_query_path(w->comm, -1, buf, 64), UNKNOWN_RANK, "rank -1");
    BAD(kvcl_query_path(w->comm, 0, NULL, 64), INVALID_PARAM, "buf");
}

/* ---------------------------------------------------------------- memory and caches */

static void memory(world_t *w)
{
    kvcl_mem_params_t params = {sizeof(params), 1u << 9, 0};
    char              buf[1024], page[64];
    size_t            len;
    kvcl_mem_h        mem  = NULL;
    kvcl_rmem_h       rmem = NULL;

    BAD(kvcl_mem_register(NULL, page, 64, KVCL_MEM_HOST, NULL, &mem), INVALID_PARAM, "NULL");
    BAD(kvcl_mem_register(w->ctx, page, 64, KVCL_MEM_HOST, NULL, NULL), INVALID_PARAM, "NULL");
    BAD(kvcl_mem_register(w->ctx, NULL, 64, KVCL_MEM_HOST, NULL, &mem), INVALID_PARAM, "addr");
    BAD(kvcl_mem_register(w->ctx, page, 0, KVCL_MEM_HOST, NULL, &mem), INVALID_PARAM, "0 bytes");
    BAD(kvcl_mem_register(w->ctx, page, SIZE_MAX, KVCL_MEM_HOST, NULL, &mem), INVALID_PARAM, "bytes");
    BAD(kvcl_mem_register(w->ctx, page, 64, (kvcl_mem_kind_t)9, NULL, &mem), UNSUPPORTED, "kind 9");
    BAD(kvcl_mem_alloc(w->ctx, 64, &params, &mem), INVALID_PARAM, "flags");
    params.flags = 0;
    params.size  = 3;
    BAD(kvcl_mem_alloc(w->ctx, 64, &params, &mem), INVALID_PARAM, "size");
    BAD(kvcl_mem_alloc(w->ctx, 0, NULL, &mem), INVALID_PARAM, "0 bytes");
    IS(kvcl_mem_alloc(w->ctx, SIZE_MAX / 2, NULL, &mem) == KVCL_ERR_NO_MEMORY);
    BAD(kvcl_mem_file(w->ctx, NULL, 0, 0, &mem), INVALID_PARAM, "path");
    BAD(kvcl_mem_file(w->ctx, "/tmp", 100, 0, &mem), INVALID_PARAM, "aligned");
    BAD(kvcl_mem_file(w->ctx, "/nonexistent/file", 0, 0, &mem), IO, "/nonexistent/file");
    BAD(kvcl_mem_file(w->ctx, "/dev/null", 0, 0, &mem), INVALID_PARAM, "/dev/null");
    len = sizeof(buf);
    BAD(kvcl_mem_export(NULL, KVCL_READ, buf, &len), INVALID_PARAM, "kvcl_mem_export");
    BAD(kvcl_mem_export(w->mem, 0, buf, &len), INVALID_PARAM, "KVCL_READ");
    BAD(kvcl_mem_export(w->mem, 8, buf, &len), INVALID_PARAM, "KVCL_READ");
    len = 3;
    BAD(kvcl_mem_export(w->mem, KVCL_READ, buf, &len), TRUNCATED, "3");
    IS((len > 3) && (len <= 1024));
    GOOD(kvcl_mem_export(w->mem, KVCL_READ, buf, &len));
    BAD(kvcl_rmem_import(NULL, 0, buf, len, &rmem), INVALID_PARAM, "kvcl_rmem_import");
    BAD(kvcl_rmem_import(w->comm, 0, NULL, len, &rmem), INVALID_PARAM, "kvcl_rmem_import");
    BAD(kvcl_rmem_import(w->comm, 0, buf, len, NULL), INVALID_PARAM, "kvcl_rmem_import");
    BAD(kvcl_rmem_import(w->comm, 1, buf, len, &rmem), UNKNOWN_RANK, "rank 1");
    BAD(kvcl_rmem_import(w->comm, 0, buf, len - 1, &rmem), PROTOCOL, "");
    BAD(kvcl_rmem_import(w->comm, 0, buf, 0, &rmem), PROTOCOL, "");
    memset(buf, 0x5a, sizeof(buf));
    BAD(kvcl_rmem_import(w->comm, 0, buf, len, &rmem), PROTOCOL, "");
    BAD(kvcl_signal_wait(NULL, 0, 1, 1), INVALID_PARAM, "mem");
    BAD(kvcl_signal_wait(w->mem, 4, 1, 1), OUT_OF_RANGE, "offset 4");
    BAD(kvcl_signal_wait(w->mem, 4096, 1, 1), OUT_OF_RANGE, "offset 4096");
    IS((mem == NULL) && (rmem == NULL));
}

static void caches(world_t *w)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, 16), bad;
    void          *null_base[1] = {NULL};
    kvcl_cache_h  cache = NULL;
    char          name[80], buf[64];

    memset(name, 'n', sizeof(name));
    name[64] = '\0';
    BAD(kvcl_cache_create(NULL, "x", &layout, NULL, KVCL_MEM_HOST, &cache), INVALID_PARAM, "kvcl_cache_create");
    BAD(kvcl_cache_create(w->ctx, NULL, &layout, NULL, KVCL_MEM_HOST, &cache), INVALID_PARAM, "kvcl_cache_create");
    BAD(kvcl_cache_create(w->ctx, "x", NULL, NULL, KVCL_MEM_HOST, &cache), INVALID_PARAM, "kvcl_cache_create");
    BAD(kvcl_cache_create(w->ctx, "x", &layout, NULL, KVCL_MEM_HOST, NULL), INVALID_PARAM, "kvcl_cache_create");
    BAD(kvcl_cache_create(w->ctx, "", &layout, NULL, KVCL_MEM_HOST, &cache), INVALID_PARAM, "name");
    BAD(kvcl_cache_create(w->ctx, name, &layout, NULL, KVCL_MEM_HOST, &cache), INVALID_PARAM, "64");
    BAD(kvcl_cache_create(w->ctx, "x", &layout, null_base, KVCL_MEM_HOST, &cache), INVALID_PARAM, "base 0");
    BAD(kvcl_cache_create(w->ctx, "x", &layout, NULL, (kvcl_mem_kind_t)7, &cache), UNSUPPORTED, "kind 7");
    BAD(kvcl_cache_create(w->ctx, "cache", &layout, NULL, KVCL_MEM_HOST, &cache), EXISTS, "\"cache\"");
    bad        = layout;
    bad.blocks = 0;
    BAD(kvcl_cache_create(w->ctx, "x", &bad, NULL, KVCL_MEM_HOST, &cache), BAD_LAYOUT, "blocks");
    bad              = layout;
    bad.flags        = 1u << 12;
    BAD(kvcl_cache_create(w->ctx, "x", &bad, NULL, KVCL_MEM_HOST, &cache), BAD_LAYOUT, "flag");
    bad              = layout;
    bad.block_stride = 8;
    BAD(kvcl_cache_create(w->ctx, "x", &bad, NULL, KVCL_MEM_HOST, &cache), BAD_LAYOUT, "block_stride");
    bad      = layout;
    bad.size = 12;
    BAD(kvcl_cache_create(w->ctx, "x", &bad, NULL, KVCL_MEM_HOST, &cache), INVALID_PARAM, "size");
    IS(cache == NULL);
    BAD(kvcl_cache_read_block(NULL, 0, buf, 64), INVALID_PARAM, "");
    BAD(kvcl_cache_read_block(w->cache, 8, buf, 64), OUT_OF_RANGE, "8");
    BAD(kvcl_cache_read_block(w->cache, 0, buf, 63), INVALID_PARAM, "64");
    BAD(kvcl_cache_write_block(w->cache, 0, NULL, 64), INVALID_PARAM, "");
    BAD(kvcl_cache_write_block(w->cache, UINT32_MAX, buf, 64), OUT_OF_RANGE, "");
    IS(kvcl_cache_base(w->cache, 1) == NULL);
}

/* ---------------------------------------------------------------- transfers */

typedef struct future_xfer {
    kvcl_xfer_params_t now;
    uint64_t           later;
} future_xfer_t;

static void transfers(world_t *w, world_t *other)
{
    static const uint32_t good[] = {0, 1}, out[] = {0, 8};
    kvcl_sel_t         sel = {.blocks = good, .n_blocks = 2}, far = {.blocks = out, .n_blocks = 2};
    kvcl_sel_t         null_ids = {.n_blocks = 2}, layers = {good, 2, {0, 2}, {0, 0}}, heads = {good, 2, {0, 0}, {1, 1}};
    kvcl_xfer_params_t flags = KVCL_XFER_PARAMS_INIT, name = KVCL_XFER_PARAMS_INIT, small = {.size = 8};
    future_xfer_t      future = {.now = KVCL_XFER_PARAMS_INIT, .later = 1};
    char               buf[64] = "untouched", long_name[80];
    kvcl_req_h         req = NULL;

    memset(long_name, 'n', sizeof(long_name));
    long_name[79]     = '\0';
    flags.flags       = 1;
    name.remote_cache = long_name;
    future.now.size   = sizeof(future);
    BAD(kvcl_get(NULL, 0, w->cache, &sel, &sel, NULL, &req), INVALID_PARAM, "kvcl_get");
    BAD(kvcl_get(w->comm, 1, w->cache, &sel, &sel, NULL, &req), UNKNOWN_RANK, "rank 1");
    BAD(kvcl_get(w->comm, KVCL_ANY_SOURCE, w->cache, &sel, &sel, NULL, &req), UNKNOWN_RANK, "rank -1");
    BAD(kvcl_get(w->comm, 0, NULL, &sel, &sel, NULL, &req), INVALID_PARAM, "cache");
    BAD(kvcl_get(w->comm, 0, other->cache, &sel, &sel, NULL, &req), INVALID_PARAM, "another context");
    BAD(kvcl_get(w->comm, 0, w->cache, NULL, &sel, NULL, &req), INVALID_PARAM, "remote");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, NULL, NULL, &req), INVALID_PARAM, "selection");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &far, NULL, &req), OUT_OF_RANGE, "8");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &null_ids, NULL, &req), INVALID_PARAM, "blocks");
    BAD(kvcl_get(w->comm, 0, w->cache, &null_ids, &sel, NULL, &req), INVALID_PARAM, "blocks");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &layers, NULL, &req), OUT_OF_RANGE, "layer");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &heads, NULL, &req), OUT_OF_RANGE, "head");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &sel, &flags, &req), INVALID_PARAM, "flags");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &sel, &small, &req), INVALID_PARAM, "size");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &sel, &name, &req), INVALID_PARAM, "79");
    BAD(kvcl_get(w->comm, 0, w->cache, &sel, &sel, &future.now, &req), INVALID_PARAM, "does not know");
    BAD(kvcl_put(NULL, 0, w->cache, &sel, &sel, NULL, &req), INVALID_PARAM, "kvcl_put");
    BAD(kvcl_put(w->comm, 9, w->cache, &sel, &sel, NULL, &req), UNKNOWN_RANK, "rank 9");
    BAD(kvcl_put(w->comm, 0, other->cache, &sel, &sel, NULL, &req), INVALID_PARAM, "another context");
    BAD(kvcl_put(w->comm, 0, w->cache, &far, &sel, NULL, &req), OUT_OF_RANGE, "8");
    BAD(kvcl_put(w->comm, 0, w->cache, &sel, NULL, NULL, &req), INVALID_PARAM, "remote");
    BAD(kvcl_put(w->comm, 0, w->cache, &sel, &null_ids, NULL, &req), INVALID_PARAM, "blocks");
    BAD(kvcl_put(w->comm, 0, w->cache, &sel, &sel, &flags, &req), INVALID_PARAM, "flags");
    BAD(kvcl_put(w->comm, 0, w->cache, &sel, &sel, &name, &req), INVALID_PARAM, "79");
    BAD(kvcl_send(NULL, 0, 1, w->cache, &sel, NULL, &req), INVALID_PARAM, "kvcl_send");
    BAD(kvcl_send(w->comm, -1, 1, w->cache, &sel, NULL, &req), UNKNOWN_RANK, "rank -1");
    BAD(kvcl_send(w->comm, 0, 1, NULL, &sel, NULL, &req), INVALID_PARAM, "cache");
    BAD(kvcl_send(w->comm, 0, 1, w->cache, &far, NULL, &req), OUT_OF_RANGE, "8");
    BAD(kvcl_recv(NULL, 0, 1, w->cache, &sel, NULL, &req), INVALID_PARAM, "kvcl_recv");
    BAD(kvcl_recv(NULL, KVCL_ANY_SOURCE, 1, w->cache, &sel, NULL, &req), INVALID_PARAM, "kvcl_recv");
    BAD(kvcl_recv(w->comm, 2, 1, w->cache, &sel, NULL, &req), UNKNOWN_RANK, "rank 2");
    BAD(kvcl_recv(w->comm, 0, 1, other->cache, &sel, NULL, &req), INVALID_PARAM, "another context");
    BAD(kvcl_recv(w->comm, 0, 1, w->cache, &far, NULL, &req), OUT_OF_RANGE, "8");
    BAD(kvcl_send_bytes(w->comm, 1, 1, buf, 8, NULL, &req), UNKNOWN_RANK, "rank 1");
    BAD(kvcl_send_bytes(w->comm, 0, 1, NULL, 8, NULL, &req), INVALID_PARAM, "buf");
    BAD(kvcl_send_bytes(w->comm, 0, 1, buf, 8, &flags, &req), INVALID_PARAM, "flags");
    BAD(kvcl_recv_bytes(w->comm, 0, 1, NULL, 8, NULL, &req), INVALID_PARAM, "buf");
    BAD(kvcl_recv_bytes(w->comm, -2, 1, buf, 8, NULL, &req), UNKNOWN_RANK, "rank -2");
    BAD(kvcl_get_bytes(NULL, 0, buf, 8, NULL, &req), INVALID_PARAM, "kvcl_get_bytes");
    BAD(kvcl_get_bytes(w->rmem, 0, NULL, 8, NULL, &req), INVALID_PARAM, "kvcl_get_bytes");
    BAD(kvcl_get_bytes(w->rmem, 4090, buf, 8, NULL, &req), OUT_OF_RANGE, "4090");
    BAD(kvcl_get_bytes(w->wmem, 0, buf, 8, NULL, &req), ACCESS, "read");
    BAD(kvcl_put_bytes(w->rmem, 0, buf, 8, NULL, &req), ACCESS, "write");
    BAD(kvcl_put_bytes(NULL, 0, buf, 8, NULL, &req), INVALID_PARAM, "kvcl_put_bytes");
    BAD(kvcl_put_bytes(w->wmem, 5000, buf, 0, NULL, &req), OUT_OF_RANGE, "5000");
    BAD(kvcl_put_bytes(w->wmem, 0, buf, 8, &flags, &req), INVALID_PARAM, "flags");
    IS((req == NULL) && (strcmp(buf, "untouched") == 0));
    BAD(kvcl_req_test(NULL), INVALID_PARAM, "NULL");
    BAD(kvcl_req_wait(NULL, 1), INVALID_PARAM, "NULL");
    BAD(kvcl_req_wait_any(&req, 1, 1, NULL), INVALID_PARAM, "NULL");
    BAD(kvcl_req_wait_all(NULL, 1, 1), INVALID_PARAM, "NULL");
}

/* ---------------------------------------------------------------- the rest */

static void nulls_that_are_allowed(void)
{
    kvcl_finalize(NULL);
    kvcl_comm_free(NULL);
    kvcl_cache_destroy(NULL);
    kvcl_mem_free(NULL);
    kvcl_rmem_free(NULL);
    kvcl_req_cancel(NULL);
    kvcl_store_close(NULL);
    IS(kvcl_version_string()[0] != '\0');
    IS(strstr(kvcl_build_string(), kvcl_version_string()) != NULL);
}

/* A variable that nobody knows: a warning that names the nearest; a bad value: an error that names both. */
static void settings(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    char               path[] = "/tmp/kvcl-api-XXXXXX", said[4096] = "";
    int                fd = mkstemp(path), keep = dup(2);
    kvcl_context_h     ctx;

    params.boot = "self";
    setenv("KVCL_TIMEUOT", "5s", 1);
    (void)fflush(stderr);
    (void)dup2(fd, 2);
    if (kvcl_init(&params, &ctx) == KVCL_OK) {
        kvcl_finalize(ctx);
    }
    (void)fflush(stderr);
    (void)dup2(keep, 2);
    unsetenv("KVCL_TIMEUOT");
    IS(pread(fd, said, sizeof(said) - 1, 0) > 0);
    IS((strstr(said, "KVCL_TIMEUOT") != NULL) && (strstr(said, "KVCL_TIMEOUT") != NULL));
    (void)unlink(path);
    close(fd);
    close(keep);
    setenv("KVCL_TIMEOUT", "soon", 1);
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "KVCL_TIMEOUT");
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "soon");
    unsetenv("KVCL_TIMEOUT");
    setenv("KVCL_WINDOW", "0", 1);
    BAD(kvcl_init(&params, &ctx), INVALID_PARAM, "KVCL_WINDOW");
    unsetenv("KVCL_WINDOW");
}

int main(void)
{
    world_t              a, b;
    kvcl_context_stats_t stats;

    contexts();
    a = make_world();
    b = make_world();
    communicators(&a);
    memory(&a);
    caches(&a);
    transfers(&a, &b);
    kvcl_context_stats(a.ctx, &stats);
    IS((stats.malformed == 0) && (stats.strangers == 0));
    end_world(&a);
    end_world(&b);
    nulls_that_are_allowed();
    settings();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return (failed == 0) ? 0 : 1;
}
