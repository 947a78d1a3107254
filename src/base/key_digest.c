/*
 * The digest of a key file (key_file.h). Owns nothing; any thread. The file's bytes are on the heap for the time of the
 * call, and wiped before they are freed.
 */
#include "config.h"
#include "base/key_file.h"
#include "base/crypto.h"
#include "base/error.h"

#include <stdlib.h>

kvcl_status_t kvcl_key_file_digest(const kvcl_key_file_t *kind, const char *path, uint8_t digest[32])
{
    char          why[KVCL_ERROR_MAX];
    uint8_t       *buf = malloc(kind->max + 1);
    size_t        len  = 0;
    kvcl_status_t status;

    if (buf == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to read %s %s", kind->what, path);
    }
    status = kvcl_key_file_read(kind, path, buf, &len, why, sizeof(why));
    if (status == KVCL_OK) {
        kvcl_sha256(buf, len, digest);
    } else {
        (void)kvcl_fail(status, "%s", why);
    }
    kvcl_wipe(buf, kind->max + 1);
    free(buf);
    return status;
}
