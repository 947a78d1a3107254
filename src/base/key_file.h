/*
 * Files that hold a key, a secret or a token. Such a file must be a regular file, belong to the effective user,
 * give no access to group and others (mode 0600 or 0400), and have a length within bounds. A symbolic link is followed,
 * as mounts of secrets in containers need it: the file that it leads to is checked.
 *
 * key_file.c needs nothing but the C library: the tools have it too.
 */
#ifndef KVCL_BASE_KEY_FILE_H
#define KVCL_BASE_KEY_FILE_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

/* What the sentences say about a kind of file. */
typedef struct kvcl_key_file {
    const char *what;    /* "secret file": each sentence begins with it */
    const char *make;    /* a command that prints fit bytes */
    const char *also;    /* ends the remedy: ", the same on all ranks", or "" */
    size_t     min, max; /* bytes */
} kvcl_key_file_t;

/**
 * Read a file whole. buf: kind->max + 1 bytes, which the caller wipes, also after a failure.
 * @return KVCL_OK, *len_p of kind->min to kind->max; KVCL_ERR_NOT_FOUND, KVCL_ERR_ACCESS (the file is not fit),
 *         KVCL_ERR_IO: `why` has the sentence, with the file's name and the remedy.
 */
kvcl_status_t kvcl_key_file_read(const kvcl_key_file_t *kind, const char *path, void *buf, size_t *len_p, char *why,
                                 size_t why_size);

/**
 * The SHA-256 of a file. Its bytes are wiped.
 * @return as above, and KVCL_ERR_NO_MEMORY; the sentence is set.
 */
kvcl_status_t kvcl_key_file_digest(const kvcl_key_file_t *kind, const char *path, uint8_t digest[32]);

#endif
