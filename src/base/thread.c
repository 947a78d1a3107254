/*
 * Threads of the library (thread.h). Owns: nothing; a thread is its starter's. Locks: none.
 */
#include "config.h"
#include "base/thread.h"

#include <signal.h>

int kvcl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg)
{
    sigset_t all, old;
    int      err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err == 0) {
        pthread_setname_np(*thread, name);
    }
    return err;
}
