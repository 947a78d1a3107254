/*
 * Maps UCX's status codes to KVCL's; UCX's version. Pure.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include <stdio.h>

kvcl_status_t kvcl_glue_status(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return KVCL_OK;
    case UCS_INPROGRESS:
        return KVCL_INPROGRESS;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
        return KVCL_ERR_NO_MEMORY;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
        return KVCL_ERR_INVALID_PARAM;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_SHMEM_SEGMENT: /* the peer's process has ended */
        return KVCL_ERR_UNREACHABLE;
    case UCS_ERR_MESSAGE_TRUNCATED:
        return KVCL_ERR_TRUNCATED;
    case UCS_ERR_BUSY:
        return KVCL_ERR_BUSY;
    case UCS_ERR_CANCELED:
        return KVCL_ERR_CANCELED;
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
        return KVCL_ERR_RANK_FAILED;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
        return KVCL_ERR_UNSUPPORTED;
    case UCS_ERR_IO_ERROR:
        return KVCL_ERR_IO;
    default:
        return (status > UCS_OK) ? KVCL_INPROGRESS : KVCL_ERR_INTERNAL;
    }
}

void kvcl_ucx_version(char *buf, size_t cap)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    snprintf(buf, cap, "%u.%u.%u", major, minor, release);
}
