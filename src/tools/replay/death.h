/*
 * What --kill adds to a replay. The rank that is to die has a timer that sends it SIGKILL, and tells the watcher after
 * each request that it has served it. The others go on, then share what it has left. The watcher is the lowest of the
 * ranks that are left; what it sees is in watch.h.
 *
 * All functions: false after the error was printed. death may be NULL where nothing is returned.
 */
#ifndef KVCL_TOOLS_REPLAY_DEATH_H
#define KVCL_TOOLS_REPLAY_DEATH_H

#include "tools/replay/worker.h"

/* Before the run, with the store open. *death_p is set even on failure: for death_close(). */
bool death_open(worker_t *worker, death_t **death_p);

/* The run begins: the time counts from worker->start_ns. */
bool death_start(death_t *death);

/* The rank's next request is number next. */
void death_served(death_t *death, size_t next);

/* Collective over those that are left: until the rank is gone. *first_p: the first of its requests that nobody
 * has served. On the rank itself: until it dies. */
bool death_await(death_t *death, size_t *first_p);

/* The ranks that are left, as a job of their own. */
const job_t *death_left(const death_t *death);

/* Collective over those that are left: until the watcher has seen what it waits for; adds what it got wrong. */
bool death_end(death_t *death, tally_t *tally);

/* What it has seen; on the watcher, after death_end(). */
const kill_report_t *death_report(const death_t *death);

void death_close(death_t *death);

#endif
