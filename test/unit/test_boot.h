/*
 * Threads as ranks, for the programs that test whole boots: a free loopback port, two secret files, a home of their own
 * (fixture set_up, tear_down), and rank_thread_t, which opens, exchanges, checks and closes.
 */
#ifndef KVCL_TEST_BOOT_H
#define KVCL_TEST_BOOT_H

#include "test_base.h"
#include "base/error.h"
#include "boot/boot.h"
#include "test/multi/port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS_MAX = 16 };

static char url[64];
static int  port;
static char dir[64];
static char secret_file[96], other_file[96];

static inline void write_file(char *path, size_t len, const char *name, char fill)
{
    char bytes[32];
    int  fd;

    snprintf(path, len, "%s/%s", dir, name);
    memset(bytes, fill, sizeof(bytes));
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq((int)write(fd, bytes, sizeof(bytes)), (int)sizeof(bytes));
    close(fd);
}

/* A free port, two secret files, and a home directory, so that the user's own is unchanged. */
static inline void set_up(void)
{
    port = next_port();
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port);
    snprintf(dir, sizeof(dir), "/tmp/kvcl-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("HOME", dir, 1);
    unsetenv("PMIX_NAMESPACE");
    write_file(secret_file, sizeof(secret_file), "one", 'a');
    write_file(other_file, sizeof(other_file), "two", 'b');
}

static inline void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    ck_assert_int_eq(system(command), 0);
}

/* ---------------------------------------------------------------- ranks as threads */

typedef struct rank_thread {
    kvcl_boot_params_t params;
    int                rounds; /* successive boots, the first kept open */
    kvcl_status_t      status;
    char               error[KVCL_ERROR_MAX];
    int                rank;
    uint8_t            secret[32];
    char               job[KVCL_BOOT_JOB_MAX];
    int                wrong;
    _Atomic int        joined; /* its first boot is open: it is a member */
    pthread_t          thread;
} rank_thread_t;

static inline void check_blobs(rank_thread_t *self, kvcl_boot_t *boot, int round)
{
    const void *blob;
    size_t      len;
    int         rank;
    char        want[64];

    for (rank = boot->size - 1; rank >= 0; --rank) {
        snprintf(want, sizeof(want), "round %d rank %d", round, rank);
        self->wrong += (kvcl_boot_get(boot, rank, &blob, &len) != KVCL_OK) || (len != strlen(want)) ||
                       (memcmp(blob, want, len) != 0);
    }
    self->wrong += (kvcl_boot_get(boot, boot->size, &blob, &len) != KVCL_ERR_UNKNOWN_RANK);
}

static inline kvcl_status_t one_round(rank_thread_t *self, int round, kvcl_boot_t **boot_p)
{
    char          mine[64];
    const void   *blob;
    size_t        len;
    kvcl_status_t status = kvcl_boot_open(&self->params, boot_p);

    if (status != KVCL_OK) {
        return status;
    }
    self->rank = (*boot_p)->rank;
    self->joined = 1;
    self->wrong += (kvcl_boot_get(*boot_p, 0, &blob, &len) != KVCL_ERR_NOT_FOUND);
    snprintf(mine, sizeof(mine), "round %d rank %d", round, self->rank);
    status = kvcl_boot_exchange(*boot_p, mine, strlen(mine));
    if (status == KVCL_OK) {
        memcpy(self->secret, (*boot_p)->secret, 32);
        memcpy(self->job, (*boot_p)->job, sizeof(self->job));
        self->wrong += (kvcl_boot_exchange(*boot_p, mine, 1) != KVCL_ERR_EXISTS);
        check_blobs(self, *boot_p, round);
    }
    return status;
}

static inline void *run_rank(void *arg)
{
    rank_thread_t *self     = (rank_thread_t *)arg;
    kvcl_boot_t   *boots[4] = {NULL};
    int            i;

    for (i = 0; (i < self->rounds) && (self->status == KVCL_OK); ++i) {
        self->status = one_round(self, i, &boots[i]);
    }
    snprintf(self->error, sizeof(self->error), "%s", kvcl_last_error());
    for (i = 0; i < 4; ++i) {
        kvcl_boot_close(boots[i]);
    }
    return NULL;
}

/* Check's time limit ends a test whose rank never joins. */
static inline void wait_joined(rank_thread_t *self)
{
    while (!self->joined) {
        usleep(1000);
    }
}

static inline void prepare(rank_thread_t *ranks, int count, int size)
{
    int i;

    memset(ranks, 0, (size_t)count * sizeof(*ranks));
    for (i = 0; i < count; ++i) {
        ranks[i].params.rank        = -1;
        ranks[i].params.size        = size;
        ranks[i].params.rendezvous  = url;
        ranks[i].params.secret_file = secret_file;
        ranks[i].params.timeout_ns  = 60 * KVCL_NS_PER_SEC;
        ranks[i].rounds             = 1;
        ranks[i].rank               = -1;
    }
}

static inline void start(rank_thread_t *rank)
{
    ck_assert_int_eq(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static inline void run_all(rank_thread_t *ranks, int count)
{
    int i;

    for (i = 0; i < count; ++i) {
        start(&ranks[i]);
    }
    for (i = 0; i < count; ++i) {
        pthread_join(ranks[i].thread, NULL);
    }
}

static inline void all_met(const rank_thread_t *ranks, int count)
{
    int seen[RANKS_MAX] = {0};
    int i;

    for (i = 0; i < count; ++i) {
        ck_assert_msg(ranks[i].status == KVCL_OK, "%d: %s: %s", i, kvcl_status_name(ranks[i].status), ranks[i].error);
        ck_assert_int_eq(ranks[i].wrong, 0);
        ck_assert_int_eq(seen[ranks[i].rank]++, 0);
        ck_assert_mem_eq(ranks[i].secret, ranks[0].secret, 32);
        ck_assert_str_eq(ranks[i].job, ranks[0].job);
    }
}

#endif
