/*
 * The reader of decision logs on any line: it ends within the line, and a refusal has words and a column of the line.
 */
#include "config.h"
#include "tools/sim/log/log_read.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char kinds[] = "deogptf";
    static log_call_t call;
    log_cursor_t      c;
    char              *line;

    if (size == 0) {
        return 0;
    }
    line = malloc(size);
    if (line == NULL) {
        return 0;
    }
    memcpy(line, data + 1, size - 1);
    line[size - 1] = '\0';
    log_cursor(&c, line);
    if (!log_read_call(&c, kinds[data[0] % (sizeof(kinds) - 1)], &call) &&
        ((c.error == NULL) || (c.column == 0) || (c.column > strlen(line) + 1))) {
        abort();
    }
    log_free_call(&call);
    free(line);
    return 0;
}
