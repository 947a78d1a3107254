/*
 * The clients of one rank of kvcl_serve: processes that are no ranks of its job, which connect to the address in a file
 * and come and go while the job lives (client_wire.h).
 */
#ifndef KVCL_TOOLS_SERVE_CLIENTS_H
#define KVCL_TOOLS_SERVE_CLIENTS_H

#include "tools/job.h"
#include "tools/serve/client.h"

typedef struct serve_clients serve_clients_t;

/* Writes this rank's address to the file ("%r" in it is the rank; replaced as a whole) and accepts clients from then
 * on. False: job_complain() has said why. */
bool serve_clients_open(const job_t *job, kvcl_store_h store, const char *file, uint64_t buffer_bytes,
                        serve_clients_t **clients_p);

/* Removes the file, ends all sessions, waits for their threads (at most about a second). NULL is allowed. */
void serve_clients_close(serve_clients_t *clients);

#endif
