/*
 * The port of KVCL_METRICS: a thread that answers GET /metrics over HTTP/1.1 with a text, and sleeps while nobody asks.
 *
 * Whoever connects is a stranger, who learns numbers and can do nothing else. A connection is for one request, of
 * KVCL_METRICS_REQUEST bytes at most, and is closed KVCL_METRICS_NS after it was accepted, whatever it has sent or
 * read. At most KVCL_METRICS_VISITORS are open; another one ends the oldest. The text is made at most once in
 * KVCL_METRICS_FRESH_NS, however many ask for it.
 */
#ifndef KVCL_METRICS_METRICS_PORT_H
#define KVCL_METRICS_METRICS_PORT_H

#include "base/clock.h"
#include "base/hostport.h"

#include <stdio.h>

enum { KVCL_METRICS_VISITORS = 16, KVCL_METRICS_REQUEST = 4096 };
#define KVCL_METRICS_NS       (10 * KVCL_NS_PER_SEC)
#define KVCL_METRICS_FRESH_NS (100 * KVCL_NS_PER_MS)

/* Writes the text. On the port's thread, without a lock; must not block for long. */
typedef void (*kvcl_metrics_write_t)(void *arg, FILE *text);

typedef struct kvcl_metrics_port kvcl_metrics_port_t;

/**
 * @param at       host:port; port 0: a free one. what: the setting, for the sentence.
 * @param [out] where  the host and the port that is listened on.
 * @return KVCL_OK, or as kvcl_hostport_listen(), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_metrics_port_open(const char *at, const char *what, kvcl_metrics_write_t write, void *arg,
                                     char where[KVCL_HOSTPORT_MAX], kvcl_metrics_port_t **port_p) KVCL_MUST_CHECK;
/** Stop, wait for the thread, free. NULL is accepted. */
void kvcl_metrics_port_close(kvcl_metrics_port_t *port);

#endif
