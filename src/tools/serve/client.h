/*
 * One client of kvcl_serve (client_wire.h): its communicator, its buffer, and the thread that answers it. Requests are
 * hostile until checked: a malformed one ends the client's session.
 */
#ifndef KVCL_TOOLS_SERVE_CLIENT_H
#define KVCL_TOOLS_SERVE_CLIENT_H

#include "tools/serve/client_wire.h"
#include <kvcl/kvcl.h>

#include <stdbool.h>

typedef struct serve_client serve_client_t;

/* What the clients of a server said of themselves: the distinct texts, the oldest replaced first. Any thread. */
typedef struct serve_texts serve_texts_t;

serve_texts_t *serve_texts_new(void); /* NULL: no memory */
void          serve_texts_free(serve_texts_t *texts);

/* Starts a thread that answers the client until it leaves or serve_client_stop(). inter is the client's from now on,
 * also on failure. buffer_bytes: of its buffer, and the most that a block may have. NULL: no memory or no thread. */
serve_client_t *serve_client_new(kvcl_context_h ctx, kvcl_store_h store, kvcl_comm_h inter, uint64_t number,
                                 uint64_t buffer_bytes, serve_texts_t *texts);
bool           serve_client_ended(serve_client_t *client);
void           serve_client_stop(serve_client_t *client); /* ends the waiting for a request; does not wait */
void           serve_client_free(serve_client_t *client); /* after stop, or once it has ended: waits for the thread */

#endif
