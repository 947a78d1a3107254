/*
 * The part of a replay for --kill. The rank to be killed has a timer that sends it SIGKILL, or obeys an order of the
 * watcher (RANK@held), and reports each served request to the watcher, the lowest survivor. The survivors continue,
 * then share its remaining requests. watch.h describes the watcher's measurements.
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

/* The rank will serve request number next. */
void death_served(death_t *death, size_t next);

/* Collective over the survivors: waits until the rank has failed. *first_p: the first of its requests that was not
 * served. On the rank itself: waits until it dies. */
bool death_await(death_t *death, size_t *first_p);

/* The survivors as a separate job. */
const job_t *death_left(const death_t *death);

/* Collective over the survivors: waits until the watcher has finished; adds its wrong blocks. */
bool death_end(death_t *death, tally_t *tally);

/* The watcher's results; on the watcher, after death_end(). */
const kill_report_t *death_report(const death_t *death);

void death_close(death_t *death);

#endif
