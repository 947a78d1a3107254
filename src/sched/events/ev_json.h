/*
 * JSON as MessagePack, so that one decoder reads both. Bytes are hostile: nesting is bounded, nothing is recursive.
 * Pure.
 */
#ifndef KVCL_SCHED_EVENTS_EV_JSON_H
#define KVCL_SCHED_EVENTS_EV_JSON_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

/* Room for the MessagePack of len bytes of JSON: an empty list takes 5 bytes there and 2 here; 16 may be open. */
#define KVCL_EV_JSON_ROOM(_len) ((_len) / 2 * 5 + 128)

/**
 * Write one JSON value as MessagePack to out, of KVCL_EV_JSON_ROOM(len) bytes. Numbers with a fraction or an exponent,
 * and those beyond 64 bits, become nil. *len_p: its bytes.
 * @return KVCL_OK; KVCL_ERR_PROTOCOL: the sentence names the byte.
 */
kvcl_status_t kvcl_ev_json(const void *json, size_t len, uint8_t *out, size_t *len_p) KVCL_MUST_CHECK;

#endif
