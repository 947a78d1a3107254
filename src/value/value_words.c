/*
 * The error sentences of puts of values: the value of the call, its key, the failed step, and what to do. No state.
 */
#include "config.h"
#include "base/error.h"
#include "store/words.h"
#include "value/value.h"

static const char *remedy(kvcl_status_t status)
{
    return (status == KVCL_ERR_NO_SPACE)    ? "; unpin or remove blocks, wait for room with KVCL_PUT_WAIT, or open the "
                                              "store with more dram_bytes"
           : (status == KVCL_ERR_TIMED_OUT) ? "; put fewer bytes at once, or give a longer timeout_ns"
                                            : "";
}

kvcl_status_t kvcl_value_put_failed(kvcl_status_t status, const char *call, size_t i, size_t n,
                                    const kvcl_value_head_t *head)
{
    return kvcl_fail(status, "%s: value %zu of %zu, %llu bytes, key %016llx...: %s%s", call, i, n,
                     (unsigned long long)head->bytes, kvcl_key_prefix(&head->key), kvcl_last_error(), remedy(status));
}

kvcl_status_t kvcl_value_puts_failed(kvcl_status_t status, const char *call, const char *step, size_t n)
{
    return kvcl_fail(status, "%s: %s of %zu values: %s%s", call, step, n, kvcl_last_error(), remedy(status));
}
