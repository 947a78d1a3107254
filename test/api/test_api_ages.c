/*
 * Programs and libraries of different versions. A params struct shorter than this library's takes defaults for the
 * missing fields. A longer one is accepted if no unknown field is set. An unknown setting causes a warning with the
 * nearest name. (Refusals of calls: test_errors.)
 */
#include <kvcl/kvcl.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int passed, failed;

#define IS(_cond)                                                               \
    do {                                                                        \
        if (_cond) {                                                            \
            ++passed;                                                           \
        } else {                                                                \
            ++failed;                                                           \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #_cond, kvcl_last_error()); \
        }                                                                       \
    } while (0)

/* The first bytes of a struct in memory of exactly that length: a sanitizer detects a read past them. */
static void *cut(const void *whole, size_t len)
{
    void *copy = malloc(len);

    memcpy(copy, whole, len);
    memcpy(copy, &len, sizeof(len)); /* its size field */
    return copy;
}

static void *grown(const void *whole, size_t len, size_t to, unsigned char last)
{
    unsigned char *copy = calloc(1, to);

    memcpy(copy, whole, len);
    memcpy(copy, &to, sizeof(to));
    copy[to - 1] = last;
    return copy;
}

static void init_params(void)
{
    kvcl_init_params_t now = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx = NULL;
    kvcl_status_t      status;
    void               *p;

    now.boot = "self";
    p        = cut(&now, 16); /* size and flags only: the launcher decides, and none is present */
    status   = kvcl_init(p, &ctx);
    IS(status == KVCL_OK);
    kvcl_finalize(ctx);
    free(p);
    p      = cut(&now, offsetof(kvcl_init_params_t, rendezvous));
    status = kvcl_init(p, &ctx);
    IS(status == KVCL_OK);
    kvcl_finalize(ctx);
    free(p);
    p      = grown(&now, sizeof(now), sizeof(now) + 40, 0);
    status = kvcl_init(p, &ctx);
    IS(status == KVCL_OK);
    kvcl_finalize(ctx);
    free(p);
    ctx    = NULL;
    p      = grown(&now, sizeof(now), sizeof(now) + 40, 1);
    status = kvcl_init(p, &ctx);
    IS((status == KVCL_ERR_INVALID_PARAM) && (ctx == NULL));
    free(p);
}

static void other_params(void)
{
    kvcl_init_params_t init = KVCL_INIT_PARAMS_INIT;
    kvcl_mem_params_t  mem_now = {sizeof(mem_now), 0, 0};
    kvcl_xfer_params_t now = KVCL_XFER_PARAMS_INIT;
    kvcl_context_h     ctx;
    kvcl_comm_h        world;
    kvcl_mem_h         mem;
    kvcl_req_h         req, sent;
    char               in[4];
    void               *p;

    init.boot = "self";
    IS(kvcl_init(&init, &ctx) == KVCL_OK);
    IS(kvcl_comm_world(ctx, &world) == KVCL_OK);
    p = cut(&mem_now, 16);
    IS(kvcl_mem_alloc(ctx, 100, p, &mem) == KVCL_OK);
    kvcl_mem_free(mem);
    free(p);
    p = cut(&now, offsetof(kvcl_xfer_params_t, cb)); /* a struct from before callbacks existed */
    IS(kvcl_send_bytes(world, 0, 1, "abc", 4, p, &sent) == KVCL_OK);
    IS(kvcl_recv_bytes(world, 0, 1, in, 4, p, &req) == KVCL_OK);
    free(p);
    IS((kvcl_req_wait(req, KVCL_WAIT_FOREVER) == KVCL_OK) && (kvcl_req_wait(sent, KVCL_WAIT_FOREVER) == KVCL_OK));
    IS(strcmp(in, "abc") == 0);
    p = grown(&now, sizeof(now), sizeof(now) + 8, 1);
    IS(kvcl_recv_bytes(world, 0, 1, in, 4, p, &req) == KVCL_ERR_INVALID_PARAM);
    free(p);
    p = cut(&now, offsetof(kvcl_xfer_params_t, queue)); /* from before completion queues */
    IS(kvcl_send_bytes(world, 0, 1, "abc", 4, p, &sent) == KVCL_OK);
    IS(kvcl_recv_bytes(world, 0, 1, in, 4, p, &req) == KVCL_OK);
    free(p);
    IS((kvcl_req_wait(req, KVCL_WAIT_FOREVER) == KVCL_OK) && (kvcl_req_wait(sent, KVCL_WAIT_FOREVER) == KVCL_OK));
    kvcl_finalize(ctx);
}

/* Records of another length than this library's: each is written as far as both know it. */
static void records(void)
{
    enum { N = 3, GROWN = sizeof(kvcl_done_t) + 16 };
    kvcl_init_params_t init = KVCL_INIT_PARAMS_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    unsigned char      out[N * GROWN];
    kvcl_done_t        first;
    kvcl_context_h     ctx;
    kvcl_comm_h        world;
    kvcl_queue_h       queue;
    kvcl_req_h         req;
    char               in[8];
    size_t             n = 0, i;

    init.boot = "self";
    IS(kvcl_init(&init, &ctx) == KVCL_OK);
    IS(kvcl_comm_world(ctx, &world) == KVCL_OK);
    IS(kvcl_queue_create(&queue) == KVCL_OK);
    params.queue = queue;
    for (i = 0; i < N; ++i) {
        params.cb_arg = (void *)(i + 1);
        IS(kvcl_recv_bytes(world, 0, 1, in, 4, &params, &req) == KVCL_OK);
        kvcl_req_cancel(req);
    }
    memset(out, 0xaa, sizeof(out));
    IS(kvcl_req_drain(queue, (kvcl_done_t *)(void *)out, 24, N, &n) == KVCL_ERR_INVALID_PARAM);
    IS((kvcl_req_drain(queue, (kvcl_done_t *)(void *)out, GROWN, N - 1, &n) == KVCL_OK) && (n == N - 1));
    for (i = 0; i < N - 1; ++i) {
        memcpy(&first, out + (i * GROWN), sizeof(first));
        IS((first.arg == (void *)(i + 1)) && (first.status == KVCL_ERR_CANCELED));
        IS((out[(i * GROWN) + sizeof(first)] == 0) && (out[((i + 1) * GROWN) - 1] == 0));
    }
    IS(out[(N - 1) * GROWN] == 0xaa); /* a record that was not filled */
    IS((kvcl_req_drain(queue, (kvcl_done_t *)(void *)out, GROWN, 0, &n) == KVCL_OK) && (n == 0));
    IS((kvcl_req_drain(queue, (kvcl_done_t *)(void *)out, GROWN, N, &n) == KVCL_OK) && (n == 1));
    kvcl_queue_destroy(queue);
    kvcl_finalize(ctx);
}

static void unknown_setting(void)
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
}

int main(void)
{
    init_params();
    other_params();
    records();
    unknown_setting();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return (failed == 0) ? 0 : 1;
}
