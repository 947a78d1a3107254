/*
 * The numbers of a source's messages. Pure, except that a sequence that begins again drops the source's blocks.
 *
 * Live messages have rising numbers. `next` is the first number that is missing, `top` the one behind the newest live
 * message: equal, nothing is missing. After a gap live messages are applied although earlier ones are missing; a replay
 * then brings all from `next` on, these too, and its last word on each block is the right one.
 */
#include "config.h"

#include "sched/index/idx.h"

static bool live(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint64_t number)
{
    if (number < source->top) {
        kvcl_idx_begin_anew(index, source);
        ++source->info.restarts;
    }
    source->info.gaps += (number > source->top);
    if (number == source->next) {
        ++source->next;
    }
    source->top = number + 1;
    return true;
}

bool kvcl_idx_sequence(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint64_t number, bool replayed)
{
    if (!replayed) {
        return live(index, source, number);
    }
    if (number < source->next) {
        ++source->info.repeated;
        return false;
    }
    if (number > source->next) { /* the publisher does not keep them any more */
        source->info.lost += number - source->next;
        source->lossy = true;
    }
    source->next = number + 1;
    source->top  = (source->top < source->next) ? source->next : source->top;
    return true;
}

void kvcl_idx_sequence_end(kvcl_idx_source_t *source)
{
    if (source->next != source->top) {
        source->info.lost += source->top - source->next;
        source->lossy = true;
        source->next  = source->top;
    }
}

void kvcl_idx_sequence_cleared(kvcl_idx_source_t *source, uint64_t number, bool replayed)
{
    source->lossy = false;
    if (!replayed) {
        source->next = number + 1;
        source->top  = number + 1;
    }
}
