/*
 * Owns the timer of the rank to be killed or its recv of the order to die, its reports of served requests, and the job
 * of the survivors.
 */
#include "config.h"
#include "tools/replay/death.h"

#include "tools/clock.h"
#include "tools/replay/watch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATE_NS  UINT64_C(30000000000)       /* limit for a killed rank to disappear */
#define ORDER_NS UINT64_C(86400000000000000) /* 1,000 days: the run may be long */

struct death {
    worker_t    *worker;
    job_t       left;
    kvcl_comm_h comm;    /* left.world, once created */
    int         victim;
    watch_t     *watch;  /* on the watcher */
    timer_t     timer;
    bool        timed;
    uint64_t    next;    /* on the rank to be killed: the report */
    kvcl_req_h  notified;
    kvcl_req_h  order;   /* on the rank to be killed: receives the watcher's order, or NULL */
    char        text[8];
};

static bool is_victim(const death_t *death)
{
    return death->worker->job->rank == death->victim;
}

static bool is_watcher(const death_t *death)
{
    return death->worker->job->rank == ((death->victim == 0) ? 1 : 0);
}

/* Needs no message, so the survivors depend on no other rank. */
static bool make_left(death_t *death)
{
    const job_t *job   = death->worker->job;
    int         *ranks = calloc((size_t)job->size, sizeof(*ranks));
    int         n      = 0, i;
    bool        good;

    if (ranks == NULL) {
        job_complain(job, "out of memory");
        return false;
    }
    for (i = 0; i < job->size; ++i) {
        if (i != death->victim) {
            ranks[n++] = i;
        }
    }
    good = job_ok(job, kvcl_comm_create(job->world, ranks, n, &death->comm), "kvcl_comm_create");
    free(ranks);
    if (good) {
        death->left       = *job;
        death->left.world = death->comm;
        death->left.rank  = kvcl_comm_rank(death->comm);
        death->left.size  = kvcl_comm_size(death->comm);
    }
    return good;
}

bool death_open(worker_t *worker, death_t **death_p)
{
    death_t *death = calloc(1, sizeof(*death));

    *death_p = death;
    if (death == NULL) {
        job_complain(worker->job, "out of memory");
        return false;
    }
    death->worker = worker;
    death->victim = worker->opt->kill_rank;
    death->left   = *worker->job;
    if (is_victim(death)) {
        return true;
    }
    return make_left(death) && (!is_watcher(death) || watch_open(worker, &death->watch));
}

/* The kernel ends the process in any state of its threads. */
static bool set_timer(death_t *death)
{
    const uint64_t    at    = death->worker->start_ns + death->worker->opt->kill_ns;
    struct itimerspec when  = {.it_value = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)}};
    struct sigevent   event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};

    death->timed = (timer_create(CLOCK_MONOTONIC, &event, &death->timer) == 0);
    if (!death->timed || (timer_settime(death->timer, TIMER_ABSTIME, &when, NULL) != 0)) {
        job_complain(death->worker->job, "--kill: cannot create a timer");
        return false;
    }
    return true;
}

static void die(void *arg, kvcl_status_t status)
{
    (void)arg;
    if (status == KVCL_OK) {
        kill(getpid(), SIGKILL);
    }
}

/* The watcher decides about the moment. */
static bool await_order(death_t *death)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = ORDER_NS;
    params.cb         = die;
    return job_ok(death->worker->job,
                  kvcl_recv_bytes(death->worker->job->world, (death->victim == 0) ? 1 : 0, STRIKE_TAG, death->text,
                                  sizeof(death->text), &params, &death->order),
                  "kvcl_recv_bytes");
}

bool death_start(death_t *death)
{
    if (is_victim(death)) {
        death->next = (uint64_t)death->victim;
        return (death->worker->opt->kill_ns == REPLAY_KILL_HELD) ? await_order(death) : set_timer(death);
    }
    return !is_watcher(death) || watch_start(death->watch);
}

void death_served(death_t *death, size_t next)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    if ((death == NULL) || !is_victim(death)) {
        return;
    }
    if ((death->notified != NULL) && (kvcl_req_test(death->notified) == KVCL_INPROGRESS)) {
        return; /* a later report includes it; unreported requests are served again */
    }
    death->notified   = NULL;
    death->next       = next;
    params.timeout_ns = death->worker->timeout_ns;
    if (kvcl_send_bytes(death->worker->job->world, (death->victim == 0) ? 1 : 0, WATCH_TAG, &death->next,
                        sizeof(death->next), &params, &death->notified) != KVCL_OK) {
        death->notified = NULL;
    }
}

/* The time from now until the rank must have failed. */
static uint64_t time_left(const death_t *death)
{
    const uint64_t now = clock_ns();
    uint64_t       end = now; /* RANK@held: requests have been served, so it holds blocks */

    if (death->worker->opt->kill_ns != REPLAY_KILL_HELD) {
        end = death->worker->start_ns + death->worker->opt->kill_ns;
    }
    end += LATE_NS;
    return (end > now) ? end - now : 1;
}

static void sleep_ns(uint64_t ns)
{
    const struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

    nanosleep(&pause, NULL);
}

bool death_await(death_t *death, size_t *first_p)
{
    uint64_t mine = 0, *all;
    bool     good;

    if (is_victim(death)) {
        sleep_ns(time_left(death));
        job_complain(death->worker->job, "--kill: SIGKILL did not arrive");
        return false;
    }
    if (is_watcher(death) && !watch_await(death->watch, time_left(death), &mine)) {
        job_complain(death->worker->job, "--kill: rank %d did not die, or failed before its time", death->victim);
        return false;
    }
    all  = calloc((size_t)death->left.size, sizeof(*all));
    good = (all != NULL) && job_gather(&death->left, &mine, sizeof(mine), all,
                                       time_left(death) + death->worker->timeout_ns);
    *first_p = good ? (size_t)all[0] : 0; /* the watcher is the first survivor */
    free(all);
    return good;
}

const job_t *death_left(const death_t *death)
{
    return &death->left;
}

bool death_end(death_t *death, tally_t *tally)
{
    if (is_watcher(death)) {
        watch_end(death->watch);
        tally->wrong += watch_report(death->watch)->wrong;
    }
    return job_barrier(&death->left, WATCH_MOST_NS + death->worker->timeout_ns);
}

const kill_report_t *death_report(const death_t *death)
{
    return ((death != NULL) && (death->watch != NULL)) ? watch_report(death->watch) : NULL;
}

void death_close(death_t *death)
{
    if (death == NULL) {
        return;
    }
    if (death->timed) {
        timer_delete(death->timer);
    }
    watch_close(death->watch);
    if (death->notified != NULL) {
        kvcl_req_cancel(death->notified);
        (void)!job_finish(death->notified, JOB_TIMEOUT_NS);
    }
    if (death->order != NULL) {
        kvcl_req_cancel(death->order);
        (void)!job_finish(death->order, JOB_TIMEOUT_NS);
    }
    kvcl_comm_free(death->comm);
    free(death);
}
