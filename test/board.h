/*
 * The meeting point of ranks that are threads of one process: the calls of a kvcl_oob_t. A test sets the number of
 * ranks with pthread_barrier_init(&board_all, NULL, n), and board.n to 0 before they meet anew.
 */
#ifndef KVCL_TEST_BOARD_H
#define KVCL_TEST_BOARD_H

#include <kvcl/kvcl.h>

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BOARD_OK(_call) ck_assert_msg((_call) == KVCL_OK, "%s", kvcl_last_error())

enum { BOARD_NOTES = 512, BOARD_KEY = 128, BOARD_VALUE = 2048, BOARD_RANKS = 8 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  news;
    unsigned        n;
    char            key[BOARD_NOTES][BOARD_KEY];
    char            value[BOARD_NOTES][BOARD_VALUE];
    size_t          len[BOARD_NOTES];
} board = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

static pthread_barrier_t board_all;

static inline kvcl_status_t board_set(void *arg, const char *key, const void *value, size_t len)
{
    (void)arg;
    pthread_mutex_lock(&board.lock);
    ck_assert((board.n < BOARD_NOTES) && (len <= BOARD_VALUE));
    snprintf(board.key[board.n], BOARD_KEY, "%s", key);
    memcpy(board.value[board.n], value, len);
    board.len[board.n++] = len;
    pthread_cond_broadcast(&board.news);
    pthread_mutex_unlock(&board.lock);
    return KVCL_OK;
}

static inline kvcl_status_t board_get(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    unsigned i = 0;

    (void)arg;
    pthread_mutex_lock(&board.lock);
    for (;;) {
        for (i = 0; (i < board.n) && (strcmp(board.key[i], key) != 0); ++i) {
        }
        if (i < board.n) {
            break;
        }
        pthread_cond_wait(&board.news, &board.lock);
    }
    *len_p = board.len[i];
    memcpy(buf, board.value[i], (*len_p < cap) ? *len_p : cap);
    pthread_mutex_unlock(&board.lock);
    return KVCL_OK;
}

static inline kvcl_status_t board_fence(void *arg)
{
    (void)arg;
    pthread_barrier_wait(&board_all);
    return KVCL_OK;
}

/* Rank *rank of n joins the job over the given path, with flags of kvcl_init_params_t. */
static inline kvcl_context_h board_join(int *rank, int n, const char *path, unsigned flags, kvcl_comm_h *world_p)
{
    kvcl_oob_t         oob  = {sizeof(oob), *rank, n, board_set, board_get, board_fence, rank};
    kvcl_init_params_t init = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     joined;

    init.oob   = &oob;
    init.path  = path;
    init.flags = flags;
    BOARD_OK(kvcl_init(&init, &joined));
    BOARD_OK(kvcl_comm_world(joined, world_p));
    return joined;
}

/* The first n ranks do it at once, rank 0 in the caller's thread. Its argument is an int, the rank's number. */
static inline void board_do(int n, void *(*what)(void *))
{
    static int ids[BOARD_RANKS];
    pthread_t  threads[BOARD_RANKS];
    int        i;

    ck_assert_int_le(n, BOARD_RANKS);
    for (i = 1; i < n; ++i) {
        ids[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, what, &ids[i]), 0);
    }
    (void)what(&ids[0]);
    for (i = 1; i < n; ++i) {
        pthread_join(threads[i], NULL);
    }
}

#endif
