/*
 * The trace reader of kvcl_replay on any bytes: no line is read past its end, and accepted values are within the
 * limits.
 */
#include "config.h"
#include "tools/replay/trace.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t ids[TRACE_IDS_MAX];
    char            error[TRACE_ERROR_MAX];
    trace_request_t request;
    uint32_t        i;

    error[0] = '\0';
    if (trace_parse_line((const char *)data, size, &request, ids, error)) {
        if (request.n > TRACE_IDS_MAX) {
            abort();
        }
        for (i = 0; i < request.n; ++i) {
            if (ids[i] > (UINT64_C(1) << 53)) {
                abort();
            }
        }
    } else if ((error[0] == '\0') || (memchr(error, '\0', sizeof(error)) == NULL)) {
        abort();
    }
    return 0;
}
