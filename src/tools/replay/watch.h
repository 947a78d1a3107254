/*
 * What a killed rank costs, seen by a thread of another rank beside its work. It hears from that rank what it has
 * served, looks up what it holds shortly before its time, pins some of that wherever it lies (so that no eviction is
 * taken for a loss), and then gets these blocks one by one, again and again, verified, until all came from their other
 * copies and have as many copies as there shall be.
 *
 * The thread is the only user of the watch between watch_start() and watch_end() but for watch_await(). It holds
 * worker->get_lock over each get.
 */
#ifndef KVCL_TOOLS_REPLAY_WATCH_H
#define KVCL_TOOLS_REPLAY_WATCH_H

#include "tools/replay/worker.h"

#define WATCH_TAG     UINT64_C(0x7365727665640000) /* "served": the killed rank's words */
#define WATCH_MOST_NS UINT64_C(30000000000)        /* of watching, after the kill */

typedef struct watch watch_t;

/* False after the error was printed; *watch_p is to be closed all the same. */
bool watch_open(worker_t *worker, watch_t **watch_p);
bool watch_start(watch_t *watch);

/* Wait until the rank is gone, timeout_ns at most; false as well if it went before its time. *next_p: the first of its
 * requests that it has not served. */
bool watch_await(watch_t *watch, uint64_t timeout_ns, uint64_t *next_p);

/* Wait for the thread, which has its own end. */
void                watch_end(watch_t *watch);
const kill_report_t *watch_report(const watch_t *watch);
void                watch_close(watch_t *watch); /* the thread as well; NULL is allowed */

#endif
