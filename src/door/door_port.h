/*
 * The port of a door: a thread that listens at host:port, and gives the context's packed address to each connection
 * that proves the job's secret (sock/sock_stream.h, always sealed), after its length, u32; then it closes the
 * connection.
 *
 * A connection has KVCL_DOOR_SHAKE_NS; at most KVCL_DOOR_VISITORS are open. Another dismisses one at random, preferably
 * one that has sent nothing valid. The thread sleeps while nobody connects, and takes no lock.
 */
#ifndef KVCL_DOOR_DOOR_PORT_H
#define KVCL_DOOR_DOOR_PORT_H

#include "base/clock.h"
#include "base/hostport.h"
#include "sock/sock_hs.h"

enum { KVCL_DOOR_VISITORS = 64 };
#define KVCL_DOOR_SHAKE_NS (5 * KVCL_NS_PER_SEC)

/* A port has no id that the other side could know before it connects: all have this one. */
extern const uint8_t kvcl_door_id[KVCL_SOCK_ID_LEN];

typedef struct kvcl_door_port kvcl_door_port_t;

/**
 * @param secret  32 bytes, must outlive the port. address: the bytes to give, copied.
 * @param [out] where  the host and the port that is listened on.
 * @return KVCL_OK, or as kvcl_hostport_listen(), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_door_port_open(const char *at, const uint8_t *secret, const void *address, size_t len,
                                  char where[KVCL_HOSTPORT_MAX], kvcl_door_port_t **port_p) KVCL_MUST_CHECK;
/** Accepts nobody from soon on. Does not wait. NULL is accepted. */
void kvcl_door_port_stop(kvcl_door_port_t *port);
/** Stop, wait for the thread, free. NULL is accepted. */
void kvcl_door_port_close(kvcl_door_port_t *port);

#endif
