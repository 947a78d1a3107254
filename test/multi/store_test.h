/*
 * Shared by the store's multi-rank tests: blocks whose bytes follow from their key, and the tests of all files.
 */
#ifndef KVCL_TEST_STORE_TEST_H
#define KVCL_TEST_STORE_TEST_H

#include "world.h"
#include "base/clock.h"
#include "base/rand.h"

enum { BLOCK = 4096 };

kvcl_key_t key_of(const char *what, uint64_t owner, uint64_t i);
void       fill(kvcl_cache_h cache, uint32_t block, const kvcl_key_t *key);
bool       holds(kvcl_cache_h cache, uint32_t block, const kvcl_key_t *key);
/** A cache of opaque blocks of BLOCK bytes, or (structured) of KV layers of the same size. */
kvcl_cache_h make_cache(world_t *w, const char *name, uint64_t blocks, bool structured);
/** A store with a pool of this many blocks, and a tier (params.nvme). */
kvcl_store_h open_with_pool(world_t *w, uint64_t pool, const char *nvme);
/** For a loop that waits for an event: sleep, and return false when a minute has passed since the first call (*until_ns
 * is 0 then). No disk and no shared machine delays an event that long. */
bool keep_waiting(uint64_t *until_ns);
/** Wait until none of the keys is listed any more; false if some still are. */
bool vanished(kvcl_store_h store, const kvcl_key_t *keys, size_t n);

/* store_race.c */
void test_reuse(world_t *w);
void test_evict(world_t *w);
void test_threads(world_t *w);
/* store_flips.c */
void test_one_slot(world_t *w);
void test_flips(world_t *w);
void test_many_flips(world_t *w);
/* store_wire.c */
void test_wire_frames(world_t *w);
void test_wire_messages(world_t *w);
void test_wire_memory(world_t *w);
void test_wire_corrupt(world_t *w);
void test_wire_values(world_t *w);
/* store_hostile.c */
void test_hostile(world_t *w);
/* store_copies.c */
void test_copies(world_t *w);
void test_copies_full(world_t *w);
void test_copies_counted(world_t *w);
void test_copies_threads(world_t *w);
void test_copies_stay(world_t *w);
void test_put_unlisted(world_t *w);
void test_copies_short(world_t *w);
/* store_events.c */
void test_events(world_t *w);
void test_followers(world_t *w);
void test_close_waiters(world_t *w);
/* store_sizes.c */
void test_sizes(world_t *w);
void test_sizes_churn(world_t *w);
void test_sizes_bounds(world_t *w);
void test_sizes_errors(world_t *w);
/* store_slabs.c */
bool pool_holds(kvcl_store_h store); /* the pool's own checkers find no contradiction */
void test_slabs_pinned(world_t *w);
void test_slabs_emptied(world_t *w);
void test_slabs_late_use(world_t *w);
void test_slabs_places(world_t *w);
void test_slabs_repair(world_t *w);
void test_slabs_least(world_t *w);
void test_slabs_waiter(world_t *w);
void test_slabs_drain(world_t *w);
/* store_groups.c */
void test_match_all(world_t *w);
/* store_tier.c */
/** The value of params.nvme, the same for all ranks; collective. Static. */
const char *tier_spec(world_t *w);
void        tier_unlink(void); /* removes this rank's file */
void test_tier(world_t *w);
void test_tier_restart(world_t *w);
void test_tier_close(world_t *w);
void test_tier_upsert(world_t *w);
void test_tier_faults(world_t *w);
void test_tier_errors(world_t *w);
/* store_tier_admin.c */
void test_tier_removed_early(world_t *w);
void test_tier_drain(world_t *w);
void test_tier_clear(world_t *w);
void test_tier_still(world_t *w);
void test_tier_staged(world_t *w);
/* store_tier_sizes.c */
void test_tier_sizes(world_t *w);
void test_tier_sizes_restart(world_t *w);
void test_tier_sizes_other(world_t *w);
void test_tier_sizes_twice(world_t *w);
void test_tier_sizes_leaving(world_t *w);
void test_tier_sizes_replaced(world_t *w);
void test_tier_sizes_drain(world_t *w);
void test_tier_sizes_churn(world_t *w);
/* store_late.c */
void test_late_copy(world_t *w);
void test_late_upsert(world_t *w);
void test_silent_ranks(world_t *w);
/* store_admin.c */
void test_pins(world_t *w);
void test_tenants(world_t *w);
void test_upsert(world_t *w);
void test_upsert_unlisted(world_t *w);
void test_upsert_refused(world_t *w);
/* store_churn.c */
void test_churn(world_t *w);
/* store_brought.c */
void test_brought(world_t *w);
/* store_hot.c */
void test_hot(world_t *w);
void test_uses(world_t *w);
/* store_tenant.c */
void test_tenant_handles(world_t *w);
void test_tenant_far(world_t *w);
/* store_moves.c */
void test_moves(world_t *w);
void test_move_unlisted(world_t *w);
void test_drain(world_t *w);
void test_drain_two(world_t *w);
/* store_parts.c */
void test_parts(world_t *w);
void test_parts_layers(world_t *w);
void test_parts_rounds(world_t *w);
/* store_where.c */
void test_where(world_t *w);
void test_where_tier(world_t *w);
/* store_bench.c */
void bench(world_t *w);

#endif
