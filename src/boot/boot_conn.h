/*
 * A connection of the meeting's server, and the server itself as boot_server.c and boot_conn.c share it. No
 * one else includes this.
 *
 * Invariants: unproven counts the connections in HELLO, JOIN or CLOSING; rank >= 0 exactly in MEMBER; the
 * list is ordered by age. Only the serving thread touches anything here but `stop` and the counters, which
 * are atomic; there is no lock.
 */
#ifndef KVCL_BOOT_CONN_H
#define KVCL_BOOT_CONN_H

#include "base/list.h"
#include "boot/boot_meeting.h"
#include "boot/boot_server.h"
#include "boot/boot_wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { KVCL_CONN_OUT_MAX = 512 };

typedef enum { KVCL_CONN_HELLO, KVCL_CONN_JOIN, KVCL_CONN_MEMBER, KVCL_CONN_CLOSING } kvcl_conn_state_t;

typedef struct kvcl_conn {
    kvcl_list_t       link;
    int               fd;
    kvcl_conn_state_t state;
    int               rank;
    uint64_t          born_ns;
    uint64_t          deadline_ns;
    uint64_t          wait_ns;   /* MEMBER: the wait that ends at deadline_ns, as the member gave it */
    uint8_t           member_nonce[KVCL_BOOT_NONCE_LEN];
    uint8_t           server_nonce[KVCL_BOOT_NONCE_LEN];
    kvcl_boot_head_t  head;
    size_t            in_len;
    uint8_t           in[KVCL_BOOT_SMALL_MAX]; /* head, and the body if it is small */
    uint8_t          *big;                     /* the body if it is not: members only */
    int               wants_table;
    int               shut;      /* CLOSING: the local side is shut down, the rest is read and dropped */
    size_t            table_off; /* sent so far; the table goes before `out` */
    size_t            out_len;
    uint8_t           out[KVCL_CONN_OUT_MAX];
} kvcl_conn_t;

typedef struct kvcl_boot_counters {
    _Atomic uint64_t accepted, garbage, slow, auth, version, joins;
} kvcl_boot_counters_t;

struct kvcl_boot_server {
    kvcl_meeting_t       meeting;
    int                  listen_fd; /* -1 once the table is made or a member has left */
    int                  wake_fd;
    const uint8_t        *secret;   /* the starter's */
    uint64_t             id;
    uint64_t             hello_ns;
    uint64_t             accept_after_ns; /* out of descriptors: do not try before; 0: now */
    kvcl_list_t          conns;
    size_t               count;
    size_t               unproven;
    struct pollfd       *pfds;
    size_t               pfd_cap;
    atomic_int           stop;
    kvcl_boot_counters_t counters;
    pthread_t            thread;
};

/** Read and serve. Returns 0 if the connection is closed (only this one: others may change state, but stay). */
int kvcl_conn_read(kvcl_boot_server_t *server, kvcl_conn_t *conn);

/** Send as much as the socket accepts. Returns 0 if the connection is closed. */
int kvcl_conn_write(kvcl_boot_server_t *server, kvcl_conn_t *conn);

int kvcl_conn_has_output(const kvcl_boot_server_t *server, const kvcl_conn_t *conn);

/** Its deadline passed. An unproven connection is dropped; a member's wait ends for all waiting members, with the names
 * of the missing ranks. */
void kvcl_conn_expire(kvcl_boot_server_t *server, kvcl_conn_t *conn);

/** Close and free it; its rank, if any, has left. counter may be NULL. */
void kvcl_conn_drop(kvcl_boot_server_t *server, kvcl_conn_t *conn, _Atomic uint64_t *counter);

#endif
