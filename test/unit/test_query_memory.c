/*
 * kvcl_query_memory, while the owner of the memory changes the words that tell whether its caches still exist. The list
 * is allocated between two passes over the caches; this program's calloc changes the words at that moment, and checks
 * the bytes behind the list.
 */
#include "config.h"
#include "test_base.h"
#include "cache/cache.h"
#include "core/comm.h"
#include "core/context.h"
#include <kvcl/kvcl.h>

#include <string.h>

enum { CACHES = 8, GUARD = CACHES * 1024, GUARD_BYTE = 0xa5 };

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);

static kvcl_context_h ctx;
static kvcl_comm_h    world;
static kvcl_cache_h   caches[CACHES];
static unsigned       live_first, live_then; /* caches that exist in the first pass, and in the second */
static bool           armed;
static const uint8_t  *guard; /* behind the list */
static unsigned       reported;

/* The words of the caches as the owner writes them: those of the first n hold their epochs. */
static void set_live(unsigned n)
{
    kvcl_peer_t *peer = world->peers[0];
    uint64_t    key;
    void        *value;
    size_t      it;
    unsigned    i = 0;

    kvcl_map_foreach(&peer->rcaches, it, key, value) {
        const kvcl_rregion_t *region = &((const kvcl_rcache_t *)value)->gens_region;

        if (key != KVCL_RCACHE_PAGE) {
            ck_assert_ptr_nonnull(region->ctl);
            atomic_store((_Atomic uint64_t *)(uintptr_t)region->ctl, (i < n) ? region->epoch : 0);
            ++i;
        }
    }
    ck_assert_uint_eq(i, CACHES);
}

/* The first allocation after armed is the list. */
void *__wrap_calloc(size_t n, size_t size)
{
    uint8_t *list;

    if (!armed) {
        return __real_calloc(n, size);
    }
    armed = false;
    ck_assert_uint_eq(n, live_first);
    set_live(live_then);
    list = __real_calloc(1, (n * size) + GUARD);
    ck_assert_ptr_nonnull(list);
    guard = list + (n * size);
    memset(list + (n * size), GUARD_BYTE, GUARD);
    return list;
}

static void report(void *arg, const kvcl_memory_info_t *info)
{
    unsigned i;

    (void)arg;
    for (i = 0; i < GUARD; ++i) {
        ck_assert_msg(guard[i] == GUARD_BYTE, "byte %u behind the list is written", i);
    }
    ck_assert_str_eq(info->what, "cache");
    ck_assert_ptr_nonnull(info->why);
    ++reported;
}

/* Rank 0's caches, as rank 0 itself knows them: each is described by the first get. */
static void open_caches(void)
{
    static const uint32_t from[] = {0}, to[] = {1};
    const kvcl_layout_t   layout = KVCL_LAYOUT_BYTES(2, 64);
    const kvcl_sel_t      src    = {.blocks = from, .n_blocks = 1}, dst = {.blocks = to, .n_blocks = 1};
    kvcl_init_params_t    params = KVCL_INIT_PARAMS_INIT;
    kvcl_req_h            req;
    char                  name[8];
    unsigned              i;

    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    for (i = 0; i < CACHES; ++i) {
        (void)snprintf(name, sizeof(name), "kv%u", i);
        ck_assert_int_eq(kvcl_cache_create(ctx, name, &layout, NULL, &caches[i]), KVCL_OK);
        req = NULL;
        ck_assert_int_ge(kvcl_get(world, 0, caches[i], &src, &dst, NULL, &req), KVCL_OK);
        ck_assert_int_eq(kvcl_req_wait(req, 60 * KVCL_NS_PER_SEC), KVCL_OK);
    }
}

static void close_caches(void)
{
    unsigned i;

    set_live(CACHES);
    for (i = 0; i < CACHES; ++i) {
        kvcl_cache_destroy(caches[i]);
    }
    kvcl_finalize(ctx);
}

START_TEST(a_list_stays_within_the_first_count)
{
    unsigned first, then;

    open_caches();
    for (first = 0; first <= CACHES; ++first) {
        for (then = 0; then <= CACHES; ++then) {
            live_first = first;
            live_then  = then;
            reported   = 0;
            set_live(first);
            armed = (first > 0); /* an empty list is not allocated */
            ck_assert_int_eq(kvcl_query_memory(world, 0, report, NULL), KVCL_OK);
            ck_assert(!armed);
            ck_assert_uint_eq(reported, (then < first) ? then : first);
        }
    }
    close_caches();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("query");
    TCase *tc    = tcase_create("memory");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_list_stays_within_the_first_count);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
