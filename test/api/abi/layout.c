/*
 * Checks sizes and offsets of the public structs against table.h, which existing programs were built with: a member
 * that was moved, removed or inserted in between fails here.
 */
#include <kvcl/kvcl.h>

#include <stddef.h>
#include <stdio.h>

static const struct {
    const char *what;
    size_t     now, table;
} rows[] = {
#define STRUCT(_type, _size)           {"sizeof " #_type, sizeof(_type), (_size)},
#define MEMBER(_type, _member, _offset) {#_type "." #_member, offsetof(_type, _member), (_offset)},
#include "test/api/abi/table.h"
};

int main(void)
{
    size_t   i;
    unsigned failed = 0;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        if (rows[i].now != rows[i].table) {
            printf("%s is %zu, it was %zu\n", rows[i].what, rows[i].now, rows[i].table);
            ++failed;
        }
    }
    if (failed != 0) {
        printf("programs that are built already go by the old numbers: members come at the end (contrib/doc/adding)\n");
    }
    printf("%zu passed, %u failed, 0 skipped\n", i - failed, failed);
    return (failed == 0) ? 0 : 1;
}
