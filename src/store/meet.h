/*
 * The meeting of the ranks that open a store together (meet.c). A rank that comes to an open store meets the others in
 * another way: grow/part.h. No lock held.
 */
#ifndef KVCL_STORE_MEET_H
#define KVCL_STORE_MEET_H

#include "base/error.h"
#include "store/store.h"

/** Collective. The ranks that meet: all of the store's communicator; with views those that are members, on whom all of
 * them agree. *meeting_p: own, or another one that the caller frees. */
kvcl_status_t kvcl_meet_find(kvcl_comm_h own, kvcl_comm_h *meeting_p) KVCL_MUST_CHECK;

/** Collective: all ranks succeed or all fail. A rank that could not open its part takes part as well, and gets the
 * status of that failure, whose sentence is in why. */
kvcl_status_t kvcl_meet_all(kvcl_store_h store, kvcl_comm_h meeting, kvcl_status_t opened,
                            kvcl_sentence_t *why) KVCL_MUST_CHECK;

/** The first failure of a row of steps, and its sentence, which later steps overwrite. */
kvcl_status_t kvcl_meet_first_failure(kvcl_status_t before, kvcl_status_t status, kvcl_sentence_t *why) KVCL_MUST_CHECK;

#endif
