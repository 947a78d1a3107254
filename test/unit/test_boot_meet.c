/*
 * Whole boots with threads as ranks: tcp over loopback, the caller's callbacks, alone; bad arguments, duplicates,
 * members that never join. Strangers and wrong secrets: test_boot_stranger.c.
 */
#include "config.h"
#include <kvcl/kvcl_context.h>
#include "test_boot.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <sys/stat.h>

#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif

/* PMIx_Init leaks a string when no launcher answers, which must not fail this test. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix";
}

/* ---------------------------------------------------------------- meetings that succeed */

START_TEST(ranks_meet_at_an_address_and_are_dealt_ranks)
{
    rank_thread_t ranks[RANKS_MAX];

    prepare(ranks, 9, 9);
    run_all(ranks, 9);
    all_met(ranks, 9);
}
END_TEST

START_TEST(asked_for_ranks_are_given_whoever_comes_first)
{
    rank_thread_t ranks[4];
    int           i;

    prepare(ranks, 4, 4);
    for (i = 0; i < 4; ++i) {
        ranks[i].params.rank = 3 - i; /* rank 0, which serves, starts last */
    }
    run_all(ranks, 4);
    all_met(ranks, 4);
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(ranks[i].rank, 3 - i);
    }
}
END_TEST

START_TEST(the_same_address_serves_one_boot_after_the_other)
{
    rank_thread_t ranks[5];
    int           i;

    prepare(ranks, 5, 5);
    for (i = 0; i < 5; ++i) {
        ranks[i].rounds = 4;
    }
    run_all(ranks, 5);
    all_met(ranks, 5);
}
END_TEST

START_TEST(on_loopback_the_users_own_secret_is_made_and_used)
{
    rank_thread_t ranks[4];
    struct stat   st;
    char          path[128];
    int           i;

    prepare(ranks, 4, 4);
    for (i = 0; i < 4; ++i) {
        ranks[i].params.secret_file = NULL;
    }
    run_all(ranks, 4);
    all_met(ranks, 4);
    snprintf(path, sizeof(path), "%s/.kvcl/secret", dir);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(the_meeting_listens_on_the_interface_named)
{
    rank_thread_t ranks[3];
    int           i;

    prepare(ranks, 3, 3);
    for (i = 0; i < 3; ++i) {
        ranks[i].params.interface = (i == 0) ? "lo" : "127.0.0.1";
    }
    run_all(ranks, 3);
    all_met(ranks, 3);
    prepare(ranks, 1, 1);
    ranks[0].params.interface = "nosuch0";
    run_all(ranks, 1);
    ck_assert_int_eq(ranks[0].status, KVCL_ERR_INVALID_PARAM);
    prepare(ranks, 1, 1);
    ranks[0].params.interface   = "0.0.0.0";
    ranks[0].params.secret_file = NULL;
    run_all(ranks, 1);
    ck_assert_int_eq(ranks[0].status, KVCL_ERR_AUTH); /* others may connect: a named secret is required */
}
END_TEST

START_TEST(members_hear_that_the_serving_rank_is_gone)
{
    rank_thread_t      ranks[1];
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t       *boot   = NULL;

    prepare(ranks, 1, 3);
    params             = ranks[0].params;
    params.rank        = 0;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_OK);
    start(&ranks[0]);
    wait_joined(&ranks[0]);
    kvcl_boot_close(boot);
    pthread_join(ranks[0].thread, NULL);
    ck_assert_msg(ranks[0].status == KVCL_ERR_RANK_FAILED, "%s", ranks[0].error);
}
END_TEST

/* ---------------------------------------------------------------- meetings that fail */

START_TEST(bad_arguments_are_refused_with_their_variable)
{
    static const char *const bad_urls[] = {"127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://:5",
                                           "tcp://h:99999"};
    kvcl_boot_params_t       params     = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t             *boot       = NULL;
    size_t                   i;

    params.timeout_ns = KVCL_NS_PER_SEC;
    params.which      = "tcp";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_RENDEZVOUS"));
    params.rendezvous = url;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_SIZE"));
    params.size = 2;
    params.rank = 2;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    params.rank = -1;
    for (i = 0; i < sizeof(bad_urls) / sizeof(bad_urls[0]); ++i) {
        params.rendezvous = bad_urls[i];
        ck_assert_msg(kvcl_boot_open(&params, &boot) == KVCL_ERR_INVALID_PARAM, "%s", bad_urls[i]);
    }
    params.rendezvous = "tcp://192.0.2.1:5";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_SECRET_FILE"));
    params.secret_file = secret_file;
    params.rank        = 0;
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "must run on that host"));
    params.rank  = -1;
    params.which = "carrier-pigeon";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_null(boot);
}
END_TEST

START_TEST(a_rank_asked_for_twice_is_refused_and_so_is_another_size)
{
    rank_thread_t ranks[4];

    prepare(ranks, 4, 2);
    ranks[0].params.rank = 0;
    ranks[1].params.rank = 1;
    ranks[2].params.rank = 0;
    ranks[3].params.size = 3;
    start(&ranks[0]);
    wait_joined(&ranks[0]); /* before its duplicate joins */
    start(&ranks[2]);
    start(&ranks[3]);
    pthread_join(ranks[2].thread, NULL);
    pthread_join(ranks[3].thread, NULL);
    ck_assert_int_eq(ranks[2].status, KVCL_ERR_EXISTS);
    ck_assert_ptr_nonnull(strstr(ranks[2].error, "rank 0 is taken by another process"));
    ck_assert_int_eq(ranks[3].status, KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(ranks[3].error, "this meeting is for 2 ranks, not 3"));
    start(&ranks[1]);
    pthread_join(ranks[0].thread, NULL);
    pthread_join(ranks[1].thread, NULL);
    all_met(ranks, 2);
}
END_TEST

/* Two of three ranks join, for this long. Did both arrive before the time was up? */
static bool two_of_three_meet(unsigned seconds)
{
    rank_thread_t ranks[2];
    char          want[80];
    int           i;

    prepare(ranks, 2, 3);
    for (i = 0; i < 2; ++i) {
        ranks[i].params.rank       = i;
        ranks[i].params.timeout_ns = seconds * KVCL_NS_PER_SEC;
    }
    run_all(ranks, 2);
    snprintf(want, sizeof(want), "rank 2 did not arrive within %us, 2 of 3 did", seconds);
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(ranks[i].status, KVCL_ERR_TIMED_OUT);
        if (strstr(ranks[i].error, want) == NULL) {
            printf("%s\n", ranks[i].error);
            return false;
        }
    }
    return true;
}

START_TEST(member_that_never_comes_is_named_when_time_is_up)
{
    unsigned seconds = 2;

    while (!two_of_three_meet(seconds)) {
        seconds *= 2;
        ck_assert_uint_le(seconds, 32);
    }
}
END_TEST

START_TEST(meeting_that_nobody_serves_times_out)
{
    rank_thread_t rank;

    prepare(&rank, 1, 2);
    rank.params.rank       = 1;
    rank.params.timeout_ns = 200 * KVCL_NS_PER_MS;
    run_all(&rank, 1);
    ck_assert_int_eq(rank.status, KVCL_ERR_TIMED_OUT);
    ck_assert_ptr_nonnull(strstr(rank.error, "nobody serves the rendezvous"));
}
END_TEST

/* ---------------------------------------------------------------- callbacks, alone */

typedef struct store {
    pthread_mutex_t   lock;
    pthread_cond_t    cond;
    pthread_barrier_t barrier;
    int               count;
    struct {
        char   key[64];
        char   val[512];
        size_t len;
    } pairs[64];
} store_t;

static kvcl_status_t store_set(void *arg, const char *key, const void *val, size_t len)
{
    store_t *store = (store_t *)arg;

    pthread_mutex_lock(&store->lock);
    snprintf(store->pairs[store->count].key, 64, "%s", key);
    memcpy(store->pairs[store->count].val, val, len);
    store->pairs[store->count++].len = len;
    pthread_cond_broadcast(&store->cond);
    pthread_mutex_unlock(&store->lock);
    return KVCL_OK;
}

static kvcl_status_t store_get(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    store_t *store = (store_t *)arg;
    int      i;

    pthread_mutex_lock(&store->lock);
    for (i = 0;; ++i) {
        while (i == store->count) {
            pthread_cond_wait(&store->cond, &store->lock);
        }
        if (strcmp(store->pairs[i].key, key) == 0) {
            break;
        }
    }
    *len_p = store->pairs[i].len;
    memcpy(buf, store->pairs[i].val, (*len_p < cap) ? *len_p : cap);
    pthread_mutex_unlock(&store->lock);
    return KVCL_OK;
}

static kvcl_status_t store_fence(void *arg)
{
    (void)pthread_barrier_wait(&((store_t *)arg)->barrier);
    return KVCL_OK;
}

static kvcl_status_t store_broken(void *arg, const char *key, const void *val, size_t len)
{
    (void)arg, (void)key, (void)val, (void)len;
    return KVCL_ERR_UNREACHABLE;
}

/* Keys are "kvcl.<n>.<what>"; n counts the opens of a process. Threads as ranks share that count, so n is cut off. */
static kvcl_status_t set_any(void *arg, const char *key, const void *val, size_t len)
{
    return store_set(arg, strchr(key + 5, '.'), val, len);
}

static kvcl_status_t get_any(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    return store_get(arg, strchr(key + 5, '.'), buf, cap, len_p);
}

START_TEST(ranks_meet_by_the_callers_callbacks)
{
    enum { RANKS = 4 };
    static store_t store = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    kvcl_oob_t     oob[RANKS];
    rank_thread_t  ranks[RANKS];
    int            i;

    pthread_barrier_init(&store.barrier, NULL, RANKS);
    prepare(ranks, RANKS, 0);
    for (i = 0; i < RANKS; ++i) {
        oob[i] = (kvcl_oob_t){.size = sizeof(oob[i]), .rank = i, .nranks = RANKS, .set = set_any, .get = get_any,
                              .fence = store_fence, .arg = &store};
        ranks[i].params.oob         = &oob[i];
        ranks[i].params.secret_file = NULL;
    }
    run_all(ranks, RANKS);
    all_met(ranks, RANKS);
    /* one set per rank, the job's, and two for each secret */
    ck_assert_int_eq(store.count, RANKS + 1 + 2 * (RANKS - 1));
    for (i = 0; i < store.count; ++i) { /* who reads the store does not learn the secret */
        ck_assert_ptr_null(memmem(store.pairs[i].val, store.pairs[i].len, ranks[0].secret, KVCL_SHA256_LEN));
    }
    oob[0].set = store_broken;
    prepare(ranks, 1, 0);
    ranks[0].params.oob = &oob[0];
    run_all(ranks, 1);
    ck_assert_int_eq(ranks[0].status, KVCL_ERR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(ranks[0].error, "set callback failed for key kvcl."));
}
END_TEST

START_TEST(alone_is_rank_0_of_1)
{
    rank_thread_t ranks[2];
    int           i;

    prepare(ranks, 2, 1);
    for (i = 0; i < 2; ++i) {
        ranks[i].params.rendezvous = NULL;
        ranks[i].rounds            = 2;
    }
    ranks[1].params.size = 2;
    run_all(ranks, 2);
    all_met(ranks, 1);
    ck_assert_int_eq(ranks[1].status, KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(ranks[1].error, "KVCL_RENDEZVOUS"));
}
END_TEST

START_TEST(pmix_variables_without_a_launcher_are_an_error_not_many_singletons)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t       *boot   = NULL;
    kvcl_status_t      status;

    setenv("PMIX_NAMESPACE", "nobody", 1);
    setenv("PMIX_RANK", "0", 1);
    status = kvcl_boot_open(&params, &boot);
    ck_assert_msg((status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_UNSUPPORTED), "%d", status);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_BOOT=self"));
    params.which = "self";
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_OK);
    kvcl_boot_close(boot);
    kvcl_boot_close(NULL);
}
END_TEST

START_TEST(a_rank_alone_has_the_users_own_secret_if_it_asks_for_it)
{
    enum { RANDOM, OWN, OWN_AGAIN, FILE_NAMED, BOTH, N };
    kvcl_boot_t *boots[N];
    int         i;

    for (i = 0; i < N; ++i) {
        kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;

        params.which       = "self";
        params.user_secret = (i == OWN) || (i == OWN_AGAIN) || (i == BOTH);
        params.secret_file = ((i == FILE_NAMED) || (i == BOTH)) ? secret_file : NULL;
        ck_assert_int_eq(kvcl_boot_open(&params, &boots[i]), KVCL_OK);
    }
    ck_assert_mem_eq(boots[OWN]->secret, boots[OWN_AGAIN]->secret, KVCL_SHA256_LEN);
    ck_assert_mem_eq(boots[FILE_NAMED]->secret, boots[BOTH]->secret, KVCL_SHA256_LEN);
    ck_assert_mem_ne(boots[OWN]->secret, boots[RANDOM]->secret, KVCL_SHA256_LEN);
    ck_assert_mem_ne(boots[OWN]->secret, boots[BOTH]->secret, KVCL_SHA256_LEN);
    for (i = 0; i < N; ++i) {
        kvcl_boot_close(boots[i]);
    }
}
END_TEST

/* ---------------------------------------------------------------- a rank that fails under mpirun */

#define NO_VALUES "KVCL_TEST_NO_VALUES" /* set for a rank: PMIx gives it none */

/* The library takes the functions of PMIx that its process exports before those of libpmix (pmix/pmix_api.c): this one.
 * Its types are in pmix.h, which tests do not include. */
int PMIx_Get_nb(const void *proc, const char *key, const void *info, size_t n, void *cb, void *arg);
__attribute__((visibility("default"))) int PMIx_Get_nb(const void *proc, const char *key, const void *info, size_t n,
                                                       void *cb, void *arg)
{
    typedef int (*get_nb_t)(const void *, const char *, const void *, size_t, void *, void *);
    get_nb_t get_nb;
    void     *symbol = dlsym(dlopen("libpmix.so.2", RTLD_NOW), "PMIx_Get_nb");

    memcpy(&get_nb, &symbol, sizeof(get_nb));
    return ((getenv(NO_VALUES) != NULL) && (strncmp(key, "kvcl.", 5) == 0)) ? -1
                                                                            : get_nb(proc, key, info, n, cb, arg);
}

#define NO_PMIX "KVCL_TEST_NO_PMIX" /* set: there is no libpmix on this machine */

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode)
{
    typedef void *(*open_t)(const char *, int);
    open_t open_file;
    void   *symbol = dlsym(RTLD_NEXT, "dlopen");
    bool   away    = (getenv(NO_PMIX) != NULL) && (file != NULL) && (strstr(file, "libpmix") != NULL);

    memcpy(&open_file, &symbol, sizeof(open_file));
    return open_file(away ? "libpmix-away.so.2" : file, mode);
}

START_TEST(without_libpmix_a_launchers_rank_says_what_to_install)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t        *boot  = NULL;

    if (!KVCL_HAVE_PMIX) {
        printf("SKIP: built without PMIx\n");
        return;
    }
    ck_assert_int_eq(setenv("PMIX_NAMESPACE", "a job", 1), 0);
    ck_assert_int_eq(setenv("PMIX_RANK", "0", 1), 0);
    ck_assert_int_eq(setenv(NO_PMIX, "1", 1), 0);
    params.which = "auto"; /* many ranks 0 of 1 would start if the launcher were ignored */
    ck_assert_int_eq(kvcl_boot_open(&params, &boot), KVCL_ERR_UNSUPPORTED);
    ck_assert_ptr_null(boot);
    ck_assert_msg(strstr(kvcl_last_error(), "libpmix2") != NULL, "%s", kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), "libpmix-away.so.2") != NULL, "%s", kvcl_last_error());
}
END_TEST

/* A rank under mpirun: "test_boot_meet SENTENCE": its boot fails with this sentence, or ("ok") meets the others. */
static int rank_under_mpirun(const char *expected)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t        *boot  = NULL;
    kvcl_status_t      status;
    bool               right;

    params.which       = "pmix";
    params.timeout_ns  = 60 * KVCL_NS_PER_SEC;
    params.secret_file = getenv("KVCL_SECRET_FILE");
    status             = kvcl_boot_open(&params, &boot);
    status             = (status == KVCL_OK) ? kvcl_boot_exchange(boot, "blob", 4) : status;
    right = (strcmp(expected, "ok") == 0) ? (status == KVCL_OK)
                                          : ((status != KVCL_OK) && (strstr(kvcl_last_error(), expected) != NULL));
    if (!right) {
        fprintf(stderr, "expected \"%s\": %s: %s\n", expected, kvcl_status_name(status), kvcl_last_error());
    }
    kvcl_boot_close(boot);
    return right ? 0 : 1;
}

/* No rank waits in a fence for the one that failed. */
START_TEST(a_rank_that_fails_under_mpirun_leaves_none_waiting)
{
    static const char own_file[] = "KVCL_SECRET_FILE=";
    static const char refused[] = "secret file", away[] = "rank 0 failed", none[] = "PMIx_Get";
    const struct {
        const char *env[3], *expected[3];
    } jobs[] = {
        /* rank 0 has a file that is not fit; the others cannot read its invite */
        {{"KVCL_SECRET_FILE=/", NULL, NULL}, {refused, away, away}},
        /* rank 1 cannot read anything, rank 0 has no file */
        {{NULL, NO_VALUES "=1", NULL}, {"ok", none, "ok"}},
        /* the same, with a file */
        {{own_file, NO_VALUES "=1", own_file}, {"ok", none, "ok"}},
        /* rank 0 cannot seal the secret */
        {{NO_VALUES "=1", NULL, NULL}, {none, away, away}},
        {{NULL, NULL, own_file}, {"ok", "ok", "rank 0 uses none"}},
    };
    char   command[4096] = "timeout -k 5 100 mpirun", program[512] = "";
    size_t at            = strlen(command);
    int    i;

    if (!KVCL_HAVE_PMIX || (system("command -v mpirun >/dev/null 2>&1") != 0)) {
        printf("SKIP: built without PMIx, or no mpirun\n");
        return;
    }
    ck_assert_int_gt(readlink("/proc/self/exe", program, sizeof(program) - 1), 0);
    for (i = 0; i < 3; ++i) {
        const char *env = (jobs[_i].env[i] != NULL) ? jobs[_i].env[i] : "A=B";

        at += (size_t)snprintf(command + at, sizeof(command) - at, "%s -n 1 env %s%s '%s' '%s'", (i == 0) ? "" : " :",
                               env, (env == own_file) ? secret_file : "", program, jobs[_i].expected[i]);
    }
    ck_assert_msg(system(command) == 0, "%s", command);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite;
    TCase *tc;

    if (argc > 1) {
        return rank_under_mpirun(argv[1]);
    }
    suite = suite_create("boot meetings");
    tc    = tcase_create("meetings");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, ranks_meet_at_an_address_and_are_dealt_ranks);
    tcase_add_test(tc, asked_for_ranks_are_given_whoever_comes_first);
    tcase_add_test(tc, the_same_address_serves_one_boot_after_the_other);
    tcase_add_test(tc, on_loopback_the_users_own_secret_is_made_and_used);
    tcase_add_test(tc, the_meeting_listens_on_the_interface_named);
    tcase_add_test(tc, members_hear_that_the_serving_rank_is_gone);
    tcase_add_test(tc, bad_arguments_are_refused_with_their_variable);
    tcase_add_test(tc, a_rank_asked_for_twice_is_refused_and_so_is_another_size);
    tcase_add_test(tc, member_that_never_comes_is_named_when_time_is_up);
    tcase_add_test(tc, meeting_that_nobody_serves_times_out);
    tcase_add_test(tc, ranks_meet_by_the_callers_callbacks);
    tcase_add_test(tc, alone_is_rank_0_of_1);
    tcase_add_test(tc, a_rank_alone_has_the_users_own_secret_if_it_asks_for_it);
    tcase_add_test(tc, without_libpmix_a_launchers_rank_says_what_to_install);
    tcase_add_loop_test(tc, a_rank_that_fails_under_mpirun_leaves_none_waiting, 0, 5);
    tcase_add_test(tc, pmix_variables_without_a_launcher_are_an_error_not_many_singletons);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
