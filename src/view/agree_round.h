/*
 * A round of an agreement, as the leader of a view gathers it (agree.h): the ranks that have given, and the value that
 * follows. Pure.
 */
#ifndef KVCL_VIEW_AGREE_ROUND_H
#define KVCL_VIEW_AGREE_ROUND_H

#include "view/agree.h"

/** A new view: nobody has given anything. */
void kvcl_agree_round_clear(kvcl_agree_round_t *round);

/** A rank gives. @return whether that is new: one that gave another call may give its own later, before the value is
 * proposed, and not the other way round. */
bool kvcl_agree_round_take(kvcl_agree_round_t *round, uint32_t from, uint64_t accepted,
                           const kvcl_agree_value_t *value);

/** All of these have given: the value. */
kvcl_agree_value_t kvcl_agree_round_value(const kvcl_agree_round_t *round, const kvcl_rankset_t *living);

#endif
