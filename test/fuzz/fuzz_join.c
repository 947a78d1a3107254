/*
 * What a process that joins is answered, and what it asks, from hostile bytes: what is read is packed again to the same
 * bytes, and its addresses lie within them. With an odd first byte the head is made plausible, so that the members are
 * read.
 */
#include "config.h"

#include "enter/join_wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 12 + (8 * KVCL_JOIN_TIMES) + 4 };

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void read_answer(const uint8_t *bytes, size_t len)
{
    static kvcl_join_answer_t answer;
    uint8_t                   *again;
    uint32_t                  i;

    if (kvcl_join_answer_unpack(bytes, len, &answer) != KVCL_OK) {
        return;
    }
    for (i = 0; i < answer.n_members; ++i) {
        must((answer.members[i].address >= bytes) && (answer.members[i].len <= len) &&
             (answer.members[i].address + answer.members[i].len <= bytes + len));
    }
    again = malloc(len);
    must((again != NULL) && (kvcl_join_answer_pack(&answer, again, len) == len) && (memcmp(again, bytes, len) == 0));
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size + 1); /* separate memory, so that ASan detects reads past its end */
    int32_t slot;

    if (size > 0) {
        memcpy(copy, data, size);
    }
    read_answer(copy, size);
    if (size >= KVCL_JOIN_QUESTION) {
        if (kvcl_join_question_unpack(copy, 6, &slot) == KVCL_OK) {
            must((slot >= -1) && (slot < KVCL_JOIN_SLOTS_MAX));
        }
    }
    if ((size > HEAD) && (data[0] % 2 != 0)) {
        memset(copy, 0, 12);
        copy[4]        = 3; /* slot 3 of 8 */
        copy[8]        = 8;
        copy[HEAD - 4] = (uint8_t)(1 + (copy[HEAD - 4] % 7));
        memset(copy + HEAD - 3, 0, 3);
        read_answer(copy, size);
    }
    free(copy);
    return 0;
}
