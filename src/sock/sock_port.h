/*
 * A port that answers questions: a thread that listens at host:port. Each connection that proves the job's secret
 * (sock_stream.h, always sealed) asks one question of a fixed length, perhaps of no bytes, and gets one answer: its
 * length, u32, and its bytes. Then the connection is closed. sock_ask.h is the other side.
 *
 * A connection has KVCL_SOCK_SHAKE_NS; at most KVCL_SOCK_VISITORS are open. Another dismisses one at random, preferably
 * one that has sent nothing valid. The thread sleeps while nobody connects, and takes no lock of its own.
 */
#ifndef KVCL_SOCK_SOCK_PORT_H
#define KVCL_SOCK_SOCK_PORT_H

#include "base/clock.h"
#include "base/hostport.h"
#include "sock/sock_hs.h"

#include <stddef.h>

enum { KVCL_SOCK_VISITORS = 64, KVCL_SOCK_QUESTION_MAX = 64, KVCL_SOCK_ANSWER_MAX = 16 << 20 };
#define KVCL_SOCK_SHAKE_NS (5 * KVCL_NS_PER_SEC)

typedef struct kvcl_sock_port kvcl_sock_port_t;

typedef struct kvcl_sock_port_params {
    const char    *at;     /* host:port */
    const char    *what;   /* the call or the setting, for sentences */
    const uint8_t *secret; /* 32 bytes; must outlive the port */
    const uint8_t *id;     /* KVCL_SOCK_ID_LEN bytes: of all ports of this kind, since no client knows a port's own */
    size_t        question_len;
    /* In the port's thread. The answer, of 1 to KVCL_SOCK_ANSWER_MAX bytes, in memory of malloc(); NULL: the connection
     * is closed. The question is hostile only so far as whoever knows the secret is. */
    void          *(*answer)(void *arg, const void *question, size_t *len_p);
    void          *arg;
} kvcl_sock_port_params_t;

/**
 * @param [out] where  the host and the port that is listened on.
 * @return KVCL_OK, or as kvcl_hostport_listen(), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_sock_port_open(const kvcl_sock_port_params_t *params, char where[KVCL_HOSTPORT_MAX],
                                  kvcl_sock_port_t **port_p) KVCL_MUST_CHECK;
/** Accepts nobody from soon on. Does not wait. NULL is accepted. */
void kvcl_sock_port_stop(kvcl_sock_port_t *port);
/** Stop, wait for the thread, free. NULL is accepted. */
void kvcl_sock_port_close(kvcl_sock_port_t *port);

#endif
