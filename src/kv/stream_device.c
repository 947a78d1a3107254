/*
 * Gather, scatter and checksum of a stream over device memory: through its copier, many pieces a call.
 *
 * A device may fail. A gather or scatter then returns less than was asked for; a checksum returns a number that equals
 * no other, so what was published with it or is compared with it is never taken for good.
 * Locks: none; a stream belongs to one thread.
 */
#include "base/checksum.h"
#include "base/clock.h"
#include "kv/stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { SUM_CHUNK = 1 << 20 }; /* bytes that are fetched at a time to be summed */

size_t kvcl_stream_by_device(kvcl_stream_t *stream, uintptr_t buf, size_t len, int push)
{
    kvcl_piece_t batch[KVCL_COPIER_BATCH];
    size_t done = 0, at = 0, n = 1, run;
    kvcl_status_t status = KVCL_OK;
    uintptr_t addr;

    while ((at < len) && (n > 0) && (status == KVCL_OK)) {
        for (n = 0; (at < len) && (n < KVCL_COPIER_BATCH) &&
                    ((run = kvcl_stream_next(stream, len - at, &addr)) > 0); ++n) {
            batch[n] = push ? (kvcl_piece_t){addr, buf + at, run} : (kvcl_piece_t){buf + at, addr, run};
            at += run;
        }
        status = kvcl_copier_copy(push ? stream->copier : NULL, push ? NULL : stream->copier, batch, n);
        done = (status == KVCL_OK) ? at : done;
    }
    return done;
}

static uint64_t no_sum(void)
{
    static _Atomic uint64_t calls;
    uint64_t words[3] = {atomic_fetch_add(&calls, 1), kvcl_now_ns(), (uint64_t)getpid()};

    return kvcl_checksum(words, sizeof(words));
}

uint64_t kvcl_stream_checksum_by_device(kvcl_stream_t *stream, uint64_t len)
{
    size_t room = (len < SUM_CHUNK) ? (size_t)len : SUM_CHUNK;
    uint8_t *bytes = malloc(room + 1);
    kvcl_checksum_state_t state;
    uint64_t left = len;
    size_t want;

    if (bytes == NULL) {
        return no_sum();
    }
    kvcl_checksum_init(&state);
    while (left > 0) {
        want = (left < room) ? (size_t)left : room;
        if (kvcl_stream_gather(stream, bytes, want) != want) {
            break;
        }
        kvcl_checksum_update(&state, bytes, want);
        left -= want;
    }
    free(bytes);
    return (left == 0) ? kvcl_checksum_digest(&state) : no_sum();
}
