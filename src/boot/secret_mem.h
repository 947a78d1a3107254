/*
 * Memory for a secret: a page of its own that core dumps leave out, that a forked child reads as zeros, and that stays
 * out of swap if the process may lock memory. Owns nothing; any thread.
 */
#ifndef KVCL_BOOT_SECRET_MEM_H
#define KVCL_BOOT_SECRET_MEM_H

#include <stddef.h>

/** len bytes of zeros, at most a page. NULL: no memory. Not locked (RLIMIT_MEMLOCK) is not a failure. */
void *kvcl_secret_mem_alloc(size_t len);
/** Wipe and free. NULL is accepted. */
void kvcl_secret_mem_free(void *mem, size_t len);

#endif
