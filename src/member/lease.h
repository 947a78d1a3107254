/*
 * The right of this rank to own, for the rooms above, whether or not KVCL_VIEWS is on. They learn of views by
 * kvcl_room_t.view.
 *
 * A rank owns (lists records as a home, removes keys) only while it has a lease: view/views.h. A room asks before each
 * such act, since a rank that was stopped must not go on with an old answer.
 */
#ifndef KVCL_MEMBER_LEASE_H
#define KVCL_MEMBER_LEASE_H

#include "core/context.h"
#include "view/view.h"

/** Is KVCL_VIEWS on? Any thread. */
bool kvcl_member_has_views(kvcl_context_h ctx);

/** NULL: there are no views, or none yet. Engine lock held. */
const kvcl_view_t *kvcl_member_view(kvcl_context_h ctx);

/** Has this rank a lease now? Without views always. Engine lock held. */
bool kvcl_member_has_lease(kvcl_context_h ctx);

/** Have the others excluded this rank? It never owns again, and hears nothing of views. Engine lock held. */
bool kvcl_member_is_excluded(kvcl_context_h ctx);

#endif
