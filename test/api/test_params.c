/*
 * kvcl_xfer_params_t: every call against every flag and field of the table in kvcl_xfer.h. A flag or field that the
 * table does not list for a call is refused by name, with the calls that take it; a listed one is not refused as
 * foreign. The table is read from the header, so the man page and the library cannot differ. One rank, alone.
 */
#include "test/api/errors.h"

#include <stdbool.h>

static kvcl_store_h     store;
static kvcl_xfer_h      prepared;
static kvcl_status_t    statuses[4];
static uint8_t          copies[4];
static kvcl_recv_info_t info;
static char             value[256], gathered[256] __attribute__((aligned(8)));
static uint64_t         part_lens[1] = {8};

static void open_params(void)
{
    const kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 16384, .block_bytes = 256};

    open_world();
    TAKEN(kvcl_store_open(world, &p, &store));
    TAKEN(kvcl_xfer_prepare(world, 0, KVCL_XFER_PUT, cache, &good, &good, NULL, &prepared));
}

static void close_params(void)
{
    kvcl_xfer_free(prepared);
    kvcl_store_close(store);
    close_world();
}

/* ---- the calls ---- */

#define CALL(_name, ...)                                                           \
    static kvcl_status_t call_##_name(const kvcl_xfer_params_t *p, kvcl_req_h *r)  \
    {                                                                              \
        return kvcl_##_name(__VA_ARGS__, p, r);                                    \
    }

static kvcl_extent_t extent   = {value, 100};
static kvcl_value_t  values[] = {{&extent, 1}};
static kvcl_vec_t    piece    = {0, plain, 8};

CALL(get, world, 0, cache, &good, &good)
CALL(put, world, 0, cache, &good, &good)
CALL(xfer_post, prepared, good_ids, 2, good_ids, 2)
CALL(get_bytes, readable, 0, plain, 8)
CALL(put_bytes, writable, 0, plain, 8)
CALL(get_vec, readable, &piece, 1, NULL)
CALL(put_vec, writable, &piece, 1, NULL)
CALL(notify, world, 0, plain, 8)
CALL(send, world, 0, 1, cache, &good)
CALL(send_bytes, world, 0, 1, plain, 8)
CALL(recv, world, 0, 1, cache, &good)
CALL(recv_bytes, world, 0, 1, plain, 8)
CALL(stream_done, ctx, plain)
CALL(bcast, world, 0, cache, &good)
CALL(bcast_bytes, world, 0, plain, 8)
CALL(allgather, world, plain, 8, gathered)
CALL(allreduce, world, gathered, gathered, 8, KVCL_DTYPE_F32, KVCL_REDUCE_SUM)
CALL(reduce_scatter, world, gathered, gathered, 8, KVCL_DTYPE_F32, KVCL_REDUCE_SUM)
CALL(alltoall, world, plain, 8, gathered)
CALL(alltoallv, world, plain, part_lens, NULL, gathered, part_lens, NULL)
CALL(gather, world, 0, plain, 8, gathered)
CALL(scatter, world, 0, plain, 8, gathered)
CALL(store_get, store, keys, 2, cache, good_ids, NULL)
CALL(store_get_part, store, keys, 2, NULL, NULL, cache, &good, NULL)
CALL(store_put, store, keys, 2, cache, good_ids)
CALL(store_upsert, store, keys, 2, cache, good_ids)
CALL(store_publish, store, keys, 2, cache, good_ids)
CALL(store_remove, store, keys, 2)
CALL(store_bcast, store, keys, 2, cache, good_ids)
CALL(store_get_values, store, keys, 1, values, NULL)
CALL(store_put_values, store, keys, 1, values)
CALL(store_upsert_values, store, keys, 1, values)

static size_t             hit;
static uint8_t            present[4];
static uint64_t           count, cursor, sizes[2];
static kvcl_key_t         value_keys[4];
static kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
static kvcl_store_event_t events[4];
static kvcl_store_item_t  items[4];

static kvcl_store_places_t places[2];

CALL(store_value_sizes_post, store, keys, 2, sizes, NULL)
CALL(store_value_keys_post, store, keys, value_keys, 4, &hit)
CALL(store_remove_values_post, store, keys, 2)
CALL(store_match_post, store, keys, 2, &hit)
CALL(store_exists_post, store, keys, 2, present)
CALL(store_where_post, store, keys, 2, places, sizeof(places[0]))
CALL(store_pin_post, store, keys, 2, 1, SECOND, 0, NULL)
CALL(store_unpin_post, store, keys, 2, 1)
CALL(store_quota_post, store, 0, 7, 4096)
CALL(store_clear_post, store, 7, &count)
CALL(store_rank_stats_post, store, 0, &stats)
CALL(store_all_stats_post, store, 1, &stats, sizeof(stats), statuses)
CALL(store_events_post, store, 0, 0, 0, events, sizeof(events[0]), 4, &hit)
CALL(store_list_post, store, 0, &cursor, items, sizeof(items[0]), 4, &hit, NULL)

/* Calls that wait for their own end. */
#define PLAIN(_name, ...)                                                          \
    static kvcl_status_t call_##_name(const kvcl_xfer_params_t *p, kvcl_req_h *r)  \
    {                                                                              \
        *r = NULL;                                                                 \
        return kvcl_##_name(__VA_ARGS__, p);                                       \
    }

PLAIN(store_value_sizes, store, keys, 2, sizes, NULL)
PLAIN(store_value_keys, store, keys, value_keys, 4, &hit)
PLAIN(store_remove_values, store, keys, 2)
PLAIN(store_match, store, keys, 2, &hit)
PLAIN(store_exists, store, keys, 2, present)
PLAIN(store_where, store, keys, 2, places, sizeof(places[0]))
PLAIN(store_pin, store, keys, 2, 1, SECOND, 0, NULL)
PLAIN(store_unpin, store, keys, 2, 1)
PLAIN(store_quota, store, 0, 7, 4096)
PLAIN(store_clear, store, 7, &count)
PLAIN(store_rank_stats, store, 0, &stats)
PLAIN(store_all_stats, store, 1, &stats, sizeof(stats), statuses)
PLAIN(store_events, store, 0, 0, 0, events, sizeof(events[0]), 4, &hit)
PLAIN(store_list, store, 0, &cursor, items, sizeof(items[0]), 4, &hit, NULL)
PLAIN(store_match_all, store, world, keys, 2, &hit)
PLAIN(store_copy, store, keys, 2, 0, 0, NULL)
PLAIN(store_drain, store, &count)

static kvcl_status_t call_barrier(const kvcl_xfer_params_t *p, kvcl_req_h *r)
{
    return kvcl_barrier(world, p, r);
}

static kvcl_status_t call_xfer_prepare(const kvcl_xfer_params_t *p, kvcl_req_h *r)
{
    kvcl_xfer_h   xfer   = NULL;
    kvcl_status_t status = kvcl_xfer_prepare(world, 0, KVCL_XFER_PUT, cache, &good, &good, p, &xfer);

    kvcl_xfer_free(xfer);
    *r = NULL;
    return status;
}

/* Nobody listens there; the communicator is the caller's. */
static kvcl_status_t call_context_connect_post(const kvcl_xfer_params_t *p, kvcl_req_h *r)
{
    kvcl_comm_h   comm   = NULL;
    kvcl_status_t status = kvcl_context_connect_post(ctx, "127.0.0.1:1", p, &comm, r);

    kvcl_comm_free(comm);
    return status;
}

#define ROW(_name) {"kvcl_" #_name, call_##_name}
static const struct {
    const char    *name;
    kvcl_status_t (*call)(const kvcl_xfer_params_t *p, kvcl_req_h *r);
} calls[] = {ROW(get), ROW(put), ROW(xfer_prepare), ROW(xfer_post), ROW(get_bytes), ROW(put_bytes),
             ROW(get_vec), ROW(put_vec), ROW(notify), ROW(send),
             ROW(send_bytes), ROW(recv), ROW(recv_bytes), ROW(stream_done),
             ROW(context_connect_post), ROW(bcast), ROW(bcast_bytes), ROW(barrier),
             ROW(allgather), ROW(allreduce), ROW(reduce_scatter), ROW(alltoall), ROW(alltoallv), ROW(gather),
             ROW(scatter),
             ROW(store_get), ROW(store_get_part), ROW(store_put), ROW(store_upsert), ROW(store_publish),
             ROW(store_remove), ROW(store_bcast), ROW(store_get_values), ROW(store_put_values),
             ROW(store_upsert_values),
             {"kvcl_store_value_sizes", call_store_value_sizes_post},
             {"kvcl_store_value_keys", call_store_value_keys_post},
             {"kvcl_store_remove_values", call_store_remove_values_post},
             {"kvcl_store_match", call_store_match_post}, {"kvcl_store_exists", call_store_exists_post},
             {"kvcl_store_where", call_store_where_post},
             {"kvcl_store_match_all", call_store_match_all}, {"kvcl_store_pin", call_store_pin_post},
             {"kvcl_store_unpin", call_store_unpin_post}, {"kvcl_store_quota", call_store_quota_post},
             {"kvcl_store_clear", call_store_clear_post}, {"kvcl_store_copy", call_store_copy},
             {"kvcl_store_drain", call_store_drain}, {"kvcl_store_rank_stats", call_store_rank_stats_post},
             {"kvcl_store_all_stats", call_store_all_stats_post}, {"kvcl_store_list", call_store_list_post},
             {"kvcl_store_events", call_store_events_post}};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* Calls that wait for their own end; post: whether they have a posting form. */
#define WAITS(_name, _post) {"kvcl_" #_name, call_##_name, _post}
static const struct {
    const char    *name;
    kvcl_status_t (*call)(const kvcl_xfer_params_t *p, kvcl_req_h *r);
    bool          post;
} waits[] = {WAITS(store_value_sizes, true), WAITS(store_value_keys, true), WAITS(store_remove_values, true),
             WAITS(store_match, true), WAITS(store_exists, true), WAITS(store_where, true), WAITS(store_pin, true),
             WAITS(store_unpin, true),
             WAITS(store_quota, true), WAITS(store_clear, true), WAITS(store_rank_stats, true),
             WAITS(store_all_stats, true), WAITS(store_events, true), WAITS(store_list, true),
             WAITS(store_match_all, false), WAITS(store_copy, false), WAITS(store_drain, false)};

/* ---- the table of the header ---- */

/* The header table's row of this call, as text; NULL: there is none. */
static const char *documented(const char *name, char *line, size_t cap)
{
    char  path[512], word[64];
    FILE  *file;
    bool  in_table = false;
    const char *found = NULL;

    ck_assert_ptr_nonnull(getenv("top_srcdir"));
    snprintf(path, sizeof(path), "%s/include/kvcl/kvcl_xfer.h", getenv("top_srcdir"));
    file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s", path);
    while ((found == NULL) && (fgets(line, (int)cap, file) != NULL)) {
        in_table = in_table || (strstr(line, "*   call  ") != NULL);
        if (in_table && (sscanf(line, " * %63s", word) == 1) && (strcmp(word, name) == 0)) {
            found = strstr(line, name) + strlen(name);
        }
    }
    fclose(file);
    return found;
}

/* Whether the row contains this word. signal stands for three fields. */
static bool has_word(const char *row, const char *word)
{
    size_t len = strlen(word);
    const char *at;

    if (strncmp(word, "signal", 6) == 0) {
        return has_word(row, "@signal");
    }
    if (word[0] == '@') {
        ++word;
        --len;
    }
    for (at = strstr(row, word); at != NULL; at = strstr(at + 1, word)) {
        if ((strchr(" ,", at[-1]) != NULL) && (strchr(" ,\n", at[len]) != NULL)) {
            return true;
        }
    }
    return false;
}

/* ---- flags and fields to set ---- */

static void set_flag(kvcl_xfer_params_t *p, const char *name)
{
    p->flags = (strcmp(name, "LAYERWISE") == 0) ? KVCL_LAYERWISE : (strcmp(name, "BACKGROUND") == 0) ? KVCL_BACKGROUND
             : (strcmp(name, "PUT_TO") == 0) ? KVCL_PUT_TO : (strcmp(name, "PUT_STAYS") == 0) ? KVCL_PUT_STAYS
             : KVCL_PUT_WAIT;
}

static void set_field(kvcl_xfer_params_t *p, unsigned field)
{
    switch (field) {
    case 0: p->status = statuses; break;
    case 1: p->remote_cache = "mine"; break;
    case 2: p->signal_mem = writable; p->signal_add = 1; break;
    case 3: p->signal_offset = 8; p->signal_mem = writable; break;
    case 4: p->info = &info; break;
    case 5: p->replicas = 1; break;
    case 6: p->copies = copies; break;
    case 7: p->stream = (void *)(uintptr_t)1; break; /* CU_STREAM_LEGACY */
    case 8: p->tenant = 7; break;
    case 9: p->notify = plain; p->notify_bytes = 8; break;
    default: p->to_rank = 1; break;
    }
}

static const char *const field_names[] = {"status", "remote_cache", "signal_mem", "signal_offset", "info", "replicas",
                                          "copies", "stream", "tenant", "notify", "to_rank"};
enum { FIELDS = sizeof(field_names) / sizeof(field_names[0]) };

/* Call it with the given params; kind: "flag" or "field"; ours: the header lists it for the call. */
static void check_one(unsigned at, const kvcl_xfer_params_t *p, const char *said, const char *kind, bool ours)
{
    char          word[64];
    kvcl_req_h    req = NULL;
    kvcl_status_t status;

    forget_error();
    status = calls[at].call(p, &req);
    snprintf(word, sizeof(word), "%s is a %s of ", said, kind);
    if (ours) {
        ck_assert_msg((status == KVCL_OK) || (strstr(kvcl_last_error(), "is a ") == NULL), "%s: %s", calls[at].name,
                      kvcl_last_error());
    } else {
        ck_assert_msg(status == KVCL_ERR_INVALID_PARAM, "%s takes %s: %s", calls[at].name, said,
                      kvcl_status_name(status));
        ck_assert_msg((strstr(kvcl_last_error(), calls[at].name) == kvcl_last_error()) &&
                          (strstr(kvcl_last_error(), word) != NULL) && (strstr(kvcl_last_error(), "leave it") != NULL),
                      "%s with %s says: %s", calls[at].name, said, kvcl_last_error());
    }
    if ((status == KVCL_OK) && (req != NULL)) {
        kvcl_req_cancel(req);
        (void)!final(req);
    }
}

static kvcl_xfer_params_t short_one(void)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;

    p.timeout_ns = 20 * 1000000ull;
    return p;
}

START_TEST(each_call_takes_its_flags_and_fields_and_no_others)
{
    static const char *const flags[] = {"LAYERWISE", "BACKGROUND", "PUT_WAIT", "PUT_TO", "PUT_STAYS"};
    char       line[256], said[64];
    const char *row = documented(calls[_i].name, line, sizeof(line));
    unsigned   i;

    ck_assert_msg(row != NULL, "the table of kvcl_xfer.h lacks %s", calls[_i].name);
    for (i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
        kvcl_xfer_params_t p = short_one();
        set_flag(&p, flags[i]);
        snprintf(said, sizeof(said), "KVCL_%s", flags[i]);
        check_one((unsigned)_i, &p, said, "flag", has_word(row, flags[i]));
    }
    for (i = 0; i < FIELDS; ++i) {
        kvcl_xfer_params_t p = short_one();
        set_field(&p, i);
        /* for a signal the memory is named first */
        snprintf(said, sizeof(said), "params.%s", (i == 3) ? "signal_mem" : field_names[i]);
        check_one((unsigned)_i, &p, said, "field", has_word(row, field_names[i]));
    }
}
END_TEST

static void never(void *arg, kvcl_status_t status)
{
    (void)arg;
    ck_abort_msg("a callback of a call that waits: %s", kvcl_status_name(status));
}

START_TEST(a_call_that_waits_refuses_a_callback)
{
    kvcl_xfer_params_t with_cb = short_one(), with_arg = short_one();
    char               form[96];
    kvcl_req_h         req;

    with_cb.cb      = never;
    with_arg.cb_arg = plain;
    snprintf(form, sizeof(form), waits[_i].post ? "use %s_post" : "no posting form", waits[_i].name);
    REFUSED(INVALID_PARAM, "params.cb, cb_arg or queue", waits[_i].call(&with_cb, &req));
    REFUSED(INVALID_PARAM, waits[_i].name, waits[_i].call(&with_arg, &req));
    REFUSED(INVALID_PARAM, form, waits[_i].call(&with_cb, &req));
}
END_TEST

/* Those of the table that return no request. */
static bool takes_no_queue(const char *name)
{
    return (strcmp(name, "kvcl_xfer_prepare") == 0) || (strcmp(name, "kvcl_store_match_all") == 0) ||
           (strcmp(name, "kvcl_store_copy") == 0) || (strcmp(name, "kvcl_store_drain") == 0);
}

/* One record, unless the call failed. */
static void check_recorded(kvcl_queue_h queue, kvcl_status_t posted, const char *name, kvcl_req_h req)
{
    kvcl_done_t done[2];
    size_t      n = 0, tries;

    for (tries = 0; (posted == KVCL_OK) && (n == 0) && (tries < 60000); ++tries) {
        TAKEN(kvcl_req_drain(queue, done, sizeof(done[0]), 2, &n));
        usleep((n == 0) ? 1000 : 0);
    }
    ck_assert_msg(n == ((posted == KVCL_OK) ? 1 : 0), "%s: %s, %zu records", name, kvcl_status_name(posted), n);
    if (posted == KVCL_OK) {
        ck_assert_ptr_eq(done[0].arg, gathered);
        ck_assert_msg((done[0].status == KVCL_OK) == (done[0].error == NULL), "%s", name);
        ck_assert_int_eq(kvcl_req_test(req), KVCL_ERR_DEAD_HANDLE);
    }
    TAKEN(kvcl_req_drain(queue, done, sizeof(done[0]), 2, &n));
    ck_assert_msg(n == 0, "%s is recorded twice", name);
}

START_TEST(each_call_is_recorded_once_by_its_queue)
{
    kvcl_xfer_params_t p = short_one();
    kvcl_req_h         req = NULL;
    kvcl_status_t      posted;
    kvcl_queue_h       queue;

    TAKEN(kvcl_queue_create(&queue));
    p.queue = queue;
    if (takes_no_queue(calls[_i].name)) {
        REFUSED(INVALID_PARAM, "queue", calls[_i].call(&p, &req));
        kvcl_queue_destroy(queue);
        return;
    }
    p.cb = never;
    REFUSED(INVALID_PARAM, "params.cb and params.queue are both set", calls[_i].call(&p, &req));
    p.cb     = NULL;
    p.cb_arg = gathered;
    posted   = calls[_i].call(&p, &req);
    check_recorded(queue, posted, calls[_i].name, req);
    kvcl_queue_destroy(queue);
    REFUSED(DEAD_HANDLE, "the completion queue was freed already", calls[_i].call(&p, &req));
    REFUSED(DEAD_HANDLE, calls[_i].name, calls[_i].call(&p, &req));
}
END_TEST

START_TEST(half_a_signal_is_refused)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;

    p.signal_add = 1;
    REFUSED(INVALID_PARAM, "no signal_mem", kvcl_put(world, 0, cache, &good, &good, &p, &out.req));
    REFUSED(INVALID_PARAM, "params.signal_add is a field of kvcl_put,",
            kvcl_get(world, 0, cache, &good, &good, &p, &out.req));
    p              = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    p.notify_bytes = 1;
    REFUSED(INVALID_PARAM, "notify is NULL", kvcl_put(world, 0, cache, &good, &good, &p, &out.req));
    p.notify       = plain;
    p.notify_bytes = KVCL_NOTIFY_MAX + 1;
    REFUSED(INVALID_PARAM, "is 8193", kvcl_get_bytes(rmem, 0, out.bytes, 8, &p, &out.req));
    p            = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    p.cb_arg     = plain;
    REFUSED(INVALID_PARAM, "kvcl_xfer_post", kvcl_xfer_prepare(world, 0, KVCL_XFER_GET, cache, &good, &good, &p,
                                                              (kvcl_xfer_h *)&out.req));
    p            = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    p.signal_mem = writable;
    REFUSED(INVALID_PARAM, "KVCL_XFER_PUT", kvcl_xfer_prepare(world, 0, KVCL_XFER_GET, cache, &good, &good, &p,
                                                             (kvcl_xfer_h *)&out.req));
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("params");
    SRunner *runner;
    TCase   *tc = tcase_create("table");
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_params, close_params);
    tcase_add_loop_test(tc, each_call_takes_its_flags_and_fields_and_no_others, 0, CALLS);
    tcase_add_loop_test(tc, a_call_that_waits_refuses_a_callback, 0, sizeof(waits) / sizeof(waits[0]));
    tcase_add_loop_test(tc, each_call_is_recorded_once_by_its_queue, 0, CALLS);
    tcase_add_test(tc, half_a_signal_is_refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
