/*
 * Threads of the library.
 */
#ifndef KVCL_BASE_THREAD_H
#define KVCL_BASE_THREAD_H

#include <pthread.h>

/**
 * Start a thread that no signal interrupts: signals are the application's, and its threads'.
 * @param name  shown by ps and gdb, at most 15 bytes.
 * @return as pthread_create().
 */
int kvcl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

#endif
