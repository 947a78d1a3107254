/*
 * An engine that computes step by step, and between two steps looks which blocks have arrived.
 *
 *   mpirun -n 2 engine_loop      (any number of ranks: each gets from the next one; alone: from itself)
 *
 * All gets are posted with one completion queue, each with its request's number. After every step one call collects
 * whatever has completed: no handle is kept, no request is tested, and where nothing has arrived the call costs a few
 * nanoseconds. When there is nothing to compute, the engine sleeps on the queue's descriptor. With
 * KVCL_METRICS=127.0.0.1:9400 each rank serves its counters meanwhile: http://127.0.0.1:9400/metrics is rank 0's.
 */
#include <kvcl/kvcl.h>

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { BLOCKS = 256, BYTES = 65536, REQUESTS = 16, EACH = 8, BATCH = 16, STEPS = 40 };

static const uint64_t second = 1000000000;

static unsigned char value(int rank, size_t block)
{
    return (unsigned char)((rank * 131) + ((int)block * 7) + 1);
}

static void fill(kvcl_cache_h cache, int rank)
{
    unsigned char bytes[BYTES];
    size_t        b, i;

    for (b = 0; b < BLOCKS / 2; ++b) {
        for (i = 0; i < BYTES; ++i) {
            bytes[i] = value(rank, b);
        }
        KVCL_TRY(kvcl_cache_write_block(cache, (uint32_t)b, bytes, BYTES));
    }
}

/* Request r: blocks r*EACH... of the other rank into the upper half here. */
static void post(kvcl_comm_h world, int from, kvcl_cache_h cache, kvcl_queue_h queue, size_t r)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint32_t           theirs[EACH], mine[EACH];
    kvcl_sel_t         remote = {.blocks = theirs, .n_blocks = EACH}, local = {.blocks = mine, .n_blocks = EACH};
    size_t             i;

    for (i = 0; i < EACH; ++i) {
        theirs[i] = (uint32_t)((r * EACH) + i);
        mine[i]   = theirs[i] + (BLOCKS / 2);
    }
    params.queue  = queue;
    params.cb_arg = (void *)(uintptr_t)r; /* comes back with the completion */
    KVCL_TRY(kvcl_get(world, from, cache, &remote, &local, &params, NULL));
}

/* Stands for one step of the model: 0.1 ms. */
static void compute(void)
{
    const struct timespec step = {0, 100000};

    nanosleep(&step, NULL);
}

/* What has arrived since the last look; returns how many requests, and counts their wrong bytes. */
static size_t look(kvcl_queue_h queue, kvcl_cache_h cache, int from, size_t *wrong_p)
{
    unsigned char bytes[BYTES];
    kvcl_done_t   done[BATCH];
    size_t        n, i, block, r;

    KVCL_TRY(kvcl_req_drain(queue, done, sizeof(done[0]), BATCH, &n));
    for (i = 0; i < n; ++i) {
        r = (size_t)(uintptr_t)done[i].arg;
        if (done[i].status != KVCL_OK) {
            fprintf(stderr, "request %zu: %s\n", r, done[i].error);
            ++*wrong_p;
            continue;
        }
        block = r * EACH;
        KVCL_TRY(kvcl_cache_read_block(cache, (uint32_t)(block + (BLOCKS / 2)), bytes, BYTES));
        *wrong_p += (bytes[0] != value(from, block)) + (bytes[BYTES - 1] != value(from, block)) +
                    (done[i].bytes != (uint64_t)EACH * BYTES);
    }
    return n;
}

int main(void)
{
    kvcl_layout_t  layout = KVCL_LAYOUT_BYTES(BLOCKS, BYTES);
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache;
    kvcl_queue_h   queue;
    kvcl_req_h     req;
    size_t         posted = 0, arrived = 0, wrong = 0, step;
    int            from, fd;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "kv", &layout, NULL, &cache));
    KVCL_TRY(kvcl_queue_create(&queue));
    KVCL_TRY(kvcl_queue_fd(queue, &fd));
    from = (kvcl_comm_rank(world) + 1) % kvcl_comm_size(world);
    fill(cache, kvcl_comm_rank(world));
    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));

    for (step = 0; step < STEPS; ++step) { /* new requests come while others are computed */
        if (posted < REQUESTS) {
            post(world, from, cache, queue, posted++);
        }
        compute();
        arrived += look(queue, cache, from, &wrong);
    }
    while (arrived < REQUESTS) { /* nothing to compute: sleep */
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
        arrived += look(queue, cache, from, &wrong);
    }
    printf("rank %d: %zu requests of %d blocks from rank %d, %zu wrong\n", kvcl_comm_rank(world), arrived, EACH, from,
           wrong);
    KVCL_TRY(kvcl_barrier(world, NULL, &req)); /* no rank leaves while another still reads its cache */
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    kvcl_queue_destroy(queue);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return wrong != 0;
}
