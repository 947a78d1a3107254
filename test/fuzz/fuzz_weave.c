/*
 * Lists of pieces for a woven copy, by every kernel: it copies the bytes that memcpy copies, and changes no other. The
 * input: the width, then for each piece a length (u16) and the shifts of both sides (u8 each). Both sides are allocated
 * to the length of the list, so that a sanitizer notices an access outside.
 */
#include "config.h"
#include "weave/weave.h"

#include "base/wirebuf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_PIECES = 64, SIDE = 64 };

typedef struct list {
    size_t  n;
    size_t  at[MAX_PIECES], from[MAX_PIECES], len[MAX_PIECES]; /* offsets */
    size_t  to_bytes, from_bytes;
} list_t;

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

static void read_list(list_t *list, kvcl_rd_t *rd)
{
    size_t to = 0, from = 0;

    for (list->n = 0; (list->n < MAX_PIECES) && (kvcl_rd_left(rd) >= 4); ++list->n) {
        list->len[list->n]  = kvcl_rd_u16(rd) % 5000;
        list->at[list->n]   = to + (kvcl_rd_u8(rd) % SIDE);
        list->from[list->n] = from + (kvcl_rd_u8(rd) % SIDE);
        to                  = list->at[list->n] + list->len[list->n];
        from                = list->from[list->n] + list->len[list->n];
    }
    list->to_bytes   = to;
    list->from_bytes = from;
}

static void try_kernel(const kvcl_weave_kernel_t *kernel, unsigned width, const list_t *list, const uint8_t *from,
                       const uint8_t *expected)
{
    uint8_t            *to = malloc(list->to_bytes + 1);
    kvcl_weave_piece_t pieces[MAX_PIECES];
    size_t             i;

    require(to != NULL);
    memset(to, 0x5a, list->to_bytes);
    for (i = 0; i < list->n; ++i) {
        pieces[i] = (kvcl_weave_piece_t){to + list->at[i], from + list->from[i], list->len[i]};
    }
    kvcl_weave_copy(kernel, width, pieces, list->n);
    kernel->end();
    require(memcmp(to, expected, list->to_bytes) == 0);
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    list_t    list;
    kvcl_rd_t rd;
    uint8_t   *from, *expected;
    unsigned  width;
    size_t    i;

    if (size < 1) {
        return 0;
    }
    kvcl_rd_init(&rd, data, size);
    width = kvcl_rd_u8(&rd) % 6;
    read_list(&list, &rd);
    from     = malloc(list.from_bytes + 1);
    expected = malloc(list.to_bytes + 1);
    require((from != NULL) && (expected != NULL));
    for (i = 0; i < list.from_bytes; ++i) {
        from[i] = (uint8_t)(i * 131 + (i >> 8));
    }
    memset(expected, 0x5a, list.to_bytes);
    for (i = 0; i < list.n; ++i) {
        memcpy(expected + list.at[i], from + list.from[i], list.len[i]);
    }
    for (i = 0; i < kvcl_weave_n_kernels; ++i) {
        if (kvcl_weave_kernels[i].supported()) {
            try_kernel(&kvcl_weave_kernels[i], width, &list, from, expected);
        }
    }
    free(from);
    free(expected);
    return 0;
}
