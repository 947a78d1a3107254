/*
 * The blob by which rank 0 gives the other ranks the job's random id and secret, where the launcher or the caller's
 * store carries it (pmix, oob). With a secret file it holds only the secret's hash, so that a rank with another file,
 * or none, is detected. Without one it holds rank 0's public value, by which the secret is agreed (boot_agree.h). Pure
 * but for the random bytes and the file.
 */
#ifndef KVCL_BOOT_INVITE_H
#define KVCL_BOOT_INVITE_H

#include "base/crypto.h"

#include <stdbool.h>

enum { KVCL_INVITE_LEN = 2 + 1 + 8 + KVCL_SHA256_LEN };

typedef struct kvcl_invite {
    uint64_t id;
    uint8_t  *secret; /* the caller's KVCL_SHA256_LEN bytes, which make fills, and accept from a file */
    uint8_t  *pub;    /* the caller's KVCL_SHA256_LEN bytes: make sends them if there is no file, accept fills them */
    bool     agreed;  /* set by accept: rank 0 has no file, so the secret is agreed. Also set where accept fails
                         because this rank has a file */
} kvcl_invite_t;

/** Rank 0: choose id and secret (from the file if it is not NULL) and write what the others get. */
kvcl_status_t kvcl_invite_make(const char *secret_file, kvcl_invite_t *invite, uint8_t wire[KVCL_INVITE_LEN])
        KVCL_MUST_CHECK;

/**
 * The others: read it. @return KVCL_OK, KVCL_ERR_AUTH (rank 0 uses a secret file and we another or none, or
 * the reverse), KVCL_ERR_VERSION, KVCL_ERR_PROTOCOL, or what the file's check says.
 */
kvcl_status_t kvcl_invite_accept(const void *wire, size_t len, const char *secret_file, kvcl_invite_t *invite)
        KVCL_MUST_CHECK;

#endif
