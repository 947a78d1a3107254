/*
 * kvcl_sim's reader of CSV traces on any bytes: what it accepts is within the limits, what it refuses has a sentence
 * and leaves nothing.
 */
#include "config.h"
#include "tools/sim/work/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t copy[4096];
    char           error[WORK_ERROR_MAX];
    work_t         work;
    FILE           *file;
    size_t         i;

    size = (size < sizeof(copy)) ? size : sizeof(copy);
    if (size == 0) {
        return 0;
    }
    memcpy(copy, data, size);
    file = fmemopen(copy, size, "r");
    if (file == NULL) {
        return 0;
    }
    error[0] = '\0';
    work_init(&work);
    if (!work_read_csv(&work, file, "fuzz", 100, error) && ((error[0] == '\0') || (work.n != 0))) {
        abort();
    }
    for (i = 0; i < work.n; ++i) {
        if (!(work.requests[i].arrival >= 0) || (work.requests[i].input == 0) || (work.requests[i].output == 0) ||
            (work.requests[i].input > WORK_INPUT_MAX) || (work.requests[i].output > WORK_INPUT_MAX) ||
            (work.requests[i].klass > 31) || (work.requests[i].first + work.requests[i].n > work.n_blocks)) {
            abort();
        }
    }
    work_free(&work);
    fclose(file);
    return 0;
}
