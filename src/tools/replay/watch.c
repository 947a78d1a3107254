/*
 * Owns the watching thread, its scratch block, and its report.
 *
 * lock guards next, gone, early and over, which watch_await() waits for. Times in the report are relative to the
 * planned moment of the kill by this rank's clock; the clocks of two ranks may differ by the time between their exits
 * from one barrier. other_ns is exact, since it counts gets begun after this rank detected the death.
 */
#include "config.h"
#include "tools/replay/watch.h"

#include "tools/clock.h"
#include "tools/pattern.h"
#include <kvcl/kvcl_store_admin.h>
#include <kvcl/kvcl_store_events.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEYS_MAX   = 128,  /* blocks watched */
    PAGE       = 1024, /* of a listing */
    HELD_MAX   = 1 << 22,
    HELD_MIN   = 16,   /* of a rank that is killed once it holds blocks */
    POOL_SHARE = 16    /* at most this part of a pool is watched, since it is pinned */
};
#define AHEAD_NS  UINT64_C(500000000)         /* lead time for listing the rank's blocks */
#define EARLY_NS  UINT64_C(2000000000)        /* clocks of two ranks differ by at most this, see above */
#define ROUND_NS  UINT64_C(5000000)           /* pause after each round of gets */
#define POLL_NS   UINT64_C(100000000)         /* pause between two lists of a rank that does not hold enough yet */
#define PIN_NS    (4 * WATCH_MOST_NS)
#define EVER_NS   UINT64_C(86400000000000000) /* 1,000 days: a report may never arrive */
#define HOLDER    UINT64_C(0x6b76636c2d726570)

struct watch {
    worker_t        *worker;
    int             victim;
    pthread_t       thread;
    bool            started;
    pthread_mutex_t lock;
    pthread_cond_t  cond;
    bool            gone;
    bool            early;      /* before its time */
    bool            over;
    atomic_bool     stop;
    uint64_t        next;
    uint64_t        strike_ns;  /* the moment itself; UINT64_MAX: not known yet */
    uint64_t        notified;   /* the latest report */
    kvcl_req_h      word;       /* receives the next report, or NULL */
    kvcl_cache_h    cache;      /* one block */
    uint8_t         *base;
    uint8_t         target;     /* copies of a block after repair */
    uint32_t        n;          /* blocks watched */
    kvcl_key_t      keys[KEYS_MAX];
    bool            first[KEYS_MAX];
    bool            other[KEYS_MAX];
    bool            whole[KEYS_MAX];
    kill_report_t   report;
};

bool watch_open(worker_t *worker, watch_t **watch_p)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(1, (uint32_t)worker->opt->block_bytes);
    watch_t             *watch = calloc(1, sizeof(*watch));
    pthread_condattr_t  attr;

    *watch_p = watch;
    if (watch == NULL) {
        job_complain(worker->job, "out of memory");
        return false;
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->cond, &attr);
    pthread_condattr_destroy(&attr);
    watch->worker = worker;
    watch->victim = worker->opt->kill_rank;
    watch->next   = (uint64_t)watch->victim;
    watch->target = (uint8_t)worker->opt->replicas;
    if (watch->target > worker->job->size - 1) {
        watch->target = (uint8_t)(worker->job->size - 1);
    }
    if (!job_ok(worker->job, kvcl_cache_create(worker->job->ctx, "watch", &layout, NULL, &watch->cache),
                "kvcl_cache_create")) {
        return false;
    }
    watch->base = kvcl_cache_base(watch->cache, 0);
    return true;
}

/* ---- reports of the rank to be killed ---- */

static bool listen(watch_t *watch)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = EVER_NS;
    return kvcl_recv_bytes(watch->worker->job->world, watch->victim, WATCH_TAG, &watch->notified,
                           sizeof(watch->notified), &params, &watch->word) == KVCL_OK;
}

static bool is_gone(const watch_t *watch)
{
    return watch->word == NULL;
}

/* Take the reports received, waiting for at most ns. A failed recv means that the rank has failed. */
static void hear(watch_t *watch, uint64_t ns)
{
    const uint64_t until = clock_ns() + ns;
    kvcl_status_t  status;
    uint64_t       now;

    while (!is_gone(watch)) {
        now    = clock_ns();
        status = kvcl_req_wait(watch->word, (now < until) ? until - now : 0);
        if (status == KVCL_ERR_WAIT_TIMEOUT) {
            return;
        }
        watch->word = NULL;
        pthread_mutex_lock(&watch->lock);
        if ((status == KVCL_OK) && (watch->notified > watch->next)) {
            watch->next = watch->notified;
        }
        pthread_mutex_unlock(&watch->lock);
        if ((status != KVCL_OK) || !listen(watch)) {
            watch->word = NULL;
            now         = clock_ns();
            watch->report.noticed_ns = (now > watch->strike_ns) ? now - watch->strike_ns : 1;
            pthread_mutex_lock(&watch->lock);
            watch->gone  = true;
            watch->early = (now < watch->strike_ns) && (watch->strike_ns - now > EARLY_NS);
            pthread_cond_signal(&watch->cond);
            pthread_mutex_unlock(&watch->lock);
        }
    }
}

/* Take reports until a point in time. False: stopped. */
static bool hear_until(watch_t *watch, uint64_t at_ns)
{
    uint64_t now;

    while (!atomic_load(&watch->stop) && ((now = clock_ns()) < at_ns)) {
        const uint64_t left = (at_ns - now < AHEAD_NS) ? at_ns - now : AHEAD_NS;
        if (is_gone(watch)) {
            return false;
        }
        hear(watch, left);
    }
    return !atomic_load(&watch->stop);
}

/* ---- its blocks ---- */

/* All keys that the rank holds; the caller frees them. */
static kvcl_key_t *list_held(watch_t *watch, size_t *n_p)
{
    kvcl_store_item_t *page = calloc(PAGE, sizeof(*page));
    kvcl_key_t        *keys = NULL, *more;
    uint64_t          cursor = 0;
    size_t            n = 0, some, i;

    *n_p = 0;
    do {
        if ((page == NULL) || (kvcl_store_list(watch->worker->store, watch->victim, &cursor, page, sizeof(*page), PAGE,
                                                &some, NULL,
                                               NULL) !=
                               KVCL_OK)) {
            break; /* watch the blocks listed so far */
        }
        more = realloc(keys, (n + some + 1) * sizeof(*keys));
        if (more == NULL) {
            break;
        }
        keys = more;
        for (i = 0; i < some; ++i) {
            keys[n++] = page[i].key;
        }
    } while ((cursor != 0) && (n < HELD_MAX) && !atomic_load(&watch->stop));
    free(page);
    *n_p = n;
    return keys;
}

static bool strikes(const watch_t *watch)
{
    return watch->worker->opt->kill_ns == REPLAY_KILL_HELD;
}

/* Choose some of them, spread over the list, and pin them: those with another copy are watched. */
static void choose(watch_t *watch)
{
    size_t             n_held, n, i;
    kvcl_key_t         *held = list_held(watch, &n_held), some[KEYS_MAX];
    kvcl_store_stats_t stats            = KVCL_STORE_STATS_INIT;
    uint8_t            copies[KEYS_MAX] = {0};

    KVCL_TRY(kvcl_store_stats(watch->worker->store, &stats));
    n = (stats.pool_blocks / POOL_SHARE < KEYS_MAX) ? (size_t)(stats.pool_blocks / POOL_SHARE) + 1 : KEYS_MAX;
    n = (n < n_held) ? n : n_held;
    for (i = 0; i < n; ++i) {
        some[i] = held[i * n_held / n];
    }
    free(held);
    watch->report.held  = n_held;
    watch->report.alone = 0;
    if ((n == 0) || (strikes(watch) && (n_held < HELD_MIN))) {
        return;
    }
    /* A block evicted meanwhile has no copies; this is not an error. */
    (void)!kvcl_store_pin(watch->worker->store, some, n, HOLDER, PIN_NS, 0, copies, NULL);
    for (i = 0; i < n; ++i) {
        if (copies[i] > 1) {
            watch->keys[watch->n++] = some[i];
        } else {
            watch->report.alone += copies[i];
        }
    }
    watch->report.watched = watch->n;
    if (strikes(watch) && (watch->n == 0)) { /* to be chosen again */
        (void)!kvcl_store_unpin(watch->worker->store, some, n, HOLDER, NULL);
    }
}

/* Wait until the rank holds blocks with other copies, and order it to die. False: stopped, or it is gone already. */
static bool strike(watch_t *watch)
{
    static const char  order[8] = "strike";
    kvcl_xfer_params_t params   = KVCL_XFER_PARAMS_INIT;

    while (watch->n == 0) {
        if (!hear_until(watch, clock_ns() + POLL_NS) || is_gone(watch)) {
            return false;
        }
        choose(watch);
    }
    watch->strike_ns  = clock_ns();
    params.timeout_ns = WATCH_MOST_NS;
    return kvcl_send_bytes(watch->worker->job->world, watch->victim, STRIKE_TAG, order, sizeof(order), &params, NULL) ==
           KVCL_OK;
}

/* ---- after the kill ---- */

static uint64_t since(const watch_t *watch, uint64_t now)
{
    return (now > watch->strike_ns) ? now - watch->strike_ns : 1;
}

static void get_one(watch_t *watch, uint32_t i)
{
    const uint32_t     id     = 0;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    const bool         gone   = is_gone(watch);
    kvcl_status_t      status;
    uint64_t           begun, ended;

    memset(watch->base, 0, watch->worker->opt->block_bytes);
    params.timeout_ns = WATCH_MOST_NS;
    pthread_mutex_lock(&watch->worker->get_lock);
    begun  = clock_ns();
    status = kvcl_store_get(watch->worker->store, &watch->keys[i], 1, watch->cache, &id, NULL, &params, &req);
    status = (status == KVCL_OK) ? job_finish(req, WATCH_MOST_NS) : status;
    ended  = clock_ns();
    pthread_mutex_unlock(&watch->worker->get_lock);
    ++watch->report.gets;
    watch->report.longest_ns = (ended - begun > watch->report.longest_ns) ? ended - begun : watch->report.longest_ns;
    if (status != KVCL_OK) {
        ++watch->report.failed;
        watch->report.last_failed_ns = since(watch, ended);
        return;
    }
    if (pattern_check(watch->keys[i].bytes, watch->base, watch->worker->opt->block_bytes) != PATTERN_GOOD) {
        ++watch->report.wrong;
        job_complain(watch->worker->job, "wrong bytes after the kill");
        return;
    }
    watch->first[i] = true;
    watch->other[i] = watch->other[i] || gone;
}

static bool all(const watch_t *watch, const bool *what)
{
    uint32_t i;

    for (i = 0; (i < watch->n) && what[i]; ++i) {
    }
    return i == watch->n;
}

static void note_time(const watch_t *watch, const bool *what, uint64_t *at_p)
{
    if ((*at_p == 0) && all(watch, what)) {
        *at_p = since(watch, clock_ns());
    }
}

/* Pinning again counts the copies. */
static void count_copies(watch_t *watch)
{
    uint8_t  copies[KEYS_MAX] = {0};
    uint32_t i;

    (void)!kvcl_store_pin(watch->worker->store, watch->keys, watch->n, HOLDER, PIN_NS, 0, copies, NULL);
    for (i = 0; i < watch->n; ++i) {
        watch->whole[i] = watch->whole[i] || (copies[i] >= watch->target);
    }
    note_time(watch, watch->whole, &watch->report.repaired_ns);
}

static bool seen_all(const watch_t *watch)
{
    return is_gone(watch) && ((watch->n == 0) || ((watch->report.other_ns != 0) &&
                                                  ((watch->report.repaired_ns != 0) || (watch->target < 2))));
}

static void look(watch_t *watch)
{
    const uint64_t end = watch->strike_ns + WATCH_MOST_NS;
    uint32_t       i;

    while (!seen_all(watch) && !atomic_load(&watch->stop) && (clock_ns() < end)) {
        for (i = 0; (i < watch->n) && !atomic_load(&watch->stop); ++i) {
            hear(watch, 0);
            get_one(watch, i);
        }
        note_time(watch, watch->first, &watch->report.first_ns);
        note_time(watch, watch->other, &watch->report.other_ns);
        if (is_gone(watch) && (watch->n != 0) && (watch->target > 1) && (watch->report.repaired_ns == 0)) {
            count_copies(watch);
        }
        if (is_gone(watch)) {
            const struct timespec pause = {.tv_nsec = (long)ROUND_NS};
            nanosleep(&pause, NULL);
        } else {
            hear(watch, ROUND_NS);
        }
    }
    for (i = 0; i < watch->n; ++i) {
        watch->report.lost += watch->other[i] ? 0 : 1;
    }
}

static void *run(void *arg)
{
    watch_t        *watch = arg;
    const uint64_t wait   = watch->worker->opt->kill_ns;

    if (strikes(watch)) {
        if (listen(watch) && strike(watch)) {
            look(watch);
        }
    } else if (listen(watch) && hear_until(watch, watch->strike_ns - ((wait < AHEAD_NS) ? wait / 2 : AHEAD_NS))) {
        choose(watch);
        if (hear_until(watch, watch->strike_ns)) {
            look(watch);
        }
    }
    if (watch->n != 0) {
        (void)!kvcl_store_unpin(watch->worker->store, watch->keys, watch->n, HOLDER, NULL);
    }
    pthread_mutex_lock(&watch->lock);
    watch->over = true;
    pthread_cond_signal(&watch->cond);
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* ---- functions of the worker ---- */

bool watch_start(watch_t *watch)
{
    watch->strike_ns = strikes(watch) ? UINT64_MAX : watch->worker->start_ns + watch->worker->opt->kill_ns;
    watch->started   = (pthread_create(&watch->thread, NULL, run, watch) == 0);
    if (!watch->started) {
        job_complain(watch->worker->job, "--kill: cannot start the watching thread");
    }
    return watch->started;
}

bool watch_await(watch_t *watch, uint64_t timeout_ns, uint64_t *next_p)
{
    const uint64_t        end  = clock_ns() + timeout_ns;
    const struct timespec when = {.tv_sec = (time_t)(end / 1000000000u), .tv_nsec = (long)(end % 1000000000u)};
    bool                  gone;

    pthread_mutex_lock(&watch->lock);
    while (!watch->gone && !watch->over && (pthread_cond_timedwait(&watch->cond, &watch->lock, &when) == 0)) {
    }
    gone    = watch->gone && !watch->early;
    *next_p = watch->next;
    pthread_mutex_unlock(&watch->lock);
    return gone;
}

void watch_end(watch_t *watch)
{
    if (watch->started) {
        pthread_join(watch->thread, NULL);
        watch->started = false;
    }
    watch->report.struck_ns = (watch->strike_ns != UINT64_MAX) ? watch->strike_ns - watch->worker->start_ns : 0;
    watch->report.served    = (watch->next - (uint64_t)watch->victim) / (uint64_t)watch->worker->job->size;
}

const kill_report_t *watch_report(const watch_t *watch)
{
    return &watch->report;
}

void watch_close(watch_t *watch)
{
    if (watch == NULL) {
        return;
    }
    atomic_store(&watch->stop, true);
    watch_end(watch);
    if (watch->word != NULL) {
        kvcl_req_cancel(watch->word);
        (void)!job_finish(watch->word, JOB_TIMEOUT_NS);
    }
    kvcl_cache_destroy(watch->cache);
    pthread_cond_destroy(&watch->cond);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}
