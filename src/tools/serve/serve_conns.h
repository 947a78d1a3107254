/*
 * The connections of the HTTP server: how many there may be, in all and from one address, and how long a request and a
 * reply may take. A connection that must end is shut down; its thread then closes it. Any thread.
 */
#ifndef KVCL_TOOLS_SERVE_CONNS_H
#define KVCL_TOOLS_SERVE_CONNS_H

#include <stdbool.h>
#include <sys/socket.h>

enum {
    SERVE_CONNS_MAX     = 64, /* in all: the server's own limit must be higher */
    SERVE_CONNS_ADDRESS = 16, /* from one IPv4 address, or one IPv6 network of 64 bits */
    SERVE_REQUEST_S     = 5,  /* from the first byte of a connection, or the last reply, to a complete request */
    SERVE_REPLY_S       = 5   /* to send a reply */
};

typedef struct serve_conns serve_conns_t;
typedef struct serve_conn  serve_conn_t;

typedef enum serve_conn_state {
    SERVE_RECEIVING, /* no complete request yet */
    SERVE_BUILDING,  /* the reply is being made: it has no deadline here */
    SERVE_SENDING    /* the reply is on its way */
} serve_conn_state_t;

/* NULL: no memory, or no thread. */
serve_conns_t *serve_conns_new(void);
void          serve_conns_free(serve_conns_t *conns); /* all connections are removed. NULL is allowed */

/* A new connection, which receives. Where there are too many, the oldest one of the address with the most is shut
 * down. NULL: no memory; the caller shuts the new one down. fd: open until remove. */
serve_conn_t *serve_conns_add(serve_conns_t *conns, int fd, const struct sockaddr *address);
void         serve_conns_set(serve_conns_t *conns, serve_conn_t *conn, serve_conn_state_t state);
void         serve_conns_remove(serve_conns_t *conns, serve_conn_t *conn);

#endif
