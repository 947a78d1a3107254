/*
 * A tier over a real file, opened through the layer of faults. The bytes of block i derive from i, so every read is
 * verified.
 */
#ifndef TEST_TIER_SCENE_H
#define TEST_TIER_SCENE_H

#include "base/checksum.h"
#include "base/log.h"
#include "test_base.h"
#include "tier/tier.h"
#include "tier_fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { SEGMENT = 1024 * 1024, N_SEGMENTS = 8, LEN_MAX = 400 * 1024 };

#define FILE_BYTES (KVCL_SEG_HEAD + (uint64_t)N_SEGMENTS * SEGMENT)

typedef struct wait_for {
    pthread_mutex_t lock;
    pthread_cond_t  cond;
    unsigned        left;
    kvcl_status_t   status;
} wait_for_t;

static char                 path[64];
static kvcl_rand_t          rnd;
static const kvcl_tier_key_t *scene_key; /* of the file; NULL: none */
static _Atomic unsigned     n_gone, n_warned;
static const kvcl_tio_ops_t *const ways[] = {&kvcl_tio_threads, &kvcl_tio_uring};

static inline void on_gone(void *arg, const uint8_t *key, const kvcl_tier_loc_t *loc)
{
    (void)arg;
    (void)key;
    (void)loc;
    ++n_gone;
}

static inline void on_log(void *arg, kvcl_log_level_t level, const char *text)
{
    (void)arg;
    (void)text;
    n_warned += level <= KVCL_LOG_WARN;
}

static inline void done(void *arg, kvcl_status_t status)
{
    wait_for_t *w = arg;

    pthread_mutex_lock(&w->lock);
    w->status = (status != KVCL_OK) ? status : w->status;
    --w->left;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static inline kvcl_status_t wait_all(wait_for_t *w)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    pthread_mutex_lock(&w->lock);
    while (w->left > 0) {
        ck_assert_msg(pthread_cond_timedwait(&w->cond, &w->lock, &until) == 0, "a callback did not come");
    }
    pthread_mutex_unlock(&w->lock);
    return w->status;
}

#define WAIT_FOR(_n) {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .left = (_n)}

static inline void setup(void)
{
    int fd;

    test_seed(&rnd);
    scene_key = NULL;
    n_gone    = 0;
    n_warned  = 0;
    memset(&fault, 0, sizeof(fault));
    snprintf(path, sizeof(path), "test_tier.XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    kvcl_log_set_handler(on_log, NULL);
}

static inline void teardown(void)
{
    unlink(path);
    kvcl_log_set_handler(NULL, NULL);
}

static inline bool can(const kvcl_tio_ops_t *way)
{
    struct iovec mem = {path, sizeof(path)};
    kvcl_tio_t   *io;

    if (way->open(STDIN_FILENO, 2, &mem, 0, &io) != KVCL_OK) {
        printf("SKIP: no %s here\n", way->name);
        return false;
    }
    io->ops->close(io);
    return true;
}

static inline kvcl_tier_t *open_tier(const kvcl_tio_ops_t *way)
{
    kvcl_tier_params_t params = {.path = path, .size = FILE_BYTES, .segment = SEGMENT, .chunk = 64 * 1024,
                                 .staging = 1024 * 1024, .depth = 8, .gone = on_gone, .io = &fault_ops,
                                 .key = scene_key};
    kvcl_tier_t        *tier = NULL;

    fault.below = way;
    ck_assert_msg(kvcl_tier_open(&params, &tier) == KVCL_OK, "%s", kvcl_last_error());
    return tier;
}

static inline uint32_t len_of(unsigned i)
{
    uint64_t state = i;
    uint64_t x     = kvcl_splitmix64(&state);

    return (x % 4 == 0) ? 1 + (uint32_t)(x / 4 % LEN_MAX) : (x % 4 == 1) ? 4096 * (1 + (uint32_t)(x / 4 % 90))
                                                                         : 1 + (uint32_t)(x / 4 % 9000);
}

static inline void key_of(unsigned i, uint8_t *key)
{
    memset(key, 0x5a, KVCL_SEG_KEY);
    memcpy(key, &i, sizeof(i));
}

static inline void fill(unsigned i, uint8_t *buf)
{
    kvcl_rand_t r;
    uint32_t    at, len = len_of(i);

    kvcl_rand_seed(&r, i + 77);
    for (at = 0; at < len; at += 8) {
        uint64_t word = kvcl_rand_next(&r);

        memcpy(buf + at, &word, (len - at < 8) ? len - at : 8);
    }
}

static inline kvcl_status_t append(kvcl_tier_t *tier, unsigned i, kvcl_tier_cb_t cb, void *arg)
{
    static _Thread_local uint8_t buf[LEN_MAX + 8];
    uint8_t                      key[KVCL_SEG_KEY];
    kvcl_status_t                status;
    unsigned                     tries;

    key_of(i, key);
    fill(i, buf);
    for (tries = 0; tries < 20000; ++tries) {
        status = kvcl_tier_append(tier, key, kvcl_checksum(buf, len_of(i)), buf, len_of(i), cb, arg, NULL);
        if (status != KVCL_ERR_BUSY) {
            break;
        }
        usleep(500);
    }
    return status;
}

/* Read block i into memory at `shift` bytes from a page, in up to three extents. NOT_FOUND, or how the read ended. */
static inline kvcl_status_t read_back(kvcl_tier_t *tier, unsigned i, unsigned shift, unsigned extents)
{
    static _Thread_local uint8_t want[LEN_MAX + 8];
    uint8_t                      *room = aligned_alloc(4096, LEN_MAX + 3 * 4096), key[KVCL_SEG_KEY];
    uint32_t                     len   = len_of(i), cut = (extents > 1) ? len / extents / 4096 * 4096 : len;
    wait_for_t                   w     = WAIT_FOR(1);
    struct iovec                 iov[3];
    kvcl_tier_loc_t              loc;
    kvcl_status_t                status;
    unsigned                     n = 0;
    uint32_t                     at;

    for (at = 0; at < len; at += (uint32_t)iov[n++].iov_len) {
        bool more = (n + 1 < extents) && (cut > 0) && (at + cut < len);

        iov[n] = (struct iovec){room + shift + at, more ? cut : len - at};
    }
    key_of(i, key);
    memset(room + shift, 0xee, len);
    status = kvcl_tier_find(tier, key, &loc);
    if (status == KVCL_OK) {
        ck_assert_uint_eq(loc.len, len);
        status = kvcl_tier_read(tier, key, &loc, iov, n, done, &w);
        if (status == KVCL_OK) {
            status = wait_all(&w);
        }
    }
    if (status == KVCL_OK) {
        fill(i, want);
        ck_assert_msg(memcmp(room + shift, want, len) == 0, "wrong bytes of block %u", i);
    }
    free(room);
    return status;
}

static inline kvcl_status_t flush(kvcl_tier_t *tier)
{
    wait_for_t w = WAIT_FOR(1);

    ck_assert_int_eq(kvcl_tier_flush(tier, done, &w), KVCL_OK);
    return wait_all(&w);
}

#endif
