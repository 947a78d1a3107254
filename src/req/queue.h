/*
 * Completion queues (kvcl_req.h): requests whose ends are drained together.
 *
 * A request that was posted with a queue joins it: the queue holds it in place of the user. When it is final it is put
 * into the queue's list, and stays until kvcl_req_drain has copied its record, or the queue is destroyed. So nothing is
 * allocated when a request ends, and a queue has room for all that were posted.
 */
#ifndef KVCL_REQ_QUEUE_H
#define KVCL_REQ_QUEUE_H

#include "req/req.h"

/** First of a posting call whose params name a queue: the time of its record counts from here, on this thread. */
void kvcl_queue_begin(void);

/** The request, which has been started or is final already, is the queue's. Its user, if any, no longer holds it. */
void kvcl_queue_join(kvcl_req_t *req, const kvcl_xfer_params_t *p);

/** It is final: into the list. The caller holds the request as well. With or without the engine lock. */
void kvcl_queue_put(kvcl_req_t *req);

#endif
