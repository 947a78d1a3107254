/*
 * The number of operations of communicators that have failed in this process: those that were bound to one
 * (kvcl_req_bind), and collectives that were refused at once. If two counts are equal, none has failed between them.
 * Any thread.
 */
#ifndef KVCL_REQ_FAILURES_H
#define KVCL_REQ_FAILURES_H

#include <stdint.h>

uint64_t kvcl_req_failures(void);
void     kvcl_req_count_failure(void);

#endif
