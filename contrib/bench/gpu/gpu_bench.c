/*
 * Copies many pieces between device and host memory (pinned, or pages that the driver does not know), and inside a
 * device: by the library's kernel, by one cuMemcpyAsync per piece, and as one contiguous copy, which is the floor; then
 * kvcl_get between two caches of this process. A list has at most 64 Ki pieces. Prints rates for each piece size. The
 * last line of a table names the size up to which the kernel wins, which is the value for kvcl_cuda_most
 * (device/cuda_device.h). Bytes are compared once for each size and path.
 *   gpu_bench [--fake | MIB]   of a list; at least 1
 */
#include "config.h"
#include "base/clock.h"
#include "device/cuda_device.h"
#include "test/unit/gpu.h"
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIECES = 64 * 1024 };

typedef enum { TO_HOST, TO_DEVICE, INSIDE, TO_PAGES, FROM_PAGES, WAYS } way_t;

static const char *const path_names[] = {"device to pinned", "pinned to device", "inside a device", "device to pages",
                                         "pages to device"};

typedef struct bench {
    size_t        total;
    unsigned      rounds;
    char          *device, *other, *host, *pages; /* each total bytes */
    kvcl_copier_t *copier;
    CUstream      stream;
    kvcl_piece_t  *pieces;
    size_t        n, bytes; /* of a list */
} bench_t;

static void die(const char *what)
{
    fprintf(stderr, "gpu_bench: %s: %s\n", what, kvcl_last_error());
    exit(1);
}

static char *far_end(const bench_t *b, way_t way, bool dst)
{
    if (way == INSIDE) {
        return dst ? b->other : b->device;
    }
    if (dst != ((way == TO_HOST) || (way == TO_PAGES))) {
        return b->device;
    }
    return ((way == TO_HOST) || (way == TO_DEVICE)) ? b->host : b->pages;
}

/* List the source's pieces in another order, so that no two are neighbours on both sides. */
static void list(bench_t *b, way_t way, size_t size)
{
    size_t i;

    b->n     = (b->total / size < MOST_PIECES) ? b->total / size : MOST_PIECES;
    b->bytes = b->n * size;
    for (i = 0; i < b->n; ++i) {
        size_t from  = (b->n > 1) ? (i * 7919) % (b->n - 1) : 0;
        b->pieces[i] = (kvcl_piece_t){(uintptr_t)far_end(b, way, true) + (i * size),
                                      (uintptr_t)far_end(b, way, false) + (from * size), size};
    }
}

static void by_library(bench_t *b, way_t way)
{
    kvcl_copier_t *dst = ((way == TO_HOST) || (way == TO_PAGES)) ? NULL : b->copier;
    kvcl_copier_t *src = ((way == TO_DEVICE) || (way == FROM_PAGES)) ? NULL : b->copier;
    size_t        at, n;

    for (at = 0; at < b->n; at += n) {
        n = (b->n - at < KVCL_COPIER_BATCH) ? b->n - at : KVCL_COPIER_BATCH;
        if (kvcl_copier_copy(dst, src, b->pieces + at, n) != KVCL_OK) {
            die("a copy");
        }
    }
}

static void by_kernel(bench_t *b, way_t way)
{
    kvcl_cuda_most = (kvcl_cuda_most_t){KVCL_CUDA_SLOT_BYTES, KVCL_CUDA_SLOT_BYTES, KVCL_CUDA_SLOT_BYTES};
    by_library(b, way);
}

static void by_calls(bench_t *b, way_t way)
{
    size_t i;

    (void)way;
    for (i = 0; i < b->n; ++i) {
        gpu_copy(0, b->stream, (void *)(uintptr_t)b->pieces[i].dst, (void *)(uintptr_t)b->pieces[i].src,
                 b->pieces[i].len);
    }
    gpu_sync(0, b->stream);
}

static void at_once(bench_t *b, way_t way)
{
    gpu_copy(0, b->stream, far_end(b, way, true), far_end(b, way, false), b->bytes);
    gpu_sync(0, b->stream);
}

/* GB/s of the best round. */
static double measure(bench_t *b, way_t way, void (*fn)(bench_t *b, way_t way))
{
    uint64_t best = UINT64_MAX, start, took;
    unsigned i;

    for (i = 0; i <= b->rounds; ++i) { /* the first round warms up */
        start = kvcl_now_ns();
        fn(b, way);
        took = kvcl_now_ns() - start;
        best = ((i > 0) && (took < best)) ? took : best;
    }
    return (double)b->bytes / (double)best;
}

static void read_all(const bench_t *b, char *dst, const char *src)
{
    if ((src == b->device) || (src == b->other)) {
        gpu_read(0, dst, src, b->bytes);
    } else {
        memcpy(dst, src, b->bytes);
    }
}

/* Compare the bytes; no measured path changes far_end's source. */
static void check(bench_t *b, way_t way, const char *name)
{
    char   *dst = malloc(b->bytes), *src = malloc(b->bytes);
    size_t i;

    read_all(b, dst, far_end(b, way, true));
    read_all(b, src, far_end(b, way, false));
    for (i = 0; i < b->n; ++i) {
        if (memcmp(dst + (b->pieces[i].dst - (uintptr_t)far_end(b, way, true)),
                   src + (b->pieces[i].src - (uintptr_t)far_end(b, way, false)), b->pieces[i].len) != 0) {
            fprintf(stderr, "gpu_bench: %s, %s: piece %zu of %zu bytes is wrong\n", path_names[way], name, i,
                    (size_t)b->pieces[i].len);
            exit(1);
        }
    }
    free(dst);
    free(src);
}

static void write_all(const bench_t *b, char *dst, const void *src)
{
    if ((dst == b->device) || (dst == b->other)) {
        gpu_write(0, dst, src, b->bytes);
    } else {
        memcpy(dst, src, b->bytes);
    }
}

static void fill(bench_t *b, way_t way)
{
    uint64_t word = 88172645463325252u + way, *words = malloc(b->bytes);
    size_t   i;

    for (i = 0; i < b->bytes / 8; ++i) {
        word    ^= word << 13;
        word    ^= word >> 7;
        word    ^= word << 17;
        words[i] = word;
    }
    write_all(b, far_end(b, way, false), words);
    memset(words, 0, b->bytes);
    write_all(b, far_end(b, way, true), words);
    free(words);
}

static void copies(bench_t *b, way_t way)
{
    static const char *const names[] = {"kernel", "calls"};
    void (*const fns[])(bench_t *b, way_t way) = {by_kernel, by_calls};
    const kvcl_cuda_most_t reckoned = kvcl_cuda_most;
    size_t   most = 0, size;
    double   rate[2];
    unsigned i;

    printf("\n%s, GB/s\n%10s %10s %10s %10s %10s\n", path_names[way], "piece", "kernel", "calls", "library", "at once");
    for (size = 256; size <= (size_t)1 << 20; size *= 2) {
        list(b, way, size);
        for (i = 0; i < 2; ++i) {
            fill(b, way);
            rate[i] = measure(b, way, fns[i]);
            check(b, way, names[i]);
        }
        kvcl_cuda_most = reckoned;
        printf("%10zu %10.2f %10.2f %10.2f", size, rate[0], rate[1], measure(b, way, by_library));
        check(b, way, "library");
        printf(" %10.2f\n", measure(b, way, at_once));
        fflush(stdout);
        most = (rate[0] > rate[1]) ? size : most;
    }
    printf("the kernel wins up to %zu bytes; the library takes it up to %zu\n", most,
           (way == INSIDE) ? reckoned.inside : (way < INSIDE) ? reckoned.pinned : reckoned.pages);
}

/* ---- kvcl_get between two caches of this rank ---- */

static void get_size(kvcl_comm_h comm, bench_t *b, kvcl_context_h ctx, size_t size)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(b->total / size, (uint32_t)size);
    size_t        n      = b->total / size, i;
    uint32_t      *ids   = malloc(2 * n * sizeof(*ids));
    void          *from  = b->device, *to = b->other;
    kvcl_cache_params_t from_memory = {.size = sizeof(from_memory), .kind = KVCL_MEM_CUDA, .n_bases = 1, .bases = &from,
                                       .base_bytes = &b->total};
    kvcl_cache_params_t to_memory = {.size = sizeof(to_memory), .kind = KVCL_MEM_CUDA, .n_bases = 1, .bases = &to,
                                     .base_bytes = &b->total};
    uint64_t      best   = UINT64_MAX, start, took;
    kvcl_cache_h  theirs, mine;
    kvcl_sel_t    remote = {.blocks = ids, .n_blocks = n}, local = {.blocks = ids + n, .n_blocks = n};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h    req;
    unsigned      round;

    for (i = 0; i < n; ++i) {
        ids[i]     = (uint32_t)((n > 1) ? (i * 7919) % (n - 1) : 0);
        ids[n + i] = (uint32_t)i;
    }
    if ((kvcl_cache_create(ctx, "from", &layout, &from_memory, &theirs) != KVCL_OK) ||
        (kvcl_cache_create(ctx, "to", &layout, &to_memory, &mine) != KVCL_OK)) {
        die("kvcl_cache_create");
    }
    params.remote_cache = "from";
    for (round = 0; round <= b->rounds; ++round) {
        start = kvcl_now_ns();
        if ((kvcl_get(comm, 0, mine, &remote, &local, &params, &req) != KVCL_OK) ||
            (kvcl_req_wait(req, KVCL_WAIT_FOREVER) != KVCL_OK)) {
            die("kvcl_get");
        }
        took = kvcl_now_ns() - start;
        best = ((round > 0) && (took < best)) ? took : best;
    }
    printf("%10zu %10.2f\n", size, (double)b->total / (double)best);
    kvcl_cache_destroy(mine);
    kvcl_cache_destroy(theirs);
    free(ids);
}

static void gets(bench_t *b)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;
    kvcl_comm_h        comm;
    size_t             size;

    params.path = "loop";
    if ((kvcl_init(&params, &ctx) != KVCL_OK) || (kvcl_comm_world(ctx, &comm) != KVCL_OK)) {
        die("kvcl_init");
    }
    printf("\nkvcl_get from one cache of the device into another, random order, GB/s\n%10s %10s\n", "block", "get");
    for (size = 1024; size <= (size_t)1 << 20; size *= 4) {
        get_size(comm, b, ctx, size);
    }
    kvcl_finalize(ctx);
}

int main(int argc, char **argv)
{
    bool       fake = (argc > 1) && (strcmp(argv[1], "--fake") == 0);
    bench_t    b    = {.total = (size_t)(fake ? 4 : (argc > 1) ? strtoul(argv[1], NULL, 10) : 256) << 20,
                       .rounds = fake ? 1 : 5};
    const char *why = gpu_open(!fake);
    char       name[128];
    way_t      way;

    if (why != NULL) {
        printf("SKIP: no GPU here: %s\n", why);
        return 77;
    }
    gpu_name(0, name, sizeof(name));
    printf("%s; lists of %zu MiB, best of %u\n", name, b.total >> 20, b.rounds);
    b.device = gpu_malloc(0, b.total);
    b.other  = gpu_malloc(0, b.total);
    b.host   = gpu_pinned(0, b.total);
    b.pages  = malloc(b.total);
    b.stream = gpu_stream(0);
    b.pieces = malloc(b.total / 256 * sizeof(*b.pieces));
    if (kvcl_copier_open(KVCL_MEM_CUDA, b.device, b.total, &b.copier) != KVCL_OK) {
        die("kvcl_copier_open");
    }
    for (way = TO_HOST; way < WAYS; ++way) {
        copies(&b, way);
    }
    gets(&b);
    kvcl_copier_close(b.copier);
    gpu_stream_end(0, b.stream);
    gpu_pinned_free(0, b.host);
    free(b.pages);
    gpu_free(0, b.other);
    gpu_free(0, b.device);
    free(b.pieces);
    return 0;
}
