/*
 * Where the job's secret lies in a process: all readable memory is searched for its bytes. There is one copy for each
 * open boot or context, in a page that core dumps and forked children do not get, and none after the end.
 *
 * The test keeps the secret only as bytes XORed with MASK, and reads memory through /proc/self/mem.
 */
#include "config.h"
#include "base/sanitizers.h"
#include "boot/secret.h"
#include "core/context.h"
#include "test_boot.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>

enum { LEN = KVCL_SHA256_LEN, MASK = 0xa5, CHUNK = 1 << 20 };

#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif

static char      program[PATH_MAX];
static uint8_t   masked[LEN];
static char      chunk[CHUNK];
static uintptr_t found; /* the address of the copy found last */

/* The buffer of the search is not searched. */
static unsigned copies_between(int fd, uintptr_t at, uintptr_t end)
{
    unsigned  count = 0;
    ssize_t   n;
    ssize_t   i;
    int       k;
    uintptr_t own = (uintptr_t)chunk;

    while (at + LEN <= end) {
        if ((at < own + CHUNK) && (own < at + LEN)) {
            at = own + CHUNK;
            continue;
        }
        n = (ssize_t)((end - at < CHUNK) ? end - at : CHUNK);
        if ((at < own) && (at + (uintptr_t)n > own)) {
            n = (ssize_t)(own - at);
        }
        n = pread(fd, chunk, (size_t)n, (off_t)at);
        if (n < LEN) {
            return count; /* not readable: a device, or a guard page */
        }
        for (i = 0; i + LEN <= n; ++i) {
            for (k = 0; (k < LEN) && (((uint8_t)chunk[i + k] ^ MASK) == masked[k]); ++k) {
            }
            if (k == LEN) {
                ++count;
                found = at + (uintptr_t)i;
            }
        }
        at += (uintptr_t)(n - LEN + 1);
    }
    return count;
}

static unsigned copies(void)
{
    FILE          *maps = fopen("/proc/self/maps", "r");
    int           fd    = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    unsigned long start, end;
    char          line[512], rights[8];
    unsigned      count = 0;

    ck_assert(maps != NULL);
    ck_assert_int_ge(fd, 0);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if ((sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3) && (rights[0] == 'r') &&
            (end - start <= (1ul << 30))) {
            count += copies_between(fd, start, end);
        }
    }
    fclose(maps);
    close(fd);
    memset(chunk, 0, sizeof(chunk));
    return count;
}

static void remember(const uint8_t *secret)
{
    int i;

    for (i = 0; i < LEN; ++i) {
        masked[i] = secret[i] ^ MASK;
    }
}

/* Of the page at this address: "dd" is MADV_DONTDUMP, "wf" MADV_WIPEONFORK. */
static bool has_flag(uintptr_t address, const char *flag)
{
    FILE          *smaps = fopen("/proc/self/smaps", "r");
    unsigned long start, end;
    char          line[512];
    bool          here = false, has = false;

    ck_assert(smaps != NULL);
    while (fgets(line, sizeof(line), smaps) != NULL) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            here = (address >= start) && (address < end);
        } else if (here && (strncmp(line, "VmFlags:", 8) == 0)) {
            has = strstr(line, flag) != NULL;
        }
    }
    fclose(smaps);
    return has;
}

/* A child that is forked now sees zeros there. */
static void assert_zero_in_a_child(uintptr_t address)
{
    const uint8_t *at   = (const uint8_t *)address;
    pid_t         child = fork();
    int           status, i;
    uint8_t       any = 0;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        for (i = 0; i < LEN; ++i) {
            any |= at[i];
        }
        _exit(any != 0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0));
}

static void assert_kept_well(const uint8_t *secret)
{
    ck_assert_uint_eq(copies(), 1);
    ck_assert_uint_eq(found, (uintptr_t)secret);
    ck_assert(has_flag(found, " dd"));
    ck_assert(has_flag(found, " wf"));
    assert_zero_in_a_child(found);
}

START_TEST(a_context_has_one_copy)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;

    params.boot        = "self";
    params.path        = (_i < 2) ? "loop" : "tcp"; /* KVCL's own connections know the secret as well */
    params.secret_file = (_i == 0) ? secret_file : NULL; /* the file's, or a random one */
    setenv("KVCL_NET", "lo", 1);
    setenv("KVCL_WIRE", "aead", 1);
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    remember(ctx->secret);
    assert_kept_well(ctx->secret);
    kvcl_finalize(ctx);
    ck_assert_uint_eq(copies(), 0);
}
END_TEST

/* A boot of one rank, from open to close. */
static void assert_one_copy(const kvcl_boot_params_t *params)
{
    kvcl_boot_t *boot;

    ck_assert_int_eq(kvcl_boot_open(params, &boot), KVCL_OK);
    ck_assert_int_eq(kvcl_boot_exchange(boot, "x", 1), KVCL_OK);
    remember(boot->secret);
    assert_kept_well(boot->secret);
    kvcl_boot_close(boot);
    ck_assert_uint_eq(copies(), 0);
}

static kvcl_status_t drop(void *arg, const char *key, const void *val, size_t len)
{
    (void)arg, (void)key, (void)val, (void)len;
    return KVCL_OK;
}

static kvcl_status_t have_none(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    (void)arg, (void)key, (void)buf, (void)cap, (void)len_p;
    return KVCL_ERR_NOT_FOUND;
}

static kvcl_status_t wait_for_none(void *arg)
{
    (void)arg;
    return KVCL_OK;
}

/* The caller's store is not searched: this one keeps nothing. */
START_TEST(a_boot_by_the_callers_store_has_one_copy)
{
    kvcl_oob_t         oob    = {sizeof(oob), 0, 1, drop, have_none, wait_for_none, NULL};
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;

    params.oob         = &oob;
    params.secret_file = (_i == 0) ? secret_file : NULL;
    assert_one_copy(&params);
}
END_TEST

/* The rank that serves the meeting has no second copy for its server. */
START_TEST(a_boot_by_rendezvous_has_one_copy)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;

    params.rendezvous  = url;
    params.size        = 1;
    params.secret_file = secret_file;
    assert_one_copy(&params);
}
END_TEST

/* ---- two ranks that agree on the secret through a store ---- */

enum { VALUES = 16, VALUE_MAX = 256 };

typedef struct values {
    pthread_mutex_t   lock;
    pthread_cond_t    cond;
    pthread_barrier_t barrier;
    int               n;
    char              key[VALUES][64];
    uint8_t           bytes[VALUES][VALUE_MAX];
    size_t            len[VALUES];
} values_t;

static values_t values = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static kvcl_status_t keep(void *arg, const char *key, const void *val, size_t len)
{
    (void)arg;
    pthread_mutex_lock(&values.lock);
    ck_assert((values.n < VALUES) && (len <= VALUE_MAX));
    snprintf(values.key[values.n], sizeof(values.key[0]), "%s", key);
    memcpy(values.bytes[values.n], val, len);
    values.len[values.n++] = len;
    pthread_cond_broadcast(&values.cond);
    pthread_mutex_unlock(&values.lock);
    return KVCL_OK;
}

static kvcl_status_t await(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    int i = 0;

    (void)arg;
    pthread_mutex_lock(&values.lock);
    for (;; ++i) {
        while (i == values.n) {
            pthread_cond_wait(&values.cond, &values.lock);
        }
        if (strcmp(values.key[i], key) == 0) {
            break;
        }
    }
    *len_p = values.len[i];
    memcpy(buf, values.bytes[i], (*len_p < cap) ? *len_p : cap);
    pthread_mutex_unlock(&values.lock);
    return KVCL_OK;
}

static kvcl_status_t meet_all(void *arg)
{
    (void)arg;
    (void)pthread_barrier_wait(&values.barrier);
    return KVCL_OK;
}

static kvcl_boot_t *boots[2];

static void *open_rank(void *arg)
{
    int                rank   = *(const int *)arg;
    kvcl_oob_t         oob    = {sizeof(oob), rank, 2, keep, await, meet_all, NULL};
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;

    params.oob = &oob;
    ck_assert_int_eq(kvcl_boot_open(&params, &boots[rank]), KVCL_OK);
    ck_assert_int_eq(kvcl_boot_exchange(boots[rank], "x", 1), KVCL_OK);
    return NULL;
}

/* Each has one copy, and the store, which is memory of this process too, has none. */
START_TEST(ranks_that_agree_have_a_copy_each)
{
    int       rank[2] = {0, 1}, i;
    pthread_t thread[2];

    ck_assert_int_eq(pthread_barrier_init(&values.barrier, NULL, 2), 0);
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, open_rank, &rank[i]), 0);
    }
    for (i = 0; i < 2; ++i) {
        pthread_join(thread[i], NULL);
    }
    ck_assert_mem_eq(boots[0]->secret, boots[1]->secret, LEN);
    remember(boots[0]->secret);
    ck_assert_uint_eq(copies(), 2);
    kvcl_boot_close(boots[0]);
    kvcl_boot_close(boots[1]);
    ck_assert_uint_eq(copies(), 0);
}
END_TEST

/* A rank under mpirun: "test_secret_copies rank". PMIx maps what all ranks have put. */
START_TEST(a_rank_under_mpirun_has_one_copy)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t        *boot;
    const void         *blob;
    size_t             len;
    int                rank;

    params.which = "pmix";
    ck_assert_msg(kvcl_boot_open(&params, &boot) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_msg(kvcl_boot_exchange(boot, "blob", 4) == KVCL_OK, "%s", kvcl_last_error());
    for (rank = 0; rank < boot->size; ++rank) {
        ck_assert_msg(kvcl_boot_get(boot, rank, &blob, &len) == KVCL_OK, "%s", kvcl_last_error());
        ck_assert((len == 4) && (memcmp(blob, "blob", 4) == 0));
    }
    remember(boot->secret);
    ck_assert_uint_eq(copies(), 1);
    kvcl_boot_close(boot);
}
END_TEST

START_TEST(ranks_that_pmix_brings_together_have_a_copy_each)
{
    char command[600];

    if (!KVCL_HAVE_PMIX || (system("command -v mpirun >/dev/null 2>&1") != 0)) {
        printf("SKIP: built without PMIx, or no mpirun\n");
        return;
    }
    snprintf(command, sizeof(command), "CK_FORK=no timeout -k 5 100 mpirun -n 3 '%.500s' rank", program);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(a_boot_that_fails_keeps_none)
{
    kvcl_boot_params_t params = KVCL_BOOT_PARAMS_INIT;
    kvcl_boot_t        *boot;
    uint8_t            secret[LEN];

    ck_assert_int_eq(kvcl_secret_from_file(secret_file, secret), KVCL_OK);
    remember(secret);
    kvcl_wipe(secret, sizeof(secret));
    params.rendezvous  = url;
    params.size        = 2;
    params.rank        = 1; /* rank 0, which would serve the meeting, never starts */
    params.secret_file = secret_file;
    params.timeout_ns  = KVCL_NS_PER_SEC / 10;
    ck_assert_int_ne(kvcl_boot_open(&params, &boot), KVCL_OK);
    ck_assert_uint_eq(copies(), 0);
}
END_TEST

/* Until a function is bound, each call saves the registers on the stack, with whatever a copy has left in them. */
static void bind_now(char **argv)
{
    if (getenv("LD_BIND_NOW") == NULL) {
        setenv("LD_BIND_NOW", "1", 1);
        (void)execv("/proc/self/exe", argv);
        perror("exec");
    }
}

int main(int argc, char **argv)
{
    Suite *suite;
    TCase *tc;

    if (KVCL_ASAN || KVCL_TSAN) {
        printf("SKIP: a sanitizer's own memory is too large to search\n");
        return 77;
    }
    bind_now(argv);
    suite = suite_create("copies of the secret");
    tc    = tcase_create("copies");
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    if (argc > 1) {
        tcase_add_test(tc, a_rank_under_mpirun_has_one_copy);
        return test_run(suite);
    }
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) {
        perror("/proc/self/exe");
        return 1;
    }
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_context_has_one_copy, 0, 3);
    tcase_add_loop_test(tc, a_boot_by_the_callers_store_has_one_copy, 0, 2);
    tcase_add_test(tc, a_boot_by_rendezvous_has_one_copy);
    tcase_add_test(tc, ranks_that_agree_have_a_copy_each);
    tcase_add_test(tc, ranks_that_pmix_brings_together_have_a_copy_each);
    tcase_add_test(tc, a_boot_that_fails_keeps_none);
    return test_run(suite);
}
