/*
 * The serving side of a tcp meeting: a thread of one rank that lets the others in and hands out the blobs.
 *
 * A connection keeps a fixed 1 KiB until it has proven the job secret; at most KVCL_BOOT_UNPROVEN_MAX of
 * them exist, each for at most the hello time. What is no meeting's greeting is dropped and counted.
 * Thread: start and stop by one thread; the counters may be read by any.
 */
#ifndef KVCL_BOOT_SERVER_H
#define KVCL_BOOT_SERVER_H

#include "base/crypto.h"

#include <stdint.h>

enum { KVCL_BOOT_UNPROVEN_MAX = 64 };

typedef struct kvcl_boot_server kvcl_boot_server_t;

typedef struct kvcl_boot_server_params {
    int            listen_fd; /* owned by the server from start on, also if start fails */
    int            size;
    const uint8_t *secret;    /* must outlive the server */
    uint64_t       hello_ns;  /* time to prove the secret; 0: 5 s */
} kvcl_boot_server_params_t;

typedef struct kvcl_boot_server_stats {
    uint64_t accepted;
    uint64_t garbage; /* dropped: another protocol */
    uint64_t slow;    /* dropped: did not prove the secret in time, or pushed out by newer ones */
    uint64_t auth;    /* refused: wrong secret */
    uint64_t version; /* refused: another wire version */
    uint64_t joins;   /* refused: rank taken, another size, all here */
} kvcl_boot_server_stats_t;

kvcl_status_t kvcl_boot_server_start(const kvcl_boot_server_params_t *params, kvcl_boot_server_t **server_p)
        KVCL_MUST_CHECK;

/** Flush what members are still being sent (at most some seconds), close all, join the thread. NULL is fine. */
void kvcl_boot_server_stop(kvcl_boot_server_t *server);

void kvcl_boot_server_stats(const kvcl_boot_server_t *server, kvcl_boot_server_stats_t *stats);

#endif
