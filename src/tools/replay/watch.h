/*
 * The effects of a killed rank, measured by a separate thread of another rank. The thread receives the rank's reports
 * of served requests. Shortly before the kill it lists the rank's blocks, and pins some of them on all holders, so that
 * no eviction is mistaken for a loss. Then it gets and verifies these blocks one by one, repeatedly, until all have
 * been fetched from their other copies and have all their copies again. With RANK@held it lists them again and again,
 * and sends the order to die once the rank holds enough blocks and others have copies of some.
 *
 * The thread is the only user of the watch between watch_start() and watch_end() but for watch_await(). It holds
 * worker->get_lock over each get.
 */
#ifndef KVCL_TOOLS_REPLAY_WATCH_H
#define KVCL_TOOLS_REPLAY_WATCH_H

#include "tools/replay/worker.h"

#define WATCH_TAG     UINT64_C(0x7365727665640000) /* "served": reports of the rank to be killed */
#define STRIKE_TAG    UINT64_C(0x737472696b650000) /* "strike": to the rank to be killed */
#define WATCH_MOST_NS UINT64_C(30000000000)        /* of watching, after the kill */

typedef struct watch watch_t;

/* False after the error was printed; the caller closes *watch_p even then. */
bool watch_open(worker_t *worker, watch_t **watch_p);
bool watch_start(watch_t *watch);

/* Wait until the rank has failed, at most timeout_ns; false also if it failed before its time. *next_p: the first of
 * its requests that it has not served. */
bool watch_await(watch_t *watch, uint64_t timeout_ns, uint64_t *next_p);

/* Wait for the thread, which ends by itself. */
void                watch_end(watch_t *watch);
const kill_report_t *watch_report(const watch_t *watch);
void                watch_close(watch_t *watch); /* also ends the thread; NULL is allowed */

#endif
