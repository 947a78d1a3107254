/*
 * The kernel's random bytes. The seeded generator is inline in rand.h.
 */
#include "config.h"
#include "base/rand.h"
#include "base/error.h"

#include <errno.h>
#include <sys/random.h>

kvcl_status_t kvcl_random_bytes(void *buf, size_t len)
{
    uint8_t *pos = (uint8_t *)buf;
    ssize_t  n;

    while (len > 0) {
        n = getrandom(pos, len, 0);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return kvcl_fail_errno(KVCL_ERR_IO, errno, "getrandom");
        }
        pos += n;
        len -= (size_t)n;
    }
    return KVCL_OK;
}
