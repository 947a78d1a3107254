/*
 * What the ranks of a run share (conform_shared.h): a fence, boot's store, blobs, words.
 *
 * Each rank writes its own members; only the words are written by several. So machines whose file is the same memory
 * (test/guest) need no lock between them.
 */
#include "conform_shared.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MEET_S = 120 };

/* ---------------------------------------------------------------- the mapping */

static void *map(const char *file)
{
    int  fd  = (file != NULL) ? open(file, O_RDWR | O_CLOEXEC) : -1;
    void *at = mmap(NULL, sizeof(cf_shared_t), PROT_READ | PROT_WRITE, MAP_SHARED | ((fd < 0) ? MAP_ANONYMOUS : 0), fd,
                    0);

    if (((file != NULL) && (fd < 0)) || (at == MAP_FAILED)) {
        perror((file != NULL) ? file : "mmap");
        exit(1);
    }
    (void)((fd >= 0) && close(fd));
    return at;
}

static void await(const _Atomic uint64_t *word, uint64_t below, const char *what)
{
    uint64_t until = kvcl_deadline_after(MEET_S * KVCL_NS_PER_SEC);

    while (atomic_load((_Atomic uint64_t *)word) < below) {
        if (kvcl_deadline_passed(until)) {
            fprintf(stderr, "%s after %d s\n", what, MEET_S);
            exit(1);
        }
        usleep(1000);
    }
}

static void clear(cf_shared_t *sh)
{
    const size_t from = offsetof(cf_shared_t, arrived);

    memset((char *)sh + from, 0, sizeof(*sh) - from);
}

cf_shared_t *cf_shared_open(const cf_hosts_t *hosts, uint64_t seed)
{
    cf_shared_t *sh = map(hosts->file);
    int         i;

    if (hosts->me != 0) {
        await(&sh->opened, atomic_load(&sh->left[hosts->me]) + 1, "the first machine has not begun a run");
        return sh;
    }
    for (i = 1; i < hosts->n; ++i) {
        await(&sh->left[i], atomic_load(&sh->opened), "a machine has not left the run before");
    }
    if (hosts->file != NULL) {
        clear(sh);
    }
    sh->seed = seed;
    atomic_fetch_add(&sh->opened, 1);
    return sh;
}

void cf_shared_close(const cf_hosts_t *hosts, cf_shared_t *sh)
{
    atomic_store(&sh->left[hosts->me], atomic_load(&sh->opened));
    munmap(sh, sizeof(*sh));
}

/* ---------------------------------------------------------------- the store that boot uses */

/* Boot counts the contexts of a process ("kvcl.<n>.job"). Ranks that are threads would each get another number. */
static void plain_key(const char *key, char out[CF_KEY_MAX])
{
    const char *rest = strchr(key, '.');

    rest = (rest != NULL) ? strchr(rest + 1, '.') : NULL;
    snprintf(out, CF_KEY_MAX, "%s", (rest != NULL) ? rest : key);
}

kvcl_status_t cf_store_set(void *arg, const char *key, const void *val, size_t len)
{
    cf_t         *cf   = arg;
    cf_entries_t *mine = &cf->sh->entries[cf->rank];
    unsigned     n     = atomic_load(&mine->n);

    if ((n == CF_KEYS_MAX) || (len > CF_VAL_MAX)) {
        return KVCL_ERR_NO_SPACE;
    }
    plain_key(key, mine->of[n].key);
    memcpy(mine->of[n].val, val, len);
    mine->of[n].len = len;
    atomic_store(&mine->n, n + 1);
    return KVCL_OK;
}

static bool find(const cf_entries_t *from, const char *key, void *buf, size_t cap, size_t *len_p)
{
    unsigned i, n = atomic_load((_Atomic unsigned *)&from->n);

    for (i = 0; i < n; ++i) {
        if (strcmp(from->of[i].key, key) == 0) {
            *len_p = from->of[i].len;
            memcpy(buf, from->of[i].val, (*len_p < cap) ? *len_p : cap);
            return true;
        }
    }
    return false;
}

kvcl_status_t cf_store_get(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    cf_t     *cf      = arg;
    uint64_t deadline = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);
    char     plain[CF_KEY_MAX];
    int      rank;

    plain_key(key, plain);
    while (!kvcl_deadline_passed(deadline)) {
        for (rank = 0; rank < cf->size; ++rank) {
            if (find(&cf->sh->entries[rank], plain, buf, cap, len_p)) {
                return KVCL_OK;
            }
        }
        usleep(200);
    }
    return KVCL_ERR_TIMED_OUT;
}

kvcl_status_t cf_store_fence(void *arg)
{
    cf_fence(arg);
    return KVCL_OK;
}

/* ---------------------------------------------------------------- functions for cases */

/* Take the context's lock: it alone orders this thread with accesses that the library's threads make for other
 * processes. */
static void order_with_library(cf_t *cf)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    if (cf->ctx != NULL) {
        KVCL_TRY(kvcl_context_stats(cf->ctx, &stats));
    }
}

void cf_fence(cf_t *cf)
{
    cf_shared_t *sh    = cf->sh;
    uint64_t    round  = atomic_load(&sh->arrived[cf->rank]) + 1;
    int         rank;

    order_with_library(cf);
    atomic_store(&sh->arrived[cf->rank], round);
    for (rank = 0; rank < cf->size; ++rank) {
        while (atomic_load(&sh->arrived[rank]) < round) {
            cf_sleep_us(cf, 20);
        }
    }
    order_with_library(cf);
}

void cf_alive(cf_t *cf)
{
    atomic_fetch_add(&cf->sh->changes, 1);
}

void cf_give(cf_t *cf, const void *buf, size_t len)
{
    CF_CHECK(cf, len <= CF_BLOB_MAX);
    memcpy(cf->sh->blob[cf->rank], buf, len);
    cf->sh->blob_len[cf->rank] = len;
}

const void *cf_blob(cf_t *cf, int rank, size_t *len_p)
{
    *len_p = cf->sh->blob_len[rank];
    return cf->sh->blob[rank];
}

static bool is_here(const cf_t *cf, int rank)
{
    return rank % cf->hosts == cf->rank % cf->hosts;
}

pid_t cf_pid(cf_t *cf, int rank)
{
    return is_here(cf, rank) ? cf->sh->pid[rank] : 0;
}

bool cf_may_read(cf_t *cf, int rank)
{
    const char   *tls = getenv("UCX_TLS");
    char         c;
    struct iovec to = {&c, 1}, from = {(void *)(uintptr_t)&cf_main, 1}; /* the same in all ranks */

    return ((tls == NULL) || (tls[0] != '^') || (strstr(tls, "cma") == NULL)) &&
           (process_vm_readv(cf_pid(cf, rank), &to, 1, &from, 1, 0) == 1);
}

static bool is_stopped(const char *task)
{
    char          line[512] = "";
    const char    *state;
    const int     fd = open(task, O_RDONLY | O_CLOEXEC);
    const ssize_t n  = (fd >= 0) ? read(fd, line, sizeof(line) - 1) : 0;

    if (fd >= 0) {
        close(fd);
    }
    state = (n > 0) ? strrchr(line, ')') : NULL;
    return (state == NULL) || (strncmp(state, ") T", 3) == 0); /* NULL: the thread has ended */
}

/* A thread goes on after the signal until one of its process has had a processor to take it. */
static void wait_until_stopped(pid_t pid)
{
    char                folder[64], task[400];
    const struct dirent *entry;
    bool                all = false;
    DIR                 *dir;

    snprintf(folder, sizeof(folder), "/proc/%d/task", (int)pid);
    while (!all && ((dir = opendir(folder)) != NULL)) {
        for (all = true; all && ((entry = readdir(dir)) != NULL);) {
            snprintf(task, sizeof(task), "%s/%s/stat", folder, entry->d_name);
            all = (entry->d_name[0] == '.') || is_stopped(task);
        }
        closedir(dir);
        usleep(100);
    }
}

void cf_kill(cf_t *cf, int rank, int sig)
{
    if (is_here(cf, rank)) {
        kill(cf->sh->pid[rank], sig);
        if (sig == SIGSTOP) {
            wait_until_stopped(cf->sh->pid[rank]);
        }
        return;
    }
    atomic_store(&cf->sh->signal[rank], sig);
    while (atomic_load(&cf->sh->signal[rank]) != 0) {
        cf_sleep_us(cf, 100);
    }
}

uint64_t cf_same(cf_t *cf)
{
    return cf->sh->seed ^ ((uint64_t)(unsigned)atomic_load(&cf->sh->at) << 32);
}

_Atomic uint64_t *cf_word(cf_t *cf, unsigned i)
{
    return &cf->sh->words[i];
}
