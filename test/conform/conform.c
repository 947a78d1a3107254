/*
 * The frame around the cases (conform.h): configurations, starting ranks, verdicts.
 */
#include "conform_shared.h"
#include "loop/xport_loop.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASES_MAX = 128 };

/* One run: a configuration and the cases that fit it. */
typedef struct run {
    const cf_config_t *config;
    const cf_case_t   *cases[CASES_MAX];
    int               n;
    uint64_t          seed;
    bool              keeps_net; /* the user's KVCL_NET; otherwise the path sets it */
    cf_hosts_t        hosts;
    cf_shared_t       *sh;
} run_t;

typedef struct rank_thread {
    run_t     *run;
    int       rank;
    pthread_t thread;
} rank_thread_t;

bool cf_sanitizer(const char *which)
{
    const char *env = getenv("TEST_SANITIZE");

    return (env != NULL) && (*env != '\0') && (strcmp(env, "no") != 0) && (strstr(env, which) != NULL);
}

/* Sanitizers and emulated machines: TEST_SLOW=1 stands for the latter. */
static bool is_slow(void)
{
    const char *env = getenv("TEST_SLOW");

    return cf_sanitizer("") || ((env != NULL) && (strcmp(env, "1") == 0));
}

/* ---------------------------------------------------------------- verdicts */

void cf_fail(cf_t *cf, const char *file, int line, const char *what, const char *more)
{
    fprintf(stderr, "rank %d: %s:%d: %s%s%s (last error: %s)\n", cf->rank, file, line, what, (more != NULL) ? ": " : "",
            (more != NULL) ? more : "", kvcl_last_error());
    fflush(stderr);
    _exit(1);
}

void cf_status(cf_t *cf, const char *file, int line, const char *what, kvcl_status_t got, kvcl_status_t want)
{
    char more[128];

    if (got != want) {
        snprintf(more, sizeof(more), "%s, not %s", kvcl_status_name(got), kvcl_status_name(want));
        cf_fail(cf, file, line, what, more);
    }
}

/* ---------------------------------------------------------------- functions for cases */

void cf_stall(cf_t *cf, bool on)
{
    kvcl_loop_faults_t faults = {.no_map = true, .async_sends = true, .break_rma = true, .stall_rma = on};

    CF_CHECK(cf, cf->native);
    kvcl_loop_set_faults(&faults);
}

void cf_sleep_us(cf_t *cf, unsigned us)
{
    uint64_t until = kvcl_deadline_after((uint64_t)us * KVCL_NS_PER_US);

    if (!cf->no_thread || (cf->ctx == NULL)) {
        usleep(us);
        return;
    }
    do {
        (void)kvcl_progress(cf->ctx);
    } while (!kvcl_deadline_passed(until));
}

kvcl_status_t cf_end(cf_t *cf, kvcl_req_h req)
{
    kvcl_status_t status = kvcl_req_wait(req, (is_slow() ? 80 : 20) * KVCL_NS_PER_SEC);

    CF_CHECK(cf, status != KVCL_ERR_WAIT_TIMEOUT);
    return status;
}

/* ---------------------------------------------------------------- running */

static void open_world(cf_t *cf, const cf_config_t *config)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_oob_t         oob    = {sizeof(oob), cf->rank, cf->size, cf_store_set, cf_store_get, cf_store_fence, cf};

    params.oob   = &oob;
    params.path  = cf->path;
    params.flags = config->init_flags & ~(CF_NATIVE | CF_LANE | CF_OVERTAKE | CF_APART);
    CF_OK(cf, kvcl_init(&params, &cf->ctx));
    CF_OK(cf, kvcl_comm_world(cf->ctx, &cf->world));
    CF_CHECK(cf, (kvcl_comm_rank(cf->world) == cf->rank) && (kvcl_comm_size(cf->world) == cf->size));
}

static void rank_main(run_t *run, int rank)
{
    const cf_config_t *config = run->config;
    cf_t              cf      = {.rank = rank, .size = config->size, .path = config->path, .procs = config->procs,
                                 .no_thread = (config->init_flags & KVCL_INIT_NO_THREAD) != 0,
                                 .native = (config->init_flags & CF_NATIVE) != 0,
                                 .overtakes = (config->init_flags & CF_OVERTAKE) != 0, .hosts = run->hosts.n,
                                 .sh = run->sh};
    int               i;

    run->sh->pid[rank] = getpid();
    open_world(&cf, config);
    for (i = 0; i < run->n; ++i) {
        cf_fence(&cf);
        if (rank == 0) {
            atomic_store(&run->sh->at, i);
            cf_alive(&cf);
        }
        cf_fence(&cf);
        kvcl_rand_seed(&cf.rnd, cf_same(&cf) + (uint64_t)rank + 1);
        run->cases[i]->fn(&cf);
        if ((run->cases[i]->flags & CF_DIES) == 0) {
            cf_fence(&cf);
        }
        if (rank == 0) {
            atomic_fetch_add(&run->sh->passed, 1);
        }
    }
    kvcl_finalize(cf.ctx);
}

static void *rank_thread(void *arg)
{
    rank_thread_t *thread = arg;

    rank_main(thread->run, thread->rank);
    return NULL;
}

static void threads_main(run_t *run)
{
    kvcl_loop_faults_t native = {.no_map = true, .async_sends = true, .break_rma = true};
    kvcl_loop_faults_t overtake = {.no_rma = true, .async_sends = true, .overtake_seed = run->seed | 1};
    rank_thread_t      threads[CF_RANKS_MAX];
    int                i;

    kvcl_loop_set_faults((run->config->init_flags & CF_NATIVE)     ? &native
                         : (run->config->init_flags & CF_OVERTAKE) ? &overtake : NULL);
    for (i = 0; i < run->config->size; ++i) {
        threads[i] = (rank_thread_t){.run = run, .rank = i};
        pthread_create(&threads[i].thread, NULL, rank_thread, &threads[i]);
    }
    for (i = 0; i < run->config->size; ++i) {
        pthread_join(threads[i].thread, NULL);
    }
}

static pid_t start(run_t *run, int rank)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0);
        if (run->config->init_flags & CF_LANE) {
            (void)setenv("KVCL_LANE_MIN", "1", 1);
            (void)setenv("KVCL_WIRE", "plain", 0);
        }
        if (run->config->init_flags & CF_OVERTAKE) {
            (void)setenv("KVCL_FRAME", "8K", 1);
        }
        if ((run->config->init_flags & CF_APART) && !cf_host_move()) {
            perror("a host of its own (only root can have it)");
            exit(1);
        }
        if (run->config->procs) {
            rank_main(run, rank);
        } else {
            threads_main(run);
        }
        exit(0); /* and not _exit: sanitizers report leaks in exit */
    }
    return pid;
}

/* A rank of a case with CF_DIES may be killed; any other end but 0 is a failure. */
static bool good_end(const run_t *run, int status)
{
    bool dies = (run->n == 1) && (run->cases[0]->flags & CF_DIES);

    return (WIFEXITED(status) && (WEXITSTATUS(status) == 0)) ||
           (dies && WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL));
}

/* Collects the ranks that have ended. Returns how many; *good: false if one of them failed. */
static int collect(const run_t *run, pid_t *pids, bool *good)
{
    int i, status, n = 0;

    for (i = 0; i < run->config->size; ++i) {
        if ((pids[i] > 0) && (waitpid(pids[i], &status, WNOHANG) == pids[i])) {
            if (*good && !good_end(run, status)) {
                fprintf(stderr, "rank %d ended with %s %d\n", i, WIFEXITED(status) ? "status" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
                *good = false;
            }
            pids[i] = 0;
            ++n;
        }
    }
    return n;
}

/* Signals of ranks on other machines (cf_kill), and the end of all after a failure. */
static void send_signals(run_t *run, const pid_t *pids, bool good)
{
    int i, sig;

    for (i = 0; i < run->config->size; ++i) {
        if (pids[i] > 0) {
            sig = atomic_exchange(&run->sh->signal[i], 0);
            if ((sig != 0) || !good) {
                kill(pids[i], good ? sig : SIGKILL);
            }
        }
    }
}

/* The first machine that fails ends the ranks of all. */
static bool wait_all(run_t *run, pid_t *pids, int left)
{
    uint64_t stuck_s = is_slow() ? 4 * CF_STUCK_S : CF_STUCK_S, changes = 0, since = kvcl_now_ns(), now;
    bool     good = true;

    while ((left -= collect(run, pids, &good)) > 0) {
        now = atomic_load(&run->sh->changes);
        if (now != changes) {
            changes = now;
            since   = kvcl_now_ns();
        }
        if (good && ((kvcl_now_ns() - since) > stuck_s * KVCL_NS_PER_SEC)) {
            fprintf(stderr, "stands still for %u s\n", (unsigned)stuck_s);
            good = false;
            if (getenv("CF_HOLD") != NULL) { /* for a debugger */
                pause();
            }
        }
        good = good && (atomic_load(&run->sh->failed) == 0);
        if (!good) {
            atomic_store(&run->sh->failed, 1);
        }
        send_signals(run, pids, good);
        usleep(1000);
    }
    if (!good) {
        atomic_store(&run->sh->failed, 1);
    }
    return good;
}

static const char *mode_name(const cf_config_t *config)
{
    return (config->init_flags & KVCL_INIT_NO_THREAD) ? "nothread" :
           (config->init_flags & CF_NATIVE) ? "native" : (config->init_flags & CF_LANE) ? "lane" :
           (config->init_flags & CF_OVERTAKE) ? "overtake" : config->procs ? "procs" : "threads";
}

/* Return the number of failures, 0 or 1: a failed case ends the run. */
static int do_run(run_t *run, int *passed_p)
{
    const cf_config_t *config = run->config;
    pid_t             pids[CF_RANKS_MAX] = {0};
    int               n = config->procs ? config->size : 1, i, at, here = 0;
    uint64_t          began = kvcl_now_ns();
    bool              good;

    run->sh = cf_shared_open(&run->hosts, run->seed);
    if (!run->keeps_net) {
        (void)((strcmp(config->path, "tcp") == 0) ? setenv("KVCL_NET", "lo", 1) : unsetenv("KVCL_NET"));
    }
    for (i = run->hosts.me; i < n; i += run->hosts.n, ++here) {
        pids[i] = start(run, i);
    }
    good = wait_all(run, pids, here);
    at   = atomic_load(&run->sh->at);
    *passed_p += atomic_load(&run->sh->passed);
    printf("%s %s/%s/%s: %d of %d cases, %.1f s\n", good ? "ok  " : "FAIL", config->path, mode_name(config),
           ((run->n == 1) || !good) ? run->cases[at]->name : "*", atomic_load(&run->sh->passed), run->n,
           (double)(kvcl_now_ns() - began) * 1e-9);
    cf_shared_close(&run->hosts, run->sh);
    return good ? 0 : 1;
}

/* The thread sanitizer cannot see how UCX orders accesses to shared memory. */
static bool is_blind(const cf_config_t *config)
{
    return cf_sanitizer("thread") && (strcmp(config->path, "shm") == 0);
}

static bool fits(const cf_config_t *config, const cf_case_t *one)
{
    bool tcp = (strcmp(config->path, "tcp") == 0);

    if (((one->flags & CF_THREAD) && (config->init_flags & KVCL_INIT_NO_THREAD)) ||
        ((one->flags & CF_RDMA) && !(config->init_flags & CF_APART)) ||
        ((one->flags & CF_THREE) && (!config->procs || (config->size < 3)))) {
        return false;
    }
    if ((one->flags & CF_BY_GET) && (!(config->init_flags & CF_NATIVE) || (getenv("CF_DEVICE") != NULL))) {
        return false; /* loop has no native path to device memory */
    }
    if ((one->flags & CF_FAULTS) && (strcmp(config->path, "loop") != 0)) {
        return false;
    }
    return !((one->flags & CF_MAPPED) && (tcp || (config->init_flags & (CF_NATIVE | CF_OVERTAKE)))) &&
           !((one->flags & CF_PROCS) && !config->procs) && !((one->flags & CF_SERVED) && !tcp);
}

/* The thread sanitizer reports the races that a case makes on purpose between threads of a process: ranks, or the
 * caller's and the progress thread. */
static bool is_shut_out(const cf_config_t *config, const cf_case_t *one)
{
    return cf_sanitizer("thread") && (((one->flags & CF_RACY) && !config->procs) || (one->flags & CF_MIXES));
}

static bool wanted(const cf_config_t *config, const cf_case_t *one, int argc, char **argv)
{
    char full[128];
    int  i;

    snprintf(full, sizeof(full), "%s/%s/%s", config->path, mode_name(config), one->name);
    for (i = 1; i < argc; ++i) {
        if (strstr(full, argv[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* The configuration that an option stands for (cf_main). */
static bool parse_option(const char *option, cf_config_t *config, cf_hosts_t *hosts)
{
    bool       rdma = (strncmp(option, "--rdma", 6) == 0);
    int        ranks = 2, at = 0;
    const char *rest = option + 6, *machine;

    if (!rdma && (strncmp(option, "--auto", 6) != 0)) {
        return false;
    }
    if (*rest == '=') {
        ranks = atoi(rest + 1);
    }
    if ((ranks < 1) || (ranks > CF_RANKS_MAX)) {
        fprintf(stderr, "%s: from 1 to %d ranks\n", option, CF_RANKS_MAX);
        exit(2);
    }
    machine = strstr(rest, ",machine=");
    if (machine != NULL) {
        if ((sscanf(machine, ",machine=%d/%d:%n", &hosts->me, &hosts->n, &at) != 2) || (at == 0) || (hosts->me < 0) ||
            (hosts->me >= hosts->n) || (hosts->n > ranks)) {
            fprintf(stderr, "%s: not ,machine=NUMBER/MACHINES:FILE\n", option);
            exit(2);
        }
        hosts->file = machine + at;
    }
    *config = (cf_config_t){"auto", true, ranks, (rdma ? CF_NATIVE | ((machine == NULL) ? CF_APART : 0) : 0) |
                            ((strstr(rest, ",nothread") != NULL) ? KVCL_INIT_NO_THREAD : 0)};
    return true;
}

int cf_main(int argc, char **argv, const cf_config_t *configs, const cf_case_t *cases)
{
    const char *env  = getenv("TEST_SEED");
    uint64_t   seed  = (env != NULL) ? strtoull(env, NULL, 0) : kvcl_now_ns();
    int        passed = 0, failed = 0, skipped = 0;
    cf_config_t only[2] = {{NULL, false, 0, 0}, {NULL, false, 0, 0}};
    cf_hosts_t  hosts   = {.n = 1};
    const cf_case_t *one;

    if ((argc > 1) && parse_option(argv[1], &only[0], &hosts)) {
        configs = only;
        argv[1] = argv[0];
        ++argv;
        --argc;
    }
    printf("TEST_SEED=%" PRIu64 "\n", seed);
    setenv("KVCL_TIMEOUT", "60s", 0);
    for (; configs->path != NULL; ++configs) {
        run_t run = {.config = configs, .seed = seed, .keeps_net = (configs == only), .hosts = hosts};
        if (is_blind(configs)) {
            printf("SKIP: %s/%s: not for the thread sanitizer\n", configs->path, mode_name(configs));
            ++skipped;
            continue;
        }
        for (one = cases; one->name != NULL; ++one) {
            if (!fits(configs, one) || !wanted(configs, one, argc, argv)) {
                continue;
            }
            if (is_shut_out(configs, one)) {
                printf("SKIP: %s/%s/%s: races on purpose, not for the thread sanitizer\n", configs->path,
                       mode_name(configs), one->name);
                ++skipped;
            } else if (one->flags & CF_DIES) {
                run_t alone = run;
                alone.cases[0] = one;
                alone.n        = 1;
                failed += do_run(&alone, &passed);
            } else {
                run.cases[run.n++] = one;
            }
        }
        if (run.n > 0) {
            failed += do_run(&run, &passed);
        }
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return (failed == 0) ? 0 : 1;
}
