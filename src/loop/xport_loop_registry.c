/*
 * The registry of the loop transport: the contexts of this process by id, and the faults that tests inject.
 *
 * Owns: kvcl_loop. Invariants: an id is never used again; the registry of a forked child is empty (join_registry in
 * xport_loop.c). Locks: one process-wide mutex, kvcl_loop.lock, guards the registry, every list in every transport and
 * the faults. It is a leaf below the engine locks of all contexts, and is never held while a callback runs.
 */
#include "config.h"
#include "loop/xport_loop_impl.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

loop_registry_t kvcl_loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .xports = {&kvcl_loop.xports, &kvcl_loop.xports}};

void kvcl_loop_set_faults(const kvcl_loop_faults_t *faults)
{
    static const kvcl_loop_faults_t none;

    pthread_mutex_lock(&kvcl_loop.lock);
    kvcl_loop.faults = (faults != NULL) ? *faults : none;
    kvcl_rand_seed(&kvcl_loop.rnd, kvcl_loop.faults.reorder_seed ^ kvcl_loop.faults.overtake_seed);
    pthread_mutex_unlock(&kvcl_loop.lock);
}

/* Counts down to the *nth event: true exactly once. Lock held. */
bool kvcl_loop_fault_hits(uint64_t *nth)
{
    return (*nth > 0) && (--*nth == 0);
}

void *kvcl_loop_alloc(size_t len)
{
    bool fail;

    pthread_mutex_lock(&kvcl_loop.lock);
    fail = kvcl_loop_fault_hits(&kvcl_loop.faults.fail_alloc_nth);
    pthread_mutex_unlock(&kvcl_loop.lock);
    return fail ? NULL : calloc(1, len);
}

loop_xport_t *kvcl_loop_find(uint64_t id)
{
    loop_xport_t *x;

    kvcl_list_foreach(x, &kvcl_loop.xports, loop_xport_t, link) {
        if (x->id == id) {
            return x;
        }
    }
    return NULL;
}

/* Lock held. */
void kvcl_loop_wake(loop_xport_t *x)
{
    uint64_t one = 1;

    if (x->armed) {
        x->armed    = false;
        x->signaled = true;
        if (write(x->efd, &one, sizeof(one)) < 0) {
            kvcl_log_error("loop: eventfd write failed: %s", strerror(errno));
        }
    }
}
