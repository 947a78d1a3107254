/*
 * The job secret: 32 bytes that only the ranks of a job know.
 *
 * A secret file has 16 bytes to 64 KiB and is the effective user's alone (base/key_file.h); its SHA-256 is the secret.
 * Owns nothing; any thread.
 */
#ifndef KVCL_BOOT_SECRET_H
#define KVCL_BOOT_SECRET_H

#include "base/crypto.h"

/** @return KVCL_OK, KVCL_ERR_NOT_FOUND, KVCL_ERR_ACCESS (with the remedy in the sentence), KVCL_ERR_IO. */
kvcl_status_t kvcl_secret_from_file(const char *path, uint8_t secret[KVCL_SHA256_LEN])
        KVCL_MUST_CHECK;

/**
 * The file that KVCL_SECRET_FILE or params.secret_file names.
 * @return as above, but KVCL_ERR_AUTH where the file is not there, or is not one to be trusted: that is what a job that
 *         cannot prove itself gets.
 */
kvcl_status_t kvcl_secret_named(const char *path, uint8_t secret[KVCL_SHA256_LEN]) KVCL_MUST_CHECK;

/**
 * The user's own secret, $HOME/.kvcl/secret, made 0600 by whichever process comes first. Fit for
 * processes of one user on one host (or one home).
 * @return as kvcl_secret_named; also KVCL_ERR_AUTH without a home directory, KVCL_ERR_IO where it cannot be made.
 */
kvcl_status_t kvcl_secret_of_user(uint8_t secret[KVCL_SHA256_LEN]) KVCL_MUST_CHECK;

/** As above in a given directory, which is made 0700 if it is not there. */
kvcl_status_t kvcl_secret_in_dir(const char *dir, uint8_t secret[KVCL_SHA256_LEN])
        KVCL_MUST_CHECK;

/** The file if one is named, else fresh random bytes: for kinds that can hand it to the others. */
kvcl_status_t kvcl_secret_or_random(const char *path, uint8_t secret[KVCL_SHA256_LEN])
        KVCL_MUST_CHECK;

#endif
