/*
 * Gathering a round of an agreement: see agree_round.h.
 */
#include "config.h"
#include "view/agree_round.h"

#include <string.h>

void kvcl_agree_round_clear(kvcl_agree_round_t *round)
{
    memset(&round->gave, 0, sizeof(round->gave));
    memset(&round->agreed, 0, sizeof(round->agreed));
    memset(&round->others, 0, sizeof(round->others));
    round->summed   = false;
    round->proposed = false;
    round->best     = 0;
}

static void add(kvcl_agree_round_t *round, uint32_t from, const kvcl_agree_value_t *value)
{
    kvcl_agree_value_t *sum = &round->sum;

    if (!round->summed) {
        *sum               = *value;
        sum->names[0].slot = from;
        round->summed      = true;
        return;
    }
    if ((sum->call != value->call) && (sum->call != KVCL_AGREE_CALL_MIXED)) {
        sum->call          = KVCL_AGREE_CALL_MIXED;
        sum->names[1]      = value->names[0];
        sum->names[1].slot = from;
    }
    sum->flags &= value->flags;
    kvcl_rankset_keep(&sum->acked, &value->acked);
}

/* The name of one other call is kept, while its rank stands by it. */
static void add_other(kvcl_agree_round_t *round, uint32_t from, const kvcl_agree_value_t *value)
{
    if (!kvcl_rankset_has(&round->others, (uint32_t)round->other.slot)) {
        round->other      = value->names[0];
        round->other.slot = from;
    }
    kvcl_rankset_add(&round->others, from);
}

bool kvcl_agree_round_take(kvcl_agree_round_t *round, uint32_t from, uint64_t accepted,
                           const kvcl_agree_value_t *value)
{
    const bool again = kvcl_rankset_has(&round->gave, from);

    if (again && (!kvcl_rankset_has(&round->others, from) || round->proposed || (accepted != 0))) {
        return false;
    }
    kvcl_rankset_del(&round->others, from);
    if (accepted > round->best) {
        round->best       = accepted;
        round->best_value = *value;
    } else if ((accepted == 0) && (value->call == KVCL_AGREE_CALL_MIXED)) {
        add_other(round, from, value);
    } else if (accepted == 0) {
        add(round, from, value);
    }
    kvcl_rankset_add(&round->gave, from);
    return true;
}

kvcl_agree_value_t kvcl_agree_round_value(const kvcl_agree_round_t *round, const kvcl_rankset_t *living)
{
    kvcl_agree_value_t value = {.call = KVCL_AGREE_CALL_MIXED};

    if (round->best != 0) {
        return round->best_value;
    }
    if (round->summed) {
        value = round->sum;
    }
    value.members = *living;
    if (!kvcl_rankset_is_empty(&round->others)) {
        value.call     = KVCL_AGREE_CALL_MIXED;
        value.unlike   = 1;
        value.names[1] = kvcl_rankset_has(&round->others, (uint32_t)round->other.slot)
                             ? round->other : (kvcl_agree_name_t){.slot = KVCL_SLOT_NONE};
    }
    return value;
}
