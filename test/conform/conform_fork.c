/*
 * fork() in a rank. The child's calls fail with a sentence that gives the reason, its frees free nothing, and its exit
 * is clean. The parent and its peers continue while the child runs and after it has exited.
 */
#include "conform.h"

#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 50000, CHILD_S = 20 };

/* The leak sanitizer does not find the stacks of the parent's other threads in the child: their memory would count as
 * leaked. */
static bool forked;

int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
    return forked;
}

/* What the child inherits. */
typedef struct inherited {
    cf_t         *cf;
    cf_mem_t     *mem;
    kvcl_cache_h cache;
    kvcl_req_h   pending;
} inherited_t;

/* In the child no check may end with the frame's failure, which ends the rank: the child exits with the line number. */
#define MUST(_cond)                                                                                   \
    do {                                                                                              \
        if (!(_cond)) {                                                                               \
            fprintf(stderr, "child: line %d: %s (%s)\n", __LINE__, #_cond, kvcl_last_error());        \
            _exit(1);                                                                                 \
        }                                                                                             \
    } while (0)
#define REFUSED(_call) MUST(((_call) == KVCL_ERR_DEAD_HANDLE) && (strstr(kvcl_last_error(), "fork") != NULL))

/* A call blocks: says where. */
static void blocked(int signo)
{
    static const char said[] = "child: a call blocks\n";
    void              *at[32];

    (void)signo;
    (void)!write(STDERR_FILENO, said, sizeof(said) - 1);
    backtrace_symbols_fd(at, backtrace(at, 32), STDERR_FILENO);
    _exit(1);
}

static void child(const inherited_t *from)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;
    kvcl_comm_h        comm;
    kvcl_req_h         req;
    char               buf[64];
    int                fd;

    signal(SIGALRM, blocked);
    alarm(CHILD_S);
    REFUSED(kvcl_get_bytes(from->mem->of[cf_after(from->cf)], 0, buf, sizeof(buf), NULL, &req));
    REFUSED(kvcl_send_bytes(from->cf->world, cf_after(from->cf), 1, "x", 1, NULL, &req));
    REFUSED(kvcl_barrier(from->cf->world, NULL, &req));
    REFUSED(kvcl_req_test(from->pending));
    REFUSED(kvcl_req_wait(from->pending, KVCL_WAIT_FOREVER));
    REFUSED(kvcl_comm_world(from->cf->ctx, &comm));
    REFUSED(kvcl_context_eventfd(from->cf->ctx, &fd));
    REFUSED(kvcl_mem_export(from->mem->mine, KVCL_READ, buf, &(size_t){sizeof(buf)}));
    MUST(kvcl_comm_rank(from->cf->world) == -1);
    MUST(kvcl_progress(from->cf->ctx) == 0);
    params.boot = "self";
    MUST(kvcl_init(&params, &ctx) == KVCL_ERR_UNSUPPORTED);
    MUST(strstr(kvcl_last_error(), "fork") != NULL);
    kvcl_req_cancel(from->pending);
    kvcl_mem_free(from->mem->mine);
    kvcl_cache_destroy(from->cache);
    kvcl_finalize(from->cf->ctx);
    exit(0);
}

static void work(cf_t *cf, cf_mem_t *mem)
{
    char       *buf = malloc(LEN), in[8];
    kvcl_req_h reqs[2];
    unsigned   i;

    for (i = 0; i < 20; ++i) {
        kvcl_req_h req;
        CF_OK(cf, kvcl_get_bytes(mem->of[cf_after(cf)], 0, buf, (i & 1) ? LEN : 64, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, cf_bytes_are((uint64_t)cf_after(cf), 0, buf, 64));
    }
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 5, in, 8, NULL, &reqs[0]));
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 5, "message", 8, NULL, &reqs[1]));
    CF_OK(cf, kvcl_req_wait_all(reqs, 2, 20 * KVCL_NS_PER_SEC));
    free(buf);
}

static void parent_goes_on(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, 256);
    unsigned      kind;
    int           status;
    pid_t         pid;

    for (kind = 0; kind < 2; ++kind) {
        cf_mem_t    mem  = cf_mem(cf, LEN, kind == 0, KVCL_READ);
        inherited_t from = {.cf = cf, .mem = &mem};
        char        in[8];

        cf_bytes((uint64_t)cf->rank, 0, mem.addr, LEN);
        CF_OK(cf, kvcl_cache_create(cf->ctx, "forked", &layout, NULL, &from.cache));
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 9, in, 8, NULL, &from.pending));
        cf_fence(cf);
        work(cf, &mem);
        fflush(stdout);
        (void)backtrace(&(void *){NULL}, 1); /* its first call allocates */
        pid = fork();
        CF_CHECK(cf, pid >= 0);
        if (pid == 0) {
            forked = true;
            child(&from);
        }
        work(cf, &mem);
        CF_CHECK(cf, waitpid(pid, &status, 0) == pid);
        CF_CHECK(cf, WIFEXITED(status) && (WEXITSTATUS(status) == 0));
        cf_fence(cf);
        work(cf, &mem);
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 9, "pending", 8, NULL, NULL));
        CF_OK(cf, cf_end(cf, from.pending));
        CF_CHECK(cf, strcmp(in, "pending") == 0);
        kvcl_cache_destroy(from.cache);
        cf_mem_end(cf, &mem);
    }
}

static const cf_case_t cases[] = {
    {"parent_goes_on", parent_goes_on, CF_PROCS},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"shm", true, 2, 0}, {"shm", true, 2, KVCL_INIT_NO_THREAD}, {"tcp", true, 2, 0},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},                      {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
