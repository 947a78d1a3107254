/*
 * An engine with one thread: its own event loop moves its transfers and serves its peers as well.
 *
 *   mpirun -n 2 own_loop      (any number of ranks: each gets from the next one; alone: from itself)
 *
 * The context has no progress thread (KVCL_INIT_NO_THREAD). The loop watches its descriptor beside the engine's own; a
 * timer stands for the socket by which prompts arrive. Before each sleep kvcl_context_arm moves whatever can move, and
 * the loop tests its requests. The sleep needs no timeout: a message, a completion, a deadline or a prompt ends it. A
 * rank that has all its blocks stays in the loop until the others have theirs, since nothing else would serve them.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { PROMPTS = 16, EACH = 8, BLOCKS = 2 * PROMPTS * EACH, BYTES = 65536 };

static const uint64_t second = 1000000000;

/* reqs[p] is the get of prompt p: blocks p*EACH... of the next rank into the upper half here. The last is a barrier. */
typedef struct engine {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache;
    kvcl_req_h     reqs[PROMPTS + 1];
    unsigned       posted, ended;
    size_t         wrong;
} engine_t;

static int next_rank(kvcl_comm_h world)
{
    return (kvcl_comm_rank(world) + 1) % kvcl_comm_size(world);
}

/* Visit the bytes of EACH blocks from a first one: write a rank's, or count the wrong ones. */
static size_t visit(kvcl_cache_h cache, size_t first, int rank, int write)
{
    unsigned char *at   = (unsigned char *)kvcl_cache_base(cache, 0) + (first * BYTES), value;
    size_t        wrong = 0, i;

    first %= BLOCKS / 2;
    for (i = 0; i < (size_t)EACH * BYTES; ++i) {
        value = (unsigned char)((rank * 131) + (first * 11) + (i >> 3) + (i >> 13));
        if (write) {
            at[i] = value;
        }
        wrong += at[i] != value;
    }
    return wrong;
}

/* A prompt has arrived: get its blocks. */
static void post(engine_t *engine)
{
    uint32_t   theirs[EACH], mine[EACH], i;
    kvcl_sel_t remote = {.blocks = theirs, .n_blocks = EACH}, local = {.blocks = mine, .n_blocks = EACH};

    for (i = 0; i < EACH; ++i) {
        theirs[i] = (engine->posted * EACH) + i;
        mine[i]   = theirs[i] + (BLOCKS / 2);
    }
    KVCL_TRY(kvcl_get(engine->world, next_rank(engine->world), engine->cache, &remote, &local, NULL,
                      &engine->reqs[engine->posted++]));
}

/* Collect the requests that have ended. After the last get the barrier is posted. */
static void collect(engine_t *engine)
{
    kvcl_status_t status;
    unsigned      p;

    for (p = 0; p < engine->posted; ++p) {
        if ((engine->reqs[p] == NULL) || ((status = kvcl_req_test(engine->reqs[p])) == KVCL_INPROGRESS)) {
            continue;
        }
        KVCL_TRY(status);
        engine->reqs[p] = NULL;
        if (p < PROMPTS) {
            engine->wrong += visit(engine->cache, (BLOCKS / 2) + ((size_t)p * EACH), next_rank(engine->world), 0);
        }
        if (++engine->ended == PROMPTS) {
            KVCL_TRY(kvcl_barrier(engine->world, NULL, &engine->reqs[engine->posted++]));
        }
    }
}

static void watch(int loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) {
        perror("own_loop: epoll_ctl");
        exit(1);
    }
}

static void run(engine_t *engine)
{
    const struct itimerspec every = {.it_interval = {.tv_nsec = 1000000}, .it_value = {.tv_nsec = 1000000}};
    int                     loop = epoll_create1(EPOLL_CLOEXEC), prompts = timerfd_create(CLOCK_MONOTONIC, 0), fd;
    struct epoll_event      event;
    kvcl_status_t           armed;
    uint64_t                ticks;

    KVCL_TRY(kvcl_context_eventfd(engine->ctx, &fd));
    watch(loop, fd);
    watch(loop, prompts);
    (void)timerfd_settime(prompts, 0, &every, NULL);
    for (;;) {
        KVCL_TRY(armed = kvcl_context_arm(engine->ctx));
        collect(engine);
        if (engine->ended > PROMPTS) {
            break;
        }
        if ((armed == KVCL_OK) && (epoll_wait(loop, &event, 1, -1) == 1) && (event.data.fd == prompts) &&
            (read(prompts, &ticks, sizeof(ticks)) == sizeof(ticks))) {
            post(engine);
            if (engine->posted == PROMPTS) {
                close(prompts); /* no more of them */
            }
        }
    }
    close(loop);
}

int main(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, BYTES);
    engine_t           engine = {.posted = 0};
    kvcl_req_h         req;
    size_t             b;
    int                rank;

    params.flags = KVCL_INIT_NO_THREAD;
    KVCL_TRY(kvcl_init(&params, &engine.ctx));
    KVCL_TRY(kvcl_comm_world(engine.ctx, &engine.world));
    KVCL_TRY(kvcl_cache_create(engine.ctx, "kv", &layout, NULL, &engine.cache));
    rank = kvcl_comm_rank(engine.world);
    for (b = 0; b < BLOCKS / 2; b += EACH) {
        (void)visit(engine.cache, b, rank, 1);
    }
    KVCL_TRY(kvcl_barrier(engine.world, NULL, &req)); /* every rank has its blocks; the wait moves the context */
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    run(&engine);
    printf("rank %d: %d prompts of %d blocks from rank %d, %zu bytes wrong\n", rank, PROMPTS, EACH,
           next_rank(engine.world), engine.wrong);
    kvcl_cache_destroy(engine.cache);
    kvcl_finalize(engine.ctx);
    return engine.wrong != 0;
}
