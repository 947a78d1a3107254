/*
 * Revocations from hostile members: payloads as they come, and made ones that are taken. What is taken names members of
 * the job only, with this rank and the sender among them; each is told to others at most once, also when it comes again
 * after it was forgotten (KVCL_REVOKES_MAX), never to this rank nor to the sender.
 */
#include "config.h"

#include "base/wirebuf.h"
#include "view/revokes.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 70, ME = 65, FROM = 1 };

static kvcl_revokes_t revokes;
static kvcl_rankset_t told;
static unsigned       round_no, taken_in[UINT16_MAX + 2]; /* by communicator: the last round that took it */

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static bool tell(void *arg, uint32_t to, uint64_t comm, const kvcl_rankset_t *members)
{
    (void)arg;
    must((to < RANKS) && (to != ME) && (to != FROM) && (comm != 0) && kvcl_rankset_has(members, to));
    must(!kvcl_rankset_has(&told, to));
    kvcl_rankset_add(&told, to);
    return true;
}

static void take(const void *payload, size_t len, uint64_t comm)
{
    kvcl_rankset_t members;
    bool           known;

    if (!kvcl_revokes_unpack(payload, len, RANKS, FROM, ME, &members)) {
        return;
    }
    known          = (taken_in[comm] == round_no);
    taken_in[comm] = round_no;
    memset(&told, 0, sizeof(told));
    must(kvcl_revokes_take(&revokes, comm, &members, FROM) != known);
    must(known || kvcl_revokes_has(&revokes, comm));
    must(kvcl_rankset_count(&told) == (known ? 0u : kvcl_rankset_count(&members) - 2));
    memset(&told, 0xff, sizeof(told)); /* none is told again */
    kvcl_revokes_again(&revokes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const kvcl_revokes_ops_t ops = {.tell = tell};
    kvcl_rankset_t                  set;
    uint8_t                         *copy = malloc(size + 1); /* separate, so that ASan detects reads past its end */
    kvcl_rd_t                       rd;

    ++round_no;
    kvcl_revokes_init(&revokes, ME, &ops, NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    take(copy, size, 1);
    free(copy);
    kvcl_rd_init(&rd, data, size);
    while ((rd.pos < rd.end) && !rd.failed) {
        memset(&set, 0, sizeof(set));
        set.word[0] = kvcl_rd_u8(&rd) | (1u << FROM);
        set.word[1] = (kvcl_rd_u8(&rd) % 128u) | (1u << (ME % 64));
        take(&set, sizeof(set), 1 + kvcl_rd_u16(&rd));
    }
    return 0;
}
