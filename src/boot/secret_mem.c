/*
 * Pages for secrets (secret_mem.h), straight from the kernel: no allocator keeps a copy of their bytes.
 */
#include "config.h"
#include "boot/secret_mem.h"
#include "base/crypto.h"
#include "base/log.h"

#include <sys/mman.h>

void *kvcl_secret_mem_alloc(size_t len)
{
    void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mem == MAP_FAILED) {
        return NULL;
    }
    if ((madvise(mem, len, MADV_DONTDUMP) != 0) || (madvise(mem, len, MADV_WIPEONFORK) != 0)) {
        kvcl_log_info("a secret may be in a core dump or a forked child: madvise: %m");
    }
    if (mlock(mem, len) != 0) {
        kvcl_log_debug("a secret may be written to swap: mlock: %m");
    }
    return mem;
}

void kvcl_secret_mem_free(void *mem, size_t len)
{
    if (mem != NULL) {
        kvcl_wipe(mem, len);
        (void)munmap(mem, len); /* unlocks it */
    }
}
