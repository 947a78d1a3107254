/*
 * Measures how fast the tier writes and reads blocks, and how fast it finds them again: one line of numbers for each.
 *
 *   tier_bench PATH BYTES BLOCK DEPTH SECONDS [uring|threads [read]]
 *
 * Blocks are written until the file has been turned over once (its space is then allocated on the disk), then for
 * SECONDS, with a flush at the end. Then they are read at random for SECONDS, straight into registered memory, and
 * verified: DEPTH by the disk at a time, and as many again waiting or being summed. Then the tier is closed and opened
 * again. "read" reads an existing file and writes nothing. contrib/bench/tier/run does the same and runs fio in
 * comparison.
 */
#include "config.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/rand.h"
#include "tier/tier.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench {
    pthread_mutex_t    lock;
    pthread_cond_t     cond;
    unsigned           flying;
    uint64_t           ended, failed;
    kvcl_tier_params_t params;
    kvcl_tier_t        *tier;
    uint32_t           block;
    uint64_t           seconds, next;  /* the next block's key */
    kvcl_tier_item_t   *items;         /* items to read */
    size_t             n_items;
    uint64_t           until_ns;       /* start of the last reads */
    uint8_t            *mem;
} bench_t;

typedef struct slot {
    bench_t     *bench;
    uint8_t     *buf;
    kvcl_rand_t rnd;
} slot_t;

static void die(const char *what)
{
    fprintf(stderr, "tier_bench: %s: %s\n", what, kvcl_last_error());
    exit(1);
}

static void key_of(uint64_t i, uint8_t *key)
{
    memset(key, 0, KVCL_SEG_KEY);
    memcpy(key, &i, sizeof(i));
}

static void ended(void *arg, kvcl_status_t status)
{
    slot_t  *slot  = arg;
    bench_t *bench = slot->bench;

    pthread_mutex_lock(&bench->lock);
    --bench->flying;
    ++bench->ended;
    bench->failed += status != KVCL_OK;
    pthread_cond_signal(&bench->cond);
    pthread_mutex_unlock(&bench->lock);
}

static void wait_all(bench_t *bench)
{
    pthread_mutex_lock(&bench->lock);
    while (bench->flying > 0) {
        pthread_cond_wait(&bench->cond, &bench->lock);
    }
    pthread_mutex_unlock(&bench->lock);
}

/* The log accepts blocks as fast as chunks become free: waiting for one append's write is waiting for room. */
static uint64_t write_until(bench_t *bench, uint64_t bytes, uint64_t deadline_ns)
{
    uint64_t     sum = kvcl_checksum(bench->mem, bench->block), done = 0, begin = kvcl_now_ns();
    slot_t       flush = {.bench = bench};
    uint8_t      key[KVCL_SEG_KEY];

    while ((done < bytes) && (kvcl_now_ns() < deadline_ns)) {
        struct timespec moment = {.tv_nsec = 100000};
        kvcl_status_t   status;

        key_of(bench->next, key);
        status = kvcl_tier_append(bench->tier, key, sum, bench->mem, bench->block, NULL, NULL, NULL);
        if (status == KVCL_ERR_BUSY) {
            nanosleep(&moment, NULL);
        } else if (status != KVCL_OK) {
            die("append");
        } else {
            ++bench->next;
            done += bench->block;
        }
    }
    bench->flying = 1;
    if (kvcl_tier_flush(bench->tier, ended, &flush) != KVCL_OK) {
        die("flush");
    }
    wait_all(bench);
    return done * 1000 / ((kvcl_now_ns() - begin) / 1000000 + 1);
}

static void read_next(slot_t *slot);

/* The thread that ends a read starts the next one, as fio's does. */
static void read_ended(void *arg, kvcl_status_t status)
{
    slot_t  *slot  = arg;
    bench_t *bench = slot->bench;

    pthread_mutex_lock(&bench->lock);
    ++bench->ended;
    bench->failed += status != KVCL_OK;
    pthread_mutex_unlock(&bench->lock);
    if (kvcl_now_ns() < bench->until_ns) {
        read_next(slot);
        return;
    }
    pthread_mutex_lock(&bench->lock);
    --bench->flying;
    pthread_cond_signal(&bench->cond);
    pthread_mutex_unlock(&bench->lock);
}

static void read_next(slot_t *slot)
{
    bench_t                *bench = slot->bench;
    struct iovec           iov    = {slot->buf, bench->block};
    const kvcl_tier_item_t *item  = &bench->items[kvcl_rand_below(&slot->rnd, bench->n_items)];

    if (kvcl_tier_read(bench->tier, item->key, &item->loc, &iov, 1, read_ended, slot) != KVCL_OK) {
        die("read");
    }
}

static uint64_t read_for(bench_t *bench, uint64_t ns)
{
    unsigned n      = 2 * bench->params.depth, i;
    slot_t   *slots = calloc(n, sizeof(*slots));
    uint64_t begin  = kvcl_now_ns(), before = bench->ended;

    bench->until_ns = begin + ns;
    bench->flying   = n;
    for (i = 0; i < n; ++i) {
        slots[i] = (slot_t){.bench = bench, .buf = bench->mem + (size_t)(i + 1) * bench->block};
        kvcl_rand_seed(&slots[i].rnd, i + 1);
        read_next(&slots[i]);
    }
    wait_all(bench);
    free(slots);
    return (bench->ended - before) * bench->block * 1000 / ((kvcl_now_ns() - begin) / 1000000 + 1);
}

static void find_blocks(bench_t *bench)
{
    kvcl_tier_stats_t stats;
    uint64_t          it = 0;

    kvcl_tier_stats(bench->tier, &stats);
    bench->items   = calloc(stats.blocks + 1, sizeof(*bench->items));
    bench->n_items = (bench->items != NULL) ? kvcl_tier_walk(bench->tier, &it, bench->items, stats.blocks) : 0;
    if (bench->n_items == 0) {
        fprintf(stderr, "tier_bench: no blocks to read\n");
        exit(1);
    }
}

static void report(const char *what, uint64_t bytes_s)
{
    printf("%-6s %8.1f MB/s\n", what, (double)bytes_s / 1e6);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static bench_t    bench = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct iovec      mem;
    kvcl_tier_stats_t stats;
    uint64_t          begin;

    if (argc < 6) {
        fprintf(stderr, "usage: tier_bench PATH BYTES BLOCK DEPTH SECONDS [uring|threads [read]]\n");
        return 2;
    }
    bench.block   = (uint32_t)strtoul(argv[3], NULL, 0);
    bench.seconds = strtoull(argv[5], NULL, 0);
    bench.params  = (kvcl_tier_params_t){.path = argv[1], .size = strtoull(argv[2], NULL, 0), .mem = &mem, .n_mem = 1};
    bench.params.depth = (unsigned)strtoul(argv[4], NULL, 0);
    if (argc > 6) {
        bench.params.io = (strcmp(argv[6], "uring") == 0) ? &kvcl_tio_uring : &kvcl_tio_threads;
    }
    mem = (struct iovec){.iov_len = (size_t)((2 * bench.params.depth) + 1) * bench.block};
    mem.iov_base = aligned_alloc(4096, (mem.iov_len + 4095) / 4096 * 4096);
    bench.mem    = mem.iov_base;
    memset(bench.mem, 0x5c, mem.iov_len);
    if (kvcl_tier_open(&bench.params, &bench.tier) != KVCL_OK) {
        die("open");
    }
    if (argc <= 7) {
        bench.next = kvcl_now_ns(); /* keys that no earlier run has written */
        (void)write_until(&bench, bench.params.size, UINT64_MAX);
        report("write", write_until(&bench, UINT64_MAX, kvcl_deadline_after(bench.seconds * KVCL_NS_PER_SEC)));
    }
    find_blocks(&bench);
    report("read", read_for(&bench, bench.seconds * KVCL_NS_PER_SEC));
    kvcl_tier_stats(bench.tier, &stats);
    printf("amplification %.4f, %llu of %llu reads failed, by %s, %s\n",
           (stats.bytes_in != 0) ? (double)stats.bytes_out / (double)stats.bytes_in : 1,
           (unsigned long long)bench.failed,
           (unsigned long long)bench.ended, stats.io, stats.direct ? "O_DIRECT" : "buffered");
    kvcl_tier_close(bench.tier);
    begin = kvcl_now_ns();
    if (kvcl_tier_open(&bench.params, &bench.tier) != KVCL_OK) {
        die("open again");
    }
    begin = kvcl_now_ns() - begin;
    kvcl_tier_stats(bench.tier, &stats);
    printf("open: %.1f ms for %llu blocks in %u segments of %.1f MiB, %u scanned\n", (double)begin / 1e6,
           (unsigned long long)stats.blocks, stats.segments,
           (double)bench.params.size / stats.segments / 1048576, stats.scanned);
    kvcl_tier_close(bench.tier);
    free(bench.items);
    free(mem.iov_base);
    return bench.failed != 0;
}
