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

enum { BOARD_NOTES = 512, BOARD_KEY = 128, BOARD_VALUE = 2048 };

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

/* Two ranks do it at once. Its argument is an int, the rank's number. */
static inline void board_both(void *(*what)(void *))
{
    static int ids[2] = {0, 1};
    pthread_t  other;

    ck_assert_int_eq(pthread_create(&other, NULL, what, &ids[1]), 0);
    (void)what(&ids[0]);
    pthread_join(other, NULL);
}

#endif
